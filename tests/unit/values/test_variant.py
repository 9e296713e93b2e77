"""VARIANT columns: JSON that Spark's ``parse_json`` reads, and an error for all else."""

import json
from typing import Any

import pytest

from cdc_formats import ABSENT, Handling, columns, get_format
from cdc_formats.avro.reader import AvroSchema, row_converter
from cdc_formats.errors import DecodeError, SchemaError
from cdc_formats.events import RowKind
from cdc_formats.values.schema import SqlType
from cdc_formats.values.types import converter, cuts, holds, writer
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import error_test

VARIANT, STRING = SqlType("VARIANT"), SqlType("STRING")
VALUE = Handling(json="value")
DEEP = 200
"""How deep Spark's parser surely reads."""


def created(doc: Any) -> bytes:
    return json.dumps({"op": "c", "before": None, "after": {"id": 1, "doc": doc}}).encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"b":[1.50,null,true],"c":{"a":"\\u0000"}}',
        ' {"a" : 1,\n"b":{"a":2} } ',
        "null",
        '"text"',
        "-0",
        "1e5",
        "9" * 300,
        '"' + "9" * 2000 + '"',
        '"' + "[" * 2000 + '"',
        "[" * DEEP + "]" * DEEP,
        "[" + "[]," * DEEP + "1]",
        '"😀 \\ud83d\\ude00"',
    ],
)
def test_json_text_is_kept_as_it_is(text: str) -> None:
    assert converter(VARIANT, Handling())(text) == text


def test_a_nested_value_is_compact_json_with_the_digits_of_the_message() -> None:
    decoder = get_format("debezium-json").decoder("id INT, doc VARIANT")
    message = b'{"op":"c","before":null,"after":{"id":1,"doc":{"a": [1.50, 1e2], "b": "x"}}}'
    assert [change.row for change in decoder.decode(None, message)] == [
        (1, '{"a":[1.50,1e2],"b":"x"}')
    ]


def test_text_is_json_text_unless_the_producer_writes_values() -> None:
    assert converter(VARIANT, Handling())("5") == converter(VARIANT, Handling())(5) == "5"
    assert converter(VARIANT, VALUE)("5") == '"5"'
    assert converter(VARIANT, VALUE)({"a": "5"}) == '{"a":"5"}'
    message = b'{"type":"insert","database":"d","table":"t","data":{"id":1,"doc":"5"}}'
    decoder = get_format("maxwell-json").decoder("id INT, doc VARIANT")
    assert [change.row for change in decoder.decode(None, message)] == [(1, '"5"')]
    document = json.dumps({"op": "c", "after": '{"_id":1,"doc":{"$numberLong":"5"},"x":"5"}'})
    mongodb = get_format("debezium-mongodb-json").decoder("_id INT, doc VARIANT, x VARIANT")
    assert [change.row for change in mongodb.decode(None, document.encode())] == [
        (1, '{"$numberLong":"5"}', '"5"')
    ]


@pytest.mark.parametrize(
    "identifier", ["debezium-json", "canal-json", "maxwell-json", "changelog-json", "upsert-kafka"]
)
def test_a_written_variant_is_read_back(identifier: str) -> None:
    formats = {"key_format": "json", "value_format": "json"}
    options = formats if identifier == "upsert-kafka" else {}
    table = columns("id INT, doc VARIANT")
    format = get_format(identifier, **options)
    for text in ('{"a":[1.50]}', '"5"', "5", "[]"):
        encoder = format.encoder(table, unique_key=["id"])
        key, value = encoder.encode(RowKind.INSERT, (1, text))
        decoder = format.decoder(table, unique_key=["id"])
        assert [change.row for change in decoder.decode(key, value)] == [(1, text)]


def test_both_decoders_give_the_same_rows_and_errors() -> None:
    docs = ['{"a":1}', "null", None, {"a": [1.5]}, "[1,]", '{"a":1,"a":2}', 5, "5", True, "1e400"]
    placeholder = "__debezium_unavailable_value"
    for identifier, messages in {
        "debezium-json": [created(doc) for doc in [*docs, placeholder]],
        "maxwell-json": [
            json.dumps(
                {"type": "insert", "database": "d", "table": "t", "data": {"id": 1, "doc": doc}}
            ).encode()
            for doc in docs
        ],
    }.items():
        source = source_of(get_format(identifier), "id INT, doc VARIANT", ["id"])
        assert not differences(source, [(None, message) for message in messages])


def test_the_placeholder_of_unchanged_values_is_no_json_and_still_known() -> None:
    handling = Handling(placeholder="__debezium_unavailable_value")
    assert converter(VARIANT, handling)("__debezium_unavailable_value") is ABSENT
    schema = AvroSchema(
        {"type": "record", "name": "r", "fields": [{"name": "doc", "type": "string"}]}
    )
    rows = row_converter(schema, schema.fields(schema.top), columns("doc VARIANT"), handling)
    assert rows.row({"doc": "__debezium_unavailable_value"}, "$") == (ABSENT,)
    assert rows.row({"doc": "[1]"}, "$") == ("[1]",)
    with pytest.raises(DecodeError, match="not JSON"):
        rows.row({"doc": "[1"}, "$")


def test_a_variant_identifies_no_row_and_is_in_no_other_type() -> None:
    with pytest.raises(SchemaError, match="primary key column id is a VARIANT"):
        get_format("debezium-json").decoder("id VARIANT", unique_key=["id"])
    for nested in ("ARRAY<VARIANT>", "MAP<STRING, VARIANT>", "STRUCT<a: INT, b: VARIANT>"):
        with pytest.raises(SchemaError, match="has a VARIANT inside, which is not supported"):
            columns(f"id INT, doc {nested}")


def test_text_and_variants_do_not_replace_each_other_silently() -> None:
    assert cuts(VARIANT, STRING)
    assert cuts(STRING, VARIANT)
    assert not cuts(VARIANT, VARIANT)
    # In a checkpoint, too: it may have text that is not JSON.
    assert not holds(VARIANT, STRING)


def test_a_schema_block_names_debeziums_type() -> None:
    encoder = get_format("debezium-json", schema_include=True).encoder("id INT, doc VARIANT")
    _, value = encoder.encode(RowKind.INSERT, (1, "[1]"))
    after = json.loads(value)["schema"]["fields"][1]["fields"]
    assert after[1] == {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Json",
        "version": 1,
        "field": "doc",
    }


def test_values_are_written_as_their_text_or_as_json() -> None:
    assert writer(VARIANT, Handling()) is None
    assert bytes(writer(VARIANT, VALUE)("[1.50]")) == b"[1.50]"


test_error_texts = error_test(
    __file__,
    {
        **{
            f"text that spark would refuse or change is an error, {number}": lambda text=text: (
                converter(VARIANT, Handling())(text)
            )
            for number, text in enumerate(
                [
                    "",
                    "text",
                    "[1,]",
                    "[1] 2",
                    "NaN",
                    "{'a':1}",
                    "\ufeff1",
                    '"\\ud800"',
                    '{"a":1,"a":1}',
                    '[{"b":{"x":1, "\\u0078":2}}]',
                    "1e309",
                    "[-1E+999]",
                    "9" * 400,
                    "0." + "1" * 1001,
                    "[" * (DEEP + 1) + "]" * (DEEP + 1),
                    '{"a":' * (DEEP + 1) + "1" + "}" * (DEEP + 1),
                    '"' + "x" * 2**22 + '"',
                    '{"' + "x" * 50_001 + '":1}',
                ],
                1,
            )
        },
    },
)
