"""debezium-flat-json rules: all key forms, schema blocks, added fields, deletes, keyless tables."""

import json
from typing import Any

import pytest

from cdc_formats import Change, ChangelogMode, RowKind, get_format
from cdc_formats.events import KeyedChange
from cdc_formats.formats.debezium.envelope import (
    SCHEMAS_KEPT,
)
from tests.support.error_texts import error_test
from tests.support.json_bytes import json_bytes

FLAT = get_format("debezium-flat-json")


def block(*fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": list(fields),
        "optional": False,
        "name": "shop.orders.Value",
    }


# --------------------------------------------------------------------------------------------------
# schema blocks


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
# without a key

KEYLESS = get_format("debezium-flat-json", keyless=True)


def test_a_table_with_a_key_is_upserts_and_one_without_is_a_changelog() -> None:
    assert FLAT.changelog_mode == ChangelogMode.upsert()
    assert KEYLESS.changelog_mode == ChangelogMode.all()


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
