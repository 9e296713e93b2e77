"""The last change of each key among changes that several tasks may have read.

The order is that of `changes.ChangeBatch.of_blocks`: changes of a partition are in the order of
offsets, and partitions are merged by timestamps; equal timestamps are ordered by the partition's
name.

A change may be partial: it lacks columns, which have the values of the change of its key before it.
Then all changes since the last whole one are kept, in each partition, until the changes of all
partitions are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .fold_columns import Bools, Ints
from .guard import PartitionSummary, SourceTable
from .order import RowOrder, unknown_order

METADATA = "metadata"
"""The column with the typed metadata of a last change."""
TABLE, TOPIC = "table", "topic"
"""The names of the facts that tasks find in the records."""


def last_in_partitions(keys: Ints, sources: Ints, offsets: Ints, stamps: Ints) -> tuple[Ints, Ints]:
    """Return the index of each key's last change in each partition, and its monotone timestamp.

    Changes may be reduced in parts, in any order: the result is the same.

    Parameters
    ----------
    keys, sources : array of int
        The key and the Kafka partition of each change, as numbers.
    offsets, stamps : array of int

    Returns
    -------
    (indexes, stamps) : (array of int, array of int)

    Examples
    --------
    >>> indexes, stamps = last_in_partitions(*map(np.array, ([0, 0, 1], [0, 0, 0], [7, 8, 9], [5, 4, 6])))
    >>> indexes.tolist(), stamps.tolist()
    ([1, 2], [5, 6])
    """
    order = np.lexsort((offsets, sources, keys))
    changed = (keys[order][1:] != keys[order][:-1]) | (sources[order][1:] != sources[order][:-1])
    starts = np.flatnonzero(np.append(True, changed))
    return order[np.append(starts[1:], len(order)) - 1], np.maximum.reduceat(stamps[order], starts)


def last_in_records(keys: Ints, offsets: Ints) -> Ints:
    """Return the index of each key's last change in each record; a record's changes are in order.

    Examples
    --------
    >>> last_in_records(*map(np.array, ([0, 0, 1, 0], [7, 7, 7, 8]))).tolist()
    [1, 3, 2]
    """
    order = np.lexsort((offsets, keys))
    is_last = np.append(
        (keys[order][1:] != keys[order][:-1]) | (offsets[order][1:] != offsets[order][:-1]), True
    )
    indexes: Ints = order[is_last[: len(order)]]
    return indexes


def last_of_keys(keys: Ints, sources: Ints, stamps: Ints, row_order: RowOrder) -> Ints:
    """Return the index of the last change of each key, among all changes of `last_in_partitions`.

    Parameters
    ----------
    keys, sources, stamps : array of int
        The numbers of partitions are in the order of their names.
    row_order : {"log", "offset", "row"}

    Raises
    ------
    RowOrderError
        When the order of the last two changes of a key is unknown (`order.RowOrder`).

    Examples
    --------
    >>> last_of_keys(*map(np.array, ([0, 0, 1], [0, 1, 1], [7, 6, 5])), "log").tolist()
    [0, 2]
    """
    order = np.lexsort((sources, stamps, keys))
    arranged, times = keys[order], stamps[order]
    last = np.append(arranged[1:] != arranged[:-1], True)[: len(order)]
    tied = ~last[:-1] & last[1:] & (times[1:] == times[:-1])
    if tied.any() and (row_order == "row" or (row_order == "offset" and not stamps.any())):
        raise unknown_order(row_order)
    indexes: Ints = order[last]
    return indexes


def since_last_whole(
    keys: Ints,
    sources: Ints,
    offsets: Ints,
    stamps: Ints,
    *,
    partial: Bools,
    deleted: Bools,
    moved: Bools,
) -> tuple[Ints, Ints, Bools]:
    """Return each key's last whole change in each partition, and the partial ones after it.

    A partial row whose key changed is always kept. Its values are those of the deleted row of the
    earlier key: the changes that give the row before a delete are kept, too.

    Parameters
    ----------
    keys, sources, offsets, stamps
        Same as in `last_in_partitions`.
    partial : array of bool
        The changes that lack columns.
    deleted : array of bool
        The deletes before which a row is kept; all false: none.
    moved : array of bool
        The partial changes whose key changed.

    Returns
    -------
    (indexes, stamps, earlier) : (array of int, array of int, array of bool)
        As in `last_in_partitions`; `earlier` is true for a change that gives only a deleted row.

    Examples
    --------
    >>> numbers = [*map(np.array, ([0, 0, 0, 0], [0, 0, 0, 0], [6, 7, 8, 9], [3, 5, 4, 6]))]
    >>> none, last = np.zeros(4, bool), np.array([False, False, False, True])
    >>> indexes, stamps, _ = since_last_whole(*numbers, partial=np.array([False, True, False, True]), deleted=none, moved=none)
    >>> indexes.tolist(), stamps.tolist()
    ([2, 3], [5, 6])
    >>> indexes, _, earlier = since_last_whole(*numbers, partial=none, deleted=last, moved=none)
    >>> indexes.tolist(), earlier.tolist()
    ([2, 3], [True, False])
    """
    order = np.lexsort((offsets, sources, keys))
    changed = (keys[order][1:] != keys[order][:-1]) | (sources[order][1:] != sources[order][:-1])
    group = np.cumsum(np.append(0, changed))
    # The running maximum within a group: each group's numbers are above those of the group before
    # it.
    times, ranks = np.unique(stamps[order], return_inverse=True)
    monotone = times[np.maximum.accumulate(ranks + group * len(times)) - group * len(times)]
    indexes, lacks, ends = np.arange(len(order)), partial[order], deleted[order]

    def since(groups: Ints, is_whole: Bools) -> Bools:
        """Return which changes are not before the last whole one of their group."""
        whole = np.full(groups[-1] + 1, -1)
        np.maximum.at(whole, groups, np.where(is_whole, indexes, -1))
        kept: Bools = indexes >= whole[groups]
        return kept

    last = since(group, ~lacks)
    kept = last | moved[order]
    if ends.any():  # a row ends with its delete
        kept |= since(group + np.cumsum(np.append(0, ends[:-1])), ~(lacks | ends))
    return order[kept], monotone[kept], ~last[kept]


def completed(keys: Ints, sources: Ints, stamps: Ints, absent: Bools) -> tuple[Ints, Ints, Ints]:
    """Return where the values of each key's last row are, among the changes of `since_last_whole`.

    Parameters
    ----------
    keys, sources, stamps : array of int
        Same as `last_of_keys`; changes of a partition are in their order.
    absent : array of bool
        A row for each change, with a flag for each column that it lacks.

    Returns
    -------
    (last, bases, indexes) : (array of int, array of int, array of int)
        For each key: the index of its last change; that of its last whole change, or -1; and, in a
        row for each column, the index of the column's value, or -1 if no change has one.

    Examples
    --------
    >>> changes = map(np.array, ([0, 0, 1], [0, 0, 0], [5, 5, 5], [[False, False], [False, True], [False, True]]))
    >>> last, bases, indexes = completed(*changes)
    >>> last.tolist(), bases.tolist(), indexes.tolist()
    ([1, 2], [0, -1], [[1, 2], [0, -1]])
    """
    order = np.lexsort((sources, stamps, keys))
    arranged = keys[order]
    is_last = np.append(arranged[1:] != arranged[:-1], True)
    ends = np.flatnonzero(is_last)
    starts = np.append(0, ends[:-1] + 1)

    def latest(is_one: Any) -> Ints:
        """Return the index of the last of these changes of each key, or -1."""
        newest = np.maximum.accumulate(np.where(is_one[order], np.arange(len(order)), -1))[ends]
        indexes: Ints = np.where(newest >= starts, order[newest], -1)
        return indexes

    indexes = np.array([latest(~of_column) for of_column in absent.T])
    return order[ends], latest(~absent.any(axis=1)), indexes


def table_fact(table: SourceTable) -> tuple[str, str]:
    """Return the name and the value of the fact that all records are of this table."""
    names = ".".join(table.names.values())
    return (TABLE, names) if names else (TOPIC, table.topic)


# --------------------------------------------------------------------------------------------------
# Partitions that are added to a topic, as facts for the native engine.
#
# Spark keeps the least and the greatest fact of a group.
#
# Each partition is a group. Its facts are text of a kind and numbers of fixed width, so that their
# order is that of the numbers:
#
# ====================================================  ==============================================
# fact                                                  from
# ====================================================  ==============================================
# ``0``                                                 the query's first micro-batch: the topic had
#                                                       the partition from the beginning
# ``1``, timestamp, number of the micro-batch           a later micro-batch that reads the partition's
#                                                       first record, with its timestamp
# ``2``, number of the micro-batch, inverted timestamp  each micro-batch, with the least timestamp of
#                                                       the partitions before this one. The greatest
#                                                       fact is that of the newest micro-batch
# ====================================================  ==============================================
#
# A record of an older partition is late if its timestamp is less than that of the first record of an
# added one, which an earlier micro-batch read: a key that moved to the added partition has newer
# changes there. The guard of key groups (`guard`) compares the same. It also knows which partitions
# were added together. Here one of them can be late for the next: in a query that is so far behind,
# the older ones are, too.

PARTITION = "partition "
"""The names of groups begin with this."""
ORIGINAL, FIRST, OLDER = "0", "1", "2"
WIDTH = 19
"""The digits of a number."""
INVERT = 10**18
"""A timestamp is inverted by its difference to this number."""
_MORE = 16


def group(topic: str, partition: int) -> str:
    """Return the name of a partition's group."""
    return f"{PARTITION}{topic}[{partition}]"


