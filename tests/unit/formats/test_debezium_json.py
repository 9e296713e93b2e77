"""Debezium's own rules: schema blocks, declared encodings and unchanged values.

They include updates without before-images.
"""

import json
import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import (
    DecodeError,
    MissingBeforeImageError,
    MissingFieldError,
    PartialImageError,
    TypeConversionError,
)
from cdc_formats.formats.debezium.envelope import SCHEMAS_KEPT
from cdc_formats.formats.debezium.json import DebeziumJson
from normalize.decode.plan import needed_columns
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import error_test

PLACE = "__debezium_unavailable_value"


def message(op: str, before: Any, after: Any, **more: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, **more}).encode()


def wrapped(name: str | None, value: Any, /, **more: Any) -> bytes:
    fields = [{"type": "int64", "field": "v", "name": name, **more}]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "before", "fields": fields}]}
    return json.dumps({"schema": schema, "payload": {"op": "c", "after": {"v": value}}}).encode()


METADATA = {
    "schema": '{"type":"struct"}',
    "ingestion-timestamp": 1_589_362_330_904_000,
    "source.timestamp": 1_589_362_330_000_000,
    "source.database": "inventory",
    "source.schema": "public",
    "source.table": "products",
    "source.properties": [
        ["db", "inventory"],
        ["lsn", "24023128"],
        ["nested", '{"a":[1,null]}'],
        ["schema", "public"],
        ["snapshot", "false"],
        ["table", "products"],
        ["ts_ms", "1589362330000"],
        ["xmin", None],
    ],
}
SOURCE = {
    "db": "inventory",
    "schema": "public",
    "table": "products",
    "ts_ms": 1589362330000,
    "lsn": 24023128,
    "snapshot": False,
    "xmin": None,
    "nested": {"a": [1, None]},
}


def test_metadata_has_flinks_names_types_and_values() -> None:
    format = get_format("debezium-json")
    assert {name: column.type for name, column in format.metadata.items()} == {
        "schema": "STRING",
        "ingestion-timestamp": "TIMESTAMP(3)",
        "source.timestamp": "TIMESTAMP(3)",
        "source.database": "STRING",
        "source.schema": "STRING",
        "source.table": "STRING",
        "source.properties": "MAP<STRING, STRING>",
    }
    payload = message("u", {"id": 1}, {"id": 2}, source=SOURCE, ts_ms=1589362330904)
    decoder = format.decoder("id INT", metadata=list(METADATA))
    for change in decoder.decode(None, b'{"schema": {"type": "struct"}, "payload": %s}' % payload):
        assert dict(zip(METADATA, change.metadata, strict=True)) == METADATA
    bare = {change.kind: change.metadata for change in decoder.decode(None, payload)}
    assert (
        bare[RowKind.UPDATE_BEFORE]
        == bare[RowKind.UPDATE_AFTER]
        == (None, *list(METADATA.values())[1:])
    )


def test_metadata_missing_in_the_message_is_null() -> None:
    decoder = get_format("debezium-json").decoder("id INT", metadata=list(METADATA))
    for source in (b"null", b"{}", b"[]"):
        (change,) = decoder.decode(None, b'{"op": "c", "after": {"id": 1}, "source": %s}' % source)
        assert change.metadata == (None,) * 6 + ([] if source == b"{}" else None,)
    (change,) = decoder.decode(None, b'{"op": "c", "after": {"id": 1}}')
    assert change.metadata == (None,) * 7


# --------------------------------------------------------------------------------------------------
# without before-image


def test_an_update_without_before_is_an_error_of_the_changelog_and_an_upsert_of_the_keyed_stage() -> (
    None
):
    decoder = get_format("debezium-json").decoder("id INT, n INT", unique_key=["id"])
    value = message("u", None, {"id": 1, "n": 2})
    with pytest.raises(MissingBeforeImageError, match="REPLICA IDENTITY FULL"):
        decoder.decode(None, value)
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, 2))]


