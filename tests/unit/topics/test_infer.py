"""Schema inference from declarations and values, and on recorded topics against source tables."""

import json
import random
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema

from cdc_formats import Event, Format, columns, read_object
from cdc_formats.avro.reader import AvroSchema
from cdc_formats.avro.schema_registry import Registry
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    FormatOptionError,
    InferenceError,
)
from cdc_formats.registry import get_format
from cdc_formats.testing import damaged
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.inference import InferredSchema, infer_schema, infer_subject
from cdc_formats.topics.inference.source_types import (
    avro_columns,
    canal_type,
    connect_columns,
    jdbc_type,
)
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.connect_schema import CONNECT
from tests.support.error_texts import error_test
from tests.support.paths import TOPICS
from tests.support.replay import producers, truth
from tests.support.samples import recorded, sample
from tests.support.scenarios import FORMATS, SCENARIOS


def infer(
    messages: list[dict],
    format: str = "changelog-json",
    keys: list[bytes | None] | None = None,
    **options,
) -> InferredSchema:
    values = [json.dumps(message).encode() for message in messages]
    return infer_schema(
        list(zip(keys or [None] * len(values), values, strict=True)), format=format, **options
    )


def of_values(*values: object, format: str = "changelog-json") -> InferredSchema:
    """Infer the schema of a table with one column that has these values."""
    if format == "debezium-json":
        return infer([{"op": "c", "after": {"id": True, "x": value}} for value in values], format)
    return infer([{"op": "+I", "data": {"id": True, "x": value}} for value in values], format)


def type_of(*values: object, format: str = "changelog-json") -> str:
    return str(of_values(*values, format=format).columns[1].type)


def raw(text: str, format: str = "changelog-json") -> str:
    """Return the type of a column whose values are JSON text."""
    values = [b'{"op":"+I","data":{"x":%s}}' % part.encode() for part in text.split()]
    if format == "debezium-json":
        values = [b'{"op":"c","after":{"x":%s}}' % part.encode() for part in text.split()]
    return str(infer_schema([(None, value) for value in values], format=format).columns[0].type)


# --------------------------------------------------------------------------------------------------
# values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true false null", "BOOLEAN"),
        ("1 -5 null", "BIGINT"),
        ("-9223372036854775808 9223372036854775807", "BIGINT"),
        ("1 9223372036854775808", "DECIMAL(20,0)"),
        ("-1 9223372036854775808", "DECIMAL(38,0)"),
        ("1.5", "DECIMAL(38,18)"),
        ("1.50 7", "DECIMAL(38,18)"),
        ("12345678901234567890.50", "DECIMAL(38,18)"),
        ("123456789012345678901.50", "DECIMAL(38,9)"),
        ("12345678901234567890123456789012345678.0", "DOUBLE"),
        ("1234567890123456789012345678901234567.5", "DECIMAL(38,1)"),
        ("1.5 2.25", "DECIMAL(38,18)"),
        ("0E-18 1.000000000000000001", "DECIMAL(38,18)"),
        ("0.0000000000000000001 1.5", "DECIMAL(38,28)"),
        ("123456789012345678901234567890.123456789", "DOUBLE"),
        ("1.5E10 2.5", "DOUBLE"),
        ("1e400", "DOUBLE"),
        ('1.5 "NaN" "-Infinity"', "DOUBLE"),
        ('"NaN"', "DOUBLE"),
        ('1 "x"', "STRING"),
        ("true 1", "STRING"),
        ("null null", "STRING"),
        ('{"a":1} [1]', "STRING"),
        ("[1,2] [] [null]", "ARRAY<BIGINT>"),
        ("[]", "ARRAY<STRING>"),
        ("[[1.5]]", "ARRAY<ARRAY<DECIMAL(38,18)>>"),
        ('[1,"a"]', "ARRAY<STRING>"),
        ('{"a":1,"b":"x"} {"a":2}', "STRUCT<a: BIGINT, b: STRING>"),
        ('{"a":1} {"b":2}', "MAP<STRING, BIGINT>"),
        ('{"a":1} {"b":"x"}', "STRUCT<a: BIGINT, b: STRING>"),
        ('{"a":1} {"b":[1]} {"b":"x"}', "STRUCT<a: BIGINT, b: STRING>"),
        ("{}", "MAP<STRING, STRING>"),
        ('{"":1}', "STRING"),
        ('{"a`b":1}', "STRUCT<`a``b`: BIGINT>"),
    ],
)
def test_type_of_values(text: str, expected: str) -> None:
    assert raw(text) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2025-01-02", None, "1969-12-31"], "DATE"),
        (["2025-01-02", "2025-02-30"], "STRING"),
        (["0000-00-00"], "STRING"),
        (["20250102"], "STRING"),
        (["2025-01-02 03:04:05", "2025-01-02T03:04:05.123456"], "TIMESTAMP_NTZ"),
        (["2025-01-02T03:04:05Z", "2025-01-02 03:04:05.5+01:00"], "TIMESTAMP"),
        (["2025-01-02T03:04:05Z", "2025-01-02T03:04:05"], "STRING"),
        (["2025-01-02", "2025-01-02 03:04:05"], "STRING"),
        (["03:04:05"], "STRING"),
        (["2025-01-02", ""], "STRING"),
        (["1.50"], "STRING"),
        ([""], "STRING"),
    ],
)
def test_text_is_a_time_only_if_every_value_is_iso_text(values: list, expected: str) -> None:
    assert type_of(*values) == expected


def test_units_are_not_guessed_and_a_note_names_the_declaration() -> None:
    inferred = of_values(1735787045123, 1735787045124, format="debezium-json")
    assert str(inferred.columns[1].type) == "BIGINT"
    (note,) = inferred.evidence[1].notes
    assert (
        "its unit is not in the message: if it is one, declare it, and time_precision_mode" in note
    )
    assert f"note on x: {note}" in str(inferred)
    assert of_values(1735787045123).evidence[1].notes == ()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            ["DEQ=", "ai8="],
            (
                "if it is a DECIMAL, declare it, and decimal_handling_mode='precise' (its scale is "
                "not in the message)"
            ),
        ),
        (["9.50", "-1"], "if it is a DECIMAL, declare it, and decimal_handling_mode='string'"),
        ([None], "only nulls were seen"),
        ([1, "x"], "values of several kinds"),
    ],
)
def test_a_doubtful_column_is_noted(values: list, expected: str) -> None:
    inferred = of_values(*values, format="debezium-json")
    assert str(inferred.columns[1].type) == "STRING"
    assert any(expected in note for note in inferred.evidence[1].notes)


