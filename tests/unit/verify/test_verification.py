"""The result of a comparison, and the decision whether a key differs, without Spark."""

import json
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given, strategies as st
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, VariantType

from cdc_formats import columns
from cdc_formats.values.masks import NO_MASKS
from normalize.core.arrow import arrow_type
from normalize.verify.canonical import compared_column, converted, json_values, masked_column
from normalize.verify.chunk import Key
from normalize.verify.comparison import Looks, Pair, RowsOfKey
from normalize.verify.verification import KINDS, Difference, Verification
from tests.support.error_texts import error_test, text_test

EQUAL = Verification(
    source="shop.products",
    target="lake.products",
    position="binlog.000003:1234",
    source_rows=1000,
    target_rows=1000,
    columns=("id", "name"),
    not_compared=(),
    counts=dict.fromkeys(KINDS, 0),
    unsettled=0,
    differences=(),
    rechecked=0,
    rechecked_position=None,
    repaired=0,
    is_complete=True,
    seconds=1.0,
)
LAG = 60.0


@pytest.mark.parametrize(
    ("changes", "equal", "text"),
    [
        ({}, True, "equal: lake.products and shop.products at binlog.000003:1234"),
        ({"counts": {"missing": 1}}, False, "1 missing"),
        ({"counts": {"missing": 1}, "unsettled": 3}, False, "3 keys differ"),
        ({"counts": {"missing": 2000}, "is_complete": False}, False, "at least 2,000 missing"),
        ({"repaired": 3}, True, "repaired         3 keys"),
        ({"unsettled": 1}, None, "not known"),
        ({"is_complete": False}, None, "too many keys differed"),
    ],
)
def test_equal_is_true_only_if_it_is_known(
    changes: dict[str, object], equal: bool | None, text: str
) -> None:
    result = replace(EQUAL, **changes)  # type: ignore[arg-type]
    assert (result.equal, bool(result)) == (equal, equal is True)
    assert text in str(result)


def test_differences_are_listed_up_to_the_limit_and_cannot_control_the_terminal() -> None:
    difference = Difference("different", (("id", "1\x1b[2J"), ("b", None)), ("na`me",))
    text = str(replace(EQUAL, counts={"different": 5}, differences=(difference,)))
    assert "different  `id` = 1\\x1b[2J, `b` = NULL: `na``me`" in text
    assert "and 4 more" in text


class Copy:
    """A source and a target whose rows change at given times; a number is a row, and 0 is none."""

    def __init__(self, source: dict[float, int], target: dict[float, int]) -> None:
        self.source, self.target, self.now = source, target, 0.0

    def pair(self) -> Pair:
        rows = [
            max((time, row) for time, row in of.items() if time <= self.now)[1]
            for of in (self.source, self.target)
        ]
        return Pair(*(RowsOfKey(int(row != 0), row) for row in rows))

    def looks(self) -> Looks:
        def look(keys: object) -> tuple[dict[Key, Pair], str]:
            return {("1",): self.pair()}, f"at {self.now:g}"

        def sleep(seconds: float) -> None:
            self.now += seconds

        looks = Looks(LAG, lambda: self.now, sleep)
        looks.run(look, {("1",): self.pair()})
        return looks


@pytest.mark.parametrize("late", [0.0, 30.0, 59.0])
def test_a_target_that_is_late_is_equal(late: float) -> None:
    looks = Copy({0: 5}, {0: 4, late: 5}).looks()
    assert (looks.proven, looks.unsettled) == ({}, {})


@pytest.mark.parametrize(
    ("source", "target", "kind"), [(5, 4, "different"), (5, 0, "missing"), (0, 4, "extra")]
)
def test_a_key_that_differs_for_the_longest_lag_is_a_difference(
    source: int, target: int, kind: str
) -> None:
    copy = Copy({0: source}, {0: target})
    looks = copy.looks()
    assert [pair.kind for pair in looks.proven.values()] == [kind]
    assert copy.now == LAG


def test_a_change_of_the_source_starts_the_time_again() -> None:
    copy = Copy({0: 5, 50: 6}, {0: 4, 100: 6})
    assert copy.looks().proven == {}
    assert copy.now > LAG


def test_a_key_differs_only_once_the_target_has_what_the_topics_had_after_the_lag() -> None:
    copy, applied = Copy({0: 5}, {0: 4}), [0.0]
    looks = Looks(LAG, lambda: copy.now, applied=lambda: applied[0])

    def look(keys: object) -> tuple[dict[Key, Pair], str]:
        return {("1",): copy.pair()}, ""

    looks.add({("1",): copy.pair()})
    for now, of_target in ((1000, 0.0), (2000, LAG - 1)):  # the producer, or the query, is behind
        copy.now, applied[0] = now, of_target
        looks.step(look)
        assert (len(looks.pending), looks.proven) == (1, {})
    looks.wait_again()  # it may catch up after an outage
    for applied[0] in (LAG, 2000 + LAG - 1):
        looks.step(look)
        assert (len(looks.pending), looks.proven) == (1, {})
        looks.wait_again()  # not for ever
    applied[0] = 2000 + LAG
    looks.step(look)
    assert (looks.pending, looks.kinds) == ({}, {("1",): "different"})