def test_a_before_image_with_only_the_key_is_a_row_with_nulls() -> None:
    decoder = get_format("debezium-json").decoder("id INT, n INT", unique_key=["id"])
    assert decoder.decode(None, message("d", {"id": 1}, None)) == [
        Change(RowKind.DELETE, (1, None))
    ]
    assert decoder.upserts(None, message("d", {"id": 1}, None)) == [KeyedChange((1,), None)]


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param(
            {"a": 1, "b": 2, "n": 3},
            {"a": 1, "b": 9, "n": 3},
            [KeyedChange((2, 1), None), KeyedChange((9, 1), (1, 9, 3))],
            id="a key that changes in one event deletes the old key",
        ),
        *(
            pytest.param(
                before,
                {"a": 1, "b": 2, "n": 3},
                [KeyedChange((2, 1), (1, 2, 3))],
                id="a before-image without another key deletes nothing",
            )
            for before in ({"a": 1, "n": 4}, {"a": 1, "b": 2})
        ),
    ],
)
def test_keys_of_an_update(before: Any, after: Any, changes: list[KeyedChange]) -> None:
    decoder = get_format("debezium-json").decoder("a INT, b INT, n INT", unique_key=["b", "a"])
    assert decoder.upserts(None, message("u", before, after)) == changes


def test_an_insert_with_a_before_is_an_insert() -> None:
    decoder = get_format("debezium-json").decoder("id INT", unique_key=["id"])
    for op in "cr":
        assert decoder.decode(None, message(op, {"id": 7}, {"id": 1})) == [
            Change(RowKind.INSERT, (1,))
        ]
        assert decoder.upserts(None, message(op, {"id": 7}, {"id": 1})) == [KeyedChange((1,), (1,))]


# --------------------------------------------------------------------------------------------------
# unchanged values


def test_an_unchanged_value_is_taken_from_the_full_before_image() -> None:
    decoder = get_format("debezium-json").decoder("id INT, body STRING, n INT", unique_key=["id"])
    before, after = {"id": 1, "body": "long", "n": 1}, {"id": 1, "body": PLACE, "n": 2}
    changes = decoder.decode(None, message("u", before, after))
    assert [change.row for change in changes] == [(1, "long", 1), (1, "long", 2)]
    assert decoder.upserts(None, message("u", before, after)) == [KeyedChange((1,), (1, "long", 2))]


def test_a_missing_column_is_null_though_another_is_unchanged() -> None:
    decoder = get_format("debezium-json").decoder("id INT, body STRING, n INT", unique_key=["id"])
    value = message("u", None, {"id": 1, "body": PLACE})
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, ABSENT, None), (), True)]
    with pytest.raises(
        PartialImageError, match=r"left out body [(]unchanged[)].*REPLICA IDENTITY FULL"
    ):
        decoder.decode(None, message("c", None, {"id": 1, "body": PLACE}))


NOBLOB = {"connector": "mysql", "version": "3.7.1.Final", "db": "shop", "table": "parts"}
"""The ``source`` of a connector that writes the placeholder with binlog_row_image=NOBLOB."""


def test_a_value_that_a_before_image_lacks_is_not_the_one_after() -> None:
    decoder = get_format("debezium-json").decoder("id INT, body STRING, n INT")
    before, after = {"id": 1, "body": PLACE, "n": 4}, {"id": 1, "body": "new", "n": 5}
    for value in (
        message("u", before, after, source=NOBLOB),
        message("d", before, None, source=NOBLOB),
    ):
        with pytest.raises(PartialImageError, match=r"left out body.*binlog_row_image=FULL"):
            decoder.decode(None, value)
    keyed = get_format("debezium-json").decoder(decoder.columns, unique_key=["id"])
    assert keyed.upserts(None, message("u", before, after, source=NOBLOB)) == [
        KeyedChange((1,), (1, "new", 5))
    ]
    assert keyed.upserts(None, message("d", before, None, source=NOBLOB)) == [
        KeyedChange((1,), None)
    ]


def test_the_placeholder_is_an_option() -> None:
    decoder = get_format("debezium-json", unavailable_value_placeholder="??").decoder(
        "id INT, body STRING", unique_key=["id"]
    )
    assert decoder.upserts(None, message("u", None, {"id": 1, "body": "??"}))[0].row == (1, ABSENT)
    assert decoder.upserts(None, message("u", None, {"id": 1, "body": PLACE}))[0].row == (1, PLACE)


# --------------------------------------------------------------------------------------------------
# schema blocks