def test_text_that_could_be_base64_by_chance_is_not_noted() -> None:
    assert of_values("bike", "scooters", format="debezium-json").evidence[1].notes == ()


def test_the_placeholder_is_not_counted_as_a_value() -> None:
    mark = "__debezium_unavailable_value"
    inferred = of_values(
        [1, 2], [mark], {mark: mark}, mark.encode().hex(), None, format="debezium-json"
    )
    assert str(inferred.columns[1].type) == "ARRAY<BIGINT>"
    assert inferred.evidence[1].seen == {"array": 1, "null": 1}


def test_columns_have_the_order_of_the_fullest_row_and_those_that_are_missing_are_nullable() -> (
    None
):
    rows = [{"id": 1, "old": 1}, {"id": 2, "new": "x", "more": 1, "old": 2}, {"more": 3, "id": 3}]
    inferred = infer(
        [{"type": "insert", "data": row, "primary_key_columns": ["id"]} for row in rows],
        "maxwell-json",
    )
    assert inferred.ddl == "id BIGINT NOT NULL, new STRING, more BIGINT, old BIGINT"
    assert inferred.evidence[3].notes == ("not in 1 of 3 rows",)


def test_examples_are_shown_on_request_and_shortened() -> None:
    assert of_values("secret").evidence[1].examples == ()
    messages = [{"op": "+I", "data": {"x": value}} for value in ("a", None, "a", "b" * 100, "c")]
    assert infer(messages, examples=2).evidence[0].examples == ("a", "b" * 40 + "...")
    assert "secret" not in str(of_values("secret"))


def test_types_are_read_from_mongodb_documents() -> None:
    document = {
        "_id": {"$oid": "596e275826f08b2730779e1f"},
        "price": {"$numberDecimal": "1.50"},
        "round": {"$numberDecimal": "1E+1"},
        "odd": {"$numberDecimal": "NaN"},
        "ratio": 0.5,
        "count": {"$numberLong": "5"},
        "at": {"$date": {"$numberLong": "1589362330904"}},
        "photo": {"$binary": "AA==", "$type": "00"},
        "parts": [{"n": 1, "of": {"$undefined": True}}],
    }
    inferred = infer([{"op": "c", "after": json.dumps(document)}], "debezium-mongodb-json")
    assert inferred.ddl == (
        "_id STRING NOT NULL, price DECIMAL(38,18), round DECIMAL(38,18), odd DOUBLE, ratio "
        "DOUBLE, count BIGINT, at TIMESTAMP, photo BINARY, parts ARRAY<STRUCT<n: BIGINT, of: "
        "STRING>>"
    )
    assert inferred.primary_key == ("_id",)


# --------------------------------------------------------------------------------------------------
# declarations


def block(
    *fields: dict, op: str = "c", key: str = "id", connector: str = "postgresql", **row
) -> tuple[bytes, bytes]:
    image = {"type": "struct", "fields": list(fields), "optional": True}
    schema = {
        "type": "struct",
        "fields": [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {"type": "string", "field": "op"},
        ],
    }
    payload = {
        "before": None,
        "after": row,
        "op": op,
        "source": {"db": "d", "table": "t", "connector": connector},
    }
    key_schema = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": key}]}
    return (
        json.dumps({"schema": key_schema, "payload": {key: 1}}).encode(),
        json.dumps({"schema": schema, "payload": payload}).encode(),
    )


ID = {"type": "int32", "optional": False, "field": "id"}


def test_a_schema_block_is_exact() -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "schema-block")
    inferred = infer_schema(scenario.records("debezium-json"), format="debezium-json")
    assert inferred.ddl == (
        "id INT NOT NULL, price DECIMAL(10,3), rounded DECIMAL(38,4), any_scale STRUCT<scale: INT "
        "NOT NULL, value: BINARY NOT NULL>, prices ARRAY<DECIMAL(38,1)>, day DATE, connect_day "
        "DATE, iso_day DATE, time_ms TIME(3), time_us TIME(6), time_ns TIME(6), connect_time "
        "TIME(3), iso_time TIME, at_ms TIMESTAMP_NTZ(3), at_us TIMESTAMP_NTZ(6), at_ns "
        "TIMESTAMP_NTZ(9), connect_at TIMESTAMP_NTZ(3), iso_at TIMESTAMP_NTZ, zoned TIMESTAMP, "
        "zoned_time STRING, lasts INTERVAL DAY TO SECOND, unsigned BIGINT, data BINARY, document "
        "STRING, number DOUBLE"
    )
    assert inferred.primary_key == ("id",)
    assert inferred.format_options == {
        "schema_include": True,
        "decimal_handling_mode": "precise",
        "time_precision_mode": "connect",
    }
    assert {each.certainty for each in inferred.evidence} == {"schema block"}
    assert inferred.evidence[1].source_type == "org.apache.kafka.connect.data.Decimal"
    assert inferred.notes == ()


def test_a_guessed_decimal_has_room_and_a_note_names_the_declaration() -> None:
    inferred = of_values(1.5)
    decoder = get_format("changelog-json").decoder(inferred.columns)
    assert decoder.decode(None, b'{"op":"+I","data":{"id":true,"x":1.25}}')[0].row == (
        True,
        f"1.25{'0' * 16}",
    )
    (note,) = inferred.evidence[1].notes
    assert note == (
        "a number with a fraction, and a value with more digits than this type is an error: "
        "declare the source's DECIMAL(p,s), or DOUBLE"
    )
    assert f"note on x: {note}" in str(inferred)
    assert of_values([1.5]).evidence[1].notes == of_values({"a": 1.5}).evidence[1].notes == (note,)
    assert of_values(1, 2**70).evidence[1].notes == ()


