"""Rules of Debezium's MongoDB messages: documents as text, keys, updates without the document."""

import json
from typing import Any

import pytest

from cdc_formats import Change, Ignored, RowKind, get_format
from cdc_formats.errors import (
    DecodeError,
    FormatOptionError,
    MissingBeforeImageError,
    PartialImageError,
    SchemaError,
)
from cdc_formats.events import ControlEvent, KeyedChange
from cdc_formats.testing import check_record
from cdc_formats.values.schema import ABSENT

MONGO = get_format("debezium-mongodb-json")
COLUMNS = "_id STRING, name STRING, stock BIGINT"
DECODER = MONGO.decoder(COLUMNS, unique_key=["_id"])
OID = {"$oid": "596e275826f08b2730779e1f"}
HEX = OID["$oid"]
KEY = json.dumps({"id": json.dumps(OID)}).encode()
DOCUMENT = {"_id": OID, "name": "bike", "stock": {"$numberLong": "5"}}


def message(
    op: str | None, *, after: Any = None, before: Any = None, wrapped: bool = False, **more: Any
) -> bytes:
    images = {"before": before and json.dumps(before), "after": after and json.dumps(after)}
    value = {**images, "op": op, **more}
    return json.dumps(
        {"schema": {"type": "struct", "fields": []}, "payload": value} if wrapped else value
    ).encode()


def description(
    updated: Any = None, removed: list[str] | None = None, arrays: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "updateDescription": {
            "updatedFields": None if updated is None else json.dumps(updated),
            "removedFields": removed,
            "truncatedArrays": arrays,
        }
    }


# --------------------------------------------------------------------------------------------------
# updates


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_stage_completes_an_update_without_its_document(wrapped: bool) -> None:
    value = message("u", wrapped=wrapped, **description({"stock": {"$numberLong": "4"}}, ["note"]))
    assert DECODER.upserts(KEY, value) == [KeyedChange((HEX,), (HEX, ABSENT, 4), (), True)]


def test_a_number_is_one_text_in_the_key_the_document_and_an_update_of_fields() -> None:
    key = b'{"id": "1.0E10"}'
    inserted = b'{"op": "c", "after": "{\\"_id\\": 1.0E10, \\"name\\": 1.0E-5}"}'
    assert DECODER.upserts(key, inserted) == [KeyedChange(("1.0E10",), ("1.0E10", "1.0E-5", None))]
    updated = b'{"op": "u", "updateDescription": {"updatedFields": "{\\"name\\": 1.0E-6}"}}'
    assert DECODER.upserts(key, updated) == [
        KeyedChange(("1.0E10",), ("1.0E10", "1.0E-6", ABSENT), (), True)
    ]
    assert DECODER.upserts(key, b'{"op": "d"}') == [KeyedChange(("1.0E10",), None)]


def test_a_removed_field_is_null() -> None:
    value = message("u", **description(None, ["name"]))
    assert DECODER.upserts(KEY, value) == [KeyedChange((HEX,), (HEX, None, ABSENT), (), True)]


def test_an_update_with_its_pre_image_needs_no_stage() -> None:
    value = message("u", before={"_id": OID, "name": "bike"}, **description({"stock": 4}))
    assert DECODER.decode(KEY, value) == [
        Change(RowKind.UPDATE_BEFORE, (HEX, "bike", None)),
        Change(RowKind.UPDATE_AFTER, (HEX, "bike", 4)),
    ]
    assert DECODER.upserts(KEY, value) == [KeyedChange((HEX,), (HEX, "bike", 4))]


def test_an_update_that_the_connector_looked_up_has_the_document() -> None:
    value = message("u", after=DOCUMENT, **description({"name.first": 1}))
    assert DECODER.upserts(None, value) == [KeyedChange((HEX,), (HEX, "bike", 5))]
    with pytest.raises(
        MissingBeforeImageError, match=r"capture\.mode to change_streams_update_full_with_pre_image"
    ):
        DECODER.decode(None, value)


