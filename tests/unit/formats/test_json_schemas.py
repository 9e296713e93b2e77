"""The JSON Schemas of envelopes, and `validate=True`."""

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cdc_formats import Event, Format, get_format, read_object
from cdc_formats.errors import (
    DecodeError,
    SchemaValidationError,
)
from cdc_formats.message_format import json_schema_of, message_validator
from cdc_formats.testing import Reject, Vector, check_json_schema
from tests.support.error_texts import error_test, text_test
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
    Draft202012Validator.check_schema(schema)
    draft = "https://json-schema.org/draft/2020-12/schema"
    assert (schema["$schema"], schema["$id"]) == (draft, f"urn:cdc-formats:{identifier}")
    assert all(schema[name] for name in ("title", "description"))


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
    (
        "sqlserver-ces-json",
        {"type": "com.microsoft.SQL.CES.DML.V2", "operation": "INS", "data": "{}"},
    ),
    (
        "sqlserver-ces-json",
        {"type": "com.microsoft.SQL.CES.DML.V1", "operation": "INS", "data": {}},
    ),
    ("ticdc-simple-json", {"version": 1, "type": "UPDATE", "data": ROW}),
    ("ticdc-simple-json", {"version": 2, "type": "WATERMARK"}),
    ("ticdc-simple-json", {"version": 1, "type": "x"}),
    ("mongodb-json", {"operationType": "insert"}),
    ("mongodb-json", {"operationType": "delete"}),
    ("mongodb-json", {"operationType": "update", "documentKey": {"_id": 1}}),
    ("mongodb-json", {"operationType": "x"}),
    ("cockroachdb-json", {"after": [ROW]}),
    ("debezium-json", []),
    ("debezium-json", {"op": "x"}),
    ("debezium-json", {"op": None, "after": ROW}),
    ("debezium-json", {"after": ROW}),
    ("debezium-json", {"op": "c", "after": None}),
    ("debezium-json", {"op": "c", "after": [ROW]}),
    ("debezium-json", {"op": "d", "after": ROW}),
    ("debezium-json", {"op": "c", "after": ROW, "source": "x"}),
    ("debezium-json", {"op": "c", "after": ROW, "source": {"ts_ms": "1"}}),
    ("debezium-json", {"op": "m"}),
    ("debezium-json", {"schema": {}, "payload": {"op": "x"}}),
    ("debezium-json", {"payload": {"op": "x"}}),
    ("debezium-json", {"schema": {}, "payload": [1]}),
    ("debezium-json", {"schema": [], "payload": None}),
    ("debezium-json", {"status": "MIDDLE", "id": "1"}),
    ("debezium-json", {"ddl": 1}),
    ("debezium-flat-json", {"id": 1, "__deleted": "perhaps"}),
    ("debezium-flat-json", {"schema": {}, "payload": {"__op": "x"}}),
    ("debezium-flat-json", [ROW]),
    ("debezium-mongodb-json", {"op": "c", "after": {"_id": 1}}),
    ("debezium-mongodb-json", {"op": "u", "after": None}),
    ("debezium-mongodb-json", {"op": "t"}),
    ("canal-json", {"data": [ROW]}),
    ("canal-json", {"type": "ODD"}),
    ("canal-json", {"type": "INSERT", "data": ROW}),
    ("canal-json", {"type": "INSERT", "data": [1]}),
    ("canal-json", {"type": "UPDATE", "data": [ROW]}),
    ("canal-json", {"type": "UPDATE", "data": [ROW], "old": [None]}),
    ("canal-json", {"type": "INSERT", "data": [ROW], "sqlType": {"id": "int"}}),
    ("ticdc-canal-json", {"type": "INSERT", "data": [ROW, ROW]}),
    ("ticdc-canal-json", {"type": "QUERY", "data": None}),
    ("maxwell-json", {"type": "insert"}),
    ("maxwell-json", {"type": "update", "data": ROW, "old": [ROW]}),
    ("maxwell-json", {"type": "insert", "data": ROW, "ts": 1.5}),
    ("ogg-json", {"op_type": "I"}),
    ("ogg-json", {"op_type": "D", "before": None}),
    ("ogg-json", {"op_type": 1}),
    ("dms-json", {"data": ROW}),
    ("dms-json", {"metadata": {"operation": "insert"}}),
    ("dms-json", {"data": ROW, "metadata": {"operation": "upsert"}}),
    ("changelog-json", {"op": "+I"}),
    ("changelog-json", {"op": "I", "data": ROW}),
]


def test_every_schema_has_valid_and_invalid_examples() -> None:
    assert {name for name, _ in VALID} == {name for name, _ in INVALID} == set(WITH_SCHEMA)


@pytest.mark.parametrize(
    ("identifier", "message"),
    VALID,
    ids=[f"{name} {json.dumps(message)[:60]}" for name, message in VALID],
)
def test_an_envelope_is_valid(identifier: str, message: Any) -> None:
    check(identifier, message)


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


class Wrong(Own):
    identifier = "wrong-of-test"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {"type": "thing"}


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


@pytest.mark.parametrize(
    "value",
    [
        b'{"op":"c","after":' + b"[" * 100_000,
        b'{"schema":{},"payload":' * 800 + b"null" + b"}" * 800,
    ],
    ids=["an open array", "nested payloads"],
)
def test_text_that_is_too_deep_is_malformed(value: bytes) -> None:
    with pytest.raises(DecodeError):
        get_format("debezium-json", validate=True).decoder("id INT").decode(None, value)


test_texts = text_test(
    __file__,
    {"a custom format": lambda: Own(validate=True).decoder("id INT").decode(None, b'{"id": 1}')},
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"{name}: {json.dumps(message)}": partial(check, name, message)
            for name, message in INVALID
        },
        **{
            f"a custom format: {value.decode()}": partial(
                Own(validate=True).decoder("id INT").decode, None, value
            )
            for value in (b'{"a": 1}', b'{"id": 1, "b": 1}')
        },
        "the contract: a schema that refuses a vector": lambda: check_json_schema(
            Own(), Vector(value=b'{"a": 1}', schema="id INT", expected=None)
        ),
        "the contract: a schema that accepts an unknown operation": lambda: check_json_schema(
            Own(),
            Reject(value=b'{"id": 1}', schema="id INT", error="UnknownOperationError", path="$.op"),
        ),
        "a format without a schema": lambda: get_format("upsert-kafka", validate=True).decoder(
            "id INT", unique_key=["id"]
        ),
        "a schema of an unknown type": lambda: Wrong(validate=True).decoder("id INT"),
    },
)