def test_a_fraction_of_debeziums_is_a_double_unless_it_has_more_digits() -> None:
    inferred = of_values(1.5, 2.25, format="debezium-json")
    assert str(inferred.columns[1].type) == "DOUBLE"
    assert inferred.evidence[1].notes == (
        (
            "a number with a fraction: if the source's column is a DECIMAL, declare it, since a "
            "DOUBLE holds 15 digits"
        ),
    )
    assert raw("1.5 12345678901234.5678", "debezium-json") == "DECIMAL(38,18)"


def test_negative_mysql_keys_get_a_note_on_unsigned_types() -> None:
    number = {"type": "int64", "optional": False, "field": "id"}
    for connector in ("mysql", "mariadb", ""):
        inferred = infer_schema([block(number, id=-1, connector=connector)], format="debezium-json")
        assert inferred.ddl == "id BIGINT NOT NULL"
        (note,) = inferred.evidence[0].notes
        assert note == (
            "it has negative numbers: if the source's column is an unsigned BIGINT, declare "
            "DECIMAL(20,0), and bigint_unsigned_handling_mode='long'"
        )
        assert "bigint_unsigned_handling_mode" not in inferred.format_options
    for message in (block(number, id=-1), block(number, id=1, connector="mysql")):
        assert infer_schema([message], format="debezium-json").evidence[0].notes == ()


@pytest.mark.parametrize(
    ("connector", "noted"),
    [("mysql", True), ("mariadb", True), ("postgresql", False), ("sqlserver", False)],
)
def test_numbers_and_base64_get_a_note_on_unsigned_types_if_the_source_has_them(
    connector: str, noted: bool
) -> None:
    flat = infer(
        [{"n": -1, "p": "AP//////////", "__op": "c", "__connector": connector}],
        "debezium-flat-json",
        [b'{"n": -1}'],
    )
    source = {"connector": connector}
    bare = infer(
        [{"op": "c", "after": {"n": -1, "p": "AP//////////"}, "source": source}],
        "debezium-json",
        [b'{"n": -1}'],
    )
    for inferred in (flat, bare):
        assert inferred.ddl == "n BIGINT NOT NULL, p STRING"
        long, precise = (" ".join(each.notes) for each in inferred.evidence)
        assert ("bigint_unsigned_handling_mode='long'" in long) is noted
        assert ("bigint_unsigned_handling_mode='precise'" in precise) is noted
        assert "decimal_handling_mode='precise'" in precise
    long_text = infer(
        [{"op": "c", "after": {"n": 1, "p": "AP//////////AP//////////"}, "source": source}],
        "debezium-json",
    )
    assert "bigint_unsigned_handling_mode" not in " ".join(long_text.evidence[1].notes)


def test_a_decimal_without_precision_may_be_an_unsigned_bigint() -> None:
    number = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "0"},
        "field": "n",
    }
    inferred = infer_schema(
        [block(ID, number, id=1, n="AP//////////", connector="mysql")], format="debezium-json"
    )
    assert str(inferred.columns[1].type) == "DECIMAL(38,0)"
    assert (
        "an unsigned BIGINT (bigint.unsigned.handling.mode=precise) is DECIMAL(20,0)"
        in inferred.evidence[1].notes[0]
    )


def test_mysql_times_are_intervals_and_the_source_type_identifies_an_unsigned_bigint() -> None:
    time = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "field": "t"}
    parameters = {"__debezium.source.column.type": "BIGINT UNSIGNED"}
    number = {"type": "int64", "optional": True, "parameters": parameters, "field": "n"}
    inferred = infer_schema(
        [block(ID, time, number, connector="mysql", id=1, t=-1, n=-1)], format="debezium-json"
    )
    assert inferred.ddl == "id INT NOT NULL, t INTERVAL DAY TO SECOND, n DECIMAL(20,0)"
    assert inferred.format_options["bigint_unsigned_handling_mode"] == "long"
    assert inferred.notes == ()


def test_a_schema_that_changes_is_widened_and_a_new_column_is_nullable() -> None:
    narrow = {"type": "int32", "optional": False, "field": "n"}
    wide, added = (
        {**narrow, "type": "int64"},
        {"type": "string", "optional": False, "field": "added"},
    )
    inferred = infer_schema(
        [block(ID, narrow, id=1, n=1), block(ID, wide, added, id=2, n=2, added="x")],
        format="debezium-json",
    )
    assert inferred.ddl == "id INT NOT NULL, n BIGINT NOT NULL, added STRING"
    assert inferred.evidence[1].notes == ("its type changes in the sample: the wider one is used",)


def test_some_bare_messages_leave_schema_include_unset() -> None:
    bare = (b'{"id": 1}', b'{"op": "c", "after": {"id": 1}}')
    assert (
        "schema_include"
        not in infer_schema([block(ID, id=1), bare], format="debezium-json").format_options
    )


def test_a_schema_block_of_only_the_images_describes_the_row() -> None:
    image = {
        "type": "struct",
        "fields": [
            {**ID, "optional": False},
            {"field": "name", "type": "string", "optional": True},
        ],
    }
    schema = {
        "type": "struct",
        "fields": [{**image, "field": name, "optional": True} for name in ("before", "after")],
    }
    payload = {
        "before": None,
        "after": {"id": 1, "name": "bolt"},
        "op": "c",
        "source": {"db": "shop", "table": "parts"},
    }
    inferred = infer([{"schema": schema, "payload": payload}], "debezium-json")
    assert (inferred.ddl, inferred.notes) == ("id INT NOT NULL, name STRING", ())
    assert {each.certainty for each in inferred.evidence} == {"schema block"}
    row = {
        "schema": {**schema, "fields": [{"field": "after", "type": "string"}]},
        "payload": {"after": "noon"},
    }
    assert infer([row], "debezium-flat-json", [b'{"after": "noon"}']).ddl == "after STRING NOT NULL"


def test_flattened_rows_without_keys_are_keyless_and_added_fields_are_not_columns() -> None:
    row = {"id": 1, "__op": "c", "__deleted": "false", "__table": "t", "__db": "d"}
    inferred = infer([row], "debezium-flat-json")
    assert (inferred.ddl, inferred.primary_key, inferred.tables) == ("id BIGINT", (), ("d.t",))
    assert inferred.format_options == {"keyless": True}
    assert inferred.notes == ()
    assert infer([row], "debezium-flat-json", [b'{"id": 1}']).format_options == {}


