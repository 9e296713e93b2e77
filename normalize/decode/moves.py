"""Rows whose key changed and that lack columns: the row of the earlier key has these.

Few rows of a topic are such rows. The tasks of a micro-batch return the changes of their keys, and of
their earlier keys (`last_changes.MOVED`), and the driver follows each row from change to change and
from key to key. It ends with the change that has the value of each column, or with none. Then the
target has the value, in the row of the key at which the row began (its base).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from normalize.core.fold_columns import Ints
from normalize.core.output import ROW_KIND

from .last_changes import (
    ABSENT,
    MOVED,
    moved_keys,
    numbers_of,
    partial_row,
    without_redeliveries,
)

BASE = "base"
"""The column with the key whose row in the target has the columns that a row lacks."""


def followed(changes: pa.Table) -> pa.Table:
    """Return the last change of each of the `moved_keys`, with the values of the changes before it.

    Parameters
    ----------
    changes : pyarrow.Table
        All changes of these keys and of their earlier keys, with the columns of `TableChanges`.

    Returns
    -------
    pyarrow.Table
        With the column `BASE` in place of `MOVED`.

    Raises
    ------
    PartialImageError
    """
    changes = without_redeliveries(changes, ("key", "source"), ("offset",))
    of_moved = moved_keys(changes).to_pylist()
    changes = without_redeliveries(changes, ("key",), ("stamp", "source", "offset"))
    changes = changes.take(pa.array(in_order(*numbers_of(changes, "source", "offset", "stamp"))))
    keys, texts, kinds, moved, sources, offsets = (
        changes.column(name).to_pylist()
        for name in ("key", ABSENT, ROW_KIND, MOVED, "source", "offset")
    )
    rows = follow_moves(
        keys,
        moved,
        [kind == "-D" for kind in kinds],
        [text and [flag == "1" for flag in text] for text in texts],
        list(zip(sources, offsets, strict=True)),
        max(len(text or "") for text in texts),
    )
    last = {key: index for index, key in enumerate(keys)}
    return _written(changes, [(last[key], rows[key]) for key in of_moved])


def _written(changes: pa.Table, rows: Sequence[tuple[int, Row]]) -> pa.Table:
    """Return rows, each with its last change, with the values of the changes that have them."""
    last, absent, bases = [at for at, _ in rows], list[str | None](), list[bytes | None]()
    written = {
        name: changes.column(name).take(pa.array(last, pa.int64()))
        for name in changes.column_names
        if name != MOVED
    }
    for at, row in rows:
        key = changes.column("key")[at].as_py()
        in_target = [isinstance(value, bytes) for value in row or ()]
        absent.append("".join("01"[each] for each in in_target) if any(in_target) else None)
        earlier = (value for value in row or () if isinstance(value, bytes) and value != key)
        bases.append(next(earlier, None))
    columns = max((len(row) for _, row in rows if row), default=0)
    for index in range(columns):
        # Where no change has a value, the last one has NULL.
        having = [row[index] if row and isinstance(row[index], int) else at for at, row in rows]
        written[f"c{index}"] = changes.column(f"c{index}").take(pa.array(having, pa.int64()))
    written[ABSENT] = pa.array(absent, pa.string())
    return pa.table({**written, BASE: pa.array(bases, pa.binary())})


def in_order(sources: Ints, offsets: Ints, stamps: Ints) -> Ints:
    """Return the order of changes: of a partition by offset, and between partitions by timestamp.

    Timestamps are made monotone in each partition. Changes of one record keep their order.

    Parameters
    ----------
    sources, offsets, stamps : array of int
        The numbers of partitions are in the order of their names.

    Examples
    --------
    >>> in_order(*map(np.array, ([0, 1, 0, 0], [7, 3, 8, 8], [5, 4, 3, 3]))).tolist()
    [1, 0, 2, 3]
    """
    placed = np.lexsort((offsets, sources))
    # A running maximum within a partition: its numbers are above those of the partition before it.
    shift = sources[placed] * (np.ptp(stamps) + 1)
    order: Ints = placed[
        np.lexsort((sources[placed], np.maximum.accumulate(stamps[placed] + shift) - shift))
    ]
    return order


Row = tuple[int | bytes, ...] | None
"""For each column the change that has its value, or else the key whose row in the target has it; None
for a deleted row."""


def follow_moves(
    keys: Sequence[bytes],
    moved_from: Sequence[bytes | None],
    deleted: Sequence[bool],
    absent: Sequence[Sequence[bool] | None],
    records: Sequence[tuple[str, int]],
    columns: int,
) -> dict[bytes, Row]:
    """Return the last row of each key, among the changes of these keys in their order.

    Parameters
    ----------
    keys : sequence of bytes
    moved_from : sequence of bytes or None
        The earlier key of a row that lacks columns, if its key changed; else empty or None.
    deleted : sequence of bool
    absent : sequence of (sequence of bool) or None
        The columns that a row lacks; None for a whole row and a delete.
    records : sequence of (str, int)
        The Kafka partition and the offset of each change.
    columns : int
        The number of columns.

    Raises
    ------
    PartialImageError
    """
    rows, deletes = dict[bytes, Row](), dict[bytes, tuple[Row, str, int]]()
    reused = _reused_keys(keys, deleted, absent, records)
    changes = zip(keys, moved_from, deleted, absent, records, strict=True)
    for at, (key, earlier, is_delete, lacks, (source, offset)) in enumerate(changes):
        row, record = rows.get(key, (key,) * columns), f"{source}@{offset}"
        if is_delete:
            if row:
                deletes[key] = row, source, deletes[key][2] + 1 if key in deletes else 1
            rows[key] = None
            continue
        if earlier:
            in_target: Row = (earlier,) * columns
            row, of, times = deletes.get(earlier, (rows.get(earlier, in_target), source, 1))
            # Partitions are merged by time: another row may have had the key meanwhile.
            if earlier in reused or (of != source and (times > 1 or rows[earlier])):
                raise partial_row(
                    "its earlier key, in another partition, had several rows meanwhile: read the "
                    "table again from a snapshot",
                    record,
                )
        if not lacks:
            rows[key] = (at,) * columns
        elif row:
            was = zip(lacks, row, strict=True)
            rows[key] = tuple(value if missing else at for missing, value in was)
        else:
            raise partial_row(
                "the change of its key before it is a delete: read the table again from a snapshot",
                record,
            )
    return rows


def _reused_keys(
    keys: Sequence[bytes],
    deleted: Sequence[bool],
    absent: Sequence[Sequence[bool] | None],
    records: Sequence[tuple[str, int]],
) -> set[bytes]:
    """Return the keys that have a whole row in another partition than their delete before it.

    Tasks keep the last whole row of a partition, and those before a delete in it.
    """
    ended, reused = dict[bytes, str](), set[bytes]()
    for key, is_delete, lacks, (source, _) in zip(keys, deleted, absent, records, strict=True):
        if is_delete:
            ended[key] = source
        elif lacks is None and ended.get(key, source) != source:
            reused.add(key)
    return reused
