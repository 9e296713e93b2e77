"""Messages, stored bytes and archives, which are never run as code and cannot end the process."""

import ast
import json
import time
import tracemalloc
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import Ignored, columns, get_format
from cdc_formats.errors import (
    DecodeError,
    InferenceError,
    SchemaError,
    StateDamagedError,
    StateVersionError,
)
from cdc_formats.topics.inference import infer_schema
from normalize.core.state import KeyGroup, Layout
from tests.support.hostile import MESSAGES, SCHEMA
from tests.support.imports import imported, tree_of
from tests.support.paths import REPOSITORY

PACKAGES = ("cdc_formats", "cdc_cli", "normalize")
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))

DESERIALISERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "ruamel",
    "jsonpickle",
}
ARCHIVES_AND_XML = {"tarfile", "zipfile", "xml", "lxml", "defusedxml"}
RUNS = {"eval", "exec", "compile", "__import__", "execfile"}
SHELLS = {"system", "popen", "spawnl", "spawnv", "execv", "execvp"}

IMPORTS_ALLOWED = {
    (
        "cdc_formats/testing.py",
        "pickle",
    ): "check_format pickles a format and reads back its own bytes, as Spark will; it is for tests",
    (
        "normalize/local_kafka.py",
        "xml",
    ): "xml.sax.saxutils.quoteattr, which writes; nothing is parsed",
    (
        "normalize/run/job.py",
        "yaml",
    ): "yaml.compose with SafeLoader, which makes no objects, for keys that occur twice",
}
CALLS_ALLOWED = {
    (
        "cdc_formats/testing.py",
        "eval",
    ): "check_format evaluates the repr of a format of its caller; it is for tests",
}


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def called(tree: ast.AST) -> set[str]:
    """The called plain names, and the called functions of ``os``."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    plain = {func.id for func in calls if isinstance(func, ast.Name)}
    attributes = [func for func in calls if isinstance(func, ast.Attribute)]
    return plain | {
        func.attr
        for func in attributes
        if isinstance(func.value, ast.Name) and func.value.id == "os"
    }


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_module_deserialises_code_or_runs_text(path: Path) -> None:
    tree = tree_of(path)
    bad = {(relative(path), name) for name in imported(path) & (DESERIALISERS | ARCHIVES_AND_XML)}
    assert bad <= set(IMPORTS_ALLOWED)
    assert {(relative(path), name) for name in called(tree) & (RUNS | SHELLS)} <= set(CALLS_ALLOWED)
    keywords = {
        (node.arg, ast.unparse(node.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
    }
    assert {(name, value) for name, value in keywords if name in ("shell", "allow_pickle")} <= {
        ("shell", "False")
    }


def test_the_allowed_exceptions_still_exist() -> None:
    trees = {relative(path): tree_of(path) for path in MODULES}
    assert all(name in imported(REPOSITORY / path) for path, name in IMPORTS_ALLOWED)
    assert all(name in called(trees[path]) for path, name in CALLS_ALLOWED)


HOSTILE_NAMES = [
    'x"] or __import__("os").abort() or ["',
    "c0",
    "to0",
    "image",
    "value",
    "None",
    "a`b",
    "lambda",
    "\n",
    "form0",
    "__class__",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_the_name_of_a_column_is_never_part_of_an_expression(name: str) -> None:
    # An inferred schema has names from messages.
    quoted = "`" + name.replace("`", "``") + "`"
    for identifier, message in (
        ("debezium-json", {"op": "c", "after": {name: 7, "n": "t"}}),
        ("maxwell-json", {"type": "insert", "data": {name: 7, "n": "t"}}),
    ):
        decoder = get_format(identifier).decoder(f"{quoted} INT, n STRING", unique_key=[name])
        (change,) = decoder.decode(None, json.dumps(message).encode())
        assert change.row == (7, "t")
        (keyed,) = decoder.upserts(None, json.dumps(message).encode())
        assert keyed.row is not None


# --------------------------------------------------------------------------------------------------
# messages that are bombs

DEEP = 50_000
NUMBERS = [
    "1e999999999",
    "-1e-999999999",
    "9" * 100_000,
    "0." + "0" * 100_000 + "1",
    "1" + "0" * 400 + "e-400",
    "NaN",
    "Infinity",
]
TYPES = [
    "INT",
    "BIGINT",
    "DECIMAL(38,18)",
    "DECIMAL(38,0)",
    "DOUBLE",
    "FLOAT",
    "BOOLEAN",
    "STRING",
    "DATE",
    "TIMESTAMP(3)",
    "TIME(3)",
    "BINARY",
]
SECONDS, BYTES = 5.0, 400 << 20


def bombs(message: Any) -> list[bytes]:
    """Messages whose row values are deeply nested, or are numbers with very many digits."""
    text = json.dumps(message)
    deep = [
        text.replace('"bike"', "[" * DEEP + "]" * DEEP),
        text.replace('"bike"', '{"a":' * DEEP + "1" + "}" * DEEP),
        "[" * DEEP,
        '{"a":' * DEEP,
    ]
    numbers = [text.replace('"9.50"', number) for number in NUMBERS] + [
        text.replace("9.50", number) for number in NUMBERS
    ]
    return [each.encode() for each in (*deep, *numbers)]


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    """The result of a call, or its error, which must be allowed for messages and short."""
    try:
        return call(*arguments, **options)
    except (DecodeError, InferenceError, SchemaError) as error:
        short = len(str(error)) < 4000
        return error if short else AssertionError(f"the error's text is long: {str(error)[:200]}")


@pytest.mark.parametrize("identifier", sorted(MESSAGES))
def test_a_bomb_is_a_bad_record_or_a_row_quickly_and_in_little_memory(identifier: str) -> None:
    name = "_id" if "mongodb" in identifier else "id"
    decoder = get_format(identifier).decoder(
        SCHEMA.replace("id INT", f"{name} INT", 1), unique_key=[name]
    )
    tracemalloc.start()
    try:
        for value in bombs(MESSAGES[identifier][0]):
            started = time.process_time()
            for decode in (decoder.decode, decoder.upserts):
                assert isinstance(
                    outcome(decode, b'{"id": 1}', value), list | Ignored | DecodeError
                )
            outcome(infer_schema, [(None, value)], format=identifier)
            assert time.process_time() - started < SECONDS
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sql_type", TYPES)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:14])
@pytest.mark.parametrize("quoted", [False, True], ids=["a number", "text"])
def test_a_number_bomb_is_refused_or_fits(sql_type: str, number: str, quoted: bool) -> None:
    decoder = get_format("debezium-json").decoder(f"v {sql_type}")
    value = f'{{"op": "c", "after": {{"v": {json.dumps(number) if quoted else number}}}}}'.encode()
    started = time.process_time()
    result = outcome(decoder.decode, None, value)
    assert time.process_time() - started < SECONDS
    if not isinstance(result, DecodeError):
        (change,) = result
        assert len(str(change.row)) <= 4 * len(number) + 40


# --------------------------------------------------------------------------------------------------
# bytes of a checkpoint

TABLE = columns("id INT, name STRING, price DECIMAL(10,2), tags ARRAY<STRING>")
LAYOUTS = {
    "rows": Layout(4, TABLE, ("id",)),
    "positions": Layout(4, TABLE, ("id",), with_positions=True),
}


def stored(layout: Layout) -> bytes:
    names = [name for name in layout.schema.names if name not in ("key", "c0", "c1")]
    place = {"epoch": 0, "high": 1, "low": 2, "deleted_at": 0}
    rows = [
        {
            **dict.fromkeys(names),
            **place,
            "key": b"%d" % number,
            "c0": number,
            "c1": f"name {number}",
        }
        for number in range(50)
    ]
    return layout.encode(KeyGroup(pa.RecordBatch.from_pylist(rows, schema=layout.schema)))


def damaged(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed[: random.randrange(len(changed))] if random.random() < 0.2 else changed)


@pytest.mark.parametrize("name", LAYOUTS)
def test_tampered_state_is_a_typed_error_and_never_ends_the_process(name: str) -> None:
    layout, random, errors = LAYOUTS[name], Random(7), Counter[type]()
    data = stored(layout)
    for _ in range(4000):
        try:
            layout.decode(damaged(data, random), 0).rows.to_pylist()
        except (StateDamagedError, StateVersionError) as error:
            errors[type(error)] += 1
    assert min(errors[StateDamagedError], errors[StateVersionError]) > 5
    assert layout.decode(data, 0).rows.num_rows == 50


def test_tampered_old_state_is_a_typed_error_too() -> None:
    (data,) = [file.read_bytes() for file in (REPOSITORY / "tests").rglob("v1/rows.bin")]
    layout, random = (
        Layout(64, columns("id BIGINT, name STRING, price DECIMAL(10,3)"), ("id",)),
        Random(7),
    )
    assert layout.decode(data, 0).rows.num_rows == 3
    for _ in range(2000):
        with suppress(StateDamagedError, StateVersionError):
            layout.decode(damaged(data, random), 0).rows.to_pylist()
