"""Arrow's columns as the text that PostgreSQL's ``COPY`` reads.

The server converts each text to the type of its column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days of the years 1 to 9999: Arrow and PostgreSQL write other years in different ways."""
_MICROS_OF_DAY = 86_400_000_000


def copy_text(table: pa.Table) -> pa.Table | None:
    """Return a table's columns as text, times in UTC; None if a value has no text.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of numbers, Booleans, text, bytes, dates, and timestamps in microseconds.
    """
    texts = [_text(column) for column in table.columns]
    if any(text is None for text in texts):
        return None
    return pa.table(texts, names=table.column_names)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    kind = column.type
    if pa.types.is_binary(kind):
        values = (None if value is None else f"\\x{value.hex()}" for value in column.to_pylist())
        return pa.chunked_array([pa.array(values, pa.string())])
    if pa.types.is_timestamp(kind):
        numbers, in_day = column.cast(pa.int64()), _MICROS_OF_DAY
    elif pa.types.is_date(kind):
        numbers, in_day = column.cast(pa.int32()), 1
    else:
        return column.cast(pa.string())
    least, greatest = pc.min_max(numbers).as_py().values()
    if least is not None and (least < _FIRST_DAY * in_day or greatest >= (_LAST_DAY + 1) * in_day):
        return None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        in_utc = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
        return pc.binary_join_element_wise(in_utc.cast(pa.string()), "+00", "")
    return column.cast(pa.string())
