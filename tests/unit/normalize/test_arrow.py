"""Canonical values to Arrow and back: every type, NULLs at every depth, slices."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import columns
from cdc_formats.values.equality import equal
from cdc_formats.values.schema import TYPE_NAMES
from normalize.core.arrow import (
    arrow_type,
    equal_at,
    frame_type,
    from_arrow,
    spark_ddl,
    to_arrow,
    to_stored,
)
from normalize.decode.canonical import canonical_check
from tests.support.canonical_values import TYPES, values_of
from tests.support.error_texts import text_test


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


OF_TIME = columns("at TIME(6)")[0].type
OF_A_USER = columns("a VARIANT, b TIME(3) WITHOUT TIME ZONE, c TIME WITHOUT TIME ZONE, d TIME")
NESTED = columns(
    "a TIMESTAMP(3), `b c` VARCHAR(9), d TIME, e STRUCT<f: TIMESTAMP_NTZ(6)>, g DECIMAL(3,1)"
)
test_texts = text_test(
    __file__,
    {
        "TIME is text, since Spark has no such type": lambda: to_arrow(
            OF_TIME, [0, 86_399_999_999, None]
        ).to_pylist(),
        "the type of TIME in Arrow": lambda: arrow_type(OF_TIME),
        "Spark's DDL has Spark's types": partial(spark_ddl, NESTED),
        "a user's DataFrame has variants and times": lambda: [
            frame_type(column.type) for column in OF_A_USER
        ],
        "which are text in the passes": partial(spark_ddl, OF_A_USER),
    },
)


@pytest.mark.parametrize("pairs", [10, 200], ids=["few pairs", "many pairs"])
@given(data=st.data())
@settings(max_examples=20)
def test_rows_are_equal_if_their_canonical_values_are(pairs, data):
    types = [columns(f"c {ddl}")[0].type for ddl in TYPES]
    chosen = data.draw(st.lists(st.sampled_from(types), min_size=1, max_size=4))
    values = [data.draw(st.lists(values_of(each), min_size=3, max_size=3)) for each in chosen]
    batch = pa.RecordBatch.from_arrays(
        [to_stored(*each) for each in zip(chosen, values, strict=True)],
        names=[str(index) for index in range(len(chosen))],
    )
    left, right = np.arange(pairs) % 3, np.arange(pairs) // 3 % 3
    expected = [
        place
        for place, (one, other) in enumerate(zip(left, right, strict=True))
        if all(equal(of_column[one], of_column[other]) for of_column in values)
    ]
    assert equal_at(chosen, batch, left, right).tolist() == expected


# --------------------------------------------------------------------------------------------------
# Canonical values pass and convert to Arrow; values that Arrow cannot convert are refused
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
