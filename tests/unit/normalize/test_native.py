"""The native decoder gives the rows and the errors that each message gives alone."""

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.errors import ArgumentError, SchemaError
from normalize.api import explain_changelog
from normalize.core.records import Values
from normalize.decode.collectors import Blocks
from normalize.decode.columnar.native import SWITCH, native_module
from normalize.decode.decode_pass import records_of
from normalize.decode.plan import DecodePlan
from normalize.kafka.reader_options import check_option_values, decodes_natively
from tests.support.both_decoders import (
    Record,
    batch_of,
    differences,
    natively,
    source_of,
)
from tests.support.examples import examples
from tests.support.paths import REPOSITORY

needs_native = pytest.mark.skipif(native_module() is None, reason="installed without Rust")


def native_of(plan: DecodePlan, *, keyed: bool = True) -> Any:
    """Return the native decoder of a plan, None if Python decodes it."""
    return natively(plan, keyed=keyed).native


def decoded(plan: DecodePlan, records: list[Record]) -> Any:
    """Return what the native decoder returns for records."""
    ((part, kafka),) = records_of(batch_of(records), plan)
    return native_of(plan).decode(part._replace(numbers=np.arange(len(records))), kafka)


def in_doubt(plan: DecodePlan, records: list[Record]) -> list[int]:
    """Return the records that the native decoder leaves in doubt; all results must be the same."""
    assert not differences(plan, records, columnar=natively)
    return decoded(plan, records)[1].tolist()


SOURCE = {
    "connector": "mysql",
    "db": "shop",
    "table": "parts",
    "ts_ms": 1700000000000,
    "file": "binlog.000001",
    "pos": 4,
    "row": 0,
}


def message(value: str, *, op: str = "c", before: str = "null") -> bytes:
    """Return a message whose row has this JSON text in the column `v`."""
    source = json.dumps(SOURCE)
    row = f'{{"id":1,"v":{value}}}'
    return f'{{"before":{before},"after":{row},"source":{source},"op":"{op}","ts_ms":1}}'.encode()


TEXTS = (
    "null", "true", "false", "0", "1", "-1", "-0", "127", "128", "32768", "2147483648", "9223372036854775807", "-9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "18446744073709551615", "1.0", "1.5", "1.10", "0.1", "1e2", "1E-2", "-0.0", "1e400",
    "1e-400", "1e99999", "123456789012345678901234567890", "0.30000000000000004", "5e-324", "1.7976931348623157e308", "12.345", "12.34",
    "-12.34", "99999.99", "9999.99", '""', '"a"', '" 1"', '"1"', '"-1"', '"+1"', '"01"', '"1.5"', '"1.50"', '"-0.50"', '"-0"', '"0.5"',
    '"1e2"', '"007.5"', '"12.345"', '"9999.99"', '"10000"', '"AQ=="', '"BNI="', '"/w=="', '"AQ"', '"AA=A"', '"A\\u0051=="', '"true"',
    '"TRUE"', '"NaN"', '"Infinity"', '"2024-02-29"', '"2023-02-29"', '"0001-01-01"', '"0000-12-31"', '"9999-12-31"', '"2024-2-1"',
    '"20240201"', '"2024-W01-1"', '"2024-02-29Z"', '"2024-02-29 12:34:56"', '"2024-02-29T12:34:56"', '"2024-02-29T12:34:56Z"',
    '"2024-02-29T12:34:56.5Z"', '"2024-02-29 12:34:56.123456"', '"2024-02-29 12:34:56.1234567"', '"2024-02-29T12:34:56.123456789Z"',
    '"2024-02-29T12:34:56+01:00"', '"2024-02-29 24:00:00"', '"2024-02-29 12:34"', '"2024-02-29T12:34:60Z"', '"12:34:56"', "1700000000000",
    "1700000000000000", "-62135596800000", "253402300799999", "253402300800000", "19000", "2932896", "2932897", "-719162", "-719163",
    "[]", "[1,2]", "{}", '{"a":[1.10,null]}', '{"scale":1,"value":"AQ=="}', '"__debezium_unavailable_value"',
    '"__debezium_unavailable_valu\\u0065"', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="', '"a\\n\\t\\"\\\\\\/\\b\\f\\r"',
    '"\\u00e9\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\u0000"', '"\u00e9\u65e5"', '"a\tb"', "nul", "NaN", "01", "+1", ".5", "1.",
)  # fmt: skip
TYPES = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "CHAR(3)", "DECIMAL(6,2)", "DECIMAL(38,0)",
    "DECIMAL(38,38)", "DECIMAL(20,0)", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_NTZ(0)", "TIMESTAMP_NTZ(6)",
    "BINARY", "VARIANT", "ARRAY<INT>", "STRUCT<a: ARRAY<STRING>>", "MAP<STRING, STRING>", "INTERVAL DAY TO SECOND",
)  # fmt: skip
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"decimal_handling_mode": "string", "time_precision_mode": "isostring"},
    {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive"},
    {"decimal_handling_mode": "double", "time_precision_mode": "nanoseconds"},
    {"bigint_unsigned_handling_mode": "long", "time_precision_mode": "connect"},
    {"bigint_unsigned_handling_mode": "precise", "time_precision_mode": "microseconds"},
    {"rounding": "half_up", "decimal_handling_mode": "string", "time_zone": "Europe/Berlin"},
)


