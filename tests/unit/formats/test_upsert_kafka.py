"""upsert-kafka's own rules: the key, tombstones, and keys and values in JSON, CSV and raw bytes."""

import re
import struct

import pytest
from hypothesis import given, strategies as st

from cdc_formats import Change, ChangelogMode, KeyedChange, RowKind, get_format
from cdc_formats.errors import (
    DecodeError,
    EncodeError,
    MalformedMessageError,
    MissingFieldError,
    SchemaError,
)
from tests.support.avro import message_of, written
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import error_test

V, D = RowKind.UPDATE_AFTER, RowKind.DELETE
DDL = "id INT, n INT, s STRING"


def decoder(ddl: str = DDL, key: tuple[str, ...] = ("id",), **options: object):
    return get_format("upsert-kafka", **options).decoder(ddl, unique_key=key)


def test_the_changelog_mode_declares_deletes_by_key() -> None:
    mode = get_format("upsert-kafka").changelog_mode
    assert str(mode) == "[+U, ~D]"
    assert mode.key_only_deletes
    assert not mode.contains(RowKind.UPDATE_BEFORE)
    assert [
        str(changelog_mode)
        for changelog_mode in (
            ChangelogMode.all(),
            ChangelogMode.upsert(),
            ChangelogMode.upsert(key_only_deletes=False),
        )
    ] == [
        "[+I, -U, +U, -D]",
        "[+I, +U, ~D]",
        "[+I, +U, -D]",
    ]
    assert str(ChangelogMode.insert_only()) == "[+I]"


def test_json_null_deletes_on_request() -> None:
    for value in (
        b"null",
        bytearray(b"null"),
        memoryview(b"null"),
        b" null ",
        b"null\r\n",
        b"\tnull",
    ):
        assert not differences(
            source_of(get_format("upsert-kafka", json_null="delete"), "id INT, s STRING", ["id"]),
            [(b'{"id":1}', bytes(value))],
        )
        assert decoder(json_null="delete").decode(b'{"id":1}', value) == [
            Change(D, (1, None, None))
        ]
    assert decoder(
        "id INT, s STRING",
        json_null="delete",
        value_format="raw",
        value_fields_include="EXCEPT_KEY",
    ).decode(b'{"id":1}', b"null") == [Change(V, (1, "null"))]


@pytest.mark.parametrize("columns", ["after STRUCT<b: STRING>", "after VARIANT, updated STRING"])
def test_the_columns_of_an_envelope_are_refused(columns: str) -> None:
    options = {"key_format": "raw", "value_fields_include": "EXCEPT_KEY"}
    with pytest.raises(SchemaError, match="as in CockroachDB's envelope=wrapped"):
        get_format("upsert-kafka", **options).decoder(f"k STRING, {columns}", unique_key=["k"])
    get_format("upsert-kafka").decoder("id INT, before DATE, after DATE", unique_key=["id"])


# --------------------------------------------------------------------------------------------------
# csv