def test_a_source_that_keeps_changing_is_unsettled() -> None:
    looks = Copy({float(time): 5 + time for time in range(1000)}, {0: 4}).looks()
    assert (looks.proven, list(looks.unsettled)) == ({}, [("1",)])


def test_more_rows_than_the_source_are_a_duplicate() -> None:
    pair = Pair(RowsOfKey(1, 5), RowsOfKey(2, 10))
    assert (pair.kind, pair.is_equal) == ("duplicate", False)


# --------------------------------------------------------------------------------------------------
# The common type of two columns, and the types that are refused
def values(source: str, target: str, *, is_json: bool = False) -> tuple[str, str]:
    """The expressions of both sides of a column."""
    # Spark itself would parse DDL only in a session.
    kinds = [
        from_arrow_type(arrow_type(column.type)) for column in columns(f"a {source}, b {target}")
    ]
    column = compared_column("a", kinds[0], "b", kinds[1], is_json=is_json)
    return column.source_value, column.target_value


@pytest.mark.parametrize(
    ("text", "other", "equal"),
    [
        (' {"b": [1, 2.50], "a": null}', '{"a":null,"b":[1.0,25e-1]}', True),
        ("100", "1E+2", True),
        ("1e400", "10e399", True),
        ("-0.0", "0", True),
        ('"\\u00e9"', '"é"', True),
        (f"{10**49}", "1e49", True),
        ("1e400", "1e401", False),
        (f"{10**40 + 1}", f"{10**40}", False),
        ("0.1", "0.1000000000000000055511151231257827", False),
        ("1", '"1"', False),
        ("[1, 2]", "[2, 1]", False),
        ('{"a": 1, "a": 2}', '{"a": 2, "a": 1}', False),
        ('{"a": 1, "a": 2}', '{"a": 2}', False),
        ('{"a": null}', "{}", False),
        ('[["a", 1]]', '{"a": 1}', False),
        ("NaN", "null", False),
        ("{", "{ ", False),  # no JSON: as it is
        ("1e99999999999999999999", "1e99999999999999999998", False),
        (f"{'1' * 5000}", f"{'1' * 4999}2", False),
        ("[" * 9_000, "[" * 9_001, False),
        ("true", "1", False),
    ],
)
def test_json_is_equal_by_its_values(text: str, other: str, equal: bool) -> None:
    assert (json_values(text) == json_values(other)) is equal


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_json_is_equal_exactly_to_itself_in_another_layout(value: object) -> None:
    texts = json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
    assert json_values(texts[0]) == json_values(texts[1])
    read = json.loads(str(json_values(texts[0])), parse_float=Decimal)
    assert read == value


VARIANT, TEXT = VariantType(), StringType()


def masked(source: str, *, is_json: bool = False) -> object:
    types = [from_arrow_type(arrow_type(each.type)) for each in columns(f"a {source}, b STRING")]
    return masked_column("a", types[0], "b", types[1], NO_MASKS, is_json=is_json)


test_texts = text_test(
    __file__,
    {
        **{
            f"{source} and {target} have a common type": partial(values, source, target)
            for source, target in [
                ("INT", "BIGINT"),
                ("DECIMAL(10,2)", "DECIMAL(8,4)"),
                ("TINYINT", "DECIMAL(38,0)"),
                ("FLOAT", "FLOAT"),
                ("DOUBLE", "DOUBLE"),
                *((kind, kind) for kind in ("STRING", "BINARY", "DATE", "TIMESTAMP_NTZ")),
            ]
        },
        "JSON and a VARIANT": partial(compared_column, "a", TEXT, "b", VARIANT, is_json=True),
        "two VARIANTs": partial(compared_column, "a", VARIANT, "b", VARIANT),
        # A cast would make a string of JSON.
        "a string becomes a VARIANT": partial(converted, "`a`", "string", "variant"),
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"a mask of {kind}": partial(masked, kind)
            for kind in ("DECIMAL(10,2)", "DOUBLE", "TIMESTAMP", "TIMESTAMP_NTZ")
        },
        "a mask of JSON": partial(masked, "STRING", is_json=True),
        "text and a VARIANT": partial(compared_column, "a", TEXT, "b", VARIANT),
        "a VARIANT and text": partial(compared_column, "a", VARIANT, "b", TEXT),
        **{
            f"types without an exact common type are refused, {number}": lambda source=source, target=target: (
                values(source, target)
            )
            for number, (source, target) in enumerate(
                [
                    ("DECIMAL(38,0)", "DECIMAL(38,10)"),
                    ("DOUBLE", "DECIMAL(10,2)"),
                    ("STRING", "BOOLEAN"),
                    ("BOOLEAN", "STRING"),
                    ("STRING", "TIMESTAMP"),
                    ("STRING", "DOUBLE"),
                    ("BINARY", "STRING"),
                    ("DATE", "TIMESTAMP_NTZ"),
                    ("DATE", "TIMESTAMP"),
                    ("ARRAY<INT>", "ARRAY<INT>"),
                ],
                1,
            )
        },
    },
)
