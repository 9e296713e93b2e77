"""The first pass's input: records of Spark's Kafka source or any DataFrame with a column ``value``.

=====================  ===============================  ===========================================
column                 type                             if the DataFrame lacks it
=====================  ===============================  ===========================================
``value``              BINARY or STRING                 the call raises
``key``                BINARY or STRING                 a format that reads the key is refused
``topic``              STRING                           the records belong to one unnamed topic
``partition``,         integers                         records have no place: errors name the row,
                                                        ``DataFrame[partition]@row``
``offset``
``timestamp``          TIMESTAMP                        records have no time
``timestampType``      INT                              its metadata column is refused
``headers``            ARRAY<STRUCT<key, value>>        records have no headers
=====================  ===============================  ===========================================

All names are those of Spark's Kafka source. Metadata columns that need a missing column are
refused. Additional columns are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError, SchemaError
from normalize.core.row_order import RowOrder
from normalize.dataframe import require_distinct
from normalize.decode.plan import KAFKA_COLUMNS, DecodePlan, needed_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame
    from pyspark.sql.types import DataType

_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class RecordInput:
    """What is known about the records before they are read.

    Parameters
    ----------
    streaming : bool
    columns : frozenset of str
        The columns of Kafka's records that are there, of `KAFKA_COLUMNS`.
    topic : str or None
        The only topic, empty if it has no name; None: each record names its topic.
    row_order : {"log", "offset", "row"}
        See `row_order`.
    split_partitions : bool
        Whether several tasks may read a Kafka partition.
    """

    streaming: bool
    columns: frozenset[str] = KAFKA_COLUMNS
    topic: str | None = None
    row_order: RowOrder = "log"
    split_partitions: bool = False


def input_of(df: DataFrame) -> RecordInput:
    """Return what a DataFrame of records has.

    Raises
    ------
    ArgumentError, SchemaError
        When it has no column ``value``, a column has an unsuitable type, or there is ``partition``
        without ``offset`` or the reverse.
    """
    columns = KAFKA_COLUMNS.intersection(df.columns)
    if "value" not in columns:
        raise ArgumentError(
            "the DataFrame has no column value: rename the column with the messages "
            f"({', '.join(df.columns)})"
        )
    require_distinct(df, sorted(columns))
    for name in sorted(columns):
        _check_type(name, df.schema[name].dataType)
    place = sorted(columns & {"partition", "offset"})
    if len(place) == 1:
        raise ArgumentError(
            f"the DataFrame has only {place[0]} of the columns partition and offset, which belong "
            "together: add the other one (for partition, F.lit(0) if there is one), or drop "
            f"{place[0]}"
        )
    return RecordInput(
        df.isStreaming,
        columns,
        None if "topic" in columns else "",
        "offset" if place else "row",
        split_partitions=bool(place),
    )


def _check_type(name: str, kind: DataType) -> None:
    from pyspark.sql import types as T

    text = isinstance(kind, (T.BinaryType, T.StringType))
    allowed = {
        "key": (text, "BINARY or STRING"),
        "value": (text, "BINARY or STRING"),
        "topic": (isinstance(kind, T.StringType), "STRING"),
        "timestamp": (isinstance(kind, T.TimestampType), "TIMESTAMP"),
        "headers": (
            kind.simpleString() in (_HEADERS, _HEADERS.replace("binary", "string")),
            _HEADERS,
        ),
    }
    fits, expected = allowed.get(name, (isinstance(kind, T.IntegralType), "an integer type"))
    if not fits:
        raise SchemaError(
            f"the DataFrame's column {name} has the type {kind.simpleString()}: cast it to "
            f"{expected}"
        )


def records(df: DataFrame, plan: DecodePlan) -> DataFrame:
    """Return the columns that the first pass reads (`plan.needed_columns`)."""
    return df.select(*(_column(name, plan).alias(name) for name in needed_columns(plan)))


def _column(name: str, plan: DecodePlan) -> SparkColumn:
    from pyspark.sql import functions as F

    if name == "value":
        # As text, whose bytes nothing checks: Spark copies the bytes of a BINARY once more when it
        # writes them for Python.
        return F.col(name).cast("string")
    if name == "key":
        return F.col(name).cast("binary")
    if name == "stamp":
        if "timestamp" not in plan.record_columns:
            return F.lit(0).cast("bigint")
        return F.unix_micros("timestamp") if plan.row_order == "row" else F.unix_millis("timestamp")
    if name == "timestamp":
        return F.unix_micros("timestamp")
    if name == "partition":
        return F.col(name).cast("int") if name in plan.record_columns else F.spark_partition_id()
    if name == "offset":
        return F.col(name).cast("bigint")
    return F.col(name).cast(_HEADERS) if name == "headers" else F.col(name)