def test_deletes_are_enough_where_their_messages_declare_the_columns() -> None:
    key, value = block(
        ID, {"field": "name", "type": "string", "optional": True}, op="d", id=1, name=None
    )
    message = json.loads(value)
    message["payload"] |= {"before": {"id": 1, "name": ""}, "after": None}
    inferred = infer_schema([(key, json.dumps(message).encode())], format="debezium-json")
    assert (inferred.ddl, inferred.primary_key, inferred.tables) == (
        "id INT NOT NULL, name STRING",
        ("id",),
        ("d.t",),
    )
    assert inferred.notes == (
        "the sample has only deletes: the columns are those that its messages declare",
    )
    delete = {**canal({"id": "int", "name": "text"}, {"id": "1", "name": "a"}), "type": "DELETE"}
    assert infer([delete], "canal-json").ddl == "id INT NOT NULL, name STRING"
    with pytest.raises(InferenceError, match="has no row of canal-json"):
        infer([{**delete, "mysqlType": None}], "canal-json")
    other = {**canal({"id": "int"}, {"id": "1"}), "table": "u"}
    with pytest.raises(
        InferenceError, match=r"several tables: d\.t \(1 changes\), d\.u \(1 changes\)"
    ):
        infer([delete, other], "canal-json")


def test_columns_that_differ_by_case_alone_are_no_fault_of_the_producer() -> None:
    messages = [canal(None, {"id": "1", "K1": "x"}), canal(None, {"id": "2", "k1": "y"})]
    inferred = infer(messages, "canal-json")
    assert inferred.same_but_for_case == ("k1", "K1")
    (note,) = inferred.notes
    assert note.startswith("columns k1 and K1 differ by case alone, as after a column was renamed")
    (table,) = profile_records(
        sample(*((None, json.dumps(message).encode()) for message in messages))
    ).tables
    assert (table.schema, table.reason) == (None, note)
    assert infer(messages[:1], "canal-json").notes == ()


def canal(mysql: dict | None, row: dict, **more) -> dict:
    return {
        "type": "INSERT",
        "database": "d",
        "table": "t",
        "data": [row],
        "mysqlType": mysql,
        "pkNames": ["id"],
        **more,
    }


def test_canal_types_are_mysqls() -> None:
    types = {
        "id": "int(10) unsigned",
        "label": "ENUM('a','b')",
        "named": "enum('a','b')",
        "at": "timestamp(3)",
        "bare": "decimal",
        "odd": "polygonish",
    }
    row = {
        "id": "1",
        "label": "2",
        "named": "b",
        "at": "2025-01-02 03:04:05.123",
        "bare": "1.5",
        "odd": "x",
    }
    inferred = infer([canal(types, row)], "canal-json")
    assert inferred.ddl == (
        "id BIGINT NOT NULL, label INT, named STRING, at TIMESTAMP_NTZ(3), bare DECIMAL(38,"
        "18), odd STRING"
    )
    assert [each.certainty for each in inferred.evidence] == [*["mysqlType"] * 5, "values"]
    assert "set time_zone to read it as TIMESTAMP" in inferred.evidence[3].notes[0]
    assert (
        str(infer([canal(types, row)], "canal-json", time_zone="UTC").columns[3].type)
        == "TIMESTAMP(3)"
    )


@pytest.mark.parametrize(
    ("mysql", "expected"),
    [
        ("point", "BINARY"),
        ("LINESTRING", "BINARY"),
        ("polygon", "BINARY"),
        ("multipoint", "BINARY"),
        ("multilinestring", "BINARY"),
        ("multipolygon", "BINARY"),
        ("geometrycollection", "BINARY"),
        ("geomcollection", "BINARY"),
        ("geometry", "BINARY"),
        ("SERIAL", "DECIMAL(20,0)"),
        ("INT8 unsigned", "DECIMAL(20,0)"),
        ("int2(4)", "SMALLINT"),
        ("float8", "DOUBLE"),
    ],
)
def test_canal_types_of_statements(mysql: str, expected: str) -> None:
    inferred = infer([canal({"x": mysql}, {"x": "1"})], "canal-json")
    assert (str(inferred.columns[0].type), inferred.evidence[0].certainty) == (
        expected,
        "mysqlType",
    )


def test_canal_without_mysql_types_has_those_of_jdbc() -> None:
    message = canal(
        None,
        {"id": "1", "at": "2025-01-02 03:04:05", "price": "1.5"},
        sqlType={"id": 4, "at": 93, "price": 3},
    )
    inferred = infer([message], "canal-json")
    assert inferred.ddl == "id BIGINT NOT NULL, at TIMESTAMP_NTZ, price DECIMAL(38,18)"
    assert inferred.evidence[0].certainty == "sqlType"


@pytest.mark.parametrize(
    ("key", "more", "expected"),
    [
        (b'{"database":"d","table":"t","pk.id":1,"pk.part":"x"}', {}, ("Id", "part")),
        (b'["d","t",[{"Id":1},{"part":"x"}]]', {}, ("Id", "part")),
        (b'{"database":"d","table":"t","_uuid":"x"}', {}, ()),
        (b"any text", {}, ()),
        (None, {"primary_key_columns": ["Id"]}, ("Id",)),
        (None, {"primary_key_columns": []}, ()),
    ],
)
def test_maxwell_primary_key(key: bytes | None, more: dict, expected: tuple) -> None:
    message = {
        "type": "insert",
        "database": "d",
        "table": "t",
        "data": {"Id": 1, "part": "x"},
        **more,
    }
    assert infer([message], "maxwell-json", [key]).primary_key == expected


def test_keys_of_debezium_goldengate_and_upserts() -> None:
    assert infer(
        [{"op": "c", "after": {"id": 1}}], "debezium-json", [b'{"id": 1}']
    ).primary_key == ("id",)
    assert infer(
        [{"op_type": "I", "after": {"ID": 1}, "primary_keys": ["ID"]}], "ogg-json"
    ).primary_key == ("ID",)
    options = {"value_fields_include": "EXCEPT_KEY", "key_fields_prefix": "k_"}
    inferred = infer([{"v": 1}], "upsert-kafka", [b'{"id": 1}'], **options)
    assert (inferred.ddl, inferred.primary_key) == ("k_id BIGINT NOT NULL, v BIGINT", ("k_id",))
    assert inferred.format_options == options
    assert inferred.notes == ()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([None, None], "the sample does not name one"),
        ([b'{"id": 1}', b'{"n": 1}'], r"it changes in the sample, (id) and (n)"),
        ([b'{"other": 1}', None], "the key has other, which no row has"),
        ([b"7", b"no key"], "the sample does not name one"),
    ],
)
def test_an_ambiguous_primary_key_is_none(keys: list, reason: str) -> None:
    inferred = infer([{"op": "c", "after": {"id": 1, "n": 1}}] * 2, "debezium-json", keys)
    assert inferred.primary_key == ()
    assert reason in inferred.primary_key_reason
    assert inferred.ddl == "id BIGINT, n BIGINT"


