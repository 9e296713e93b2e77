"""Canonical values to Arrow and back: every type, NULLs at every depth, slices."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns
from cdc_formats.handling import Handling, Unfit
from cdc_formats.types import converter, decimal_text
from normalize.arrow import arrow_type, from_arrow, of_texts, spark_ddl, to_arrow

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)


def values_of(sql_type) -> st.SearchStrategy:
    """Canonical values of a type, including NULL."""
    bits = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63, "TIMESTAMP": 50, "TIMESTAMP_NTZ": 50, "INTERVAL DAY TO SECOND": 60}
    if sql_type.name in bits:
        plain: st.SearchStrategy = st.integers(-(2 ** bits[sql_type.name]), 2 ** bits[sql_type.name] - 1)
    elif sql_type.name == "DECIMAL":
        whole = 10 ** (sql_type.precision - sql_type.scale) - 1
        plain = st.decimals(-whole, whole, places=sql_type.scale).map(lambda d: decimal_text(d, sql_type.precision, sql_type.scale))
    elif sql_type.name == "ARRAY":
        plain = st.lists(values_of(sql_type.fields[0].type), max_size=3)
    elif sql_type.name == "MAP":
        entries = st.dictionaries(_TEXT, values_of(sql_type.fields[1].type), max_size=3)
        plain = entries.map(lambda entry: sorted([key, value] for key, value in entry.items()))
    elif sql_type.name == "STRUCT":
        plain = st.tuples(*(values_of(field.type) for field in sql_type.fields)).map(list)
    else:
        plain = {
            "BOOLEAN": st.booleans(),
            "FLOAT": st.floats(width=32, allow_nan=False),
            "DOUBLE": st.floats(allow_nan=False),
            "STRING": _TEXT,
            "BINARY": st.binary(max_size=5),
            "DATE": st.integers(-719162, 2932896),
        }[sql_type.name]
    return st.none() | plain


TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP(3)", "TIMESTAMP_NTZ",
    "INTERVAL DAY TO SECOND", "DECIMAL(38,18)", "DECIMAL(20,0)", "ARRAY<DECIMAL(5,2)>", "ARRAY<ARRAY<DATE>>", "MAP<STRING, TIMESTAMP>",
    "STRUCT<a: INT, b: ARRAY<STRING>>", "MAP<STRING, STRUCT<a: DECIMAL(9,3)>>",
]  # fmt: skip


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
    except Unfit:
        with pytest.raises(Unfit):
            of_texts(kind, values, convert)
    else:
        assert of_texts(kind, values, convert).equals(expected)


def test_whole_columns_refuse_and_round_decimals_as_single_values():
    (column,) = columns("x DECIMAL(10,2)")
    exact, rounds = (converter(column.type, Handling(decimal="string", rounding=rounding)) for rounding in ("error", "half_up"))
    assert of_texts(column.type, ["9.990", "1e-1", "1.5"], exact).to_pylist() == [Decimal("9.99"), Decimal("0.10"), Decimal("1.50")]
    with pytest.raises(Unfit, match="more digits after the point"):
        of_texts(column.type, ["1.00", "9.999"], exact)
    assert of_texts(column.type, ["1.00", "9.999", "9.995"], rounds).to_pylist() == [Decimal("1.00"), Decimal("10.00"), Decimal("10.00")]
