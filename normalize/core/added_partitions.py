"""Partitions that are added to a topic, as facts for the native engine.

Spark keeps the least and the greatest fact of a group.

Each partition is a group. Its facts are text of a kind and numbers of fixed width, so that their
order is that of the numbers:

====================================================  ==============================================
fact                                                  from
====================================================  ==============================================
``0``                                                 the query's first micro-batch: the topic had
                                                      the partition from the beginning
``1``, timestamp, number of the micro-batch           a later micro-batch that reads the partition's
                                                      first record, with its timestamp
``2``, number of the micro-batch, inverted timestamp  each micro-batch, with the least timestamp of
                                                      the partitions before this one. The greatest
                                                      fact is that of the newest micro-batch
====================================================  ==============================================

A record of an older partition is late if its timestamp is less than that of the first record of an
added one, which an earlier micro-batch read: a key that moved to the added partition has newer
changes there. The guard of key groups (`guard`) compares the same. It also knows which partitions
were added together. Here one of them can be late for the next: in a query that is so far behind,
the older ones are, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

PARTITION = "partition "
"""The names of groups begin with this."""
ORIGINAL, FIRST, OLDER = "0", "1", "2"
WIDTH = 19
"""The digits of a number."""
INVERT = 10**18
"""A timestamp is inverted by its difference to this number."""
_MORE = 16


class FirstRecord(NamedTuple):
    """The first record that a task read from a partition: its offset, and its timestamp in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


def group(topic: str, partition: int) -> str:
    """Return the name of a partition's group."""
    return f"{PARTITION}{topic}[{partition}]"


def most_partitions(count: int) -> int:
    """Return how many partitions a topic may have while a query runs that knows `count` of them."""
    return 2 * count + _MORE


def facts(first: FirstRecord, counts: Mapping[str, int], batch: int) -> Iterator[tuple[str, str]]:
    """Yield the facts of a partition as the names of groups and values.

    Parameters
    ----------
    first : FirstRecord
    counts : mapping
        The number of partitions of each topic when the query started; a topic that is missing is
        not compared.
    batch : int
        The number of the micro-batch.

    Examples
    --------
    >>> list(facts(FirstRecord("t", 1, 0, 70), {"t": 2}, 5))[:2]
    [('partition t[1]', '100000000000000000700000000000000000005'), ('partition t[2]', '200000000000000000050999999999999999930')]
    """
    count = counts.get(first.topic)
    if count is None or first.timestamp < 0:
        return
    if batch == 0:
        yield from ((group(first.topic, partition), ORIGINAL) for partition in range(count))
    elif first.offset == 0 or first.partition >= count:
        yield (
            group(first.topic, first.partition),
            f"{FIRST}{first.timestamp:0{WIDTH}}{batch:0{WIDTH}}",
        )
    if first.partition < count:
        older = f"{OLDER}{batch:0{WIDTH}}{INVERT - first.timestamp:0{WIDTH}}"
        yield from (
            (group(first.topic, partition), older)
            for partition in range(first.partition + 1, most_partitions(count))
        )


def is_late(least: str, greatest: str) -> bool:
    """Return whether an older partition's record is late, by a group's least and greatest fact.

    The native engine computes this in SQL (`native.late_record`).

    Examples
    --------
    >>> since, older = "1" + "90".zfill(19) + "5".zfill(19), "2" + "6".zfill(19) + str(10**18 - 70).zfill(19)
    >>> is_late(since, older), is_late("0", older)
    (True, False)
    """
    if least[:1] != FIRST or greatest[:1] != OLDER:
        return False
    (since, read), (seen, inverted) = (
        (int(text[1 : 1 + WIDTH]), int(text[1 + WIDTH :])) for text in (least, greatest)
    )
    return read < seen and INVERT - inverted < since