@pytest.mark.parametrize(
    ("options", "line", "row"),
    [
        pytest.param({}, '5,"a,b"', (5, "a,b"), id="a quoted comma"),
        pytest.param({}, '5,"say ""hi"""', (5, 'say "hi"'), id="doubled quotes"),
        pytest.param(
            {}, '5,"two\nlines"\n', (5, "two\nlines"), id="a quoted line break, and one at the end"
        ),
        pytest.param({}, "5, x ", (5, " x "), id="blanks are text"),
        pytest.param({}, "5,", (5, ""), id="empty text"),
        pytest.param({"csv_null_literal": "n/a"}, "n/a,n/a", (None, None), id="a null literal"),
        pytest.param({"csv_null_literal": ""}, ",x", (None, "x"), id="an empty null literal"),
        pytest.param({"csv_field_delimiter": "|"}, "5|a,b", (5, "a,b"), id="another delimiter"),
        pytest.param({}, '"5" ,"a,""b"" " \t\n', (5, 'a,"b" '), id="blanks after a closing quote"),
        pytest.param(
            {"csv_field_delimiter": " "}, '"5" "a"\t', (5, "a"), id="a blank that is the delimiter"
        ),
        pytest.param({}, '5, "a"', (5, ' "a"'), id="a blank before a quote"),
        pytest.param(
            {"csv_field_delimiter": "\t"},
            '"5" \t"a" ',
            (5, "a"),
            id="a blank before a delimiter that is a tab",
        ),
        pytest.param(
            {"csv_escape_character": "\\"},
            r'5,"a\"" ',
            (5, 'a"'),
            id="a blank after a quote and an escape",
        ),
        pytest.param({"csv_quote_character": "'"}, "5,'a,b'", (5, "a,b"), id="another quote"),
        pytest.param({"csv_quote_character": ""}, '5,"a"', (5, '"a"'), id="no quote"),
        pytest.param({"csv_escape_character": "\\"}, "5,a\\,b", (5, "a,b"), id="an escape"),
        pytest.param(
            {"csv_escape_character": "\\"},
            r"5,a\nb\rc\td\0e",
            (5, "a\nb\rc\td\0e"),
            id="escaped n, r, t and 0",
        ),
        pytest.param(
            {"csv_escape_character": "\\"},
            r'5,"a\nb,\"c\",""d"""',
            (5, 'a\nb,"c","d"'),
            id="escapes in quotes",
        ),
        pytest.param(
            {"csv_escape_character": "\\"},
            r"5,\\n\x\N\n",
            (5, "\\nxN\n"),
            id="an escaped escape, and letters",
        ),
        pytest.param(
            {"csv_escape_character": "\\"}, "5,a\\\nb", (5, "a\nb"), id="an escaped line break"
        ),
        pytest.param(
            {"csv_escape_character": "\\"},
            '5,"a\r\n\\tb"\r\n',
            (5, "a\r\n\tb"),
            id="a line break and an escape in quotes",
        ),
        pytest.param(
            {"csv_escape_character": "^", "csv_quote_character": "'"},
            "5,'^n]'''",
            (5, "\n]'"),
            id="another escape",
        ),
        pytest.param(
            {"csv_escape_character": "\\", "csv_quote_character": ""},
            r'5,"\n\,',
            (5, '"\n,'),
            id="an escape without quotes",
        ),
        pytest.param(
            {"csv_escape_character": "\\", "csv_field_delimiter": "]"},
            r"5]\]\n^-",
            (5, "]\n^-"),
            id="an escaped delimiter",
        ),
        pytest.param(
            {"csv_escape_character": "\\", "csv_null_literal": "\n"},
            r"\n,\\n",
            (None, r"\n"),
            id="an escaped null literal",
        ),
        pytest.param(
            {"csv_escape_character": "\\"},
            "5," + r"\nx" * 300_000,
            (5, "\nx" * 300_000),
            id="many escapes",
        ),
        pytest.param(
            {},
            "5," + "x" * 200_000,
            (5, "x" * 200_000),
            id="a field of more than the csv module's limit",
        ),
    ],
)
def test_csv(options: dict, line: str, row: tuple) -> None:
    reader = decoder(
        "id INT, n INT, s STRING", value_format="csv", value_fields_include="EXCEPT_KEY", **options
    )
    assert reader.decode(b'{"id":1}', line.encode())[0].row == (1, *row)


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


def test_a_line_break_is_written_in_quotes() -> None:
    encoder = get_format("upsert-kafka", value_format="csv").encoder(
        "id INT, s STRING", unique_key=["id"]
    )
    assert [encoder.encode(V, (1, text))[1] for text in ("a\nb", "a\r", "\r\n")] == [
        b'1,"a\nb"',
        b'1,"a\r"',
        b'1,"\r\n"',
    ]


# --------------------------------------------------------------------------------------------------
# raw


