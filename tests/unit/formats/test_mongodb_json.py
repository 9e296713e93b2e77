"""mongodb-json: change events of MongoDB's Kafka connector, with and without the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import (
    DecodeError,
    MalformedMessageError,
    MissingFieldError,
    PartialImageError,
    TypeConversionError,
)
from cdc_formats.events import Position
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.error_texts import error_test
from tests.support.samples import sample

COLUMNS = "_id STRING, name STRING, stock BIGINT"
OID = {"$oid": "6467a9c5f1d2a3b4c5d6e7f8"}
HEX = OID["$oid"]
DOCUMENT = {"_id": OID, "name": "bike", "stock": {"$numberLong": "5"}}
TIME = {"$timestamp": {"t": 1685000609, "i": 9}}


def decoder(columns: str = COLUMNS, **options: Any):
    return get_format("mongodb-json", **options).decoder(columns, unique_key=("_id",))


def event(operation: str, **more: Any) -> bytes:
    """Return a change event of `products`; ABSENT removes a field."""
    fields = {
        "_id": {"_data": token()},
        "operationType": operation,
        "clusterTime": TIME,
        "ns": {"db": "shop", "coll": "products"},
        "documentKey": {"_id": OID},
        **more,
    }
    return json.dumps({k: v for k, v in fields.items() if v is not ABSENT}).encode()


def token(order: str = "29", version: str = "2B04", kind: str = "2C0100") -> str:
    """Return a resume token; `order` is the number of the event in its transaction."""
    return f"82646F11A100000009{version}{kind}{order}6E5A1004BBCFDF90907247ABA61D94DF01D76200461E"


def update(updated: Any = None, removed: Any = (), arrays: Any = (), **more: Any) -> bytes:
    description = {
        "updatedFields": updated or {},
        "removedFields": list(removed),
        "truncatedArrays": list(arrays),
    }
    return event("update", updateDescription=description, **more)


# --------------------------------------------------------------------------------------------------
# documents


def test_inserts_replaces_and_updates_with_the_document_are_whole_rows() -> None:
    row = (HEX, "bike", 5)
    for value in (
        event("insert", fullDocument=DOCUMENT),
        event("replace", fullDocument=DOCUMENT),
        update({"name.0": 1}, arrays=[{"field": "name", "newSize": 1}], fullDocument=DOCUMENT),
    ):
        assert decoder().upserts(None, value) == [KeyedChange((HEX,), row)]
    kinds = [
        decoder().decode(None, event(each, fullDocument=DOCUMENT))[0].kind
        for each in ("insert", "replace", "update")
    ]
    assert kinds == [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_AFTER]


def test_a_field_that_a_document_lacks_is_null() -> None:
    value = event("replace", fullDocument={"_id": OID, "stock": 1})
    assert decoder().upserts(None, value) == [KeyedChange((HEX,), (HEX, None, 1))]


@pytest.mark.parametrize("document", [ABSENT, None])
def test_the_stage_completes_an_update_without_its_document(document: Any) -> None:
    value = update({"stock": {"$numberLong": "4"}}, ["note"], fullDocument=document)
    assert decoder().upserts(None, value) == [KeyedChange((HEX,), (HEX, ABSENT, 4), (), True)]
    value = update({}, ["name"], fullDocument=document)
    assert decoder().upserts(None, value) == [KeyedChange((HEX,), (HEX, None, ABSENT), (), True)]
    with pytest.raises(PartialImageError, match=r"left out name.*change\.stream\.full\.document"):
        decoder().decode(None, update({"stock": 4}, fullDocument=document))


def test_the_fields_of_a_shard_key_are_no_part_of_the_key() -> None:
    key = {"_id": OID, "name": "eu"}
    value = update({"stock": 4}, documentKey=key)
    assert decoder().upserts(None, value) == [KeyedChange((HEX,), (HEX, ABSENT, 4), (), True)]
    assert decoder().upserts(None, event("delete", documentKey=key)) == [KeyedChange((HEX,), None)]


@pytest.mark.parametrize(
    "changed",
    [
        {"updated": {"name.first": "Ann"}},
        {"updated": {"name.0": "Ann"}},
        {"removed": ["name.first"]},
        {"arrays": [{"field": "name", "newSize": 1}]},
        {"arrays": [{"field": "name.tags", "newSize": 1}]},
    ],
)
@pytest.mark.parametrize("document", [ABSENT, None])
def test_an_update_of_a_part_of_a_column_names_the_setting(changed: Any, document: Any) -> None:
    with pytest.raises(
        PartialImageError,
        match=r"a part of a column \(name.*set the connector's change\.stream\.full\.document=up",
    ) as caught:
        decoder().upserts(None, update(**changed, fullDocument=document))
    assert caught.value.path == "$.updateDescription"


def test_a_part_of_an_undeclared_field_is_ignored() -> None:
    value = update({"address.city": "Ulm", "tags.0": 1}, ["a.b"], [{"field": "list", "newSize": 0}])
    assert decoder().upserts(None, value) == [KeyedChange((HEX,), (HEX, ABSENT, ABSENT), (), True)]


def test_a_number_is_one_text_in_the_key_the_document_and_an_update_of_fields() -> None:
    text = b'{"operationType":"insert","documentKey":{"_id":1.0E10},"fullDocument":{"_id":1.0E10}}'
    assert decoder().upserts(None, text) == [KeyedChange(("1.0E10",), ("1.0E10", None, None))]
    text = (
        b'{"operationType":"update","documentKey":{"_id":1.0E10},'
        b'"updateDescription":{"updatedFields":{"name":1.0E-6}}}'
    )
    assert decoder().upserts(None, text)[0].row == ("1.0E10", "1.0E-6", ABSENT)


def test_a_delete_is_of_the_document_key_and_needs_no_kafka_key() -> None:
    assert decoder().upserts(b"anything", event("delete")) == [KeyedChange((HEX,), None)]
    assert decoder().decode(None, event("delete")) == [Change(RowKind.DELETE, (HEX, None, None))]


@pytest.mark.parametrize(
    ("formatter", "values"),
    [
        ("DefaultJson", ({"$numberLong": "5"}, {"$date": 1685000609345}, 9.5)),
        (
            "ExtendedJson",
            ({"$numberInt": "5"}, {"$date": {"$numberLong": "1685000609345"}}, 9.5),
        ),
        ("SimplifiedJson", (5, "2023-05-25T07:43:29.345Z", "9.50")),
    ],
)
def test_each_of_the_connectors_formatters_is_read(formatter: str, values: Any) -> None:
    document = {"_id": 1, **dict(zip("nts", values, strict=True))}
    read = decoder("_id INT, n BIGINT, t TIMESTAMP(3), s DECIMAL(5,2)")
    value = event("insert", fullDocument=document, documentKey={"_id": 1})
    assert read.upserts(None, value)[0].row == (1, 5, 1685000609345000, "9.50")


# --------------------------------------------------------------------------------------------------
# messages without rows


@pytest.mark.parametrize("operation", ["drop", "rename"])
def test_a_collection_that_is_dropped_or_renamed_has_no_documents(operation: str) -> None:
    assert decoder().upserts(None, event(operation, documentKey=ABSENT)) is Ignored.TRUNCATE
    other = decoder(table_include="orders").upserts(None, event(operation))
    assert other is Ignored.OTHER_TABLE


def test_other_operations_of_a_collection_are_schema_changes() -> None:
    for operation in ("create", "createIndexes", "modify", "shardCollection"):
        assert decoder().upserts(None, event(operation)) is Ignored.DDL
    for operation in ("dropDatabase", "invalidate"):  # they name no collection
        value = event(operation, ns={"db": "shop"})
        assert decoder(table_include="orders").upserts(None, value) is Ignored.DDL


def test_collections_are_filtered_by_their_namespace() -> None:
    value = event("insert", fullDocument=DOCUMENT)
    for options in ({"table_include": "orders"}, {"database_include": "inventory"}):
        assert decoder(**options).upserts(None, value) is Ignored.OTHER_TABLE
    assert decoder(table_include="prod.*", database_include="shop").upserts(None, value)
    with pytest.raises(MissingFieldError, match="`table` is null or missing"):
        decoder(table_include="prod.*").upserts(
            None, event("insert", fullDocument=DOCUMENT, ns=None)
        )


def test_metadata() -> None:
    read = get_format("mongodb-json").decoder(
        COLUMNS, unique_key=["_id"], metadata=["database", "collection", "cluster-time"]
    )
    value = event("insert", fullDocument=DOCUMENT)
    assert read.upserts(None, value)[0].metadata == ("shop", "products", 1685000609000000)
    value = event("insert", fullDocument=DOCUMENT, ns=None, clusterTime=ABSENT)
    assert read.upserts(None, value)[0].metadata == (None, None, None)


# --------------------------------------------------------------------------------------------------
# positions


def position(value: bytes) -> Position | None:
    read = get_format("mongodb-json").decoder(COLUMNS, unique_key=["_id"], positions=True)
    (change,) = read.upserts(None, value)
    return change.position


HIGH = 1685000609 << 32 | 9


def test_the_cluster_time_is_the_position() -> None:
    first = position(event("delete"))
    assert first is not None
    assert (first.history, first.high, first.clock_ms) == ("", HIGH, 1685000609000)
    unknown = position(event("delete", _id={"_data": "0164"}))  # as Amazon DocumentDB's
    assert unknown == Position("", HIGH, 0, 1685000609000)


def test_the_resume_token_orders_the_changes_of_a_transaction() -> None:
    # The number of a change in a transaction, as the server encodes integers so that they sort.
    orders = ["29", "2B02", "2B04", "2BFE", "2C0200", "2CFFFE", "2D020000", "2DFFFFFE"]
    positions = [
        position(event("delete", txnNumber=1, _id={"_data": token(order)})) for order in orders
    ]
    assert all(each is not None and each.high == HIGH for each in positions)
    lows = [each.low for each in positions if each is not None]
    assert lows == sorted(set(lows))
    older = event("delete", txnNumber=1, _id={"_data": token("2B02", version="2B02")})
    assert position(older) == positions[1]  # a redelivery by another version of the server


def test_a_transaction_that_no_token_orders_is_an_error() -> None:
    for data in ("0164", token(kind="29"), token().replace("09", "08", 1)):
        with pytest.raises(MissingFieldError, match="the changes of a transaction have the same"):
            position(event("delete", txnNumber={"$numberLong": "1"}, _id={"_data": data}))


def test_a_copied_document_has_no_position() -> None:
    copied = {"_id": {"_id": OID, "copyingData": True}, "clusterTime": ABSENT}
    assert position(event("insert", fullDocument=DOCUMENT, **copied)) is None


@pytest.mark.parametrize(
    ("time", "error"),
    [
        (ABSENT, MissingFieldError),
        (None, MissingFieldError),
        ("x", MissingFieldError),
        ({"$timestamp": {"t": 1}}, TypeConversionError),
        ({"$timestamp": {"t": 2**32, "i": 1}}, TypeConversionError),
        ({"$timestamp": 5}, TypeConversionError),
    ],
)
def test_a_malformed_cluster_time_is_an_error(time: Any, error: type[DecodeError]) -> None:
    with pytest.raises(error):
        position(event("delete", clusterTime=time))


# --------------------------------------------------------------------------------------------------
# other messages, detection and inference


@pytest.mark.parametrize(
    "value",
    [
        json.dumps(event("insert", fullDocument=DOCUMENT).decode()).encode(),
        json.dumps({"schema": {"type": "string"}, "payload": event("delete").decode()}).encode(),
        event("insert", fullDocument=json.dumps(DOCUMENT)),
        event("delete", documentKey=json.dumps({"_id": OID})),
    ],
)
def test_text_instead_of_documents_names_the_connectors_converter(value: bytes) -> None:
    with pytest.raises(DecodeError, match=r"set its output\.format\.value=json and value\.conv"):
        decoder().upserts(None, value)


def test_another_format_names_this_one() -> None:
    with pytest.raises(MissingFieldError, match="read it as mongodb-json"):
        get_format("debezium-mongodb-json").decoder(COLUMNS, unique_key=["_id"]).upserts(
            None, event("delete")
        )
    with pytest.raises(MalformedMessageError) as caught:
        decoder().upserts(None, event("insert", fullDocument=5))
    assert "read it as" not in str(caught.value)


RECORDS = [
    (b'{"_id":1}', event("insert", documentKey={"_id": 1}, fullDocument={"_id": 1, "name": "a"})),
    (
        b'{"_id":2}',
        event(
            "replace",
            documentKey={"_id": 2},
            fullDocument={"_id": 2, "name": "b", "at": {"$date": 1685000609345}},
        ),
    ),
    (b'{"_id":1}', update({"name": "c"}, documentKey={"_id": 1})),
    (b'{"_id":1}', event("delete", documentKey={"_id": 1})),
    (None, event("invalidate", documentKey=ABSENT, ns=ABSENT)),
]


def test_a_sample_is_detected_and_its_schema_inferred() -> None:
    profile = profile_records(sample(*RECORDS))
    assert profile.format == "mongodb-json"
    inferred = infer_schema(RECORDS, format="mongodb-json")
    assert inferred.primary_key == ("_id",)
    assert "name STRING" in inferred.ddl
    assert "at TIMESTAMP" in inferred.ddl


test_error_texts = error_test(
    __file__,
    {
        "a part of a column changed": lambda: decoder().upserts(
            None, update(arrays=[{"field": "name", "newSize": 1}])
        ),
        "neither document nor description": lambda: decoder().upserts(None, event("update")),
        "a delete without its key": lambda: decoder().upserts(
            None, event("delete", documentKey=None)
        ),
        "another primary key": lambda: get_format("mongodb-json").decoder(
            COLUMNS, unique_key=["name"]
        ),
    },
)
