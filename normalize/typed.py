"""The last step of every plan: convert canonical values to the typed columns of the resulting DataFrame.

Its columns are ``row_kind``, the declared columns, the requested metadata, and the side outputs: ``_corrupt_record`` in PERMISSIVE mode,
and ``_control_event`` if control events are requested. A row of a side output is not a row of the table; its ``row_kind`` and other columns
are NULL. Side outputs pass every stage unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from cdc_formats.base import ControlEvent
from cdc_formats.errors import ArgumentError, DecodeError, SchemaError
from cdc_formats.row_kind import SHORT_STRINGS
from cdc_formats.schema import Column, backquoted, columns as to_columns

from .arrow import arrow_type, of_stored, spark_ddl, to_arrow
from .records import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame
    from pyspark.sql.types import DataType, StructType

ROW_KIND = "row_kind"
_SHORT_STRINGS = pa.array([SHORT_STRINGS[kind] for kind in range(4)])
CORRUPT_RECORD = "_corrupt_record"
CONTROL_EVENT = "_control_event"
ASIDES: dict[str, Column] = {
    column.name: column
    for column in to_columns(
        f"{CORRUPT_RECORD} STRUCT<error: STRING, topic: STRING, partition: INT, offset: BIGINT, key: BINARY, value: BINARY>, "
        f"{CONTROL_EVENT} STRUCT<type: STRING, database: STRING, schema: STRING, table: STRING, statement: STRING, topic: STRING, "
        "partition: INT, offset: BIGINT, timestamp: TIMESTAMP, key: BINARY, value: BINARY>"
    )
}
"""The columns of side outputs."""


class Aside(NamedTuple):
    """A row of a side output, which is not a row of the table.

    Attributes
    ----------
    column : str
        The name of its column, of `ASIDES`.
    value : list
        The column's canonical value.
    """

    column: str
    value: list[Any]


decode_asides = msgspec.msgpack.Decoder(list[Aside]).decode
"""Decodes side outputs (`packing.encode` of a list of them)."""


def corrupt(error: DecodeError, record: KafkaRecord) -> Aside:
    """Return the side output for a record that cannot be decoded: the error's text and the raw record."""
    return Aside(CORRUPT_RECORD, [whole_text(str(error)), record.topic, record.partition, record.offset, record.key, record.value])


def control(event: ControlEvent, record: KafkaRecord) -> Aside:
    """Return the side output for a control event."""
    origin = [record.topic, record.partition, record.offset, record.timestamp * 1000, record.key, record.value]
    about = [None if part is None else whole_text(str(part)) for part in event[1:]]
    return Aside(CONTROL_EVENT, [event.type.value, *about, *origin])


def whole_text(text: str) -> str:
    """Return text with lone surrogates escaped, which a message's text may have and UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class Output:
    """The columns of a changelog DataFrame.

    Parameters
    ----------
    columns, metadata, asides : tuple of Column
        `asides` are columns of `ASIDES`.
    """

    columns: tuple[Column, ...]
    metadata: tuple[Column, ...] = ()
    asides: tuple[Column, ...] = ()

    @property
    def all(self) -> tuple[Column, ...]:
        """All columns after ``row_kind``."""
        return (*self.columns, *self.metadata, *self.asides)

    @property
    def ddl(self) -> str:
        """The DataFrame's schema."""
        return f"{ROW_KIND} STRING, {spark_ddl(self.all)}"

    @property
    def arrow_schema(self) -> pa.Schema:
        """The DataFrame's schema for Arrow."""
        return pa.schema([(ROW_KIND, pa.string()), *((column.name, arrow_type(column.type)) for column in self.all)])

    def batch(
        self,
        kinds: Sequence[int],
        rows: Sequence[Sequence[Any]],
        metadata: Sequence[Sequence[Any]],
        asides: Sequence[Aside],
    ) -> pa.RecordBatch:
        """Return changelog rows, followed by side outputs, as a typed batch.

        Parameters
        ----------
        kinds : sequence of int
            Row kinds by value, one for each row.
        rows, metadata : sequence of sequences
            Canonical values; `metadata` may be empty if no metadata is requested.
        asides : sequence of Aside
        """
        extra = len(asides)
        arrays = [pa.array([SHORT_STRINGS[kind] for kind in kinds] + [None] * extra, pa.string())]
        arrays += _arrays(self.columns, rows, extra)
        arrays += _arrays(self.metadata, metadata, extra)
        for column in self.asides:
            values = [aside.value if aside.column == column.name else None for aside in asides]
            arrays.append(to_arrow(column.type, [None] * len(kinds) + values))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def of_stored(self, changelog: pa.RecordBatch) -> pa.RecordBatch:
        """Return the stage's changelog rows (`group.Stage.changelog_schema`) as a typed batch."""
        kinds, *rows = changelog.columns
        typed = [of_stored(column.type, array) for column, array in zip((*self.columns, *self.metadata), rows, strict=True)]
        asides = [pa.nulls(changelog.num_rows, arrow_type(column.type)) for column in self.asides]
        return pa.RecordBatch.from_arrays([_SHORT_STRINGS.take(kinds), *typed, *asides], schema=self.arrow_schema)


