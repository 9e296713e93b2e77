"""Which type has more values."""

from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, strategies as st

from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import SqlType, columns
from cdc_formats.values.types import cuts, holds, wider

TYPES = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "DECIMAL(5,2)",
    "DECIMAL(20,0)",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "VARCHAR(3)",
    "BINARY",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_NTZ",
    "ARRAY<INT>",
    "MAP<STRING, INT>",
    "VARIANT",
)


def parsed(text: str) -> SqlType:
    return columns(f"x {text}")[0].type


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("INT", "FLOAT", "DOUBLE"),
        ("BIGINT", "DOUBLE", "None"),
        ("DECIMAL(10,2)", "INT", "DECIMAL(12,2)"),
        ("DECIMAL(38,2)", "DECIMAL(38,10)", "None"),
        ("DECIMAL(10,2)", "DOUBLE", "None"),
        ("TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ(6)"),
        ("DATE", "TIMESTAMP", "None"),
        ("VARCHAR(3)", "CHAR(5)", "STRING"),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>"),
        ("ARRAY<INT>", "ARRAY<DATE>", "None"),
        ("INT", "DATE", "None"),
        ("INT", "STRING", "None"),
    ],
)
def test_the_type_that_has_every_value_of_both(first: str, second: str, expected: str) -> None:
    assert (
        str(wider(parsed(first), parsed(second)))
        == expected
        == str(wider(parsed(second), parsed(first)))
    )


def test_text_is_the_type_of_all_others_where_it_is_asked_for() -> None:
    text = SqlType("STRING")
    assert str(wider(parsed("INT"), parsed("DATE"), text)) == "STRING"
    assert str(wider(parsed("ARRAY<INT>"), parsed("ARRAY<DATE>"), text)) == "ARRAY<STRING>"


def test_the_three_questions_agree() -> None:
    for wide, narrow in product(map(parsed, TYPES), repeat=2):
        both = wider(wide, narrow)
        if holds(wide, narrow) and "VARCHAR" not in str(wide):
            assert both is not None, (wide, narrow)
            assert holds(both, wide), (wide, narrow)
            assert holds(wide, both), (wide, narrow)
        if both is not None:
            assert not cuts(both, wide), (both, wide)
            assert wider(both, narrow) == both, (both, narrow)


@given(st.tuples(*[st.sampled_from(TYPES)] * 3))
def test_the_order_of_types_makes_no_difference(names: tuple[str, str, str]) -> None:
    text = SqlType("STRING")
    first, second, third = map(parsed, names)
    one = wider(wider(first, second, text) or text, third, text)
    other = wider(first, wider(second, third, text) or text, text)
    # A DECIMAL, or a BIGINT, and a DOUBLE have no common type, so that the order of the numbers may
    # give text earlier.
    assert one == other or text in (one, other)


@given(st.data())
def test_every_number_of_two_exact_types_fits_the_wider_one(data: st.DataObject) -> None:
    first, second = (parsed(data.draw(st.sampled_from(TYPES[1:7]))) for _ in range(2))
    both = wider(first, second)
    assert both is not None
    for each in (first, second):
        bits = INTEGER_BITS.get(each.name)
        most = (
            Decimal(2**bits)
            if bits
            else Decimal(10 ** (each.precision or 0) - 1).scaleb(-(each.scale or 0))
        )
        if both.name == "DECIMAL":
            assert most < Decimal(10) ** ((both.precision or 0) - (both.scale or 0))
            assert most == most.quantize(Decimal(1).scaleb(-(both.scale or 0)))
        else:
            assert most <= 2 ** INTEGER_BITS[both.name]