@pytest.mark.parametrize(
    ("options", "ddl", "value", "row"),
    [
        *(
            pytest.param(
                {},
                "id INT",
                message("r", None, {"id": 1}, source={"snapshot": mark}),
                (1,),
                id=f"snapshot {mark}",
            )
            for mark in (True, False, "true", "first", "last", "false", "incremental", None)
        ),
        *(
            pytest.param(
                {"schema_include": include},
                "v TIMESTAMP_NTZ",
                wrapped("io.debezium.time.MicroTimestamp", 5),
                (5,),
                id=f"a schema block with schema_include={include}",
            )
            for include in ("auto", True, "true")
        ),
        pytest.param(
            {"time_precision_mode": "connect"},
            "v TIMESTAMP_NTZ(3)",
            wrapped("io.debezium.time.NanoTimestamp", 5000),
            (5,),
            id="a message with a schema block",
        ),
        pytest.param(
            {"time_precision_mode": "connect"},
            "v TIMESTAMP_NTZ(3)",
            message("c", None, {"v": 5}),
            (5000,),
            id="a bare message of the same topic",
        ),
        pytest.param(
            {"time_precision_mode": "connect"},
            "v TIMESTAMP_NTZ",
            b'{"schema": null, "payload": {"op": "c", "after": {"v": 5}}}',
            (5000,),
            id="a schema that is null",
        ),
        pytest.param(
            {},
            "schema STRING, payload STRING, op STRING",
            message("c", None, {"schema": "a", "payload": "b", "op": "d"}, schema=None),
            ("a", "b", "d"),
            id="columns named schema and payload",
        ),
    ],
)
def test_inserts(options: dict, ddl: str, value: bytes, row: tuple[Any, ...]) -> None:
    decoder = get_format("debezium-json", **options).decoder(ddl)
    assert decoder.decode(None, value) == [Change(RowKind.INSERT, row)]


BYTES = {"type": "bytes"}
BITS = {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "20"}}
HEX = {"type": "string"}
UNSCALED = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2"},
}
UNSIGNED = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "0"},
}
MOST = str(2**64 - 1)
POINT = {
    "type": "struct",
    "fields": [{**BYTES, "field": "wkb"}, {**HEX, "field": "hex"}, {**UNSCALED, "field": "price"}],
}
MILLIS = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
PARTS = {"type": "map", "keys": {"type": "string"}, "values": MILLIS}