@pytest.mark.parametrize(
    "changed",
    [
        description({"name.first": "Ann"}),
        description({"name.0": "Ann"}),
        description({}, ["name.first"]),
        description({}, None, [{"field": "name", "newSize": 1}]),
        description({}, None, [{"field": "name.tags", "newSize": 1}]),
    ],
)
def test_an_update_of_a_part_of_a_column_is_an_error_that_names_the_setting(
    changed: dict[str, Any],
) -> None:
    for value in (message("u", **changed), message("u", before=DOCUMENT, **changed)):
        with pytest.raises(
            PartialImageError,
            match=(
                r"a part of a column \(name.*set the connector's capture.mode to "
                r"change_streams_update_full"
            ),
        ):
            DECODER.upserts(KEY, value)


def test_a_part_of_an_undeclared_field_is_ignored() -> None:
    value = message(
        "u",
        **description(
            {"address.city": "Ulm", "tags.0": 1}, ["a.b"], [{"field": "list", "newSize": 0}, "odd"]
        ),
    )
    assert DECODER.upserts(KEY, value) == [KeyedChange((HEX,), (HEX, ABSENT, ABSENT), (), True)]


def test_a_column_with_a_point_in_its_name_could_be_a_part_of_another() -> None:
    decoder = MONGO.decoder("_id STRING, `a.b` INT", unique_key=["_id"])
    with pytest.raises(PartialImageError):
        decoder.upserts(KEY, message("u", **description({"a.b": 1})))


# --------------------------------------------------------------------------------------------------
# keys and deletes


