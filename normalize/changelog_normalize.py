"""`ChangelogNormalize` for changelog DataFrames from any source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_formats.base import KeyedChange
from cdc_formats.equality import key_getter
from cdc_formats.errors import ArgumentError, MissingFieldError
from cdc_formats.row_kind import RowKind
from cdc_formats.rows import key_indices
from cdc_formats.schema import Column

from . import batch
from .arrow import from_arrow
from .changes import Shape
from .dead_letter import DeadLetters
from .decode import Mode
from .fold import FoldOptions
from .group import Stage
from .guard import NOTHING_EXPECTED, Expected, Seen
from .records import Records
from .stage import normalized
from .state import Layout
from .targets import Blocks, KeyedRows, Target
from .typed import ASIDES, ROW_KIND, Aside, Output, positional, require_changelog, require_distinct, table_columns, without_update_before
from .where import MATCHES, matches

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame

KEY_GROUPS = 64
"""The default number of key groups; the README explains how to choose it."""
DELETE_RETENTION = timedelta(days=7)
"""How long a delete's position is kept by default: Kafka's default retention of a topic."""


@dataclass(frozen=True)
class ChangelogNormalize:
    """Normalizes a changelog by key: removes duplicates, generates ``-U``, completes deletes.

    `from_kafka_changelog` adds it to the plan if needed. For changelogs from other sources use it with
    ``df.transform(ChangelogNormalize(primary_key=["id"]))``.

    Parameters
    ----------
    primary_key : str or sequence of str
    generate_update_before : bool
        Whether the result has ``-U``.
    metadata : sequence of str
        Columns that are ignored when rows are compared, and not stored: a row of the result has those of the row that caused it.
    key_groups : int
        The number of groups into which keys are hashed; fixed for the life of a checkpoint.
    where : str, Column or None
        A condition on the table's columns: a row that stops matching is deleted, and one that never matched is not stored.
    ignore_columns : sequence of str
        Columns that are ignored when rows are compared.
    state_ttl : timedelta or None
        Forget a row this long after its last write (processing time). Streams only.
    on_expiry : {"forget", "retract"}
        Whether a row that expires is also deleted from the result.
    mini_batch : bool
        Keep only the last change of a key in a micro-batch.

    Notes
    -----
    The input has a column ``row_kind``. ``+I`` and ``+U`` are the key's newest row, ``-D`` deletes it. A ``-U`` directly before a ``+U``
    of the same key is dropped, as in Flink's planner. Any other ``-U`` is a delete, so that an update of the key deletes the old row.
    Rows whose ``row_kind`` is NULL (with a ``_corrupt_record`` or a ``_control_event``) are returned unchanged. Rows of one key are
    processed in the order of their DataFrame partition.

    Raises
    ------
    ArgumentError
        When called with a DataFrame that has no ``row_kind``, or with a TTL and a DataFrame that is not a stream.
    """

    primary_key: str | Sequence[str]
    generate_update_before: bool = True
    metadata: Sequence[str] = ()
    key_groups: int = KEY_GROUPS
    where: str | SparkColumn | None = None
    ignore_columns: Sequence[str] = ()
    state_ttl: timedelta | None = None
    on_expiry: Literal["forget", "retract"] = "forget"
    mini_batch: bool = False

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the normalized changelog of `df`."""
        require_changelog(df)
        output, key = self._output(df), names_of(self.primary_key)
        stage = make_stage(
            Shape(output.columns, output.metadata, ignored=ignored_columns(output.columns, key, names_of(self.ignore_columns))),
            key,
            generate_update_before=self.generate_update_before,
            key_groups=self.key_groups,
            state_ttl=self.state_ttl,
            on_expiry=self.on_expiry,
            mini_batch=self.mini_batch,
            streaming=df.isStreaming,
        )
        names = [column.name for column in output.all]
        require_distinct(df, names)
        rows = df.select(ROW_KIND, *positional(names), matches(self.where))
        if df.isStreaming:
            changes = normalized(_packed(rows, Blocks, output, stage), stage, output, "changelog_normalize")
        else:
            changes = batch.normalized(_packed(rows, KeyedRows, output, stage), stage, output, split_partitions=False)
        return changes if self.generate_update_before else without_update_before(changes)

    def _output(self, df: DataFrame) -> Output:
        table = table_columns(df.schema, without=(ROW_KIND, *ASIDES, *self.metadata))
        metadata = {column.name: column for column in table_columns(df.schema, without=(ROW_KIND, *ASIDES))}
        missing = [name for name in self.metadata if name not in metadata]
        if missing:
            raise ArgumentError(f"metadata has {missing[0]}, which is not a column of the DataFrame")
        asides = tuple(column for name, column in ASIDES.items() if name in df.columns)
        return Output(table, tuple(metadata[name] for name in self.metadata), asides)


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def make_stage(
    shape: Shape,
    unique_key: tuple[str, ...],
    *,
    generate_update_before: bool,
    key_groups: int,
    streaming: bool,
    state_ttl: timedelta | None = None,
    on_expiry: str = "forget",
    mini_batch: bool = False,
    delete_retention: timedelta = DELETE_RETENTION,
    on_wrong_before: str = "count",
    mode: Mode = "FAILFAST",
    dead_letters: DeadLetters | None = None,
    key_metadata: tuple[str, ...] = (),
    expected: Expected = NOTHING_EXPECTED,
) -> Stage:
    """Return the stage for checked arguments.

    Raises
    ------
    ArgumentError, SchemaError
    """
    if not unique_key:
        raise ArgumentError("ChangelogNormalize requires primary_key=[...]")
    key_indices(shape.columns, unique_key)
    if not isinstance(key_groups, int) or key_groups < 1:
        raise ArgumentError(f"key_groups is {key_groups!r}: it must be an integer of at least 1")
    check_choice("on_expiry", on_expiry, ("forget", "retract"))
    check_choice("on_wrong_before", on_wrong_before, ("count", "fail"))
    ttl_ms = _ttl_ms(state_ttl, streaming)
    if on_expiry == "retract" and not ttl_ms:
        raise ArgumentError("on_expiry='retract' requires state_ttl: without it no row expires")
    if on_expiry == "retract" and shape.compact:
        raise ArgumentError("on_expiry='retract' requires state_layout='full': a compact state has no rows to delete")
    if not isinstance(delete_retention, timedelta) or delete_retention < timedelta(0):
        raise ArgumentError(f"delete_retention is {delete_retention!r}: it must be a non-negative datetime.timedelta")
    return Stage(
        layout=Layout(key_groups, shape.columns, (*unique_key, *key_metadata), shape.compact, ttl_ms > 0, shape.positions),
        shape=shape,
        options=FoldOptions(generate_update_before=generate_update_before, suppress_equal=ttl_ms == 0),
        mode=mode,
        dead_letters=dead_letters,
        state_ttl_ms=ttl_ms,
        retract_expired=on_expiry == "retract",
        mini_batch=mini_batch,
        delete_retention_ms=delete_retention // timedelta(milliseconds=1),
        on_wrong_before=on_wrong_before,  # type: ignore[arg-type] # checked above
        expected=expected,
    )


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise an error for an argument that is not one of the choices.

    Raises
    ------
    ArgumentError
    """
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}: use {' or '.join(map(repr, choices))}")


def ignored_columns(columns: Sequence[Column], unique_key: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the columns that are ignored when rows are compared.

    Raises
    ------
    ArgumentError
        When one is not a column, or is part of the primary key.
    """
    known = {column.name: index for index, column in enumerate(columns)}
    for name in names:
        if name not in known or name in unique_key:
            what = "part of the primary key" if name in known else f"not one of {', '.join(known)}"
            raise ArgumentError(f"ignore_columns has {name!r}, which is {what}")
    return tuple(known[name] for name in names)


