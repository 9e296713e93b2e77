"""debezium-flat-json rules: all key forms, schema blocks, added fields, deletes, keyless tables."""

import json
from typing import Any

import pytest

from cdc_formats import Change, ChangelogMode, Ignored, RowKind, get_format
from cdc_formats.errors import (
    MalformedMessageError,
    MissingBeforeImageError,
    PartialImageError,
)
from cdc_formats.events import ControlEvent, KeyedChange
from cdc_formats.formats.debezium.envelope import (
    SCHEMAS_KEPT,
    UNAVAILABLE_VALUE_PLACEHOLDER as PLACEHOLDER,
)
from cdc_formats.values.schema import ABSENT
from tests.support.error_texts import error_test
from tests.support.json_bytes import json_bytes

FLAT = get_format("debezium-flat-json")
DECIMAL = {
    "type": "bytes",
    "optional": False,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2"},
}


def block(*fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": list(fields),
        "optional": False,
        "name": "shop.orders.Value",
    }


# --------------------------------------------------------------------------------------------------
# added fields

ADDED = {
    "op": "u", "ts_ms": 5, "source_ts_ms": 3, "db": "shop", "schema": "public", "table": "orders", "lsn": 77, "deleted": "false"
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["__", "_cdc."])
def test_added_fields_are_metadata_without_their_prefix(prefix: str) -> None:
    format = get_format("debezium-flat-json", add_fields_prefix=prefix)
    row = {"id": 1, **{prefix + name: value for name, value in ADDED.items()}, "__deleted": "false"}
    names = [
        "op",
        "ingestion-timestamp",
        "source.timestamp",
        "source.database",
        "source.schema",
        "source.table",
    ]
    (change,) = format.decoder("id INT", unique_key=["id"], metadata=names).decode(
        None, json_bytes(row)
    )
    assert change == Change(
        RowKind.UPDATE_AFTER, (1,), ("u", 5000, 3000, "shop", "public", "orders")
    )


@pytest.mark.parametrize(
    ("value", "schema", "metadata", "row", "added"),
    [
        pytest.param(
            b'{"id": 1, "_x": 2, "__op": "c", "__file": "binlog.3", "__pos": 154, "__gtid": null, '
            b'"__deleted": "false"}',
            "id INT",
            ["source.properties"],
            (1,),
            ([["file", "binlog.3"], ["gtid", None], ["op", "c"], ["pos", "154"]],),
            id="all of them in one map, without other columns",
        ),
        pytest.param(
            b'{"id": 1, "__source_db": "shop", "__source_table": "orders", '
            b'"__source_schema": "public"}',
            "id INT",
            ["source.database", "source.table", "source.schema"],
            (1,),
            ("shop", "orders", "public"),
            id="the names of fields of the source struct",
        ),
        pytest.param(
            b'{"id": 1, "__lsn": 24023128}',
            "id INT, __lsn BIGINT",
            [],
            (1, 24023128),
            (),
            id="an added field as a column",
        ),
        pytest.param(
            b'{"schema": null, "payload": {"id": 1}}',
            "id INT",
            [],
            (1,),
            (),
            id="a schema that is not an object",
        ),
    ],
)
def test_columns_and_added_fields(
    value: bytes, schema: str, metadata: list[str], row: tuple[Any, ...], added: tuple[Any, ...]
) -> None:
    decoder = FLAT.decoder(schema, unique_key=["id"], metadata=metadata)
    assert decoder.decode(None, value) == [
        Change(RowKind.INSERT if b'"__op": "c"' in value else RowKind.UPDATE_AFTER, row, added)
    ]


def test_a_delete_by_key_has_no_metadata() -> None:
    names = sorted(FLAT.metadata)
    (change,) = FLAT.decoder("id INT", unique_key=["id"], metadata=names).decode(b'{"id": 1}', None)
    assert change == Change(RowKind.DELETE, (1,), (None,) * len(names))


@pytest.mark.parametrize(
    ("op", "kind"), [("c", "+I"), ("r", "+I"), ("u", "+U"), (None, "+U"), ("d", "-D")]
)
def test_the_operation_decides_the_row_kind(op: str | None, kind: str) -> None:
    (change,) = FLAT.decoder("id INT", unique_key=["id"]).decode(
        None, json_bytes({"id": 1, **({"__op": op} if op else {})})
    )
    assert change.kind.short_string == kind


