"""Rows and changes as Arrow: ``row_kind``, the table's columns, ``database``, ``table``, ``op_ts``, ``position``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from cdc_formats.errors import SchemaError
from cdc_formats.row_kind import RowKind
from cdc_formats.schema import backquoted

from .binlog import Change
from .columns import arrow_type, to_arrow
from .keys import KeyRange, in_range
from .options import Options
from .server import Position, Server
from .table import Row, Table

ROW_KIND = "row_kind"
METADATA = {"database": "STRING", "table": "STRING", "op_ts": "TIMESTAMP", "position": "STRING"}
_AT_ONCE = 5_000
_INSERT, _BEFORE, _AFTER, _DELETE = (kind.short_string for kind in RowKind)


def spark_ddl(table: Table) -> str:
    """Return the schema of a table's changelog.

    Raises
    ------
    SchemaError
        When the table has a column of one of the names that the changelog adds.
    """
    columns = [column.column for column in table.columns]
    taken = sorted({column.name.lower() for column in columns} & {ROW_KIND, *METADATA})
    if taken:
        raise SchemaError(
            f"{table.qualified} has a column {', '.join(taken)}, as the changelog has itself: capture it through a view's name"
        )
    typed = [f"{backquoted(column.name)} {column.type}" for column in columns]
    return ", ".join([f"{ROW_KIND} STRING", *typed, *(f"{name} {kind}" for name, kind in METADATA.items())])


def place(position: Position, number: int) -> str:
    """Return a position as text that sorts as positions of one server do."""
    return f"{position.file}:{position.pos:010d}:{number:06d}"


class Writer:
    """Makes record batches of rows."""

    def __init__(self, table: Table, options: Options) -> None:
        self.table = table
        self.zero_dates = options.zero_dates
        fields = [(column.name, arrow_type(column.column.type)) for column in table.columns]
        about = [("database", pa.string()), ("table", pa.string()), ("op_ts", pa.timestamp("us", tz="UTC")), ("position", pa.string())]
        self.schema = pa.schema([(ROW_KIND, pa.string()), *fields, *about])

    def batch(self, kinds: Sequence[str], rows: Sequence[Row], seconds: Sequence[int], places: Sequence[str]) -> pa.RecordBatch:
        """Return rows as a batch, their kinds, times and places beside them."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.table.columns)
        arrays = [to_arrow(column, values, zero_dates=self.zero_dates) for column, values in zip(self.table.columns, columns, strict=True)]
        names = [pa.array([name] * len(rows), pa.string()) for name in (self.table.database, self.table.name)]
        times = pa.array([second * 10**6 for second in seconds], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        about = [*names, times, pa.array(places, pa.string())]
        return pa.RecordBatch.from_arrays([pa.array(kinds, pa.string()), *arrays, *about], schema=self.schema)

    def snapshot(self, rows: Sequence[Row], as_of: Position) -> Iterator[pa.RecordBatch]:
        """Return a chunk's rows."""
        at = place(as_of, 0)
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            yield self.batch([_INSERT] * len(part), part, [0] * len(part), [at] * len(part))

    def changes(self, server: Server, changes: Iterable[Change], done: KeyRange) -> Iterator[pa.RecordBatch]:
        """Return the changes of rows whose chunk is done; of one that moves across the frontier, the half that is."""
        remaining = iter(changes)
        while part := list(islice(remaining, _AT_ONCE)):
            yield self._changes(part, *self._judged(server, part, done))

    def _judged(self, server: Server, changes: Sequence[Change], done: KeyRange) -> tuple[list[bool], list[bool]]:
        """Return for the before-images and for the after-images whether they are there and among the keys that are done."""
        images = [change.before for change in changes] + [change.after for change in changes]
        inside = iter(in_range(server, self.table, [self.table.key(image) for image in images if image is not None], done))
        judged = [image is not None and next(inside) for image in images]
        return judged[: len(changes)], judged[len(changes) :]

    def _changes(self, changes: Sequence[Change], old: Sequence[bool], new: Sequence[bool]) -> pa.RecordBatch:
        out: list[tuple[str, Any, int, str]] = []
        for change, has_old, has_new in zip(changes, old, new, strict=True):
            at = place(change.position, change.number)
            if has_old:
                out.append((_BEFORE if has_new else _DELETE, change.before, change.seconds, at))
            if has_new:
                out.append((_AFTER if has_old else _INSERT, change.after, change.seconds, at))
        kinds, rows, seconds, places = zip(*out, strict=True) if out else ((), (), (), ())
        return self.batch(kinds, rows, seconds, places)
