"""Hostile messages, stored bytes and archives.

They are never run as code and cannot end the process, and no name or value can control a terminal
or a program that shows it.
"""

import ast
import json
import pickle
import time
import tracemalloc
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from cdc_formats import Event, Format, Ignored, columns, get_format, read_object
from cdc_formats.decoder import Decoder
from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    DecodeError,
    EncodeError,
    FormatBugError,
    FormatOptionError,
    InferenceError,
    SchemaError,
    SchemaRegistryError,
    StateDamagedError,
    StateVersionError,
    printable,
)
from cdc_formats.format import BUILT_IN
from cdc_formats.message_format import json_schema_of
from cdc_formats.topics.inference import infer_schema
from normalize import ChangelogNormalize, DeadLetter
from normalize.api import explain_changelog
from normalize.core.output import Destination
from normalize.core.state import KeyGroup, Layout
from normalize.kafka.infer_arguments import arguments_text
from tests.support.examples import examples
from tests.support.hostile import HOSTILE, MESSAGES, PIECE, SCHEMA
from tests.support.imports import imported, tree_of
from tests.support.paths import REPOSITORY
from tests.support.planted import ALL, PLANTED, REGISTRY, leaks

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


# --------------------------------------------------------------------------------------------------
# texts: errors, inferred schemas and reprs


def spoiled(value: Any, piece: str, random: Random) -> Any:
    """The same value with a hostile piece added to, or replacing, some of its names and texts."""
    if isinstance(value, dict):
        return {
            spoiled(name, piece, random): spoiled(each, piece, random)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [spoiled(each, piece, random) for each in value]
    if random.random() > 0.15:
        return value
    return (value if isinstance(value, str) else "") + piece


def encoded(message: Any, raw: bool) -> bytes:
    """A message's bytes, with raw characters or with JSON escapes."""
    return json.dumps(message, ensure_ascii=not raw).encode("utf-8", "surrogatepass")


def decoders(identifier: str) -> list[Decoder]:
    name = "_id" if "mongodb" in identifier else "id"
    format = get_format(identifier)
    schema = SCHEMA.replace("id INT", f"{name} INT", 1)
    every = {"unique_key": [name], "metadata": sorted(format.metadata)}
    readers = [format.decoder(schema, **every, positions=not format.traits.positions)]
    if json_schema_of(type(format)) is not None:
        readers.append(get_format(identifier, validate=True).decoder(schema, **every))
    return readers


def errors_of(identifier: str, key: bytes | None, value: bytes) -> list[ChangelogError]:
    errors: list[ChangelogError] = []
    for decoder in DECODERS[identifier]:
        for decode in (decoder.decode, decoder.upserts):
            try:
                decode(key, value)
            except DecodeError as error:
                errors += [error, error.at(where="t[0]@1"), error.without_data()]
    try:
        infer_schema([(key, value)], format=FORMATS[identifier])
    except (InferenceError, SchemaError) as error:
        errors.append(error)
    return errors


FORMATS = {name: get_format(name) for name in MESSAGES}
DECODERS = {name: decoders(name) for name in MESSAGES}


def test_every_text_format_is_covered() -> None:
    assert sorted([*MESSAGES, "debezium-avro-confluent"]) == sorted(BUILT_IN)


@pytest.mark.parametrize("identifier", sorted(MESSAGES))
@settings(max_examples=examples(40))
@given(piece=PIECE, seed=st.integers(0, 10_000), raw=st.booleans())
@example(piece="\x1b[2J\x1b[31m", seed=1, raw=False)
@example(piece="\u202e", seed=1, raw=True)
def test_errors_have_no_control_characters(
    identifier: str, piece: str, seed: int, raw: bool
) -> None:
    random = Random(seed)
    for message in MESSAGES[identifier]:
        bad = spoiled(message, piece, random)
        for error in errors_of(
            identifier, encoded(spoiled({"id": 1}, piece, random), raw), encoded(bad, raw)
        ):
            for text in (str(error), f"{error}", repr(error)):
                assert printable(text) == text


@pytest.mark.parametrize(
    "cls",
    [ArgumentError, EncodeError, FormatBugError, InferenceError, SchemaError],
    ids=lambda cls: cls.__name__,
)
@pytest.mark.parametrize("piece", HOSTILE)
def test_errors_of_every_class_escape_names(cls: type[ChangelogError], piece: str) -> None:
    text = str(cls(f"column {piece} is wrong"))
    assert printable(text) == text
    assert text.startswith(f"[{cls.condition}] column ")


class PlainJson(Format):
    """A third-party format that reads objects without checks."""

    identifier = "plain-json"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert(read_object(value), path="$")]