def test_deletes_are_not_evidence_because_their_rows_may_be_fillers() -> None:
    inferred = infer(
        [
            {"op": "c", "after": {"id": 1, "t": "2025-01-02"}},
            {"op": "d", "before": {"id": 1, "t": ""}},
        ],
        "debezium-json",
    )
    assert inferred.ddl == "id BIGINT, t DATE"
    assert inferred.rows == 1


# --------------------------------------------------------------------------------------------------
# the sample


def test_several_tables_are_an_error_that_lists_them_unless_a_filter_selects_them() -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    messages = [
        {"type": "insert", "database": "d", "table": table, "data": {"id": number}}
        for table, number in rows
    ]
    with pytest.raises(
        InferenceError,
        match=r"several tables: d\.a \(2 changes\), d\.b \(1 changes\); choose one with table_include",
    ):
        infer(messages, "maxwell-json")
    one = infer(messages, "maxwell-json", table_include="a")
    assert (one.rows, one.tables, one.ignored) == (2, ("d.a",), {"OTHER_TABLE": 1})
    both = infer(messages, "maxwell-json", table_include="a|b")
    assert both.rows == 3
    assert both.notes == ("the filters select 2 tables, which are read as one",)


def test_records_that_cannot_be_read_are_noted_without_their_data() -> None:
    inferred = infer_schema(
        [(None, b'{"op": "+I", "data": {"id": 1}}'), (None, b'{"op": "secret"}')],
        format="changelog-json",
    )
    assert inferred.ddl == "id BIGINT"
    assert (
        "1 records could not be read, the first: [UNKNOWN_OPERATION] op is none of"
        in inferred.notes[0]
    )
    assert not any("secret" in note for note in inferred.notes)


def test_records_that_fail_with_the_inferred_schema_are_noted() -> None:
    micro = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "field": "t"}
    inferred = infer_schema([block(ID, micro, id=1, t=86_400_000_000)], format="debezium-json")
    (note,) = inferred.notes
    assert note.startswith(
        "1 records of the sample do not decode with this schema, the first: [TYPE_CONVERSION] "
        "expected `TIME(6)`"
    )
    assert "86400000000" not in note


def test_json_nulls_of_an_upsert_topic_are_noted() -> None:
    inferred = infer_schema(
        [(b'{"id": 1}', b'{"id": 1}'), (b'{"id": 1}', b"null")], format="upsert-kafka"
    )
    assert "1 values are JSON's null" in inferred.notes[0]
    inferred = infer_schema(
        [(b'{"id": 1}', b'{"id": 1}'), (b'{"id": 1}', b"null")],
        format="upsert-kafka",
        json_null="delete",
    )
    assert inferred.notes == ()


def test_a_custom_formats_schema_is_inferred_from_values() -> None:
    class Plain(Format):
        identifier = "plain-of-test"

        def read(self, key, value):
            return [Event.insert(read_object(value))]

    assert (
        infer_schema([(None, b'{"id": 1, "at": "2025-01-02"}')], format=Plain()).ddl
        == "id BIGINT, at DATE"
    )


def test_to_dict_returns_json_values() -> None:
    inferred = infer([canal({"id": "int"}, {"id": "1", "name": "ab"})], "canal-json", examples=1)
    assert json.loads(json.dumps(inferred.to_dict())) == {
        "format": "canal-json",
        "schema": "id INT NOT NULL, name STRING",
        "primary_key": ["id"],
        "primary_key_reason": "pkNames, in 1 records",
        "format_options": {},
        "option_reasons": {},
        "tables": ["d.t"],
        "records": 1,
        "rows": 1,
        "ignored": {},
        "columns": [
            {
                "name": "id",
                "type": "INT",
                "nullable": False,
                "certainty": "mysqlType",
                "source_type": "int",
                "seen": {"string": 1},
                "lengths": [1, 1],
                "examples": ["1"],
                "notes": [],
                "questions": [],
                "comment": "",
            },
            {
                "name": "name",
                "type": "STRING",
                "nullable": True,
                "certainty": "values",
                "source_type": "",
                "seen": {"string": 1},
                "lengths": [2, 2],
                "examples": ["ab"],
                "notes": [],
                "questions": [],
                "comment": "",
            },
        ],
        "notes": [],
    }


