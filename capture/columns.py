"""The Spark types of a table's columns, and the conversion of their values.

Values of the log are first converted to the text (or bytes) that a query returns. One function
converts that text to Arrow. So a row of the snapshot and the same row of the log are equal.

========================================  =========================================================
MySQL, MariaDB                            Spark
========================================  =========================================================
``TINYINT`` .. ``BIGINT``                 TINYINT, SMALLINT, INT, BIGINT; unsigned: the next larger
                                          type, DECIMAL(20,0) for BIGINT
``YEAR``                                  INT
``DECIMAL(p,s)``                          DECIMAL(p,s); STRING if p is more than Spark's 38
``FLOAT``, ``DOUBLE``                     FLOAT, DOUBLE
``CHAR``, ``VARCHAR``, ``TEXT``, ``JSON`` STRING
``ENUM``, ``SET``                         STRING, the labels
``BINARY``, ``VARBINARY``, ``BLOB``       BINARY
``DATE``, ``DATETIME(p)``                 DATE, TIMESTAMP_NTZ
``TIMESTAMP(p)``                          TIMESTAMP, independent of the server's time zone
``TIME(p)``                               STRING, from ``-838:59:59`` to ``838:59:59``
``BIT(1)``, ``BIT(n)``                    BOOLEAN, BINARY
========================================  =========================================================

Dates with zeros (``0000-00-00``) raise an error, or become NULL with ``zero-dates`` = ``null``.
JSON is formatted by Python's ``json``, with keys in the server's order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.values.mysql import BINARIES, INTEGERS, TEXTS, mysql_type
from cdc_formats.values.schema import ARROW_TYPES, Column, SqlType, backquoted

from .errors import BinlogError, ServerNotReadyError

_TIMES = ("date", "datetime", "timestamp")
_OWN = {**dict.fromkeys(("time", "enum", "set"), SqlType("STRING")), "bit": SqlType("BINARY")}
"""Columns read as the text or bytes of a query, not with the type of `values.mysql`; a BIT(1) is
not one."""
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_CODECS = {
    "ascii": "ascii",
    "latin1": "cp1252",
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
"""Character sets that Python decodes as the server does."""
_SPARK_DIGITS = 38
ZERO_DATE = "0000-00-00"


@dataclass(frozen=True)
class SourceColumn:
    """A column as described by the server's ``information_schema``.

    Attributes
    ----------
    name, data_type, column_type : str
        ``id``, ``int``, ``int(10) unsigned``.
    nullable : bool
    charset, collation : str or None
    precision, scale : int
        Digits of a DECIMAL. For a time, `precision` is the number of fractional digits.
    length : int
        The number of bytes of a BINARY.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool
    charset: str | None
    collation: str | None
    precision: int
    scale: int
    length: int

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.column_type or "zerofill" in self.column_type

    @property
    def labels(self) -> list[str]:
        """The labels of an ENUM or a SET, in order of declaration."""
        return [label.replace("''", "'") for label in _LABEL.findall(self.column_type)]

    @property
    def column(self) -> Column:
        """The column in Spark."""
        return Column(self.name, sql_type(self), self.nullable or self.data_type in _TIMES)

    @property
    def text_type(self) -> pa.DataType:
        """The Arrow type of values as a query returns them: text, or bytes for binary columns."""
        return pa.binary() if self.data_type in (*BINARIES, "bit") else pa.string()


def sql_type(column: SourceColumn) -> SqlType:
    """Return a column's Spark type.

    Raises
    ------
    ServerNotReadyError
        If the type or the character set is not supported.
    """
    kind = column.data_type
    if kind == "decimal" and column.precision > _SPARK_DIGITS:
        return SqlType("STRING")
    if kind in TEXTS:
        if column.charset not in _CODECS:
            raise ServerNotReadyError(
                f"column `{column.name}` has the character set {column.charset}, which is not "
                f"supported: ALTER TABLE ... MODIFY {backquoted(column.name)} {column.column_type} "
                "CHARACTER SET utf8mb4"
            )
        return SqlType("STRING")
    if kind in _OWN and (kind, column.precision) != ("bit", 1):
        return _OWN[kind]
    shared = mysql_type(kind, column.precision, column.scale, unsigned=column.unsigned)
    if shared is None:
        raise ServerNotReadyError(
            f"column `{column.name}` has the type {column.column_type}, which is not supported"
        )
    return shared


def select_expression(column: SourceColumn) -> str:
    """Return the SQL that selects a column, with all FLOAT digits and without ZEROFILL's zeros."""
    name = backquoted(column.name)
    if column.data_type == "float":
        return f"CAST({name} AS DOUBLE)"
    return f"{name} + 0" if "zerofill" in column.column_type else name


