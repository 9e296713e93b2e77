"""Encode typed changelog rows as Kafka records with a ``source`` block, in ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import TimestampType

from cdc_formats.decoding.rows import key_indices
from cdc_formats.encoding import pair_updates
from cdc_formats.errors import ArgumentError, EncodeError, SchemaError
from cdc_formats.events import SHORT_STRINGS, KeyValue, RowKind
from cdc_formats.format import Encoder, Format
from cdc_formats.values.schema import Column, ConversionError, Handling, name_parts, null_or, quote
from cdc_formats.values.types import converter
from normalize.core.arrow import from_arrow
from normalize.core.output import ROW_KIND

from .worker import worker

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_KINDS = dict(zip(SHORT_STRINGS, RowKind, strict=True))
SOURCE = "_source"
"""The column with the ``source`` block of a row's message as JSON text, if it is written."""
_RECORDS = 10_000
"""The number of records in a batch: Spark's default."""

Row = tuple[Any, ...]


def encode_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    format: Format,
    columns: Sequence[Column],
    unique_key: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Encode a task's rows as ``key`` and ``value``; for ``mapInArrow``.

    A row has ``row_kind``, the columns, and `SOURCE` if it is written.

    A ``-U`` and the following ``+U`` of its key become one update if the format has such a record,
    also across batches. A single ``-U`` is a delete.

    Raises
    ------
    ArgumentError
        When a row has no row kind (a corrupt record or a control event).
    EncodeError
        When a value cannot be written.
    """
    with worker():
        encoder = format.encoder(columns, unique_key=unique_key)
        rows = chain.from_iterable(_rows(batch, columns) for batch in batches)
        records = _records(encoder, rows, key_indices(columns, unique_key))
        while some := list(islice(records, _RECORDS)):
            arrays = [pa.array(parts, pa.binary()) for parts in zip(*some, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[tuple[RowKind, Row]]:
    kinds = [
        _KINDS[kind] if kind in _KINDS else _kind(kind)
        for kind in batch.column(ROW_KIND).to_pylist()
    ]
    values = [_values(column, batch.column(index)) for index, column in enumerate(columns, 1)]
    # A row ends with its source block, so that they stay together when updates are paired.
    blocks = (
        batch.column(SOURCE).to_pylist() if SOURCE in batch.schema.names else [None] * len(kinds)
    )
    return zip(kinds, zip(*values, blocks, strict=True), strict=True)


def _kind(text: str | None) -> RowKind:
    if text is None:
        raise ArgumentError(
            f"a row has no {ROW_KIND} (a corrupt record or a control event): filter such rows out, "
            f"df.where('{ROW_KIND} IS NOT NULL')"
        )
    return RowKind.from_short_string(text)


def _values(column: Column, array: pa.Array) -> list[Any]:
    try:
        values = from_arrow(column.type, array)
        # Spark's text of a VARIANT can be what JSON does not have, such as an infinite number.
        if column.type.name == "VARIANT":
            check = null_or(converter(column.type, Handling()))
            return list(map(check, values))
        return values
    except ConversionError as error:
        raise EncodeError(f"{error} - in column {quote(column.name)}") from None


def _records(
    encoder: Encoder, rows: Iterable[tuple[RowKind, Row]], key: Sequence[int]
) -> Iterator[KeyValue]:
    for kind, row, before in (
        pair_updates(rows, key)
        if encoder.pairs_updates
        else ((kind, row, None) for kind, row in rows)
    ):
        encoder.source = row[-1] and msgspec.Raw(row[-1].encode())
        # A single -U, as of a key that changed, is a delete, also in a format of upserts, which has
        # no record for a -U.
        is_single = encoder.pairs_updates and kind is RowKind.UPDATE_BEFORE
        written = RowKind.DELETE if is_single else kind
        record = encoder.encode(written, row[:-1], before and before[:-1])
        if record is not None:
            yield record


# --------------------------------------------------------------------------------------------------
# The ``source`` block to write, with a row's source log position, from DataFrame columns.


def columns_of(source: Mapping[str, str]) -> list[str]:
    """Return the top-level columns of the block's fields: ``position`` for ``position.file``."""
    return sorted({part for path in source.values() for part in name_parts(path)[:1]})


def source_block(df: DataFrame, source: Mapping[str, str]) -> list[SparkColumn]:
    """Return a list with the block as a JSON text column without NULL fields; empty without fields.

    Raises
    ------
    SchemaError
        When the DataFrame lacks a column of the block.
    """
    if not source:
        return []
    return [
        F.to_json(F.struct(*(_value(df, path).alias(name) for name, path in source.items()))).alias(
            SOURCE
        )
    ]


def _value(df: DataFrame, path: str) -> SparkColumn:
    try:
        kind = df.select(path).schema[0].dataType
    except AnalysisException as error:
        raise SchemaError(
            f"source has the column {path!r}, which the DataFrame lacks: "
            f"{str(error).splitlines()[0]}"
        ) from None
    return F.unix_millis(path) if isinstance(kind, TimestampType) else F.col(path)
