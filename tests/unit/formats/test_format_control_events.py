"""Control events of records without rows, from real producers and from unusual messages."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import ControlEvent, Ignored, get_format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import TypedRows
from tests.support.both_decoders import differences, odd_share, source_of
from tests.support.error_texts import error_test
from tests.support.examples import examples
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample
from tests.support.scenarios import VECTORS, Line

FOLDER = VECTORS / "control-events"


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """The control event of a record."""

    type: str
    database: str | None
    schema: str | None
    table: str | None
    statement: str | None


class ControlLine(Line, forbid_unknown_fields=True, kw_only=True):
    """A line of a file of control events."""

    event: Expected


def lines(path: Path) -> list[ControlLine]:
    return [
        msgspec.json.decode(line, type=ControlLine)
        for line in path.read_bytes().split(b"\n")
        if line
    ]


CASES = [(path.stem, line) for path in sorted(FOLDER.glob("*.jsonl")) for line in lines(path)]


@pytest.mark.parametrize(
    ("identifier", "line"), CASES, ids=[f"{name}, {line.why}" for name, line in CASES]
)
def test_a_record_without_rows_is_a_control_event(identifier: str, line: ControlLine) -> None:
    format, (key, value) = get_format(identifier, **line.options), line.record
    reason = format.decoder("id INT").decode(key, value)
    assert reason is Ignored(line.event.type)
    expected = line.event
    assert format.control_event(key, value, reason) == ControlEvent(
        reason, expected.database, expected.schema, expected.table, expected.statement
    )


values = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(), st.none())
)
MEMBERS = (
    "database",
    "table",
    "sql",
    "type",
    "ddl",
    "databaseName",
    "schemaName",
    "source",
    "tableChanges",
    "message",
    "status",
    "id",
    "payload",
)


@pytest.mark.parametrize(
    "identifier", ["debezium-json", "canal-json", "maxwell-json", "ogg-json", "changelog-json"]
)
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    message=st.dictionaries(st.sampled_from(MEMBERS), values), reason=st.sampled_from(list(Ignored))
)
def test_unusual_details_are_no_errors(
    identifier: str, message: dict[str, Any], reason: Ignored
) -> None:
    event = get_format(identifier).control_event(None, msgspec.json.encode(message), reason)
    assert event.type is reason
    assert all(part is None or (isinstance(part, str) and part) for part in event[1:])


# --------------------------------------------------------------------------------------------------
# Metadata columns: Flink's names and types, and the values of a message
CASES_OF_FORMAT_METADATA: list[tuple[str, bytes, bytes, dict[str, tuple[str, Any]]]] = [
    (
        "canal-json",
        b'{"type":"INSERT","data":[{"id":"1"},{"id":"2"}],"database":"shop","table":"a",'
        b'"sqlType":{"n":12,"id":4,"x":null},"pkNames":["id"],"es":1589373560000,'
        b'"ts":1589373560798}',
        b'{"type":"INSERT","data":[{"id":"1"}],"pkNames":null,"sqlType":[]}',
        {
            "database": ("STRING", "shop"),
            "table": ("STRING", "a"),
            "sql-type": ("MAP<STRING, INT>", [["id", 4], ["n", 12], ["x", None]]),
            "pk-names": ("ARRAY<STRING>", ["id"]),
            "ingestion-timestamp": ("TIMESTAMP(3)", 1_589_373_560_798_000),
            "event-timestamp": ("TIMESTAMP(3)", 1_589_373_560_000_000),
        },
    ),
    (
        "debezium-json",
        b'{"schema":{"type":"struct"},"payload":{"op":"u","before":{"id":1},"after":{"id":2},'
        b'"source":{"db":"inventory","schema":"public","table":"products","ts_ms":1589362330000,'
        b'"lsn":24023128,"xmin":null,"nested":{"a":[1,null]}},"ts_ms":1589362330904}}',
        b'{"op":"c","after":{"id":1}}',
        {
            "schema": ("STRING", '{"type":"struct"}'),
            "ingestion-timestamp": ("TIMESTAMP(3)", 1_589_362_330_904_000),
            "source.timestamp": ("TIMESTAMP(3)", 1_589_362_330_000_000),
            "source.database": ("STRING", "inventory"),
            "source.schema": ("STRING", "public"),
            "source.table": ("STRING", "products"),
            "source.properties": (
                "MAP<STRING, STRING>",
                [
                    ["db", "inventory"],
                    ["lsn", "24023128"],
                    ["nested", '{"a":[1,null]}'],
                    ["schema", "public"],
                    ["table", "products"],
                    ["ts_ms", "1589362330000"],
                    ["xmin", None],
                ],
            ),
        },
    ),
    (
        "maxwell-json",
        b'{"type":"insert","database":"shop","table":"a","ts":1596684883,"xid":7152,'
        b'"position":"m.6:800","primary_key_columns":["id","n"],"data":{"id":1}}',
        b'{"type":"insert","data":{"id":1}}',
        {
            "database": ("STRING", "shop"),
            "table": ("STRING", "a"),
            "primary-key-columns": ("ARRAY<STRING>", ["id", "n"]),
            "ingestion-timestamp": ("TIMESTAMP(3)", 1_596_684_883_000_000),
            "position": ("STRING", "m.6:800"),
            "xid": ("BIGINT", 7152),
        },
    ),
    (
        "ogg-json",
        b'{"op_type":"I","after":{"id":1},"table":"OWNER.A","primary_keys":["ID"],'
        b'"op_ts":"2020-05-13 15:40:06.000123","current_ts":"2020-05-13T13:39:35.766",'
        b'"pos":"00000143"}',
        b'{"op_type":"I","after":{"id":1}}',
        {
            "table": ("STRING", "OWNER.A"),
            "primary-keys": ("ARRAY<STRING>", ["ID"]),
            "ingestion-timestamp": ("TIMESTAMP(6)", 1_589_377_175_766_000),
            "event-timestamp": ("TIMESTAMP(6)", 1_589_384_406_000_123),
            "position": ("STRING", "00000143"),
        },
    ),
]
"""A message, one without metadata, and the type and value of each column."""


@pytest.mark.parametrize(("identifier", "value", "bare", "metadata"), CASES_OF_FORMAT_METADATA)
def test_metadata_has_flinks_names_types_and_values(
    identifier: str, value: bytes, bare: bytes, metadata: dict[str, tuple[str, Any]]
) -> None:
    format = get_format(identifier)
    types = {name: column.type for name, column in format.metadata.items()}
    assert types == {name: sql_type for name, (sql_type, _) in metadata.items()}
    decoder = format.decoder("id INT", metadata=list(metadata))
    expected = tuple(each for _, each in metadata.values())
    assert {repr(change.metadata) for change in decoder.decode(None, value)} == {repr(expected)}
    (change,) = decoder.decode(None, bare)
    assert change.metadata == (None,) * len(metadata)


# --------------------------------------------------------------------------------------------------
# Messages and keys in a schemaless wrapper, ``{"payload": ...}``, read as the payload alone
pytestmark = pytest.mark.usefixtures("no_other_formats")

SOURCE = {"connector": "TiCDC", "db": "shop", "table": "parts", "commit_ts": 447984084414103554}
INSERT = {
    "source": SOURCE,
    "ts_ms": 1707103832957,
    "transaction": None,
    "op": "c",
    "before": None,
    "after": {"id": 1, "name": "bolt"},
}
DELETE = {**INSERT, "op": "d", "before": {"id": 1, "name": "bolt"}, "after": None}


def wrapped(payload: object, **more: object) -> bytes:
    return json.dumps({"payload": payload, **more}).encode()


@pytest.mark.parametrize(("schema_include", "most_odd"), [("auto", 2), (False, 2), (True, 2)])
def test_envelopes_in_payloads_are_decoded_together(schema_include: Any, most_odd: int) -> None:
    records = [
        (None, wrapped(message))
        for message in (INSERT, DELETE, {**INSERT, "after": {"id": "x"}}, 3)
    ]
    metadata = {"schema": "schema", "table": "source.table"}
    source = source_of(
        get_format("debezium-json", schema_include=schema_include),
        "id INT, name STRING",
        ["id"],
        metadata,
    )
    assert odd_share(source, records)[0] == most_odd
    assert not differences(source, records)
    assert not differences(
        source,
        [*records, (None, json_bytes(INSERT)), (None, wrapped(INSERT, schema=None))],
        TypedRows,
    )


@pytest.mark.parametrize(
    ("format", "value"),
    [("debezium-json", INSERT), ("debezium-flat-json", {"id": 1, "name": "bolt"})],
)
def test_a_topic_of_payloads_is_recognized(format: str, value: dict[str, Any]) -> None:
    records = list(product([wrapped({"id": 1})], [wrapped(value)] * 3))
    inferred = infer_schema(records, format=format)
    assert (inferred.ddl, inferred.primary_key) == ("id BIGINT NOT NULL, name STRING", ("id",))
    profile = profile_records(sample(*records))
    assert profile.format == format
    assert profile.tables[0].primary_key == ("id",)


@pytest.mark.parametrize(
    "more", [{}, {"schema": None}, {"schema": {"type": "struct", "fields": []}}]
)
@pytest.mark.parametrize("value", [b'{"id":1,"name":"bolt"}', b'{"name":"bolt"}', None])
def test_a_key_of_upsert_kafka_in_a_payload_is_read(
    value: bytes | None, more: dict[str, Any]
) -> None:
    key, other = wrapped({"id": 1}, **more), wrapped({"nr": 1}, **more)
    source = source_of(get_format("upsert-kafka"), "id INT, name STRING", ["id"])
    decoder = get_format("upsert-kafka").decoder("id INT, name STRING", unique_key=["id"])
    assert decoder.upserts(key, value) == decoder.upserts(b'{"id":1}', value)
    assert decoder.compare_names(key, value) == decoder.compare_names(b'{"id":1}', value)
    for records in ([(key, value)], [(other, value)], [(wrapped({"id": "x"}, **more), value)]):
        assert not differences(source, records)
        assert not differences(source, records, TypedRows)
    of_payload = get_format("upsert-kafka").decoder("payload STRING", unique_key=["payload"])
    assert of_payload.upserts(key, None)[0].key == ('{"id":1}',)


test_error_texts = error_test(
    __file__,
    {
        "a bare message and a schema block are refused as the option says, 1": lambda: (
            get_format("debezium-json", schema_include=True)
            .decoder("id INT")
            .decode(None, json_bytes(INSERT))
        ),
        "a bare message and a schema block are refused as the option says, 2": lambda: (
            get_format("debezium-json", schema_include=False)
            .decoder("id INT")
            .decode(None, wrapped(INSERT, schema=None))
        ),
    },
)
