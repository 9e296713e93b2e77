"""`ChangesWithMoves`: the last change of each key, where rows have columns of other keys' rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from normalize.core.arrow import slices
from normalize.core.moves import FollowedRow, UnknownRowError, follow_moves, in_order
from normalize.core.row_order import RowOrder

from .last_changes import ABSENT, LastOfKeys, numbers_of, partial_row, without_redeliveries

MOVED, BASE = "moved", "base"
"""The column with the earlier key of a partial row whose key changed, and the one with the key
whose row in the target has its columns."""


class ChangesWithMoves:
    """All changes; at the end the last of each key.

    They have the column `MOVED`, if a key changed, and then at the end `BASE`.
    """

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def add(self, changes: pa.Table) -> None:
        self.tables.append(changes)

    def finish(self, row_order: RowOrder | None) -> Iterator[pa.RecordBatch]:
        """Yield the last change of each key."""
        if not self.tables:
            return
        changes = pa.concat_tables(self.tables, promote_options="default").unify_dictionaries()
        unmoved = LastOfKeys()
        if MOVED in changes.schema.names:
            changes = without_redeliveries(changes, ("key",), ("stamp", "source", "offset"))
            keys, moved = changes.column("key"), changes.column(MOVED)
            involved = pc.is_in(
                keys,
                value_set=pa.chunked_array(
                    [*keys.filter(moved.is_valid()).chunks, *moved.drop_null().chunks], pa.binary()
                ),
            )
            if moved.null_count < len(moved):  # otherwise all were redeliveries
                for batch in _followed(changes.filter(involved)).combine_chunks().to_batches():
                    yield from slices(batch)
            changes = changes.filter(pc.invert(involved)).drop_columns([MOVED])
        unmoved.add(changes)
        yield from unmoved.finish(row_order)


def _followed(changes: pa.Table) -> pa.Table:
    """Return the last change of each key, with the values that it lacks from the changes before it.

    Raises
    ------
    PartialImageError
    """
    changes = changes.take(pa.array(in_order(*numbers_of(changes, "source", "offset", "stamp"))))
    texts = changes.column(ABSENT)
    absent = [
        None if text is None else [flag == "1" for flag in text] for text in texts.to_pylist()
    ]
    columns = len(texts.drop_null()[0].as_py())
    keys, moved, deleted = (changes.column(name).to_pylist() for name in ("key", MOVED, "deleted"))
    (sources,) = numbers_of(changes, "source")
    try:
        rows = follow_moves(keys, moved, deleted, absent, sources.tolist(), columns)
    except UnknownRowError as error:
        at, reason = error.args
        raise partial_row(
            reason, f"{changes.column('source')[at]}@{changes.column('offset')[at]}"
        ) from None
    bases = [row.base if row.base != key else None for key, row in rows.items()]
    return _last_rows(changes, list(rows.values()), columns).append_column(
        BASE, pa.array(bases, pa.binary())
    )


def _last_rows(changes: pa.Table, rows: Sequence[FollowedRow], columns: int) -> pa.Table:
    """Return the last change of each row, with the values of the changes that have them."""
    last = changes.take(pa.array([row.change for row in rows], pa.int64())).drop_columns([MOVED])
    for index in range(columns):
        # Where no change has a value, the last one has NULL.
        places = [
            row.places[index] if row.places and row.places[index] >= 0 else row.change
            for row in rows
        ]
        values = changes.column(f"c{index}").take(pa.array(places, pa.int64()))
        last = last.set_column(last.schema.get_field_index(f"c{index}"), f"c{index}", values)
    flags = [
        "".join("1" if place < 0 else "0" for place in row.places) if -1 in row.places else None
        for row in rows
    ]
    return last.set_column(
        last.schema.get_field_index(ABSENT), ABSENT, pa.array(flags, pa.string())
    )
