"""``order="source"``: find the redeliveries among the changes of one key group.

A connector that restarts writes changes again, from an earlier point on. Each change has a
`Position`: the history, which is the identity of the source's log, the log sequence number (LSN:
`high` and `low`), and the source's clock. Two invariants distinguish first deliveries from
redeliveries: a Kafka partition delivers a history in its order, and a redelivery has the same
position as the first delivery. The state therefore stores the progress of each Kafka partition and history
(`Epoch`), and the epoch and LSN of each key's last accepted change.

**Epochs.** Positions are comparable within one epoch of a Kafka partition: a stretch of one history
without another history in between and without a reset of the log. Epochs are numbered as they
begin. The epoch of a change is

====================================================================================  ==============================================
change                                                                                epoch
====================================================================================  ==============================================
of a history that its partition never delivered                                       a new epoch, always
with a later clock than all of its history, at or before the epoch's mark             a new epoch: the log was reset, or read again
                                                                                      (RESET MASTER, a restored server, a snapshot)
after all delivered LSNs of its history, or after the mark of the present log,        the history's epoch; a new one if another
or with a later clock                                                                 history came in between (failback)
of the present log (its clock is after the reset) and the history's newest epoch      that epoch: the key decides
any other                                                                             the past: it was delivered before
====================================================================================  ==============================================

**Keys.** The first three are first deliveries. If the key decides, a change is accepted if nothing
is stored for the key, if the key's epoch is older, or if it is the same and the change's LSN is
after the key's. Otherwise it is dropped. A change of the past is accepted only if nothing is stored
for the key. The key may have been stored from another Kafka partition (the topic was repartitioned,
the row moved). LSNs are then compared if the history is the same, unless the clock is later than
all that the other partition delivered. A change of another history is accepted.

**Without a position** (PostgreSQL's incremental snapshot): such a read gets the last LSN of its
partition, and begins an epoch. Reads arrive in the order of their own clock:

- one with an earlier clock than the last read, or than the changes of its history, is of the past;
- one with a later clock is a first delivery;
- for one with the same clock as the last read the key decides, unless a change with a position came
  in between.

Without a position and a clock a change is accepted as it arrives, and so is the next change of its
key. A redelivery then leaves a trace, and ends in the right row.

A change with a position is therefore dropped only if its partition has delivered, in its history, a
LSN at or after its own *and* a clock at or after its own (or there is no clock). A new history, a
failover to a server whose clock lags, and a log that continues are never dropped. These cases
cannot be distinguished:

- Only the clock shows a reset of the log. Changes after it are dropped as redeliveries until they
  pass the old log's last LSN, if their clock is not later than all that the partition delivered
  of the history before. (The clock's resolution is a second in MySQL; the clock may have been set
  back, or be missing.)
- A history may begin with a clock that is not after the first of its partition in this key group.
  Either it is older than the query (a redelivery from before its start), or its server's clock lags
  by more than that. Its changes are accepted, and so are the next changes of their keys, until its
  clock has passed what the partition had delivered. A redelivery may leave a trace, and ends in the
  right row. It is not recognized if it reaches back over a reset of the log, over a failover
  between servers whose clocks disagree, or to changes whose clock is later than all that was
  delivered since the start: a key may then keep an older row until its next change.
- If two changes of one key have the same LSN and clock, the second is dropped. No producer writes
  such a pair: the delete and the insert of a changed primary key share an LSN, but not the key.
- A read whose clock is before its history's (a connector's clock behind the database's) is dropped
  if its key is known: its row is the key's row.
- A forgotten key (state TTL, `delete_retention`) counts as a key for which nothing is stored.
- A redelivery through another partition than the first delivery is recognized only by its key: if
  the key's own partition has begun another epoch since, it is accepted.

Size: there is always one `Epoch` for each pair of Kafka partition and history. A key whose epoch
has ended refers to a number that no epoch has any more, which is sufficient. So nothing is pruned,
and `renumbered` keeps the numbers small.

Two things differ from a list of all epochs. Two servers that take turns (several primaries,
snapshots with a separate history) do not make it grow. A reset is detected by the clock of the
history itself, not by another server's, which may be ahead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.errors import ChangelogError
from cdc_formats.events import Position

Code = TypeVar("Code", bound=Hashable)
Lsn = tuple[int, int]
"""A log sequence number: `Position.high` and `Position.low`."""
KeyOrder = tuple[int, int, int]
"""The stored order of a key, deleted or not: the number of its epoch, and its last LSN, high and
low."""

UNORDERED: KeyOrder = (0, 0, 0)
"""The order of a key whose last change had no LSN: the next change is accepted."""

_NEW: KeyOrder = (-1, 0, 0)
"""The order of a key without a stored one."""

_ORIGIN: Lsn = (0, 0)
_BEFORE_ALL: Lsn = (-1, 0)
_FIRST, _RESET, _OF_THE_EPOCH, _OF_THE_PAST = range(4)


class Epoch(msgspec.Struct, array_like=True, gc=False):
    """The progress of a Kafka partition in a history, in one key group.

    Attributes
    ----------
    source : str
        The Kafka partition: ``topic[partition]``.
    history : str
        As in `Position`.
    number : int
        The number of the history's newest epoch; from 1, in the order in which epochs began, over
        all partitions.
    floor : (int, int)
        The epoch begins after this LSN.
    mark : (int, int)
        The last delivered LSN of the epoch.
    top : (int, int)
        The last delivered LSN of the history in all its logs; after a reset it may be after
        `mark`.
    since_ms, clock_ms : int or None
        The clock of the history's first change, and the latest clock of its changes with a
        position.
    reset_ms : int or None
        `clock_ms` as it was at the last reset of the log.
    trusted_ms : int or None
        Keys do not store the LSN of changes whose clock is not later (see the module).
    read_ms : int or None
        The clock of the last change without a position.
    reading : bool
        Whether the history's last first delivery was such a change.
    """

    source: str
    history: str
    number: int
    floor: Lsn
    mark: Lsn
    top: Lsn
    since_ms: int | None = None
    clock_ms: int | None = None
    reset_ms: int | None = None
    trusted_ms: int | None = None
    read_ms: int | None = None
    reading: bool = False


class FirstDeliveries(NamedTuple):
    """The first deliveries among changes, and the new state.

    Attributes
    ----------
    accepted : list of bool
        Whether each change is a first delivery; the others are redeliveries.
    keys : dict of key to KeyOrder
        The new state of each key with a first delivery.
    epochs : list of Epoch
        The new state of the key group.
    """

    accepted: list[bool]
    keys: dict[Any, KeyOrder]  # Python 3.10 has no generic NamedTuple
    epochs: list[Epoch]


def first_deliveries(
    changes: Iterable[tuple[Code, str, Position | None]],
    epochs: Iterable[Epoch],
    stored: Callable[[Code], KeyOrder | None],
) -> FirstDeliveries:
    """Return which of a key group's changes are first deliveries, not redeliveries.

    Parameters
    ----------
    changes : iterable of (Code, str, Position or None)
        The key (or any code for it), Kafka partition (``topic[partition]``) and position of each
        change, in the order of arrival; changes of one Kafka partition in the order of offsets.
    epochs : iterable of Epoch
        The epochs that the last call returned; empty at first. They are not changed.
    stored : callable
        Returns the stored order of a key, or None: a dict's ``get``. Deleted keys stay stored while
        a late change must not restore them.

    Returns
    -------
    FirstDeliveries

    Examples
    --------
    >>> changes = [("k", "t[0]", Position("db", high, 0, 1_000 + high)) for high in (1, 2, 1, 2, 3)]
    >>> first_deliveries(changes, [], {}.get).accepted
    [True, True, False, False, True]
    """
    group = _KeyGroup(epochs)
    accepted: list[bool] = []
    keys: dict[Code, KeyOrder] = {}
    for code, source, position in changes:
        after = group.accept(source, position, keys.get(code) or stored(code) or _NEW)
        accepted.append(after is not None)
        if after is not None:
            keys[code] = after
    return FirstDeliveries(accepted, keys, group.epochs)


def is_ordered(position: Position | None) -> TypeGuard[Position]:
    """Whether a change has a position or a clock; otherwise it is accepted as it arrives."""
    return position is not None and (position.high is not None or position.clock_ms is not None)


def renumbered(epochs: Sequence[Epoch]) -> tuple[list[Epoch], list[int]]:
    """Return epochs with the smallest numbers that keep their order.

    Parameters
    ----------
    epochs : sequence of Epoch

    Returns
    -------
    (epochs, numbers) : (list of Epoch, list of int)
        With n epochs the new numbers, those of keys included, are at most 2 n. A key's number
        becomes
        ``searchsorted(numbers, number, "left") + searchsorted(numbers, number, "right") - 1``,
        which is 0 for 0.

    Examples
    --------
    >>> epochs = [Epoch("t[0]", "db", number, (-1, 0), (5, 0), (5, 0)) for number in (70, 90)]
    >>> renewed, numbers = renumbered(epochs)
    >>> [epoch.number for epoch in renewed], numbers
    ([2, 4], [0, 70, 90])
    """
    numbers = [0, *sorted(epoch.number for epoch in epochs)]
    new = {number: 2 * index for index, number in enumerate(numbers)}
    return [msgspec.structs.replace(epoch, number=new[epoch.number]) for epoch in epochs], numbers


class _KeyGroup:
    """The epochs of a key group while changes are processed."""

    def __init__(self, epochs: Iterable[Epoch]) -> None:
        self.epochs = [copy(epoch) for epoch in epochs]
        self._by_history = {(epoch.source, epoch.history): epoch for epoch in self.epochs}
        self._by_number = {epoch.number: epoch for epoch in self.epochs}
        self._newest = {
            epoch.source: epoch for epoch in sorted(self.epochs, key=attrgetter("number"))
        }
        self._last = max(self._by_number, default=0)

    def accept(self, source: str, position: Position | None, key: KeyOrder) -> KeyOrder | None:
        """Return the new order of a change's key, or None for a redelivery."""
        if not is_ordered(position):
            return UNORDERED
        epoch = self._by_history.get((source, position.history))
        if epoch is None:
            epoch, delivery = self._add(source, position), _FIRST
        else:
            delivery = _delivery(epoch, position)
        # A redelivery to a key without an LSN says nothing about the key's last change.
        if delivery is _OF_THE_PAST or (delivery is _OF_THE_EPOCH and key[0] == 0):
            return None if key[0] > 0 else UNORDERED
        lsn = epoch.mark if position.high is None else (position.high, position.low)
        first = delivery is not _OF_THE_EPOCH
        if first:
            self._advance(epoch, lsn, position, reset=delivery is _RESET)
        if key[0] > 0 and not self._follows(epoch, lsn, position.clock_ms, key, first):
            return None
        if epoch.trusted_ms is None or _later(position.clock_ms, epoch.trusted_ms):
            return (epoch.number, *lsn)
        return UNORDERED

    def _follows(
        self, epoch: Epoch, lsn: Lsn, clock_ms: int | None, key: KeyOrder, first: bool
    ) -> bool:
        """Return whether a change at an LSN of `epoch` comes after the stored order of its key."""
        number, high, low = key
        if number == epoch.number:
            return first or lsn > (high, low)
        other = self._by_number.get(number)
        if other is None or other.source == epoch.source:
            return first or number < epoch.number
        return (
            other.history != epoch.history or lsn > (high, low) or _later(clock_ms, other.clock_ms)
        )

    def _add(self, source: str, position: Position) -> Epoch:
        """Return a new, first epoch of a partition's history, delivered up to its origin."""
        clock, earlier = (
            position.clock_ms,
            [epoch for epoch in self.epochs if epoch.source == source and epoch.trusted_ms is None],
        )
        doubtful = (
            clock is not None
            and bool(earlier)
            and not any(_later(clock, epoch.since_ms) for epoch in earlier)
        )
        trusted = (
            max((epoch.clock_ms for epoch in earlier if epoch.clock_ms is not None), default=None)
            if doubtful
            else None
        )
        epoch = Epoch(
            source,
            position.history,
            0,
            _BEFORE_ALL,
            _ORIGIN,
            _ORIGIN,
            since_ms=clock,
            trusted_ms=trusted,
        )
        self.epochs.append(epoch)
        self._by_history[source, position.history] = epoch
        return epoch

    def _advance(self, epoch: Epoch, lsn: Lsn, position: Position, reset: bool) -> None:
        """Store a first delivery, and begin an epoch unless it continues its partition's newest."""
        if reset:
            epoch.floor, epoch.reset_ms = _BEFORE_ALL, epoch.clock_ms
            self._begin(epoch)
        elif position.high is None or self._newest.get(epoch.source) is not epoch:
            if epoch.number:
                epoch.floor = epoch.mark
            elif epoch.source in self._newest:
                # A change before a history's first one that arrives later is from before the
                # query's start: of the past, if there is one.
                epoch.floor = (lsn[0], lsn[1] - 1)
            else:
                epoch.floor = _BEFORE_ALL
            self._begin(epoch)
        epoch.mark = lsn
        if lsn > epoch.top:
            epoch.top = lsn
        epoch.reading = position.high is None
        if epoch.reading:
            epoch.read_ms = position.clock_ms
        elif _later(position.clock_ms, epoch.clock_ms):
            epoch.clock_ms = position.clock_ms

    def _begin(self, epoch: Epoch) -> None:
        self._by_number.pop(epoch.number, None)
        self._last += 1
        epoch.number = self._last
        self._by_number[epoch.number] = self._newest[epoch.source] = epoch