def test_the_text_shows_the_schema_and_the_evidence() -> None:
    inferred = infer(
        [canal({"id": "int"}, {"id": "1", "name": "ab"}), {"type": "TRUNCATE"}], "canal-json"
    )
    assert str(inferred).splitlines() == [
        "canal-json: 1 rows of d.t in 2 records",
        "  id INT NOT NULL: mysqlType: int; 1 string of 1 to 1 characters",
        "  name STRING: guessed from values; 1 string of 2 to 2 characters",
        "primary key (id): pkNames, in 1 records",
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_decodes_with_the_schema_that_is_inferred_from_it(scenario) -> None:
    # For Avro the registry has the columns.
    for identifier in (name for name in scenario.identifiers if name != "debezium-avro-confluent"):
        records, options = scenario.records(identifier), scenario.vector(identifier).options
        try:
            inferred = infer_schema(records, format=identifier, **options)
        except InferenceError:
            assert scenario.name in ("tombstones", "truncate", "ddl-and-heartbeats"), (
                f"{identifier} has rows"
            )
            continue
        assert [note for note in inferred.notes if "do not decode" in note] == []
        assert columns(inferred.ddl) == inferred.columns


# --------------------------------------------------------------------------------------------------
# recorded topics


def pairs(name: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in recorded(name, most=None)]


RECORDED = [
    (
        "canal-mariadb-flat",
        "canal-json",
        "mariadb2.customers",
        {"table_include": "customers", "time_zone": "UTC"},
    ),
    ("canal-mariadb-flat", "canal-json", "mariadb2.truncated", {"table_include": "truncated"}),
    ("maxwell-mariadb", "maxwell-json", "mariadb2.customers", {"table_include": "customers"}),
    ("dbz34-mariadb-json.inventory.customers", "debezium-json", "mariadb.customers", {}),
    ("dbz34-mariadb-json.inventory.order_lines", "debezium-json", "mariadb.order_lines", {}),
    ("dbz19-postgres-json.inventory.all_types", "debezium-json", "postgres19.all_types", {}),
]


@pytest.mark.parametrize(
    ("name", "identifier", "table", "options"), RECORDED, ids=[f"{r[0]}, {r[2]}" for r in RECORDED]
)
def test_a_recorded_topic_gives_the_columns_and_the_key_of_its_table(
    name: str, identifier: str, table: str, options: dict
) -> None:
    records = pairs(name)
    source = truth.load(TOPICS, *table.split("."))
    inferred = infer_schema([*records[:1000], *records[-1000:]], format=identifier, **options)
    assert sorted(column.name for column in inferred.columns) == sorted(
        column.name for column in source.columns
    )
    assert set(inferred.primary_key) == set(source.primary_key)
    assert {c.name for c in inferred.columns if not c.nullable} <= {
        c.name for c in source.columns if not c.nullable
    }
    decoder = get_format(identifier, **inferred.format_options).decoder(
        inferred.columns, unique_key=inferred.primary_key
    )
    refused = []
    for key, value in records:
        try:
            decoder.upserts(key, value)
        except DecodeError as error:
            refused.append(str(error))
    assert refused == []


def test_types_from_canal_equal_the_tables_types() -> None:
    source = truth.load(TOPICS, "mariadb2", "customers")
    inferred = infer_schema(
        pairs("canal-mariadb-flat"), format="canal-json", table_include="customers", time_zone="UTC"
    )
    assert [str(column.type) for column in inferred.columns] == [
        producers.canal(column).type for column in source.columns
    ]


def test_formats_with_several_tables_in_a_topic_can_be_filtered() -> None:
    of_several = [
        name
        for name, format in FORMATS.items()
        if any(column.endswith("table") for column in format.metadata)
    ]
    assert {"canal-json", "debezium-json", "maxwell-json", "ogg-json"} <= set(of_several)
    assert [name for name in of_several if not hasattr(FORMATS[name], "table_include")] == []


@pytest.mark.parametrize("identifier", [name for name in FORMATS if not name.endswith("confluent")])
def test_any_sample_gives_a_schema_or_an_inference_error(identifier: str) -> None:
    draw = random.Random(5)
    records = [
        record
        for scenario in SCENARIOS
        if identifier in scenario.identifiers
        for record in scenario.records(identifier)
    ]
    for _ in range(60):
        some = [
            tuple(damaged(part or b"", draw) for part in draw.choice(records)) for _ in range(4)
        ]
        try:
            inferred = infer_schema(some, format=identifier, examples=1)
        except InferenceError:
            continue
        assert columns(inferred.ddl) == inferred.columns
        assert json.dumps(inferred.to_dict())
        assert str(inferred)


@pytest.mark.parametrize("part", ["[", '{"a":'])
def test_values_that_are_nested_deeply_are_text(part: str) -> None:
    deep = part * 300 + "1" + ("]" if part == "[" else "}") * 300
    inferred = infer_schema(
        [(None, b'{"op":"+I","data":{"x":%s}}' % deep.encode())], format="changelog-json"
    )
    assert str(inferred.columns[0].type).count("<") == 20
    assert inferred.notes == ()


# --------------------------------------------------------------------------------------------------
# Columns from Avro and Connect schemas, and from registry schemas that a sample's records name
URL = "mock://infer"


def record(*fields: dict, name: str = "Value", **more: Any) -> dict:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def column(avro: Any, connector: str = "") -> str:
    """Return the column of an Avro type."""
    (declared,) = avro_columns(AvroSchema(record({"name": "x", "type": avro})), connector)
    return str(declared.column)


ENTRY = record(
    {"name": "key", "type": "int"},
    {"name": "value", "type": "string"},
    name="io.confluent.connect.avro.MapEntry",
)


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("int", "x INT NOT NULL"),
        (["null", "long"], "x BIGINT"),
        (["string", "null"], "x STRING"),
        ({"type": "int", "connect.type": "int16"}, "x SMALLINT NOT NULL"),
        ({"type": "int", "connect.type": "int8"}, "x TINYINT NOT NULL"),
        ("float", "x FLOAT NOT NULL"),
        ("double", "x DOUBLE NOT NULL"),
        ("boolean", "x BOOLEAN NOT NULL"),
        ("bytes", "x BINARY NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4}, "x BINARY NOT NULL"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "x STRING NOT NULL"),
        ({"type": "string", "logicalType": "uuid"}, "x STRING NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "x DECIMAL(10,2) NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "x DECIMAL(9,0) NOT NULL"),
        ({"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.parameters": {"scale": "3"}}, "x DECIMAL(38,3) NOT NULL"),
        ({"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.parameters": {"scale": "-2"}}, "x DECIMAL(38,0) NOT NULL"),
        ({"type": "int", "logicalType": "date"}, "x DATE NOT NULL"),
        ({"type": "int", "logicalType": "time-millis"}, "x TIME(3) NOT NULL"),
        ({"type": "long", "logicalType": "time-micros"}, "x TIME(6) NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "x TIMESTAMP(3) NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "x TIMESTAMP_NTZ(6) NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-millis", "connect.name": CONNECT + "Timestamp"}, "x TIMESTAMP_NTZ(3) NOT NULL"),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "x TIMESTAMP_NTZ(6) NOT NULL"),
        ({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, "x TIME(6) NOT NULL"),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "x TIMESTAMP NOT NULL"),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, "x STRING NOT NULL"),
        ({"type": "long", "logicalType": "of-the-future"}, "x BIGINT NOT NULL"),
        ({"type": "array", "items": ["null", "int"]}, "x ARRAY<INT> NOT NULL"),
        ({"type": "map", "values": "long"}, "x MAP<STRING, BIGINT> NOT NULL"),
        ([record({"name": "a", "type": ["null", "int"]}, name="R"), "null"], "x STRUCT<a: INT>"),
        (
            {"type": "array", "items": ENTRY},
            "x MAP<INT, STRING> NOT NULL",
        ),
    ],
)  # fmt: skip
def test_column_of_an_avro_type(avro: Any, expected: str) -> None:
    assert column(avro) == expected