@pytest.mark.parametrize(
    ("sql_type", "data", "value"),
    [
        ("STRING", "ä".encode(), "ä"),
        ("VARCHAR(3)", b"x", "x"),
        ("BINARY", b"\x00\xff", b"\x00\xff"),
        ("BOOLEAN", b"\x01", True),
        ("TINYINT", b"\xff", -1),
        ("SMALLINT", b"\x01\x00", 256),
        ("INT", struct.pack(">i", -5), -5),
        ("BIGINT", struct.pack(">q", 2**62), 2**62),
        ("FLOAT", struct.pack(">f", 0.5), 0.5),
        ("DOUBLE", struct.pack(">d", 0.1), 0.1),
    ],
)
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_raw(sql_type: str, data: bytes, value: object, buffer: type) -> None:
    as_value = decoder(
        f"id INT, v {sql_type}", value_format="raw", value_fields_include="EXCEPT_KEY"
    )
    assert as_value.decode(b'{"id":1}', buffer(data)) == [Change(V, (1, value))]
    as_key = decoder(f"v {sql_type}, n INT", ("v",), key_format="raw")
    assert as_key.decode(buffer(data), b'{"n":1}') == [Change(V, (value, 1))]
    assert as_key.upserts(buffer(data), None) == [KeyedChange((value,), None)]


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


def test_it_has_no_metadata_of_its_own() -> None:
    assert dict(get_format("upsert-kafka").metadata) == {}


# --------------------------------------------------------------------------------------------------
# Avro

REGISTRY = {
    "avro_confluent_url": "mock://upserts",
    "key_avro_confluent_subject": "rows-key",
    "value_avro_confluent_subject": "rows-value",
}


def registered(schema: object, value: object) -> bytes:
    return message_of("mock://upserts", schema, value)


def record(**fields: object) -> dict[str, object]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": of} for name, of in fields.items()],
    }


def test_bare_avro_uses_the_columns_schema() -> None:
    reader = decoder("id INT NOT NULL, at TIMESTAMP_NTZ(3)", key_format="avro", value_format="avro")
    key = written(record(id="int"), {"id": 7})
    value = written(record(id="int", at=["null", "long"]), {"id": 7, "at": 1500})
    assert reader.decode(key, value) == [Change(V, (7, 1_500_000))]
    assert reader.decode(key, None) == [Change(D, (7, None))]
    with pytest.raises(MalformedMessageError, match="1 bytes are left over"):
        reader.decode(key, value + b"\0")


def test_registered_avro_uses_the_records_schema_id() -> None:
    reader = decoder(
        "id BIGINT, n INT, s STRING",
        key_format="avro-confluent",
        value_format="avro-confluent",
        **REGISTRY,
    )
    key = registered(record(id="int"), {"id": 7})
    assert reader.decode(
        key,
        registered(record(s="string", gone="double", id="int"), {"s": "x", "gone": 1.5, "id": 7}),
    ) == [Change(V, (7, None, "x"))]
    assert reader.decode(key, registered(["null", record(n="int")], {"n": 5})) == [
        Change(V, (7, 5, None))
    ]
    with pytest.raises(MissingFieldError, match="the record is null"):
        reader.decode(key, registered(["null", record(n="int")], None))
    with pytest.raises(
        MissingFieldError,
        match=r"none of the declared columns \(id, n, s\) is in the value; it has S",
    ):
        reader.decode(key, registered(record(S="string"), {"S": "x"}))
    with pytest.raises(MissingFieldError, match="the writer's schema is not a record"):
        reader.decode(key, registered("string", "x"))
    with pytest.raises(DecodeError, match=r"`BIGINT`.*at `\$.id` of the key"):
        reader.decode(registered(record(id="string"), {"id": "x"}), None)