def _delivery(epoch: Epoch, position: Position) -> int:
    """Return which of the four kinds a change is, by its partition's progress in its history."""
    clock, high = position.clock_ms, position.high
    if high is None:
        return _delivery_of_read(epoch, clock)
    lsn = (high, position.low)
    if _later(clock, epoch.clock_ms):
        return _FIRST if lsn > epoch.mark else _RESET
    if lsn > epoch.top:
        return _FIRST
    if clock is not None and epoch.reset_ms is not None and clock <= epoch.reset_ms:
        return _OF_THE_PAST
    if lsn > epoch.mark:
        return _FIRST
    return _OF_THE_EPOCH if lsn > epoch.floor else _OF_THE_PAST


def _delivery_of_read(epoch: Epoch, clock_ms: int | None) -> int:
    if _later(clock_ms, epoch.read_ms):
        return _OF_THE_PAST if _later(epoch.clock_ms, clock_ms) else _FIRST
    return _OF_THE_EPOCH if clock_ms == epoch.read_ms and epoch.reading else _OF_THE_PAST


def _later(clock_ms: int | None, than_ms: int | None) -> bool:
    return clock_ms is not None and (than_ms is None or clock_ms > than_ms)


# --------------------------------------------------------------------------------------------------
# The order of records in a DataFrame, and the error when the order of a key's records is unknown.
#
# ===========  =====================================================  ================================
# order        the records of a partition of the DataFrame            the order of a key's records
# ===========  =====================================================  ================================
# ``log``      are those of one Kafka partition, in order             by offset; partitions are merged
#                                                                     by timestamp
# ``offset``   have ``partition`` and ``offset``, in any order        the same
# ``row``      are in order (a stream), or in any order (bounded)     a stream: by row; bounded, and
#                                                                     between partitions: by timestamp
# ===========  =====================================================  ================================
#
# The order is unknown, and an error, if
#
# - with ``offset``, there are no timestamps, and two Kafka partitions have a key;
# - with ``row``, two partitions of the DataFrame (in a bounded one, two records) have a key with the
#   same timestamp, or without one.

