"""Iceberg tables: what differs from other tables of a catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, StructField

from cdc_formats.errors import SchemaError, refuse
from cdc_formats.values.schema import backquoted
from normalize.spark.micro_batch import Batch
from normalize.spark.sessions import spark_error_types
from normalize.tables.batches import ICEBERG_BATCH, ICEBERG_OFFSETS, ICEBERG_QUERY
from normalize.tables.commits import TableState, iceberg_state
from normalize.tables.layout import (
    Layout,
    StoredLayout,
    in_lower,
    other_properties,
    sql_property,
)

from .lake import LakeSink, LakeTarget, paths_of, properties_of, provider_of

_FORMAT, _VARIANT_FORMAT = "format-version", "3"
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property"


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """An Iceberg table.

    Parameters
    ----------
    name : str
        As ``catalog.namespace.table``. Backquotes are needed only around a part with a dot or a
        backquote: ``lake.db.`order.items```.
    """

    provider: ClassVar[str] = "iceberg"
    features: ClassVar[Mapping[str, str]] = {"variant": sql_property(_FORMAT, _VARIANT_FORMAT)}
    # It has no integers of less than 32 bits.
    types: ClassVar[Mapping[str, str]] = {"tinyint": "int", "smallint": "int"}

    def sink(self, spark: SparkSession) -> IcebergSink:
        return IcebergSink(spark, self)

    def refresh(self, spark: SparkSession) -> None:
        """Make the session forget what it has read of the table.

        Another job may have rewritten the table, and removed its files.
        """
        try:
            spark.catalog.refreshTable(self.sql_name)
        except spark_error_types():
            # Spark cannot refresh some tables of other providers: a statement on one has the error.
            if provider_of(spark, self.sql_name) == "iceberg":
                raise

    @classmethod
    def clauses(cls, layout: Layout) -> tuple[list[str], str]:
        names = ", ".join(each.iceberg() for each in layout.partition_by)
        return [], f" PARTITIONED BY ({names})" if names else ""

    @classmethod
    def properties(cls, layout: Layout, kinds: Collection[str]) -> dict[str, str]:
        version = {_FORMAT: _VARIANT_FORMAT} if cls.features.keys() & kinds else {}
        return {**version, **dict(layout.properties)}

    def differences(self, layout: Layout, stored: StoredLayout) -> list[str]:
        partitions, order, properties = stored
        fields = {_plain(each.iceberg()): each.iceberg() for each in layout.partition_by}
        has = {_plain(each): each for each in partitions if fields}
        alter = f"ALTER TABLE {self.sql_name}"
        is_ordered = in_lower(layout.cluster_by) in ([], in_lower(order))
        return [
            *(f"{alter} DROP PARTITION FIELD {has[each]}" for each in has.keys() - fields),
            *(
                f"{alter} ADD PARTITION FIELD {text}"
                for each, text in fields.items()
                if each not in has
            ),
            *([] if is_ordered else self.after_create(layout)),
            *other_properties(layout, properties, alter),
        ]

    def after_create(self, layout: Layout) -> list[str]:
        names = ", ".join(map(backquoted, layout.cluster_by))
        return [f"ALTER TABLE {self.sql_name} WRITE LOCALLY ORDERED BY {names}"] if names else []


@dataclass
class IcebergSink(LakeSink):
    """Writes an Iceberg table."""

    @property
    def takes_arrow(self) -> bool:
        # The MERGE reads its source several times: rows of the driver are cheaper for it than
        # those of another shuffle, which takes two more jobs.
        return True

    def widen(self, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
        # Iceberg keeps a decimal's scale, and changes no date and no integer into another kind of
        # type.
        kind, wide = old.dataType, new.dataType
        has_statement = (
            kind.scale == wide.scale
            if isinstance(kind, DecimalType) and isinstance(wide, DecimalType)
            else wide.simpleString() == "bigint"
            and kind.simpleString() in ("tinyint", "smallint", "int")
        )
        return [self.altered_type(new)] if has_statement else []

    def _stored_layout(self) -> StoredLayout:
        properties = properties_of(self.spark, self.table)
        order = properties.get("sort-order", "").replace(" ASC NULLS FIRST", "")
        described = [
            tuple(row)[:2]
            for row in self.spark.sql(f"DESCRIBE TABLE {self.table.sql_name}").collect()
        ]
        heads = [
            index for index, (each, _) in enumerate(described) if each.startswith("# Partition")
        ]
        after = described[heads[-1] + 1 :] if heads else []
        partitions = [
            text if each.startswith("Part ") else backquoted(each)
            for each, text in after
            if each and not each.startswith("#")
        ]
        return partitions, order.split(", "), properties

    def _require_names(self, fields: Sequence[StructField], layout: Layout | None) -> None:
        refuse(
            *(
                (
                    not path[-1],
                    f"the column {'.'.join(path)!r} of {self.table} has an empty name, which Iceberg "
                    "cannot write: rename it",
                )
                for path in paths_of(fields)
            ),
            error=SchemaError,
        )

    def _require_types(self, kinds: Collection[str]) -> None:
        """Raise an error for a VARIANT where Iceberg's MERGE cannot read it back.

        Source: https://github.com/apache/iceberg/issues/14707, of Iceberg 1.10.
        """
        if self.spark.version.startswith("4.0") and "variant" in kinds:
            raise SchemaError(
                f"{self.table} has a column of the type variant, which Iceberg for Spark 4.0 does "
                "not merge: declare it as STRING, or use Spark 4.1"
            )

    def _record_settings(self, batch: Batch) -> dict[str, str]:
        values = {
            ICEBERG_QUERY: batch.query,
            ICEBERG_BATCH: str(batch.number),
            ICEBERG_OFFSETS: batch.offsets,
        }
        return {f"{_SNAPSHOT_PROPERTY}.{name}": value for name, value in values.items()}

    def _state(self, batch: Batch) -> TableState:
        return iceberg_state(self.rows(), batch, self.table.sql_name)

    def drop(self) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS {self.table.sql_name} PURGE")


def _plain(field: str) -> str:
    return field.replace("`", "").replace(" ", "").lower()
