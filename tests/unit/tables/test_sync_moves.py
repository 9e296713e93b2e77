"""Rows whose key changed and that lack columns, decoded from producers' messages."""

import json
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.errors import PartialImageError
from cdc_formats.values.schema import Column, SqlType, columns
from normalize.decode.plan import DecodePlan
from normalize.tables.changes import ChangeOptions, table_changes
from tests.support.databases import RECORDS, maxwell

SCHEMA = columns("id INT NOT NULL, name STRING, qty INT")
PLACEHOLDER = "__debezium_unavailable_value"
POSTGRES = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def canal(row: dict[str, Any], old: dict[str, Any]) -> bytes:
    message = {
        "database": "shop",
        "table": "orders",
        "type": "UPDATE",
        "isDdl": False,
        "pkNames": ["id"],
    }
    return text(message | {"data": [row], "old": [old]})


@pytest.mark.parametrize(
    ("format", "value"),
    [
        ("maxwell-json", maxwell("orders", "update", {"id": 2, "qty": 5}, {"id": 1, "qty": 4})[1]),
        ("canal-json", canal({"id": "2", "qty": "5"}, {"id": "1", "qty": "4"})),
    ],
)
def test_partial_row_has_the_key_before(format: str, value: bytes) -> None:
    decoder = get_format(format, binlog_row_image="MINIMAL").decoder(SCHEMA, unique_key=["id"])
    deleted, moved = decoder.upserts(None, value)
    assert (deleted.key, deleted.row, deleted.moved_from) == ((1,), None, None)
    assert (moved.key, moved.partial, moved.moved_from) == ((2,), True, (1,))


def test_whole_row_has_no_key_before() -> None:
    value = maxwell("orders", "update", {"id": 2, "name": "a", "qty": 5}, {"id": 1})[1]
    assert [
        change.moved_from
        for change in get_format("maxwell-json")
        .decoder(SCHEMA, unique_key=["id"])
        .upserts(None, value)
    ] == [None] * 2


@pytest.mark.parametrize("block", [False, True])
def test_debezium_names_the_key_before_in_a_header(block: bool) -> None:
    key = {"schema": {"type": "struct"}, "payload": {"id": 1}} if block else {"id": 1}
    header = ("__debezium.oldkey", text(key))
    value, _ = debezium("c", {"id": 2, "name": PLACEHOLDER, "qty": 5})

    def moved_from(format: str, value: bytes, *headers: tuple[str, bytes]) -> Any:
        decoder = get_format(format).decoder(SCHEMA, unique_key=["id"])
        (change,) = decoder.upserts(None, value, headers)
        return change.moved_from

    flat = text({"id": 2, "name": PLACEHOLDER, "qty": 5, "__op": "c"})
    for format, message in (("debezium-json", value), ("debezium-flat-json", flat)):
        assert moved_from(format, message, ("other", b"x"), header) == (1,)
        assert moved_from(format, message) is None
        # Of another type, or the row's own.
        for wrong in ({"id": "x"}, {"id": 2}, {"other": 1}):
            assert moved_from(format, message, ("__debezium.oldkey", text(wrong))) is None
    row = maxwell("orders", "insert", {"id": 1, "name": "a", "qty": 1})[1]
    assert moved_from("maxwell-json", row, header) is None
    traits = get_format("debezium-avro-confluent", url="http://registry").traits
    assert traits.old_key_header == "__debezium.oldkey"


# ------------------------------------------------------------------------------------------------
# changes of a micro-batch


def debezium(
    op: str, row: dict[str, Any], earlier: int | None = None
) -> tuple[bytes, list[dict[str, Any]]]:
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    headers = (
        [] if earlier is None else [{"key": "__debezium.oldkey", "value": text({"id": earlier})}]
    )
    return text({**images, "op": op, "source": POSTGRES}), headers