def test_a_truncate_is_reported() -> None:
    assert (
        FLAT.decoder("id INT", unique_key=["id"]).decode(None, b'{"__op": "t"}') is Ignored.TRUNCATE
    )
    assert FLAT.control_event(None, b'{"__op": "t"}', Ignored.TRUNCATE) == ControlEvent(
        Ignored.TRUNCATE
    )


@pytest.mark.parametrize(("table", "expected"), [("orders", 1), ("orders_2", None)])
def test_tables_are_filtered_by_the_added_field(table: str, expected: int | None) -> None:
    format = get_format("debezium-flat-json", table_include="orders", database_include="shop")
    result = format.decoder("id INT", unique_key=["id"]).decode(
        None, json_bytes({"id": 1, "__table": table, "__db": "shop"})
    )
    assert (
        result is Ignored.OTHER_TABLE
        if expected is None
        else result == [Change(RowKind.UPDATE_AFTER, (1,))]
    )


@pytest.mark.parametrize("field", ["__table", "__source_table"])
def test_another_table_may_lack_the_schema_block(field: str) -> None:
    decoder = get_format("debezium-flat-json", table_include="orders", schema_include=True).decoder(
        "id INT", unique_key=["id"]
    )
    assert decoder.decode(None, json_bytes({"id": 1, field: "orders_2"})) is Ignored.OTHER_TABLE
    with pytest.raises(MalformedMessageError, match="no schema block"):
        decoder.decode(None, json_bytes({"id": 1, field: "orders"}))


# --------------------------------------------------------------------------------------------------
# deletes

DELETES = [
    pytest.param(b'{"id": 1}', None, id="a tombstone"),
    pytest.param(b'{"id": 1}', b"null", id="JSON's null"),
    pytest.param(b'{"id": 1}', b'{"schema": null, "payload": null}', id="a payload of null"),
    pytest.param(
        b'{"id": 1}',
        json_bytes({"schema": block(), "payload": None}),
        id="a payload of null in a schema block",
    ),
    pytest.param(b"1", b"null", id="the bare value of a key"),
    pytest.param(
        json_bytes({"schema": {"type": "int32"}, "payload": 1}),
        None,
        id="the bare value of a key in a schema block",
    ),
    pytest.param(
        json_bytes({"schema": None, "payload": {"id": 1}}),
        None,
        id="a key in an empty schema block",
    ),
    pytest.param(
        None, b'{"id": 1, "name": null, "__deleted": "true"}', id="rewritten, the key alone"
    ),
    pytest.param(None, b'{"id": 1, "name": null, "__deleted": true}', id="rewritten, as a boolean"),
    pytest.param(
        None,
        json_bytes(
            {"schema": block({"type": "int32", "field": "id"}), "payload": {"id": 1, "__op": "d"}}
        ),
        id="by __op",
    ),
]


def test_a_deleted_key_has_the_text_that_the_row_has() -> None:
    decoder = get_format("debezium-flat-json").decoder("id STRING", unique_key=["id"])
    (upsert,), (delete,) = (
        decoder.upserts(b'{"id": 1e2}', value) for value in (b'{"id": 1e2}', None)
    )
    assert upsert.key == delete.key == ("1e2",)


@pytest.mark.parametrize(("key", "value"), DELETES)
def test_deletes_in_all_their_forms(key: bytes | None, value: bytes | None) -> None:
    decoder = FLAT.decoder("id INT, name STRING", unique_key=["id"])
    assert decoder.decode(key, value) == [Change(RowKind.DELETE, (1, None))]
    assert decoder.upserts(key, value) == [KeyedChange((1,), None)]


def test_a_rewritten_delete_has_its_row() -> None:
    row = b'{"id": 1, "name": "bike", "__deleted": "true"}'
    assert FLAT.decoder("id INT, name STRING", unique_key=["id"]).decode(None, row) == [
        Change(RowKind.DELETE, (1, "bike"))
    ]


def test_a_key_is_read_by_its_own_schema_block() -> None:
    key = json_bytes(
        {
            "schema": block({**DECIMAL, "field": "price"}, {"type": "int32", "field": "id"}),
            "payload": {"price": "AQ==", "id": 7},
        }
    )
    decoder = FLAT.decoder("id INT, price DECIMAL(10,2)", unique_key=["price", "id"])
    for _ in range(2):  # the second time the block is cached
        assert decoder.upserts(key, None) == [KeyedChange(("0.01", 7), None)]


