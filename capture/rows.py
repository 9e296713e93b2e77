"""Conversion of rows and changes to Arrow.

The Arrow columns are ``row_kind``, the table's columns, ``database``, ``table``, ``op_ts`` and
``position``.

``op_ts`` is the time of the change at the source, and 0 for a row of the snapshot (as in Flink).
``position`` is the position in the log, with Debezium's field names. Positions of one server sort
in the order of its log:

- ``file``, ``pos``: the end of the event. If the server does not write that, the end of an earlier
  event. For a row of the snapshot, the position that it is as of.
- ``row``: the index of the row in the transaction.
- ``server_id``: the server where the change was made, or where a row of the snapshot was read.
- ``gtid``, ``snapshot``.

An update that changes the primary key becomes ``-D`` and ``+I``, so that a consumer that drops
``-U`` keeps no stale row (Flink: ``-U`` and ``+U``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.errors import SchemaError
from cdc_formats.events import RowKind
from cdc_formats.values.key_range import KeyRange
from cdc_formats.values.schema import backquoted

from .chunk import texts_of
from .columns import arrow_type, to_arrow
from .options import CaptureOptions
from .server import LogPosition, Server
from .statements import RowChange
from .table import Table, TableId, in_range

ROW_KIND = "row_kind"
_POSITION = (
    "STRUCT<file: STRING, pos: BIGINT, row: INT, server_id: BIGINT, gtid: STRING, snapshot: "
    "BOOLEAN>"
)
METADATA = {"database": "STRING", "table": "STRING", "op_ts": "TIMESTAMP", "position": _POSITION}
_FIELDS = {
    "file": pa.string(),
    "pos": pa.int64(),
    "row": pa.int32(),
    "server_id": pa.int64(),
    "gtid": pa.string(),
    "snapshot": pa.bool_(),
}
_POSITION_TYPE = pa.struct(list(_FIELDS.items()))
_AT_ONCE = 5_000
_INSERT, _BEFORE, _AFTER, _DELETE = (kind.short_string for kind in RowKind)


def spark_ddl(table: Table) -> str:
    """Return the schema of a table's changelog, as DDL.

    Raises
    ------
    SchemaError
        If a column of the table has the name of a column that the changelog adds.
    """
    columns = [column.column for column in table.columns]
    taken = sorted({column.name.lower() for column in columns} & {ROW_KIND, *METADATA})
    if taken:
        raise SchemaError(
            f"{table.qualified} has a column {', '.join(taken)}, a name that the changelog uses "
            "itself: rename the column"
        )
    typed = [f"{backquoted(column.name)} {column.type}" for column in columns]
    return ", ".join(
        [f"{ROW_KIND} STRING", *typed, *(f"{name} {kind}" for name, kind in METADATA.items())]
    )


class BatchWriter:
    """Converts rows and changes of a table to record batches."""

    def __init__(self, server: Server, table: Table, options: CaptureOptions) -> None:
        self.server = server
        self.table = table
        self.zero_dates = options.zero_dates
        fields = [(column.name, arrow_type(column.column.type)) for column in table.columns]
        about = [
            ("database", pa.string()),
            ("table", pa.string()),
            ("op_ts", pa.timestamp("us", tz="UTC")),
            ("position", _POSITION_TYPE),
        ]
        self.schema = pa.schema([(ROW_KIND, pa.string()), *fields, *about])

    def batch(
        self, kinds: pa.Array, texts: pa.Table, seconds: pa.Array, positions: pa.Array
    ) -> pa.RecordBatch:
        """Return a batch of rows from columns of text, with their kinds, times and positions."""
        typed = [
            to_arrow(column, values, zero_dates=self.zero_dates)
            for column, values in zip(self.table.columns, texts.columns, strict=True)
        ]
        arrays = [
            pa.concat_arrays(each.chunks) if each.num_chunks else pa.array([], each.type)
            for each in typed
        ]
        names = [pa.repeat(name, len(texts)) for name in (self.table.database, self.table.name)]
        times = pc.multiply(seconds, 10**6).cast(pa.timestamp("us", tz="UTC"))
        return pa.RecordBatch.from_arrays(
            [kinds, *arrays, *names, times, positions], schema=self.schema
        )

    def snapshot(self, texts: pa.Table, as_of: LogPosition) -> Iterator[pa.RecordBatch]:
        """Return batches of a chunk's rows, given as columns of text."""
        position = pa.scalar((as_of.file, as_of.pos, 0, self.server.id, None, True), _POSITION_TYPE)
        for start in range(0, len(texts), _AT_ONCE):
            part = texts.slice(start, _AT_ONCE)
            kinds, seconds, positions = (
                pa.repeat(value, len(part))
                for value in (_INSERT, pa.scalar(0, pa.int64()), position)
            )
            yield self.batch(kinds, part, seconds, positions)

    def changes(self, changes: Sequence[RowChange], done: KeyRange) -> pa.RecordBatch:
        """Return changes in done chunks; of an update across the frontier, only the done half."""
        out: list[tuple[str, Any, RowChange]] = []
        for change, has_old, has_new in zip(changes, *self._judged(changes, done), strict=True):
            update = has_old and has_new and self._same_row(change)
            if has_old:
                out.append((_BEFORE if update else _DELETE, change.before, change))
            if has_new:
                out.append((_AFTER if update else _INSERT, change.after, change))
        kinds, rows, sources = zip(*out, strict=True) if out else ((), (), ())
        seconds = pa.array([change.seconds for change in sources], pa.int64())
        return self.batch(
            pa.array(kinds, pa.string()), texts_of(self.table, rows), seconds, _positions(sources)
        )

    def _judged(
        self, changes: Sequence[RowChange], done: KeyRange
    ) -> tuple[list[bool], list[bool]]:
        """Return whether each before-image and each after-image exists and its key is done."""
        images = [change.before for change in changes] + [change.after for change in changes]
        judged = [image is not None for image in images]
        if done != KeyRange(None, None):
            inside = iter(
                in_range(
                    self.server,
                    self.table,
                    [self.table.key(image) for image in images if image is not None],
                    done,
                )
            )
            judged = [exists and next(inside) for exists in judged]
        return judged[: len(changes)], judged[len(changes) :]

    def _same_row(self, change: RowChange) -> bool:
        before, after = change.before, change.after
        return (
            before is not None
            and after is not None
            and self.table.identity(before) == self.table.identity(after)
        )