@needs_native
@pytest.mark.parametrize("sql_type", TYPES)
def test_each_value_of_each_type_gives_the_same(sql_type: str) -> None:
    start = TYPES.index(sql_type)
    for place in range(start, start + examples(len(OPTIONS))):
        options, not_null = OPTIONS[place % len(OPTIONS)], " NOT NULL" if place % 2 else ""
        format = get_format("debezium-json", **options)
        plan = source_of(format, f"id INT NOT NULL, v {sql_type}{not_null}", ["id"])
        try:
            plan.decoder()
        except SchemaError:  # the mode does not write such values
            continue
        assert not differences(
            plan, [(None, message(text)) for text in TEXTS], columnar=natively
        ), options


@needs_native
@pytest.mark.parametrize("sql_type", ["INT", "BIGINT", "STRING", "DATE", "TIMESTAMP(3)"])
def test_each_value_in_a_key_gives_the_same(sql_type: str) -> None:
    format = get_format("debezium-json", time_precision_mode="connect")
    plan = source_of(format, f"id INT, v {sql_type}", ["id", "v"])
    records: list[Record] = []
    for text in TEXTS:
        before = f'{{"id":1,"v":{text}}}'
        records += [
            (None, message(text)),
            (None, message(text, op="u", before=before)),
            (None, message(text, op="u", before='{"id":1,"v":2}')),
            (None, message("5", op="d", before=before)),
            (None, message(text, op="d", before=before).replace(message(text)[30:], b"")),
        ]
    assert not differences(plan, records, columnar=natively)


@needs_native
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (message('"a"'), []),
        (message('"a"', op="u", before='{"id":1}'), []),
        (message('"\u00e9"'), []),
        (message('"a"', op="u", before='{"id":2}'), [1]),
        (message('"a"', op="d"), [1]),
        (message("5"), [1]),
        (message('"a"').replace(b'"parts"', b'"tools"'), [1]),
        (message('"a"').replace(b"mysql", b"spanner"), [1]),
        (message('"a"').replace(b'"v"', b'"id"'), [1]),
        (message('"a"').replace(b'"v"', b'"\\u0076"'), [1]),
        (message('"a"').replace(b'"op":"c"', b'"op":"c","op":"c"'), [1]),
        (message('"a"').replace(b'"op":"c"', b'"op":"x"'), [1]),
        (message('"a"').replace(b'"a"', b'"\xff"'), [1]),
        (message('"a"').replace(b'"ts_ms": 17', b'"ts_ms": 1700000'), [1]),
        (b"\xef\xbb\xbf" + message('"a"'), [1]),
        (message('"a"') + b" ", []),
        (message('"a"') + b"1", [1]),
        (b'{"payload":' + message('"a"') + b"}", [1]),
        (b"", [1]),
        (None, [1]),
    ],
)
def test_messages_in_doubt(value: bytes | None, expected: list[int]) -> None:
    metadata = {"at": "source.timestamp"}
    plan = source_of(
        get_format("debezium-json"), "id INT, v STRING", ["id"], metadata, on_truncate="ignore"
    )
    sound = (None, message('"sound"'))
    records = [sound, (None, value), sound]
    # One table in a query: the message of the other one ends it.
    is_of_other = value is not None and b"tools" in value
    doubtful = decoded(plan, records)[1].tolist() if is_of_other else in_doubt(plan, records)
    assert doubtful == expected


@needs_native
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: in_block(value)])
def test_the_position_of_an_ignored_delete_is_read(wrap: Any) -> None:
    plan = source_of(
        get_format("debezium-json"), "id INT", ["id"], positions=True, ignore_deletes=True
    )
    row = '{"id":1,"v":null}'
    delete = message("null", op="d", before=row)
    without = delete.replace(b'"file"', b'"other"')
    records = [wrap(value) for value in (without, delete, message("null"))]
    assert in_doubt(plan, [(None, value) for value in records]) == [0]


