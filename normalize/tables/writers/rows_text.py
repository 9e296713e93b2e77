"""Arrow's rows as text that a server loads: CSV for ``COPY``, or the ``VALUES`` of ``INSERT``.

The server converts each text to the type of its column. ``LOAD DATA LOCAL`` is not used: it only
warns of values that do not fit, also in strict mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days of the years 1 to 9999: Arrow and the servers write other years in different ways."""
_MICROS_OF_DAY = 86_400_000_000
_MOST_TEXT = 1_000_000
"""The characters of rows in a statement; MySQL refuses those above ``max_allowed_packet``."""


def as_csv(table: pa.Table) -> bytes | None:
    """Return rows as CSV for PostgreSQL's ``COPY``, times in UTC; None if a value has no text.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of numbers, Booleans, text, bytes, dates, and timestamps in microseconds.
    """
    texts = [
        _hexadecimal(column, "\\x{}")
        if pa.types.is_binary(column.type)
        else _plain(column, zone="+00")
        for column in table.columns
    ]
    if any(text is None for text in texts):
        return None
    sent = pa.BufferOutputStream()
    named = pa.table(texts, names=table.column_names)
    csv.write_csv(named, sent, csv.WriteOptions(include_header=False))
    return bytes(sent.getvalue())


def as_values(table: pa.Table) -> list[str] | None:
    """Return rows as the ``VALUES`` of MySQL's statements, times in UTC; None as in `as_csv`.

    The parameter is that of `as_csv`.
    """
    texts = list(map(_literals, table.columns))
    if any(text is None for text in texts):
        return None
    rows = pc.binary_join_element_wise(*texts, ", ").to_pylist()
    return list(_statements(rows))


def _statements(rows: list[str]) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for row in rows:
        if part and size + len(row) > _MOST_TEXT:
            yield ", ".join(part)
            part, size = [], 0
        part.append(f"({row})")
        size += len(row)
    if part:
        yield ", ".join(part)


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    kind = column.type
    if pa.types.is_string(kind):
        values = (None if value is None else mysql_literal(value) for value in column.to_pylist())
        text = pa.chunked_array([pa.array(values, pa.string())])
    elif pa.types.is_binary(kind):
        text = _hexadecimal(column, "x'{}'")
    elif pa.types.is_boolean(kind):
        text = _plain(column.cast(pa.int8()))
    elif pa.types.is_integer(kind):
        text = _plain(column)
    elif (text := _plain(column)) is not None:
        # As text, a number with an exponent is exact, and one that is none is an error.
        text = pc.binary_join_element_wise("'", text, "'", "")
    return text if text is None else pc.fill_null(text, "NULL")


def mysql_literal(text: str) -> str:
    """Return text as a literal of MySQL that has the same meaning in every mode and character set."""
    if text.isascii() and text.isprintable() and "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    return f"_utf8mb4 x'{text.encode().hex()}'"  # the server reads digits more slowly


def _hexadecimal(column: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    values = (None if value is None else form.format(value.hex()) for value in column.to_pylist())
    return pa.chunked_array([pa.array(values, pa.string())])


def _plain(column: pa.ChunkedArray, zone: str = "") -> pa.ChunkedArray | None:
    kind = column.type
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
        return pc.binary_join_element_wise(in_utc.cast(pa.string()), zone, "")
    return column.cast(pa.string())
