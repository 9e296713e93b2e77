"""Rules of Debezium's MongoDB messages: documents as text, keys, updates without the document."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import Handling, columns, get_format, read_json
from cdc_formats.errors import (
    DecodeError,
)
from cdc_formats.testing import check_record
from cdc_formats.values.extended_json import document_converter
from tests.support.error_texts import error_test
from tests.support.examples import examples

MONGO = get_format("debezium-mongodb-json")
COLUMNS = "_id STRING, name STRING, stock BIGINT"
OID = {"$oid": "596e275826f08b2730779e1f"}
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


# ------------------------------------------------------------------------------------------------
# envelopes without documents


@pytest.mark.parametrize("text", ["true", "False", True, "auto"])
def test_schema_include_is_taken_as_text(text: Any) -> None:
    format = get_format("debezium-mongodb-json", schema_include=text)
    assert format.decoder("_id STRING").decode(
        None, message("c", after=DOCUMENT, wrapped=text in ("true", True))
    )


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


# --------------------------------------------------------------------------------------------------
# MongoDB's Extended JSON: every form of a value by column type, read and written
MIDNIGHT = 1_735_776_000_000  # 2025-01-02 00:00:00 UTC, in milliseconds
UUID_BYTES = "ASNFZ4mrze8BI0VniavN7w=="
UUID_TEXT = "01234567-89ab-cdef-0123-456789abcdef"


def converted(sql_type: str, value: Any, time_zone: str | None = None) -> Any:
    (column,) = columns(f"c {sql_type}")
    return document_converter(column.type, Handling(time_zone=time_zone))(
        read_json(json.dumps(value).encode())
    )


VALUES = [
    ("STRING", "text", "text"),
    ("STRING", 5, "5"),
    ("STRING", True, "true"),
    ("STRING", {"$oid": "596e275826f08b2730779e1f"}, "596e275826f08b2730779e1f"),
    ("STRING", {"$symbol": "s"}, "s"),
    ("STRING", {"$code": "f()"}, "f()"),
    ("STRING", {"$code": "f()", "$scope": {}}, '{"$code":"f()","$scope":{}}'),
    ("STRING", {"$numberLong": "5"}, "5"),
    ("STRING", {"$numberDecimal": "1E+3"}, "1E+3"),
    ("STRING", {"$date": MIDNIGHT + 1}, "2025-01-02T00:00:00.001Z"),
    ("STRING", {"$date": "2025-01-02T00:00:00Z"}, "2025-01-02T00:00:00Z"),
    ("STRING", {"$binary": UUID_BYTES, "$type": "04"}, UUID_TEXT),
    ("STRING", {"$binary": {"base64": UUID_BYTES, "subType": "3"}}, UUID_TEXT),
    ("STRING", {"$uuid": UUID_TEXT}, UUID_TEXT),
    ("STRING", {"$binary": "AP8=", "$type": "00"}, '{"$binary":"AP8=","$type":"00"}'),
    ("STRING", {"$binary": "AP8=", "$type": "04"}, '{"$binary":"AP8=","$type":"04"}'),
    (
        "STRING",
        {"$binary": UUID_BYTES, "$type": "04", "a": 1},
        f'{{"$binary":"{UUID_BYTES}","$type":"04","a":1}}',
    ),
    ("STRING", {"$timestamp": {"t": 5, "i": 1}}, '{"$timestamp":{"t":5,"i":1}}'),
    (
        "STRING",
        {"$regularExpression": {"pattern": "a", "options": "i"}},
        '{"$regularExpression":{"pattern":"a","options":"i"}}',
    ),
    ("STRING", {"$minKey": 1}, '{"$minKey":1}'),
    ("STRING", {"a": {"$numberLong": "5"}, "b": [1.50]}, '{"a":{"$numberLong":"5"},"b":[1.5]}'),
    ("STRING", [1, {"a": None}], '[1,{"a":null}]'),
    ("STRING", {}, "{}"),
    ("INT", {"$numberInt": "-7"}, -7),
    ("BIGINT", {"$numberLong": "9223372036854775807"}, 2**63 - 1),
    ("BIGINT", 5, 5),
    ("DOUBLE", {"$numberDouble": "1.5"}, 1.5),
    ("DOUBLE", {"$numberDouble": "-Infinity"}, float("-inf")),
    ("DOUBLE", 2.5, 2.5),
    ("DECIMAL(10,2)", {"$numberDecimal": "1E+3"}, "1000.00"),
    ("DECIMAL(10,2)", 1.5, "1.50"),
    ("BOOLEAN", False, False),
    ("BOOLEAN", {"$numberInt": "1"}, True),
    ("TIMESTAMP", {"$date": MIDNIGHT}, MIDNIGHT * 1000),
    ("TIMESTAMP", {"$date": {"$numberLong": "-1"}}, -1000),
    ("TIMESTAMP", {"$date": "2025-01-02T00:00:00.001Z"}, MIDNIGHT * 1000 + 1000),
    ("TIMESTAMP", {"$date": "2025-01-02T01:00:00+01:00"}, MIDNIGHT * 1000),
    ("TIMESTAMP", {"$timestamp": {"t": 5, "i": 9}}, 5_000_000),
    ("TIMESTAMP", "2025-01-02T00:00:00Z", MIDNIGHT * 1000),
    ("TIMESTAMP_NTZ(3)", {"$date": MIDNIGHT}, MIDNIGHT * 1000),
    ("TIMESTAMP_NTZ(3)", "2025-01-02 00:00:00", MIDNIGHT * 1000),
    ("DATE", {"$date": MIDNIGHT}, 20090),
    ("DATE", "2025-01-02", 20090),
    ("TIME", "12:00:00", 43_200_000_000),
    ("BINARY", {"$binary": "AP8=", "$type": "00"}, b"\x00\xff"),
    ("BINARY", {"$binary": {"base64": "AP8=", "subType": "80"}}, b"\x00\xff"),
    ("BINARY", {"$uuid": UUID_TEXT}, bytes.fromhex(UUID_TEXT.replace("-", ""))),
    ("ARRAY<BIGINT>", [1, {"$numberLong": "2"}, None, {"$undefined": True}], [1, 2, None, None]),
    ("MAP<STRING, TIMESTAMP>", {"b": {"$date": 1}, "a": None}, [["a", None], ["b", 1000]]),
    ("STRUCT<a: INT, b: ARRAY<STRING>>", {"b": [{"$oid": "59"}], "z": 1}, [None, ["59"]]),
    ("INT", {"$undefined": True}, None),
]


@pytest.mark.parametrize(
    ("sql_type", "value", "expected"),
    VALUES,
    ids=[f"{sql_type} {value}"[:70] for sql_type, value, _ in VALUES],
)
def test_a_value_is_converted_by_its_columns_type(sql_type: str, value: Any, expected: Any) -> None:
    got = converted(sql_type, value)
    assert got == expected
    assert type(got) is type(expected)


def test_text_without_a_zone_is_read_in_the_declared_zone() -> None:
    assert converted("ARRAY<TIMESTAMP>", ["2025-01-02 01:00:00"], "Europe/Berlin") == [
        MIDNIGHT * 1000
    ]


# ------------------------------------------------------------------------------------------- any
# value, in Debezium's form

numbers = st.integers(-(10**33), 10**33).map(lambda number: f"{number:d}")
dates = st.integers(-719_162, 2_932_896)
stamps = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda millis: millis * 1000)
longs = st.integers(-(2**63), 2**63 - 1)


def _same(value: Any) -> Any:
    return value


def _long(value: int | None) -> Any:
    return value if value is None else {"$numberLong": str(value)}


def _day(value: int) -> Any:
    return {"$date": value * 86_400_000}


def _stamp(value: int | None) -> Any:
    return value if value is None else {"$date": value // 1000}


CANONICAL: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "STRING": (st.text(), _same),
    "BOOLEAN": (st.booleans(), _same),
    "INT": (st.integers(-(2**31), 2**31 - 1), _same),
    "BIGINT": (longs, _long),
    "DOUBLE": (st.floats(allow_nan=False, allow_infinity=False), _same),
    "DECIMAL(34,0)": (numbers, lambda value: {"$numberDecimal": value}),
    "DATE": (dates, _day),
    "TIMESTAMP": (stamps, _stamp),
    "TIMESTAMP_NTZ": (stamps, _stamp),
    "BINARY": (st.binary(), lambda value: {"$binary": b64encode(value).decode(), "$type": "00"}),
    "ARRAY<BIGINT>": (st.lists(st.none() | longs), lambda value: [_long(item) for item in value]),
    "MAP<STRING, STRING>": (
        st.dictionaries(st.text().filter(lambda name: name[:1] != "$"), st.text()).map(
            lambda entries: sorted(map(list, entries.items()))
        ),
        dict,
    ),
    "STRUCT<at: TIMESTAMP, of: ARRAY<DATE>>": (
        st.tuples(st.none() | stamps, st.lists(dates)).map(list),
        lambda value: {"at": _stamp(value[0]), "of": [_day(item) for item in value[1]]},
    ),
}
"""The values of a column, and the document's value of each, in the strict mode of version 1
(Debezium's default)."""


@pytest.mark.parametrize("sql_type", CANONICAL)
@settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_value_is_read_from_its_document(sql_type: str, data: st.DataObject) -> None:
    values, document_of = CANONICAL[sql_type]
    value = data.draw(values)
    assert repr(converted(sql_type, document_of(value))) == repr(value)


test_error_texts = error_test(
    __file__,
    {
        "a column with a point in its name could be a part of another": lambda: MONGO.decoder(
            "_id STRING, `a.b` INT", unique_key=["_id"]
        ).upserts(KEY, message("u", **description({"a.b": 1}))),
        "a key in an undeclared schema block is refused, 1": lambda: (
            get_format("debezium-mongodb-json", schema_include=False)
            .decoder("_id INT", unique_key=["_id"])
            .upserts(json.dumps({"schema": {}, "payload": {"id": "1"}}).encode(), message("d"))
        ),
        "a key in an undeclared schema block is refused, 2": lambda: MONGO.decoder(
            "_id INT", unique_key=["_id"]
        ).upserts(b'{"schema": {}, "payload": 5}', message("d")),
        "the primary key is the documents id": lambda: MONGO.decoder(COLUMNS, unique_key=["name"]),
        "schema include is taken as text": lambda: get_format(
            "debezium-mongodb-json", schema_include="perhaps"
        ),
        **{
            f"a value that the column cannot hold is refused, {number}": lambda sql_type=sql_type, value=value: (
                converted(sql_type, value)
            )
            for number, (sql_type, value) in enumerate(
                [
                    ("TIMESTAMP", MIDNIGHT),
                    ("TIMESTAMP", True),
                    ("TIMESTAMP", {"$date": None}),
                    ("TIMESTAMP", {"$date": {"$numberInt": "5"}}),
                    ("TIMESTAMP", {"$date": 10**15}),
                    ("TIMESTAMP", {"$date": "2025-01-02T00:00:00"}),
                    ("TIMESTAMP", {"$timestamp": 5}),
                    ("TIMESTAMP", "2025-01-02 00:00:00"),
                    ("DATE", {"$date": 1}),
                    ("DATE", 20090),
                    ("BINARY", "AP8="),
                    ("BINARY", {"$binary": "AP8="}),
                    ("BINARY", {"$binary": "AP8=", "$type": "999"}),
                    ("BINARY", {"$binary": {"base64": "?", "subType": "00"}}),
                    ("BINARY", {"$uuid": "01"}),
                    ("INT", {"$numberInt": 5, "x": 1}),
                    ("INT", {"$numberLong": "2147483648"}),
                    ("INT", {"$numberDouble": "1.5"}),
                    ("INT", {"a": 1}),
                    ("ARRAY<INT>", {"a": 1}),
                    ("MAP<STRING, INT>", [1]),
                    ("STRUCT<a: INT>", 5),
                ],
                1,
            )
        },
        "text without a zone is read in the declared zone": lambda: get_format(
            "debezium-mongodb-json", time_zone="Mars"
        ).decoder("_id INT, at TIMESTAMP"),
    },
)