def as_text(column: SourceColumn) -> str:
    """Return the SQL expression that selects a column as text or bytes, for any driver."""
    expression = select_expression(column)
    return expression if column.text_type == pa.binary() else f"CAST({expression} AS CHAR)"


# -------------------------------------------------------------------------------------------------
# values of the log to text


def text_of(column: SourceColumn) -> Callable[[Any], Any]:
    """Return a function that converts a value read by mysql-replication to what a query returns."""
    kind = column.data_type
    if kind in INTEGERS and kind != "year":
        return str
    if kind in TEXTS:
        return _decoder(str(column.charset))
    if kind == "binary":
        return lambda value: value.ljust(column.length, b"\0")
    if kind == "set":
        return lambda labels: ",".join(label for label in column.labels if label in labels)
    if kind in ("datetime", "timestamp"):
        return lambda value: _instant_text(value, column.precision, kind == "timestamp")
    if kind == "time":
        return lambda value: _time_text(value, column.precision)
    return _TEXT_OF.get(kind, lambda value: value)


def _json_text(value: Any) -> str:
    return json.dumps(_plain_json(value), ensure_ascii=False, separators=(", ", ": "))


def _plain_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain_json(key): _plain_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain_json(each) for each in value]
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise BinlogError(
        f"a JSON document contains a {type(value).__name__}, which has no JSON text: store it as a "
        "number or a string"
    )


_TEXT_OF: dict[str, Callable[[Any], Any]] = {
    "decimal": lambda value: format(
        value if value else abs(value), "f"
    ),  # a query returns 0.00 for the log's -0.00
    "float": repr,
    "double": repr,
    "date": date.isoformat,
    "year": lambda value: "0000" if value == 1900 else str(value),
    "bit": lambda bits: int(bits, 2).to_bytes((len(bits) + 7) // 8, "big"),
    "json": _json_text,
}


def _decoder(charset: str) -> Callable[[bytes], str]:
    codec = _CODECS[charset]
    if charset != "latin1":
        return lambda value: value.decode(codec)

    def decode(value: bytes) -> str:
        try:
            return value.decode(codec)
        except (
            UnicodeDecodeError
        ):  # cp1252 has no character for five bytes, which the server reads as control characters
            return "".join(
                bytes((byte,)).decode("latin1" if byte in b"\x81\x8d\x8f\x90\x9d" else codec)
                for byte in value
            )

    return decode


def _instant_text(value: datetime, digits: int, timestamp: bool) -> str:
    # The server stores the zero date as a TIMESTAMP of 0.
    if timestamp and value == datetime(1970, 1, 1):
        return ZERO_DATE
    text = value.isoformat(" ", "microseconds")
    return text[: 20 + digits] if digits else text[:19]


def _time_text(value: timedelta, digits: int) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 10**6)
    text = f"{'-' if value < timedelta(0) else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


# --------------------------------------------------------------------------------------------------
# text to Arrow


def arrow_type(of: SqlType) -> pa.DataType:
    """Return the Arrow type of a Spark type."""
    if of.name == "DECIMAL":
        return pa.decimal128(of.precision or 10, of.scale or 0)
    name, *arguments = ARROW_TYPES[of.name]
    return getattr(pa, name)(*arguments)


def to_arrow(column: SourceColumn, texts: pa.ChunkedArray, *, zero_dates: str) -> pa.ChunkedArray:
    """Return a column of query results, converted to its Spark type.

    Parameters
    ----------
    column : SourceColumn
    texts : pa.ChunkedArray
        Of `SourceColumn.text_type`.
    zero_dates : str
        ``null`` or ``fail``: a date with zeros becomes NULL or raises an error.

    Raises
    ------
    BinlogError
        If a date has zeros and `zero_dates` is ``fail``.
    """
    kind, target = column.data_type, arrow_type(sql_type(column))
    if kind in _TIMES:
        return _dates(column, texts, zero_dates).cast(target)
    if kind == "bit" and column.precision == 1:
        return pc.not_equal(texts, pa.scalar(b"\0"))
    if kind == "json":
        texts = pa.chunked_array(
            [
                [
                    None if text is None else _json_text(json.loads(text))
                    for text in texts.to_pylist()
                ]
            ],
            pa.string(),
        )
    return texts.cast(target)


def _dates(column: SourceColumn, texts: pa.ChunkedArray, zero_dates: str) -> pa.ChunkedArray:
    zeros = pc.match_substring_regex(texts, r"^0000-|-00(-|$| )")
    if pc.any(zeros).as_py():
        if zero_dates == "fail":
            bad = texts.filter(zeros)[0].as_py()
            raise BinlogError(
                f"column `{column.name}` has the date {bad}, which is not valid: set zero-dates = "
                "null to read it as NULL"
            )
        texts = pc.if_else(zeros, pa.scalar(None, pa.string()), texts)
    return texts.cast(pa.timestamp("us"))
