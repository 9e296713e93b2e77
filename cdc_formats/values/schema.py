"""Declared columns, from Spark's DDL text, and the images of rows.

``columns("id BIGINT NOT NULL, weight DECIMAL(10,3)")`` accepts the syntax of ``StructType.fromDDL``
and three extensions for changelogs: ``TIME(p)``, which is text in a DataFrame unless it is declared
as ``TIME(p) WITHOUT TIME ZONE``, a precision on ``TIMESTAMP(p)`` and
``TIMESTAMP_NTZ(p)`` (Debezium chooses the unit of an epoch number by the source column's
precision), and ``BIGINT UNSIGNED``-sized numbers as ``DECIMAL(20,0)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal

from cdc_formats.errors import SchemaError
from cdc_formats.values.masks import NO_MASKS, Masks


@dataclass(frozen=True)
class SqlType:
    """A SQL type: its standard name and its parameters.

    Parameters
    ----------
    name : str
        One of `TYPE_NAMES`.
    precision, scale : int or None
        ``DECIMAL(precision, scale)``, ``TIME(precision)``, ``TIMESTAMP(precision)``,
        ``CHAR(precision)``.
    fields : tuple of Column
        The fields of a ``STRUCT``; the ``element`` of an ``ARRAY``; the ``key`` and ``value`` of a
        ``MAP``.
    is_spark_time : bool
        Whether a TIME is Spark's TIME in a DataFrame, and not text.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    fields: tuple[Column, ...] = ()
    is_spark_time: bool = False

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "ARRAY":
            return f"ARRAY<{self.fields[0].type}>"
        if self.name == "MAP":
            return f"MAP<{self.fields[0].type}, {self.fields[1].type}>"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'{quote(field.name)}: {field.type}{_not_null(field)}' for field in self.fields)}>"
        text = self.name if self.precision is None else f"{self.name}({self.precision})"
        return f"{text} {' '.join(_WITHOUT_ZONE)}" if self.is_spark_time else text


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        Any text, without quotes.
    type : SqlType
    nullable : bool
        Whether it may be NULL.
    """

    name: str
    type: SqlType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{quote(self.name)} {self.type}{_not_null(self)}"


def leaves(sql_type: SqlType) -> Iterator[SqlType]:
    """Return the types of a type that have no parts: itself, or those of its parts."""
    if not sql_type.fields:
        yield sql_type
    for part in sql_type.fields:
        yield from leaves(part.type)


def _not_null(column: Column) -> str:
    return "" if column.nullable else " NOT NULL"


_SYNONYMS = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "BYTES": "BINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_OF_OTHERS = {
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "MEDIUMINT": "INT",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "TEXT": "STRING",
    "UUID": "STRING",
    "JSON": "STRING",
    "JSONB": "STRING",
    "ENUM": "STRING",
    "BLOB": "BINARY",
    "BYTEA": "BINARY",
    "DATETIME": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP",
}
"""Types of databases, and the types here that have their values."""
_PLAIN = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "VARIANT",
)
_SIZED = {
    "CHAR": (1, 2**31 - 1),
    "VARCHAR": (1, 2**31 - 1),
    "TIME": (0, 6),
    "TIMESTAMP": (0, 9),
    "TIMESTAMP_NTZ": (0, 9),
}
_WITHOUT_ZONE = ("WITHOUT", "TIME", "ZONE")
TYPE_NAMES = (*_PLAIN, *_SIZED, "DECIMAL", "INTERVAL DAY TO SECOND", "ARRAY", "MAP", "STRUCT")
"""The names of all types."""

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<comment>'(?:[^'\\]|\\.)*')|(?P<word>[^\W\d][\w$]*|\d\w*)|(?P<mark>[<>(),"
    r":]))"
)
ARROW_TYPES: Mapping[str, tuple[str, ...]] = {
    "BOOLEAN": ("bool_",),
    "TINYINT": ("int8",),
    "SMALLINT": ("int16",),
    "INT": ("int32",),
    "BIGINT": ("int64",),
    "FLOAT": ("float32",),
    "DOUBLE": ("float64",),
    "STRING": ("string",),
    "CHAR": ("string",),
    "VARCHAR": ("string",),
    # Python cannot build a VARIANT: Spark parses the text after the last pass.
    "VARIANT": ("string",),
    "BINARY": ("binary",),
    "DATE": ("date32",),
    # Spark 4.0 has no TIME: the text is exact, sorts like the time, and can be cast.
    "TIME": ("string",),
    "TIMESTAMP": ("timestamp", "us", "UTC"),
    "TIMESTAMP_NTZ": ("timestamp", "us"),
    "INTERVAL DAY TO SECOND": ("duration", "us"),
}
"""The Arrow type of a column: pyarrow's function and its arguments. A DECIMAL's has its digits, and
a nested type's has its fields."""


