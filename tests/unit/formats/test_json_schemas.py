"""The JSON Schemas of envelopes, and `validate=True`."""

import json
import pickle
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cdc_formats import Event, Format, Ignored, get_format, read_object
from cdc_formats.errors import (
    DecodeError,
    FormatOptionError,
    MalformedMessageError,
    SchemaValidationError,
)
from cdc_formats.message_format import DRAFT, json_schema_of, message_validator
from cdc_formats.testing import Reject, Vector, check_json_schema
from tests.support.samples import recorded
from tests.support.scenarios import FORMATS, OURS

PACKAGE = Path(sys.modules["cdc_formats"].__file__ or "").parent

WITH_SCHEMA = [name for name in OURS if json_schema_of(FORMATS[name]) is not None]
WITHOUT = {
    "op-json": "the options name its fields",
    "upsert-kafka": "a value is the table's row, with nothing around it",
}


def check(identifier: str, message: Any) -> None:
    message_validator(identifier, json_schema_of(FORMATS[identifier]))(json.dumps(message).encode())


# --------------------------------------------------------------------------------------------------
# the schemas


def test_every_json_format_has_a_schema_and_every_schema_a_format() -> None:
    json_formats = {name for name in OURS if not name.endswith(("-avro-confluent", "-avro"))}
    assert json_formats - set(WITH_SCHEMA) == set(WITHOUT)
    assert {path.stem for path in (PACKAGE / "formats" / "json_schemas").iterdir()} == set(
        WITH_SCHEMA
    )


@pytest.mark.parametrize("identifier", WITH_SCHEMA)
def test_a_schema_is_one_of_its_draft_with_a_title_and_a_description(identifier: str) -> None:
    schema = json_schema_of(FORMATS[identifier])
    assert schema is not None
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DRAFT
    assert schema["$id"] == f"urn:cdc-formats:{identifier}"
    assert schema["title"]
    assert schema["description"]


def test_a_schema_is_read_out_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as shipped:
        for path in [*PACKAGE.rglob("*.py"), *(PACKAGE / "formats" / "json_schemas").iterdir()]:
            shipped.write(path, f"cdc_formats/{path.relative_to(PACKAGE)}")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'shipped.zip')!r})\n"
        "import cdc_formats; from cdc_formats import get_format\n"
        "from cdc_formats.message_format import json_schema_of\n"
        "print('shipped.zip' in cdc_formats.__file__, json_schema_of(type(get_format('ogg-json')))['$id'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.strip() == "True urn:cdc-formats:ogg-json", done.stderr