@pytest.mark.parametrize(
    ("identifier", "sql_type", "expected"),
    [
        (OID, "STRING", HEX),
        ("1234", "STRING", "1234"),
        (1234, "INT", 1234),
        (12.5, "DOUBLE", 12.5),
        ({"$numberLong": "1234"}, "BIGINT", 1234),
        ({"$binary": "a2Fma2E=", "$type": "00"}, "BINARY", b"kafka"),
        ({"hi": "kafka", "nums": [10.0]}, "STRING", '{"hi":"kafka","nums":[10.0]}'),
        (
            {"hi": "kafka", "nums": [10.0]},
            "STRUCT<hi: STRING, nums: ARRAY<DOUBLE>>",
            ["kafka", [10.0]],
        ),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_delete_is_of_the_keys_id(
    identifier: Any, sql_type: str, expected: Any, wrapped: bool
) -> None:
    key: Any = {"id": json.dumps(identifier)}
    key = json.dumps({"schema": {"type": "struct"}, "payload": key} if wrapped else key).encode()
    decoder = MONGO.decoder(f"_id {sql_type}, name STRING", unique_key=["_id"])
    assert decoder.upserts(key, message("d", wrapped=wrapped)) == [KeyedChange((expected,), None)]


def test_an_update_is_a_row_without_a_primary_key_too() -> None:
    value = message("u", before=DOCUMENT, **description({"stock": 4}))
    assert MONGO.decoder(COLUMNS).decode(KEY, value)[1] == Change(
        RowKind.UPDATE_AFTER, (HEX, "bike", 4)
    )


def test_a_delete_with_its_pre_image_has_the_document() -> None:
    value = message("d", before=DOCUMENT)
    assert DECODER.decode(None, value) == [Change(RowKind.DELETE, (HEX, "bike", 5))]
    assert DECODER.upserts(None, value) == [KeyedChange((HEX,), None)]


def test_a_key_in_an_undeclared_schema_block_is_refused() -> None:
    key = json.dumps({"schema": {}, "payload": {"id": "1"}}).encode()
    with pytest.raises(
        DecodeError, match=r"`id` is missing or not a string - at `\$\.id` of the key"
    ):
        get_format("debezium-mongodb-json", schema_include=False).decoder(
            "_id INT", unique_key=["_id"]
        ).upserts(key, message("d"))
    with pytest.raises(DecodeError, match="`id` is missing"):
        MONGO.decoder("_id INT", unique_key=["_id"]).upserts(
            b'{"schema": {}, "payload": 5}', message("d")
        )


def test_the_primary_key_is_the_documents_id() -> None:
    with pytest.raises(SchemaError, match=r"requires primary_key=\['_id'\], .*, not \['name'\]"):
        MONGO.decoder(COLUMNS, unique_key=["name"])


# ------------------------------------------------------------------------------------------------
# envelopes without documents


def test_marker_events_are_ignored_as_for_other_connectors() -> None:
    assert DECODER.decode(None, b'{"ts_ms": 5}') is Ignored.HEARTBEAT
    transaction = b'{"status": "BEGIN", "id": "tx1"}'
    assert DECODER.decode(None, transaction) is Ignored.TRANSACTION
    assert MONGO.control_event(None, transaction, Ignored.TRANSACTION) == ControlEvent(
        Ignored.TRANSACTION, statement="BEGIN tx1"
    )
    assert DECODER.decode(KEY, None) is Ignored.TOMBSTONE
    assert DECODER.decode(KEY, b'{"schema": null, "payload": null}') is Ignored.TOMBSTONE


def test_collections_are_filtered_by_the_source() -> None:
    value = message("c", after=DOCUMENT, source={"db": "shop", "collection": "products"})
    for options in ({"table_include": "orders"}, {"database_include": "inventory"}):
        assert (
            get_format("debezium-mongodb-json", **options).decoder("_id STRING").decode(None, value)
            is Ignored.OTHER_TABLE
        )
    assert get_format("debezium-mongodb-json", table_include="prod.*").decoder("_id STRING").decode(
        None, value
    ) == [Change(RowKind.INSERT, (HEX,))]


def test_metadata_is_read_from_the_source() -> None:
    source = {"db": "shop", "collection": "products", "ts_ms": 3, "ord": 31}
    names = [
        "ingestion-timestamp",
        "source.timestamp",
        "source.database",
        "source.collection",
        "source.properties",
    ]
    (change,) = MONGO.decoder("_id STRING", metadata=names).decode(
        None, message("c", after=DOCUMENT, source=source, ts_ms=5)
    )
    properties = [["collection", "products"], ["db", "shop"], ["ord", "31"], ["ts_ms", "3"]]
    assert change.metadata == (5000, 3000, "shop", "products", properties)


@pytest.mark.parametrize("text", ["true", "False", True, "auto"])
def test_schema_include_is_taken_as_text(text: Any) -> None:
    format = get_format("debezium-mongodb-json", schema_include=text)
    assert format.decoder("_id STRING").decode(
        None, message("c", after=DOCUMENT, wrapped=text in ("true", True))
    )
    with pytest.raises(FormatOptionError, match="schema_include is 'perhaps'"):
        get_format("debezium-mongodb-json", schema_include="perhaps")


@pytest.mark.parametrize("depth", [400, 900, 950, 990, 200_000])
def test_documents_of_any_depth_raise_only_decode_errors(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    for text in (
        f'{{"_id": {nested}}}',
        f'{{"_id": 1, "name": {nested}}}',
        f'{{"_id": {{"$date": {nested}}}}}',
    ):
        value = json.dumps(
            {"op": "u", "after": text, "before": text, "updateDescription": {"updatedFields": text}}
        ).encode()
        for sql_type in ("INT", "STRING", "TIMESTAMP", "BINARY", "ARRAY<STRING>"):
            check_record(
                MONGO.decoder(f"_id {sql_type}, name STRING", unique_key=["_id"]), KEY, value
            )
    with pytest.raises(DecodeError):
        MONGO.decoder("_id INT").decode(
            None, json.dumps({"op": "c", "after": f'{{"_id": {nested}}}'}).encode()
        )
