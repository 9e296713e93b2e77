"""What is upsert-kafka's alone: the key, tombstones, and keys and values in JSON, CSV and raw bytes."""

from __future__ import annotations

import struct

import pytest

from cdc_formats import Change, ChangelogMode, KeyedChange, RowKind, get_format
from cdc_formats.errors import DecodeError, MalformedMessageError, MissingFieldError, SchemaError

V, D = RowKind.UPDATE_AFTER, RowKind.DELETE
DDL = "id INT, n INT, s STRING"


def decoder(ddl: str = DDL, key: tuple[str, ...] = ("id",), **options: object):
    return get_format("upsert-kafka", **options).decoder(ddl, unique_key=key)


def test_the_mode_declares_deletes_by_key() -> None:
    mode = get_format("upsert-kafka").changelog_mode
    assert str(mode) == "[+U, ~D]"
    assert mode.key_only_deletes
    assert not mode.contains(RowKind.UPDATE_BEFORE)
    assert [str(found) for found in (ChangelogMode.all(), ChangelogMode.upsert(), ChangelogMode.upsert(key_only_deletes=False))] == [
        "[+I, -U, +U, -D]",
        "[+I, +U, ~D]",
        "[+I, +U, -D]",
    ]
    assert str(ChangelogMode.insert_only()) == "[+I]"


def test_a_row_is_an_upsert_and_a_tombstone_a_delete() -> None:
    found = decoder()
    assert found.decode(b'{"id":1}', b'{"id":1,"n":2,"s":"x"}') == [Change(V, (1, 2, "x"))]
    assert found.decode(b'{"id":1}', None) == [Change(D, (1, None, None))]
    assert found.upserts(b'{"id":1}', b'{"id":1}') == [KeyedChange((1,), (1, None, None))]
    assert found.upserts(b'{"id":1}', None) == [KeyedChange((1,), None)]


@pytest.mark.parametrize(
    ("value", "row"),
    [
        pytest.param(b'{"id":7,"n":2}', (7, 2, None), id="the value's copy of the key wins"),
        pytest.param(b'{"id":null,"n":2}', (1, 2, None), id="a null copy does not"),
        pytest.param(b'{"n":2}', (1, 2, None), id="nor does a missing one"),
        pytest.param(b"{}", (1, None, None), id="a value of nothing is a row of nulls"),
    ],
)
def test_with_all_fields_the_key_completes_the_value(value: bytes, row: tuple) -> None:
    assert decoder().decode(b'{"id":1}', value) == [Change(V, row)]


def test_without_the_key_in_the_value_the_key_has_it() -> None:
    found = decoder(value_fields_include="EXCEPT_KEY", value_format="csv")
    assert found.decode(b'{"id":1}', b"2,x") == [Change(V, (1, 2, "x"))]


def test_a_prefix_is_taken_from_the_names_of_the_key() -> None:
    found = decoder("k_id INT, id INT", ("k_id",), key_fields_prefix="k_", value_fields_include="EXCEPT_KEY")
    assert found.decode(b'{"id":1}', b'{"id":2}') == [Change(V, (1, 2))]
    with pytest.raises(SchemaError, match="key_fields_prefix is 'k_', and primary key column 'id' does not begin with it"):
        decoder("k_id INT, id INT", ("id",), key_fields_prefix="k_", value_fields_include="EXCEPT_KEY")


def test_a_key_of_several_columns_has_the_order_of_the_primary_key() -> None:
    found = decoder("a INT, b STRING, c INT", ("c", "a"), key_format="csv")
    assert found.decode(b"3,1", None) == [Change(D, (1, None, 3))]
    assert found.upserts(b"3,1", b'{"b":"x"}') == [KeyedChange((3, 1), (1, "x", 3))]


def test_the_four_bytes_of_json_null_delete_on_request() -> None:
    with pytest.raises(MalformedMessageError, match="expected a JSON object"):
        decoder().decode(b'{"id":1}', b"null")
    for value in (b"null", bytearray(b"null"), memoryview(b"null")):
        assert decoder(json_null="delete").decode(b'{"id":1}', value) == [Change(D, (1, None, None))]
    assert decoder("id INT, s STRING", json_null="delete", value_format="raw", value_fields_include="EXCEPT_KEY").decode(
        b'{"id":1}', b"null"
    ) == [Change(V, (1, "null"))]


def test_an_empty_value_never_deletes() -> None:
    raw = decoder("id INT, s STRING", value_format="raw", value_fields_include="EXCEPT_KEY")
    assert raw.decode(b'{"id":1}', b"") == [Change(V, (1, ""))]
    with pytest.raises(MalformedMessageError):
        decoder(json_null="delete").decode(b'{"id":1}', b"")


def test_a_table_needs_a_primary_key() -> None:
    with pytest.raises(SchemaError, match="upsert-kafka needs a primary_key"):
        decoder(DDL, ())


# ------------------------------------------------------------------------------------------------------------------- csv


@pytest.mark.parametrize(
    ("options", "line", "row"),
    [
        pytest.param({}, '5,"a,b"', (5, "a,b"), id="a quoted comma"),
        pytest.param({}, '5,"say ""hi"""', (5, 'say "hi"'), id="doubled quotes"),
        pytest.param({}, '5,"two\nlines"\n', (5, "two\nlines"), id="a quoted line break, and one at the end"),
        pytest.param({}, "5, x ", (5, " x "), id="blanks are text"),
        pytest.param({}, "5,", (5, ""), id="empty text"),
        pytest.param({"csv_null_literal": "n/a"}, "n/a,n/a", (None, None), id="a null literal"),
        pytest.param({"csv_null_literal": ""}, ",x", (None, "x"), id="an empty null literal"),
        pytest.param({"csv_field_delimiter": "|"}, "5|a,b", (5, "a,b"), id="another delimiter"),
        pytest.param({"csv_quote_character": "'"}, "5,'a,b'", (5, "a,b"), id="another quote"),
        pytest.param({"csv_quote_character": ""}, '5,"a"', (5, '"a"'), id="no quote"),
        pytest.param({"csv_escape_character": "\\"}, "5,a\\,b", (5, "a,b"), id="an escape"),
        pytest.param({}, "5," + "x" * 200_000, (5, "x" * 200_000), id="a field of more than the csv module's limit"),
    ],
)
def test_csv(options: dict, line: str, row: tuple) -> None:
    found = decoder("id INT, n INT, s STRING", value_format="csv", value_fields_include="EXCEPT_KEY", **options)
    assert found.decode(b'{"id":1}', line.encode())[0].row == (1, *row)