def quote(name: str) -> str:
    """Return `name` as DDL text, in backquotes unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else backquoted(name)


def backquoted(name: str) -> str:
    """Return `name` in backquotes; Spark accepts any name in this form."""
    return "`" + name.replace("`", "``") + "`"


_PART = r"`(?:[^`]|``)*`|[^`.]+"
_PARTS = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")


def name_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a qualified name; a part in backquotes may have dots.

    Parameters
    ----------
    name : str

    Returns
    -------
    tuple of str
        Empty if a backquote is not closed, or a part is missing.

    Examples
    --------
    >>> name_parts("shop.`order.items`")
    ('shop', 'order.items')
    """
    return tuple(map(_unquoted, re.findall(_PART, name))) if _PARTS.fullmatch(name) else ()


def _unquoted(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


def source_id(names: Iterable[object]) -> str:
    """Return a source table's name as users write it (``shop.orders``), dotted parts in backquotes.

    Parameters
    ----------
    names : iterable
        The names in a message; None for one that it does not have.

    Examples
    --------
    >>> source_id(["shop", None, "orders"]), source_id(["shop", "order.items"])
    ('shop.orders', 'shop.`order.items`')
    """
    named = [str(name) for name in names if name is not None]
    return ".".join(
        backquoted(name) if {".", "`"} & set(name) or not name else name for name in named
    )


def columns(ddl: str | Iterable[Column]) -> tuple[Column, ...]:
    """Read Spark DDL text into columns.

    Parameters
    ----------
    ddl : str or iterable of Column
        ``name TYPE [NOT NULL] [COMMENT 'text'], ...``; columns are passed through.

    Returns
    -------
    tuple of Column
        In the order of the text.

    Raises
    ------
    SchemaError
        When the text is not DDL, a type is unknown, or a name occurs twice.

    Examples
    --------
    >>> [str(column) for column in columns("id bigint not null, `unit price` decimal(10,2), tags array<string>")]
    ['id BIGINT NOT NULL', '`unit price` DECIMAL(10,2)', 'tags ARRAY<STRING>']
    """
    result = tuple(_Parser(ddl).fields(end="")) if isinstance(ddl, str) else tuple(ddl)
    if not result:
        raise SchemaError(
            "a schema needs at least one column, for example 'id BIGINT, name STRING'"
        )
    names = [column.name for column in result]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"column {', '.join(map(quote, twice))} is declared twice")
    return result


def to_ddl(schema: Iterable[Column]) -> str:
    """Return columns as DDL text, which `columns` reads.

    Parameters
    ----------
    schema : iterable of Column

    Returns
    -------
    str
        Such as ``id INT NOT NULL, name STRING``. Names that need backquotes have them.
    """
    return ", ".join(map(str, schema))


