"""The JSON values seen in a column, and the type that holds all of them.

==============================  ===================================================================
values seen                     type
==============================  ===================================================================
booleans                        BOOLEAN
integers                        BIGINT; DECIMAL(20,0) or DECIMAL(38,0) beyond 63 bits
numbers with a fraction         DECIMAL(38,18), or another scale where values have more digits;
                                DOUBLE where one is written with an exponent above zero or does not
                                fit 38 digits, and in formats whose producer writes exact decimals
                                otherwise, unless a value has more than the 17 digits of a double
``"NaN"``, ``"Infinity"`` too   DOUBLE
text                            DATE, TIMESTAMP (all with an offset) or TIMESTAMP_NTZ (none with)
                                where every value is ISO text; else STRING
arrays                          ARRAY of what the elements are
objects                         MAP<STRING, ...> where at least two have no field in common to all,
                                and the values are of one type; else STRUCT
only nulls, or several kinds    STRING, which holds every JSON value as text (integers and other
                                numbers are one kind)
==============================  ===================================================================

A decimal has room for more digits than the sample shows: 1.25 may follow 1.5, and too many digits
are an error. A DOUBLE would lose digits instead. Arrays and objects nested deeper than 20 levels
are text. A number's size is no evidence of its type. Text that looks like base64 or digits stays
text, with a note.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from cdc_formats.errors import clip
from cdc_formats.topics.declared import Question
from cdc_formats.values.json_reader import NumberWithText
from cdc_formats.values.mysql import UNSIGNED_BIGINT
from cdc_formats.values.schema import Column, Handling, SqlType
from cdc_formats.values.times import GUESSED_FROM_TEXT, STRUCTURED
from cdc_formats.values.types import MOST_DIGITS, converter

from .source_types import STRING

_KINDS = {
    bool: "boolean",
    int: "integer",
    Decimal: "number",
    NumberWithText: "number",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime: "timestamp",
    list: "array",
    dict: "object",
    type(None): "null",
}
_NUMBERS = {"integer", "number", "double"}
_ROOMY_SCALE = 18  # as Spark's own default, DECIMAL(38,18)


def _accepts(convert: Callable[[str], object]) -> Callable[[str], bool]:
    """Return the function that says whether text can be converted."""

    def accepts(text: str) -> bool:
        try:
            convert(text)
        except ValueError:  # a ConversionError, or no base64
            return False
        return True

    return accepts


def _base64(text: str) -> bytes:
    # Python 3.10 also accepts too many `=`.
    if len(text) % 4:
        raise ValueError
    return base64.b64decode(text, validate=True)


_TIMES = {name: _accepts(converter(SqlType(name), Handling())) for name in GUESSED_FROM_TEXT}
_SHAPES: dict[str, Callable[[str], object]] = {
    **_TIMES,
    "base64": _accepts(_base64),
    "digits": re.compile(r"-?[0-9]+(?:\.[0-9]+)?").fullmatch,
}
DIGITS = Question("every value is digits: if it is a number, declare it")
BASE64 = Question("every value is base64: if it is BINARY, declare it")
_BASE64_MARK = re.compile(r"[+/=]")


class ColumnValues:
    """Collects the values of a column, or of an element or field inside it.

    Parameters
    ----------
    placeholder : str or None
        Debezium's unavailable-value placeholder; such values are skipped.

    Attributes
    ----------
    kinds : Counter
        How many values of each JSON type were seen: ``boolean``, ``integer``, ``number``,
        ``string``, ``array``, ``object``, ``null``; for MongoDB documents also ``double``,
        ``bytes`` and ``timestamp``.
    lengths : tuple of int or None
        The shortest and the longest length of text; None without text.
    examples : list of str
        The first distinct values, shortened.
    """

    def __init__(self, placeholder: str | None = None, *, depth: int = 0) -> None:
        self.kinds: Counter[str] = Counter()
        self.lengths: tuple[int, int] | None = None
        self.examples: list[str] = []
        self._placeholder, self._depth = placeholder, depth
        self._none = [] if placeholder is None else unavailable_forms(placeholder)
        self._least = self._most = self._whole = self._scale = self._special = 0
        self._exponent = self._beyond_double = self._base64_marks = False
        self._shapes: set[str] = set(_SHAPES)
        self._elements: ColumnValues | None = None
        self._fields: dict[str, ColumnValues] = {}

    def add(self, value: Any, examples: int = 0) -> None:
        """Add a value that a JSON reader returned."""
        if value in self._none:
            return
        kind = _KINDS.get(type(value), "string")
        if kind in ("array", "object") and self._depth == 20:  # a deeper value counts as one kind
            kind = "deeper"
        self.kinds[kind] += 1
        add = self._adders.get(kind)
        if add is not None:
            add(self, value)
        if (
            kind != "null"
            and len(self.examples) < examples
            and (shown := clip(str(value), 40)) not in self.examples
        ):
            self.examples.append(shown)

    def _add_integer(self, value: int) -> None:
        self._least, self._most = min(self._least, value), max(self._most, value)
        self._whole = max(self._whole, len(str(abs(value))))

    def _add_number(self, value: Decimal) -> None:
        self._exponent |= _exponent(value) > 0
        self._beyond_double |= len(value.as_tuple().digits) > 17  # those of a double
        self._add_digits(value)

    def _add_array(self, value: list[Any]) -> None:
        self._elements = self._elements or self._part()
        for item in value:
            self._elements.add(item)

    def _add_object(self, value: dict[str, Any]) -> None:
        for name, item in value.items():
            self._fields.setdefault(name, self._part()).add(item)

    def _part(self) -> ColumnValues:
        return ColumnValues(self._placeholder, depth=self._depth + 1)

    def _add_digits(self, value: Decimal) -> None:
        self._scale = max(self._scale, -_exponent(value))
        self._whole = max(self._whole, value.adjusted() + 1 if value else 1, 1)

    def _add_text(self, text: str) -> None:
        lengths = (*(self.lengths or ()), len(text))
        self.lengths = min(lengths), max(lengths)
        self._special += text in ("NaN", "Infinity", "-Infinity")
        self._shapes = {name for name in self._shapes if _SHAPES[name](text)}
        if "digits" in self._shapes:
            self._add_digits(Decimal(text))
        self._base64_marks |= _BASE64_MARK.search(text) is not None

    _adders: ClassVar[dict[str, Callable[[ColumnValues, Any], None]]] = {
        "integer": _add_integer,
        "number": _add_number,
        "string": _add_text,
        "array": _add_array,
        "object": _add_object,
    }

    @property
    def has_negative_integers(self) -> bool:
        """Whether an integer is negative, as is an unsigned BIGINT from 2**63 read as signed."""
        return self._least < 0

    @property
    def has_small_integers(self) -> bool:
        """Whether all integers are below 1,000, and not all are 0.

        They are no dates and times then: days of the years 1967 to 1972, or less than a second.
        """
        return 0 < max(self._most, -self._least) < 1000

    @property
    def nulls(self) -> int:
        """How many values were null."""
        return self.kinds["null"]

    @property
    def values(self) -> int:
        """How many values were not null."""
        return self.kinds.total() - self.nulls

    def type(self, *, exact_numbers: bool = True) -> SqlType:
        """Return the type that holds all values.

        Parameters
        ----------
        exact_numbers : bool
            Whether the producer writes exact decimals as JSON numbers.
        """
        kinds = set(self.kinds) - {"null"}
        if kinds and kinds <= _NUMBERS:
            return self._number(kinds, exact_numbers)
        if (
            self._special
            and self._special == self.kinds["string"]
            and kinds <= {*_NUMBERS, "string"}
        ):
            return SqlType("DOUBLE")
        return self._of_kind(kinds.pop(), exact_numbers) if len(kinds) == 1 else STRING

    def _number(self, kinds: set[str], exact_numbers: bool) -> SqlType:
        """Return the type of numbers: of integers, of a double's values, or of decimals."""
        if kinds == {"integer"}:
            if self._least >= -(2**63) and self._most < 2**63:
                return SqlType("BIGINT")
            if self._least >= 0 and self._most < 2**64:
                return UNSIGNED_BIGINT
            return SqlType("DECIMAL", MOST_DIGITS, 0) if self._whole <= MOST_DIGITS else STRING
        doubles = "double" in kinds or self._exponent or not (exact_numbers or self._beyond_double)
        return (
            SqlType("DOUBLE")
            if doubles or self._whole + self._scale > MOST_DIGITS
            else _decimal(self._whole, self._scale)
        )

    def _of_kind(self, kind: str, exact_numbers: bool) -> SqlType:
        """Return the type of values that are of one kind, and no numbers."""
        if kind == "string":
            return next((SqlType(name) for name in _TIMES if name in self._shapes), STRING)
        if kind == "array" and self._elements is not None:
            return SqlType(
                "ARRAY",
                fields=(Column("element", self._elements.type(exact_numbers=exact_numbers)),),
            )
        return (
            self._object(exact_numbers)
            if kind == "object"
            else SqlType(
                {"boolean": "BOOLEAN", "bytes": "BINARY", "timestamp": "TIMESTAMP"}.get(
                    kind, "STRING"
                )
            )
        )

    def digits(self) -> SqlType | None:
        """Return a DECIMAL when every value is text of digits, otherwise None."""
        return (
            _decimal(self._whole, self._scale)
            if "digits" in self._shapes and self.kinds["string"] == self.values > 0
            else None
        )

    def _object(self, exact_numbers: bool) -> SqlType:
        fields = {
            name: each.type(exact_numbers=exact_numbers) for name, each in self._fields.items()
        }
        # Debezium's objects of a date's or time's parts have all their fields.
        structured = next(
            (of for of, names in STRUCTURED.values() if set(names) == set(fields)), None
        )
        if structured is not None:
            return SqlType(structured)
        common = any(each.kinds.total() == self.kinds["object"] for each in self._fields.values())
        alike = len(set(fields.values())) <= 1 and not any(
            each.conflict for each in self._fields.values()
        )
        if not fields or (alike and not common and self.kinds["object"] > 1):
            value = next(iter(fields.values()), STRING)
            return SqlType(
                "MAP", fields=(Column("key", STRING, nullable=False), Column("value", value))
            )
        # A field without a name cannot be declared.
        return (
            STRING
            if "" in fields
            else SqlType("STRUCT", fields=tuple(map(Column, fields, fields.values())))
        )

    @property
    def are_labels(self) -> bool:
        """Whether the values are text, not digits or times, as of an ENUM or SET kept as text."""
        return self.kinds["string"] > 0 and self.type() == STRING and DIGITS not in self.notes()

    @property
    def conflict(self) -> bool:
        """Whether the values are of several kinds, which only STRING holds."""
        kinds = {"number" if kind in _NUMBERS else kind for kind in self.kinds if kind != "null"}
        return len(kinds) > 1 and self.type() == STRING

    def notes(self) -> list[str | Question]:
        """Return notes for the user on the chosen type."""
        if not self.values:
            return ["only nulls were seen: declared as STRING"]
        if self.conflict:
            return ["values of several kinds: declared as STRING"]
        if self.type() != STRING:
            return []
        if "digits" in self._shapes:
            return [DIGITS]
        return [BASE64] if "base64" in self._shapes and self._base64_marks else []


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # JSON numbers and text of digits are never NaN
    return exponent


def unavailable_forms(placeholder: str) -> list[Any]:
    """Return the unavailable-value placeholder's forms: text, base64 or hex bytes, array, map."""
    raw = placeholder.encode()
    texts = [placeholder, base64.b64encode(raw).decode(), raw.hex()]
    return [*texts, *([text] for text in texts), list(raw), {placeholder: placeholder}]


def _decimal(whole: int, scale: int) -> SqlType:
    """Return a DECIMAL with spare digits before and after the point; STRING if none holds them."""
    if whole + scale > MOST_DIGITS:
        return STRING
    if scale <= _ROOMY_SCALE and whole <= MOST_DIGITS - _ROOMY_SCALE:
        return SqlType("DECIMAL", MOST_DIGITS, _ROOMY_SCALE)
    return SqlType("DECIMAL", MOST_DIGITS, scale + (MOST_DIGITS - whole - scale) // 2)
