"""What ``order="source"`` does to the changes of one key group: which of them are redeliveries.

A connector that restarts writes again what it wrote before, from an earlier point on. Each change carries its place in the source's
log (`Position`), and two facts tell first deliveries from redeliveries: a Kafka partition delivers a history in its order, and what
is delivered again carries the same position and clock as the first time. So the state keeps, for each Kafka partition and history,
how far it came (`Epoch`), and for each key the epoch and place of its last accepted change.

**Epochs.** Positions compare within one epoch of a Kafka partition: a stretch of one history without another history in between and
without a reset of the log. Epochs are numbered as they begin. A change is of

====================================================================================  ==============================================
a history that its partition never delivered                                          a new epoch, always
a later clock than all of its history, in a place at or before the epoch's mark       a new epoch: the log was reset, or read again
                                                                                      (RESET MASTER, a restored server, a snapshot)
a place after all that was delivered of its history, or after the mark of the         the history's epoch; if another history came in
present log, or with a later clock                                                    between (failback), a new epoch
the present log (its clock is after the reset) and of the history's newest epoch      that epoch: the key decides
else                                                                                  the past: it was delivered before
====================================================================================  ==============================================

**Keys.** The first three are first deliveries. Of a change whose key decides: accepted where nothing is stored of the key, where the
key's epoch is older, or where it is the same and the change's place is after the key's; dropped otherwise. A change of the past is
accepted only where nothing is stored of the key. Where the key was stored from another Kafka partition (the topic was repartitioned,
the row moved), places compare if the history is the same, unless the clock is later than all that the other partition delivered;
another history is accepted.

**Without a position** (PostgreSQL's incremental snapshot): such a read takes the place that its partition has come to, and begins an
epoch. Reads come in the order of their own clock: one with an earlier clock than the last read, or than the changes of its history, is of
the past; one with a later clock is a first delivery; of one with the very clock of the last read the key decides, unless a change with a
position came in between. Without a clock too, a change is accepted as it arrives, and whatever comes next for its key is accepted (so a
redelivery leaves a trace, and ends in the right row).

It follows that a change with a position is taken for a redelivery only if its partition delivered, of its history, a place at or after
its own *and* a clock at or after its own (or there is no clock): a new history, a failover to a server whose clock lags, a log that goes
on are never dropped. What it cannot tell, for want of evidence:

- A reset of the log shows by the clock alone. Changes after it whose clock is not later than all that the partition delivered of the
  history before (within the clock's resolution: a second in MySQL; or a clock that was set back; or no clock) are taken for
  redeliveries until they pass the old log's last place.
- A history that begins with a clock not after the first of its partition in this key group is either older than the query (a redelivery
  that reaches back to before its start), or of a server whose clock lags by more than that. Its changes are accepted, and until its clock
  has passed what the partition had delivered, whatever comes next for their keys: a redelivery may leave a trace, and ends in the right
  row. Where such a redelivery reaches back over a reset of the log, over a failover between servers whose clocks disagree, or to changes
  whose clock is later than all that was delivered since the start, it is not known for what it is, and a key may keep an older row
  until its next change.
- Of two changes of one key in one place, with one clock, the second is taken for the first. No producer writes such a pair: the delete
  and the insert of a changed primary key share a place, but not the key.
- A read whose clock is before its history's (a connector's clock behind the database's) is dropped where its key is known: its row is
  what the key's was.
- A key that is forgotten (state TTL, `delete_retention`) is a key of which nothing is stored.
- A redelivery through another partition than the first time is told by the key alone: if the key's own partition has begun
  another epoch since, it is accepted.

Size: one `Epoch` for each pair of Kafka partition and history, whatever happens; a key whose epoch has ended refers to a number that no
epoch has any more, and needs no more than that. So nothing is pruned, and `renumbered` keeps the numbers small.

Two things differ from a list of all epochs: two servers that take turns (several primaries, snapshots with a history of their own) do
not make it grow, and what tells a reset is the clock of the history itself: another server's, which may be ahead, says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Generic, NamedTuple, TypeVar

import msgspec

from cdc_formats.position import Position

Code = TypeVar("Code", bound=Hashable)
Place = tuple[int, int]
KeyOrder = tuple[int, int, int]
"""What is stored of a key, deleted or not: the number of its epoch, and its last place, high and low."""

UNORDERED: KeyOrder = (0, 0, 0)
"""Of a key whose last change had no place: whatever comes next is accepted."""

_ORIGIN: Place = (0, 0)
_BEFORE_ALL: Place = (-1, 0)
_FIRST, _RESET, _OF_THE_EPOCH, _OF_THE_PAST = range(4)


class Epoch(msgspec.Struct, array_like=True, gc=False):
    """How far a Kafka partition came in a history, as the key group saw it.

    Attributes
    ----------
    source : str
        The Kafka partition: ``topic[partition]``.
    history : str
        As in `Position`.
    number : int
        Of the history's newest epoch; from 1, in the order in which epochs began, over all partitions.
    floor : (int, int)
        Where the epoch begins: after this place.
    mark : (int, int)
        The last place that was delivered of it.
    top : (int, int)
        The last place of the history in all its logs; after a reset it may be after `mark`.
    since_ms, clock_ms : int or None
        The clock of the history's first change, and the latest clock of its changes with a position.
    reset_ms : int or None
        `clock_ms` as it was at the last reset of the log.
    trusted_ms : int or None
        Keys keep no place of changes whose clock is not later (see the module).
    read_ms : int or None
        The clock of the last change without a position.
    reading : bool
        Whether the history's last first delivery was such a change.
    """

    source: str
    history: str
    number: int
    floor: Place
    mark: Place
    top: Place
    since_ms: int | None = None
    clock_ms: int | None = None
    reset_ms: int | None = None
    trusted_ms: int | None = None
    read_ms: int | None = None
    reading: bool = False


class FirstDeliveries(NamedTuple, Generic[Code]):
    """Which changes are first deliveries, and what is to be stored.

    Attributes
    ----------
    accepted : list of bool
        For each change whether it is one; the others are redeliveries.
    keys : dict of Code to KeyOrder
        What is to be stored of the keys that had one.
    epochs : list of Epoch
        What is to be stored of the key group.
    """

    accepted: list[bool]
    keys: dict[Code, KeyOrder]
    epochs: list[Epoch]


def first_deliveries(
    changes: Iterable[tuple[Code, str, Position | None]], epochs: Iterable[Epoch], stored: Callable[[Code], KeyOrder | None]
) -> FirstDeliveries[Code]:
    """Tell the first deliveries among a key group's changes from redeliveries.

    Parameters
    ----------
    changes : iterable of (Code, str, Position or None)
        Of each change its key (or any code of it), its Kafka partition (``topic[partition]``) and its position, in the order of arrival;
        changes of one Kafka partition in the order of offsets.
    epochs : iterable of Epoch
        As the last call returned them; none at first. They are left as they are.
    stored : callable
        From a key to what is stored of it, None where nothing is: a dict's ``get``. Deleted keys are stored as long as a late change must
        not bring them back.

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
        after = group.accept(source, position, keys.get(code) or stored(code))
        accepted.append(after is not None)
        if after is not None:
            keys[code] = after
    return FirstDeliveries(accepted, keys, group.epochs)