def in_block(value: bytes, digits: int = 2) -> bytes:
    """Return a message in a schema block, as Kafka Connect writes it."""
    scale = {"scale": str(digits)}
    columns = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "bytes", "field": "v", "parameters": scale, "name": DECIMAL, "optional": True},
    ]
    images = [
        {"type": "struct", "fields": columns, "optional": True, "field": image}
        for image in ("before", "after")
    ]
    block = json.dumps({"type": "struct", "fields": images, "optional": False}).encode()
    return b'{"schema":' + block + b',"payload":' + value + b"}"


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@needs_native
@pytest.mark.parametrize("schema_include", ["auto", True])
@pytest.mark.parametrize("positions", [False, True])
def test_messages_in_schema_blocks(schema_include: bool | str, positions: bool) -> None:
    format = get_format("debezium-json", schema_include=schema_include)
    plan = source_of(
        format,
        "id INT, v DECIMAL(6,2)",
        ["id"],
        {"at": "source.timestamp", "block": "schema"},
        positions=positions,
    )
    sound = message('"BNI="')
    values = [
        *(in_block(sound), in_block(sound, digits=1), in_block(message("null", op="u"))),
        *(in_block(message('"BNI="', op="d", before='{"id":1,"v":"BNI="}')), sound, None),
        *(
            in_block(message('"?"')),
            in_block(b"null"),
            in_block(sound + b',"op":"c"'),
            in_block(sound) + b" ",
        ),
        *(in_block(sound).replace(b'"schema":', b'"schema": '), in_block(sound)[:-1] + b"]"),
        b'{"schema":{"type":1},"payload":' + sound + b"}",
        *(
            in_block(sound).replace(b'"int32"', b'"\xff"'),
            in_block(sound).replace(b"mysql", b"spanner"),
        ),
        *(in_block(sound).replace(b'"v":"', b'"v":"\xff'), in_block(in_block(sound))),
    ]
    doubtful = in_doubt(plan, [(None, value) for value in values])
    # A DECIMAL(_,1) in a column with two digits is for Python; outside blocks this text is not unscaled.
    assert [index for index in doubtful if index < 4] == [1]
    assert set(range(5, len(values))) <= set(doubtful)
    first = decoded(plan, [(None, value) for value in (None, values[1], *values[:2], sound)])[2]
    assert list(first.values()) == [2]


@needs_native
def test_parts_of_an_array_and_nulls_are_read() -> None:
    plan = source_of(get_format("debezium-json"), "id INT, v STRING", ["id"], mode="FAILFAST")
    values = pa.array([None, b"x", None, message('"a"'), None, message('"b"'), b"y"], pa.binary())
    native = native_of(plan)
    ((part, _),) = records_of(batch_of([(None, b"x")] * 4), plan)
    part = part._replace(values=Values(values[2:6]))
    (changes,), doubtful, _ = native.decode(part, [])
    assert (doubtful.tolist(), changes.places.tolist()) == ([0, 2], [1, 3])
    assert changes.changes.batch.column("c1").to_pylist() == ["a", "b"]
    empty = part._replace(values=Values(values[:0]), stamps=np.zeros(0, np.int64))
    assert len(native.decode(empty, [])[0][0].places) == 0


@needs_native
def test_what_the_native_decoder_does_not_know_is_decoded_without_it() -> None:
    format = get_format("debezium-json")
    known = {"schema": "id INT, v STRING", "primary_key": ["id"], "metadata": {}}
    unknown: list[dict[str, Any]] = [
        {"schema": "id DOUBLE, v STRING"},
        {"metadata": {"at": "source.timestamp"}, "key_metadata": ("at",)},
    ]
    found = [native_of(source_of(format, **{**known, **each})) for each in ({}, *unknown)]
    found.append(native_of(source_of(format, "id INT", ["id"]), keyed=False))
    assert [each is None for each in found] == [False, True, True, True]


RUN = """
import sys, warnings
from types import ModuleType
MODULE = sys.modules["normalize._native"] = {module}
MODULE and setattr(MODULE, "INTERFACE", 0)
from normalize.decode.columnar.native import native_module
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    found = [native_module(), native_module()]
print(found, [str(each.message) for each in shown])
"""

BATCHES = """
import os, resource
import pyarrow as pa
from normalize.decode.columnar.native import native_module
fields = [("after", "after", False, None), ("op", "operation", [("c", "+I")], None)]
columns = [(name, kind, False) for name, *kind in (("id", "integer", 8), ("v", "text", []), ("b", "boolean"))]
columns = [(name, tuple(kind), required) for name, kind, required in columns]

def decoder(fields):
    flags = dict.fromkeys(("deleted_is_before", "missing_is_null", "needs_before", "ignores_deletes"), False)
    return native_module().Decoder(fields=fields, columns=columns, null_names=[], keys=[0], **flags)
"""
"""A decoder without a plan: `fields` are those of its messages."""

