"""Convert the values of one column of many messages to an Arrow array.

Values in a producer's usual notation are converted by Arrow, as a column. A column with any other
value is converted value by value with the column's converter (`cdc_formats.values.types`). Both give the
same values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import ABSENT, Column, ConversionError, Converter, Handling
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import UNAMBIGUOUS_TEXT
from cdc_formats.values.types import placeholder_forms

from .arrow import arrow_type, parse_texts, to_stored

_NONE = type(None)
_TEXT_DECIMALS = ("text", "string", "double")
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)


class MessageColumn:
    """Converts the values of a column.

    Parameters
    ----------
    column : Column
    handling : Handling
    convert : callable
        The column's converter.
    direct : bool
        Whether values can be converted without it (`RowConverter`).
    """

    def __init__(
        self, column: Column, handling: Handling, convert: Converter, direct: bool = True
    ) -> None:
        self.sql_type, self.convert = column.type, convert
        self.placeholders = placeholder_forms(column.type, handling)
        name = column.type.name if direct else ""
        self.is_text, self.is_boolean = name in TEXT_TYPES, name == "BOOLEAN"
        self.is_integer, self.is_double = name in INTEGER_BITS, name == "DOUBLE"
        self.is_decimal = (
            name == "DECIMAL"
            and handling.decimal in _TEXT_DECIMALS
            and handling.bigint_unsigned is None
        )
        # The types of a message's numbers that Arrow converts as the converter does.
        self.exact_types: set[type] = {int, _NONE} if self.is_integer else set()
        # A number in a DECIMAL(20,0) may be an unsigned 64-bit number in two's complement.
        if self.is_decimal and str(column.type) != "DECIMAL(20,0)":
            self.exact_types = {int, Decimal, _NONE}
        # A message's text of these types has a single meaning.
        self.is_parsed = self.is_decimal or self.is_integer or name in UNAMBIGUOUS_TEXT

    def array(self, values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        """Return the values with their `arrow.stored_type`, and the indexes of refused ones.

        A value that the converter refuses is null.

        Parameters
        ----------
        values : sequence
            A message's values, or None.
        """
        if (column := self._by_arrow(values)) is not None:
            return column, self._placeholders(values)
        canonical, refused = self.canonical(values)
        return to_stored(self.sql_type, canonical), refused

    def canonical(self, values: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """As `array`, with a list of canonical values. `ABSENT` is refused."""
        types = set(map(type, values))
        if self.is_text and types <= {str, _NONE}:
            return list(values), self._placeholders(values)
        if self.is_integer and (numbers := self._by_arrow(values)) is not None:
            return numbers.to_pylist(), []
        converted = list(map(self._one, values))
        refused = [index for index, value in enumerate(converted) if value is ABSENT]
        for index in refused:
            converted[index] = None
        return converted, refused

    def _one(self, value: Any) -> Any:
        """Return a canonical value; `ABSENT` if it is refused."""
        # A text's converter would accept `ABSENT` as it does any value.
        if value is None or value is ABSENT:
            return value
        try:
            return self.convert(value)
        except (ConversionError, RecursionError):  # too deeply nested for its converter
            return ABSENT

    def _by_arrow(self, values: Sequence[Any]) -> pa.Array | None:
        try:
            if self.is_text:
                return pa.array(values, pa.string())
            types = set(map(type, values))
            if self.is_boolean:
                return self._booleans(values, types)
            if self.exact_types and types <= self.exact_types:
                return pa.array(values, arrow_type(self.sql_type))
            if self.is_double and types <= {int, float, Decimal, _NONE}:
                return _doubles(values)
            return self._parsed(values, types)
        except _ARROW_ERRORS:
            return None

    def _parsed(self, values: Sequence[Any], types: set[type]) -> pa.Array | None:
        if not self.is_parsed or not types <= {str, _NONE}:
            return None
        try:
            return parse_texts(self.sql_type, pa.array(values, pa.string()))
        except _ARROW_ERRORS:
            return None

    def _booleans(self, values: Sequence[Any], types: set[type]) -> pa.Array | None:
        if types <= {bool, _NONE}:
            return pa.array(values, pa.bool_())
        if len(types - {_NONE}) > 1:
            return None  # 1 equals True
        try:
            converted = {
                value: None if value is None else self.convert(value) for value in set(values)
            }
        except (ConversionError, TypeError):  # TypeError: an array or an object
            return None
        return pa.array([converted[value] for value in values], pa.bool_())

    def _placeholders(self, values: Sequence[Any]) -> list[int]:
        if not self.is_text or not any(form in values for form in self.placeholders):
            return []
        return [index for index, value in enumerate(values) if value in self.placeholders]


def _doubles(values: Sequence[Any]) -> pa.Array | None:
    try:
        numbers = [None if value is None else float(value) for value in values]
    except OverflowError:
        return None
    # A number out of a DOUBLE's range is an error, and not infinity.
    return (
        pa.array(numbers, pa.float64())
        if all(number is None or math.isfinite(number) for number in numbers)
        else None
    )
