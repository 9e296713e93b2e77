"""Counts of a pass: separate rows, which an observed metric adds up and a filter removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "_changelog_counts"
"""The column of counts, NULL in ordinary rows; a row of counts is NULL in all other columns."""


def counts_ddl(names: Sequence[str]) -> str:
    """Return the column of counts as Spark DDL."""
    return f"{COLUMN} STRUCT<{', '.join(f'{name}: BIGINT' for name in names)}>"


@lru_cache(maxsize=8)
def _field(names: tuple[str, ...]) -> pa.Field:
    return pa.field(COLUMN, pa.struct([(name, pa.int64()) for name in names]))


def with_counts_column(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """Return a pass's rows with the column of counts added."""
    field = _field(names)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.nulls(batch.num_rows, field.type)], schema=batch.schema.append(field)
    )


def counts_row(
    schema: pa.Schema, names: tuple[str, ...], counts: Mapping[str, int]
) -> pa.RecordBatch:
    """Return counts as a separate row, with the columns of `schema` and the column of counts."""
    field = _field(names)
    row = pa.array([tuple([counts[name] for name in names])], field.type)
    return pa.RecordBatch.from_arrays(
        [*(pa.nulls(1, each.type) for each in schema), row], schema=schema.append(field)
    )


def observe_counts(df: DataFrame, names: Sequence[str], observation: Any) -> DataFrame:
    """Return a DataFrame without its rows of counts, which are added up as an observed metric.

    Parameters
    ----------
    df : DataFrame
    names : sequence of str
    observation : str, Observation or None
        None: no metric.
    """
    from pyspark.sql import functions as F

    if observation is not None:
        df = df.observe(observation, *(F.sum(f"{COLUMN}.{name}").alias(name) for name in names))
    return df.where(f"{COLUMN} IS NULL").drop(COLUMN)