def changes(
    format: str, *messages: tuple[bytes, list[dict[str, Any]]], shard: bool = False, **options: Any
) -> dict[int, tuple[Any, ...]]:
    """Return each key's last change: kind, columns, missing columns, the key whose row has them."""
    rows = [
        {
            "key": None,
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": at,
            "stamp": 5,
            "headers": headers,
        }
        for at, (value, headers) in enumerate(messages)
    ]
    parts = ("database", "table") if shard else ()
    source = DecodePlan(
        format=get_format(format, **options),
        columns=SCHEMA,
        unique_key=("id",),
        metadata=dict(zip(parts, parts, strict=True)),
        distinguished_by=(*parts, "topic"),
        completes_moved=True,
    )
    column = Column("shard", SqlType("STRING")) if shard else None
    records = pa.Table.from_pylist(rows, schema=RECORDS)
    with table_changes(records, source, ChangeOptions(column), None) as (decoded, _):
        changed_rows = decoded.rows.to_pylist()
    bases = ("b0", "b1") if shard else ("b0",)
    return {
        row["c0"]: (
            row["row_kind"],
            row["c1"],
            row["c2"],
            row["absent"],
            *(row.get(base) for base in bases),
        )
        for row in changed_rows
    }


def test_insert_that_follows_the_delete_of_the_key_before() -> None:
    assert changes(
        "debezium-json",
        debezium("c", {"id": 7, "name": "other", "qty": 7}),
        debezium("d", {"id": 1, "name": None, "qty": None}),
        debezium("c", {"id": 2, "name": PLACEHOLDER, "qty": 5}, earlier=1),
    ) == {
        7: ("+U", "other", 7, None, None),
        1: ("-D", None, None, None, None),
        2: ("+U", None, 5, "010", 1),
    }


def test_values_of_the_micro_batch_are_preferred_to_those_of_the_target() -> None:
    rows = changes(
        "debezium-json",
        debezium("u", {"id": 1, "name": "a", "qty": 4}),
        debezium("d", {"id": 1, "name": None, "qty": None}),
        debezium("c", {"id": 2, "name": PLACEHOLDER, "qty": 5}, earlier=1),
        debezium("u", {"id": 2, "name": PLACEHOLDER, "qty": 6}),
    )
    assert rows == {1: ("-D", None, None, None, None), 2: ("+U", "a", 6, None, None)}


def test_chain_of_keys_of_maxwell() -> None:
    rows = changes(
        "maxwell-json",
        (maxwell("orders", "update", {"id": 2, "qty": 5}, {"id": 1, "qty": 4})[1], []),
        (maxwell("orders", "update", {"id": 3}, {"id": 2})[1], []),
        (maxwell("orders", "update", {"id": 9, "name": "x"}, {"name": "y"})[1], []),
        binlog_row_image="MINIMAL",
    )
    deleted_row = ("-D", None, None, None, None)
    assert rows == {
        1: deleted_row,
        2: deleted_row,
        3: ("+U", None, 5, "010", 1),
        9: ("+U", "x", None, "001", None),
    }


def test_key_before_is_one_of_the_same_shard() -> None:
    message = maxwell(
        "orders", "update", {"id": 2, "qty": 5}, {"id": 1, "qty": 4}, database="shop_2"
    )[1]
    rows = changes("maxwell-json", (message, []), shard=True, binlog_row_image="MINIMAL")
    assert rows[2] == ("+U", None, 5, "010", 1, "shop_2.orders")


def test_row_that_is_unknown_is_an_error_that_names_its_record() -> None:
    messages = [
        ("insert", {"id": 2, "name": "a", "qty": 1}, None),
        ("delete", {"id": 2}, None),
        ("update", {"id": 2, "qty": 5}, {"qty": 1}),
    ]
    moved = [("update", {"id": 5}, {"id": 2})]
    with pytest.raises(
        PartialImageError, match=r"the change of its key before it is a delete.* in t\[0\]@2"
    ):
        changes(
            "maxwell-json",
            *[(maxwell("orders", *each)[1], []) for each in messages + moved],
            binlog_row_image="MINIMAL",
        )
