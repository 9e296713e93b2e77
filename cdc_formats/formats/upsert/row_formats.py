"""Plain row formats for upsert-kafka's key and value: columns as bytes and back, no operations.

==================  ===============================================================================
``json``            an object
``csv``             a line
``raw``             the bytes of one column
``avro``            Avro with the schema derived from the columns (`avro_writer`), without a prefix
``avro-confluent``  a schema id and Avro with that schema, from a registry (`schema_registry`);
                    columns are found by name
==================  ===============================================================================

Each is a class that reads and writes; `ROW_FORMATS` lists them.
"""

from __future__ import annotations

import csv
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from io import StringIO
from typing import Any, Literal, TypeVar

from cdc_formats.avro.records import (
    AvroSchema,
    avro_bytes,
    avro_writer,
    record_schema,
    row_converter,
)
from cdc_formats.avro.registry_client import RegistryOptions, require_fastavro
from cdc_formats.avro.schema_registry import Registry, framed, unframed
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding import RowWriter
from cdc_formats.errors import (
    DecodeError,
    EncodeError,
    FormatOptionError,
    MalformedMessageError,
    MissingFieldError,
    SchemaError,
    refuse,
)
from cdc_formats.events import Headers
from cdc_formats.format import ZonedFormat, choice
from cdc_formats.values.connect_schema import is_wrapped
from cdc_formats.values.json_reader import BatchReader, json_bytes, read_object
from cdc_formats.values.masks import DROP
from cdc_formats.values.schema import ABSENT, Column, ConversionError, Handling, SqlType, quote
from cdc_formats.values.types import writer

# --------------------------------------------------------------------------------------------------
# The options of upsert-kafka, for the format and for the row formats of its key and value.

C = TypeVar("C", bound=type)

ROW_FORMAT_NAMES = ("json", "csv", "raw", "avro", "avro-confluent")
"""Flink's names of the row formats."""
_REGISTRY = "avro_confluent_"


def _with_registry_options(cls: C) -> C:
    """Add `RegistryOptions`' fields, with prefixed names, to a class that becomes a dataclass."""
    for option in fields(RegistryOptions):
        cls.__annotations__[_REGISTRY + option.name] = option.type
        setattr(cls, _REGISTRY + option.name, field(default=option.default, repr=option.repr))
    return cls


@dataclass(frozen=True, kw_only=True)
@_with_registry_options
class UpsertOptions(ZonedFormat):
    """The options of `UpsertKafka`, which documents them."""

    key_format: str = choice(*ROW_FORMAT_NAMES)
    value_format: str = choice(*ROW_FORMAT_NAMES)
    key_fields_prefix: str = ""
    value_fields_include: str = choice("ALL", "EXCEPT_KEY")
    json_null: str = choice("fail", "delete")
    json_timestamp_format_standard: str = choice("SQL", "ISO-8601")
    csv_field_delimiter: str = ","
    csv_quote_character: str = '"'
    csv_escape_character: str | None = None
    csv_null_literal: str | None = None
    csv_array_element_delimiter: str = ";"
    raw_charset: str = "UTF-8"
    raw_endianness: str = choice("big-endian", "little-endian")
    avro_confluent_auto_register_schemas: bool = True
    key_avro_confluent_subject: str | None = None
    value_avro_confluent_subject: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(*self._checks_of_characters(), *self._checks_of_columns(), error=FormatOptionError)
        try:
            "".encode(self.raw_charset)  # raises for codecs that do not encode text, such as hex
        except (LookupError, TypeError):
            raise FormatOptionError(
                f"upsert-kafka: raw_charset {self.raw_charset!r} is unknown"
            ) from None
        for name in (self.key_format, self.value_format):
            if name.startswith("avro"):
                require_fastavro(name)
        options = [option for option in fields(self) if option.name.startswith(_REGISTRY)]
        if any(getattr(self, option.name) != option.default for option in options):
            registry = self.registry
            for option in fields(registry):  # the URL without its user, properties as pairs
                object.__setattr__(self, _REGISTRY + option.name, getattr(registry, option.name))

    def _checks_of_characters(self) -> Iterator[tuple[object, str]]:
        names = ("csv_field_delimiter", "csv_quote_character", "csv_escape_character")
        characters = {name: getattr(self, name) or "" for name in names}
        for name, each in characters.items():
            yield (
                len(each) > 1 or (not each and name == "csv_field_delimiter"),
                f"upsert-kafka: {name} must be one character, not {getattr(self, name)!r}",
            )
        used = list(filter(None, characters.values()))
        yield (
            len(set(used)) < len(used),
            "upsert-kafka: csv_field_delimiter, csv_quote_character and csv_escape_character must "
            "differ",
        )

    def _checks_of_columns(self) -> Iterator[tuple[object, str]]:
        masks = self.handling.masks
        by_index = {self.key_format, self.value_format} & {"csv", "raw", "avro"}
        yield (
            self.key_fields_prefix and self.value_fields_include == "ALL",
            "upsert-kafka: key_fields_prefix needs value_fields_include='EXCEPT_KEY', or the fields "
            "would overlap",
        )
        yield (
            masks and self.key_fields_prefix,
            "upsert-kafka: mask and key_fields_prefix cannot be combined, since a column has "
            "another name in the key: remove one of them",
        )
        yield (
            by_index and DROP in dict(masks.pairs).values(),
            f"upsert-kafka: mask has 'drop', and {min(by_index, default='')} has its columns by "
            "their place: use 'redact'",
        )

    @property
    def registry(self) -> Registry:
        """The registry of the options."""
        return Registry(
            **{option.name: getattr(self, _REGISTRY + option.name) for option in fields(Registry)}
        )