class _Parser:
    """Recursive descent over the tokens of one DDL text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.next = 0

    def _tokens(self) -> Iterator[str]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error(f"cannot read {self.text[position : position + 20]!r}")
            position = match.end()
            yield match.group().strip()

    def _error(self, reason: str) -> SchemaError:
        return SchemaError(
            f"{reason} in schema {self.text!r}; write Spark DDL, for example 'id BIGINT NOT NULL, "
            "name STRING'"
        )

    def _peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if expected and token.upper() not in expected:
            raise self._error(f"expected {' or '.join(expected)} before {token or 'the end'!r}")
        self.next += 1
        return token

    def _accept(self, *expected: str) -> bool:
        if [token.upper() for token in self.tokens[self.next : self.next + len(expected)]] == list(
            expected
        ):
            self.next += len(expected)
            return True
        return False

    def fields(self, end: str) -> Iterator[Column]:
        while self._peek() != end:
            yield self._column()
            if not self._accept(","):
                break
            if self._peek() == end:
                raise self._error("a column is missing after the last comma")
        if end:
            self._take(end)
        elif self._peek():
            raise self._error(f"expected a comma before {self._peek()!r}")

    def _column(self) -> Column:
        name = self._name()
        self._accept(":")
        column = Column(name, self._type())
        if self._accept("NOT", "NULL"):
            column = replace(column, nullable=False)
        if self._accept("COMMENT"):
            text = self._take()
            if not text.startswith("'"):
                raise self._error(f"expected the text of COMMENT before {text or 'the end'!r}")
        return column

    def _name(self) -> str:
        token = self._take()
        if not token or token in "<>(),:" or token.startswith("'"):
            raise self._error(f"expected a column's name before {token or 'the end'!r}")
        return _unquoted(token)

    def _type(self) -> SqlType:
        word = self._take().upper()
        name = _SYNONYMS.get(word, word)
        if name in _PLAIN:
            return self._collated(SqlType(name))
        if name == "TIME":
            return SqlType(
                name, self._size(*_SIZED[name]), is_spark_time=self._accept(*_WITHOUT_ZONE)
            )
        if name in _SIZED:
            return self._collated(SqlType(name, self._size(*_SIZED[name])))
        if name == "DECIMAL":
            return self._decimal()
        if name == "INTERVAL":
            if not self._accept("DAY", "TO", "SECOND"):
                raise self._error("the only supported interval is INTERVAL DAY TO SECOND")
            return SqlType("INTERVAL DAY TO SECOND")
        if name in ("ARRAY", "MAP", "STRUCT"):
            self._take("<")
            return self._nested(name)
        hint = f": write {_OF_OTHERS[word]}" if word in _OF_OTHERS else ""
        raise self._error(
            f"unknown type {word or 'nothing'!r}{hint} (known: {', '.join(TYPE_NAMES)})"
        )

    def _collated(self, sql_type: SqlType) -> SqlType:
        if sql_type.name in ("STRING", "CHAR", "VARCHAR") and self._accept("COLLATE"):
            collation = self._name()
            if collation.upper() != "UTF8_BINARY":
                raise SchemaError(
                    f"{sql_type} COLLATE {collation} cannot be declared, since keys and rows are "
                    f"compared byte by byte (UTF8_BINARY): declare {sql_type}, and apply the "
                    f"collation in your query, as in collate(name, '{collation}')"
                )
        return sql_type

    def _nested(self, name: str) -> SqlType:
        nested = SqlType(name, fields=self._parts(name))
        for part in nested.fields:
            if part.type.name == "VARIANT" or part.type.is_spark_time:
                raise SchemaError(
                    f"{nested} has a {part.type} inside, which is not supported: declare the part "
                    "as STRING"
                )
        return nested

    def _parts(self, name: str) -> tuple[Column, ...]:
        if name == "STRUCT":
            return tuple(self.fields(end=">"))
        first = self._type()
        if name == "ARRAY":
            self._take(">")
            return (Column("element", first),)
        self._take(",")
        second = self._type()
        self._take(">")
        return Column("key", first, nullable=False), Column("value", second)

    def _size(self, least: int, most: int) -> int | None:
        if not self._accept("("):
            return None
        size = self._number(least, most)
        self._take(")")
        return size

    def _decimal(self) -> SqlType:
        if not self._accept("("):
            return SqlType("DECIMAL", 10, 0)  # Spark's default
        precision, scale = self._number(1, 38), 0
        if self._accept(","):
            scale = self._number(0, precision)
        self._take(")")
        return SqlType("DECIMAL", precision, scale)

    def _number(self, least: int, most: int) -> int:
        token = self._take()
        if not (token.isascii() and token.isdigit() and least <= int(token) <= most):
            raise self._error(
                f"expected a number from {least} to {most}, got {token or 'the end'!r}"
            )
        return int(token)


# --------------------------------------------------------------------------------------------------
# Row images: the values of a row before or after a change, and the columns missing in the message.
#
# A column that is not in an image is `ABSENT`, which is not NULL. In Canal's and Maxwell's ``old`` it
# did not change. In a compressed OGG update, in a minimal row image of MySQL, and with Debezium's
# unavailable-value placeholder, the value is unknown. Absent columns of a before-image have the
# after-image's values; absent columns of an after-image can only be taken from the key's stored row.


class Absent:
    """The type of `ABSENT`: a class and no Enum, so that no library treats it as a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # the same object after pickling


