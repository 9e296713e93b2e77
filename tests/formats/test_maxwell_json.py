"""What is Maxwell's alone: `old` at its own level, bootstraps, seconds."""

from __future__ import annotations

import pytest

from cdc_formats import Change, Ignored, RowKind, get_format

U, V, INS = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT


def decode(value: bytes, ddl: str = "id INT, n INT, s STRING", **options: object) -> object:
    return get_format("maxwell-json", **options).decoder(ddl).decode(None, value)


def test_old_is_looked_up_at_its_own_level() -> None:
    """Flink would find the n inside the JSON value of s."""
    value = b'{"type":"update","data":{"id":1,"n":5,"s":{"n":8}},"old":{"s":{"n":7}}}'
    assert decode(value) == [Change(U, (1, 5, '{"n":7}')), Change(V, (1, 5, '{"n":8}'))]


def test_an_empty_old_is_an_update_of_nothing() -> None:
    assert decode(b'{"type":"update","data":{"id":1,"n":5},"old":{}}') == [Change(U, (1, 5, None)), Change(V, (1, 5, None))]


def test_null_in_old_was_null() -> None:
    assert decode(b'{"type":"update","data":{"id":1,"n":5},"old":{"n":null}}')[0] == Change(U, (1, None, None))


def test_columns_of_old_that_are_not_declared_do_not_matter() -> None:
    assert decode(b'{"type":"update","data":{"id":1},"old":{"other":1}}') == [Change(U, (1, None, None)), Change(V, (1, None, None))]


def test_a_delete_does_not_read_old() -> None:
    assert decode(b'{"type":"delete","data":{"id":1},"old":{"id":"x"}}') == [Change(RowKind.DELETE, (1, None, None))]


@pytest.mark.parametrize("kind", ["bootstrap-start", "bootstrap-complete"])
def test_marks_of_a_bootstrap_are_ignored_by_reason(kind: str) -> None:
    assert decode(b'{"type":"%s","table":"a","data":{}}' % kind.encode()) is Ignored.SNAPSHOT_MARK


@pytest.mark.parametrize("what", ["table", "database"])
@pytest.mark.parametrize("action", ["create", "alter", "drop"])
def test_ddl_is_ignored_whatever_the_filters(what: str, action: str) -> None:
    value = b'{"type":"%s-%s","database":"x","ts":1596684883000}' % (what.encode(), action.encode())
    assert decode(value) is decode(value, table_include="a", database_include="b") is Ignored.DDL


def test_filters_match_in_full_and_before_the_row_is_looked_at() -> None:
    value = b'{"type":"insert","database":"shop","table":"apples","data":{"id":1}}'
    assert decode(value, table_include="app.*", database_include="shop") == [Change(INS, (1, None, None))]
    assert decode(value, table_include="app") is Ignored.OTHER_TABLE
    assert decode(b'{"type":"nobody knows","database":"shop","table":"b"}', table_include="a") is Ignored.OTHER_TABLE
    assert decode(b'{"type":"bootstrap-start","database":"shop","table":"b"}', table_include="a") is Ignored.OTHER_TABLE


def test_decimals_of_numbers_keep_every_digit() -> None:
    value = b'{"type":"insert","data":{"a":8.4270,"b":0E-18,"c":12345678901234567890.123456789012345678}}'
    assert decode(value, "a DECIMAL(6,4), b DECIMAL(38,18), c DECIMAL(38,18)")[0].row == (
        "8.4270",
        "0.000000000000000000",
        "12345678901234567890.123456789012345678",
    )


def test_a_set_is_an_array_and_a_json_value_is_text() -> None:
    value = b'{"type":"insert","data":{"a":["x","y"],"b":{"k":[1.50,null]},"c":["x"]}}'
    assert decode(value, "a ARRAY<STRING>, b STRING, c STRING")[0].row == (["x", "y"], '{"k":[1.50,null]}', '["x"]')


def test_metadata_has_flinks_names_types_and_values() -> None:
    format = get_format("maxwell-json")
    assert {name: column.type for name, column in format.metadata.items()} == {
        "database": "STRING",
        "table": "STRING",
        "primary-key-columns": "ARRAY<STRING>",
        "ingestion-timestamp": "TIMESTAMP(3)",
        "position": "STRING",
        "xid": "BIGINT",
    }
    decoder = format.decoder("id INT", metadata=list(format.metadata))
    value = (
        b'{"type":"insert","database":"shop","table":"a","ts":1596684883,"xid":7152,"position":"m.6:800",'
        b'"primary_key_columns":["id","n"],"data":{"id":1}}'
    )
    assert decoder.decode(None, value)[0].metadata == ("shop", "a", ["id", "n"], 1_596_684_883_000_000, "m.6:800", 7152)
    assert decoder.decode(None, b'{"type":"insert","data":{"id":1}}')[0].metadata == (None,) * 6