ROW = {"id": 1}
SOURCE = {"db": "d", "table": "t", "ts_ms": 1, "snapshot": "last", "connector": "mysql"}
VALID = [
    ("debezium-json", {"op": "c", "after": ROW}),
    (
        "debezium-json",
        {
            "op": "u",
            "before": None,
            "after": ROW,
            "source": {**SOURCE, "snapshot": True},
            "transaction": None,
        },
    ),
    (
        "debezium-json",
        {"op": "d", "before": ROW, "after": None, "source": SOURCE, "ts_ms": 1, "ts_us": 1000},
    ),
    ("debezium-json", {"op": "m", "message": {"prefix": "p", "content": "AA=="}, "source": SOURCE}),
    ("debezium-json", {"op": "t", "source": SOURCE}),
    ("debezium-json", {"schema": {"type": "struct"}, "payload": {"op": "c", "after": ROW}}),
    ("debezium-json", {"schema": None, "payload": None}),
    ("debezium-json", {"payload": {"op": "c", "after": ROW}}),
    ("debezium-json", {"ts_ms": 1}),
    (
        "debezium-json",
        {
            "status": "END",
            "id": "1:2",
            "event_count": 2,
            "data_collections": [{"data_collection": "t", "event_count": 2}],
        },
    ),
    ("debezium-json", {"ddl": "CREATE TABLE t", "databaseName": "d", "tableChanges": []}),
    ("debezium-flat-json", None),
    ("debezium-flat-json", {"id": 1, "__op": "c", "__deleted": "false"}),
    ("debezium-flat-json", {"schema": {"type": "struct"}, "payload": None}),
    (
        "debezium-mongodb-json",
        {"op": "d", "before": None, "after": None, "source": {"collection": "c"}},
    ),
    (
        "debezium-mongodb-json",
        {"op": "u", "updateDescription": {"updatedFields": "{}", "removedFields": ["a"]}},
    ),
    ("canal-json", {"type": "QUERY", "isDdl": False, "data": None}),
    ("canal-json", {"type": "ANYTHING", "isDdl": True}),
    (
        "canal-json",
        {
            "type": "UPDATE",
            "data": [ROW],
            "old": [{}],
            "pkNames": None,
            "sqlType": {"id": 4},
            "mysqlType": {"id": "int"},
        },
    ),
    ("ticdc-canal-json", {"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 1}}),
    (
        "ticdc-canal-json",
        {
            "type": "DELETE",
            "data": [ROW],
            "old": None,
            "_tidb": {"commitTs": 1, "onlyHandleKey": True},
        },
    ),
    (
        "maxwell-json",
        {"type": "bootstrap-start", "database": "d", "table": "t", "data": {}, "ts": 1},
    ),
    (
        "maxwell-json",
        {"type": "update", "data": ROW, "old": {}, "xid": 1, "commit": True, "push_ts": 1.5},
    ),
    ("maxwell-json", {"type": "update", "data": ROW}),
    (
        "maxwell-json",
        {"type": "table-create", "database": "d", "table": "t", "sql": "CREATE TABLE t", "def": {}},
    ),
    ("ogg-json", {"op_type": "T", "table": "o.t", "pos": "000"}),
    ("ogg-json", {"op_type": "U", "after": ROW, "primary_keys": ["id"], "tokens": {}}),
    (
        "dms-json",
        {"metadata": {"record-type": "control", "operation": "create-table"}, "control": {}},
    ),
    (
        "dms-json",
        {
            "data": ROW,
            "metadata": {"record-type": "data", "operation": "load", "transaction-id": 1},
        },
    ),
    ("changelog-json", {"op": "-U", "data": ROW}),
    (
        "mongodb-json",
        {"operationType": "insert", "fullDocument": ROW, "ns": {"db": "d", "coll": "c"}, "_id": {}},
    ),
    (
        "mongodb-json",
        {
            "operationType": "update",
            "fullDocument": None,
            "documentKey": {"_id": 1},
            "updateDescription": {"updatedFields": {"n": 1}, "removedFields": []},
        },
    ),
    ("mongodb-json", {"operationType": "delete", "documentKey": {"_id": 1}}),
    ("mongodb-json", {"operationType": "invalidate"}),
    ("cockroachdb-json", {"after": ROW, "updated": "1532377312562986715.0000000000"}),
    ("cockroachdb-json", {**ROW, "__crdb__": {"updated": "1532377312562986715.0000000000"}}),
    ("cockroachdb-json", {"after": None, "before": ROW, "key": [1], "topic": "products"}),
    ("cockroachdb-json", {"resolved": "1532377312562986715.0000000000"}),
    (
        "sqlserver-ces-json",
        {"type": "com.microsoft.SQL.CES.DML.V1", "operation": "INS", "data": "{}"},
    ),
    ("ticdc-simple-json", {"version": 1, "type": "UPDATE", "data": ROW, "old": ROW}),
    ("ticdc-simple-json", {"version": 1, "type": "DELETE", "old": ROW}),
    ("ticdc-simple-json", {"version": 1, "type": "WATERMARK", "commitTs": 1, "buildTs": 2}),
]
INVALID = [
    ("mongodb-json", {"operationType": "insert"}, "$", "missing `fullDocument`"),
    ("mongodb-json", {"operationType": "delete"}, "$", "missing `documentKey`"),
    (
        "mongodb-json",
        {"operationType": "update", "documentKey": {"_id": 1}},
        "$",
        "missing `updateDescription`",
    ),
    ("mongodb-json", {"operationType": "x"}, "$.operationType", "got `string` 'x'"),
    ("cockroachdb-json", {"after": [ROW]}, "$.after", "expected `object or null`, got `array`"),
    ("debezium-json", [], "$", "expected `object`, got `array`"),
    ("debezium-json", {"op": "x"}, "$.op", "expected c or d or m or r or t or u, got `string` 'x'"),
    ("debezium-json", {"op": None, "after": ROW}, "$.op", "expected `string`, got `null`"),
    ("debezium-json", {"after": ROW}, "$", "missing `op`"),
    ("debezium-json", {"op": "c", "after": None}, "$.after", "expected `object`, got `null`"),
    ("debezium-json", {"op": "c", "after": [ROW]}, "$.after", "got `array`"),
    ("debezium-json", {"op": "d", "after": ROW}, "$", "missing `before`"),
    (
        "debezium-json",
        {"op": "c", "after": ROW, "source": "x"},
        "$.source",
        "expected `object or null`, got `string`",
    ),
    (
        "debezium-json",
        {"op": "c", "after": ROW, "source": {"ts_ms": "1"}},
        "$.source.ts_ms",
        "expected `integer or null`, got `string`",
    ),
    ("debezium-json", {"op": "m"}, "$", "missing `message`"),
    ("debezium-json", {"schema": {}, "payload": {"op": "x"}}, "$.payload.op", "got `string` 'x'"),
    ("debezium-json", {"payload": {"op": "x"}}, "$.payload.op", "got `string` 'x'"),
    (
        "debezium-json",
        {"schema": {}, "payload": [1]},
        "$.payload",
        "expected `object`, got `array`",
    ),
    (
        "debezium-json",
        {"schema": [], "payload": None},
        "$.schema",
        "expected `object or null`, got `array`",
    ),
    (
        "debezium-json",
        {"status": "MIDDLE", "id": "1"},
        "$.status",
        "expected BEGIN or END, got `string` 'MIDDLE'",
    ),
    ("debezium-json", {"ddl": 1}, "$.ddl", "expected `string or null`, got `integer`"),
    (
        "debezium-flat-json",
        {"id": 1, "__deleted": "perhaps"},
        "$.__deleted",
        "got `string` 'perhaps'",
    ),
    (
        "debezium-flat-json",
        {"schema": {}, "payload": {"__op": "x"}},
        "$.payload.__op",
        "got `string` 'x'",
    ),
    ("debezium-flat-json", [ROW], "$", "expected `object or null`, got `array`"),
    (
        "debezium-mongodb-json",
        {"op": "c", "after": {"_id": 1}},
        "$.after",
        "expected `string or null`, got `object`",
    ),
    ("debezium-mongodb-json", {"op": "u", "after": None}, "$", "missing `updateDescription`"),
    ("debezium-mongodb-json", {"op": "t"}, "$.op", "got `string` 't'"),
    ("canal-json", {"data": [ROW]}, "$", "missing `type`"),
    ("canal-json", {"type": "ODD"}, "$.type", "got `string` 'ODD'"),
    (
        "canal-json",
        {"type": "INSERT", "data": ROW},
        "$.data",
        "expected `array or null`, got `object`",
    ),
    (
        "canal-json",
        {"type": "INSERT", "data": [1]},
        "$.data[0]",
        "expected `object`, got `integer`",
    ),
    ("canal-json", {"type": "UPDATE", "data": [ROW]}, "$", "missing `old`"),
    (
        "canal-json",
        {"type": "UPDATE", "data": [ROW], "old": [None]},
        "$.old[0]",
        "expected `object`, got `null`",
    ),
    (
        "canal-json",
        {"type": "INSERT", "data": [ROW], "sqlType": {"id": "int"}},
        "$.sqlType.id",
        "expected `integer or null`",
    ),
    (
        "ticdc-canal-json",
        {"type": "INSERT", "data": [ROW, ROW]},
        "$.data",
        "expected maxItems 1, got `array`",
    ),
    ("ticdc-canal-json", {"type": "QUERY", "data": None}, "$.type", "got `string` 'QUERY'"),
    (
        "sqlserver-ces-json",
        {"type": "com.microsoft.SQL.CES.DML.V2", "operation": "INS", "data": "{}"},
        "$.type",
        "got `string` 'com.microsoft.SQL.CES.DML.V2'",
    ),
    (
        "sqlserver-ces-json",
        {"type": "com.microsoft.SQL.CES.DML.V1", "operation": "INS", "data": {}},
        "$.data",
        "expected `string`, got `object`",
    ),
    ("ticdc-simple-json", {"version": 1, "type": "UPDATE", "data": ROW}, "$", "missing `old`"),
    ("ticdc-simple-json", {"version": 2, "type": "WATERMARK"}, "$.version", "got `integer` 2"),
    ("ticdc-simple-json", {"version": 1, "type": "x"}, "$.type", "got `string` 'x'"),
    ("maxwell-json", {"type": "insert"}, "$", "missing `data`"),
    (
        "maxwell-json",
        {"type": "update", "data": ROW, "old": [ROW]},
        "$.old",
        "expected `object or null`, got `array`",
    ),
    (
        "maxwell-json",
        {"type": "insert", "data": ROW, "ts": 1.5},
        "$.ts",
        "expected `integer or null`, got `number`",
    ),
    ("ogg-json", {"op_type": "I"}, "$", "missing `after`"),
    ("ogg-json", {"op_type": "D", "before": None}, "$.before", "expected `object`, got `null`"),
    ("ogg-json", {"op_type": 1}, "$.op_type", "expected D or I or T or U, got `integer` 1"),
    ("dms-json", {"data": ROW}, "$", "missing `metadata`"),
    ("dms-json", {"metadata": {"operation": "insert"}}, "$", "missing `data`"),
    (
        "dms-json",
        {"data": ROW, "metadata": {"operation": "upsert"}},
        "$.metadata.operation",
        "got `string` 'upsert'",
    ),
    ("changelog-json", {"op": "+I"}, "$", "missing `data`"),
    (
        "changelog-json",
        {"op": "I", "data": ROW},
        "$.op",
        "expected +I or -U or +U or -D, got `string` 'I'",
    ),
]


def test_every_schema_has_valid_and_invalid_examples() -> None:
    assert {name for name, _ in VALID} == {case[0] for case in INVALID} == set(WITH_SCHEMA)


@pytest.mark.parametrize(
    ("identifier", "message"),
    VALID,
    ids=[f"{name} {json.dumps(message)[:60]}" for name, message in VALID],
)
def test_an_envelope_is_valid(identifier: str, message: Any) -> None:
    check(identifier, message)


@pytest.mark.parametrize(
    ("identifier", "message", "path", "reason"),
    INVALID,
    ids=[f"{c[0]} {json.dumps(c[1])[:60]}" for c in INVALID],
)
def test_an_envelope_is_refused_at_its_path(
    identifier: str, message: Any, path: str, reason: str
) -> None:
    with pytest.raises(SchemaValidationError) as caught:
        check(identifier, message)
    assert caught.value.path == path
    assert reason in caught.value.reason


RECORDED = {
    "canal-mariadb-flat": "canal-json",
    "dbz19-postgres-json.inventory.all_types": "debezium-json",
    "dbz34-mariadb-json": "debezium-json",
    "dbz34-mariadb-json.inventory.customers": "debezium-json",
    "dbz34-postgres-json.message": "debezium-json",
    "__debezium-heartbeat.dbz34-mysql-strings": "debezium-json",
    "dbz34b-mariadb-upsertplain.inventory.all_types": "debezium-flat-json",
    "flink-ogg.tags": "ogg-json",
    "maxwell-mariadb": "maxwell-json",
    "maxwell-mariadb-ddl": "maxwell-json",
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_messages_are_valid(name: str) -> None:
    validate = message_validator(RECORDED[name], json_schema_of(FORMATS[RECORDED[name]]))
    count = 0
    for record in recorded(name, most=None)[::5]:
        if record.value is not None:
            validate(record.value)
            count += 1
    assert count


# --------------------------------------------------------------------------------------------------
# validate=True


def test_validate_refuses_before_decoding_and_only_on_request() -> None:
    value = b'{"op": "c", "after": {"id": 1}, "source": {"ts_ms": "late"}}'
    assert get_format("debezium-json").decoder("id INT").decode(None, value)
    decoder = get_format("debezium-json", validate="true").decoder("id INT", unique_key=["id"])
    for decode in (decoder.decode, decoder.upserts):
        with pytest.raises(SchemaValidationError) as caught:
            decode(None, value)
        assert str(caught.value) == (
            "[SCHEMA_VALIDATION] expected `integer or null`, got `string` - at `$.source.ts_ms` of the value; "
            'it begins b\'{"op": "c", "after": {"id": 1}, "source": {"ts_ms": "late"}}\''
        )
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_validate_accepts_valid_messages_and_tombstones() -> None:
    decoder = get_format("debezium-json", validate=True).decoder("id INT")
    assert [
        change.row for change in decoder.decode(None, bytearray(b'{"op": "c", "after": {"id": 1}}'))
    ] == [(1,)]
    assert decoder.decode(None, memoryview(b'{"ts_ms": 1}')) is Ignored.HEARTBEAT
    assert decoder.decode(None, None) is Ignored.TOMBSTONE
    flat = get_format("debezium-flat-json", validate=True).decoder("id INT", unique_key=["id"])
    assert [change.row for change in flat.decode(b'{"id": 1}', None)] == [(1,)]


def test_without_excerpt_an_error_shows_nothing_of_the_message() -> None:
    for value in (
        b'{"op": "Lovelace"}',
        b'{"status": "Lovelace", "id": "1"}',
        b'{"op": "c", "after": "Lovelace"}',
        b'"Lovelace"',
    ):
        shown, bare = (
            get_format("debezium-json", validate=True, error_excerpt=on).decoder("id INT")
            for on in (True, False)
        )
        with pytest.raises(SchemaValidationError, match="Lovelace"):
            shown.decode(None, value)
        with pytest.raises(SchemaValidationError) as caught:
            bare.decode(None, value)
        assert "Lovelace" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"op": "%s"}' % (b"x" * 1_000_000),
        b'{"op": 1%s}' % (b"0" * 18),
        b'{"op": "c", "after": [%s1]}' % (b"1," * 100_000),
        b'{"type": "INSERT", "data": [%s1]}' % (b"1," * 100_000),
        b'{"type": "INSERT", "data": [], "sqlType": {"%s": "x"}}' % (b"n" * 100_000),
    ],
)
def test_the_text_of_an_error_is_short(value: bytes) -> None:
    name = "canal-json" if b"type" in value else "debezium-json"
    with pytest.raises(SchemaValidationError) as caught:
        get_format(name, validate=True).decoder("id INT").decode(None, value)
    assert len(str(caught.value)) <= 1024


