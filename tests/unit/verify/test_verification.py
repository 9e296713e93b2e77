"""The result of a comparison, and the decision whether a key differs, without Spark."""

from dataclasses import replace

import pytest

from normalize.verify.comparison import Key, Looks, Pair, RowsOfKey
from normalize.verify.verification import KINDS, Difference, Verification

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

        looks = Looks(look, LAG, lambda: self.now, sleep)
        looks.run({("1",): self.pair()})
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


def test_a_source_that_keeps_changing_is_unsettled() -> None:
    looks = Copy({float(time): 5 + time for time in range(1000)}, {0: 4}).looks()
    assert (looks.proven, list(looks.unsettled)) == ({}, [("1",)])


def test_more_rows_than_the_source_are_a_duplicate() -> None:
    pair = Pair(RowsOfKey(1, 5), RowsOfKey(2, 10))
    assert (pair.kind, pair.is_equal) == ("duplicate", False)
