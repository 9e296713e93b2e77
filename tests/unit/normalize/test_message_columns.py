"""MessageColumn converts many values of a column together, and each as its converter does."""

from base64 import b64encode
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import columns
from cdc_formats.values.handling import ConversionError, Handling
from cdc_formats.values.schema import ABSENT
from cdc_formats.values.types import converter
from normalize.core.arrow import to_stored
from normalize.core.message_columns import MessageColumn
from tests.support.examples import examples

DIGITS = st.from_regex(r"\A[+-]?[0-9]{0,9}(\.[0-9]{0,4})?(e[0-9])?\Z")
MANY_DIGITS = st.from_regex(r"\A-?[0-9]{30,60}(\.[0-9]{0,30})?\Z")
UNSIGNED = st.integers(0, 2**65).map(
    lambda number: b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big")).decode()
)
DAYS = st.dates().map(str) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
MOMENTS = st.tuples(
    st.datetimes(), st.sampled_from([" ", "T"]), st.sampled_from([0, 1, 3, 6, 9])
).map(
    lambda drawn: (
        drawn[0].isoformat(drawn[1], "seconds")
        + (f".{drawn[0].microsecond:06d}000"[: drawn[2] + 1] if drawn[2] else "")
    )
)
NUMBERS = (
    st.integers(-(2**65), 2**65)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.integers(-3, 3).map(Decimal)
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=3) | st.sampled_from(
    ["true", "False", "0", "1", " 1", "0x10", "NaN", "gone"]
)
ANY_VALUE = (
    TEXTS
    | NUMBERS
    | st.booleans()
    | st.lists(st.integers(0, 3), max_size=2)
    | st.dictionaries(st.text(max_size=1), st.none(), max_size=1)
)
HANDLINGS = [
    Handling(),
    Handling(native=False, binary="latin1"),
    Handling(decimal="string", rounding="half_up", placeholder="gone"),
    Handling(decimal="precise", bigint_unsigned="precise", time="adaptive", binary="hex"),
    Handling(decimal="double", bigint_unsigned="long", time="connect", time_zone="Europe/Berlin"),
    Handling(decimal=None, time=None, binary=None, epoch_unit="us", json="value"),
]
TYPES = {
    "BOOLEAN": st.booleans() | st.sampled_from([0, 1]),
    "SMALLINT": st.integers(-40_000, 40_000),
    "BIGINT": st.integers(-(2**64), 2**64) | st.integers().map(str),
    "FLOAT": NUMBERS,
    "DOUBLE": NUMBERS,
    "DECIMAL(7,2)": DIGITS | MANY_DIGITS | NUMBERS,
    "DECIMAL(20,0)": DIGITS | UNSIGNED | st.integers(-3, 2**66),
    "DECIMAL(38,18)": MANY_DIGITS | NUMBERS,
    "STRING": TEXTS,
    "VARIANT": TEXTS | st.sampled_from(['{"a": 1}', "null", '{"a":1,"a":2}', "1e999"]),
    "BINARY": TEXTS,
    "DATE": DAYS,
    "TIME": st.times().map(str),
    "TIMESTAMP(3)": MOMENTS.map(lambda text: f"{text}Z"),
    "TIMESTAMP_NTZ(3)": MOMENTS,
    "TIMESTAMP_NTZ": MOMENTS,
    "ARRAY<INT>": st.lists(st.integers(-3, 3), max_size=2),
}


@pytest.mark.parametrize("ddl", TYPES)
@settings(max_examples=examples(200))
@given(handling=st.sampled_from(HANDLINGS), data=st.data())
def test_a_column_is_converted_as_each_of_its_values(ddl, handling, data):
    (column,) = columns(f"c {ddl}")
    convert = converter(column.type, handling)
    more_values = [ANY_VALUE] if data.draw(st.booleans()) else []
    values = data.draw(st.lists(st.one_of(st.none(), TYPES[ddl], *more_values), max_size=6))
    expected, refused = [], []
    for index, value in enumerate(values):
        try:
            expected.append(None if value is None else convert(value))
        except ConversionError:
            expected.append(None)
            refused.append(index)
    refused += [index for index, value in enumerate(expected) if value is ABSENT]
    expected = [None if index in refused else value for index, value in enumerate(expected)]
    tested = MessageColumn(column, handling, convert)

    array, in_doubt = tested.array(values)
    assert sorted(in_doubt) == sorted(refused)
    shown = [None if index in refused else value for index, value in enumerate(array.to_pylist())]
    assert repr(shown) == repr(
        to_stored(column.type, expected).to_pylist()
    )  # repr: NaN equals NaN, 0.0 does not equal -0.0

    canonical, in_doubt = tested.canonical(values)
    assert sorted(in_doubt) == sorted(refused)
    assert repr(
        [None if index in refused else value for index, value in enumerate(canonical)]
    ) == repr(expected)


def test_a_decimal_of_more_digits_than_its_type_is_refused_and_not_cut():
    (column,) = columns("c DECIMAL(5,2)")
    tested = MessageColumn(column, Handling(), converter(column.type, Handling()))
    values = ["123.45", "9" * 40, "1234.50", "1.999", Decimal("1234.5"), Decimal("-1.5")]
    assert tested.array(values[:1])[0].to_pylist() == [Decimal("123.45")]
    for value in values[1:-1]:
        assert tested.array([value])[1] == [0]
    assert tested.array(values[-1:])[0].to_pylist() == [Decimal("-1.50")]