@pytest.mark.parametrize(
    ("options", "field", "ddl", "value", "expected"),
    [
        pytest.param(
            {"binary_handling_mode": "hex"},
            BITS,
            "BINARY",
            "AAAA",
            b"\0\0\0",
            id="a BIT column is base64 though other columns are hex",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"},
            BITS,
            "BINARY",
            "zK8H",
            b"\xcc\xaf\x07",
            id="a BIT column that is not in hex",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"}, BYTES, "BINARY", "AAAA", b"\0\0\0", id="bytes"
        ),
        pytest.param(
            {"binary_handling_mode": "base64-url-safe"},
            BYTES,
            "BINARY",
            "+/8=",
            b"\xfb\xff",
            id="bytes are plain base64",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"},
            HEX,
            "BINARY",
            "deadbeef",
            b"\xde\xad\xbe\xef",
            id="text is as declared",
        ),
        pytest.param(
            {"binary_handling_mode": "base64"},
            HEX,
            "BINARY",
            "AAAA",
            b"\0\0\0",
            id="text in base64",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"},
            {"type": "array", "items": BYTES},
            "ARRAY<BINARY>",
            ["AAAA", None],
            [b"\0\0\0", None],
            id="bytes of an array",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"},
            POINT,
            "STRUCT<wkb: BINARY, hex: BINARY, price: DECIMAL(5,2)>",
            {"wkb": "AAAA", "hex": "aaaa", "price": "ATo="},
            [b"\0\0\0", b"\xaa\xaa", "3.14"],
            id="each field of a struct",
        ),
        pytest.param(
            {"binary_handling_mode": "hex"},
            {"type": "array", "items": POINT},
            "ARRAY<STRUCT<wkb: BINARY>>",
            [{"wkb": "AAAA"}],
            [[b"\0\0\0"]],
            id="structs of an array",
        ),
        pytest.param({}, UNSCALED, "DECIMAL(5,1)", "AUA=", "3.2", id="the scale of a Decimal"),
        pytest.param(
            {}, PARTS, "MAP<STRING, TIMESTAMP_NTZ>", {"a": 5}, [["a", 5000]], id="values of a map"
        ),
        pytest.param({}, PARTS, "MAP<STRING, BIGINT>", {"a": 5}, [["a", 5]], id="numbers of a map"),
        pytest.param(
            {"bigint_unsigned_handling_mode": "long"},
            UNSIGNED,
            "DECIMAL(20,0)",
            "AP//////////",
            MOST,
            id="unsigned, precise",
        ),
        pytest.param(
            {"bigint_unsigned_handling_mode": "long"},
            UNSIGNED,
            "DECIMAL(20,0)",
            -1,
            "-1",
            id="a Decimal as a JSON number",
        ),
        pytest.param(
            {"bigint_unsigned_handling_mode": "long"},
            {},
            "DECIMAL(20,0)",
            -1,
            MOST,
            id="unsigned, long",
        ),
        pytest.param(
            {"bigint_unsigned_handling_mode": "precise"},
            {},
            "DECIMAL(20,0)",
            -1,
            "-1",
            id="a signed number",
        ),
        pytest.param(
            {"bigint_unsigned_handling_mode": "precise"},
            HEX,
            "DECIMAL(20,0)",
            "1234",
            "1234",
            id="digits",
        ),
    ],
)
def test_a_schema_block_takes_precedence_over_options(
    options: dict, field: dict, ddl: str, value: Any, expected: Any
) -> None:
    declared = {"decimal_handling_mode": "string", **options}
    decoder = get_format("debezium-json", **declared).decoder(f"v {ddl}", unique_key=["v"])
    record = wrapped(None, value, **field)
    assert decoder.decode(None, record)[0].row == (expected,)
    (change,) = decoder.upserts(None, record)
    assert change.key == (expected,)


@pytest.mark.parametrize(
    ("options", "field", "ddl", "value", "reason"),
    [
        pytest.param(
            {},
            UNSCALED,
            "DECIMAL(5,1)",
            "ATo=",
            "got `number` 3.14: more digits after the point",
            id="a scale that is too large",
        ),
        pytest.param(
            {},
            HEX,
            "BINARY",
            "deadbeef",
            "the schema declares text: set binary_handling_mode",
            id="text whose form is not declared",
        ),
        pytest.param(
            {},
            {},
            "DECIMAL(20,0)",
            -1,
            "set bigint_unsigned_handling_mode='long', else 'precise'",
            id="signed or unsigned",
        ),
        pytest.param(
            {"bigint_unsigned_handling_mode": "precise"},
            HEX,
            "DECIMAL(20,0)",
            "AQ==",
            "got `str` 'AQ=='",
            id="text is digits",
        ),
    ],
)
def test_values_that_a_schema_block_leaves_open_are_not_guessed(
    options: dict, field: dict, ddl: str, value: Any, reason: str
) -> None:
    with pytest.raises(TypeConversionError, match=re.escape(reason)) as caught:
        get_format("debezium-json", **options).decoder(f"v {ddl}").decode(
            None, wrapped(None, value, **field)
        )
    assert caught.value.path == "$.payload.after.v"


@pytest.mark.parametrize("decimals", ["string", "double", None, "precise"])
def test_a_bare_unsigned_bigint_in_mode_precise_is_base64_with_decimals_in_any_mode(
    decimals: str | None,
) -> None:
    decoder = get_format(
        "debezium-json", decimal_handling_mode=decimals, bigint_unsigned_handling_mode="precise"
    ).decoder("id DECIMAL(20,0), n DECIMAL(20,0)", unique_key=["id"])
    value = message("u", {"id": "AQ==", "n": None}, {"id": "AP//////////", "n": "AQ=="})
    assert [change.row for change in decoder.decode(None, value)] == [("1", None), (MOST, "1")]
    assert decoder.upserts(None, value) == [
        KeyedChange(("1",), None),
        KeyedChange((MOST,), (MOST, "1")),
    ]


