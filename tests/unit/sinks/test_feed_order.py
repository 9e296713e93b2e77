"""The order of a change feed's rows, and the errors when it is unknown."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats.errors import MissingFieldError
from normalize.tables.change_feed import in_order
from normalize.tables.latest import ChangeOrderError
from tests.support.examples import examples

REMOVES, ADDS = ("-U", "-D"), ("+I", "+U")


def feed(rows: list[tuple[Any, ...]], *names: str) -> pa.Table:
    """A change feed with these columns."""
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("row_kind", *names), map(list, columns), strict=True)))


def test_each_update_is_together_and_commits_are_in_order() -> None:
    changes = feed(
        [("+U", 2, 9), ("+U", 1, 9), ("-U", 2, 9), ("-D", 1, 10), ("+I", 1, 2), ("-U", 1, 9)],
        "id",
        "version",
    )
    ordered = in_order(changes, ["id"], ["version"])
    assert list(zip(*ordered.to_pydict().values(), strict=True)) == [
        ("+I", 1, 2),
        ("-U", 1, 9),
        ("+U", 1, 9),
        ("-U", 2, 9),
        ("+U", 2, 9),
        ("-D", 1, 10),
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, int, int]]:
    """Each key's changes in order: kind, key, commit, and the row's number."""
    rows = []
    for key in ("a", "b", "c"):
        there = False
        for commit in sorted(draw(st.sets(st.integers(0, 5)))):
            kinds = ["-U", "+U"] if draw(st.booleans()) else ["-D", "+I"]
            kept = kinds if there and draw(st.booleans()) else kinds[:1] if there else ["+I"]
            there = kept[-1] in ADDS
            rows += [(kind, key, commit, len(rows) + place) for place, kind in enumerate(kept)]
    return rows


@settings(max_examples=examples(100))
@given(histories(), st.randoms(use_true_random=False))
def test_any_shuffle_of_a_feed_is_put_back(
    rows: list[tuple[str, str, int, int]], random: Random
) -> None:
    if not rows:
        return
    shuffled = random.sample(rows, len(rows))
    ordered = in_order(feed(shuffled, "id", "version", "n"), ["id"], ["version"])
    result = list(zip(*ordered.to_pydict().values(), strict=True))
    assert sorted(result, key=lambda row: row[1]) == rows
    assert [row[2] for row in result] == sorted(row[2] for row in rows)


@pytest.mark.parametrize("kinds", [REMOVES, ADDS, ("+I", "+I")])
def test_two_additions_or_two_removals_of_a_key_have_no_order(kinds: tuple[str, str]) -> None:
    changes = feed([(kinds[0], 1, 5, 0), (kinds[1], 1, 5, 1)], "id", "version", "offset")
    with pytest.raises(ChangeOrderError, match=r"one key \['id'\] .* values in \['version'\]"):
        in_order(changes, ["id"], ["version"])
    assert in_order(changes, ["id"], ["version", "offset"]).equals(changes)
    assert in_order(changes, ["id", "offset"], ["version"]).num_rows == 2


def test_a_key_or_an_order_that_is_null() -> None:
    changes = feed([("+I", None, 5), ("+I", 1, None)], "id", "version")
    with pytest.raises(MissingFieldError, match="`id` is part of the primary key and is null"):
        in_order(changes, ["id"], ["version"])
    with pytest.raises(ChangeOrderError, match="version, which orders the changes, is NULL"):
        in_order(changes.slice(1), ["id"], ["version"])
