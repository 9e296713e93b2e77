"""Encoders: in every format and handling, written rows read back equal; other rows are errors."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import (
    Change,
    ChangelogMode,
    Column,
    Encoder,
    Event,
    Format,
    RowKind,
    SqlType,
    columns,
    get_format,
    read_object,
)
from cdc_formats.encoding import pair_updates
from cdc_formats.errors import EncodeError, SchemaError
from cdc_formats.formats.canal import CanalJson
from cdc_formats.formats.changelog import ChangelogJson
from cdc_formats.formats.debezium.json import UNAVAILABLE_VALUE_PLACEHOLDER, DebeziumJson
from cdc_formats.formats.maxwell import MaxwellJson
from cdc_formats.formats.ogg import OggJson
from cdc_formats.testing import Vector, check_encoder
from cdc_formats.values.numbers import decimal_text
from cdc_formats.values.schema import BINARY_MODES, DECIMAL_MODES, TIME_MODES
from tests.support.error_texts import error_test, text_test
from tests.support.examples import examples
from tests.support.writing import written

INS, B, A, D = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
PLACEHOLDER = UNAVAILABLE_VALUE_PLACEHOLDER

# --------------------------------------------------------------------------------------------------
# the messages

ORDERS = "id INT, item STRING, price DECIMAL(10,2)"
OLD, NEW = (7, "bike", "100.00"), (7, "bike", "99.50")
ALL_KINDS = [(INS, OLD), (A, NEW, OLD), (A, NEW, NEW), (D, NEW), (B, OLD), (A, NEW)]
IN_PAIRS = ("canal-json", "debezium-json", "maxwell-json", "ogg-json", "ticdc-canal-json")
STAMPS = "id INT, a TIMESTAMP_NTZ(3), b TIMESTAMP, c ARRAY<TIMESTAMP_NTZ>"
OLD_STAMPS, NEW_STAMPS = (1, 6_000, 2_000_000, [1]), (1, 5_000, 1_000_000, [None, 0])
FLOAT_3_14 = 3.140000104904175
WIDE = (
    "a BOOLEAN, b BIGINT, c DOUBLE, d DECIMAL(5,1), e BINARY, f TIMESTAMP_NTZ, g ARRAY<INT>, h "
    "FLOAT"
)
WIDE_ROW = (True, -5, 1e16, "0.5", b"\x00\xff", 1_000_000, [1, None], float("nan"))
DESCRIBED = (
    "id BIGINT NOT NULL, price DECIMAL(10,2), at TIMESTAMP, day DATE, t TIME(3), tags "
    "ARRAY<DECIMAL(5,1)>, m MAP<STRING, DECIMAL(3,1)>"
)
SPELLED: list[tuple[str, dict[str, Any], Any]] = [
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long"}, "18446744073709551615"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long"}, "5"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long", "decimal_handling_mode": "precise"}, "-1"),
    ("DECIMAL(20,0)", {"decimal_handling_mode": "double"}, "-1"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "precise"}, "-1"),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "string"}, "100.00"),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "precise"}, "-1.28"),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "precise"}, "1.28"),
    ("DECIMAL(38,0)", {"decimal_handling_mode": "double"}, "9" * 38),
    ("BINARY", {"binary_handling_mode": "hex"}, b"\xfb\xff"),
    ("BINARY", {"binary_handling_mode": "base64-url-safe"}, b"\xfb\xff"),
    ("BINARY", {}, b"\xfb\xff"),
    ("DATE", {"time_precision_mode": "connect"}, -1),
    ("DATE", {"time_precision_mode": "isostring"}, 0),
    ("DATE", {}, 0),
    ("TIME(3)", {"time_precision_mode": "adaptive"}, 7000),
    ("TIME", {"time_precision_mode": "adaptive_time_microseconds"}, 7),
    ("TIME", {"time_precision_mode": "nanoseconds"}, 7),
    ("TIME", {"time_precision_mode": "isostring"}, 7000),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "connect"}, -1000),
    ("TIMESTAMP_NTZ(6)", {"time_precision_mode": "adaptive"}, -1),
    ("TIMESTAMP_NTZ(9)", {"time_precision_mode": "adaptive"}, 1),
    ("TIMESTAMP_NTZ", {}, 0),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "isostring"}, 0),
    ("TIMESTAMP", {}, 1),
    ("TIMESTAMP", {"time_precision_mode": "microseconds"}, 1),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "microseconds"}, -5),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "isostring"}, -3_600_000_000),
]  # fmt: skip
IN_BLOCKS: list[tuple[str, dict[str, Any], Any]] = [
    ("TIME", {"time_precision_mode": "connect"}, 0),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "connect"}, 0),
    ("DATE", {"time_precision_mode": "connect"}, 0),
    ("TIME(3)", {"time_precision_mode": "adaptive"}, 0),
    ("TIMESTAMP_NTZ(3)", {"time_precision_mode": "adaptive"}, 0),
    ("TIMESTAMP_NTZ(6)", {"time_precision_mode": "adaptive"}, 0),
    ("TIME", {"time_precision_mode": "nanoseconds"}, 0),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "isostring"}, 0),
    ("DATE", {"time_precision_mode": "isostring"}, 0),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "microseconds"}, 0),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "isostring"}, 0),
    ("BINARY", {"binary_handling_mode": "bytes"}, b"\xff"),
    ("BINARY", {"binary_handling_mode": "hex"}, b"\xff"),
    ("VARIANT", {}, "[1]"),
]
LITTLE_ENDIAN = {"key_format": "raw", "value_format": "raw", "raw_endianness": "little-endian"}
test_texts = text_test(
    __file__,
    {
        "what can write a source": lambda: {
            f"{name} {options}": get_format(name, **options).encoder("id INT").writes_source
            for name, options in (
                *(("debezium-json", {}), ("debezium-json", {"schema_include": True})),
                ("canal-json", {}),
            )
        },
        **{
            f"{identifier}, the key ({', '.join(key)})": partial(
                written, get_format(identifier, validate=True), ORDERS, *ALL_KINDS, key=key
            )
            for identifier in (*IN_PAIRS, "changelog-json")
            for key in ([], ["id"], ["item", "id"])
        },
        "debezium-json, with a schema block": partial(
            written, DebeziumJson(validate=True, schema_include=True), ORDERS, *ALL_KINDS
        ),
        **{
            f"{identifier}: null and empty text are other values": partial(
                *(written, get_format(identifier), "a INT, b STRING"),
                *((A, (1, ""), (1, None)), (A, (1, None), (1, ""))),
            )
            for identifier in ("canal-json", "maxwell-json")
        },
        **{
            f"{identifier}: the sign of zero is a change": partial(
                *(written, get_format(identifier), "a INT, b DOUBLE, c ARRAY<FLOAT>"),
                (A, (1, 0.0, [0.0]), (1, -0.0, [-0.0])),
            )
            for identifier in ("canal-json", "maxwell-json")
        },
        **{
            f"debezium-json: {ddl} {value!r}, {options}": partial(
                written, DebeziumJson(**options), f"c {ddl}", (INS, (value,))
            )
            for ddl, options, value in SPELLED
        },
        **{
            f"debezium-json in a schema block: {ddl}, {options}": partial(
                written, DebeziumJson(schema_include=True, **options), f"c {ddl}", (INS, (value,))
            )
            for ddl, options, value in IN_BLOCKS
        },
        "debezium-json: the schema block of a row and its key": partial(
            *(written, DebeziumJson(schema_include=True), DESCRIBED),
            (INS, (1, "100.00", 0, 1, 5000, ["0.1"], [["a", "1.0"]])),
            key=["id"],
        ),
        "debezium-json: the default placeholder is plain text under another one": partial(
            *(written, DebeziumJson(unavailable_value_placeholder="\x00"), "c STRING"),
            (INS, (PLACEHOLDER,)),
        ),
        "debezium-flat-json": partial(
            *(written, get_format("debezium-flat-json"), ORDERS, (INS, OLD), (A, NEW)),
            *((B, OLD), (D, OLD)),
            key=["id"],
        ),
        "debezium-flat-json, with a schema block": partial(
            *(written, get_format("debezium-flat-json", schema_include=True)),
            *("price DECIMAL(10,2), at TIMESTAMP_NTZ(6)", (INS, ("3.10", 5))),
            key=["price"],
        ),
        "canal-json: every value is text": partial(written, CanalJson(), WIDE, (INS, WIDE_ROW)),
        "maxwell-json: an update of a float": partial(
            written, MaxwellJson(), "f FLOAT", (A, (1.5,), (FLOAT_3_14,))
        ),
        **{
            f"{identifier}: timestamps as {standard}": partial(
                *(written, get_format(identifier, timestamp_format_standard=standard), STAMPS),
                (A, NEW_STAMPS, *([OLD_STAMPS] if identifier in IN_PAIRS else [])),
                key=["id"],
            )
            # Flink's readers accept one of the two, chosen by their option.
            for standard in ("SQL", "ISO-8601")
            for identifier in (*IN_PAIRS, "changelog-json", "debezium-flat-json")
        },
        **{
            f"upsert-kafka: timestamps as {standard}": partial(
                *(
                    written,
                    get_format("upsert-kafka", **{"json.timestamp-format.standard": standard}),
                ),
                *("id TIMESTAMP_NTZ, at TIMESTAMP", (A, (0, 1))),
                key=["id"],
            )
            for standard in ("SQL", "ISO-8601")
        },
        **{
            f"{identifier}: a float with its own digits, {options}": partial(
                *(written, get_format(identifier, **options), "id INT, f FLOAT, d DOUBLE"),
                (INS, (1, FLOAT_3_14, FLOAT_3_14)),
                key=["id"],
            )
            for identifier, options in [
                *((name, {}) for name in (*IN_PAIRS, "changelog-json", "debezium-flat-json")),
                *(("debezium-json", {"schema_include": True}), ("upsert-kafka", {})),
                ("upsert-kafka", {"value_format": "csv"}),
            ]
        },
        "upsert-kafka: line breaks in CSV": partial(
            *(written, get_format("upsert-kafka", value_format="csv"), "id INT, s STRING"),
            *((A, (1, text)) for text in ("a\nb", "a\r", "\r\n")),
            key=["id"],
        ),
        "upsert-kafka: an array in CSV": partial(
            *(written, get_format("upsert-kafka", value_format="csv"), "id INT, a ARRAY<STRING>"),
            (A, (1, ["a", "b"])),
            key=["id"],
        ),
        "upsert-kafka: raw bytes": partial(
            *(
                written,
                get_format("upsert-kafka", value_fields_include="EXCEPT_KEY", **LITTLE_ENDIAN),
            ),
            *("id SMALLINT, v BINARY", (A, (258, b"\0"))),
            key=["id"],
        ),
        **{
            f"upsert-kafka: a prefix and the order of the primary key, {format}": partial(
                written,
                get_format(
                    "upsert-kafka",
                    key_format=format,
                    value_format=format,
                    key_fields_prefix="k_",
                    value_fields_include="EXCEPT_KEY",
                ),
                *("k_a INT, a INT, k_b STRING", (A, (1, 2, "x"))),
                key=["k_b", "k_a"],
            )
            for format in ("json", "avro")
        },
        **{
            f"upsert-kafka: a row without other columns than its key, {format}": partial(
                written,
                get_format("upsert-kafka", value_format=format, value_fields_include="EXCEPT_KEY"),
                *("id INT", (A, (1,))),
                key=["id"],
            )
            for format in ("json", "avro")
        },
    },
)
"""Records as their producers write them; the JSON Schema of a format accepts those of all kinds."""


# ----------------------------------------------------------------------------------------------
# what cannot be represented

REFUSED: list[tuple[Format, str, Any, str]] = [
    (DebeziumJson(), "STRING", PLACEHOLDER, "placeholder for unavailable values"),
    (DebeziumJson(schema_include=True), "VARCHAR(99)", PLACEHOLDER, "placeholder"),
    (DebeziumJson(binary_handling_mode="hex"), "BINARY", PLACEHOLDER.encode(), "placeholder"),
    (DebeziumJson(), "ARRAY<INT>", list(PLACEHOLDER.encode()), "placeholder"),
    (DebeziumJson(), "ARRAY<STRING>", [PLACEHOLDER], "placeholder"),
    (DebeziumJson(), "MAP<STRING, STRING>", [[PLACEHOLDER, PLACEHOLDER]], "placeholder"),
    (DebeziumJson(time_precision_mode="connect"), "TIME", 1, "it has microseconds, but milliseconds are declared"),
    (DebeziumJson(time_precision_mode="adaptive"), "TIMESTAMP_NTZ(3)", -1, "it has microseconds"),
    (DebeziumJson(time_precision_mode="nanoseconds"), "TIMESTAMP_NTZ", 253_402_300_799_999_999, r"out of the range of 64 bits \(in ns\)"),
    (MaxwellJson(), "DATE", 2_932_897, "out of its range"),
    (MaxwellJson(), "TIME", 86_400_000_000, "out of its range"),
    (MaxwellJson(), "TIMESTAMP", 2**60, "out of its range"),
    (OggJson(), "INTERVAL DAY TO SECOND", -(2**62), "out of its range"),
    (CanalJson(), "MAP<STRING, INT>", [[None, 1]], "a key is NULL"),
    (ChangelogJson(), "MAP<STRING, INT>", [["a", 1], ["a", 2]], "a key is NULL or occurs twice"),
]  # fmt: skip


# -------------------------------------------------------------------------------------------------
# any rows of any tables

WRITTEN_TIMES = [None, *(mode for mode in TIME_MODES if mode != "structured")]
MODES = {
    "decimal_handling_mode": [None, *DECIMAL_MODES],
    "time_precision_mode": WRITTEN_TIMES,
    "binary_handling_mode": list(BINARY_MODES),
    "bigint_unsigned_handling_mode": [None, "long", "precise"],
    "schema_include": ["auto", True, False],
    "timestamp_format_standard": ["SQL", "ISO-8601"],
    "time_zone": [None, "UTC", "Europe/Berlin"],
}
zones = st.sampled_from([None, "UTC", "Europe/Berlin"])
standards = st.sampled_from(["SQL", "ISO-8601"])
FORMATS: dict[str, st.SearchStrategy[Format]] = {
    "canal-json": st.builds(
        CanalJson,
        binary_handling_mode=st.sampled_from(["latin1", "base64"]),
        time_zone=zones,
        timestamp_format_standard=standards,
    ),
    "changelog-json": st.builds(
        ChangelogJson, timestamp_format_standard=standards, time_zone=zones
    ),
    "debezium-json": st.builds(
        DebeziumJson, **{name: st.sampled_from(values) for name, values in MODES.items()}
    ),
    "maxwell-json": st.builds(MaxwellJson, time_zone=zones, timestamp_format_standard=standards),
    "ogg-json": st.builds(OggJson, time_zone=zones, timestamp_format_standard=standards),
}
text = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    [PLACEHOLDER, "NULL", '"', "\\", "\x00", "0", "true", "{}"]
)
DAY = 86_400_000_000
LEAST, MOST = -62_135_596_800_000_000, 253_402_300_799_999_999

precisions = st.sampled_from([None, 0, 3, 6])
plain_types = st.sampled_from(
    [SqlType(name) for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE")]
    + [SqlType("VARCHAR", 9), SqlType("CHAR", 3), SqlType("INTERVAL DAY TO SECOND"), SqlType("DECIMAL", 20, 0), SqlType("DECIMAL", 38, 18)]
) | st.builds(SqlType, st.sampled_from(["TIME", "TIMESTAMP", "TIMESTAMP_NTZ"]), precisions) | st.integers(1, 38).flatmap(
    lambda precision: st.builds(SqlType, st.just("DECIMAL"), st.just(precision), st.integers(0, precision))
)  # fmt: skip

# Arrow would cut a name at a NUL; `columns` refuses such a name.
names = text.filter(lambda name: name and "\0" not in name)


def _nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    array = inner.map(lambda of: SqlType("ARRAY", fields=(Column("element", of),)))
    entries = inner.map(
        lambda of: SqlType(
            "MAP", fields=(Column("key", SqlType("STRING"), False), Column("value", of))
        )
    )
    fields = st.lists(
        st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0]
    )
    return (
        array
        | entries
        | fields.map(
            lambda members: SqlType(
                "STRUCT", fields=tuple(Column(name, of) for name, of in members)
            )
        )
    )


types = st.recursive(plain_types, _nested, max_leaves=4)
tables = st.lists(
    st.tuples(names, types), min_size=1, max_size=4, unique_by=lambda column: column[0]
).map(lambda pairs: tuple(Column(name, of) for name, of in pairs))


def values_of(sql_type: SqlType) -> st.SearchStrategy[Any]:
    """Canonical values of a type, including NULL and values that some formats cannot write."""
    inner = [values_of(field.type) for field in sql_type.fields]
    precision, scale = sql_type.precision or 10, sql_type.scale or 0
    bits = {
        "TINYINT": 7,
        "SMALLINT": 15,
        "INT": 31,
        "BIGINT": 63,
        "INTERVAL DAY TO SECOND": 63,
    }.get(sql_type.name, 0)
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    plain: dict[str, Any] = {
        "BOOLEAN": st.booleans,
        "FLOAT": lambda: st.floats(width=32),
        "DOUBLE": st.floats,
        "DECIMAL": lambda: unscaled.map(lambda number: decimal_text(_scaled(number, scale), precision, scale)),
        "BINARY": lambda: st.binary(max_size=5) | st.just(PLACEHOLDER.encode()),
        "DATE": lambda: st.integers(-719_162, 2_932_896),
        "TIME": lambda: st.integers(0, DAY - 1) | st.integers(0, 86_399_999).map(lambda millis: millis * 1000),
        "TIMESTAMP": lambda: st.integers(LEAST, MOST),
        "TIMESTAMP_NTZ": lambda: st.integers(LEAST, MOST) | st.integers(-(10**12), 10**12).map(lambda millis: millis * 1000),
        "ARRAY": lambda: st.lists(inner[0], max_size=3) | st.just([PLACEHOLDER]) if sql_type.fields[0].type.name == "STRING"
        else st.lists(inner[0], max_size=3),
        "MAP": lambda: st.dictionaries(text, inner[1], max_size=3).map(lambda pairs: sorted([key, value] for key, value in pairs.items())),
        "STRUCT": lambda: st.tuples(*inner).map(list),
    }  # fmt: skip
    chosen = (
        st.integers(-(2**bits), 2**bits - 1) if bits else plain.get(sql_type.name, lambda: text)()
    )
    return st.none() | chosen


def _scaled(number: int, scale: int) -> Decimal:
    return Decimal(number).scaleb(-scale, Context(prec=80))


quick = settings(
    max_examples=examples(50),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("identifier", sorted(FORMATS))
@quick
@given(data=st.data())
def test_any_row_of_any_table_is_read_back_or_is_an_error(
    identifier: str, data: st.DataObject
) -> None:
    format, table = data.draw(FORMATS[identifier]), data.draw(tables)
    key = [column.name for column in table if data.draw(st.booleans())]
    encoder = made(lambda: format.encoder(table, unique_key=key), SchemaError)
    if isinstance(encoder, SchemaError):
        assert re.search("declare|decimal_handling_mode", str(encoder))
        assert isinstance(format, DebeziumJson)
        return
    decoder = format.decoder(table, unique_key=key)
    row, before = (
        data.draw(st.tuples(*[values_of(column.type) for column in table])) for _ in range(2)
    )
    lone = (
        {INS: INS, B: D, A: INS, D: D}
        if encoder.pairs_updates
        else {kind: kind for kind in RowKind}
    )
    cases = [(kind, None, [(read_kind, row)]) for kind, read_kind in lone.items()]
    cases += [(A, before, [(B, before), (A, row)])] if encoder.pairs_updates else []
    for kind, old, expected in cases:
        record = made(lambda kind=kind, old=old: encoder.encode(kind, row, old), EncodeError)
        if isinstance(record, EncodeError):
            assert refusable(format, (row, old)), f"{record} of {row}"
        else:
            assert repr([(change.kind, change.row) for change in decoder.decode(*record)]) == repr(
                expected
            )
            assert [json.loads(part) for part in record if part is not None]
            assert (record[0] is None) == (not key)


def made(make: Callable[[], Any], error: type[Exception]) -> Any:
    """Return the result, or the error that was raised."""
    try:
        return make()
    except error as refused:
        return refused


def refusable(format: Format, rows: Any) -> bool:
    """Whether a value is among the rows that not every handling can write."""
    units = isinstance(format, DebeziumJson) and format.time_precision_mode not in (
        None,
        "isostring",
    )
    return (
        units
        or PLACEHOLDER in repr(rows)
        or PLACEHOLDER.encode() in repr(rows).encode()
        or _has_long_interval(rows)
    )


def _has_long_interval(value: Any) -> bool:
    return (
        any(map(_has_long_interval, value))
        if isinstance(value, (tuple, list))
        else type(value) is int and abs(value) >= 36 * 10**17
    )


def values_with(sql_type: SqlType, format: DebeziumJson) -> st.SearchStrategy[Any]:
    """Values of a time column that its unit can hold."""
    by = 1000 if format.time_precision_mode == "connect" or sql_type.precision in (0, 3) else 1
    least, most = (0, DAY - 1) if sql_type.name == "TIME" else (-(10**15), 10**15)
    return st.integers(least // by, most // by).map(lambda number: number * by)


@pytest.mark.parametrize("mode", WRITTEN_TIMES)
@pytest.mark.parametrize("schema_include", ["auto", True])
@pytest.mark.parametrize(
    "ddl", ["TIME(3)", "TIME(6)", "TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ(0)"]
)
@settings(quick, max_examples=examples(10))
@given(data=st.data())
def test_times_that_their_unit_holds_are_always_written(
    mode: str | None, schema_include: Any, ddl: str, data: st.DataObject
) -> None:
    format, (column,) = (
        DebeziumJson(time_precision_mode=mode, schema_include=schema_include),
        columns(f"c {ddl}"),
    )
    value = data.draw(values_with(column.type, format))
    record = format.encoder([column]).encode(INS, (value,))
    assert format.decoder([column]).decode(*record) == [Change(INS, (value,))]


# --------------------------------------------------------------------------------------------------
# pairing

kinds = st.sampled_from(list(RowKind))
histories = st.lists(st.tuples(kinds, st.tuples(st.integers(0, 2), st.integers(0, 1))), max_size=12)


@quick
@given(history=histories, key=st.sampled_from([(), (0,), (0, 1)]))
def test_pairing_loses_nothing_and_keeps_the_order(history: list, key: tuple[int, ...]) -> None:
    paired = list(pair_updates(history, key))
    again = [
        pair
        for kind, row, before in paired
        for pair in ([(B, before)] if before is not None else []) + [(kind, row)]
    ]
    assert again == history
    for kind, row, before in paired:
        assert before is None or (kind is A and [row[i] for i in key] == [before[i] for i in key])
    for (kind, row, _), (next_kind, next_row, before) in pairwise(paired):
        if kind is B and next_kind is A and before is None:
            assert [row[i] for i in key] != [next_row[i] for i in key]


def test_a_pair_across_batches_is_one_update_and_held_rows_come_last() -> None:
    batches = [
        [(INS, (1, "a")), (B, (1, "a"))],
        [],
        [(A, (1, "b")), (B, (1, "b")), (B, (2, "x")), (A, (1, "c")), (B, (3, "y"))],
    ]
    assert list(pair_updates((row for batch in batches for row in batch), [0])) == [
        (INS, (1, "a"), None),
        (A, (1, "b"), (1, "a")),
        (B, (1, "b"), None),
        (B, (2, "x"), None),
        (A, (1, "c"), None),
        (B, (3, "y"), None),
    ]


# --------------------------------------------------------------------------------------------------
# the contract's check

STORY = Vector(
    schema="id INT, v STRING",
    primary_key=["id"],
    expected=None,
    records=[
        (None, b'{"type":"insert","data":{"id":1,"v":"a"}}'),
        (None, b'{"type":"update","data":{"id":1,"v":"b"},"old":{"v":"a"}}'),
        (None, b'{"type":"delete","data":{"id":1,"v":"b"}}'),
    ],
)


def write(kind: str, row: tuple, **more: Any) -> tuple[None, bytes]:
    return None, json.dumps({"type": kind, "data": {"id": row[0], "v": row[1]}, **more}).encode()


def broken(encode: Any, **members: Any) -> Format:
    """Return Maxwell's format with another encoder."""
    made = type(
        "Made",
        (Encoder,),
        {"encode": lambda self, kind, row, before=None: encode(kind, row, before)},
    )
    return type(
        "Broken",
        (MaxwellJson,),
        {"encoder": lambda self, columns_, *, unique_key=(): made(), **members},
    )()


