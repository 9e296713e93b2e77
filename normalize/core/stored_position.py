"""Positions of changes as bytes, and the comparison of a change with the stored row.

A table stores the positions beside each row.

=====  ======  ================================================================
bytes  number  content
=====  ======  ================================================================
0      1       1 if the change has a place in the log, 0 if it only has a clock
1      16      the place: `Position.high` and `Position.low`, big-endian
17     8       the clock in ms, big-endian; 0 without one
25     any     the history, in UTF-8
=====  ======  ================================================================

Within a history, bytes 0 to 16 have the order of the places. Every database compares bytes in this
order, without a collation.

A change is a redelivery if the stored position has the same history, a place at or after its own,
and a clock at or after its own. Positions of two histories are not compared (a failover, a
snapshot, a topic that was created again). A log that was reset has smaller places and later clocks.
A change that only has a clock (a read of an incremental snapshot) is before every place. A change
without a place and a clock has the position NULL, for which no comparison is true.

A change in doubt is applied, and may set its row back. A redelivery goes on to the newest event, so
that the events after it replace the row again.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable

from cdc_formats.events import Position

from .order import is_ordered

_pack = struct.Struct(">BQQQ").pack
_CLOCK, _HISTORY = 17, 25
_LATEST_CLOCK = 2**64 - 1


def stored_position(position: Position | None) -> bytes | None:
    """Return a position as bytes; None for a change without a place and a clock.

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