RowOrder = Literal["log", "offset", "row"]


class RowOrderError(ChangelogError, ValueError):
    """The order of a key's records is unknown."""

    condition = "ROW_ORDER"


_UNKNOWN = {
    "offset": (
        "two records of one key are in two Kafka partitions, and their order is unknown: add the "
        "column timestamp to the DataFrame"
    ),
    "row": "two records of one key have the same timestamp, or none, and their order is unknown: add "
    "the columns partition and offset to the DataFrame",
}


def unknown_order(row_order: RowOrder) -> RowOrderError:
    """Return the error for records of one key whose order is unknown."""
    return RowOrderError(_UNKNOWN[row_order])


def require_known_order(
    keys: Sequence[pa.Array], stamps: Sequence[Any], row_order: RowOrder
) -> None:
    """Raise an error if two partitions have a key with the same timestamp.

    If there is a timestamp of Kafka, it decides.

    Parameters
    ----------
    keys, stamps : sequence of arrays
        The packed keys and the timestamps of the changes, one array for each partition of Kafka or
        of the DataFrame.
    row_order : {"log", "offset", "row"}

    Raises
    ------
    RowOrderError
    """
    if (
        len(keys) < 2
        or row_order == "log"
        or (row_order == "offset" and any(each.any() for each in stamps))
    ):
        return
    partitions = np.repeat(np.arange(len(keys)), [len(each) for each in keys])
    changes = pa.table(
        {"key": pa.chunked_array(keys), "stamp": np.concatenate(stamps), "partition": partitions}
    )
    shared = changes.group_by(["key", "stamp"]).aggregate([("partition", "count_distinct")])
    if (pc.max(shared.column("partition_count_distinct")).as_py() or 0) > 1:
        raise unknown_order(row_order)