@pytest.mark.parametrize(
    ("mode", "written"), [("string", "9.995"), ("double", 9.995), ("precise", 9.995)]
)
def test_a_bare_decimal_with_too_many_digits_is_refused_or_rounded(mode: str, written: Any) -> None:
    refuses, rounds = (
        get_format("debezium-json", decimal_handling_mode=mode, rounding=rounding).decoder(
            "p DECIMAL(10,2)"
        )
        for rounding in ("error", "half_up")
    )
    value = message("c", None, {"p": written})
    with pytest.raises(
        TypeConversionError,
        match=r"got `number` 9.995: more digits .*rounding='half_up' - at `\$.after.p`",
    ):
        refuses.decode(None, value)
    assert rounds.decode(None, value)[0].row == ("10.00",)


def test_more_schema_blocks_than_the_cache_holds_are_read() -> None:
    readers = []

    class Watched(DebeziumJson):
        def reader(self, rows, *, keyed=False):
            read = super().reader(rows, keyed=keyed)
            readers.append(read)
            return read

    decoder = Watched().decoder("v TIMESTAMP_NTZ")
    units = {"Timestamp": 1000, "MicroTimestamp": 1}
    for number in range(SCHEMAS_KEPT + 3):
        for unit, factor in (
            units.items()
            if number % 500 == 0 or number > SCHEMAS_KEPT - 2
            else [("Timestamp", 1000)]
        ):
            value = wrapped(f"io.debezium.time.{unit}", 7, doc=f"version {number}")
            assert decoder.decode(None, value)[0].row == (7 * factor,)
    assert 0 < max(reader.described.cache_info().currsize for reader in readers) <= SCHEMAS_KEPT


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *(
            (b'{"schema": %s, "payload": %s}' % parts, Ignored.TOMBSTONE)
            for parts in product((b"{}", b"null"), (b"null", b" null "))
        ),
        (b'{"schema": {}, "payload": {"op": "t", "source": {}}}', Ignored.TRUNCATE),
        (b'{"schema": {}, "payload": {"ts_ms": 5}}', Ignored.HEARTBEAT),
        (b'{"resolved": "1753805445318192128.0000000000"}', Ignored.HEARTBEAT),
        (
            b'{"payload": {"source": {"connector": "TiCDC", "commit_ts": 1}, "op": "m"}}',
            Ignored.HEARTBEAT,
        ),
        (
            b'{"payload": {"source": {"connector": "TiCDC"}, "ddl": "", "tableChanges": []}}',
            Ignored.DDL,
        ),
        (b'{"schema": {}, "payload": {"status": "END", "id": "7"}}', Ignored.TRANSACTION),
        (b'{"schema": {}, "payload": {"tableChanges": []}}', Ignored.DDL),
    ],
)
def test_wrapped_messages_without_rows_are_ignored_by_reason(
    message: bytes, expected: Ignored
) -> None:
    assert get_format("debezium-json").decoder("id INT").decode(None, message) is expected


# --------------------------------------------------------------------------------------------------
# what is not declared


@pytest.mark.parametrize(
    ("options", "ddl"),
    [
        ({}, "a DECIMAL(5,2), t TIMESTAMP"),
        ({"time_precision_mode": "adaptive_time_microseconds"}, "a DECIMAL(5,2), t TIME"),
        ({"schema_include": True}, "a DECIMAL(5,2), t TIMESTAMP"),
        (
            {"schema_include": False, "decimal_handling_mode": "string"},
            "a DECIMAL(5,2), b DECIMAL(20,0), t DATE",
        ),
        ({"schema_include": False, "time_precision_mode": "isostring"}, "t TIMESTAMP"),
    ],
)
def test_columns_that_can_be_read_are_accepted(options: dict, ddl: str) -> None:
    assert get_format("debezium-json", **options).decoder(ddl).columns