@pytest.mark.parametrize("decimals", ["string", "double", None, "precise"])
@pytest.mark.parametrize(("mode", "written"), [("precise", "AP//////////"), ("long", -1)])
def test_an_unsigned_key_is_read_alike_in_key_and_row(
    decimals: str | None, mode: str, written: Any
) -> None:
    format = get_format(
        "debezium-flat-json", decimal_handling_mode=decimals, bigint_unsigned_handling_mode=mode
    )
    decoder = format.decoder("id DECIMAL(20,0), n INT", unique_key=["id"])
    most = str(2**64 - 1)
    assert decoder.upserts(json_bytes({"id": written}), json_bytes({"id": written, "n": 1})) == [
        KeyedChange((most,), (most, 1))
    ]
    assert decoder.upserts(json_bytes({"id": written}), None) == [KeyedChange((most,), None)]
    kind = {"type": "int64"} if mode == "long" else {**DECIMAL, "parameters": {"scale": "0"}}
    fields = block({**kind, "field": "id"}, {"type": "int32", "field": "n"})
    key = json_bytes({"schema": fields, "payload": {"id": written}})
    assert decoder.upserts(
        key, json_bytes({"schema": fields, "payload": {"id": written, "n": 1}})
    ) == [KeyedChange((most,), (most, 1))]
    assert decoder.upserts(key, None) == [KeyedChange((most,), None)]


def test_a_bare_key_is_read_as_declared() -> None:
    format = get_format("debezium-flat-json", decimal_handling_mode="precise", schema_include=False)
    assert format.decoder("price DECIMAL(10,2)", unique_key=["price"]).upserts(
        b'{"price": "AQ=="}', None
    ) == [KeyedChange(("0.01",), None)]


# --------------------------------------------------------------------------------------------------
# schema blocks


def test_columns_are_read_by_the_schema_block() -> None:
    at = {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "at"}
    value = {"schema": block({"type": "int32", "field": "id"}, {**DECIMAL, "field": "price"}, at)}
    decoder = FLAT.decoder("id INT, price DECIMAL(10,2), at TIMESTAMP_NTZ", unique_key=["id"])
    for price in ("AQ==", "Ag=="):
        (change,) = decoder.decode(
            None, json_bytes({**value, "payload": {"id": 1, "price": price, "at": 1_000_001}})
        )
        assert change.row == (1, f"0.0{1 if price == 'AQ==' else 2}", 1_000_001)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "schema": "a", "payload": "b"},
        {"schema": "a", "payload": "b"},
        {"id": 1, "schema": {"type": "struct"}, "payload": None},
    ],
)
def test_columns_named_schema_and_payload_are_columns(row: dict[str, Any]) -> None:
    (change,) = FLAT.decoder("schema STRING, payload STRING", unique_key=["schema"]).decode(
        None, json_bytes(row)
    )
    assert change.row == tuple(
        text if text is None or isinstance(text, str) else '{"type":"struct"}'
        for text in list(row.values())[-2:]
    )


def test_more_schema_blocks_than_the_cache_holds_are_read() -> None:
    decoder = FLAT.decoder("id INT", unique_key=["id"])
    for number in [*range(SCHEMAS_KEPT + 2), 0]:
        schema = {**block({"type": "int32", "field": "id"}), "version": number}
        assert decoder.upserts(None, json_bytes({"schema": schema, "payload": {"id": number}}))[
            0
        ].key == (number,)
        assert decoder.upserts(json_bytes({"schema": schema, "payload": {"id": number}}), None)[
            0
        ].key == (number,)


# --------------------------------------------------------------------------------------------------
# placeholders


@pytest.mark.parametrize(
    "added",
    [
        {},
        {"__connector": "postgresql", "__version": "3.6.1.Final"},
        {"__connector": "mysql"},
        {"__connector": "mariadb", "__version": "3.7.1.Final"},
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_unchanged_toast_value_is_absent(added: dict[str, str], wrapped: bool) -> None:
    row: dict[str, Any] = {"id": 1, "body": PLACEHOLDER, **added}
    value = json_bytes({"schema": block(), "payload": row} if wrapped else row)
    decoder = FLAT.decoder("id INT, body STRING", unique_key=["id"])
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, ABSENT), (), True)]
    with pytest.raises(PartialImageError, match="the producer left out body"):
        decoder.decode(None, value)