def test_a_key_that_is_not_a_record_is_the_value_of_the_only_key_column() -> None:
    for schema, value, sql_type, expected in (
        ("string", "x", "STRING", "x"),
        ("long", 7, "INT", 7),
        (["null", "int"], 7, "INT", 7),
    ):
        reader = decoder(f"id {sql_type}, n INT", key_format="avro-confluent", **REGISTRY)
        assert reader.decode(registered(schema, value), b'{"n": 1}') == [Change(V, (expected, 1))]


def test_headers_are_read_only_if_they_may_have_a_schema_id() -> None:
    assert get_format("upsert-kafka").reads_headers is False
    assert get_format("upsert-kafka", value_format="avro").reads_headers is False
    format = get_format("upsert-kafka", value_format="avro-confluent", **REGISTRY)
    assert format.traits.reads_headers is True
    number = int.from_bytes(registered(record(n="int"), {"n": 5})[1:5], "big")
    headers = [("__value_schema_id", b"\0" + number.to_bytes(4, "big"))]
    assert format.decoder("id INT, n INT", unique_key=["id"]).decode(
        b'{"id": 1}', b"\x0a", headers
    ) == [Change(V, (1, 5))]


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


@pytest.mark.parametrize(("standard", "between"), [("SQL", b" "), ("ISO-8601", b"T")])
def test_json_timestamps_are_written_in_the_configured_format(
    standard: str, between: bytes
) -> None:
    options, ddl = {"json.timestamp-format.standard": standard}, "id TIMESTAMP_NTZ, at TIMESTAMP"
    encoder = get_format("upsert-kafka", **options).encoder(ddl, unique_key=["id"])
    stamp = b"1970-01-01%s00:00:00" % between
    assert encoder.encode(V, (0, 0)) == (
        b'{"id":"%s"}' % stamp,
        b'{"id":"%s","at":"%sZ"}' % (stamp, stamp),
    )
    there_and_back(ddl, (0, 1), **options)


def test_prefixes_and_the_order_of_the_primary_key_are_written() -> None:
    options = {"key_fields_prefix": "k_", "value_fields_include": "EXCEPT_KEY"}
    encoder = get_format("upsert-kafka", **options).encoder(
        "k_a INT, a INT, k_b STRING", unique_key=["k_b", "k_a"]
    )
    assert encoder.encode(V, (1, 2, "x")) == (b'{"b":"x","a":1}', b'{"a":2}')
    there_and_back(
        "k_a INT, a INT, k_b STRING",
        (1, 2, "x"),
        ("k_b", "k_a"),
        key_format="avro",
        value_format="avro",
        **options,
    )
    there_and_back("id INT", (1,), value_format="json", value_fields_include="EXCEPT_KEY")
    there_and_back("id INT", (1,), value_format="avro", value_fields_include="EXCEPT_KEY")


@pytest.mark.parametrize(
    ("options", "value", "reason"),
    [
        pytest.param(
            {"value_format": "csv"},
            None,
            "NULL has no CSV form: set csv_null_literal - at `$.s`",
            id="csv: no null",
        ),
        pytest.param(
            {"value_format": "csv", "csv_null_literal": "-"},
            "-",
            "would be read back differently",
            id="csv: the null literal",
        ),
        pytest.param(
            {"value_format": "csv", "csv_quote_character": ""},
            "a,b",
            "cannot be written as CSV",
            id="csv: a delimiter without quotes",
        ),
        pytest.param(
            {"value_format": "raw"},
            None,
            "a null value would be a delete - at `$.s`",
            id="raw: null",
        ),
        pytest.param(
            {"value_format": "raw", "raw_charset": "ascii"},
            "é",
            "characters that ascii cannot encode",
            id="raw: a charset",
        ),
    ],
)
def test_rows_that_would_be_read_back_differently_are_refused(
    options: dict, value: object, reason: str
) -> None:
    encoder = get_format("upsert-kafka", value_fields_include="EXCEPT_KEY", **options).encoder(
        "id INT, s STRING", unique_key=["id"]
    )
    with pytest.raises(EncodeError, match=re.escape(reason)):
        encoder.encode(V, (1, value))


