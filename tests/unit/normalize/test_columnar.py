"""Messages that are decoded together give the rows and the errors that each gives alone."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from cdc_formats import ChangelogMode, Format, Ignored, RowKind, get_format
from cdc_formats.errors import DecodeError
from cdc_formats.events import KeyValue
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.testing import damaged
from normalize.decode.collectors import Blocks, CollectorMaker, TypedRows
from normalize.decode.columnar import ColumnarDecoder, ColumnarMaker, one_by_one
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from tests.support.both_decoders import (
    Record,
    all_metadata,
    batch_of,
    differences,
    natively,
    odd_places,
    outcome,
    source_of,
    together,
)
from tests.support.error_texts import error_test, text_test
from tests.support.examples import examples
from tests.support.message_shapes import of_each_shape
from tests.support.replay.replaying import read_recording
from tests.support.replay.topics import topics
from tests.support.scenarios import CASES, OF_FORMAT, rejects
from tools.fuzz_together import (
    FORMATS as IN_JSON,
    TARGETS,
    compare,
    compare_recorded,
    recorded_source,
)

FORMATS = (*IN_JSON, "debezium-avro-confluent")
NATIVE = tuple(name for name, case in OF_FORMAT.items() if case.native)
RECORDED = [topic for topic in topics() if topic.format in FORMATS and topic.primary_key]
MESSAGES, OF_EACH_SHAPE = 3_000, 5
MOST_ODD, MOST_ODD_OF = (
    0.01,
    {
        "toasted": 0.25,
        "indexed": 0.5,
        "dbz34-mariadb-avro.inventory.evolving": 0.02,
        "dbz36-postgres-avro.inventory.places": 1.0,
    },
)
"""The share of messages that may be decoded one by one.