# --------------------------------------------------------------------------------------------------
# Positions of changes as bytes, and the comparison of a change with the stored row.
#
# A table stores the positions beside each row.
#
# =====  ======  ================================================================
# bytes  number  content
# =====  ======  ================================================================
# 0      1       1 if the change has an LSN, 0 if it only has a clock
# 1      16      the LSN: `Position.high` and `Position.low`, big-endian
# 17     8       the clock in ms, big-endian; 0 without one
# 25     any     the history, in UTF-8
# =====  ======  ================================================================
#
# Within a history, bytes 0 to 16 have the order of the LSNs. Every database compares bytes in this
# order, without a collation.
#
# A change is a redelivery if the stored position has the same history, an LSN at or after its own,
# and a clock at or after its own. Positions of two histories are not compared (a failover, a
# snapshot, a topic that was created again). A log that was reset has smaller LSNs and later clocks.
# A change that only has a clock (a read of an incremental snapshot) is before every LSN. A change
# without an LSN and a clock has the position NULL, for which no comparison is true.
#
# A change in doubt is applied, and may set its row back. A redelivery goes on to the newest event, so
# that the events after it replace the row again.

_pack = struct.Struct(">BQQQ").pack
_CLOCK, _HISTORY = 17, 25
_LATEST_CLOCK = 2**64 - 1


