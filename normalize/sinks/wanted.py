"""What is to be written, and of which micro-batch it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField


class Batch(NamedTuple):
    """A micro-batch of a streaming query: the query's id, which its checkpoint keeps, and the batch's number."""

    query: str
    number: int


def running_batch(spark: SparkSession) -> Batch | None:
    """Return the micro-batch whose ``foreachBatch`` this is called in, None outside of one."""
    query, number = map(spark.sparkContext.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
    return Batch(query, int(number)) if query and number else None


@dataclass(frozen=True)
class Wanted:
    """The columns that a table is to have, its key, and what may be done to it.

    Parameters
    ----------
    fields : tuple of StructField
    primary_key : tuple of str
        Empty for a history, which has none.
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


def missing_columns(table: Any, wanted: Wanted, found: Iterable[str]) -> list[StructField]:
    """Return the columns that a table lacks.

    Raises
    ------
    SchemaError
        When they are not to be added, or are of the primary key.
    """
    there = {name.lower() for name in found}  # Spark compares names without case by default
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    names = [field.name for field in missing]
    keys = [name for name in names if name in wanted.primary_key]
    if keys:
        raise SchemaError(f"{table} has no column {', '.join(keys)}, which is of the primary key")
    if missing and not wanted.add_columns:
        raise SchemaError(
            f"{table} has no column {', '.join(names)}: add_columns=True adds what is missing, columns=[...] says what to write"
        )
    return missing
