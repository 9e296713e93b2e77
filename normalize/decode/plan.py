"""`DecodePlan`: the arguments of the decode pass, and the records that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pyspark.sql import Column as SparkColumn, DataFrame, functions as F, types as T
from pyspark.sql.types import DataType

from cdc_formats.decoder import Decoder
from cdc_formats.decoding.rows import read_columns, result_columns
from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.events import Ignored, RowKind
from cdc_formats.format import Format
from cdc_formats.values.schema import Column, columns as to_columns
from normalize.core.changes import Shape
from normalize.core.guard import Identity
from normalize.core.order import RowOrder
from normalize.core.output import (
    CONTROL_EVENT,
    CORRUPT_RECORD,
    SIDE_OUTPUTS,
    Destination,
    Mode,
    Output,
)
from normalize.dataframe import require_distinct

KAFKA_METADATA: dict[str, Column] = {
    column.name: column
    for column in to_columns(
        "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP(3), `timestamp-type` "
        "STRING, headers MAP<STRING, BINARY>, `header-list` ARRAY<STRUCT<key: STRING, value: "
        "BINARY>>"
    )
}
"""Metadata columns of the Kafka record itself, with Flink's names."""

RECORD_COLUMNS = {name: name for name in KAFKA_METADATA} | {
    "timestamp-type": "timestampType",
    "header-list": "headers",
}
"""The columns of Kafka's records that its metadata columns need."""
KAFKA_COLUMNS = frozenset({"key", "value", *RECORD_COLUMNS.values()})
"""The columns of Kafka's records, with the names of Spark's Kafka source."""


@dataclass(frozen=True)
class DecodePlan:
    """The arguments of the first pass; built on the driver, sent to the workers.

    Parameters
    ----------
    format : Format
    columns : tuple of Column
        The declared columns.
    unique_key : tuple of str
    metadata : mapping
        The requested metadata, the format's and Kafka's, by the names of their columns, in the
        requested order.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
    dead_letters : Destination or None
        The destination of bad records; it replaces `mode`.
    control_events : frozenset of Ignored
        The control events that become rows.
    on_truncate : {"fail", "ignore"}
    topic : str or None
        The topic, if there is only one: records then do not need its name. Empty if it has no name.
    key_groups : int
    drop_update_before : bool
        Whether ``-U`` is dropped; for a plan without a stage.
    positions : bool
        Whether changes carry the source's positions.
    ignored : tuple of int
        The indexes of those of `result_columns` that are ignored when rows are compared.
    ignore_deletes : bool
        Whether deletes are dropped.
    key_metadata : tuple of str
        The metadata columns that are part of the primary key, after the columns `unique_key`.
    distinguished_by : tuple of str
        The metadata that distinguishes rows of several tables.
    record_columns : frozenset of str
        The columns of Kafka's records that the records have.
    row_order : {"log", "offset", "row"}
        The order of the records (`row_order`).
    streaming : bool
    completes_moved : bool
        Whether a row that lacks columns is completed from the row of its old key
        (`Format.decoder`); a stage cannot do so.
    native : bool
        Whether the native decoder may read.
    """

    format: Format
    columns: tuple[Column, ...]
    unique_key: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = "FAILFAST"
    dead_letters: Destination | None = None
    control_events: frozenset[Ignored] = frozenset()
    on_truncate: Literal["fail", "ignore"] = "fail"
    topic: str | None = None
    key_groups: int = 1
    drop_update_before: bool = False
    positions: bool = False
    ignored: tuple[int, ...] = ()
    ignore_deletes: bool = False
    key_metadata: tuple[str, ...] = ()
    distinguished_by: tuple[str, ...] = ()
    record_columns: frozenset[str] = KAFKA_COLUMNS
    row_order: RowOrder = "log"
    streaming: bool = True
    completes_moved: bool = False
    native: bool = True

    @cached_property
    def identity(self) -> Identity:
        """The values that must be equal in all messages, since rows are merged by key."""
        selected = self.format.traits.table_identity.items()
        free = [
            (name, option)
            for name, option in selected
            if name not in self.distinguished_by
            and not (option and getattr(self.format, option) is not None)
        ]
        # A format that names its table does so in every message; the topic is compared only without
        # a name.
        topics = (
            self.topic is None
            and "topic" not in self.distinguished_by
            and len(free) == len(self.format.traits.table_identity)
        )
        return Identity(
            tuple(name for name, _ in free),
            tuple(option for _, option in free),
            topics,
            self.unique_key,
        )

    @property
    def read_columns(self) -> tuple[Column, ...]:
        """The columns that are read from messages: those declared without those dropped."""
        return read_columns(self.columns, self.format.handling.masks)

    @property
    def result_columns(self) -> tuple[Column, ...]:
        """`read_columns` with the types of masked values."""
        return result_columns(self.columns, self.format.handling.masks)

    @property
    def shape(self) -> Shape:
        """The columns of changes that are sent to the stage."""
        offsets = not self.streaming or self.row_order == "offset"
        return Shape(
            self.result_columns, self.output.metadata, self.ignored, self.positions, offsets
        )

    @property
    def output(self) -> Output:
        """The columns of the resulting DataFrame."""
        of_format = self.format.metadata
        columns = [
            Column(
                column,
                of_format[name].sql_type if name in of_format else KAFKA_METADATA[name].type,
            )
            for column, name in self.metadata.items()
        ]
        side_outputs = [SIDE_OUTPUTS[CORRUPT_RECORD]] * self.permissive + [
            SIDE_OUTPUTS[CONTROL_EVENT]
        ] * bool(self.control_events)
        return Output(self.result_columns, tuple(columns), tuple(side_outputs))

    @property
    def reads_headers(self) -> bool:
        """Whether the decoder reads headers: if the format does, or one names a row's old key."""
        traits = self.format.traits
        return traits.reads_headers or (self.completes_moved and bool(traits.old_key_header))

    @property
    def format_metadata(self) -> list[str]:
        """The metadata that the format reads."""
        return [name for name in self.metadata.values() if name in self.format.metadata]

    @property
    def kafka_metadata(self) -> list[str]:
        """The metadata that is the Kafka record's own."""
        return [name for name in self.metadata.values() if name not in self.format.metadata]

    @property
    def in_order(self) -> bool:
        """Whether the records of a partition arrive in their order."""
        return self.row_order == "log" or (self.row_order == "row" and self.streaming)

    @property
    def permissive(self) -> bool:
        """Whether corrupt records become rows."""
        return self.mode == "PERMISSIVE"

    @property
    def handled_reasons(self) -> frozenset[Ignored]:
        """The reasons whose records are not only counted."""
        return self.control_events | ({Ignored.TRUNCATE} if self.on_truncate == "fail" else set())

    @property
    def by_key(self) -> bool:
        """Whether the rows of a plan without a stage are upserts and deletes by key."""
        has = self.format.changelog_mode.contains
        is_upsert = has(RowKind.UPDATE_AFTER) and not has(RowKind.UPDATE_BEFORE)
        return self.drop_update_before or is_upsert

    def decoder(self) -> Decoder:
        """Compile the decoder."""
        return self.format.decoder(
            self.columns,
            unique_key=self.unique_key,
            metadata=self.format_metadata,
            positions=self.positions,
            tables=self.identity.columns,
            require_key=self.by_key,
            completes_moved=self.completes_moved,
        )


