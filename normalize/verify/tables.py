"""What a comparison needs of a table, and tables of the session's catalogs (Delta, Iceberg)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from normalize.tables.expressions import COMPUTED_PROPERTY, computed_columns
from normalize.tables.policy import DELETED_PROPERTY
from normalize.tables.targets import TargetError
from normalize.tables.writers.lake import LakeTarget, refresh_table, table_property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Key = tuple["str | None", ...]
"""The values of the key columns as text, in the types in which both tables are compared; binary
values are hexadecimal digits."""


class Snapshot(NamedTuple):
    """A table's rows at one position.

    Attributes
    ----------
    rows : DataFrame
    position : str
        Empty for a target.
    """

    rows: DataFrame
    position: str


class ComparableTable(Protocol):
    """A table that can be compared."""

    @property
    def name(self) -> str:
        """The table's name, without secrets."""

    @property
    def schema(self) -> StructType:
        """The columns as Spark reads them."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key columns; empty if the table does not declare any."""

    @property
    def json_columns(self) -> frozenset[str]:
        """The columns of type JSON."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return all rows as of one position; they can be read until the end of the block."""

    def lookup(self, names: Sequence[str], keys: Sequence[Key]) -> Snapshot:
        """Return at least the current rows with one of the keys; `names` are the key columns."""


class TargetTable(ComparableTable, Protocol):
    """A target table."""

    @property
    def deleted_column(self) -> str | None:
        """The column of soft deletes that the table declares, or None."""

    @property
    def computed_columns(self) -> frozenset[str]:
        """The computed columns that the table declares, in lower case."""


@dataclass(frozen=True)
class LakeTable:
    """A Delta or Iceberg table."""

    spark: SparkSession
    target: LakeTarget

    primary_key = ()
    json_columns: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def schema(self) -> StructType:
        return self._read().schema

    @property
    def deleted_column(self) -> str | None:
        return table_property(self.spark, self.target, DELETED_PROPERTY)

    @property
    def computed_columns(self) -> frozenset[str]:
        return computed_columns(table_property(self.spark, self.target, COMPUTED_PROPERTY) or "[]")

    def _read(self) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            refresh_table(self.spark, self.target)
            return self.spark.table(self.target.sql_name)
        except AnalysisException as error:
            raise TargetError(
                f"{self.target} cannot be read: {' '.join(str(error).split())[:300]}"
            ) from None

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield Snapshot(self._read(), "")

    def lookup(self, names: Sequence[str], keys: Sequence[Key]) -> Snapshot:
        return Snapshot(self._read(), "")
