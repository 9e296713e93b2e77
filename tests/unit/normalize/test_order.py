"""Detection of redeliveries: random histories, and cases reported by users."""

import sqlite3
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats.errors import PartitionsAddedError
from cdc_formats.events import Position
from cdc_formats.topics.client import TopicDescription
from normalize.core.guard import Expected, PartitionSummary, check
from normalize.core.last import is_late, partition_facts
from normalize.core.order import (
    UNORDERED,
    Epoch,
    KeyOrder,
    first_deliveries,
    is_redelivery,
    kafka_position,
    not_redelivered,
    redelivery_condition,
    renumbered,
    stored_position,
)
from normalize.decode.last_changes import merge_pass
from tests.support.examples import examples
from tests.support.states import LAYOUT
from tests.support.strategies import fold_history

FAR = 10**6


class Delivery(NamedTuple):
    """A delivered change; `serial` numbers the changes of the key group."""

    serial: int
    key: int
    source: str
    position: Position | None


@dataclass
class Server:
    """A source server with its log and clock."""

    history: str
    skew: int
    high: int = 0
    low: int = 0
    log_from: int = 0  # no change of the current log has an earlier clock
    latest: int = 0


@dataclass
class State:
    """The stage's state of a key group between micro-batches."""

    keys: dict[int, KeyOrder] = field(default_factory=dict)
    epochs: bytes = msgspec.msgpack.encode([])

    def batch(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return accepted changes; store the state as bytes with small numbers, like the stage."""
        epochs = msgspec.msgpack.decode(self.epochs, type=list[Epoch])
        result = first_deliveries(
            [(change.key, change.source, change.position) for change in deliveries],
            epochs,
            self.keys.get,
        )
        smaller, numbers = renumbered(result.epochs)
        self.epochs = msgspec.msgpack.encode(smaller)
        self.keys |= result.keys
        self.keys = {
            key: (bisect_left(numbers, number) + bisect_right(numbers, number) - 1, high, low)
            for key, (number, high, low) in self.keys.items()
        }
        assert all(0 <= number <= 2 * len(smaller) for number, _, _ in self.keys.values())
        return [
            change for change, accepted in zip(deliveries, result.accepted, strict=True) if accepted
        ]


@st.composite
def histories(
    draw: st.DrawFn,
    lag: int = FAR - 1,
    ahead: int = 8,
    jitter: int = 3,
    steps: str = "write tie failover server reset read",
) -> list[Delivery]:
    """Draw what a source writes to Kafka, in order.

    It has several keys and partitions, failover, failback, resets of the log, and reads.

    Left out, because no stage could detect them:

    - a reset whose changes have clocks of the old log (`Server.log_from`)
    - a server whose clock lags behind the first change of the partition (the first has clock 0;
      `lag` is less than the time since)
    - two changes of one key at one position
    - reads whose clock is before delivered changes, or that come between two changes at one
      position
    - with a redelivery from before the query's start: a reset, and clocks that disagree (`jitter`,
      `lag`, `ahead`)
    """
    partitions = draw(st.integers(1, 3))
    now, servers = FAR, [Server("0", 0)]
    server = servers[0]
    written = [
        Delivery(source, source, f"t[{source}]", Position("0", 0, 1, 0))
        for source in range(partitions)
    ]
    server.low = 1
    taken: set[int] = set()
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.integers(0, 3))
        step = draw(st.sampled_from(["write"] * 8 + steps.split()))
        if step == "failover":
            server = draw(st.sampled_from(servers))
        elif step == "server":
            server = Server(
                str(len(servers)), draw(st.integers(-min(lag, 8), ahead) | st.integers(-lag, ahead))
            )
            servers.append(server)
        elif step == "reset":
            server.log_from = server.latest + 1
            server.high, server.low = 0, draw(st.integers(0, 2))
            now = max(now, server.log_from - server.skew)
        clock = max(server.log_from, now + server.skew - draw(st.integers(0, jitter)))
        if step == "read":
            clock = server.latest = max(server.latest, clock) + 1
            chunk = draw(st.sets(st.integers(0, 4), min_size=1))
            positions = [(key, Position(server.history, None, 0, clock)) for key in sorted(chunk)]
            taken = set(range(5))  # changes after a read have a new position
        else:
            key = draw(st.integers(0, 4))
            if step != "tie" or key in taken or not taken:
                if draw(st.booleans()):
                    server.high, server.low = server.high + draw(st.integers(1, 3)), 0
                else:
                    server.low += 1
                taken, tied = set(), clock
            taken.add(key)
            server.latest = max(server.latest, tied)
            positions = [(key, Position(server.history, server.high, server.low, tied))]
        if step in ("failover", "server", "reset"):
            taken = set(range(5)) if step != "reset" else {key}
        for key, position in positions:
            written.append(Delivery(0, key, f"t[{key % partitions}]", position))
    return [change._replace(serial=serial) for serial, change in enumerate(written)]


@st.composite
def deliveries(
    draw: st.DrawFn, written: st.SearchStrategy[list[Delivery]], to_the_present: bool = False
) -> list[list[Delivery]]:
    """Draw micro-batches as Kafka delivers them, with partitions interleaved and redeliveries.

    Any window of a partition may be redelivered at any time.
    """
    remaining: dict[str, list[Delivery]] = {}
    for change in draw(written):
        remaining.setdefault(change.source, []).append(change)
    delivered: list[Delivery] = []
    done = {source: 0 for source in remaining}
    while open_ones := [source for source in remaining if done[source] < len(remaining[source])]:
        source = draw(st.sampled_from(open_ones))
        end = min(len(remaining[source]), done[source] + draw(st.integers(1, 6)))
        delivered += remaining[source][done[source] : end]
        done[source] = end
        if draw(st.booleans()):
            source = draw(st.sampled_from(sorted(remaining)))
            start = draw(st.integers(0, done[source]))
            stop = done[source] if to_the_present else draw(st.integers(start, done[source]))
            delivered += remaining[source][start:stop]
    cuts = sorted(draw(st.lists(st.integers(0, len(delivered)), max_size=6)))
    return [
        delivered[start:stop]
        for start, stop in zip([0, *cuts], [*cuts, len(delivered)], strict=True)
    ]


def once(batches: list[list[Delivery]]) -> list[Delivery]:
    """The first deliveries, in order."""
    return list(dict.fromkeys(change for batch in batches for change in batch))


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deliveries(histories()))
def test_exactly_the_first_deliveries_are_accepted_in_order(batches):
    state = State()
    assert [change for batch in batches for change in state.batch(batch)] == once(batches)
    epochs = msgspec.msgpack.decode(state.epochs, type=list[Epoch])
    pairs = {(change.source, change.position.history) for change in once(batches)}
    assert sorted((epoch.source, epoch.history) for epoch in epochs) == sorted(pairs)


@settings(max_examples=examples(80), deadline=None)
@given(deliveries(histories(lag=2 * FAR, steps="tie failover server reset"), to_the_present=True))
def test_with_any_clock_lag_no_new_change_is_dropped_and_the_last_one_wins(batches):
    last_wins([change for batch in batches for change in batch], set())


@settings(max_examples=examples(80), deadline=None)
@given(
    deliveries(
        histories(lag=0, ahead=0, jitter=0, steps="tie failover server"), to_the_present=True
    ),
    st.integers(1, 12),
)
def test_a_redelivery_from_before_the_start_of_the_query_drops_nothing_new_and_the_last_change_wins(
    batches, start
):
    before_start = set(once(batches)[:start])
    delivered = [change for batch in batches for change in batch]
    begins = min(
        (index for index, change in enumerate(delivered) if change not in before_start), default=0
    )
    last_wins(delivered[begins:], before_start)


def last_wins(delivered: list[Delivery], before_start: set[Delivery]) -> None:
    """Check that every new change is accepted and that rows end in their last change.

    Redeliveries may leave traces.
    """
    state, seen, last = State(), set(), {}
    for change in delivered:
        accepted = state.batch([change])
        assert accepted or change in seen or change in before_start
        seen.add(change)
        last |= {one.key: one for one in accepted}
    assert last == {
        key: max(change for change in seen if change.key == key)
        for key in {change.key for change in seen}
    }


@st.composite
def anything(draw: st.DrawFn) -> list[tuple[int, str, Position]]:
    """Draw changes in no order at all."""
    position = st.builds(
        Position,
        st.sampled_from("ab"),
        st.integers(0, 4),
        st.integers(0, 1),
        st.none() | st.integers(0, 5),
    )
    keyed = st.tuples(st.integers(0, 2), position)
    return [(key, "t[0]", position) for key, position in draw(st.lists(keyed, max_size=20))]


@settings(max_examples=examples(150), deadline=None)
@given(anything())
def test_a_change_with_a_new_position_or_a_later_clock_is_never_dropped(changes):
    accepted = first_deliveries(changes, [], {}.get).accepted
    for index, (_, _, position) in enumerate(changes):
        before = [other for _, _, other in changes[:index] if other.history == position.history]
        new_place = all((other.high, other.low) < (position.high, position.low) for other in before)
        later = position.clock_ms is not None and all(
            other.clock_ms is None or other.clock_ms < position.clock_ms for other in before
        )
        assert accepted[index] or not (new_place or later)


def at(
    key: int, place: int | None, clock: int | None = None, history: str = "a", source: str = "t[0]"
) -> tuple[int, str, Position]:
    return (
        key,
        source,
        Position(history, place, 0, clock if clock is not None or place is None else 100 + place),
    )


REDELIVERIES = [
    pytest.param(
        [at(1, 1, 5), at(1, 2, 5), at(1, 3, 5), at(1, 2, 5), at(1, 3, 5)],
        "yyynn",
        id="several changes in one millisecond",
    ),
    pytest.param(
        [at(1, 4), at(2, 4), at(1, 4), at(2, 4)],
        "yynn",
        id="the delete and the insert of a changed primary key share a position",
    ),
    pytest.param(
        [at(1, 1), at(2, 9), at(1, 1), at(2, 9), at(1, 10)],
        "yynny",
        id="a redelivery of a key that did not change since",
    ),
    pytest.param(
        [at(1, 1), at(1, 9), at(1, 2, history="b"), at(1, 9), at(1, 2, history="b")],
        "yyynn",
        id="a failover",
    ),
    pytest.param(
        [
            at(1, 1, 100),
            at(1, 9, 500),
            at(1, 2, 300, "b"),
            at(1, 9, 500),
            at(1, 2, 300, "b"),
            at(1, 3, 301, "b"),
        ],
        "yyynny",
        id="a failover to a server whose clock lags",
    ),
    pytest.param(
        [at(1, 9, 500), at(1, 2, 300, "b"), at(1, 9, 500), at(1, 2, 300, "b")],
        "yyyy",
        id="a clock before all delivered ones: a failover, or a redelivery from before the start",
    ),
    pytest.param(
        [at(1, 9), at(1, 2, history="b"), at(1, 11), at(1, 9), at(1, 2, history="b"), at(1, 11)],
        "yyynnn",
        id="a failback",
    ),
    pytest.param(
        [at(1, 9), at(1, 2, history="b"), at(1, 9, 110), at(1, 9), at(1, 2, history="b")],
        "yyynn",
        id="a failback to a log that was reset",
    ),
    pytest.param(
        [at(1, 9, 100), at(1, 2, 101), at(1, 3, 102), at(1, 9, 100), at(1, 2, 101)],
        "yyynn",
        id="a reset of the log",
    ),
    pytest.param(
        [at(1, 9, 100), at(2, 2, 101), at(1, 9, 100), at(1, 3, 102)],
        "yyny",
        id="a reset seen with another key",
    ),
    pytest.param(
        [at(1, 9, 900, "b"), at(1, 9, 100), at(1, 2, 101)],
        "yyy",
        id="a reset on a server whose clock lags behind another's",
    ),
    pytest.param(
        [at(1, 5), (1, "t[0]", None), at(1, 5), at(1, 5)],
        "yyyy",
        id="a redelivery to a key without a place leaves it without one",
    ),
    pytest.param(
        [at(1, 9, 100), at(1, 2, 100)],
        "yn",
        id="a reset within the clock's resolution cannot be detected",
    ),
    pytest.param(
        [at(1, 2, 100), at(2, 2, 100), at(1, 2, 200), at(2, 2, 200)],
        "yyyy",
        id="a second snapshot while nothing was written",
    ),
    pytest.param(
        [at(1, 9), at(1, 3, source="t[1]")],
        "yn",
        id="repartitioned: positions of one history are compared",
    ),
    pytest.param(
        [at(1, 9), at(1, 3, history="b", source="t[1]")],
        "yy",
        id="repartitioned: positions of another history are not compared",
    ),
    pytest.param(
        [at(1, 9), at(1, 3, 200, source="t[1]")], "yy", id="repartitioned, and the log reset"
    ),
    pytest.param(
        [at(1, 9), at(2, 3, source="t[1]"), at(2, 4, source="t[1]")],
        "yyy",
        id="a partition that lags behind another",
    ),
    pytest.param(
        [
            at(1, 5, 100),
            at(1, None, 200),
            at(1, 5, 100),
            at(1, 6, 150),
            at(1, None, 200),
            at(1, 6, 150),
        ],
        "yynynn",
        id="a read",
    ),
    pytest.param(
        [at(1, 5, 100), at(1, None, 100), at(2, None, 100), at(1, None, 100)],
        "yyyn",
        id="reads with the clock of a change",
    ),
    pytest.param(
        [at(1, 5, 100), at(1, None, 90), at(2, None, 90)],
        "yny",
        id="a read older than the state, where the key is known",
    ),
    pytest.param(
        [at(1, 5), at(1, None), at(1, 5)],
        "yyy",
        id="without position and clock: this change and the next are in the order of arrival",
    ),
    pytest.param([at(1, 5), (1, "t[0]", None), at(1, 5)], "yyy", id="without a position at all"),
    pytest.param(
        [at(1, 5), at(2, 2, 110, "b"), at(2, 7), (1, "t[0]", None), at(1, 5)],
        "yyyyy",
        id="without a position, then with an earlier one",
    ),
    pytest.param(
        [at(1, 1, 500, "b"), at(2, 4, 501), at(1, 1, 400), at(1, 1, 500, "b")],
        "yynn",
        id="a failback from before the start of the query",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), REDELIVERIES)
def test_redeliveries_are_distinguished_from_first_deliveries(changes, expected):
    assert (
        "".join("ny"[accepted] for accepted in first_deliveries(changes, [], {}.get).accepted)
        == expected
    )


def changelog(changes: list[tuple[tuple[int, str, Position], str | None]]) -> list[str]:
    """Fold the first deliveries: each change has the row after it."""
    accepted = first_deliveries([change for change, _ in changes], [], {}.get).accepted
    rows = [
        (change[0], None if row is None else (change[0], row))
        for (change, row), new in zip(changes, accepted, strict=True)
        if new
    ]
    return [f"{kind.short_string}{row[0]}{row[1]}" for kind, row in fold_history(rows)]


IN_ONE_MILLISECOND = [(at(1, 1, 7), "a"), (at(1, 2, 7), None), (at(1, 3, 7), "b")]
OF_AN_UPDATE = [(at(1, 1, 50), "a"), (at(1, 2, 60), "b")]
UPDATED = ["+I1a", "-U1a", "+U1b"]
SNAPSHOT = [at(1, 1), at(2, 2), at(1, 8), at(2, 8)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            IN_ONE_MILLISECOND + IN_ONE_MILLISECOND[1:] + IN_ONE_MILLISECOND,
            ["+I1a", "-D1a", "+I1b"],
            id="an insert, a delete and an insert in one millisecond",
        ),
        pytest.param(
            [(at(1, 1), "a"), (at(1, 2), None), (at(1, 3), "b"), (at(1, 2), None)],
            ["+I1a", "-D1a", "+I1b"],
            id="a redelivered delete does not remove a reinserted row",
        ),
        pytest.param(
            [(at(1, 1), "a"), (at(1, 2), "b"), (at(1, 3), None), (at(1, 2), "b")],
            [*UPDATED, "-D1b"],
            id="a late update does not bring a deleted row back",
        ),
        pytest.param([*OF_AN_UPDATE, (at(1, 1, 50), "a")], UPDATED, id="a late insert"),
        pytest.param([*OF_AN_UPDATE, (at(1, None, 55), "a")], UPDATED, id="a late snapshot row"),
        pytest.param(
            list(zip(SNAPSHOT, "abab", strict=True)),
            ["+I1a", "+I2b"],
            id="a snapshot in mid-stream of equal rows",
        ),
    ],
)
def test_redeliveries_leave_no_trace_in_the_changelog(changes, expected):
    assert changelog(changes) == expected


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        pytest.param(SNAPSHOT, {1: (1, 8, 0), 2: (1, 8, 0)}, id="a snapshot in mid-stream"),
        pytest.param([at(1, 5), (1, "t[0]", None)], {1: UNORDERED}, id="without a position"),
    ],
)
def test_the_last_position_of_each_key_is_stored(changes, keys):
    result = first_deliveries(changes, [], {}.get)
    assert (result.accepted, result.keys) == ([True] * len(changes), keys)


def test_epochs_that_are_passed_in_are_not_changed():
    before = first_deliveries([at(1, 1)], [], {}.get).epochs
    bytes_before = msgspec.msgpack.encode(before)
    first_deliveries([at(1, 2), at(1, 3, history="b")], before, {1: (1, 1, 0)}.get)
    assert msgspec.msgpack.encode(before) == bytes_before


def test_alternating_servers_add_no_epochs():
    changes = [at(place, place, history="ab"[place % 2]) for place in range(1, 1_000)]
    result = first_deliveries(changes, [], {}.get)
    assert all(result.accepted)
    assert len(result.epochs) == 2
    smaller, numbers = renumbered(result.epochs)
    assert [epoch.number for epoch in smaller] == [4, 2]
    again = State(
        {
            key: (bisect_left(numbers, n) + bisect_right(numbers, n) - 1, *place)
            for key, (n, *place) in result.keys.items()
        }
    )
    assert first_deliveries(changes, smaller, again.keys.get).accepted == [False] * len(changes)


# --------------------------------------------------------------------------------------------------
# Positions as bytes: their order is that of positions, in Python and in SQL
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


# --------------------------------------------------------------------------------------------------
# Added partitions, late for the native engine exactly when late for the guard of key groups
COUNT = 2
STAMPS = st.lists(st.integers(0, 30), max_size=6).map(sorted)


def by_guard(batches: list[dict[int, tuple[int, int]]], counts: list[int]) -> int | None:
    """The number of the micro-batch that the guard refuses."""
    state = None
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        expected = Expected(topics={"t": TopicDescription("id", count)})
        seen = [
            PartitionSummary("t", partition, stamp, [], offset)
            for partition, (offset, stamp) in batch.items()
        ]
        try:
            state = check(state, seen, LAYOUT, expected, 0)
        except PartitionsAddedError:
            return number
    return None


def by_facts(batches: list[dict[int, tuple[int, int]]], counts: list[int]) -> int | None:
    """The same by the least and the greatest fact of each group, which Spark keeps."""
    kept: dict[str, list[str]] = {}
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        touched = set()
        for partition, first in batch.items():
            offset, stamp = first
            seen = PartitionSummary("t", partition, stamp, first_offset=offset)
            for name, fact in partition_facts(seen, {"t": count}, number):
                kept.setdefault(name, []).append(fact)
                touched.add(name)
        if any(is_late(min(kept[name]), max(kept[name])) for name in touched):
            return number
    return None


@st.composite
def histories_of_added_partitions(
    draw: st.DrawFn, added: int
) -> tuple[list[dict[int, tuple[int, int]]], list[int]]:
    """Draw micro-batches of a topic, and the number of partitions that a query knows in each.

    The topic grows after the first micro-batch.
    """
    partitions = [
        [(offset, stamp) for offset, stamp in enumerate(draw(STAMPS))] for _ in range(COUNT + added)
    ]
    partitions[0] = [(0, 0), *partitions[0]]  # a first micro-batch has a record
    batches: list[dict[int, tuple[int, int]]] = []
    for size in draw(st.lists(st.integers(1, 4), min_size=2, max_size=6)):
        partition_count = COUNT + added if batches else COUNT
        batches.append(
            {
                number: partitions[number][0]
                for number in range(partition_count)
                if partitions[number]
            }
        )
        partitions[:partition_count] = [
            partition[size:] for partition in partitions[:partition_count]
        ]
    restart = draw(st.integers(1, 6))
    return batches, [COUNT if number < restart else COUNT + added for number in range(len(batches))]


@given(histories_of_added_partitions(added=1))
def test_late_records_are_found_where_the_guard_finds_them(
    history: tuple[list[dict[int, tuple[int, int]]], list[int]],
) -> None:
    assert by_facts(*history) == by_guard(*history)


@given(histories_of_added_partitions(added=2))
def test_late_records_are_found_not_later_than_the_guard_finds_them(
    history: tuple[list[dict[int, tuple[int, int]]], list[int]],
) -> None:
    by_key_groups, native = by_guard(*history), by_facts(*history)
    assert by_key_groups is None or (native is not None and native <= by_key_groups)


def test_a_partition_that_was_empty_is_not_an_added_one() -> None:
    batches = [{0: (0, 10)}, {1: (0, 90)}, {0: (1, 70)}]
    assert by_facts(batches, [2, 2, 2]) is None
    assert by_facts(batches, [1, 2, 2]) == 2