def stored_position(position: Position | None) -> bytes | None:
    """Return a position as bytes; None for a change without an LSN and a clock.

    Examples
    --------
    >>> stored_position(Position("db", 1, 2, 3)).hex()
    '010000000000000001000000000000000200000000000000036462'
    """
    if not is_ordered(position):
        return None
    clock = min(max(position.clock_ms or 0, 0), _LATEST_CLOCK)
    return (
        _pack(position.high is not None, position.high or 0, position.low, clock)
        + position.history.encode()
    )


def kafka_position(source: str, topic_id: str, offset: int, timestamp_ms: int) -> Position:
    """Return the position of a record in its topic, for formats without positions.

    Offsets of a topic that was created again begin at 0. The topic's id distinguishes them, or,
    without it, the record's time.

    Examples
    --------
    >>> kafka_position("orders[0]", "", 7, 1_000)
    Position(history='orders[0] ', high=0, low=7, clock_ms=1000)
    """
    return Position(f"{source} {topic_id}", 0, offset, None if topic_id else timestamp_ms)


def is_redelivery(position: bytes | None, stored: bytes | None) -> bool:
    """Return whether a change was delivered before the stored row.

    Parameters
    ----------
    position, stored : bytes or None
        Same as `stored_position`.

    Examples
    --------
    >>> first, second = (stored_position(Position("db", high, 0, None)) for high in (1, 2))
    >>> is_redelivery(first, second), is_redelivery(second, second), is_redelivery(second, first)
    (True, True, False)
    """
    if position is None or stored is None or position[_HISTORY:] != stored[_HISTORY:]:
        return False
    return (
        position[:_CLOCK] <= stored[:_CLOCK]
        and position[_CLOCK:_HISTORY] <= stored[_CLOCK:_HISTORY]
    )


def redelivery_condition(position: str, stored: str, *, digits: int = 1) -> str:
    """Return the SQL condition of `is_redelivery` for two columns: NULL if one of them is NULL.

    Parameters
    ----------
    position, stored : str
    digits : int
        2: the columns are hexadecimal text, which has the order of the bytes.

    Examples
    --------
    >>> print(redelivery_condition("s.p", "t.p").replace(" AND", chr(10) + "AND"))
    substring(s.p, 26) = substring(t.p, 26)
    AND substring(s.p, 1, 17) <= substring(t.p, 1, 17)
    AND substring(s.p, 18, 8) <= substring(t.p, 18, 8)
    """

    def compared(operator: str, start: int, end: int | None = None) -> str:
        # Numbers in SQL begin at 1.
        length = "" if end is None else f", {(end - start) * digits}"
        part = f"{start * digits + 1}{length}"
        return f"substring({position}, {part}) {operator} substring({stored}, {part})"

    return " AND ".join(
        [compared("=", _HISTORY), compared("<=", 0, _CLOCK), compared("<=", _CLOCK, _HISTORY)]
    )


def not_redelivered(keys: Iterable[Hashable], positions: Iterable[bytes | None]) -> list[bool]:
    """Return which changes of a micro-batch do not redeliver earlier ones of the same key.

    Parameters
    ----------
    keys : iterable of hashable
        The key of each change.
    positions : iterable of bytes or None
        The position of each change, in the order of arrival.

    Examples
    --------
    >>> positions = [stored_position(Position("db", high, 0, None)) for high in (1, 2, 1, 3)]
    >>> not_redelivered("kkkk", positions)
    [True, True, False, True]
    """
    first = []
    newest: dict[Hashable, bytes | None] = {}
    for key, position in zip(keys, positions, strict=True):
        first.append(not is_redelivery(position, newest.get(key)))
        if first[-1]:
            newest[key] = position
    return first
