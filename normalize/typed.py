"""The last step of every plan: rows of canonical values to the typed columns of the DataFrame that the user gets.

Its columns are ``row_kind``, the declared columns, the metadata asked for, and in PERMISSIVE mode ``_corrupt_record``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from cdc_formats.errors import ArgumentError
from cdc_formats.row_kind import SHORT_STRINGS
from cdc_formats.schema import Column, backquoted, columns as to_columns

from .arrow import arrow_type, spark_ddl, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROW_KIND = "row_kind"
CORRUPT_RECORD = "_corrupt_record"
CORRUPT_DDL = "STRUCT<error: STRING, topic: STRING, partition: INT, offset: BIGINT, key: BINARY, value: BINARY>"
_CORRUPT_TYPE = pa.struct(
    [
        ("error", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class Corrupt(NamedTuple):
    """A record that could not be decoded: the error's text and the record as it was."""

    error: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


decode_corrupt = msgspec.msgpack.Decoder(list[Corrupt]).decode
"""From packed corrupt records (`packing.encode_block` of a list of them) to the records."""


@dataclass(frozen=True)
class Output:
    """The columns of a changelog DataFrame.

    Parameters
    ----------
    columns, metadata : tuple of Column
    corrupt : bool
        Whether there is a ``_corrupt_record``.
    """

    columns: tuple[Column, ...]
    metadata: tuple[Column, ...] = ()
    corrupt: bool = False

    @property
    def ddl(self) -> str:
        """The DataFrame's schema."""
        corrupt = f", {CORRUPT_RECORD} {CORRUPT_DDL}" if self.corrupt else ""
        return f"{ROW_KIND} STRING, {spark_ddl((*self.columns, *self.metadata))}{corrupt}"

    @property
    def arrow_schema(self) -> pa.Schema:
        """The same for Arrow."""
        fields = [(ROW_KIND, pa.string())]
        fields += [(column.name, arrow_type(column.type)) for column in (*self.columns, *self.metadata)]
        return pa.schema(fields + ([(CORRUPT_RECORD, _CORRUPT_TYPE)] if self.corrupt else []))

    def batch(
        self,
        kinds: Sequence[int],
        rows: Sequence[Sequence[Any]],
        metadata: Sequence[Sequence[Any]],
        corrupt: Sequence[Corrupt],
    ) -> pa.RecordBatch:
        """Return changelog rows as a typed batch, the corrupt records after them.

        Parameters
        ----------
        kinds : sequence of int
            Row kinds by value, one for each row.
        rows, metadata : sequence of sequences
            Canonical values; `metadata` may be empty where no metadata is asked for.
        corrupt : sequence of Corrupt
        """
        extra = len(corrupt)
        arrays = [pa.array([SHORT_STRINGS[kind] for kind in kinds] + [None] * extra, pa.string())]
        arrays += _arrays(self.columns, rows, extra)
        arrays += _arrays(self.metadata, metadata, extra)
        if self.corrupt:
            records = [None] * len(kinds) + [record._asdict() for record in corrupt]
            arrays.append(pa.array(records, _CORRUPT_TYPE))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _arrays(columns: Sequence[Column], rows: Sequence[Sequence[Any]], extra: int) -> list[pa.Array]:
    values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    padding = (None,) * extra
    return [to_arrow(column.type, (*value, *padding) if extra else value) for column, value in zip(columns, values, strict=True)]


def require_changelog(df: DataFrame) -> None:
    """Refuse a DataFrame that is no changelog.

    Raises
    ------
    ArgumentError
        When it has no ``row_kind``.
    """
    if ROW_KIND not in df.columns:
        raise ArgumentError(f"the DataFrame has no column {ROW_KIND}: it is no changelog")


def table_columns(schema: str | StructType, without: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return a schema, as DDL text or as Spark's type, as columns.

    Parameters
    ----------
    schema : str or StructType
    without : sequence of str
        Fields of a StructType that are left out.

    Raises
    ------
    SchemaError
        When a type cannot be a table's.
    """
    if isinstance(schema, str):
        return to_columns(schema)
    fields = [field for field in schema.fields if field.name not in without]
    ddl = [f"{backquoted(field.name)} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}" for field in fields]
    return to_columns(", ".join(ddl))
