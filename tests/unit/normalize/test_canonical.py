"""Canonical values pass and convert to Arrow; values that Arrow cannot convert are refused."""

import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns
from normalize.decode.canonical import canonical_check
from tests.support.canonical_values import TYPES, values_of


@pytest.mark.parametrize("ddl", TYPES)
@given(data=st.data())
def test_values_that_arrow_accepts_are_canonical(ddl, data):
    declared = columns(f"c {ddl}")
    canonical_check(declared)([data.draw(values_of(declared[0].type))])


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("INT", "1"), ("INT", 2**31), ("INT", True), ("BIGINT", 2**64), ("BOOLEAN", 1), ("STRING", 1), ("STRING", "\ud800"), ("STRING", {}),
        ("STRING", object()), ("BINARY", "x"), ("DATE", "2024-01-01"), ("TIME", -1), ("TIMESTAMP", 2**63), ("DECIMAL(5,2)", "1234.00"),
        ("DECIMAL(5,2)", "1.0"), ("DECIMAL(5,2)", "1.00\n"), ("DECIMAL(5,0)", 1), ("MAP<STRING, INT>", {"a": 1}),
        ("MAP<STRING, INT>", [[None, 1]]), ("ARRAY<INT>", ["a"]), ("STRUCT<a: INT, b: INT>", [1]),
    ],
)  # fmt: skip
def test_values_that_are_not_canonical_are_refused(ddl, value):
    with pytest.raises((ValueError, TypeError, OverflowError, NotImplementedError)):
        canonical_check(columns(f"c {ddl}"))([value])


def test_each_row_has_all_its_values():
    with pytest.raises(ValueError, match="length 2"):
        canonical_check(columns("a INT, b INT"))([1])
