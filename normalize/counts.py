"""Counts of a pass: they leave it in rows of their own, which an observed metric sums up and a filter then takes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "_changelog_counts"
"""The column of counts, NULL in the rows that are not counts; a row of counts has NULL in all others."""


def counts_ddl(names: Sequence[str]) -> str:
    """Return the column of counts as Spark DDL."""
    return f"{COLUMN} STRUCT<{', '.join(f'{name}: BIGINT' for name in names)}>"


def _type(names: Sequence[str]) -> pa.DataType:
    return pa.struct([(name, pa.int64()) for name in names])


def beside(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return a pass's rows with the column of counts."""
    schema = batch.schema.append(pa.field(COLUMN, _type(names)))
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, _type(names))], schema=schema)


def counts_row(schema: pa.Schema, names: Sequence[str], counts: Mapping[str, int]) -> pa.RecordBatch:
    """Return counts as a row of their own, beside rows of `schema`."""
    row = pa.array([{name: counts[name] for name in names}], _type(names))
    return pa.RecordBatch.from_arrays(
        [*(pa.nulls(1, field.type) for field in schema), row], schema=schema.append(pa.field(COLUMN, row.type))
    )


def observed(df: DataFrame, names: Sequence[str], observation: Any) -> DataFrame:
    """Sum up the rows of counts as an observed metric, and take them out.

    Parameters
    ----------
    df : DataFrame
    names : sequence of str
    observation : str, Observation or None
        None: they are only taken out.
    """
    from pyspark.sql import functions as F

    if observation is not None:
        df = df.observe(observation, *(F.sum(f"{COLUMN}.{name}").alias(name) for name in names))
    return df.where(f"{COLUMN} IS NULL").drop(COLUMN)