def test_text_that_is_not_json_or_too_deep_is_malformed() -> None:
    decoder = get_format("debezium-json", validate=True).decoder("id INT")
    for value in (
        b"{",
        b'{"op":"c","after":' + b"[" * 100_000,
        b'{"schema":{},"payload":' * 800 + b"null" + b"}" * 800,
    ):
        with pytest.raises(DecodeError):
            decoder.decode(None, value)
    with pytest.raises(MalformedMessageError, match="not JSON"):
        decoder.decode(None, b"{")


@dataclass(frozen=True, kw_only=True)
class Own(Format):
    """A custom format with its own JSON Schema."""

    identifier = "own-of-test"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["id"],
            "anyOf": [{"required": ["a"]}, {"properties": {"b": {"minimum": 5}}}],
        }

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert(read_object(value or b""))]


def test_a_custom_format_has_its_own_schema() -> None:
    decoder = Own(validate=True).decoder("id INT")
    assert [change.row for change in decoder.decode(None, b'{"id": 1}')] == [(1,)]
    with pytest.raises(SchemaValidationError, match="missing `id`"):
        decoder.decode(None, b'{"a": 1}')
    with pytest.raises(
        SchemaValidationError,
        match=r"expected minimum 5, got `integer` 1 - at `\$\.b` of the value",
    ):
        decoder.decode(None, b'{"id": 1, "b": 1}')


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            Vector(value=b'{"a": 1}', schema="id INT", expected=None),
            r"the JSON Schema of b'{\"a\": 1}' rejects it: .* missing `id`",
        ),
        (
            Reject(value=b'{"id": 1}', schema="id INT", error="UnknownOperationError", path="$.op"),
            "accepts it, but its operation is unknown",
        ),
    ],
)
def test_a_schema_that_does_not_fit_breaks_the_contract(case: Vector | Reject, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_json_schema(Own(), case)


class Wrong(Own):
    identifier = "wrong-of-test"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "thing"}


@pytest.mark.parametrize(
    ("format", "reason"),
    [
        (
            get_format("upsert-kafka", validate=True),
            "upsert-kafka has no JSON Schema: remove validate=True",
        ),
        (Wrong(validate=True), "the JSON Schema of wrong-of-test is invalid: 'thing' is not valid"),
    ],
)
def test_without_a_usable_schema_the_decoder_is_refused(format: Format, reason: str) -> None:
    with pytest.raises(FormatOptionError) as caught:
        format.decoder("id INT", unique_key=["id"])
    assert reason in str(caught.value)


def test_without_the_package_the_error_includes_the_install_command() -> None:
    script = (
        "import sys; sys.modules['jsonschema'] = None\nfrom cdc_formats import get_format; from "
        "cdc_formats.errors import MissingDependencyError\nget_format('ogg-json').decoder('id "
        "INT')\ntry: get_format('ogg-json', validate=True).decoder('id INT')\nexcept "
        "MissingDependencyError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
    )
    expected = (
        "[MISSING_DEPENDENCY] validate=True needs jsonschema: pip install "
        "'pyspark-kafka-changelog[validate]'"
    )
    assert done.stdout.strip() == expected, done.stderr