def test_an_escaped_name_is_shown() -> None:
    with pytest.raises(DecodeError, match=r"it has id\\x1b\[2J"):
        PlainJson().decoder("id INT").decode(None, encoded({"id\x1b[2J": 1}, raw=False))


# --------------------------------------------------------------------------------------------------
# what is to be pasted

NAMES = [
    '"""+__import__("os").abort()+"""',
    "a\nb",
    'c"""\nimport os\n"""',
    "\\",
    "\x1b[2J",
    "\u202ename",
    "x`y",
    "# z",
    "'''",
    "plain",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", [[], ["two\nlines"]], ids=["one column", "two columns"])
def test_an_inferred_schema_can_be_pasted_and_runs_no_code(name: str, more: list[str]) -> None:
    row = {name: 1, **dict.fromkeys(more, "text")}
    inferred = infer_schema(
        [(None, json.dumps({"op": "+I", "data": row}).encode())], format="changelog-json"
    )
    text = arguments_text(inferred, ["orders"], {}, [name])
    assert [line for line in text.split("\n") if printable(line) != line] == []
    assert [line for line in str(inferred).split("\n") if printable(line) != line] == []
    pasted = text.partition("\n")[2].rpartition("\n")[0]
    arguments = {
        target.targets[0].id: ast.literal_eval(target.value) for target in ast.parse(pasted).body
    }  # type: ignore[attr-defined]
    assert arguments["primary_key"] == [name]
    assert {
        column.name for column in get_format("changelog-json").decoder(arguments["schema"]).columns
    } == {name, *more}


# --------------------------------------------------------------------------------------------------
# Secrets in the options of formats: no repr and no error contains them
UPSERT = {
    "value_format": "avro-confluent",
    **{f"avro_confluent_{name}": value for name, value in ALL.items()},
}


@pytest.mark.parametrize(
    ("identifier", "options"), [("debezium-avro-confluent", ALL), ("upsert-kafka", UPSERT)]
)
def test_formats_show_no_secret_and_keep_it(identifier: str, options: dict) -> None:
    format = get_format(identifier, **options)
    texts = [
        repr(format),
        str(format),
        repr({"of": [format]}),
        explain_changelog("orders", format=format, primary_key=["id"]),
    ]
    assert not leaks("".join(texts), list(PLANTED.values()))
    for secret in ("basic", "key", "proxy"):
        assert PLANTED[secret].encode() in pickle.dumps(format)  # the workers need it


def test_objects_that_carry_options_to_the_workers_show_no_secrets() -> None:
    letters = Destination("dead", "debezium-json", (("sasl.password", PLANTED["producer"]),))
    decoder = get_format("debezium-avro-confluent", **ALL).decoder("id INT")
    public = DeadLetter("dead", {"sasl.password": PLANTED["producer"]})
    shown = [letters, public, decoder, decoder.format, ChangelogNormalize(primary_key=["id"])]
    assert not leaks("".join(f"{each!r}{each}" for each in shown), list(PLANTED.values()))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(REGISTRY, SchemaRegistryError, id="no answer"),
        pytest.param(ALL, FormatOptionError, id="no certificate for the key"),
        pytest.param(
            {**REGISTRY, "properties": {"no.such": PLANTED["proxy"]}},
            FormatOptionError,
            id="an unknown property",
        ),
        pytest.param(
            {**REGISTRY, "properties": {"timeout": PLANTED["proxy"]}},
            SchemaRegistryError,
            id="a property of another type",
        ),
    ],
)
def test_an_unreachable_registry_is_an_error_without_secrets(
    options: dict, error: type[Exception]
) -> None:
    decoder = get_format("debezium-avro-confluent", **options).decoder("id INT")
    with pytest.raises(error) as caught:
        decoder.decode(None, b"\0\0\0\0\1avro")
    assert not leaks(str(caught.value) + repr(caught.value), list(PLANTED.values()))