def test_a_connect_doc_is_the_comment_of_its_column() -> None:
    name = {"type": "string", "connect.doc": "the part's name"}
    number = record(
        {"name": "scale", "type": "int"},
        name="VariableScaleDecimal",
        **{"connect.name": "io.debezium.data.VariableScaleDecimal", "connect.doc": "of the type"},
    )
    fields = [("name", ["null", name]), ("n", number), ("id", "int")]
    schema = AvroSchema(record(*({"name": each, "type": kind} for each, kind in fields)))
    assert [each.comment for each in avro_columns(schema)] == ["the part's name", "", ""]


def test_mysql_times_of_an_envelope_are_intervals_by_the_namespace_of_its_source() -> None:
    time = {"name": "t", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTime"}}
    source = record(
        {"name": "db", "type": "string"}, name="Source", namespace="io.debezium.connector.mysql"
    )
    before, op = (
        {"name": "before", "type": ["null", record(time)]},
        {"name": "op", "type": "string"},
    )
    envelope = record(
        before,
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source},
        op,
        name="Envelope",
        namespace="a.b",
    )
    assert [str(each.column) for each in avro_columns(AvroSchema(envelope))] == [
        "t INTERVAL DAY TO SECOND NOT NULL"
    ]


def test_a_type_may_be_defined_by_another_schema() -> None:
    price = {"type": "fixed", "size": 9, "name": "a.Price", "logicalType": "decimal"}
    price |= {"precision": 5, "scale": 1}
    schema = record({"name": "x", "type": "Price"}, namespace="a")
    (declared,) = avro_columns(AvroSchema(schema, [price]))
    assert str(declared.column) == "x DECIMAL(5,1) NOT NULL"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TINYINT(1)", "TINYINT"),
        ("tinyint(3) unsigned", "SMALLINT"),
        ("smallint unsigned zerofill", "INT"),
        ("bigint unsigned", "DECIMAL(20,0)"),
        ("double precision", "DOUBLE"),
        ("decimal(10, 2) unsigned", "DECIMAL(10,2)"),
        ("numeric(5)", "DECIMAL(5,0)"),
        ("datetime", "TIMESTAMP_NTZ(0)"),
        ("TIME(6)", "INTERVAL DAY TO SECOND"),
        ("enum('a(b','c\nd')", "INT"),
        ("varchar(20) charset utf8mb4", "None"),
        ("mediumtext", "STRING"),
        ("longblob", "BINARY"),
        ("bit(20)", "DECIMAL(20,0)"),
        ("bit(1)", "BOOLEAN"),
        ("bit", "DECIMAL(20,0)"),
        ("INTEGER(9) unsigned", "BIGINT"),
        ("bool", "TINYINT"),
        ("serial", "DECIMAL(20,0)"),
        ("geometry", "BINARY"),
        ("hyperloglog", "None"),
        ("", "None"),
    ],
)
def test_canal_type(text: str, expected: str) -> None:
    assert str(canal_type(text, zoned=False)[0]) == expected


def test_unknown_jdbc_types() -> None:
    assert jdbc_type(2004) is None
    assert str(jdbc_type(91)) == "DATE"


# --------------------------------------------------------------------------------------------------
# from a registry


def avro_bytes(subject: str, schema: dict, value: dict) -> bytes:
    number = Registry(url=URL).client.confluent.register_schema(
        subject, Schema(json.dumps(schema), "AVRO")
    )
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


KEY = record({"name": "id", "type": "int"}, name="Key")
ROW = record(
    {"name": "id", "type": "int"},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
)


@pytest.mark.parametrize("key_format", ["avro-confluent", "json"])
def test_columns_and_key_of_upserts_come_from_the_records_schemas(key_format: str) -> None:
    key = b'{"id":1}' if key_format == "json" else avro_bytes("upsert-key", KEY, {"id": 1})
    records = [
        (key, avro_bytes("upsert-value", ROW, {"id": 1, "at": at})) for at in (None, 1735787045123)
    ]
    options = {
        "key_format": key_format,
        "value_format": "avro-confluent",
        "avro_confluent_url": URL,
    }
    inferred = infer_schema([*records, (key, None)], format="upsert-kafka", **options)
    assert (inferred.ddl, inferred.primary_key) == ("id INT NOT NULL, at TIMESTAMP(3)", ("id",))
    assert (inferred.rows, inferred.ignored, inferred.notes) == (2, {"TOMBSTONE": 1}, ())
    assert {each.certainty for each in inferred.evidence} == {"schema registry"}


@pytest.mark.parametrize(
    "options", [{}, {"value_fields_include": "EXCEPT_KEY", "key_fields_prefix": "k_"}]
)
def test_columns_of_an_avro_key_that_the_value_lacks(options: dict[str, str]) -> None:
    row = record({"name": "name", "type": ["null", "string"]})
    key = avro_bytes("apart-key", KEY, {"id": 1})
    records = [(key, avro_bytes("apart-value", row, {"name": "bolt"}), ()), (key, None, ())]
    registry = {
        "key_format": "avro-confluent",
        "value_format": "avro-confluent",
        "avro_confluent_url": URL,
    }
    inferred = infer_schema(records, format="upsert-kafka", **registry, **options)
    name = options.get("key_fields_prefix", "") + "id"
    assert (inferred.ddl, inferred.primary_key, inferred.notes) == (
        f"{name} INT NOT NULL, name STRING",
        (name,),
        (),
    )
    assert {each.certainty for each in inferred.evidence} == {"schema registry"}
    decoder = get_format("upsert-kafka", **registry, **options).decoder(
        inferred.columns, unique_key=inferred.primary_key
    )
    assert [decoder.upserts(*each)[0].row for each in records] == [(1, "bolt"), None]
    sampled = [SampledRecord("apart", 0, offset, 0, *each) for offset, each in enumerate(records)]
    (table,) = profile_records(sampled, url=URL, **options).tables
    assert (table.schema.ddl, table.primary_key) == (inferred.ddl, inferred.primary_key)