def well(kind: RowKind, row: tuple, before: tuple | None) -> Any:
    if before is not None:
        return write("update", row, old={"v": before[1]})
    return write("insert" if kind in (INS, A) else "delete", row)


def test_an_encoder_that_keeps_the_contract_passes() -> None:
    check_encoder(broken(well), STORY)
    check_encoder(MaxwellJson(), STORY)
    check_encoder(MaxwellJson(table_include="t"), Vector(**{**vars(STORY), "records": ()}))


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        pytest.param(
            lambda k, r, b: well(k, r, None),
            r"\+U\(1, 'b'\) with \(1, 'a'\) before it",
            id="updates are degraded",
        ),
        pytest.param(
            lambda k, r, b: well(k, r, b and (1, "z")),
            r"which decodes to \['-U\(1,z\)'",
            id="another row before",
        ),
        pytest.param(
            lambda k, r, b: None if k is B else well(k, r, b),
            "encoded to no record, which decodes to",
            id="a lone -U is lost",
        ),
        pytest.param(
            lambda k, r, b: well(A, r, r) if k is A and not b else well(k, r, b),
            "which decodes to .* instead of .*I",
            id="a lone +U updates",
        ),
        pytest.param(
            lambda k, r, b: well(INS, r, b),
            "which decodes to .* instead of .*-D",
            id="deletes are lost",
        ),
    ],
)
def test_an_encoder_that_breaks_the_contract_is_reported(encode: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_encoder(broken(encode), STORY)


@dataclass(frozen=True, kw_only=True)
class Upserts(Format):
    """A row is written as an upsert, a missing row as a delete."""

    identifier = "upserts-json"
    changelog_mode = ChangelogMode(frozenset({A, D}), key_only_deletes=True)
    reads_tombstones = True
    strict: bool = True

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        if value is None:
            return [Event.delete(read_object(key), path="$")]
        return [Event.update(None, read_object(value), paths=("", "$"))]

    def encoder(self, columns_: Any, *, unique_key: Any = ()) -> Encoder:
        made = columns(columns_)
        strict = self.strict

        class Upserting(Encoder):
            def encode(self, kind: RowKind, row: tuple, before: tuple | None = None) -> Any:
                if kind is B and strict:
                    return None
                image = json.dumps(
                    {column.name: value for column, value in zip(made, row, strict=True)}
                ).encode()
                return json.dumps({"id": row[0]}).encode(), image if kind in (INS, A) else None

        return Upserting()


def test_upsert_formats_write_no_update_before() -> None:
    records = [(b'{"id": 1}', b'{"id": 1, "v": "a"}'), (b'{"id": 1}', None)]
    vector = Vector(schema="id INT, v STRING", primary_key=["id"], records=records, expected=None)
    check_encoder(Upserts(), vector)
    check_encoder(Upserts(), Vector(**{**vars(vector), "keyed": True}))
    with pytest.raises(
        AssertionError, match=r"-U\(1, 'a'\) with None before it.* is encoded to the record"
    ):
        check_encoder(Upserts(strict=False), vector)


test_error_texts = error_test(
    __file__,
    {
        "a number beyond a float is not written": lambda: (
            MaxwellJson().encoder("f FLOAT").encode(INS, (1e39,))
        ),
        "an unknown unit cannot be in a schema block": lambda: DebeziumJson(
            schema_include=True, time_precision_mode="adaptive"
        ).encoder("c TIME"),
        **{
            f"a value that would be read back differently is refused (1), {number}": lambda format=format, ddl=ddl, value=value: (
                format.encoder(f"a INT, c {ddl}", unique_key=["a"]).encode(INS, (1, value))
            )
            for number, (format, ddl, value, _) in enumerate(REFUSED, 1)
        },
        **{
            f"a value that would be read back differently is refused (2), {number}": lambda format=format, ddl=ddl, value=value: (
                format.encoder(f"c {ddl}", unique_key=["c"]).encode(D, (value,))
            )
            for number, (format, ddl, value, _) in enumerate(REFUSED, 1)
        },
        "an error names the column and hides the value when configured": lambda: (
            DebeziumJson(error_excerpt=False)
            .encoder("a INT, c STRING")
            .encode(A, (1, "x"), (1, PLACEHOLDER))
        ),
        **{
            f"types without a json encoding are refused, {number}": lambda ddl=ddl: (
                MaxwellJson().encoder(ddl)
            )
            for number, ddl in enumerate(
                ["a MAP<INT, INT>", "a ARRAY<MAP<DATE, INT>>", "a STRUCT<x: INT, x: INT>"], 1
            )
        },
        "the encoder refuses what the decoder refuses, 1": lambda: DebeziumJson(
            schema_include=False
        ).encoder("a DECIMAL(10,2)"),
        "the encoder refuses what the decoder refuses, 2": lambda: CanalJson().encoder(
            "a INT", unique_key=["b"]
        ),
        **{
            f"a format that filters cannot be written, {number}": lambda format=format: (
                format.encoder("a INT")
            )
            for number, format in enumerate(
                [
                    CanalJson(table_include="t"),
                    MaxwellJson(database_include="d"),
                    OggJson(table_include="t"),
                    DebeziumJson(table_include="t"),
                ],
                1,
            )
        },
        **{
            f"structured times are only read, {number}": lambda identifier=identifier: get_format(
                identifier, time_precision_mode="structured"
            ).encoder("a INT", unique_key=["a"])
            for number, identifier in enumerate(["debezium-json", "debezium-flat-json"], 1)
        },
        **{
            f"a row before that cannot be written is an error, {number}": lambda format=format: (
                format.encoder("a INT, d DATE").encode(A, (1, 0), (1, 10**9))
            )
            for number, format in enumerate([CanalJson(), MaxwellJson()], 1)
        },
    },
)