SMALL_MEMORY = """
values = pa.array([b'{"after":{"id":%d,"v":"%s","b":null},"op":"c"}' % (i, b"x" * 50) for i in range(100_000)], pa.binary())
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for more in range(0, 60_000_000, 5_000_000):
    if not os.fork():
        of_batch = decoder(fields)
        resource.setrlimit(resource.RLIMIT_AS, (size + more,) * 2)
        try:
            print("doubtful" if of_batch.decode(values)["doubtful"] else "decoded", flush=True)
        except MemoryError:
            print("MemoryError", flush=True)
        os._exit(0)
    end = os.wait()[1]
    if end:
        print("ended by", end, flush=True)
"""
IMPORT = "\nimport warnings\n" + RUN.split("\n", 5)[5]
ignored = shutil.ignore_patterns("__pycache__", "_native*")


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("ModuleType('another')", "it has the interface 0, and 3 is needed"),
        ("None", "[None, None] []"),
    ],
)
def test_a_module_of_another_release_is_not_used(module: str, expected: str) -> None:
    printed = run(RUN.format(module=module))
    assert printed.startswith("[None, None]")
    assert (expected in printed, "is not used" in printed) == (True, expected[0] == "i")


def run(script: str, **environment: str) -> str:
    """Return what a script prints in a process of its own, which must not be aborted."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_library_of_another_platform_is_not_used(tmp_path: Path) -> None:
    # As when a package is sent to workers of another system, in a folder.
    shutil.copytree(REPOSITORY / "normalize", tmp_path / "normalize", ignore=ignored)
    (tmp_path / "normalize" / f"_native{EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library")
    printed = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}){IMPORT}")
    assert printed.startswith("[None, None] ['normalize._native is not used: ")


def test_a_package_in_a_zip_is_decoded_by_python(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    for name in ("normalize", "cdc_formats"):
        shutil.copytree(
            REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    packed = shutil.make_archive(str(tmp_path / "package"), "zip", folder)
    # An editable installation adds a finder of its own, which would import the clone's library.
    without_finder = (
        "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each)]"
    )
    printed = run(
        f"import sys; sys.path.insert(0, {packed!r}); {without_finder}{IMPORT}"
        "print(native_module.__wrapped__.__code__)"
    )
    assert printed.startswith("[None, None] []")
    assert packed in printed


@needs_native
def test_a_panic_is_an_error_of_the_task() -> None:
    # This many numbered fields are a defect of the caller: no memory has their size.
    many = "decoder([('t', 'text', None, 2**62), *fields]).decode(pa.array([b'{}'], pa.binary()))"
    printed = run(f"{BATCHES}\ntry:\n    {many}\nexcept RuntimeError as error:\n    print(error)")
    assert printed == (
        "the native decoder has a defect (capacity overflow): set the environment variable "
        "CDC_NATIVE to 0, so that Python decodes, and report it\n"
    )


@needs_native
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
def test_without_memory_a_batch_is_an_error_or_left_to_python() -> None:
    # Several arenas have reserved memory, which no limit counts.
    ends = {*run(f"{BATCHES}{SMALL_MEMORY}", MALLOC_ARENA_MAX="1").split()}
    assert {"MemoryError", "decoded"} <= ends <= {"MemoryError", "decoded", "doubtful"}


def test_a_switch_or_an_option_leaves_the_module_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_plan(**arguments: Any) -> Any:
        return native_of(source_of(get_format("debezium-json"), "id INT", ["id"], **arguments))

    options = ({"NativeDecoder": "false"}, {"nativeDecoder": "TRUE"})
    assert [*map(decodes_natively, options)] == [False, True]
    assert of_plan(native=False) is None
    with pytest.raises(ArgumentError, match="nativeDecoder is 'no': use 'true' or 'false'"):
        check_option_values({"nativeDecoder": "no"})
    monkeypatch.setenv(SWITCH, "0")
    assert of_plan() is None
    assert "switched off" in explain_changelog("t", format="debezium-json", primary_key="id")


@needs_native
def test_the_plan_says_which_decoder_reads() -> None:
    def line(identifier: str, **arguments: Any) -> str:
        text = explain_changelog("t", format=identifier, primary_key="id", **arguments)
        return next(line for line in text.splitlines() if "Decode(" in line).partition(": ")[2]

    assert line("debezium-json") == "by the native decoder"
    assert line("upsert-kafka").startswith("by Python, since the native decoder does not know")
    assert line("canal-json", normalize=False) == "by Python, since there is no keyed stage"


@needs_native
def test_blocks_have_the_key_groups_of_python() -> None:
    plan = source_of(get_format("debezium-json"), "id INT, v STRING", ["id", "v"], key_groups=64)
    texts = [json.dumps("x" * length) for length in (0, 1, 31, 32, 255, 256, 65535, 65536)]
    records: list[Record] = [(None, message(text)) for text in texts]
    assert not differences(plan, records, Blocks, columnar=natively)
    assert decoded(plan, records)[1].tolist() == [7]