def test_columns_of_a_json_key_that_the_value_lacks() -> None:
    inferred = infer_schema(
        [(b'{"id":1,"shop":"a"}', b'{"shop":"a","name":"bolt"}')], format="upsert-kafka"
    )
    assert (inferred.ddl, inferred.primary_key) == (
        "id BIGINT NOT NULL, shop STRING NOT NULL, name STRING",
        ("id", "shop"),
    )
    assert inferred.notes == ()


def envelope(row: dict) -> dict:
    source = record(
        {"name": "db", "type": "string"},
        {"name": "table", "type": "string"},
        name="Source",
        namespace="io.debezium.connector.mysql",
    )
    images = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
    ]
    return record(
        *images,
        {"name": "op", "type": "string"},
        {"name": "source", "type": source},
        name="Envelope",
    )


def event(table: str, row: dict, after: dict) -> tuple[bytes, bytes]:
    value = {"before": None, "after": after, "op": "c", "source": {"db": "d", "table": table}}
    return avro_bytes(f"{table}-key", KEY, {"id": 1}), avro_bytes(
        f"{table}-value", envelope(row), value
    )


def test_envelopes_of_a_schema_that_changes_and_of_several_tables() -> None:
    wider = record({"name": "id", "type": "long"}, {"name": "more", "type": "string"})
    narrow = record({"name": "id", "type": "int"})
    records = [event("a", narrow, {"id": 1}), event("a", wider, {"id": 2, "more": "x"})]
    inferred = infer_schema(records, format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key, inferred.tables) == (
        "id BIGINT NOT NULL, more STRING",
        ("id",),
        ("d.a",),
    )
    assert inferred.notes == ()
    records.append(event("b", narrow, {"id": 1}))
    with pytest.raises(
        InferenceError,
        match=r"several tables: d\.a \(2 changes\), d\.b \(1 changes\); choose one with table_include",
    ):
        infer_schema(records, format="debezium-avro-confluent", url=URL)
    one = infer_schema(records, format="debezium-avro-confluent", url=URL, table_include="b")
    assert (one.ddl, one.ignored) == ("id INT NOT NULL", {"OTHER_TABLE": 2})


def test_vectors_give_the_schema_they_were_written_with() -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "product")
    vector = scenario.vector("debezium-avro-confluent")
    inferred = infer_schema(vector.records, format="debezium-avro-confluent", **vector.options)
    assert inferred.ddl == "id INT NOT NULL, name STRING, description STRING, weight DECIMAL(10,3)"
    assert inferred.notes == ()


# --------------------------------------------------------------------------------------------------
# by subject


OP = {"name": "op", "type": "string"}


def register(subject: str, schema: Any) -> None:
    Registry(url=URL).client.confluent.register_schema(subject, Schema(json.dumps(schema), "AVRO"))


def test_a_subject_gives_the_columns_and_the_primary_key() -> None:
    row = record({"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]})
    old = record(
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        OP,
        name="Envelope",
    )
    wider = record(
        *row["fields"], {"name": "since", "type": ["null", {"type": "int", "logicalType": "date"}]}
    )
    new = record(
        {"name": "before", "type": ["null", wider]},
        {"name": "after", "type": ["null", "Value"]},
        OP,
        name="Envelope",
    )
    register("shop.parts-value", old)
    inferred = infer_subject("shop.parts-value", format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key) == ("id BIGINT NOT NULL, price DOUBLE", ())
    register("shop.parts-value", new)
    register("shop.parts-key", record({"name": "id", "type": "long"}, name="Key"))
    inferred = infer_subject("shop.parts-value", format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key) == (
        "id BIGINT NOT NULL, price DOUBLE, since DATE",
        ("id",),
    )
    assert "id BIGINT NOT NULL: schema registry" in str(inferred)


def test_a_subject_that_describes_no_table_is_an_error() -> None:
    register("text-value", "string")
    for subject, text in {
        "nowhere-value": "has no subject 'nowhere-value'",
        "text-value": "does not describe a table",
    }.items():
        with pytest.raises(InferenceError, match=text):
            infer_subject(subject, format="debezium-avro-confluent", url=URL)
    with pytest.raises(ArgumentError, match="debezium-json does not use a schema registry"):
        infer_subject("text-value", format="debezium-json")
    with pytest.raises(FormatOptionError, match="url is not set"):
        infer_subject("text-value", format="debezium-avro-confluent")


test_error_texts = error_test(
    __file__,
    {
        "a sample without rows is an error that describes it, 1": lambda: infer_schema(
            [
                (None, json.dumps({"type": "CREATE", "isDdl": True}).encode()),
                (None, None),
                (None, b"{secret"),
            ],
            format="canal-json",
        ),
        "a sample without rows is an error that describes it, 2": lambda: infer_schema(
            [], format="canal-json"
        ),
        "csv has no column names to infer from": lambda: infer_schema(
            [(b"1", b"1,2")], format="upsert-kafka", value_format="csv", key_format="csv"
        ),
        "options require a format name, 1": lambda: infer_schema(
            [], format=get_format("canal-json"), table_include="t"
        ),
        "options require a format name, 2": lambda: infer_subject(
            "t-value", format=get_format("canal-json"), table_include="t"
        ),
        **{
            f"an avro type without a column type is refused (1), {number}": lambda avro=avro: (
                column(avro)
            )
            for number, avro in enumerate(
                [
                    ["int", "string"],
                    [record({"name": "a", "type": "int"}, name="A"), "string"],
                ],
                1,
            )
        },
        "avro columns of a schema that is no record": lambda: avro_columns(AvroSchema("int")),
        **{
            f"an invalid connect schema is refused, {number}": lambda field=field: connect_columns(
                {"type": "struct", "fields": [{**field, "field": "x"}]}
            )
            for number, field in enumerate(
                [
                    {"type": "array"},
                    {"type": "map", "keys": {"type": "string"}},
                    {"type": "int128"},
                ],
                1,
            )
        },
        "avro without a registry has no column names": lambda: infer_schema(
            [], format="upsert-kafka", key_format="raw", value_format="avro"
        ),
    },
)