@pytest.mark.parametrize("prefix", ["__", "__source_"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_placeholder_is_plain_text_in_messages_of_mysql(prefix: str, wrapped: bool) -> None:
    added = {f"{prefix}connector": "mysql", f"{prefix}version": "3.6.1.Final"}
    row = {"id": 1, "body": PLACEHOLDER, **added}
    value = json_bytes({"schema": block(), "payload": row} if wrapped else row)
    assert FLAT.decoder("id INT, body STRING", unique_key=["id"]).decode(None, value)[0].row == (
        1,
        PLACEHOLDER,
    )


# --------------------------------------------------------------------------------------------------
# without a key

KEYLESS = get_format("debezium-flat-json", keyless=True)


def test_a_table_with_a_key_is_upserts_and_one_without_is_a_changelog() -> None:
    assert FLAT.changelog_mode == ChangelogMode.upsert()
    assert KEYLESS.changelog_mode == ChangelogMode.all()


def test_a_table_without_a_key_has_inserts_and_deletes() -> None:
    decoder = KEYLESS.decoder("a INT")
    assert decoder.decode(None, b'{"a": 1, "__op": "c"}') == [Change(RowKind.INSERT, (1,))]
    assert decoder.decode(None, b'{"a": 1, "__op": "d", "__deleted": "true"}') == [
        Change(RowKind.DELETE, (1,))
    ]
    assert decoder.decode(None, None) is Ignored.TOMBSTONE
    with pytest.raises(
        MissingBeforeImageError,
        match=(
            r"does not identify the row that it replaces.*set the columns that identify rows as "
            r"primary_key"
        ),
    ):
        decoder.decode(None, b'{"a": 1, "__op": "u"}')


def test_a_declared_key_makes_updates_of_a_table_without_a_key_readable() -> None:
    decoder = KEYLESS.decoder("a INT, b INT", unique_key=["a"])
    assert decoder.upserts(None, b'{"a": 1, "b": 2, "__op": "u"}') == [KeyedChange((1,), (1, 2))]
    assert decoder.upserts(None, None) is Ignored.TOMBSTONE


# --------------------------------------------------------------------------------------------------
# writing


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (RowKind.INSERT, (b'{"id":1}', b'{"id":1,"name":"bike","__op":"c"}')),
        (RowKind.UPDATE_AFTER, (b'{"id":1}', b'{"id":1,"name":"bike","__op":"u"}')),
        (RowKind.UPDATE_BEFORE, None),
        (RowKind.DELETE, (b'{"id":1}', None)),
    ],
)
def test_rows_are_written_with_their_operation_and_deletes_as_tombstones(
    kind: RowKind, expected: Any
) -> None:
    assert (
        FLAT.encoder("id INT, name STRING", unique_key=["id"]).encode(kind, (1, "bike")) == expected
    )


def test_schema_blocks_are_written_if_configured() -> None:
    format = get_format("debezium-flat-json", schema_include=True)
    columns = "price DECIMAL(10,2), at TIMESTAMP_NTZ(6)"
    key, value = format.encoder(columns, unique_key=["price"]).encode(RowKind.INSERT, ("3.10", 5))
    assert [field["field"] for field in json.loads(value)["schema"]["fields"]] == [
        "price",
        "at",
        "__op",
    ]
    decoder = format.decoder(columns, unique_key=["price"])
    assert decoder.decode(key, value) == [Change(RowKind.INSERT, ("3.10", 5))]
    assert decoder.upserts(key, None) == [KeyedChange(("3.10",), None)]


test_error_texts = error_test(
    __file__,
    {
        "an empty prefix is refused": lambda: get_format(
            "debezium-flat-json", add_fields_prefix=""
        ),
        "a table without a key must be declared": lambda: FLAT.decoder("id INT"),
        **{
            f"values that could not be read back are refused, {number}": lambda options=options: (
                get_format("debezium-flat-json", **options).encoder("id INT", unique_key=["id"])
            )
            for number, options in enumerate(
                [
                    {"keyless": True},
                    {"table_include": "a"},
                ],
                1,
            )
        },
    },
)
