"""A condition inside ChangelogNormalize: a row that stops matching is deleted, one that never matched is not stored.

A change whose row does not match is treated as a delete. Spark evaluates the condition on the typed columns of each change, which costs an
additional transfer to Python.

Source: Flink's processLastRowOnChangelogWithFilter (DeduplicateFunctionHelper), which also evaluates the stored row; here the stored row
always matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.decoding.images import ABSENT, absent_as_null
from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import Column, SqlType, backquoted
from normalize.condition import MATCHES, matches, require_known
from normalize.connect import analyze
from normalize.core.arrow import arrow_type, spark_type, to_arrow
from normalize.core.changes import ChangeBuilder, Shape
from normalize.core.guard import decode_summary
from normalize.core.output import Output, SideOutput, decode_side_outputs
from normalize.core.packing import unpack
from normalize.dataframe import unused
from normalize.worker import worker

from .source import DecodePlan
from .targets import Blocks, KeyedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW = "row"
_LACKS = "lacks"
_GONE = "gone"
_KEYED = KeyedRows.schema.names
_CHANGE = _KEYED.index("change")


class FilterRows(KeyedRows):
    """`KeyedRows` with the typed row of each change, and its missing columns, in the order of one Kafka partition."""

    by_partition = True

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        self.row_type = SqlType("STRUCT", fields=output.columns)
        self.schema = pa.schema([*KeyedRows.schema, (_ROW, arrow_type(self.row_type)), (_LACKS, pa.list_(pa.string()))])
        super().__init__(output, key_groups, shape)

    @staticmethod
    def ddl(output: Output) -> str:
        return f"{KeyedRows.ddl(output)}, {_ROW} {spark_type(SqlType('STRUCT', fields=output.columns))}, {_LACKS} ARRAY<STRING>"

    def flush(self) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.output.columns]
        typed = [unpack(row[_CHANGE])[0] if row[_CHANGE] else None for row in self.rows]
        for batch in super().flush():
            rows = to_arrow(self.row_type, [None if row is None else absent_as_null(row) for row in typed])
            lacks = [[name for name, value in zip(names, row or (), strict=False) if value is ABSENT] for row in typed]
            filtered = pa.RecordBatch.from_arrays([*batch.columns, rows, pa.array(lacks, pa.list_(pa.string()))], schema=self.schema)
            # Records that were decoded one by one come after those that were decoded together.
            yield filtered.take(pc.sort_indices(filtered, sort_keys=[("offset", "ascending"), ("seq", "ascending")]))


def evaluate_where(decoded: DataFrame, where: Any, columns: Sequence[Column]) -> DataFrame:
    """Return keyed changes with `MATCHES`.

    Parameters
    ----------
    decoded : DataFrame
        The batches of `FilterRows`, with counts.
    where : str or Column
    columns : sequence of Column
        The table's columns.

    Raises
    ------
    ArgumentError
        When the condition cannot be evaluated on these columns.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    # The condition can refer only to the table's columns.
    change = unused("_change", [column.name for column in columns])
    here = [F.col(name) for name in decoded.columns if name not in (_ROW, _LACKS)]
    change_struct = F.struct(*here, F.col(_LACKS), F.expr(f"{_ROW} IS NULL").alias(_GONE)).alias(change)
    rows = decoded.select(change_struct, *(F.col(f"{_ROW}.{backquoted(column.name)}").alias(column.name) for column in columns))
    try:
        analyze(rows.select(matches(where)))
    except AnalysisException as error:
        raise ArgumentError(f"where is not a condition on the table's columns: {str(error).splitlines()[0]}") from None
    with _without_logs():
        used = [F.lit(name) for name in _used(rows, [column.name for column in columns], where)]
    unknown = F.arrays_overlap(F.col(f"{change}.{_LACKS}"), F.array(*used)) if used else F.lit(False)
    # NULL in `MATCHES`: the condition cannot be evaluated.
    require_known = F.when(F.col(f"{change}.{_GONE}"), F.lit(True)).when(F.coalesce(unknown, F.lit(False)), F.lit(None).cast("boolean"))
    return rows.select(f"{change}.*", require_known.otherwise(matches(where)).alias(MATCHES)).drop(_LACKS, _GONE)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Suppress what PySpark logs about queries that cannot be analyzed: here they are expected."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(f"{name}QueryContextLogger") for name in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _used(rows: DataFrame, names: Sequence[str], where: Any) -> list[str]:
    """Return the columns without which a condition cannot be analyzed. Halving them needs few analyses, each a request of Spark Connect."""
    from pyspark.errors import AnalysisException

    try:
        analyze(rows.drop(*names).select(matches(where)))
    except AnalysisException:
        if len(names) == 1:
            return list(names)
        half = len(names) // 2
        return _used(rows, names[:half], where) + _used(rows, names[half:], where)
    return []


def filtered_blocks(keyed: DataFrame, source: DecodePlan) -> DataFrame:
    """Return `targets.Blocks` of keyed changes with `MATCHES`."""
    return keyed.mapInArrow(partial(block_pass, source=source), Blocks.ddl(source.output))


def block_pass(batches: Iterator[pa.RecordBatch], *, source: DecodePlan) -> Iterator[pa.RecordBatch]:
    """Turn keyed changes, in the order of their partition, into blocks; for ``mapInArrow``."""
    with worker():
        for batch in batches:
            blocks = Blocks(source.output, source.key_groups, source.shape)
            rows = zip(*(batch.column(name).to_pylist() for name in (*_KEYED, MATCHES)), strict=True)
            for place, of_source in groupby(rows, lambda row: row[_KEYED.index("source")]):
                gathered, first = ChangeBuilder(source.shape), -1
                side_outputs: list[SideOutput] = []
                for key, stamp, _, offset, _, change, side_output, seen, matching in of_source:
                    if seen is not None:
                        blocks.see(decode_summary(seen))
                        continue
                    first = offset if first < 0 else first
                    if key is None:
                        side_outputs += decode_side_outputs(side_output)
                        continue
                    gathered.add_packed(key, stamp, place, change, require_known(matching, f"{place}@{offset}"), offset)
                if first >= 0:
                    blocks.take_changes(place, first, gathered, side_outputs)
                yield from blocks.flush()
