"""The way back: typed changelog rows to Kafka records, on Spark's workers, in ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cdc_formats.base import Format
from cdc_formats.row_kind import RowKind
from cdc_formats.schema import Column

from .arrow import from_arrow
from .typed import ROW_KIND

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def encode_pass(
    batches: Iterator[pa.RecordBatch], *, format: Format, columns: Sequence[Column], unique_key: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Encode rows (``row_kind`` and the columns) as ``key`` and ``value``; for ``mapInArrow``.

    A row without a row kind (a corrupt record of PERMISSIVE mode) cannot be written, and is an error.
    """
    encode = format.encoder(columns, unique_key=unique_key).encode
    for batch in batches:
        kinds = [RowKind.from_short_string(str(kind)) for kind in batch.column(ROW_KIND).to_pylist()]
        values = [from_arrow(column.type, batch.column(index)) for index, column in enumerate(columns, 1)]
        records = [encode(kind, row) for kind, row in zip(kinds, zip(*values, strict=True), strict=True)]
        arrays = [pa.array([record[part] for record in records if record is not None], pa.binary()) for part in (0, 1)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