def renumbered(epochs: Sequence[Epoch]) -> tuple[list[Epoch], list[int]]:
    """Give epochs the smallest numbers that keep their order.

    Parameters
    ----------
    epochs : sequence of Epoch

    Returns
    -------
    (epochs, numbers) : (list of Epoch, list of int)
        With n epochs the new numbers, those of keys included, are at most 2 n. A key's number becomes ``searchsorted(numbers, number,
        "left") + searchsorted(numbers, number, "right") - 1``, which is 0 for 0.

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
    """The epochs of a key group while changes come in."""

    def __init__(self, epochs: Iterable[Epoch]) -> None:
        self.epochs = [copy(epoch) for epoch in epochs]
        self._by_history = {(epoch.source, epoch.history): epoch for epoch in self.epochs}
        self._by_number = {epoch.number: epoch for epoch in self.epochs}
        self._newest = {epoch.source: epoch for epoch in sorted(self.epochs, key=_number)}
        self._last = max(self._by_number, default=0)

    def accept(self, source: str, position: Position | None, key: KeyOrder | None) -> KeyOrder | None:
        """Return what is to be stored of a change's key, or None for a redelivery."""
        if position is None or (position.high is None and position.clock_ms is None):
            return UNORDERED
        epoch = self._by_history.get((source, position.history))
        if epoch is None:
            epoch, delivery = self._add(source, position), _FIRST
        else:
            delivery = _delivery(epoch, position)
        if delivery is _OF_THE_PAST:
            return None if key is not None and key[0] else UNORDERED
        place = epoch.mark if position.high is None else (position.high, position.low)
        first = delivery is not _OF_THE_EPOCH
        if first:
            self._advance(epoch, place, position, reset=delivery is _RESET)
        if key is not None and key[0] and not self._follows(epoch, place, position.clock_ms, key, first):
            return None
        # A redelivery to a key without a place tells nothing of what the key's last change was.
        unplaced = key is not None and not key[0] and not first
        if unplaced or (epoch.trusted_ms is not None and not _later(position.clock_ms, epoch.trusted_ms)):
            return UNORDERED
        return epoch.number, *place

    def _follows(self, epoch: Epoch, place: Place, clock_ms: int | None, key: KeyOrder, first: bool) -> bool:
        """Return whether a change in a place of `epoch` comes after what is stored of its key."""
        number, high, low = key
        if number == epoch.number:
            return first or place > (high, low)
        other = self._by_number.get(number)
        if other is None or other.source == epoch.source:
            return first or number < epoch.number
        return other.history != epoch.history or place > (high, low) or _later(clock_ms, other.clock_ms)

    def _add(self, source: str, position: Position) -> Epoch:
        """Begin a partition's first epoch of a history; it counts as delivered up to its origin."""
        clock, others = position.clock_ms, [epoch for epoch in self.epochs if epoch.source == source and epoch.trusted_ms is None]
        doubtful = clock is not None and bool(others) and not any(_later(clock, epoch.since_ms) for epoch in others)
        trusted = max((epoch.clock_ms for epoch in others if epoch.clock_ms is not None), default=None) if doubtful else None
        epoch = Epoch(source, position.history, 0, _BEFORE_ALL, _ORIGIN, _ORIGIN, since_ms=clock, trusted_ms=trusted)
        self.epochs.append(epoch)
        self._by_history[source, position.history] = epoch
        return epoch

    def _advance(self, epoch: Epoch, place: Place, position: Position, reset: bool) -> None:
        """Note a first delivery, and begin a new epoch where it does not go on with its partition's newest."""
        if reset:
            epoch.floor, epoch.reset_ms = _BEFORE_ALL, epoch.clock_ms
            self._begin(epoch)
        elif position.high is None or self._newest.get(epoch.source) is not epoch:
            epoch.floor = epoch.mark if epoch.number else self._before_first(epoch.source, place)
            self._begin(epoch)
        epoch.mark = place
        if place > epoch.top:
            epoch.top = place
        epoch.reading = position.high is None
        if epoch.reading:
            epoch.read_ms = position.clock_ms
        elif _later(position.clock_ms, epoch.clock_ms):
            epoch.clock_ms = position.clock_ms

    def _before_first(self, source: str, place: Place) -> Place:
        # What is before a history's first change, and comes after it, is of before the query's start: of the past, if there is one.
        return (place[0], place[1] - 1) if source in self._newest else _BEFORE_ALL

    def _begin(self, epoch: Epoch) -> None:
        self._by_number.pop(epoch.number, None)
        self._last += 1
        epoch.number = self._last
        self._by_number[epoch.number] = self._newest[epoch.source] = epoch


def _delivery(epoch: Epoch, position: Position) -> int:
    """Return which of the four a change is, by what its partition delivered of its history."""
    clock, high = position.clock_ms, position.high
    if high is None:
        return _delivery_of_read(epoch, clock)
    place = (high, position.low)
    if _later(clock, epoch.clock_ms):
        return _FIRST if place > epoch.mark else _RESET
    if place > epoch.top:
        return _FIRST
    if clock is not None and epoch.reset_ms is not None and clock <= epoch.reset_ms:
        return _OF_THE_PAST
    if place > epoch.mark:
        return _FIRST
    return _OF_THE_EPOCH if place > epoch.floor else _OF_THE_PAST


def _delivery_of_read(epoch: Epoch, clock_ms: int | None) -> int:
    if _later(clock_ms, epoch.read_ms):
        return _OF_THE_PAST if _later(epoch.clock_ms, clock_ms) else _FIRST
    return _OF_THE_EPOCH if clock_ms == epoch.read_ms and epoch.reading else _OF_THE_PAST


def _later(clock_ms: int | None, than_ms: int | None) -> bool:
    return clock_ms is not None and (than_ms is None or clock_ms > than_ms)


def _number(epoch: Epoch) -> int:
    return epoch.number
