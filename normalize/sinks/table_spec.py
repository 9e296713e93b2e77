"""The columns that a sink writes, and the micro-batch that they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField


class Batch(NamedTuple):
    """A micro-batch of a streaming query: the query's id, which the checkpoint stores, and the batch's number."""

    query: str
    number: int


def running_batch(spark: SparkSession) -> Batch | None:
    """Return the micro-batch of the current ``foreachBatch`` call, or None."""
    query, number = map(spark.sparkContext.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
    return Batch(query, int(number)) if query and number else None


@dataclass(frozen=True)
class TableSpec:
    """The columns and key that a table requires, and whether it may be created or altered.

    Parameters
    ----------
    fields : tuple of StructField
    primary_key : tuple of str
        Empty for a history.
    create : bool
    add_columns : bool
    """

    fields: tuple[StructField, ...]
    primary_key: tuple[str, ...]
    create: bool
    add_columns: bool

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.fields]


def missing_columns(table: Any, spec: TableSpec, found: Iterable[str]) -> list[StructField]:
    """Return the columns that a table lacks.

    Raises
    ------
    SchemaError
        When they may not be added, or are part of the primary key.
    """
    there = {name.lower() for name in found}  # Spark ignores case by default
    missing = [field for field in spec.fields if field.name.lower() not in there]
    names = [field.name for field in missing]
    keys = [name for name in names if name in spec.primary_key]
    if keys:
        raise SchemaError(f"{table} has no column {', '.join(keys)}, which is part of the primary key")
    if missing and not spec.add_columns:
        raise SchemaError(
            f"{table} has no column {', '.join(names)}: set add_columns=True to add it, or leave it out with column_list=[...]"
        )
    return missing