def test_filters_match_in_full_and_before_the_row_is_read() -> None:
    decoder = get_format("debezium-json", database_include="shop", table_include="a|b").decoder(
        "id INT"
    )

    def decode(db: str, table: str, after: object) -> object:
        return decoder.decode(None, message("c", None, after, source={"db": db, "table": table}))

    assert decode("shop", "b", {"id": 1}) == [Change(RowKind.INSERT, (1,))]
    assert decode("shop", "bb", {"id": "x"}) is Ignored.OTHER_TABLE
    assert decode("shops", "a", None) is Ignored.OTHER_TABLE
    with pytest.raises(DecodeError, match="`table` is null or missing"):
        decoder.decode(None, message("c", None, {"id": 1}, source={"db": "shop"}))


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
@pytest.mark.parametrize("op", ["c", "u"])
@pytest.mark.parametrize(
    ("version", "plain"),
    [
        ({"version": "1.9.7.Final"}, True),
        ({"version": "3.6.1.Final"}, True),
        ({"version": "3.7.0.Final"}, False),
        ({"version": "4.0.0.Final"}, False),
        ({"version": 3}, False),
        ({}, False),
    ],
)
def test_the_placeholder_is_plain_text_for_connectors_that_never_write_it(
    connector: str, op: str, version: dict[str, Any], plain: bool
) -> None:
    decoder = get_format("debezium-json").decoder(
        "id INT, name STRING, text STRING, raw BINARY", unique_key=["id"]
    )
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    after = {"id": 1, "name": "__debezium_unavailable_value", "text": encoded, "raw": encoded}
    before = {"id": 1, "name": PLACE, "text": "old", "raw": encoded} if op == "u" else None
    value = message(op, before, after, source={"connector": connector, **version})
    row = (1, "__debezium_unavailable_value", encoded, b"__debezium_unavailable_value")
    if plain:
        assert decoder.upserts(None, value) == [KeyedChange((1,), row)]
        assert decoder.decode(None, value)[-1].row == row
    else:
        # A before-image of an unchanged value has it where the table has no primary key.
        unknown = (1, ABSENT, "old" if before else ABSENT, ABSENT)
        assert decoder.upserts(None, value) == [KeyedChange((1,), unknown, (), True)]
        with pytest.raises(PartialImageError):
            decoder.decode(None, value)
    plan = source_of(get_format("debezium-json"), "id INT, name STRING, text STRING", ["id"])
    assert not differences(plan, [(None, value)])


EMPTY = [
    ("STRING", PLACE, [None, "", "{}"]),
    ("VARIANT", PLACE, [None, "{}"]),
    ("BINARY", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", [None, ""]),
    ("ARRAY<STRING>", [PLACE], [None, []]),
    ("ARRAY<INT>", list(PLACE.encode()), [None, []]),
    ("MAP<STRING, STRING>", {PLACE: PLACE}, [None, {}]),
]


@pytest.mark.parametrize(("sql_type", "placeholder", "empty"), EMPTY)
def test_a_value_that_the_log_may_lack_completes_no_unavailable_one(
    sql_type: str, placeholder: Any, empty: list[Any]
) -> None:
    # PostgreSQL's REPLICA IDENTITY USING INDEX: a row before has NULL, or the type's default, in
    # columns that are not in the index.
    format = get_format("debezium-json")
    schema = f"id INT, code STRING, v {sql_type}"
    decoder = format.decoder(schema, unique_key=["id"])
    postgres = {"connector": "postgresql", "version": "3.7.1.Final"}
    after = {"id": 1, "code": "B", "v": placeholder}
    for value in empty:
        update = message("u", {"id": 1, "code": "A", "v": value}, after, source=postgres)
        assert decoder.upserts(None, update) == [KeyedChange((1,), (1, "B", ABSENT), (), True)]
        with pytest.raises(PartialImageError, match="left out v"):
            decoder.decode(None, update)
        assert not differences(source_of(format, schema, ["id"]), [(None, update)])
        # MySQL logs an empty value as it is.
        update = message("u", {"id": 1, "code": "A", "v": value}, after, source=NOBLOB)
        (change,) = decoder.upserts(None, update)
        assert not change.partial
        assert change.row is not None
        assert change.row[:2] == (1, "B")
    masked = get_format("debezium-json", mask={"v": "redact"}).decoder(schema, unique_key=["id"])
    update = message("u", {"id": 1, "code": "A", "v": empty[-1]}, after, source=postgres)
    assert masked.upserts(None, update)[0].partial


def test_a_placeholder_in_bytes_is_recognised_in_an_otherwise_plain_row() -> None:
    decoder = get_format("debezium-json").decoder("id INT, raw BINARY", unique_key=["id"])
    after = {"id": 1, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
    value = json.dumps(
        {"op": "u", "before": None, "after": after, "source": {"connector": "postgresql"}}
    ).encode()
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, ABSENT), (), True)]
    value = json.dumps(
        {
            "op": "u",
            "before": {"id": 1, "raw": "AQ=="},
            "after": after,
            "source": {"connector": "postgresql"},
        }
    ).encode()
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, b"\x01"))]


