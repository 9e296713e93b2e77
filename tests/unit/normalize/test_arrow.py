"""Canonical values to Arrow and back: every type, NULLs at every depth, slices."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from capture.columns import ARROW_TYPES
from cdc_formats import columns
from cdc_formats.values.handling import ConversionError, Handling
from cdc_formats.values.schema import TYPE_NAMES
from cdc_formats.values.types import converter
from normalize.core.arrow import arrow_type, from_arrow, of_texts, spark_ddl, to_arrow
from tests.support.canonical_values import TYPES, values_of


@pytest.mark.parametrize("ddl", TYPES)
@given(data=st.data())
def test_to_arrow_and_back_is_identity(ddl, data):
    sql_type = columns(f"c {ddl}")[0].type
    values = data.draw(st.lists(values_of(sql_type), max_size=6))
    array = to_arrow(sql_type, values)
    assert array.type == arrow_type(sql_type)
    assert from_arrow(sql_type, array) == values
    start = data.draw(st.integers(0, len(values)))
    assert from_arrow(sql_type, array.slice(start)) == values[start:]


@pytest.mark.parametrize("name", TYPE_NAMES)
def test_every_type_has_an_arrow_type_and_null(name):
    parts = {"ARRAY": "<INT>", "MAP": "<STRING, INT>", "STRUCT": "<a: INT>"}.get(name, "")
    (column,) = columns(f"c {name}{parts}")
    assert to_arrow(column.type, [None]).type == arrow_type(column.type)


@pytest.mark.parametrize("name", ARROW_TYPES)
def test_columns_of_a_capture_have_the_arrow_types_of_a_topic(name):
    assert ARROW_TYPES[name] == arrow_type(columns(f"c {name}")[0].type)


def test_time_is_text_since_spark_has_no_such_type():
    (column,) = columns("at TIME(6)")
    assert to_arrow(column.type, [0, 86_399_999_999, None]).to_pylist() == ["00:00:00", "23:59:59.999999", None]
    assert arrow_type(column.type) == pa.string()


def test_sparks_ddl_has_sparks_types():
    assert spark_ddl(columns("a TIMESTAMP(3), `b c` VARCHAR(9), d TIME, e STRUCT<f: TIMESTAMP_NTZ(6)>, g DECIMAL(3,1)")) == (
        "`a` TIMESTAMP, `b c` STRING, `d` STRING, `e` STRUCT<`f`: TIMESTAMP_NTZ>, `g` DECIMAL(3,1)"
    )


DIGITS = st.from_regex(r"\A[+-]?[0-9]{0,9}(\.[0-9]{0,4})?(e[0-9])?\Z")
DAYS = st.dates().map(str) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
MOMENTS = st.tuples(st.datetimes(), st.sampled_from([" ", "T"]), st.sampled_from([0, 1, 3, 6, 9])).map(
    lambda drawn: drawn[0].isoformat(drawn[1], "seconds") + (f".{drawn[0].microsecond:06d}000"[: drawn[2] + 1] if drawn[2] else "")
)


UNSIGNED = st.integers(0, 2**65).map(lambda number: b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big")).decode())


@pytest.mark.parametrize("rounding", ["error", "half_up"])
@pytest.mark.parametrize(
    ("sql_type", "texts"),
    [
        ("DECIMAL(7,2)", DIGITS),
        ("DECIMAL(20,0)", DIGITS | UNSIGNED),
        ("DATE", DAYS),
        ("TIMESTAMP_NTZ(3)", MOMENTS),
        ("TIMESTAMP_NTZ", MOMENTS),
    ],
)
@given(data=st.data())
def test_a_column_of_text_is_read_as_each_value_is(sql_type, texts, rounding, data):
    kind = columns(f"x {sql_type}")[0].type
    convert = converter(kind, Handling(decimal="string", bigint_unsigned="precise", rounding=rounding))
    values = data.draw(st.lists(st.none() | texts, max_size=4))
    try:
        expected = to_arrow(kind, [None if value is None else convert(value) for value in values])
    except ConversionError:
        with pytest.raises(ConversionError):
            of_texts(kind, values, convert)
    else:
        assert of_texts(kind, values, convert).equals(expected)


def test_whole_columns_refuse_and_round_decimals_as_single_values():
    (column,) = columns("x DECIMAL(10,2)")
    exact, rounds = (converter(column.type, Handling(decimal="string", rounding=rounding)) for rounding in ("error", "half_up"))
    assert of_texts(column.type, ["9.990", "1e-1", "1.5"], exact).to_pylist() == [Decimal("9.99"), Decimal("0.10"), Decimal("1.50")]
    with pytest.raises(ConversionError, match="more digits after the point"):
        of_texts(column.type, ["1.00", "9.999"], exact)
    assert of_texts(column.type, ["1.00", "9.999", "9.995"], rounds).to_pylist() == [Decimal("1.00"), Decimal("10.00"), Decimal("10.00")]
