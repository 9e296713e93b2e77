"""The order of a change feed's rows: each key's changes by commit, removals before additions.

A commit of a table with a unique key has at most one removal (``-U``, ``-D``) and one addition
(``+I``, ``+U``) of each key, and so the removal is first. Two removals or two additions of a key
are an error, since nothing orders them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.errors import MissingFieldError
from normalize.core.arrow import slices
from normalize.core.output import ROW_KIND
from normalize.worker import worker

from .arrival import ChangeOrderError
from .merge import ADDS

_ADDED = "added"


def order_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    keys: Sequence[str],
    order_by: Sequence[str],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Order the rows of a task, which has all rows of its keys; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        ``row_kind`` and the columns, named by position: ``c0`` and so on.
    keys, order_by : sequence of str
        Of `names`.
    names : sequence of str
        The columns' own names.
    """
    with worker():
        rows = list(batches)
        if rows:
            changes = pa.Table.from_batches(rows).rename_columns([ROW_KIND, *names])
            ordered = in_order(changes, keys, order_by)
            for batch in ordered.rename_columns(rows[0].schema.names).to_batches():
                yield from slices(batch)


def in_order(changes: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """Return changes by `order_by`, then by key, the removal of a row before its addition.

    Parameters
    ----------
    changes : pyarrow.Table
        With ``row_kind``.
    keys, order_by : sequence of str

    Raises
    ------
    MissingFieldError
        When a key is NULL.
    ChangeOrderError
        When a column of `order_by` is NULL, or two changes of a key have the same place.

    Examples
    --------
    >>> feed = pa.table({"row_kind": ["+U", "-U", "+I"], "id": [1, 1, 1], "version": [2, 2, 1]})
    >>> in_order(feed, ["id"], ["version"])["row_kind"].to_pylist()
    ['+I', '-U', '+U']
    """
    for name in keys:
        if changes[name].null_count:
            raise MissingFieldError(f"`{name}` is part of the primary key and is null", field="row")
    for name in order_by:
        if changes[name].null_count:
            raise ChangeOrderError(
                f"{name}, which orders the changes, is NULL in a row: pass columns without NULL as "
                "order_by"
            )
    added = pc.is_in(changes[ROW_KIND], pa.array(ADDS))
    places = changes.select([*order_by, *keys]).rename_columns(
        [str(place) for place in range(len(order_by) + len(keys))]
    )
    places = places.append_column(_ADDED, added)
    groups = places.group_by(places.column_names, use_threads=False).aggregate([([], "count_all")])
    if (pc.max(groups["count_all"]).as_py() or 0) > 1:
        raise ChangeOrderError(
            f"two changes of one key {list(keys)} are both additions or both removals, and have "
            f"the same values in {list(order_by)}, which order the changes: pass the columns that "
            "identify a row as primary_key, and columns that differ as order_by"
        )
    return changes.take(
        pc.sort_indices(places, sort_keys=[(name, "ascending") for name in places.column_names])
    )
