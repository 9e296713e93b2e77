"""The condition of ``where=``: a filter of the changelog, behind the stage of either engine.

The stage stores all rows, and its changelog has every ``-U`` directly before its ``+U``. Of a pair,
both rows, one or none match:

==============  ==============  ================================================
row before      row after       result
==============  ==============  ================================================
matches         matches         ``-U``, ``+U``
matches         does not        ``-D`` with the row before
does not        matches         ``+I`` with the row after
does not        does not        nothing
==============  ==============  ================================================

Source: Flink's FilterCondition behind ChangelogNormalize, and its FilterFunction for changelogs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession, functions as F

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import Column
from normalize.core.arrow import spark_ddl
from normalize.core.changes import concatenated
from normalize.core.output import ROW_KIND, Output
from normalize.dataframe import positional, require_of_row
from normalize.spark.sessions import analyze
from normalize.worker import worker

_MATCHES = "matches"


def require_condition(
    spark: SparkSession, where: str | SparkColumn, columns: Sequence[Column], ignored: Sequence[int]
) -> str:
    """Return a condition as text: equal for equal conditions, whether SQL or a Column.

    Parameters
    ----------
    spark : SparkSession
    where : str or Column
    columns : sequence of Column
        The table's columns.
    ignored : sequence of int
        The indexes of those that are ignored when rows are compared.

    Raises
    ------
    ArgumentError
        When the condition cannot be evaluated on these columns, does not depend on the row alone,
        or reads an ignored column.
    """

    def analyzed(of: Sequence[Column]) -> DataFrame:
        rows = spark.createDataFrame([], spark_ddl(of))
        require_of_row(rows, _matches(where))
        return analyze(rows.select(_condition(where)))

    try:
        text: str = analyzed(columns).columns[0]
    except AnalysisException as error:
        raise ArgumentError(
            f"where is not a condition on the table's columns: {str(error).strip().splitlines()[0]}"
        ) from None
    try:
        analyzed([column for index, column in enumerate(columns) if index not in ignored])
    except AnalysisException:
        names = ", ".join(columns[index].name for index in ignored)
        raise ArgumentError(
            f"where reads a column of ignore_columns ({names}), and updates of these columns alone "
            "are dropped: remove it from one of them"
        ) from None
    return text


def filtered(
    changelog: DataFrame, where: str | SparkColumn, output: Output, *, update_before: bool
) -> DataFrame:
    """Return the changelog of the rows that match a condition.

    Parameters
    ----------
    changelog : DataFrame
        A changelog with ``-U``, each directly before its ``+U``.
    where : str or Column
        NULL does not match, as in SQL.
    output : Output
        Its columns.
    update_before : bool
        Whether the result has ``-U``.
    """
    # Rows of side outputs belong to no table.
    rows = changelog.select(
        ROW_KIND, *positional([column.name for column in output.all]), _matches(where)
    )
    return rows.mapInArrow(
        partial(filter_pass, schema=output.arrow_schema, update_before=update_before), output.ddl
    )


def _condition(where: str | SparkColumn) -> SparkColumn:
    return F.expr(where) if isinstance(where, str) else where


def _matches(where: str | SparkColumn) -> SparkColumn:
    # Spark cannot look up a column by a generated name with backquotes.
    return F.coalesce(_condition(where).cast("boolean"), F.lit(False)).alias(_MATCHES)


def filter_pass(
    batches: Iterator[pa.RecordBatch], *, schema: pa.Schema, update_before: bool
) -> Iterator[pa.RecordBatch]:
    """Filter typed changelog rows by their last column; for ``mapInArrow``."""
    with worker():
        unpaired = None
        for batch in batches:
            if unpaired is not None:
                batch = concatenated([unpaired, batch], batch.schema)
            # The +U of a last -U is in the next batch.
            end = batch.num_rows - int(batch.num_rows and batch.column(0)[-1].as_py() == "-U")
            unpaired = batch.slice(end) if end < batch.num_rows else None
            yield _matching(batch.slice(0, end), schema, update_before)


def _matching(rows: pa.RecordBatch, schema: pa.Schema, update_before: bool) -> pa.RecordBatch:
    kinds, *columns, matches = rows.columns
    before, after = (
        pc.equal(kinds, kind).fill_null(False).to_numpy(zero_copy_only=False)
        for kind in ("-U", "+U")
    )
    matching = matches.to_numpy(zero_copy_only=False)
    # A +U follows its -U.
    lone_before, lone_after = (
        before & ~np.append(matching[1:], False),
        after & ~np.append(False, matching[:-1]),
    )
    kept = matching | kinds.is_null().to_numpy(zero_copy_only=False)
    if not update_before:
        kept &= lone_before | ~before
    kinds = pc.if_else(pa.array(lone_before), "-D", pc.if_else(pa.array(lone_after), "+I", kinds))
    return pa.RecordBatch.from_arrays([kinds, *columns], names=schema.names).filter(pa.array(kept))