def needed_columns(plan: DecodePlan) -> list[str]:
    """Return the columns of Kafka's records that the pass reads; each costs time per record."""
    columns = ["value", "partition", "stamp"]
    if plan.row_order != "row":
        columns.append("offset")
    of_format = plan.format.traits.reads_key or (plan.format.traits.uses_key and plan.unique_key)
    if of_format or plan.permissive or plan.dead_letters is not None or plan.control_events:
        columns += ["key"] if "key" in plan.record_columns else []
    if plan.topic is None:
        columns.append("topic")
    named = {RECORD_COLUMNS[name] for name in plan.kafka_metadata} - {"topic", *columns}
    if plan.reads_headers or plan.dead_letters is not None:
        named |= plan.record_columns & {"headers"}
    return columns + sorted(named)


# --------------------------------------------------------------------------------------------------
# The first pass's input: records of Spark's Kafka source or any DataFrame with a column ``value``.
#
# =====================  ===============================  ===========================================
# column                 type                             if the DataFrame lacks it
# =====================  ===============================  ===========================================
# ``value``              BINARY or STRING                 the call raises
# ``key``                BINARY or STRING                 a format that reads the key is refused
# ``topic``              STRING                           the records belong to one unnamed topic
# ``partition``,         integers                         records have no place: errors name the row,
#                                                         ``DataFrame[partition]@row``
# ``offset``
# ``timestamp``          TIMESTAMP                        records have no time
# ``timestampType``      INT                              its metadata column is refused
# ``headers``            ARRAY<STRUCT<key, value>>        records have no headers
# =====================  ===============================  ===========================================
#
# All names are those of Spark's Kafka source. Metadata columns that need a missing column are
# refused. Additional columns are ignored.

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