def test_csv_arrays_that_would_be_read_back_differently_are_refused() -> None:
    encoder = get_format(
        "upsert-kafka", value_fields_include="EXCEPT_KEY", value_format="csv"
    ).encoder("id INT, a ARRAY<STRING>", unique_key=["id"])
    assert encoder.encode(V, (1, ["a", "b"]))[1] == b"a;b"
    for array in (["a;b"], [""], [None]):
        with pytest.raises(EncodeError, match="would be read back differently"):
            encoder.encode(V, (1, array))


def test_raw_values_are_written_as_declared() -> None:
    options = {
        "key_format": "raw",
        "value_format": "raw",
        "value_fields_include": "EXCEPT_KEY",
        "raw_endianness": "little-endian",
    }
    encoder = get_format("upsert-kafka", **options).encoder(
        "id SMALLINT, v BINARY", unique_key=["id"]
    )
    assert encoder.encode(V, (258, b"\0")) == (b"\2\1", b"\0")


test_error_texts = error_test(
    __file__,
    {
        "the prefix is removed from key names": lambda: decoder(
            "k_id INT, id INT", ("id",), key_fields_prefix="k_", value_fields_include="EXCEPT_KEY"
        ),
        "json null deletes on request": lambda: decoder().decode(b'{"id":1}', b"null"),
        "an empty value never deletes": lambda: decoder(json_null="delete").decode(
            b'{"id":1}', b""
        ),
        "a table needs a primary key": lambda: decoder(DDL, ()),
        **{
            f"a line with invalid escapes, {number}": lambda line=line: decoder(
                "id INT, n INT, s STRING",
                **{
                    "value_format": "csv",
                    "value_fields_include": "EXCEPT_KEY",
                    "csv_escape_character": "\\",
                },
            ).decode(b'{"id":1}', line.encode())
            for number, line in enumerate(
                ["5,a\\", '5,"a\\n', '5,"a\\n"b', "5,a\\n\nb", '5,"\\"', "5,a,\\n"], 1
            )
        },
        "the characters of csv must differ": lambda: get_format(
            "upsert-kafka", csv_escape_character='"'
        ),
        **{
            f"csv holds no nested types, {number}": lambda sql_type=sql_type: decoder(
                f"id INT, a {sql_type}", value_format="csv"
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
            f"raw holds one column of a plain type (1), {number}": lambda ddl=ddl: decoder(
                ddl, value_format="raw", value_fields_include="EXCEPT_KEY"
            )
            for number, ddl in enumerate(
                [
                    "id INT, a INT, b INT",
                    "id INT",
                    "id INT, a DECIMAL(5,2)",
                ],
                1,
            )
        },
        "raw holds one key column of a plain type": lambda: decoder(
            "id INT, a INT", ("id", "a"), key_format="raw"
        ),
        **{
            f"a value without declared columns is not a row of nulls, {number}": lambda value=value: (
                get_format("upsert-kafka")
                .decoder("id INT, name STRING", unique_key=["id"])
                .decode(b'{"id":1}', value)
            )
            for number, value in enumerate(
                [
                    b'{"ID":1,"NAME":"x"}',
                    b'{"schema":{"type":"struct"},"payload":{"id":1,"name":"x"}}',
                ],
                1,
            )
        },
        "columns without an avro type are refused when the decoder is made": lambda: decoder(
            "id INT, `unit price` INT", value_format="avro"
        ),
        "columns that cannot be written are refused when the encoder is made, 1": lambda: (
            get_format(
                "upsert-kafka",
                **{"value_format": "avro-confluent", "avro_confluent_url": "mock://x"},
            ).encoder("id INT", unique_key=["id"])
        ),
        "columns that cannot be written are refused when the encoder is made, 2": lambda: (
            get_format("upsert-kafka").encoder("id INT, m MAP<INT, INT>", unique_key=["id"])
        ),
    },
)