It is higher for a table with unavailable values or their text, and for a recording in Avro with
arrays.
"""
PLANS: list[tuple[CollectorMaker, bool, bool]] = [
    (Blocks, False, False),
    (Blocks, True, False),
    (Blocks, False, True),
    (Blocks, True, True),
    (TypedRows, False, False),
    (TypedRows, True, False),
]
"""Plans by target, and whether they have metadata and positions, which `TypedRows` has not."""
SCHEMA = "id INT NOT NULL, name STRING, price DECIMAL(6,2), at TIMESTAMP_NTZ(3)"


@pytest.mark.parametrize(
    ("scenario", "name"),
    [case for case in CASES if case[1] in FORMATS],
    ids=lambda each: getattr(each, "name", each),
)
def test_vectors_give_the_same(scenario, name) -> None:
    vector = scenario.vector(name)
    if not vector.primary_key:
        pytest.skip("a table without a primary key has no keyed stage")
    format = get_format(name, **vector.options)
    for target, with_metadata, positions in PLANS:
        metadata, has_positions = (
            all_metadata(format) if with_metadata else {},
            positions and not format.traits.positions,
        )
        source = source_of(
            format, vector.schema, vector.primary_key, metadata, positions=has_positions
        )
        assert not differences(source, vector.records, target)
    # With all of `source`, Debezium's messages are decoded without the native decoder.
    every = {each: name for each, name in all_metadata(format).items() if "properties" not in name}
    for metadata in ({}, {"offset": "offset", "at": "timestamp"}, every) if name in NATIVE else ():
        positions = metadata is every and not format.traits.positions
        plan = source_of(format, vector.schema, vector.primary_key, metadata, positions=positions)
        assert not differences(plan, [*vector.records] * 2, columnar=natively)


@pytest.mark.parametrize(
    ("scenario", "name"),
    [case for case in CASES if case[1] in FORMATS],
    ids=lambda each: getattr(each, "name", each),
)
def test_vectors_give_the_same_changelog_without_a_key_or_update_before(scenario, name) -> None:
    vector = scenario.vector(name)
    format = get_format(name, **vector.options)
    for drop, ignore_deletes in product((False, True), (False, True)):
        if vector.primary_key or not (
            drop or format.changelog_mode == ChangelogMode.upsert() or name == "upsert-kafka"
        ):
            key = vector.primary_key if drop or format.changelog_mode != ChangelogMode.all() else ()
            source = source_of(
                format, vector.schema, key, drop_update_before=drop, ignore_deletes=ignore_deletes
            )
            assert not differences(source, vector.records, TypedRows)


@pytest.mark.parametrize("identifier", FORMATS)
def test_rejected_messages_give_the_same_errors(identifier: str) -> None:
    # `test_a_damaged_message_among_sound_ones_gives_the_same` has the other targets.
    for _, reject in rejects(identifier):
        source = source_of(
            get_format(identifier, **reject.options), reject.schema, reject.primary_key
        )
        for target in (Blocks, TypedRows) if reject.primary_key else (TypedRows,):
            assert not differences(source, [(reject.key, reject.value)], target)
        if reject.primary_key and identifier in NATIVE:
            assert not differences(source, [(reject.key, reject.value)], columnar=natively)


def sound_ones(source, records, *, keyed: bool) -> int:
    """Return how many records have no error."""
    decoder = source.decoder()
    decode, sound = decoder.upserts if keyed else decoder.decode, 0
    for record in records:
        with suppress(DecodeError):
            decode(*record)
            sound += 1
    return sound


@pytest.mark.parametrize("topic", RECORDED, ids=lambda topic: topic.name)
def test_recorded_topics_give_the_same_and_are_decoded_together(topic, recorded_registry) -> None:
    records = [(record.key, record.value) for record in read_recording(topic.path)]
    source = recorded_source(topic, recorded_registry)
    for columnar in (together, natively) if topic.format in NATIVE else (together,):
        compare_recorded(source, of_each_shape(records, examples(OF_EACH_SHAPE)), columnar)
    for keyed in (True, False):
        if ColumnarDecoder.of(source, keyed=keyed) is not None:
            alone = [records[place] for place in odd_places(source, records, keyed=keyed)]
            most = MOST_ODD_OF.get(topic.recording, MOST_ODD_OF.get(topic.table, MOST_ODD))
            assert sound_ones(source, alone, keyed=keyed) <= most * len(records)


@pytest.mark.parametrize(
    ("identifier", "columnar"),
    [*product(FORMATS, (together,)), *product(NATIVE, (natively,))],
)
def test_a_damaged_message_among_sound_ones_gives_the_same(
    identifier: str, columnar: ColumnarMaker
) -> None:
    seed = 17 if columnar is together else 23
    compare(identifier, examples(MESSAGES), seed=seed, columnar=columnar)


def debezium(op: str, before: object, after: object, table: str = "parts") -> bytes:
    return json.dumps(
        {"op": op, "before": before, "after": after, "source": {"db": "shop", "table": table}}
    ).encode()


PART = {"id": 1, "name": "bolt", "price": "1.50", "at": "2026-11-21 14:00:02.434"}


IN_DOUBT: list[tuple[bytes | None, int]] = [
    (debezium("u", PART, PART), 0),
    (debezium("u", None, PART), 0),
    (debezium("c", None, {"id": 1}), 0),  # a missing column is NULL
    (debezium("d", PART, None), 0),
    (None, 0),
    (b"", 0),
    (debezium("u", {**PART, "id": 2}, PART), 0),
    (debezium("u", {**PART, "id": None}, PART), 1),
    (debezium("u", {**PART, "id": "two"}, PART), 1),
    (debezium("c", None, {**PART, "price": "1.555"}), 1),
    (debezium("c", None, {**PART, "id": None}), 1),
    (debezium("c", None, {**PART, "id": 2**31}), 1),
    (debezium("c", None, {**PART, "name": "__debezium_unavailable_value"}), 1),
    (debezium("c", None, {**PART, "name": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}), 1),
    (debezium("c", None, {**PART, "name": json.loads("[" * 300 + "]" * 300)}), 0),
    (debezium("d", None, None), 1),
    (debezium("t", None, None), 1),
    (b"\xef\xbb\xbf" + debezium("c", None, PART), 1),
    (b"[]", 1),
    (b"{", 1),
]
"""Messages of the table with SCHEMA, and 1 for each that is decoded alone."""
SOUND = [debezium("c", None, {**PART, "id": key}) for key in range(20, 60)]


def canal_update(old: dict[str, str], row: dict[str, str]) -> bytes:
    return json.dumps(
        {"type": "UPDATE", "data": [row], "old": [old], "database": "shop", "table": "parts"}
    ).encode()


OF_PARTS, OF_TOOLS = debezium("c", None, {"id": 1}), debezium("c", None, {"id": 1}, "tools")
ALONE = debezium("u", None, {"id": 1, "name": "__debezium_unavailable_value"})
"""A message that is decoded alone."""
TRUNCATE, BAD = debezium("t", None, None), b"{"


TOAST = "__debezium_unavailable_value"
AFTER_A_MOVE = [
    (
        "debezium-json",
        {},
        {"op": "u", "before": {"id": 1}, "after": {"id": 2, "note": TOAST, "n": 5}},
    ),
    (
        "debezium-json",
        {},
        {"op": "c", "before": None, "after": {"id": 2, "note": TOAST, "n": 5}},
    ),
    (
        "debezium-flat-json",
        {},
        {"__op": "c", "id": 2, "note": TOAST, "n": 5},
    ),
    (
        "maxwell-json",
        {"binlog_row_image": "MINIMAL"},
        {"type": "update", "data": {"id": 2, "n": 5}, "old": {"id": 1}},
    ),
    (
        "maxwell-json",
        {},
        {"type": "update", "data": {"id": 2}, "old": {"id": 1}, "primary_key_columns": ["id"]},
    ),
    (
        "canal-json",
        {"binlog_row_image": "MINIMAL"},
        {"type": "UPDATE", "data": [{"id": 2, "n": 5}], "old": [{"id": 1}], "pkNames": ["id"]},
    ),
    (
        "canal-json",
        {},
        {"type": "UPDATE", "data": [{"id": 2}], "old": [{"id": 1}], "pkNames": ["id"]},
    ),
    (
        "ogg-json",
        {},
        {"op_type": "U", "before": {"id": 1}, "after": {"id": 2, "n": 5}},
    ),
]


def lacking(
    identifier: str, kind: str, row: dict[str, object], old: object = None, key: object = ("id",)
) -> bytes:
    """Return a message of the table with SCHEMA whose row lacks columns."""
    if identifier == "maxwell-json":
        message = {"type": kind, "data": row, "old": old, "primary_key_columns": key}
    else:
        message = {
            "type": kind.upper(),
            "data": [row],
            "old": None if old is None else [old],
            "pkNames": key,
        }
    return json.dumps({"database": "shop", "table": "parts", **message}).encode()


BEFORE_IT_WAS_ADDED = {"id": 1, "name": "bolt"}


LACKING: list[tuple[str, Any, Any, Any, int]] = [
    ("insert", BEFORE_IT_WAS_ADDED, None, ["id"], 0),
    ("insert", {"id": 1}, None, ["id"], 0),
    ("insert", {"size": 3}, None, ["id"], 1),
    ("insert", {"name": "bolt"}, None, ["id"], 1),
    ("update", BEFORE_IT_WAS_ADDED, {"name": "nut"}, ["id"], 0),
    ("update", BEFORE_IT_WAS_ADDED, {"id": 2}, ["id"], 0),
    ("update", BEFORE_IT_WAS_ADDED, {"price": "1.00"}, None, 0),
    ("update", BEFORE_IT_WAS_ADDED, {"price": "1.00"}, "id", 0),
    ("update", BEFORE_IT_WAS_ADDED, {"name": "nut"}, [{"id": 1}], 0),
    (
        "update",
        BEFORE_IT_WAS_ADDED,
        {"name": "nut"},
        ["id", "name"],
        1,
    ),  # only the key: unchanged columns are missing
    ("update", BEFORE_IT_WAS_ADDED, {"size": 3}, ["id"], 1),
    ("update", BEFORE_IT_WAS_ADDED, {}, ["id"], 1),
    ("update", BEFORE_IT_WAS_ADDED, None, ["id"], 1),
    ("update", {"id": 1, "price": "1.555"}, {"price": "1.50"}, ["id"], 1),
    ("delete", BEFORE_IT_WAS_ADDED, None, ["id"], 0),
    ("delete", BEFORE_IT_WAS_ADDED, None, None, 0),
    ("delete", {"id": 1}, None, ["id"], 1),
    ("delete", {}, None, ["id"], 1),
]
"""The operation, the row, the row before it, the key's columns, and 1 if the message is decoded one
by one."""


class Reversed(DebeziumJson):
    """A format that reads messages differently from the one that it extends."""

    def reader(self, rows, *, keyed=False):
        read = super().reader(rows, keyed=keyed)
        return lambda key, value: read(key, value[::-1])


def plan_of(identifier: str | Format, schema: str, *key: str, **arguments: Any) -> DecodePlan:
    """Return a plan that counts control events; options of the format have names with `_`."""
    options = arguments.pop("_", {})
    format = get_format(identifier, **options) if isinstance(identifier, str) else identifier
    return source_of(format, schema, key, **{"control_events": frozenset(), **arguments})


def values(*each: Any) -> list[Record]:
    """Return records without keys; a message that is not bytes is written as JSON."""
    return [
        (None, value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
        for value in each
    ]


def of_table(identifier: str, table: str) -> dict[str, Any]:
    """Return an insert in a table whose row has a column that only this table has."""
    if identifier == "debezium-json":
        return {"op": "c", "after": {"id": 1, "x": table}, "source": {"db": "shop", "table": table}}
    kind, row = ("INSERT", [{"id": "1", table: "1"}]), {"id": 1, table: 1}
    of_format = kind if identifier == "canal-json" else ("insert", row)
    return dict(zip(("type", "data"), of_format, strict=True)) | {
        "database": "shop",
        "table": table,
    }


def canal_rows(size: int) -> dict[str, Any]:
    """Return an update of this many rows, of which the third lacks unchanged columns."""
    rows = [{**PART, "id": 2}, BEFORE_IT_WAS_ADDED, {"id": 1}][:size]
    olds = [{"name": "nut"}, {"name": "nut"}, {"id": 3}][:size]
    message = {"type": "UPDATE", "data": rows, "old": olds, "pkNames": ["id"]}
    return {"database": "shop", "table": "parts", **message}


LACKS_NAME = lacking("maxwell-json", "update", BEFORE_IT_WAS_ADDED, {"name": "nut"})
# A field that no row needs is not text. Alone, the message would be read without a look at it.
CANAL = (
    '{"data":[{"id":"%d"%s}],"old":[{"name":"%s"}],"type":"UPDATE","table":"parts",'
    '"sqlType":{"id":4}}'
)
WHOLE_ROW = ',"name":"bolt","price":"1.50","at":"2026-11-21 14:00:02.434"'
STATEMENT = (
    b'{"type":"QUERY","isDdl":false,"database":"","table":"","data":null,"old":null,"sql":"insert"}'
)
OF_DMS = (
    b'{"data":{"id":1,"name":"kettle"},"before-image":{"name":"pot"},"metadata":'
    b'{"timestamp":"2025-01-02T03:00:01.713000Z","record-type":"data","operation":"update",'
    b'"schema-name":"shop","table-name":"goods"}}'
)
OF_OP = b'{"op":"U","id":2,"name":"lamp","old_id":1,"old_name":"lamp"}'
FLAT = [b'{"id":1,"__op":"c"}', b'{"id":1,"__op":"u"}', b'{"id":1,"__op":"d"}']
NAMED_AS_A_FIELD = (b'{"id":1}', b'{"id":1,"__op":"c"}')
MARKED = {"id": 1, "id_isMissing": False, "n": None, "n_isMissing": True}
OF_GOLDENGATE = [
    {"op_type": op, "before": before, "after": after}
    for op in "IUD"
    for before, after in [
        *((None, MARKED), ({"id": 1, "n": 5}, MARKED), (MARKED, {"id": 1, "n": 5})),
        *((MARKED, MARKED), (MARKED, None)),
    ]
]
KEYLESS = plan_of("debezium-flat-json", "id INT, name STRING", _={"keyless": True})
UPSERTED = plan_of("debezium-json", "id INT", "id", drop_update_before=True)
Cases = Sequence[tuple[KeyValue, int]]
"""Records, and 1 for each that is decoded one by one."""

ROW = b'{"id":1,"name":"bolt","size":"2.5"}'
FLAT_ROWS: Cases = [
    ((b'{"id":1}', ROW), 0),
    ((b'{"id":1}', b'{"id":1}'), 0),
    ((b'{"id":1}', b'{"id":1,"name":"bolt","__deleted":"true"}'), 0),
    ((b'{"id":1}', b'{"id":1,"__deleted":"true"}'), 0),
    ((b'{"id":1}', None), 0),
    ((b'{"id":1}', b"null"), 0),
    ((b'{"id":1,"size":"3.5","other":[]}', None), 0),  # the key has another column
    ((b'{"id":"one"}', None), 1),
    ((b'{"id":null}', None), 1),
    ((b'{"name":"bolt"}', None), 1),
    ((b"1", None), 1),
    ((b'{"schema":{"type":"struct"},"payload":{"id":1}}', None), 1),
    ((b'{"schema":null,"payload":{"id":1}}', None), 1),
    ((None, None), 1),
    ((None, ROW), 0),
    ((b'{"id":1}', b'{"name":"bolt"}'), 1),
    ((b'{"id":1}', b'{"other":1}'), 1),
    ((b'{"id":1}', b""), 1),
]
UPSERTS: Cases = [
    ((b'{"id":1}', ROW), 0),
    ((b'{"id":1}', b'{"name":"bolt"}'), 0),
    ((b'{"id":1}', None), 0),
    ((b'{"id":1,"name":"nut"}', None), 0),  # a key has only the primary key
    ((b'{"id":1,"name":"nut"}', b'{"size":"1"}'), 0),
    ((b'{"id":null}', b'{"name":"bolt"}'), 1),
    ((b'{"id":1}', b'{"other":1}'), 1),
    ((b'{"id":1}', b"{}"), 1),
    ((b'{"id":1}', b"null"), 1),
    ((b"{}", None), 1),
    ((None, ROW), 1),
]
LINES: list[tuple[bytes | None, int]] = [
    (b"1,bolt,2.50,a;b", 0),
    (b'1,"a ""quoted""\r\ntext, of lines",9999.99,', 0),
    (b"1,NONE,NONE,NONE", 0),
    (b'"1","","-0.5","x;NONE"', 0),
    (b'1,"bolt, 2.5', 1),  # no end of the quoted text: the next line is sound
    (b"1,bolt,2.555,a", 1),
    (b"1,bolt,1e400,a", 1),
    (b"1,bolt,2.5", 1),
    (b"1,bolt,2.5,a,b", 1),
    (b"1,bolt,2.5,a\n2,nut,2.5,a", 1),
    (b"1,\xff,2.5,a", 1),
    (b"NONE,bolt,2.5,a", 0),  # the key gives it
    (b"2147483648,bolt,2.5,a", 1),
    (b"", 1),
    (None, 0),
]


def lacking_plan(identifier: str, row_image: str | None) -> DecodePlan:
    return plan_of(identifier, SCHEMA, "id", _={"binlog_row_image": row_image})


def lacking_rows(identifier: str) -> list[tuple[list[Record], int]]:
    """Return each row of LACKING with a whole one, and 1 if it is decoded one by one."""
    whole = lacking(identifier, "insert", {**PART, "id": 7})
    return [(values(lacking(identifier, *case), whole), in_doubt) for *case, in_doubt in LACKING]


def of_name(identifier: str, name: str) -> list[Record]:
    """Return an insert and a delete of a row whose key has the name."""
    row = {name: 1, "v": "a"}
    by_hand: dict[str, list[Any]] = {
        "dms-json": [{"data": row, "metadata": {"operation": op}} for op in ("insert", "delete")],
        "op-json": [{"op": op, **row} for op in "ID"],
        "cockroachdb-json": [{"after": after} for after in (row, None)],
        "ticdc-simple-json": [{"type": "INSERT", "data": row}, {"type": "DELETE", "old": row}],
        "sqlserver-ces-json": [of_sql_server("INS", {}, row), of_sql_server("DEL", row, {})],
    }
    if identifier in by_hand:
        return [(b"[1]", json.dumps(message).encode()) for message in by_hand[identifier]]
    columns = f"`{name}` INT NOT NULL, v STRING"
    encoder = get_format(identifier).encoder(columns, unique_key=[name])
    return [encoder.encode(kind, (1, "a")) for kind in (RowKind.INSERT, RowKind.DELETE)]


def of_sql_server(operation: str, old: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """Return an event of SQL Server, with its rows as JSON in two levels of text."""
    rows = {"old": json.dumps(old), "current": json.dumps(current)}
    data = json.dumps({"eventsource": {}, "eventrow": rows})
    return {"type": "com.microsoft.SQL.CES.DML.V1", "operation": operation, "data": data}


EXCHANGING = source_of(
    get_format("debezium-json", decimal_handling_mode="string"), SCHEMA, ["id"], key_groups=1
)
EXCHANGED = values(
    *(
        debezium("u", {**PART, "id": old}, {**PART, "id": new})
        for old, new in ((1, 3), (2, 1), (3, 2))
    )
)
# All are of one key, and two have other texts of their number.
PRICED = values(
    *(debezium("u", None, {**PART, "price": price}) for price in ("1.50", "1.5e0")),
    debezium("u", {**PART, "id": 9}, {**PART, "price": "9.00"}),
    *(debezium("u", None, {**PART, "price": price}) for price in ("2.50", "3.5e0", "4.50")),
)


def raw_plan(sql_type: str) -> DecodePlan:
    options = {"key_format": "raw", "value_format": "raw", "value_fields_include": "EXCEPT_KEY"}
    return plan_of("upsert-kafka", f"id STRING, value {sql_type}", "id", _=options)


def csv_plan(key_format: str) -> DecodePlan:
    options = {"key_format": key_format, "value_format": "csv", "csv_null_literal": "NONE"}
    schema = "id INT, name STRING, size DECIMAL(6,2), tags ARRAY<STRING>"
    return plan_of("upsert-kafka", schema, "id", _=options)


KEYS_OF_LINES = {"csv": b"1", "json": b'{"id":1}', "raw": b"\0\0\0\1"}
RAW_VALUES = {
    "STRING": b"bolt",
    "BIGINT": b"\0" * 7 + b"\7",
    "DOUBLE": b"\x40\x04" + b"\0" * 6,
    "BINARY": b"\xff",
    "BOOLEAN": b"\1",
}
FLAT_PLAN = plan_of(
    *("debezium-flat-json", "id INT, name STRING, size DECIMAL(6,2)", "id"),
    _={"decimal_handling_mode": "string"},
    on_truncate="ignore",
)
KEYS_ALONE = plan_of("debezium-flat-json", "shop STRING, id INT", "id", "shop")

SAME: dict[str, tuple[DecodePlan, list[Record], CollectorMaker, list[int] | None, str]] = {
    "a damaged message after others that lack columns": (
        source_of(get_format("canal-json"), SCHEMA, ["id"]),
        values(
            *(
                (CANAL % each).encode("latin-1")
                for each in ((1, "", "a"), (2, "", "a"), (3, WHOLE_ROW, "\xb1"))
            )
        ),
        Blocks,
        None,
        "",
    ),
    **{
        f"columns that GoldenGate marks as missing, {target.__name__}, {schema}": (
            source_of(get_format("ogg-json"), schema, ["id"]),
            values(*OF_GOLDENGATE),
            target,
            None,
            "",
        )
        for schema in ("id INT, n INT", "id INT, n INT, n_isMissing BOOLEAN")
        for target in (Blocks, TypedRows)
    },
    "an update whose row GoldenGate marks": (
        source_of(get_format("ogg-json"), "id INT, n INT", ["id"]),
        values(OF_GOLDENGATE[5]),
        Blocks,
        None,
        "partials={2: [P",
    ),
    **{
        f"{size} rows, of which the third lacks unchanged columns": (
            source_of(get_format("canal-json"), SCHEMA, ["id"]),
            values(canal_rows(size)),
            Blocks,
            [0] * (size == 3),
            "",
        )
        for size in (1, 2, 3)
    },
    # Alone, its table is unknown, because the names of its fields cannot be read.
    **{
        f"another table and a field {name!r}": (
            plan_of("canal-json", "id INT", "id", _={"table_include": "parts"}),
            values(
                b'{"type":"QUERY","isDdl":false,"table":"tools","data":1,"' + name + b'":1}',
            ),
            Blocks,
            [0],
            "",
        )
        for name in (b"sql\xec", b"\\ud800", b"\\uD800")
    },
    "other tables that lack columns": (
        plan_of("maxwell-json", SCHEMA, "id", _={"table_include": "parts"}),
        values(LACKS_NAME.replace(b'"parts"', b'"tools"'), LACKS_NAME),
        Blocks,
        [],
        "'OTHER_TABLE': 1",
    ),
    **{
        f"statements without rows, {reason}, {len(control_events)} control events": (
            plan_of(
                *("canal-json", "id INT, name STRING", "id"),
                _=options,
                control_events=control_events,
            ),
            values(canal_update({"name": "nut"}, {"id": "1", "name": "bolt"}), STATEMENT),
            Blocks,
            None if control_events else [],
            "" if control_events else f"'{reason}': 1",
        )
        for options, reason in (({}, "MESSAGE"), ({"table_include": "parts"}, "OTHER_TABLE"))
        for control_events in (frozenset[Ignored](), frozenset(Ignored))
    },
    **{
        f"a record without rows among upserts without a stage: {text}": (
            UPSERTED,
            values(debezium("c", None, {"id": 1}), debezium("m", None, None), None),
            TypedRows,
            None,
            text,
        )
        for text in ("'row_kind': '+I'", "'MESSAGE': 1", "'TOMBSTONE': 1")
    },
    "a row before that is dropped is still converted": (
        source_of(
            get_format("changelog-json"),
            "id INT, price DECIMAL(6,2)",
            ["id"],
            drop_update_before=True,
        ),
        values(
            b'{"op":"-U","data":{"id":1,"price":1e400}}', b'{"op":"-U","data":{"id":1,"price":1}}'
        ),
        TypedRows,
        None,
        "out of its range",
    ),
    **{
        f"metadata {metadata} of {of_source!r}": (
            source_of(get_format("debezium-json"), "id INT", ["id"], metadata),
            values(b'{"op":"c","after":{"id":1},"source":{%s}}' % of_source),
            Blocks,
            None,
            row,
        )
        for metadata in ({}, {"table": "source.table"}, {"all": "source.properties"})
        for of_source, row in (
            (b'"db":"shop","table":"parts","snapshot":"\xa3"', ""),
            (b'"db":["shop"],"table":7', "changes={2: ["),  # names of a table that are not text
            (b'"db":"\\ud800","table":"parts"', ""),
        )
    },
    "tombstones that become rows": (
        source_of(
            get_format("debezium-json"),
            "id INT",
            ["id"],
            control_events=frozenset({Ignored.TOMBSTONE}),
        ),
        values(debezium("c", None, {"id": 1}), None),
        Blocks,
        [1],
        "",
    ),
    **{
        f"messages of other tables, {identifier}": (
            plan_of(identifier, "id INT, parts INT", "id", _={"table_include": "parts"}),
            values(
                *(of_table(identifier, table) for table in ("parts", "tools", "tools", "parts"))
            ),
            Blocks,
            [],
            "'OTHER_TABLE': 2",
        )
        for identifier in ("canal-json", "debezium-json", "maxwell-json")
    },
    "only messages in doubt, which turn the attempt off for a while": (
        source_of(get_format("debezium-json"), "id INT", ["id"]),
        values(*(debezium("u", {"id": None}, {"id": key + 1}) for key in range(50))),
        Blocks,
        [*range(50)],
        "",
    ),
    "a Kafka key without its columns": (
        source_of(
            get_format("upsert-kafka", key_format="json", value_format="json"),
            "id INT, name STRING",
            ["id"],
        ),
        [
            (key, b'{"id": 1, "name": "bolt"}')
            for key in (b'{"id\xe9": 1}', b'{"x": 1}', b'{"id": null}', b"{}")
        ],
        Blocks,
        None,
        "",
    ),
    **{
        f"an added field {number!r}, which keeps its digits": (
            source_of(
                get_format("debezium-flat-json"),
                "id INT, name STRING",
                ["id"],
                {"table": "source.table"},
            ),
            values(b'{"id":1,"name":"bolt","__table":%s}' % number),
            Blocks,
            None,
            number.decode(),
        )
        for number in (b"1e400", b"0.0000000", b"1.50")
    },
    "a row before with a prefix, which is read whole although only its key is needed": (
        source_of(
            get_format("op-json", before_prefix="old_"), "id INT NOT NULL, name STRING", ["id"]
        ),
        values(OF_OP, OF_OP.replace(b'"old_name":"lamp"', b'"old_name":"la\xb2mp"')),
        Blocks,
        [1],
        "",
    ),
    **{
        f"a before-image of all columns without the key, {empty}": (
            source_of(
                get_format(
                    "dms-json",
                    before_image_field="before-image",
                    before_image_column_filter="all",
                    include_null_and_empty=empty,
                ),
                "id INT NOT NULL, name STRING",
                ["id"],
            ),
            values(OF_DMS),
            TypedRows,
            [0],
            "",
        )
        for empty in (False, True)
    },
    **{
        f"flat rows without a table's key, {key!r}": (
            KEYLESS,
            [(key, value) for value in (*FLAT, b'{"id":1,"__deleted":"true"}', b"null", None)],
            TypedRows,
            None,
            "",
        )
        for key in (None, b'{"id":1}')
    },
    "flat inserts without a key": (KEYLESS, values(FLAT[0], FLAT[2]), TypedRows, [], ""),
    "an update that keeps its key": (
        source_of(get_format("debezium-json"), "id INT, note STRING, n INT", ["id"]),
        values({"op": "u", "before": {"id": 1}, "after": {"id": 1, "note": TOAST, "n": 5}}),
        Blocks,
        None,
        "partials={2: [P",
    ),
    **{
        f"message {number} among sound ones": (
            plan_of(
                *("debezium-json", SCHEMA, "id"),
                _={"decimal_handling_mode": "string"},
                on_truncate="ignore",
            ),
            values(*SOUND[:7], value, *SOUND[7:]),
            Blocks,
            [7] * in_doubt,
            "",
        )
        for number, (value, in_doubt) in enumerate(IN_DOUBT, 1)
    },
    **{
        f"an update of a key, {old}, {target.__name__}, ignore_deletes={ignore_deletes}": (
            source_of(
                *(get_format("canal-json"), "shop STRING NOT NULL, id INT NOT NULL, name STRING"),
                ["shop", "id"],
                ignore_deletes=ignore_deletes,
            ),
            values(canal_update(old, {"shop": "north", "id": "1", "name": "bolt"})),
            target,
            [],
            "",
        )
        for old in (
            *({"name": "nut"}, {"id": "7"}, {"shop": "south"}, {"id": "07"}),
            *({"id": "+1"}, {"id": "1"}),
        )
        for target in (Blocks, TypedRows)
        for ignore_deletes in (False, True)
    },
    **{
        f"a changed key whose row lacks columns deletes nothing, {number}, {text}": (
            plan_of(
                identifier, "id INT, note STRING, n INT", "id", _=options, mode="DROPMALFORMED"
            ),
            [(b'{"id": 2}', json.dumps(message).encode())],
            Blocks,
            None,
            text,
        )
        for number, (identifier, options, message) in enumerate(AFTER_A_MOVE, 1)
        for text in ("changes={}", "'PARTIAL_IMAGE': 1")
    },
    **{
        f"keys that two updates exchange, {target.__name__}": (
            EXCHANGING,
            EXCHANGED,
            target,
            [],
            "",
        )
        for target in TARGETS
    },
    **{
        f"{identifier} with row image {row_image}, which lacks an added column, {arguments}": (
            replace(lacking_plan(identifier, row_image), **arguments),
            [each for record, _ in lacking_rows(identifier) for each in record],
            TypedRows if arguments else Blocks,
            [2 * place for place, (_, in_doubt) in enumerate(lacking_rows(identifier)) if in_doubt]
            if row_image is None and not arguments
            else None,
            "",
        )
        for identifier in ("canal-json", "maxwell-json")
        for row_image in (None, "FULL", "MINIMAL")
        for arguments in (
            *({}, {"drop_update_before": False}, {"drop_update_before": True}),
            {"unique_key": ()},
        )
    },
    **{
        f"{identifier}, one row that lacks an added column, {number}": (
            lacking_plan(identifier, None),
            record,
            Blocks,
            [0] * in_doubt,
            "",
        )
        for identifier in ("canal-json", "maxwell-json")
        for number, (record, in_doubt) in enumerate(lacking_rows(identifier), 1)
    },
    "changes in the place of their messages": (
        EXCHANGING,
        PRICED,
        Blocks,
        None,
        "",
    ),
    **{
        f"a deleted row without a part of its key, {before}": (
            source_of(
                *(get_format("debezium-json"), "shop STRING NOT NULL, id INT NOT NULL"),
                ["shop", "id"],
            ),
            values(debezium("d", before, None)),
            Blocks,
            None,
            "changes={}",
        )
        for before in ({"id": 1}, {"shop": None, "id": 1}, {"shop": "north"})
    },
    **{
        f"a null in the row is not the value of the Kafka key, {target.__name__}": (
            source_of(get_format("cockroachdb-json"), "id INT NOT NULL, v STRING", ["id"]),
            [
                (b"[2]", value)
                for value in (
                    b'{"after": {"id": null, "v": "a"}}',
                    b'{"after": {"v": "a"}}',
                    b'{"after": null}',
                )
            ],
            target,
            None,
            "",
        )
        for target in TARGETS
    },
    **{
        f"a column {name!r} of {identifier}, {target.__name__}": (
            source_of(get_format(identifier), f"`{name}` INT NOT NULL, v STRING", [name]),
            of_name(identifier, name),
            target,
            None,
            "changes={",
        )
        for identifier in IN_JSON
        if OF_FORMAT[identifier].key == "id"
        for name in ('k"', "a\\b", "tab\t")
        for target in TARGETS
    },
    **{
        f"a flat row whose column cannot be converted is deleted, {target.__name__}": (
            FLAT_PLAN,
            [(b'{"id":1,"size":"3.555"}', None)],
            target,
            None,
            "",
        )
        for target in (Blocks, TypedRows)
    },
    **{
        f"lines of CSV with keys in {key_format} of which some are wrong": (
            csv_plan(key_format),
            [
                *((key, value) for value, _ in LINES for _ in range(2)),
                *((other, value) for other in (b"", b"\0", b"one", None) for value, _ in LINES),
            ],
            Blocks,
            None,
            "",
        )
        for key_format, key in KEYS_OF_LINES.items()
    },
    **{
        f"raw values of which some are wrong, {sql_type}, {other!r}": (
            raw_plan(sql_type),
            [(b"one", other), (b"\xff", value), (b"", value), (None, value)],
            Blocks,
            None,
            "",
        )
        for sql_type, value in RAW_VALUES.items()
        for other in (b"", b"\xff\xff", b"null")
    },
}
"""Records of a plan; how they are collected; which of them are decoded one by one, if that is a
fact; and a text of the result."""
EVERY_PLAN: dict[str, tuple[DecodePlan, Cases]] = {
    "flat rows and their deletes": (FLAT_PLAN, FLAT_ROWS),
    "flat deletes of a table without other columns than its key": (
        KEYS_ALONE,
        [((b'{"id":1,"shop":"north"}', None), 0), ((b'{"id":1}', None), 1), ((b"1", None), 1)],
    ),
    "flat rows of a table without other columns than its key": (
        KEYS_ALONE,
        [
            ((None, value), 0)
            for value in (
                b'{"id":1,"shop":"north"}',
                b'{"id":1,"shop":"north","__deleted":true}',
            )
        ],
    ),
    **{
        f"upserts, {include}": (
            plan_of(
                *("upsert-kafka", "id INT, name STRING, size DECIMAL(6,2)", "id"),
                _={"value_fields_include": include},
            ),
            UPSERTS,
        )
        for include in ("ALL", "EXCEPT_KEY")
    },
    **{
        f"lines of CSV with keys in {key_format}": (
            csv_plan(key_format),
            [((key, value), in_doubt) for value, in_doubt in LINES],
        )
        for key_format, key in KEYS_OF_LINES.items()
    },
    **{
        f"raw values of {sql_type}": (
            raw_plan(sql_type),
            [((b"one", value), 0), ((b"two", None), 0)],
        )
        for sql_type, value in RAW_VALUES.items()
    },
}


@pytest.mark.parametrize(("plan", "cases"), EVERY_PLAN.values(), ids=EVERY_PLAN)
def test_plans_with_and_without_a_stage_give_the_same(plan: DecodePlan, cases: Cases) -> None:
    sound = [case for case in cases if not case[1]]
    for part in (sound, cases):  # records without any in doubt are read in another way
        records = [record for record, _ in (*part, *part)]
        in_doubt = [place for place, (_, alone) in enumerate((*part, *part)) if alone]
        assert odd_places(plan, records) == in_doubt
        assert not differences(plan, records)
        for drop, ignore_deletes in product((False, True), (False, True)):
            plan = replace(plan, drop_update_before=drop, ignore_deletes=ignore_deletes)
            assert odd_places(plan, records, keyed=False) == in_doubt
            assert not differences(plan, records, TypedRows)


@pytest.mark.parametrize(("plan", "records", "target", "odd", "text"), SAME.values(), ids=SAME)
def test_messages_give_the_same(
    plan: DecodePlan,
    records: list[Record],
    target: CollectorMaker,
    odd: list[int] | None,
    text: str,
) -> None:
    assert not differences(plan, records, target)
    assert odd is None or odd_places(plan, records, keyed=target is Blocks) == odd
    assert text in str(outcome(plan, records, columnar=together, target=target))


@pytest.mark.parametrize(
    ("plan", "record"),
    [
        # A column has the name of a field of the message.
        (
            source_of(get_format("debezium-flat-json"), "id INT, `__op` STRING", ["id"]),
            NAMED_AS_A_FIELD,
        ),
        (
            source_of(Reversed(), "id INT", ["id"]),
            (None, debezium("c", None, {"id": 1})[::-1]),
        ),
    ],
)
def test_a_plan_that_columns_do_not_fit_is_read_row_by_row(
    plan: DecodePlan, record: Record
) -> None:
    assert ColumnarDecoder.of(plan) is None
    assert not differences(plan, [record])
    assert len(outcome(plan, [record], columnar=together).changes) == 1


CELLS = (
    "1 2 3", 'bolt é null "a,""b"', "1.5 -0.50 1e2 99999 99.999", "true false 1", "1 -1e5", "2026-11-21 2026-02-30",
    "2026-11-21T14:00:02.434 x", "9223372036854775807 -1", "AQ== ?", "1;2 1|x 3",
)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"csv_null_literal": ""},
        {"csv_escape_character": "\\", "csv_null_literal": "null"},
        {
            "csv_quote_character": "",
            "csv_field_delimiter": "\t",
            "csv_array_element_delimiter": "|",
        },
    ],
)
def test_damaged_lines_of_csv_give_the_same(options: dict[str, str]) -> None:
    draw, delimiter = random.Random(3), options.get("csv_field_delimiter", ",")
    format = get_format("upsert-kafka", key_format="csv", value_format="csv", **options)
    schema = (
        "id INT, s STRING, d DECIMAL(6,2), b BOOLEAN, f DOUBLE, day DATE, at TIMESTAMP_NTZ(3), n "
        "BIGINT, raw BINARY, tags ARRAY<INT>"
    )
    for _ in range(examples(60)):
        rows = [
            [draw.choice(each.split(" ")) for each in CELLS] for _ in range(draw.choice((1, 5, 40)))
        ]
        lines = [delimiter.join(row).encode() for row in rows]
        lines = [damaged(line, draw) if draw.random() < 0.2 else line for line in lines]
        records = [
            (draw.choice((b"1", b"2", b"", None)), draw.choice((line, line, line, None)))
            for line in lines
        ]
        source = source_of(format, schema, ["id"], control_events=frozenset())
        for target in (Blocks, TypedRows):
            assert not differences(source, records, target)


def rows_without_a_stage(
    identifier: str, *messages: Any, key: bytes | None = None, **more: Any
) -> str:
    """Return the rows of a plan without a stage, for both decoders, and what is decoded alone."""
    columns = ("shop", "id", "name")
    schema, plan = "shop STRING, id INT, name STRING", {"unique_key": ("shop", "id"), **more}
    source = replace(source_of(get_format(identifier), schema, ["shop", "id"]), **plan)
    records = [(key, value) for _, value in values(*messages)]
    assert not differences(source, records, TypedRows)
    lines = []
    for batch in decode_pass(iter([batch_of(records)]), plan=source, collector=TypedRows):
        for row in batch.to_pylist():
            if row["row_kind"] is not None:
                lines.append(f"{row['row_kind']} {[row[name] for name in columns]}")
            elif row["_corrupt_record"] is not None:
                lines.append(row["_corrupt_record"]["error"].partition(" - ")[0])
    return "\n".join([*lines, f"alone: {odd_places(source, records, keyed=False)}"])


def of_operation(identifier: str, op: str, before: Any, after: Any) -> dict[str, Any]:
    images = {"before": before, "after": after}
    if identifier == "debezium-json":
        return {"op": op, **images}
    return {"op_type": {"c": "I"}.get(op, op.upper()), "table": "parts", **images}


ROW_OF_SHOP = {"shop": "north", "id": 1, "name": "bolt"}
ONE, TWO = {"shop": "north", "id": 1}, {"shop": "north", "id": 2}
OPERATIONS: list[tuple[str, Any, Any]] = [
    ("u", {"name": "nut"}, ROW_OF_SHOP),  # the key did not change
    ("u", {"shop": "north", "name": "nut"}, ROW_OF_SHOP),
    ("u", {"id": 2, "name": "nut"}, ROW_OF_SHOP),
    ("u", {"shop": "north", "id": 2}, ROW_OF_SHOP),
    ("u", {"shop": None, "id": 2}, ROW_OF_SHOP),
    ("u", {"id": None}, ROW_OF_SHOP),
    ("u", {}, ROW_OF_SHOP),
    ("u", {"shop": "north"}, {"shop": "north", "name": "bolt"}),
    ("c", None, {"shop": None, "id": 1}),
    ("d", ROW_OF_SHOP, None),
    ("d", {"shop": "north", "id": 1}, None),
    ("d", {"name": "bolt"}, None),
    ("d", {"id": 1, "name": "bolt"}, None),
    ("d", {"shop": None, "id": 1}, None),
]
test_texts = text_test(
    __file__,
    {
        **{
            f"{identifier} without a stage: {op} {before} {after}": partial(
                rows_without_a_stage,
                identifier,
                of_operation(identifier, op, before, after),
                drop_update_before=True,
            )
            for identifier in ("debezium-json", "ogg-json")
            for op, before, after in OPERATIONS
        },
        **{
            f"flat upserts without a stage: {value}": partial(
                rows_without_a_stage, "debezium-flat-json", value, key=b"{}"
            )
            for value in (
                *({"id": 1, "__deleted": "true"}, {"shop": None, "id": 1}, {"name": "bolt"}),
                {**ROW_OF_SHOP, "__deleted": "true"},
            )
        },
        # Without a declared key, a missing column is NULL.
        **{
            f"a row before has the key of the row after where it lacks it, {key}": partial(
                rows_without_a_stage,
                *("debezium-json", debezium("u", {"name": "nut"}, ROW_OF_SHOP)),
                unique_key=key,
            )
            for key in (("shop", "id"), ())
        },
        **{
            f"changes without a stage, drop={drop}, ignore_deletes={ignore_deletes}": partial(
                rows_without_a_stage,
                *("debezium-json", debezium("u", ONE, TWO), debezium("u", TWO, TWO)),
                debezium("d", TWO, None),
                drop_update_before=drop,
                ignore_deletes=ignore_deletes,
            )
            for drop in (True, False)
            for ignore_deletes in (False, True)
        },
        "changes of exchanged keys": lambda: (
            outcome(EXCHANGING, EXCHANGED, columnar=together).changes
        ),
        "changes in the place of their messages": lambda: (
            outcome(EXCHANGING, PRICED, columnar=together).changes
        ),
    },
)


def stopped(columnar: ColumnarMaker, identifier: str, *records: Record, **options: Any) -> object:
    format = get_format(identifier, **options)
    plan = plan_of(format, "id INT, name STRING, note STRING, n INT", "id", mode="FAILFAST")
    return outcome(plan, records, columnar=columnar)


STOPPING = [
    [OF_PARTS, TRUNCATE, OF_TOOLS],
    [OF_PARTS, OF_TOOLS, TRUNCATE],
    [TRUNCATE, OF_PARTS, OF_TOOLS],
    [OF_PARTS, BAD, OF_TOOLS],
    [OF_PARTS, OF_TOOLS, BAD],
    [ALONE, TRUNCATE, OF_TOOLS],
    [ALONE, OF_TOOLS, OF_PARTS],
    [OF_TOOLS, ALONE, TRUNCATE],
    [OF_TOOLS, OF_TOOLS, ALONE],
]
DECODERS = {"one by one": one_by_one, "together": together}
test_error_texts = error_test(
    __file__,
    {
        **{
            f"the first record that stops a query, {number}, {decoder}": partial(
                stopped, columnar, "debezium-json", *values(*messages)
            )
            for number, messages in enumerate(STOPPING, 1)
            for decoder, columnar in DECODERS.items()
        },
        **{
            f"a changed key whose row lacks columns, {number}, {decoder}": partial(
                *(stopped, columnar, identifier, (b'{"id": 2}', json.dumps(message).encode())),
                **options,
            )
            for number, (identifier, options, message) in enumerate(AFTER_A_MOVE, 1)
            for decoder, columnar in DECODERS.items()
        },
    },
)