def most_partitions(count: int) -> int:
    """Return how many partitions a topic may have while a query runs that knows `count` of them."""
    return 2 * count + _MORE


def partition_facts(
    seen: PartitionSummary, counts: Mapping[str, int], batch: int
) -> Iterator[tuple[str, str]]:
    """Yield the facts of a partition as the names of groups and values.

    Parameters
    ----------
    seen : PartitionSummary
        What a task read from the partition.
    counts : mapping
        The number of partitions of each topic when the query started; a topic that is missing is
        not compared.
    batch : int
        The number of the micro-batch.

    Examples
    --------
    >>> list(partition_facts(PartitionSummary("t", 1, 70), {"t": 2}, 5))[:2]
    [('partition t[1]', '100000000000000000700000000000000000005'), ('partition t[2]', '200000000000000000050999999999999999930')]
    """
    topic, stamp, count = seen.topic, seen.first_stamp, counts.get(seen.topic)
    if count is None or stamp < 0:
        return
    if batch == 0:
        yield from ((group(topic, partition), ORIGINAL) for partition in range(count))
    elif seen.first_offset == 0 or seen.partition >= count:
        yield group(topic, seen.partition), f"{FIRST}{stamp:0{WIDTH}}{batch:0{WIDTH}}"
    if seen.partition < count:
        older = f"{OLDER}{batch:0{WIDTH}}{INVERT - stamp:0{WIDTH}}"
        yield from (
            (group(topic, partition), older)
            for partition in range(seen.partition + 1, most_partitions(count))
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