ABSENT: Final = Absent()


def complete(image: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `image` with its absent columns taken from `other`.

    Parameters
    ----------
    image, other : tuple
        Two images of one row, in the order of the columns.

    Examples
    --------
    >>> complete((1, ABSENT, None), (1, "scooter", 3.14))
    (1, 'scooter', None)
    """
    return tuple(
        [theirs if ours is ABSENT else ours for ours, theirs in zip(image, other, strict=True)]
    )


def absent_as_null(image: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `image` with NULL for its absent columns (Flink's reading of a missing field)."""
    return tuple([None if value is ABSENT else value for value in image])


# --------------------------------------------------------------------------------------------------
# How a producer writes the values of the types, and the declaration of a type.


Converter = Callable[[Any], Any]

DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = (
    "adaptive",
    "adaptive_time_microseconds",
    "connect",
    "isostring",
    "microseconds",
    "nanoseconds",
    "structured",
)
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
Rounding = Literal["error", "half_up"]


@dataclass(frozen=True)
class Handling:
    r"""A producer's configurable value encodings, and the rounding of decimals with too many digits.

    Parameters
    ----------
    decimal : {"text", "precise", "string", "double"} or None
        ``text``: a number or its digits. ``precise``: base64 of the unscaled big-endian bytes, at
        the column's scale. ``None``: not declared: a JSON number is accepted, a string is an error
        that names the option.
    decimal_scale : int or None
        The scale of ``precise`` if the message contains it; otherwise the column's is used.
    time : {"text", "adaptive", ...} or None
        ``text``: ISO or SQL text only. Debezium's ``time.precision.mode`` otherwise; ``None``: not
        declared.
    epoch_unit : {"ms", "us", "ns"} or None
        The unit of an epoch number if the message's schema contains it; otherwise it follows from
        `time`.
    binary : {"bytes", "base64", "base64-url-safe", "hex", "bytea", "numbers", "latin1", ...} or None
        The text form of bytes (``bytes`` is base64 in JSON). ``bytea``: as PostgreSQL, ``\\x48``.
        ``numbers``: ``[72, 101]``. ``latin1 or digits``: text that may be one of ``0x48`` and
        ``[72]`` is an error. ``None``: not declared: text in a BINARY column is an error.
    bigint_unsigned : {"long", "precise"} or None
        The encoding of unsigned 64-bit numbers in a ``DECIMAL(20,0)`` column. ``long``: a JSON
        integer, in two's complement. ``precise``: base64 of the big-endian bytes, for every
        `decimal`.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; ``None``: such text is an error.
    placeholder : str or None
        Debezium's unavailable-value placeholder; a value equal to it is `ABSENT`.
    json : {"text", "value", "extended"}
        How the values of JSON columns are written: as a string with their text, or as JSON values
        of the message. ``extended``: all values are in the Extended JSON of MongoDB's documents
        (`extended_json`).
    native : bool
        Whether the producer writes booleans and integers as JSON types: only a hint for speed.
    rounding : {"error", "half_up"}
        The treatment of a decimal with more digits after the point than its column holds.
    parts : mapping or None
        The handling of a nested column's parts if the message describes them, by
        ``STRUCT.<field>``, ``MAP.key`` and ``MAP.value``. A part without an entry has the column's
        handling.
    masks : Masks
        The masks of whole columns, which `decoding.rows.RowConverter` applies.
    """

    decimal: Literal["text", "precise", "string", "double"] | None = "text"
    decimal_scale: int | None = None
    time: str | None = "text"
    epoch_unit: Literal["ms", "us", "ns"] | None = None
    binary: str | None = "base64"
    bigint_unsigned: Literal["long", "precise"] | None = None
    time_zone: str | None = None
    placeholder: str | None = None
    json: Literal["text", "value", "extended"] = "text"
    native: bool = True
    rounding: Rounding = "error"
    parts: Mapping[str, Handling] | None = None
    masks: Masks = NO_MASKS

    def of_part(self, name: str) -> Handling:
        """Return a nested column part's handling; the placeholder only replaces whole columns."""
        part = (self.parts or {}).get(name)
        return (
            replace(self, placeholder=None, parts=None)
            if part is None
            else replace(part, placeholder=None)
        )


def null_or(convert: Converter) -> Converter:
    """Return `convert` for values that may be None."""
    return lambda value: None if value is None else convert(value)


class ConversionError(ValueError):
    """A value that its column's type cannot hold; the caller adds the location.

    Parameters
    ----------
    reason : str
    bare : str
        `reason` without the value, if it shows one (as in `errors.DecodeError`).
    """

    def __init__(self, reason: str, bare: str = "") -> None:
        super().__init__(reason)
        self.bare = bare


def refuse(sql_type: SqlType | str, value: Any, hint: str = "") -> ConversionError:
    """Return the error for a value that a column cannot hold: expected type, value, what to do."""
    kinds = {int: "number", str: "str", bool: "boolean", dict: "object", list: "array"}
    kind = "number" if isinstance(value, Decimal) else kinds.get(type(value), type(value).__name__)
    hint = f": {hint}" if hint else ""
    expected = f"expected `{sql_type}`, got `{kind}`"
    return ConversionError(f"{expected} {_shown(value)}{hint}", expected + hint)


def _shown(value: Any) -> str:
    # Shorten the value: it may be a megabyte (and Python rejects str() of a huge int).
    if isinstance(value, int) and abs(value) >= 10**40:
        return "of more than 40 digits"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


# --------------------------------------------------------------------------------------------------
# `ValueType`: the declaration of one SQL type in its family's module


def same(value: Any) -> Any:
    """Return the value itself: the converter of values that need none."""
    return value


@dataclass(frozen=True)
class ValueType:
    """How values of one SQL type are held, read and written.

    ARRAY, MAP and STRUCT depend on the types of their parts, so they have none: see `nested`.

    Parameters
    ----------
    canonical : callable
        Returns the msgspec type of the canonical values, with their range.
    converter : callable
        Returns the function from a message's value (never None) to the canonical value.
    writer : callable
        Returns the inverse function, or None if the canonical value is also the JSON value. The
        third argument is the `iso` of `types.writer`.
    to_python : callable
        Returns the Python value of a canonical value.
    to_text : callable
        Returns the text of a canonical value, for people.
    """

    canonical: Callable[[SqlType], Any]
    converter: Callable[[SqlType, Handling], Converter]
    writer: Callable[[SqlType, Handling, bool], Converter | None]
    to_python: Converter = same
    to_text: Callable[[Any], str] = str
