"""upsert-kafka's own rules: the key, tombstones, and keys and values in JSON, CSV and raw bytes."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cdc_formats import Change, KeyedChange, RowKind, get_format
from cdc_formats.errors import DecodeError
from tests.support.avro import message_of, written
from tests.support.error_texts import error_test, text_test
from tests.support.rules import results_of

V, D = RowKind.UPDATE_AFTER, RowKind.DELETE
DDL = "id INT, n INT, s STRING"


def decoder(ddl: str = DDL, key: tuple[str, ...] = ("id",), **options: object):
    return get_format("upsert-kafka", **options).decoder(ddl, unique_key=key)


# --------------------------------------------------------------------------------------------------
# csv


@pytest.mark.parametrize("escape", [None, "\\"])
@given(texts=st.lists(st.text('ab\n\r\t\\",; nrt0é', max_size=8), min_size=1, max_size=3))
def test_any_text_survives_a_csv_round_trip(texts: list[str], escape: str | None) -> None:
    names = ", ".join(f"c{index} STRING" for index in range(len(texts)))
    options = {
        "value_format": "csv",
        "value_fields_include": "EXCEPT_KEY",
        "csv_escape_character": escape,
    }
    there_and_back(f"id INT, {names}", (1, *texts), **options)


# --------------------------------------------------------------------------------------------------
# raw


@pytest.mark.parametrize(
    "charset",
    ["UTF-8", "UTF-16", "UTF-32", "ascii", "idna", "punycode", "cp037", "shift_jis", "utf-7"],
)
def test_raw_text_of_any_bytes_raises_only_decode_errors(charset: str) -> None:
    reader = decoder(
        "id INT, v STRING",
        value_format="raw",
        value_fields_include="EXCEPT_KEY",
        raw_charset=charset,
    )
    for data in (b"", b"\xff", b"xn--\xff", b"\x00\xd8", b"+//", b"a-\x80", bytes(range(256))):
        try:
            (change,) = reader.decode(b'{"id":1}', data)
        except DecodeError as error:
            assert f"not {charset}" in str(error)  # noqa: PT017 - either outcome is right
        else:
            assert isinstance(change.row[1], str)


# --------------------------------------------------------------------------------------------------
# Avro

URL = "mock://upserts"
REGISTRY = {
    "avro_confluent_url": URL,
    "key_avro_confluent_subject": "rows-key",
    "value_avro_confluent_subject": "rows-value",
}


def message(schema: object, value: object) -> bytes:
    return message_of(URL, schema, value)


def record(**fields: object) -> dict[str, object]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": of} for name, of in fields.items()],
    }


# --------------------------------------------------------------------------------------------------
# writing

WIDE = (
    "id INT NOT NULL, flag BOOLEAN, big BIGINT, part FLOAT, d DECIMAL(6,2), s STRING, b BINARY, "
    "day DATE, t TIME(3), at TIMESTAMP(6), local TIMESTAMP_NTZ(3), span INTERVAL DAY TO SECOND, "
    "numbers ARRAY<INT>"
)
ROW = (
    1,
    True,
    -(2**63),
    0.5,
    "-0.05",
    'a,"b"\n;\\',
    b"\0\xff",
    -1,
    1_500_000,
    1,
    -1_000,
    -90_000_000_000,
    [1, -2],
)
NULLS = (1, *(None,) * 12)
NESTED = "m MAP<STRING, DECIMAL(5,1)>, x STRUCT<y: DATE, z: ARRAY<STRING>>"


def there_and_back(ddl: str, row: tuple, key: tuple[str, ...] = ("id",), **options: object) -> None:
    format = get_format("upsert-kafka", **options)
    encoder, reader = format.encoder(ddl, unique_key=key), format.decoder(ddl, unique_key=key)
    for kind in (V, RowKind.INSERT):
        assert reader.decode(*encoder.encode(kind, row)) == [Change(V, row)]
    assert reader.decode(*encoder.encode(V, row, row)) == [Change(V, row)]
    assert encoder.encode(RowKind.UPDATE_BEFORE, row) is None
    key_alone, value = encoder.encode(D, row)
    assert value is None
    values = {column.name: part for column, part in zip(reader.columns, row, strict=True)}
    assert reader.upserts(key_alone, None) == [
        KeyedChange(tuple(values[name] for name in key), None)
    ]


@pytest.mark.parametrize("include", ["ALL", "EXCEPT_KEY"])
@pytest.mark.parametrize("value_format", ["json", "csv", "avro", "avro-confluent"])
@pytest.mark.parametrize("key_format", ["json", "csv", "raw", "avro", "avro-confluent"])
def test_written_values_are_read_back_unchanged(
    key_format: str, value_format: str, include: str
) -> None:
    options = {
        "key_format": key_format,
        "value_format": value_format,
        "value_fields_include": include,
        **REGISTRY,
    }
    null = {"csv_null_literal": "n/a"}
    there_and_back(WIDE, ROW, **options, **null)
    there_and_back(WIDE, NULLS, **options, **null)
    if value_format != "csv":
        there_and_back(
            f"id INT, {NESTED}", (1, [["a", "1.5"], ["b", None]], [3, ["x", None]]), **options
        )


CSV = {"value_format": "csv", "value_fields_include": "EXCEPT_KEY"}
ALL_AVRO = {"key_format": "avro-confluent", "value_format": "avro-confluent", **REGISTRY}


def read(ddl: str, *records: tuple[Any, ...], **options: object) -> str:
    """Return what all decoders read from records with the key `id`."""
    results = results_of(get_format("upsert-kafka", **options), records, ddl, ["id"])
    return "\n".join(f"{name}: {each}" for name, part in results._asdict().items() for each in part)


def encoded(value: object, sql_type: str = "STRING", **options: object) -> object:
    format = get_format("upsert-kafka", **{"value_fields_include": "EXCEPT_KEY", **options})
    return format.encoder(f"id INT, s {sql_type}", unique_key=["id"]).encode(V, (1, value))


BARE_KEY = written(record(id="int"), {"id": 7})
BARE_VALUE = written(record(id="int", at=["null", "long"]), {"id": 7, "at": 1500})
# The ids of schemas are in the texts of errors: all are registered here, in this order.
KEY = message(record(id="int"), {"id": 7})
NUMBER = message(record(n="int"), {"n": 5})[1:5]
test_texts = text_test(
    __file__,
    {
        "bare Avro has the columns' schema": partial(
            read,
            "id INT NOT NULL, at TIMESTAMP_NTZ(3)",
            *((BARE_KEY, BARE_VALUE), (BARE_KEY, None), (BARE_KEY, BARE_VALUE + b"\0")),
            key_format="avro",
            value_format="avro",
        ),
        "registered Avro has the schema of its id": partial(
            read,
            "id BIGINT, n INT, s STRING",
            *(
                (KEY, message(schema, value))
                for schema, value in (
                    (record(s="string", gone="double", id="int"), {"s": "x", "gone": 1.5, "id": 7}),
                    (["null", record(n="int")], {"n": 5}),
                    (["null", record(n="int")], None),
                    (record(S="string"), {"S": "x"}),
                    ("string", "x"),
                )
            ),
            (message(record(id="string"), {"id": "x"}), None),
            **ALL_AVRO,
        ),
        **{
            f"a key that is not a record: {schema}": partial(
                read,
                f"id {sql_type}, n INT",
                (message(schema, value), b'{"n": 1}'),
                key_format="avro-confluent",
                **REGISTRY,
            )
            for schema, value, sql_type in (
                ("string", "x", "STRING"),
                ("long", 7, "INT"),
                (["null", "int"], 7, "INT"),
            )
        },
        "a schema's id in a header": partial(
            read,
            "id INT, n INT",
            (b'{"id": 1}', b"\x0a", [("__value_schema_id", b"\0" + NUMBER)]),
            value_format="avro-confluent",
            **REGISTRY,
        ),
    },
)


@pytest.mark.parametrize(
    ("line", "text", "options"),
    [
        pytest.param(
            r"\nx" * 300_000, "\nx" * 300_000, {"csv_escape_character": "\\"}, id="many escapes"
        ),
        pytest.param("x" * 200_000, "x" * 200_000, {}, id="more than the csv module's limit"),
    ],
)
def test_a_long_field_of_csv_is_read(line: str, text: str, options: dict[str, str]) -> None:
    (change,) = decoder("id INT, s STRING", **CSV, **options).decode(b'{"id":1}', line.encode())
    assert change.row == (1, text)


test_error_texts = error_test(
    __file__,
    {
        "the prefix is removed from key names": lambda: decoder(
            "k_id INT, id INT", ("id",), key_fields_prefix="k_", value_fields_include="EXCEPT_KEY"
        ),
        "a table needs a primary key": lambda: decoder(DDL, ()),
        "the characters of csv must differ": lambda: get_format(
            "upsert-kafka", csv_escape_character='"'
        ),
        **{
            f"csv holds no nested types, {number}": partial(
                decoder, f"id INT, a {sql_type}", value_format="csv"
            )
            for number, sql_type in enumerate(
                [
                    "MAP<STRING, INT>",
                    "STRUCT<a: INT>",
                    "ARRAY<ARRAY<INT>>",
                    "ARRAY<STRUCT<a: INT>>",
                ],
                1,
            )
        },
        **{
            f"raw holds one column of a plain type (1), {number}": partial(
                decoder, ddl, value_format="raw", value_fields_include="EXCEPT_KEY"
            )
            for number, ddl in enumerate(
                ["id INT, a INT, b INT", "id INT", "id INT, a DECIMAL(5,2)"], 1
            )
        },
        "raw holds one key column of a plain type": lambda: decoder(
            "id INT, a INT", ("id", "a"), key_format="raw"
        ),
        "columns without an avro type are refused when the decoder is made": lambda: decoder(
            "id INT, `unit price` INT", value_format="avro"
        ),
        "columns that cannot be written are refused when the encoder is made, 1": partial(
            get_format(
                "upsert-kafka", value_format="avro-confluent", avro_confluent_url="mock://x"
            ).encoder,
            "id INT",
            unique_key=["id"],
        ),
        "columns that cannot be written are refused when the encoder is made, 2": partial(
            get_format("upsert-kafka").encoder, "id INT, m MAP<INT, INT>", unique_key=["id"]
        ),
        **{
            f"a row that would be read back differently, {name}": partial(encoded, value, **options)
            for name, value, options in [
                ("csv without a null literal", None, {"value_format": "csv"}),
                (
                    "the null literal of csv",
                    "-",
                    {"value_format": "csv", "csv_null_literal": "-"},
                ),
                (
                    "a delimiter of csv without quotes",
                    "a,b",
                    {"value_format": "csv", "csv_quote_character": ""},
                ),
                ("null in raw", None, {"value_format": "raw"}),
                ("a charset of raw", "é", {"value_format": "raw", "raw_charset": "ascii"}),
            ]
        },
        **{
            f"an array that would be read back differently, {array}": partial(
                encoded, array, "ARRAY<STRING>", value_format="csv"
            )
            for array in (["a;b"], [""], [None])
        },
    },
)