COCKROACH_KEY_SCHEMA = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int64"}, {"field": "day", "type": "int32"}],
}


@pytest.mark.parametrize(
    ("key", "unique_key", "expected"),
    [
        ({"id": 1}, ["id"], (1,)),
        ([1], ["id"], (1,)),
        (1, ["id"], (1,)),
        ({"id": 1, "day": "2026-11-25"}, ["id", "day"], (1, 20782)),
        ({"payload": {"id": 1}}, ["id"], (1,)),
        (
            {"schema": COCKROACH_KEY_SCHEMA, "payload": {"id": 1, "day": 20782}},
            ["id", "day"],
            (1, 20782),
        ),
        (["a"], ["name"], ("a",)),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_delete_without_any_row_is_that_of_its_kafka_key(
    key: Any, unique_key: list[str], expected: tuple[Any, ...], wrapped: bool
) -> None:
    message: Any = {"op": "d", "before": None, "after": None, "source": {"origin": "cockroachdb"}}
    record = (
        None if key is None else json.dumps(key).encode(),
        json.dumps({"payload": message} if wrapped else message).encode(),
    )
    source = source_of(get_format("debezium-json"), "id BIGINT, name STRING, day DATE", unique_key)
    assert source.decoder().upserts(*record) == [KeyedChange(expected, None)]
    assert not differences(source, [record])
    assert "key" in needed_columns(replace(source, mode="FAILFAST", control_events=frozenset()))


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (None, MissingBeforeImageError, "CockroachDB: set the changefeed's option diff"),
        (
            b'{"rowid": 1}',
            MissingFieldError,
            "`id` is part of the primary key and is not in the Kafka key, which has rowid",
        ),
        (b'{"id": null}', MissingFieldError, "not in the Kafka key"),
        (b'{"id": "x"}', TypeConversionError, "BIGINT"),
        (b'[1, "a"]', TypeConversionError, "BIGINT"),
        (b"{", DecodeError, "at the key"),
    ],
)
def test_a_delete_without_any_row_needs_its_kafka_key(
    key: bytes | None, error: type[DecodeError], text: str
) -> None:
    value = b'{"op": "d", "before": null, "after": null}'
    with pytest.raises(error, match=re.escape(text)):
        get_format("debezium-json").decoder("id BIGINT, name STRING", unique_key=["id"]).upserts(
            key, value
        )
    assert not differences(
        source_of(get_format("debezium-json"), "id BIGINT, name STRING", ["id"]), [(key, value)]
    )


def test_the_kafka_key_is_only_read_for_a_keyed_stage_with_a_primary_key() -> None:
    record = (b'{"id": 1}', b'{"op": "d", "before": null, "after": null}')
    for decode in (
        get_format("debezium-json").decoder("id BIGINT", unique_key=["id"]).decode,
        get_format("debezium-json").decoder("id BIGINT").decode,
    ):
        with pytest.raises(MissingBeforeImageError):
            decode(*record)
    assert "key" not in needed_columns(
        source_of(
            get_format("debezium-json"), "id INT", [], mode="FAILFAST", control_events=frozenset()
        )
    )


test_error_texts = error_test(
    __file__,
    {
        **{
            f"columns that cannot be read are refused when the decoder is made, {number}": lambda options=options, ddl=ddl: (
                get_format("debezium-json", **options).decoder(ddl)
            )
            for number, (options, ddl) in enumerate(
                [
                    ({"schema_include": False}, "a DECIMAL(5,2)"),
                    ({"schema_include": False, "time_precision_mode": "adaptive"}, "t TIMESTAMP"),
                    ({"time_precision_mode": "adaptive"}, "t TIME"),
                    ({"time_precision_mode": "adaptive_time_microseconds"}, "t TIMESTAMP_NTZ"),
                    ({"time_precision_mode": "connect"}, "t INTERVAL DAY TO SECOND"),
                ],
                1,
            )
        },
    },
)
