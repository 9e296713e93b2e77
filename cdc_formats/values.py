"""Converters from canonical values (see `types`) to Python and JSON values: one small function per SQL type."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from operator import ne
from typing import Any

import msgspec

from .errors import EncodeError, SchemaError
from .handling import DECIMAL_MODES, Handling, Unfit, refuse
from .placeholders import placeholder_form
from .rows import key_indices
from .schema import Column, SqlType
from .times import LEAST_STAMP, MOST_STAMP, epoch_unit
from .types import null_or, shortest

To = Callable[[Any], Any]

_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def to_python(columns: Sequence[Column], row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row's canonical values as Python values: ``Decimal``, ``date``, ``time``, ``datetime``, ``timedelta``, ``dict``.

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
    return null_or(table.get(sql_type.name, _same))


# ----------------------------------------------------------------------------------------------------------------- text


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
    """Return a duration as ``[-]HH:mm:ss[.fraction]``; hours can exceed 24."""
    return f"-{time_text(-micros)}" if micros < 0 else time_text(micros)


def date_text(days: int) -> str:
    """Return days since 1970-01-01 as ``yyyy-MM-dd``."""
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def timestamp_text(micros: int, between: str = " ") -> str:
    """Return microseconds since 1970-01-01 00:00:00 as ``yyyy-MM-dd HH:mm:ss`` with the significant digits of a fraction."""
    days, rest = divmod(micros, _DAY)
    return date_text(days) + between + time_text(rest)


# ----------------------------------------------------------------------------------------------------------------- JSON


def writer(sql_type: SqlType, handling: Handling, *, iso: bool = False) -> To | None:
    """Return the function from a canonical value (never None) to a message's value: the inverse of `types.converter`.

    `json_reader.json_bytes` writes its result, and `types.converter` with the same type and handling reads it as the same value.
    Decimals are plain (Flink's default writes ``100.00`` as ``1E+2``). A FLOAT has the fewest digits that identify it among 32-bit
    floats, as in Java. NaN and the infinities are text. A fraction of a second has its significant digits. A TIMESTAMP is text with a
    ``Z`` in every mode (Debezium's ZonedTimestamp); if `handling` has no unit for a time, it is text as well. Producers without JSON
    booleans and numbers (`Handling.native`) write text.

    Parameters
    ----------
    sql_type : SqlType
    handling : Handling
    iso : bool
        Whether to write a ``T`` between date and time if `handling` does not define it: Flink's ``timestamp-format.standard``.

    Returns
    -------
    callable or None
        None if the canonical value is also the JSON value.

    Raises
    ------
    SchemaError
        When the type cannot be written: a MAP's key is not a string, or a STRUCT has two fields of one name.
    Unfit
        From the returned function, when a value would not be read back as the same value.
    """
    write = _WRITERS[sql_type.name](sql_type, handling, iso)
    placeholder = placeholder_form(sql_type, handling)
    return write if placeholder is None else _not_placeholder(sql_type, write, placeholder)


def _not_placeholder(sql_type: SqlType, write: To | None, placeholder: Any) -> To:
    def convert(value: Any) -> Any:
        written = value if write is None else write(value)
        if written == placeholder:
            raise refuse(
                sql_type, value, "it equals the placeholder for unavailable values: set unavailable_value_placeholder to another text"
            )
        return written

    return convert


def _boolean_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    # Not "1" and "0": Flink reads "1" as false.
    return None if handling.native else lambda value: "true" if value else "false"


def _integer_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    return None if handling.native else str


def _float_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    single = sql_type.name == "FLOAT"

    def write(value: float) -> float | str:
        if math.isfinite(value):
            number = _single(sql_type, value) if single else value
            return number if handling.native else repr(number)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    return write


def _single(sql_type: SqlType, value: float) -> float:
    try:
        return shortest(value)
    except OverflowError:
        raise refuse(sql_type, value, "out of its range") from None


def _decimal_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    number = _number if handling.native else None
    write = {"precise": _base64_of_unscaled, "string": None}.get(handling.decimal or "", number)
    if (sql_type.precision, sql_type.scale) != (20, 0) or (handling.decimal is not None and handling.decimal not in DECIMAL_MODES):
        return write
    long = handling.bigint_unsigned == "long"

    def unsigned(value: str) -> Any:
        if long and 0 <= int(value) < 2**64:
            return int(value) - (2**64 if int(value) >= 2**63 else 0)
        if write is _number and value[0] == "-":
            return msgspec.Raw(f"{value}.0".encode())  # written as a double: an integer would be read as two's complement
        return value if write is None else write(value)

    return unsigned


def _number(value: str) -> msgspec.Raw:
    return msgspec.Raw(value.encode())


def _base64_of_unscaled(value: str) -> str:
    unscaled = int(value.replace(".", ""))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _base64(unscaled.to_bytes(size, "big", signed=True))


def _string_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    return None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_BINARY: dict[str, To] = {
    "hex": bytes.hex,
    "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
    "latin1": lambda value: value.decode("latin-1"),
}


def _binary_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    return _BINARY.get(handling.binary or "", _base64)


def _ranged(sql_type: SqlType, least: int, most: int, write: To | None) -> To:
    def convert(value: int) -> Any:
        if least <= value <= most:
            return value if write is None else write(value)
        raise refuse(sql_type, value, "out of its range")

    return convert


_PER_MICROSECOND = {"ms": (1, 1000), "us": (1, 1), "ns": (1000, 1)}


def _epoch_writer(sql_type: SqlType, unit: str) -> To:
    times, by = _PER_MICROSECOND[unit]

    def write(value: int) -> int:
        number, rest = divmod(value * times, by)
        if rest:
            raise refuse(sql_type, value, "it has microseconds, but milliseconds are declared")
        if -(2**63) <= number < 2**63:
            return number
        raise refuse(sql_type, value, f"out of the range of 64 bits (in {unit})")

    return write


def _date_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    days = handling.time not in ("text", "isostring", None)
    zone = "Z" if handling.time == "isostring" else ""
    return _ranged(sql_type, LEAST_STAMP // _DAY, MOST_STAMP // _DAY, None if days else lambda value: date_text(value) + zone)


def _time_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    unit = epoch_unit(sql_type, handling)[0]
    zone = "Z" if handling.time == "isostring" else ""
    return _ranged(sql_type, 0, _DAY - 1, _epoch_writer(sql_type, unit) if unit else lambda value: time_text(value) + zone)


def _timestamp_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    with_zone = sql_type.name == "TIMESTAMP"
    unit = "" if with_zone else epoch_unit(sql_type, handling)[0]
    between = "T" if iso or handling.time not in ("text", None) else " "
    zone = "Z" if with_zone or handling.time == "isostring" else ""
    write = _epoch_writer(sql_type, unit) if unit else lambda value: timestamp_text(value, between) + zone
    return _ranged(sql_type, LEAST_STAMP, MOST_STAMP, write)


_MOST_INTERVAL = 10**9 * 3_600_000_000 - 1
"""A duration's text has at most nine digits of hours."""


def _interval_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    unit = epoch_unit(sql_type, handling)[0]
    return _epoch_writer(sql_type, unit) if unit else _ranged(sql_type, -_MOST_INTERVAL, _MOST_INTERVAL, interval_text)


def _inner(column: Column, handling: Handling, iso: bool) -> To:
    write = writer(column.type, replace(handling, placeholder=None), iso=iso)
    return _same if write is None else null_or(write)


def _array_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    item = _inner(sql_type.fields[0], handling, iso)
    return lambda value: [item(element) for element in value]


def _map_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    key, entry = sql_type.fields
    if key.type.name not in ("STRING", "CHAR", "VARCHAR"):
        raise SchemaError(f"{sql_type} cannot be written as JSON: the key of a map must be a STRING")
    item = _inner(entry, handling, iso)

    def write(value: list[Any]) -> dict[str, Any]:
        written = {name: item(of) for name, of in value}
        if None in written or len(written) != len(value):
            raise refuse(sql_type, value, "a key is NULL or occurs twice")
        return written

    return write


def _struct_writer(sql_type: SqlType, handling: Handling, iso: bool) -> To | None:
    names = [field.name for field in sql_type.fields]
    if len(set(names)) != len(names):
        raise SchemaError(f"{sql_type} cannot be written as JSON: two of its fields have the same name")
    inner = [_inner(field, handling, iso) for field in sql_type.fields]
    return lambda value: {name: write(item) for name, write, item in zip(names, inner, value, strict=True)}


_WRITERS: dict[str, Callable[[SqlType, Handling, bool], To | None]] = {
    "BOOLEAN": _boolean_writer,
    "TINYINT": _integer_writer,
    "SMALLINT": _integer_writer,
    "INT": _integer_writer,
    "BIGINT": _integer_writer,
    "FLOAT": _float_writer,
    "DOUBLE": _float_writer,
    "DECIMAL": _decimal_writer,
    "STRING": _string_writer,
    "CHAR": _string_writer,
    "VARCHAR": _string_writer,
    "BINARY": _binary_writer,
    "DATE": _date_writer,
    "TIME": _time_writer,
    "TIMESTAMP": _timestamp_writer,
    "TIMESTAMP_NTZ": _timestamp_writer,
    "INTERVAL DAY TO SECOND": _interval_writer,
    "ARRAY": _array_writer,
    "MAP": _map_writer,
    "STRUCT": _struct_writer,
}


class RowWriter:
    """Writes the rows of one table as JSON objects: the inverse of `rows.RowConverter`.

    Parameters
    ----------
    columns : sequence of Column
        The columns, in the order of a row's values.
    handling : Handling or sequence of Handling
        One for all columns, or one for each.
    unique_key : sequence of str
        The columns that `key` writes.
    iso : bool
        As in `writer`.
    excerpt : bool
        Whether an error shows the invalid value (`Format.error_excerpt`).

    Raises
    ------
    SchemaError
        When the key is not declared, or a column's type cannot be written.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        handling: Handling | Sequence[Handling],
        unique_key: Sequence[str] = (),
        *,
        iso: bool = False,
        excerpt: bool = True,
    ) -> None:
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.names = tuple(column.name for column in columns)
        self.writers = tuple(writer(column.type, how, iso=iso) for column, how in zip(columns, each, strict=True))
        self.key_names = tuple(unique_key)
        self.key_indices = key_indices(columns, unique_key)
        self.excerpt = excerpt
        self._differ = tuple(_differ_by_sign if _has_float(column.type) else ne for column in columns)

    def image(self, row: Sequence[Any], path: str = "$") -> dict[str, Any]:
        """Return a row as an object, for `json_reader.json_bytes`.

        Parameters
        ----------
        row : sequence
            Canonical values, or None.
        path : str
            The object's path in the message, for errors.

        Raises
        ------
        EncodeError
            When a value cannot be written so that it is read as the same value.
        """
        try:
            return {
                name: value if write is None or value is None else write(value)
                for name, write, value in zip(self.names, self.writers, row, strict=True)
            }
        except Unfit:
            raise self._unfit(row, path) from None

    def changed(self, before: Sequence[Any], row: Sequence[Any], path: str = "$.old") -> dict[str, Any]:
        """Return an object with the columns of `before` that differ in `row` (Canal's and Maxwell's ``old``).

        Raises
        ------
        EncodeError
            As `image`.
        """
        columns = zip(self.names, self.writers, self._differ, before, row, strict=True)
        try:
            return {
                name: was if write is None or was is None else write(was) for name, write, differ, was, now in columns if differ(was, now)
            }
        except Unfit:
            raise self._unfit(before, path) from None

    def key(self, row: Sequence[Any]) -> dict[str, Any] | None:
        """Return the key's columns of a row as an object, or None if there is no key.

        Raises
        ------
        EncodeError
            As `image`.
        """
        if not self.key_indices:
            return None
        try:
            return {self.names[i]: self._written(i, row[i]) for i in self.key_indices}
        except Unfit:
            raise self._unfit(row, "$") from None

    def _written(self, index: int, value: Any) -> Any:
        write = self.writers[index]
        return value if write is None or value is None else write(value)

    def _unfit(self, row: Sequence[Any], path: str) -> EncodeError:
        # As in RowConverter._unfit: name the first column that fails.
        for index, (name, value) in enumerate(zip(self.names, row, strict=True)):
            try:
                self._written(index, value)
            except Unfit as error:
                reason = str(error) if self.excerpt or not error.bare else error.bare
                return EncodeError(f"{reason} - at `{path}.{name}`")
        raise AssertionError("no column failed again")  # pragma: no cover - writers are pure


def _has_float(sql_type: SqlType) -> bool:
    return sql_type.name in ("FLOAT", "DOUBLE") or any(_has_float(field.type) for field in sql_type.fields)


def _differ_by_sign(was: Any, now: Any) -> bool:
    # 0.0 and -0.0 are equal, but written differently.
    return repr(was) != repr(now)
