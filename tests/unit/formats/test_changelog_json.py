"""changelog-json's own rules: one row per message, read and written."""

import pytest

from cdc_formats import Change, KeyedChange, RowKind, get_format
from cdc_formats.errors import SchemaError
from cdc_formats.events import SHORT_STRINGS

DECODER = get_format("changelog-json").decoder("id INT, n DECIMAL(5,2)", unique_key=["id"])


@pytest.mark.parametrize("op", SHORT_STRINGS)
def test_each_op_is_one_row(op: str) -> None:
    value = b'{"data":{"id":1,"n":12.5},"op":"%s"}' % op.encode()
    assert DECODER.decode(None, value) == [Change(RowKind.from_short_string(op), (1, "12.50"))]


def test_a_keyed_stage_drops_before_images() -> None:
    def upserts(op: bytes) -> list:
        return DECODER.upserts(None, b'{"data":{"id":1,"n":12.5},"op":"%s"}' % op)

    assert upserts(b"-U") == []
    assert upserts(b"+I") == upserts(b"+U") == [KeyedChange((1,), (1, "12.50"))]
    assert upserts(b"-D") == [KeyedChange((1,), None)]


@pytest.mark.parametrize("kind", RowKind)
def test_rows_are_written_as_flink_cdc_did(kind: RowKind) -> None:
    key, value = (
        get_format("changelog-json").encoder("id INT, n DECIMAL(5,2)").encode(kind, (1, "100.00"))
    )
    assert key is None
    assert value == b'{"data":{"id":1,"n":100.00},"op":"%s"}' % kind.short_string.encode()


def test_the_key_is_written_in_the_order_of_the_primary_key() -> None:
    encoder = get_format("changelog-json").encoder("a INT, b INT, c INT", unique_key=["c", "a"])
    assert encoder.encode(RowKind.INSERT, (1, 2, 3))[0] == b'{"c":3,"a":1}'
    with pytest.raises(SchemaError, match="primary key column d is not declared"):
        get_format("changelog-json").encoder("a INT", unique_key=["d"])


def test_both_standards_of_timestamps_are_read() -> None:
    decoder = get_format("changelog-json").decoder("t TIMESTAMP_NTZ")
    for between in (b" ", b"T"):
        assert decoder.decode(None, b'{"data":{"t":"1970-01-01%s00:00:01"},"op":"+I"}' % between)[
            0
        ].row == (1_000_000,)


@pytest.mark.parametrize("text", ["I", "+X", "", "+i"])
def test_an_unknown_kind_is_an_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"use one of \+I, -U, \+U, -D"):
        RowKind.from_short_string(text)


def test_row_kinds_have_flinks_values_and_short_strings() -> None:
    assert [(kind.name, kind.value, kind.short_string) for kind in RowKind] == [
        ("INSERT", 0, "+I"),
        ("UPDATE_BEFORE", 1, "-U"),
        ("UPDATE_AFTER", 2, "+U"),
        ("DELETE", 3, "-D"),
    ]