Row = tuple[Any, ...]


class RowFormat(ABC):
    """A row format for the columns of a key or of a value.

    Parameters
    ----------
    options : UpsertOptions
    part : {"key", "value"}
    columns : sequence of Column
        The columns, with their names in the part.

    Raises
    ------
    SchemaError
        When the format cannot hold the columns.
    """

    def __init__(
        self, options: UpsertOptions, part: Literal["key", "value"], columns: Sequence[Column]
    ) -> None:
        self.options, self.part, self.columns = options, part, tuple(columns)
        self.names = tuple(column.name for column in columns)
        self.rows = RowConverter(columns, options.handling) if columns else None
        self.check()

    def check(self) -> None:
        """Raise for columns that the format cannot hold."""
        return None

    def check_written(self) -> None:
        """Raise for columns that can only be read, and for missing options that writing requires.

        Raises
        ------
        SchemaError, FormatOptionError
        """
        return None

    def without_columns(self, fields: Mapping[str, Any]) -> Row:
        """Return an empty result for a part that has none of the columns.

        Raises
        ------
        MissingFieldError
            When the part is a value with other columns.
        """
        if self.part == "value" and fields:
            reason = f"none of the declared columns ({', '.join(self.names)}) is in the value"
            hint = ": names are case-sensitive, and Connect's schema block is not supported"
            raise MissingFieldError(
                f"{reason}; it has {', '.join(sorted(fields))}{hint}", "$", bare=reason + hint
            )
        return (ABSENT,) * len(self.columns)

    def cannot_hold(self, column: Column) -> SchemaError:
        """Return the error for a column."""
        return SchemaError(
            f"{self.part}_format {getattr(self.options, f'{self.part}_format')!r} cannot hold "
            f"{column}"
        )

    @abstractmethod
    def read(self, data: bytes, headers: Headers) -> Row:
        """Return the canonical values of the columns, `ABSENT` for missing ones.

        Raises
        ------
        DecodeError
        """

    def values(self, data: bytes) -> Sequence[Any]:
        """Return the unconverted column values; only csv and raw, which have them at fixed indices.

        Raises
        ------
        DecodeError
        """
        raise NotImplementedError

    def batch_reader(self, image: Any) -> BatchReader:
        """Return the function from many rows to their `values`, each as an `image`."""

        def read(rows: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
            images: list[Any] = []
            unread: list[int] = []
            for index, data in enumerate(rows):
                try:
                    images.append(image(*self.values(data)))  # type: ignore[arg-type]
                except (DecodeError, TypeError):  # TypeError: None is no row
                    unread.append(index)
            return images, unread

        return read

    @abstractmethod
    def write(self, row: Row) -> bytes:
        """Return a row as bytes.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """

    def unwritable(self, reason: str, column: str = "") -> EncodeError:
        """Return the error for a row that cannot be written."""
        return EncodeError(f"{reason} - at {f'`$.{column}` of ' if column else ''}the {self.part}")


class Json(RowFormat):
    """``{"id": 1, "name": "bike"}``."""

    def check(self) -> None:
        """Accept all columns; compile the reader of their values."""
        self.image = self.rows.read if self.rows else read_object

    def read(self, data: bytes, headers: Headers) -> Row:
        """Read an object."""
        try:
            image = self.image(data)
        except MalformedMessageError:
            read_object(data)  # the error names its actual type
            raise
        if self.rows is None:
            return ()
        try:
            return self.rows.row(image, "$")
        except MissingFieldError:
            fields = read_object(data)
            if self.part == "key" and is_wrapped(fields) and isinstance(fields["payload"], dict):
                fields = fields["payload"]
                if not fields.keys().isdisjoint(self.names):
                    return self.rows.row(fields, "$.payload")
            return self.without_columns(fields)

    def check_written(self) -> None:
        """Raise for a MAP whose keys are not text."""
        self.writer = RowWriter(
            self.columns,
            self.options.handling,
            iso=self.options.json_timestamp_format_standard == "ISO-8601",
            excerpt=self.options.error_excerpt,
        )

    def write(self, row: Row) -> bytes:
        """Return an object, including nulls."""
        return json_bytes(self.writer.image(row))


class Csv(RowFormat):
    """``1,bike``."""

    def check(self) -> None:
        """Raise for nested columns other than arrays."""
        text = Handling(native=False)
        self.writers = [writer(self._cell_type(column), text) for column in self.columns]
        # The csv module limits fields to 128 KiB, for the whole process; Kafka limits messages
        # itself.
        csv.field_size_limit(sys.maxsize)
        options = self.options
        self.escape = options.csv_escape_character or None
        self.fields = _fields_reader(
            options.csv_field_delimiter, options.csv_quote_character, self.escape or ""
        )
        self.dialect: dict[str, Any] = {
            "delimiter": options.csv_field_delimiter,
            "quotechar": options.csv_quote_character or None,
            "escapechar": self.escape,
            "quoting": csv.QUOTE_MINIMAL if options.csv_quote_character else csv.QUOTE_NONE,
            "strict": True,
        }
        self.literal = options.csv_null_literal
        self.arrays = [
            index for index, column in enumerate(self.columns) if column.type.name == "ARRAY"
        ]
        self.start()

    def _cell_type(self, column: Column) -> SqlType:
        """Return the type of a column's cells: an array has several."""
        of = column.type.fields[0].type if column.type.name == "ARRAY" else column.type
        if of.fields:
            raise self.cannot_hold(column)
        return of

    def start(self) -> None:
        """Create a new reader without a partial line.

        The reader is reused for all lines, since creating one costs more than reading.
        """
        line: list[str] = []
        self.feed, self.lines = (
            line.append,
            csv.reader(iter(lambda: line.pop() if line else None, None), **self.dialect),
        )

    def _cells(self, line: str) -> list[str] | None:
        if self.escape and self.escape in line:
            return self.fields(line)
        self.feed(line)
        try:
            return next(self.lines, None)
        except csv.Error:
            self.start()
            # The csv module refuses blanks after a closing quote, which Flink skips.
            return self.fields(line)

    def read(self, data: bytes, headers: Headers) -> Row:
        """Read a line."""
        values = self.values(data)
        return self.rows.of_values(values, "$") if self.rows else ()

    def values(self, data: bytes) -> list[Any]:
        """Return the fields of a line."""
        cells = self._cells(_text(data, "UTF-8"))
        if cells is None or len(cells) != len(self.columns):
            got = 0 if cells is None else len(cells)
            raise MalformedMessageError(
                f"expected one line of CSV with {len(self.columns)} fields, got {got}"
            )
        values: list[Any] = cells
        if self.literal is not None:
            values = [None if text == self.literal else text for text in cells]
        for index in self.arrays:
            text = values[index]
            values[index] = (
                text
                if text is None
                else text.split(self.options.csv_array_element_delimiter)
                if text
                else []
            )
        return values

    def write(self, row: Row) -> bytes:
        """Write a line."""
        out = StringIO(newline="")
        try:
            # The csv module quotes line-ending characters. The message is the line without its
            # ending.
            csv.writer(out, lineterminator="\r\n", **self.dialect).writerow(
                [self._cell(index, value) for index, value in enumerate(row)]
            )
            line = out.getvalue()[:-2].encode()
            again = self.read(line, ())
        except (csv.Error, UnicodeError, MalformedMessageError) as error:
            raise self.unwritable(
                f"the row cannot be written as CSV: {error}; see csv_escape_character"
            ) from None
        for name, value, back in zip(self.names, row, again, strict=True):
            if repr(value) != repr(
                back
            ):  # an array element that contains the delimiter, or text equal to the null literal
                raise self.unwritable(
                    (
                        "the value would be read back differently; see csv_null_literal, "
                        "csv_array_element_delimiter"
                    ),
                    name,
                )
        return line

    def _cell(self, index: int, value: Any) -> str:
        write, name = self.writers[index], self.names[index]
        if value is None:
            if self.options.csv_null_literal is None:
                raise self.unwritable("NULL has no CSV form: set csv_null_literal", name)
            return self.options.csv_null_literal
        try:
            if self.columns[index].type.name == "ARRAY":
                cells = [
                    "" if item is None else item if write is None else write(item) for item in value
                ]
                return self.options.csv_array_element_delimiter.join(cells)
            return str(value if write is None else write(value))
        except ConversionError as error:
            raise self.unwritable(
                str(error) if self.options.error_excerpt else error.bare or str(error), name
            ) from None


_BLANKS = " \t"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def _fields_reader(delimiter: str, quote: str, escape: str) -> Callable[[str], list[str]]:
    """Return the function from a line to its fields, as Flink reads them.

    The csv module is faster. It reads ``n``, ``r``, ``t`` and ``0`` after an escape as letters, and
    refuses blanks after a closing quote.
    """
    mark, quotes, end = re.escape(escape), re.escape(quote), rf"({re.escape(delimiter)}|\r?\n?\Z)"
    plain, inside = rf"[^{re.escape(delimiter + escape)}\r\n]*", rf"[^{re.escape(quote + escape)}]*"
    escaped = rf"{mark}." if escape else "(?!)"
    bare = rf"({plain}(?:{escaped}{plain})*)"
    blanks = f"[{_BLANKS.replace(delimiter, '')}]*"
    quoted = (
        rf"{quotes}({inside}(?:(?:{quotes}{quotes}|{escaped}){inside})*){quotes}{blanks}"
        if quote
        else "((?!))"
    )
    field = re.compile(rf"(?:{quoted}|{f'(?!{quotes})' if quote else ''}{bare}){end}", re.DOTALL)
    letter = rf"{mark}(.)" if escape else "((?!))"
    in_bare = re.compile(letter, re.DOTALL)
    in_quoted = re.compile(rf"{letter}|{quotes}{quotes}" if quote else letter, re.DOTALL)

    def character(match: re.Match[str]) -> str:
        return _ESCAPES.get(match[1], match[1]) if match[1] else quote

    def read(line: str) -> list[str]:
        fields: list[str] = []
        at = 0
        while True:
            match = field.match(line, at)
            if match is None:
                raise MalformedMessageError(
                    f"not a line of CSV: there is no field at its character {at + 1}"
                )
            fields.append(
                in_bare.sub(character, match[2])
                if match[1] is None
                else in_quoted.sub(character, match[1])
            )
            if match[3] != delimiter:
                return fields
            at = match.end()

    return read


_RAW = {
    "BOOLEAN": "?",
    "TINYINT": "b",
    "SMALLINT": "h",
    "INT": "i",
    "BIGINT": "q",
    "FLOAT": "f",
    "DOUBLE": "d",
}


class Raw(RowFormat):
    """The bytes of one column: a number, text, or unchanged bytes."""

    def check(self) -> None:
        """Raise unless there is one column of a plain type."""
        if len(self.columns) != 1:
            listed = ", ".join(quote(column.name) for column in self.columns) or "none"
            raise SchemaError(
                f"{self.part}_format 'raw' holds exactly one column, but the {self.part} has "
                f"{listed}"
            )
        (column,) = self.columns
        if column.type.name not in (*_RAW, "STRING", "CHAR", "VARCHAR", "BINARY"):
            raise self.cannot_hold(column)
        order = ">" if self.options.raw_endianness == "big-endian" else "<"
        self.layout = (
            struct.Struct(order + _RAW[column.type.name]) if column.type.name in _RAW else None
        )
        self.binary = column.type.name == "BINARY"

    def read(self, data: bytes, headers: Headers) -> Row:
        """Read one value."""
        assert self.rows is not None  # of its one column
        return self.rows.of_values(self.values(data), "$")

    def values(self, data: bytes) -> tuple[Any]:
        """Return the value of the column."""
        if self.layout is None:
            value: Any = bytes(data) if self.binary else _text(data, self.options.raw_charset)
        elif len(data) != self.layout.size:
            raise MalformedMessageError(
                f"expected {self.layout.size} bytes of a raw {self.columns[0].type}, got "
                f"{len(data)}"
            )
        else:
            (value,) = self.layout.unpack(data)
        return (value,)

    def write(self, row: Row) -> bytes:
        """Write one value."""
        (value,) = row
        if value is None:
            raise self.unwritable(
                "NULL cannot be written: a null value would be a delete", self.names[0]
            )
        if self.layout is not None:
            return self.layout.pack(value)
        try:
            return bytes(value) if self.binary else str(value).encode(self.options.raw_charset)
        except UnicodeError:
            raise self.unwritable(
                f"the text has characters that {self.options.raw_charset} cannot encode",
                self.names[0],
            ) from None


class Avro(RowFormat):
    """Avro with the schema derived from the columns."""

    def check(self) -> None:
        """Raise for columns without an Avro type, and for missing packages."""
        self.schema = record_schema(self.columns)
        options = self.options
        self.writer = RowWriter(
            self.columns, options.handling, excerpt=options.error_excerpt, write=avro_writer
        )
        self.to_bytes = avro_bytes(self.schema)

    def read(self, data: bytes, headers: Headers) -> Row:
        """Read a record."""
        return self.own_reader(bytes(data))

    @cached_property
    def own_reader(self) -> Callable[[bytes], Row]:
        """The reader of records with the schema derived from the columns."""
        return self.reader(AvroSchema(self.schema))

    def reader(self, schema: AvroSchema) -> Callable[[bytes], Row]:
        """Return the function from Avro to the columns."""
        record = schema.record_of(schema.top)
        # A key is often not a record: Connect's converter writes a plain string or number.
        is_plain = record is None and len(self.columns) == 1
        if record is None and not is_plain:
            raise MissingFieldError("the writer's schema is not a record", "$")
        fields = schema.fields(record) if record is not None else {self.names[0]: schema.top}
        rows = row_converter(schema, fields, self.columns, self.options.handling)

        def read(data: bytes) -> Row:
            value = schema.read(data)
            image = {self.names[0]: value} if is_plain else value
            if image is None:
                raise MissingFieldError("the record is null", "$")
            try:
                return rows.row(image, "$")
            except MissingFieldError:
                return self.without_columns(image)

        return read

    def write(self, row: Row) -> bytes:
        """Write a record."""
        return self.to_bytes(self.writer.image(row))


class AvroConfluent(Avro):
    """A schema id and Avro with that schema."""

    def check(self) -> None:
        """Raise as `Avro` does, and for a missing registry."""
        super().check()

        self.registry: Registry = self.options.registry
        self.registry.require_url("avro_confluent_url")
        self.reader_of = cache(lambda name: self.reader(self.registry.client.schema(name)))

    def check_written(self) -> None:
        """Raise if no subject is set."""
        option = f"{self.part}_avro_confluent_subject"
        subject = getattr(self.options, option)
        if subject is None:
            raise FormatOptionError(
                f"upsert-kafka cannot be written without {option}, for example 'orders-{self.part}'"
            )
        self.registry.require_writable()
        self.number = self.registry.numbered(
            subject, self.schema, register=self.options.avro_confluent_auto_register_schemas
        )

    def read(self, data: bytes, headers: Headers) -> Row:
        """Read a record with the schema of its id."""
        name, content = unframed(self.part, bytes(data), headers)
        return self.reader_of(name)(content)

    def write(self, row: Row) -> bytes:
        """Write a record; the first one registers the schema."""
        return framed(self.number(), super().write(row))


ROW_FORMATS: Mapping[str, type[RowFormat]] = dict(
    zip(ROW_FORMAT_NAMES, (Json, Csv, Raw, Avro, AvroConfluent), strict=True)
)
"""The row formats by Flink's names."""


def _text(data: bytes, charset: str) -> str:
    try:
        return bytes(data).decode(charset)
    except UnicodeError as error:  # UnicodeDecodeError; some codecs give less
        where = (
            f": {error.reason} at byte {error.start}"
            if isinstance(error, UnicodeDecodeError)
            else ""
        )
        raise MalformedMessageError(f"not {charset}{where}") from None