def _ttl_ms(state_ttl: timedelta | None, streaming: bool) -> int:
    if state_ttl is None:
        return 0
    if not isinstance(state_ttl, timedelta) or state_ttl < timedelta(milliseconds=1):
        raise ArgumentError(f"state_ttl is {state_ttl!r}: it must be None or a datetime.timedelta of at least a millisecond")
    if not streaming:
        raise ArgumentError("state_ttl requires a stream: a bounded read has no state")
    return state_ttl // timedelta(milliseconds=1)


def _packed(rows: DataFrame, target: type[Target], output: Output, stage: Stage) -> DataFrame:
    return rows.mapInArrow(partial(pack_pass, target=target, output=output, stage=stage), target.ddl(output))


def pack_pass(batches: Iterator[pa.RecordBatch], *, target: type[Target], output: Output, stage: Stage) -> Iterator[pa.RecordBatch]:
    """Turn typed changelog rows into a target's batches; for ``mapInArrow``."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # on a worker
    collected = target(output, stage.layout.key_groups, stage.shape)
    keys = key_indices(output.columns, stage.layout.unique_key)
    held: KeyedRow | None = None
    start = 0
    collected.see(Seen())
    for rows_batch in batches:
        offsets = np.arange(start, start + rows_batch.num_rows)
        records = Records("DataFrame", context.partitionId(), offsets, np.zeros_like(offsets), [], [])
        rows, asides = _rows(rows_batch, output, keys)
        for aside in asides:
            collected.add_aside(records, 0, aside)
        decoded: list[list[KeyedChange]] = [[] for _ in offsets]
        for changes, row in zip(decoded, rows, strict=False):
            # Whether a -U is a delete depends on the row after it, which may be in the next batch.
            if held is not None and not (row.kind is RowKind.UPDATE_AFTER and row.key == held.key):
                changes.append(KeyedChange(held.key, None, held.metadata))
            held = row if row.kind is RowKind.UPDATE_BEFORE else None
            if held is None:
                changes.append(KeyedChange(row.key, row.row, row.metadata))
        collected.take(records, decoded, {})
        start += rows_batch.num_rows
        yield from collected.flush()
    if held is not None:
        records = Records("DataFrame", context.partitionId(), np.array([start]), np.zeros(1, np.int64), [], [])
        collected.take(records, [[KeyedChange(held.key, None, held.metadata)]], {})
        yield from collected.flush()


class KeyedRow(NamedTuple):
    """A changelog row with its key; ``row`` is None for a delete and for a row that does not match."""

    kind: RowKind
    key: tuple[Any, ...]
    row: tuple[Any, ...] | None
    metadata: tuple[Any, ...]


def _rows(batch: pa.RecordBatch, output: Output, keys: Sequence[int]) -> tuple[list[KeyedRow], list[Aside]]:
    columns = [from_arrow(column.type, batch.column(index)) for index, column in enumerate(output.all, 1)]
    width, end = len(output.columns), len(output.columns) + len(output.metadata)
    key_of = key_getter(output.columns, keys)
    rows, asides = [], []
    kinds, matching_rows = batch.column(ROW_KIND).to_pylist(), batch.column(MATCHES).to_pylist()
    for kind, matching, values in zip(kinds, matching_rows, zip(*columns, strict=True), strict=True):
        aside = [Aside(column.name, value) for column, value in zip(output.asides, values[end:], strict=True) if value is not None]
        if kind is None and aside:
            asides += aside
            continue
        row = values[:width]
        key = key_of(row)
        if None in key:
            raise MissingFieldError(f"`{output.columns[keys[key.index(None)]].name}` is part of the primary key and is null", field="row")
        row_kind = RowKind.from_short_string(str(kind))
        gone = row_kind is RowKind.DELETE or not matching
        rows.append(KeyedRow(row_kind, key, None if gone else row, values[width:end]))
    return rows, asides
