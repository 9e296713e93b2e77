"""Positions as bytes: their order is that of positions, in Python and in SQL.

In doubt, no change is a redelivery.
"""

import sqlite3
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats.events import Position
from normalize.core.order import (
    is_redelivery,
    kafka_position,
    not_redelivered,
    redelivery_condition,
    stored_position,
)
from normalize.decode.last_changes import merge_pass

UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.integers(254, 258)
POSITIONS = st.builds(
    Position,
    st.sampled_from(["", "db", "DB", "db ", "a", "\u00e9"]),
    st.none() | UINT64,
    UINT64,
    st.none() | st.integers(-5, 5),
)
"""Positions with bytes of all values, and histories that a collation takes for equal."""
LOG = [Position("db", high, 0, high) for high in range(10)]


def stored(*positions: Position | None) -> list[bytes | None]:
    return [stored_position(position) for position in positions]


def was_delivered_before(position: Position, of_row: Position) -> bool:
    """By definition."""
    if (
        None in (stored_position(position), stored_position(of_row))
        or position.history != of_row.history
    ):
        return False
    # A change without a place is before every place.
    place, row_place = (
        ((each.high is not None), each.high or 0, each.low) for each in (position, of_row)
    )
    return place <= row_place and max(position.clock_ms or 0, 0) <= max(of_row.clock_ms or 0, 0)


@given(position=POSITIONS, of_row=POSITIONS)
def test_bytes_are_compared_as_positions_are(position: Position, of_row: Position) -> None:
    both = stored(position, of_row)
    assert is_redelivery(*both) is was_delivered_before(position, of_row)
    # A database that compares bytes.
    with sqlite3.connect(":memory:") as database:
        ((by_sql,),) = database.execute(
            f"SELECT {redelivery_condition('p', 't')} FROM (SELECT ? AS p, ? AS t)", both
        )
    assert bool(by_sql) is is_redelivery(*both)


@given(places=st.lists(st.tuples(UINT64, UINT64), min_size=2))
def test_bytes_of_one_history_are_in_the_order_of_places(places: list[tuple[int, int]]) -> None:
    of_places = {place: stored_position(Position("db", *place, None)) or b"" for place in places}
    assert sorted(of_places, key=lambda place: of_places[place]) == sorted(of_places)


@pytest.mark.parametrize(
    ("row", "change", "redelivered"),
    [
        pytest.param(
            Position("1", 7, 0, 100), Position("1", 6, 9, 100), True, id="an earlier event"
        ),
        pytest.param(Position("1", 7, 0, 100), Position("1", 7, 0, 100), True, id="the same event"),
        pytest.param(
            Position("1", 7, 0, 100),
            Position("1", 8, 0, 90),
            False,
            id="a later place whose clock lags",
        ),
        pytest.param(
            Position("1", 7, 0, 100), Position("1", 1, 0, 101), False, id="a log that was reset"
        ),
        pytest.param(Position("1", 7, 0, 100), Position("2", 6, 0, 90), False, id="another server"),
        pytest.param(
            Position("1 0-1", 7, 0, 100),
            Position("1 0-2", 6, 0, 100),
            False,
            id="another server's transaction",
        ),
        pytest.param(
            Position("1", 7, 0, 100),
            Position("1", None, 0, 90),
            True,
            id="an earlier read without a place",
        ),
        pytest.param(
            Position("1", 7, 0, 100),
            Position("1", None, 0, 110),
            False,
            id="a later read without a place",
        ),
        pytest.param(
            Position("1", None, 0, 110),
            Position("1", 7, 0, 100),
            False,
            id="an event after a read without a place",
        ),
        pytest.param(Position("1", 7, 0, 100), None, False, id="a change without a position"),
        pytest.param(None, Position("1", 7, 0, 100), False, id="a row without a position"),
        pytest.param(
            kafka_position("t[0]", "x", 7, 100),
            kafka_position("t[0]", "x", 6, 200),
            True,
            id="an earlier record",
        ),
        pytest.param(
            kafka_position("t[0]", "x", 7, 100),
            kafka_position("t[0]", "y", 0, 100),
            False,
            id="a topic that was created again",
        ),
        pytest.param(
            kafka_position("t[0]", "", 7, 100),
            kafka_position("t[0]", "", 0, 200),
            False,
            id="a topic without an id",
        ),
        pytest.param(
            kafka_position("t[0]", "x", 7, 100),
            kafka_position("t[1]", "x", 0, 200),
            False,
            id="another partition",
        ),
    ],
)
def test_only_an_earlier_event_of_one_history_is_a_redelivery(
    row: Position | None, change: Position | None, redelivered: bool
) -> None:
    assert is_redelivery(*stored(change, row)) is redelivered


@given(back=st.lists(st.integers(0, 9)), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_redeliveries_in_any_parts_leave_the_newest_event(back: list[int], cuts: list[int]) -> None:
    """A connector that starts again from earlier and earlier events.

    It always goes on to where it was.
    """
    delivered = list[Position]()
    for at, event in enumerate(LOG, 1):
        delivered.append(event)
        if back:
            start = min(back.pop(), at)
            delivered += LOG[start:at]
    edges = sorted({0, len(delivered), *(cut for cut in cuts if cut < len(delivered))})
    row: bytes | None = None
    highest = 0
    for start, end in pairwise(edges):
        batch = stored(*delivered[start:end])
        *_, last = (
            position
            for position, first in zip(batch, not_redelivered("k" * len(batch), batch), strict=True)
            if first
        )
        row = row if is_redelivery(last, row) else last
        highest = max(highest, *(position.high or 0 for position in delivered[start:end]))
        assert row == stored_position(LOG[highest])


@given(order=st.permutations(range(6)), most=st.sampled_from([1, 3, 100]))
def test_last_change_of_several_partitions_is_the_last_of_the_log(order: Any, most: int) -> None:
    """A key that moved between partitions: Kafka's times are in any order."""
    columns = {
        "key": pa.array([b"k"] * 6, pa.binary()),
        "stamp": pa.array(order),
        "source": pa.array([f"t[{number % 2}]" for number in range(6)]),
        "offset": pa.array(range(6)),
        "position": pa.array(stored(*LOG[:6]), pa.binary()),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    (last,) = [
        row
        for part in merge_pass([batch], row_order="log", most_held=most)
        for row in part.to_pylist()
    ]
    assert last["offset"] == 5