def _positions(changes: Sequence[RowChange]) -> pa.Array:
    columns = [
        [change.position.file for change in changes],
        [change.position.pos for change in changes],
        [change.number for change in changes],
        [change.server_id for change in changes],
        [change.gtid for change in changes],
        [False] * len(changes),
    ]
    arrays = [
        pa.array(values, kind) for values, kind in zip(columns, _FIELDS.values(), strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(_POSITION_TYPE))


def changes_of(
    writers: Mapping[TableId, tuple[BatchWriter, KeyRange]], changes: Iterable[RowChange]
) -> Iterator[pa.RecordBatch]:
    """Return batches of changes, one table in each; changes of a table keep their order.

    Parameters
    ----------
    writers : mapping of TableId to (Writer, KeyRange)
        For each table a writer and the keys whose chunks are done.
    """
    remaining = iter(changes)
    while part := list(islice(remaining, _AT_ONCE)):
        by_table: dict[TableId, list[RowChange]] = {}
        for change in part:
            by_table.setdefault(change.table, []).append(change)
        for table, of_table in by_table.items():
            writer, done = writers[table]
            yield writer.changes(of_table, done)


# --------------------------------------------------------------------------------------------------
# The columns of a stream: the table's when the stream starts, or those that the user declares.


def require_declared(table: Table, changelog: pa.Schema, declared: pa.Schema) -> None:
    """Check that declared columns have the table's types; columns not there yet may have any type.

    Parameters
    ----------
    changelog : pa.Schema
        All columns of the table's changelog.

    Raises
    ------
    SchemaError
        If a column has another type than declared, or if ``row_kind`` or a key column is not
        declared.
    """
    spark_ddl(table)  # raises an error for a column named like one of the changelog
    types = {field.name.lower(): field.type for field in changelog}
    ddl = {
        ROW_KIND: "STRING",
        **METADATA,
        **{column.name.lower(): str(column.column.type) for column in table.columns},
    }
    for field in declared:
        name = field.name.lower()
        if name in types and field.type != types[name]:
            raise SchemaError(
                f"column `{field.name}` of {table.qualified} has another type than declared: "
                f"declare it {ddl[name]}"
            )
    keys = {table.columns[index].name for index in (*table.primary_key, *table.chunk_key)}
    lacking = missing_names([ROW_KIND, *sorted(keys)], declared.names)
    if lacking:
        raise SchemaError(
            f"the schema declared for {table.qualified} lacks {', '.join(lacking)}: declare the "
            "row kind and the key columns"
        )


def missing_names(names: list[str], present: list[str]) -> list[str]:
    """Return the names that are not known, ignoring case."""
    lower = {name.lower() for name in present}
    return [name for name in names if name.lower() not in lower]


def project(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the declared columns; those the table did not have yet are NULL."""
    by_name = {
        name.lower(): array for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
    arrays = [
        by_name[field.name.lower()]
        if field.name.lower() in by_name
        else pa.nulls(len(batch), field.type)
        for field in declared
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=declared)
