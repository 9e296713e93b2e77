"""From canonical values (see `types`) to Python's values and to JSON's: one small function per SQL type."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec

from .errors import SchemaError
from .schema import Column, SqlType

To = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def to_python(columns: Sequence[Column], row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row's canonical values as Python's own: ``Decimal``, ``date``, ``time``, ``datetime``, ``timedelta``, ``dict``.

    Parameters
    ----------
    columns : sequence of Column
    row : sequence
        Canonical values in the order of the columns.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> to_python(columns("weight DECIMAL(10,3), day DATE"), ("3.140", 19000))
    (Decimal('3.140'), datetime.date(2022, 1, 8))
    """
    return tuple([_python(column.type)(value) for column, value in zip(columns, row, strict=True)])


def _or_none(convert: To) -> To:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _timestamp(value: int) -> datetime:
    return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=timezone.utc)


def _python(sql_type: SqlType) -> To:
    inner = [_python(field.type) for field in sql_type.fields]
    names = [field.name for field in sql_type.fields]
    table: dict[str, To] = {
        "DECIMAL": Decimal,
        "DATE": lambda value: date.fromordinal(value + _EPOCH_DAY),
        "TIME": lambda value: (_EPOCH + timedelta(microseconds=value)).time(),
        "TIMESTAMP": _timestamp,
        "TIMESTAMP_NTZ": lambda value: _EPOCH + timedelta(microseconds=value),
        "INTERVAL DAY TO SECOND": lambda value: timedelta(microseconds=value),
        "ARRAY": lambda value: [inner[0](item) for item in value],
        "MAP": lambda value: {inner[0](key): inner[1](item) for key, item in value},
        "STRUCT": lambda value: {name: to(item) for name, to, item in zip(names, inner, value, strict=True)},
    }
    return _or_none(table.get(sql_type.name, _same))


# ----------------------------------------------------------------------------------------------------------------- JSON


def json_writer(columns: Sequence[Column], *, iso: bool = False) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """Return the function from a row to a JSON object, as Flink's RowDataToJsonConverters writes it.

    Parameters
    ----------
    columns : sequence of Column
    iso : bool
        ``timestamp-format.standard``: ``ISO-8601`` (a ``T`` between date and time) or ``SQL`` (a blank).

    Returns
    -------
    callable
        Its objects are for `json_reader.json_bytes`. Decimals are plain numbers (Flink's default writes ``100.00`` as ``1E+2``),
        NaN and the infinities are strings, a fraction of a second has its significant digits.

    Raises
    ------
    SchemaError
        When a MAP's key is no string: JSON has none.
    """
    names = [column.name for column in columns]
    to = [_json(column.type, iso) for column in columns]
    return lambda row: {name: convert(value) for name, convert, value in zip(names, to, row, strict=True)}


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def time_text(micros: int) -> str:
    """Return microseconds since midnight as ``HH:mm:ss`` with the significant digits of a fraction.

    Examples
    --------
    >>> time_text(45_296_120_000)
    '12:34:56.12'
    """
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def interval_text(micros: int) -> str:
    """Return a duration as ``[-]HH:mm:ss[.fraction]``; hours are not cut at a day."""
    return f"-{time_text(-micros)}" if micros < 0 else time_text(micros)


def date_text(days: int) -> str:
    """Return days since 1970-01-01 as ``yyyy-MM-dd``."""
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def timestamp_text(micros: int, between: str = " ") -> str:
    """Return microseconds since 1970-01-01 00:00:00 as ``yyyy-MM-dd HH:mm:ss`` with the significant digits of a fraction."""
    days, rest = divmod(micros, 86_400_000_000)
    return date_text(days) + between + time_text(rest)


def _json(sql_type: SqlType, iso: bool) -> To:
    inner = [_json(field.type, iso) for field in sql_type.fields]
    names = [field.name for field in sql_type.fields]
    between = "T" if iso else " "
    if sql_type.name == "MAP" and sql_type.fields[0].type.name not in ("STRING", "CHAR", "VARCHAR"):
        raise SchemaError(f"{sql_type} cannot be written as JSON: the key of a map must be a STRING")
    table: dict[str, To] = {
        "FLOAT": _float,
        "DOUBLE": _float,
        "DECIMAL": lambda value: msgspec.Raw(value.encode()),
        "BINARY": lambda value: base64.b64encode(value).decode(),
        "DATE": date_text,
        "TIME": time_text,
        "TIMESTAMP": lambda value: timestamp_text(value, between) + "Z",
        "TIMESTAMP_NTZ": lambda value: timestamp_text(value, between),
        "INTERVAL DAY TO SECOND": interval_text,
        "ARRAY": lambda value: [inner[0](item) for item in value],
        "MAP": lambda value: {key: inner[1](item) for key, item in value},
        "STRUCT": lambda value: {name: to(item) for name, to, item in zip(names, inner, value, strict=True)},
    }
    return _or_none(table.get(sql_type.name, _same))