@pytest.mark.parametrize(("line", "array"), [(b"1;2", [1, 2]), (b"", []), (b"7", [7])])
def test_csv_arrays(line: bytes, array: list) -> None:
    found = decoder("id INT, a ARRAY<INT>, s STRING", value_format="csv", value_fields_include="EXCEPT_KEY")
    assert found.decode(b'{"id":1}', line + b",x")[0].row == (1, array, "x")


def test_csv_types_are_read_from_text() -> None:
    ddl = "id INT, a DECIMAL(5,2), b DATE, c TIMESTAMP_NTZ, d BOOLEAN, e BINARY, f DOUBLE"
    line = b"1.5,1970-01-02,1970-01-01 00:00:01,true,AP8=,1e3"
    found = decoder(ddl, value_format="csv", value_fields_include="EXCEPT_KEY")
    assert found.decode(b'{"id":1}', line)[0].row == (1, "1.50", 1, 1_000_000, True, b"\x00\xff", 1000.0)


@pytest.mark.parametrize("sql_type", ["MAP<STRING, INT>", "STRUCT<a: INT>", "ARRAY<ARRAY<INT>>", "ARRAY<STRUCT<a: INT>>"])
def test_csv_holds_no_nested_types(sql_type: str) -> None:
    with pytest.raises(SchemaError, match="value_format 'csv' cannot hold a"):
        decoder(f"id INT, a {sql_type}", value_format="csv")


# ------------------------------------------------------------------------------------------------------------------- raw


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
    as_value = decoder(f"id INT, v {sql_type}", value_format="raw", value_fields_include="EXCEPT_KEY")
    assert as_value.decode(b'{"id":1}', buffer(data)) == [Change(V, (1, value))]
    as_key = decoder(f"v {sql_type}, n INT", ("v",), key_format="raw")
    assert as_key.decode(buffer(data), b'{"n":1}') == [Change(V, (value, 1))]
    assert as_key.upserts(buffer(data), None) == [KeyedChange((value,), None)]


def test_raw_options() -> None:
    little = decoder("id INT, v INT", value_format="raw", value_fields_include="EXCEPT_KEY", raw_endianness="little-endian")
    assert little.decode(b'{"id":1}', struct.pack("<i", 7))[0].row == (1, 7)
    latin = decoder("id INT, v STRING", value_format="raw", value_fields_include="EXCEPT_KEY", raw_charset="ISO-8859-1")
    assert latin.decode(b'{"id":1}', b"\xe4")[0].row == (1, "ä")


@pytest.mark.parametrize("charset", ["UTF-8", "UTF-16", "UTF-32", "ascii", "idna", "punycode", "cp037", "shift_jis", "utf-7"])
def test_raw_text_of_any_bytes_raises_nothing_but_decode_errors(charset: str) -> None:
    found = decoder("id INT, v STRING", value_format="raw", value_fields_include="EXCEPT_KEY", raw_charset=charset)
    for data in (b"", b"\xff", b"xn--\xff", b"\x00\xd8", b"+//", b"a-\x80", bytes(range(256))):
        try:
            (change,) = found.decode(b'{"id":1}', data)
        except DecodeError as error:
            assert f"not {charset}" in str(error)  # noqa: PT017 - either outcome is right
        else:
            assert isinstance(change.row[1], str)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("id INT, a INT, b INT", "value_format 'raw' holds exactly one column, and the value has a, b"),
        ("id INT", "holds exactly one column, and the value has none"),
        ("id INT, a DECIMAL(5,2)", "value_format 'raw' cannot hold a DECIMAL"),
    ],
)
def test_raw_holds_one_column_of_a_plain_type(ddl: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        decoder(ddl, value_format="raw", value_fields_include="EXCEPT_KEY")
    with pytest.raises(SchemaError, match="key_format 'raw' holds exactly one column, and the key has id, a"):
        decoder("id INT, a INT", ("id", "a"), key_format="raw")


def test_it_has_no_metadata_of_its_own() -> None:
    assert dict(get_format("upsert-kafka").metadata) == {}


@pytest.mark.parametrize(
    "value", [b'{"ID":1,"NAME":"x"}', b'{"schema":{"type":"struct"},"payload":{"id":1,"name":"x"}}'], ids=["other case", "schema block"]
)
def test_a_value_without_a_declared_column_is_no_row_of_nulls(value: bytes) -> None:
    decoder = get_format("upsert-kafka").decoder("id INT, name STRING", unique_key=["id"])
    with pytest.raises(MissingFieldError, match=r"none of the declared columns \(id, name\) is in the value"):
        decoder.decode(b'{"id":1}', value)


def test_a_value_may_be_empty_where_the_key_is_all() -> None:
    decoder = get_format("upsert-kafka", value_fields_include="EXCEPT_KEY").decoder("id INT", unique_key=["id"])
    assert decoder.decode(b'{"id":1}', b"{}") == [Change(RowKind.UPDATE_AFTER, (1,))]