def _arrays(columns: Sequence[Column], rows: Sequence[Sequence[Any]], extra: int) -> list[pa.Array]:
    values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    padding = (None,) * extra
    return [to_arrow(column.type, (*value, *padding) if extra else value) for column, value in zip(columns, values, strict=True)]


def require_changelog(df: DataFrame) -> None:
    """Raise an error for a DataFrame that is not a changelog.

    Raises
    ------
    ArgumentError
        When it has no ``row_kind``.
    """
    if ROW_KIND not in df.columns:
        raise ArgumentError(f"the DataFrame has no column {ROW_KIND}, which a changelog requires")


def require_distinct(df: DataFrame, names: Iterable[str]) -> None:
    """Raise an error for a name that several columns of a DataFrame have; by default Spark ignores case.

    Raises
    ------
    SchemaError
    """
    if df.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return
    for name in names:
        same = [column for column in df.columns if column.lower() == name.lower()]
        if len(same) > 1:
            raise SchemaError(f"Spark cannot distinguish the columns {', '.join(map(repr, same))}: rename them, or drop all but one")


def unused(name: str, columns: Sequence[str]) -> str:
    """Return a name that no column has, ignoring case: `name`, or `name` with underscores at its end."""
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def positional(columns: Sequence[str]) -> list[SparkColumn]:
    """Return columns renamed by position to ``c0`` and so on.

    Spark's ``mapInArrow`` parses a name like ``a.b`` as a field, and its JDBC writer does not escape names.
    """
    from pyspark.sql import functions as F

    return [F.col(backquoted(name)).alias(f"c{index}") for index, name in enumerate(columns)]


def without_update_before(df: DataFrame) -> DataFrame:
    """Return a changelog whose schema is marked as having no ``-U``, for functions that require them."""
    return df.withMetadata(ROW_KIND, {"changelog_mode": "upsert"})


def has_update_before(df: DataFrame) -> bool:
    """Return whether a changelog has ``-U``, according to its schema."""
    return bool(df.schema[ROW_KIND].metadata.get("changelog_mode") != "upsert")


def with_one_row_for_each(df: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return a changelog whose schema is marked as having one row for each value of these columns (in a stream, in each micro-batch)."""
    return df.withMetadata(ROW_KIND, {"one_row_for_each": list(key)})


def has_one_row_for_each(df: DataFrame, key: Sequence[str]) -> bool:
    """Return whether a changelog has one row for each key, according to its schema: the rows then need no order."""
    of = df.schema[ROW_KIND].metadata.get("one_row_for_each", [])
    return bool(of) and set(of) <= set(key)


def table_columns(schema: str | StructType, without: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return the columns of a schema, which is DDL text or a Spark type.

    Parameters
    ----------
    schema : str or StructType
    without : sequence of str
        Fields of a StructType to leave out.

    Raises
    ------
    SchemaError
        When a type is not supported, or a name has a NUL character.
    """
    if isinstance(schema, str):
        return _without_nul(to_columns(schema))
    fields = [field for field in schema.fields if field.name not in without]
    ddl = [f"{backquoted(field.name)} {type_ddl(field.dataType)}{'' if field.nullable else ' NOT NULL'}" for field in fields]
    return _without_nul(to_columns(", ".join(ddl)))


def _without_nul(columns: tuple[Column, ...], within: str = "") -> tuple[Column, ...]:
    for column in columns:
        path = f"{within}{column.name}"
        if "\0" in column.name:
            # Arrow would cut the name, and Spark would then read NULL.
            raise SchemaError(f"the column name {path!r} has a NUL character: leave the column out, or declare the outermost one as STRING")
        _without_nul(column.type.fields, f"{path}.")
    return columns


def type_ddl(kind: DataType, plain: Callable[[DataType], str] | None = None) -> str:
    """Return a Spark type as DDL text, with every field's name in backquotes.

    Spark's ``simpleString`` does not quote names, so that a name could inject SQL.

    Parameters
    ----------
    kind : DataType
    plain : callable or None
        Returns the text of a type that is not nested; by default Spark's ``simpleString``.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{backquoted(field.name)}: {type_ddl(field.dataType, plain)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_ddl(kind.elementType, plain)}>"
    if isinstance(kind, MapType):
        return f"map<{type_ddl(kind.keyType, plain)}, {type_ddl(kind.valueType, plain)}>"
    return plain(kind) if plain else kind.simpleString()
