"""upsert-kafka: the Kafka key is the primary key, the value is the newest row, and a null value (tombstone) deletes it.

========  =======================================
value     rows
========  =======================================
a row     ``+U`` (an insert or an update: the topic does not tell)
null      ``-D`` with the key's columns, the others NULL
========  =======================================

Changelog mode: ``+U``, ``-D`` by key. Key: required, a null key is an error. Null value: a delete.

Key and value are each of ``json`` (an object), ``csv`` (a line) and ``raw`` (the bytes of one column). The key has the primary key's
columns, in its order, their names without ``key_fields_prefix``; the value has all columns (``value_fields_include="ALL"``) or all
but those (``"EXCEPT_KEY"``).

Absent and null: a column that is not in the value is NULL. With ALL, the value's copy of a key column wins where it has one.

Differs from Flink (2.3, its Kafka connector 4.0):

- A null key is an error (Flink drops the record, a tombstone too, without a word; ``raw`` gives a row with a NULL key).
- A key column that is missing or null in the value (ALL) is the key's (Flink: a NULL primary key).
- An empty value is an error for json as it is for csv (Flink: nothing), and is text for ``raw`` STRING, as in Flink. It never deletes.
- JSON ``null`` as a value is an error as in Flink's default, and ``json_null="delete"`` makes it a delete: Debezium's
  ExtractNewRecordState writes it in its mode ``tombstone``.
- A truncated value is an error in every mode; under ``ignore-parse-errors`` Flink's parser makes it a delete of the key.
- A JSON array is no list of rows.
- An upsert is ``+U``, as the mode declares (Flink's rows are ``+I`` at runtime).
- ``csv``: options are common to key and value; ARRAY is the only nested type; no comments, no trailing comma.
- The mode says that deletes have the key alone (Flink's connector declares full deletes, and so a sink that asks for them may get NULLs).

Source: Flink's UpsertKafkaDynamicTableFactory and DynamicKafkaDeserializationSchema.
"""

from __future__ import annotations

import csv
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from .base import Event, Format, Ignored, Reader
from .changelog_mode import ChangelogMode
from .errors import DecodeError, FormatOptionError, MalformedMessageError, MissingFieldError, SchemaError
from .handling import Handling
from .json_reader import read_object
from .row_kind import RowKind
from .rows import RowConverter, key_indices
from .schema import Column, quote

Fields = Callable[[bytes], Mapping[str, Any]]
"""From the bytes of a key or a value to its columns' values."""

_FORMATS = ("json", "csv", "raw")
_RAW = {"BOOLEAN": "?", "TINYINT": "b", "SMALLINT": "h", "INT": "i", "BIGINT": "q", "FLOAT": "f", "DOUBLE": "d"}
_CSV_NESTED = ("MAP", "STRUCT")


@dataclass(frozen=True, kw_only=True)
class UpsertKafka(Format):
    """Rows by key.

    Parameters
    ----------
    key_format, value_format : {"json", "csv", "raw"}
    key_fields_prefix : str
        What the primary key's columns have before the names that stand in the key; needs ``EXCEPT_KEY``.
    value_fields_include : {"ALL", "EXCEPT_KEY"}
    json_null : {"fail", "delete"}
        What a value of JSON's ``null`` is.
    csv_field_delimiter, csv_quote_character, csv_escape_character, csv_null_literal, csv_array_element_delimiter : str
        As Flink's csv format; an empty quote character disables quoting, no escape character and no null literal by default.
    raw_charset : str
        Of a ``raw`` STRING.
    raw_endianness : {"big-endian", "little-endian"}
        Of a ``raw`` number.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "upsert-kafka"
    changelog_mode = ChangelogMode(frozenset({RowKind.UPDATE_AFTER, RowKind.DELETE}), key_only_deletes=True)
    reads_key = True
    reads_tombstones = True

    key_format: str = "json"
    value_format: str = "json"
    key_fields_prefix: str = ""
    value_fields_include: str = "ALL"
    json_null: str = "fail"
    csv_field_delimiter: str = ","
    csv_quote_character: str = '"'
    csv_escape_character: str | None = None
    csv_null_literal: str | None = None
    csv_array_element_delimiter: str = ";"
    raw_charset: str = "UTF-8"
    raw_endianness: str = "big-endian"
    time_zone: str | None = None

    def __post_init__(self) -> None:
        self._check_choice("key_format", _FORMATS)
        self._check_choice("value_format", _FORMATS)
        self._check_choice("value_fields_include", ("ALL", "EXCEPT_KEY"))
        self._check_choice("json_null", ("fail", "delete"))
        self._check_choice("raw_endianness", ("big-endian", "little-endian"))
        if self.key_fields_prefix and self.value_fields_include == "ALL":
            raise FormatOptionError("upsert-kafka: key_fields_prefix needs value_fields_include='EXCEPT_KEY', or the fields would overlap")
        for name in ("csv_field_delimiter", "csv_quote_character", "csv_escape_character"):
            optional = name != "csv_field_delimiter"
            if len(getattr(self, name) or " " * optional) != 1:
                raise FormatOptionError(f"upsert-kafka: {name} is one character, not {getattr(self, name)!r}")
        try:
            "".encode(self.raw_charset)  # refuses the codecs that are not of text, such as hex
        except (LookupError, TypeError):
            raise FormatOptionError(f"upsert-kafka: raw_charset {self.raw_charset!r} is not known") from None

    @property
    def handling(self) -> Handling:
        """Text and numbers, base64."""
        return Handling(time_zone=self.time_zone)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Refuse a table without a primary key, a key that lacks the prefix, and columns that a format cannot hold."""
        if not unique_key:
            raise SchemaError("upsert-kafka needs a primary_key: the columns that are read from the Kafka key")
        wrong = [name for name in unique_key if not name.startswith(self.key_fields_prefix)]
        if wrong:
            raise SchemaError(
                f"key_fields_prefix is {self.key_fields_prefix!r}, and primary key column {wrong[0]!r} does not begin with it"
            )
        key, value = self._parts(columns, unique_key)
        _check_part("key", self.key_format, key)
        _check_part("value", self.value_format, value)

    def _parts(self, columns: Sequence[Column], unique_key: Sequence[str]) -> tuple[list[Column], list[Column]]:
        key = [columns[index] for index in key_indices(columns, unique_key)]
        return key, [column for column in columns if self.value_fields_include == "ALL" or column not in key]

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's records."""
        key_columns, value_columns = self._parts(rows.columns, rows.unique_key)
        names = {column.name[len(self.key_fields_prefix) :]: column.name for column in key_columns}
        read_key = self._fields(self.key_format, key_columns, list(names))
        value_names = [column.name for column in value_columns]
        read_value = self._fields(self.value_format, value_columns, value_names)

        def key_of(key: bytes | None) -> dict[str, Any]:
            if key is None:
                raise MissingFieldError("the Kafka key is null: upsert-kafka reads the primary key from it", "", "key")
            try:
                fields = read_key(key)
            except DecodeError as error:
                raise error.at(field="key") from None
            return {column: fields.get(name) for name, column in names.items()}

        def read(key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
            image = key_of(key)
            if value is None or (self.json_null == "delete" and self.value_format == "json" and bytes(value) == b"null"):
                return [Event.delete(image, path="$")]
            fields = read_value(value)
            if fields and not any(name in fields for name in value_names):
                raise _no_column(fields, value_names)
            after = {
                **image,
                **{name: fields[name] for name in fields if fields[name] is not None or name not in image},
            }
            return [Event.update(None, after, paths=("", "$"))]

        return read

    def _fields(self, format: str, columns: Sequence[Column], names: Sequence[str]) -> Fields:
        if format == "json":
            return read_object
        return self._csv(columns, names) if format == "csv" else self._raw(columns[0], names[0])

    def _csv(self, columns: Sequence[Column], names: Sequence[str]) -> Fields:
        # The csv module's limit is 128 KiB a field, and is the process's; a Kafka message has a limit of its own.
        csv.field_size_limit(sys.maxsize)
        quoting: Literal[0, 3] = 0 if self.csv_quote_character else 3  # csv.QUOTE_MINIMAL, csv.QUOTE_NONE
        arrays = [column.type.name == "ARRAY" for column in columns]

        def value_of(text: str, array: bool) -> Any:
            if text == self.csv_null_literal:
                return None
            return (text.split(self.csv_array_element_delimiter) if text else []) if array else text

        def read(line: bytes) -> Mapping[str, Any]:
            try:
                rows = list(
                    csv.reader(
                        StringIO(_text(line, "UTF-8"), newline=""),
                        delimiter=self.csv_field_delimiter,
                        quotechar=self.csv_quote_character or None,
                        escapechar=self.csv_escape_character,
                        quoting=quoting,
                        strict=True,
                    )
                )
            except csv.Error as error:
                raise MalformedMessageError(f"not a line of CSV: {error}") from None
            if len(rows) != 1 or len(rows[0]) != len(names):
                got = f"{len(rows)} lines" if len(rows) != 1 else f"{len(rows[0])} fields"
                raise MalformedMessageError(f"expected one line of CSV with {len(names)} fields, got {got}")
            return {name: value_of(text, array) for name, text, array in zip(names, rows[0], arrays, strict=True)}

        return read

    def _raw(self, column: Column, name: str) -> Fields:
        if column.type.name == "BINARY":
            return lambda data: {name: bytes(data)}
        if column.type.name not in _RAW:
            return lambda data: {name: _text(data, self.raw_charset)}
        layout = struct.Struct((">" if self.raw_endianness == "big-endian" else "<") + _RAW[column.type.name])

        def read(data: bytes) -> Mapping[str, Any]:
            if len(data) != layout.size:
                raise MalformedMessageError(f"expected {layout.size} bytes of a raw {column.type}, got {len(data)}")
            (number,) = layout.unpack(data)
            return {name: number}

        return read


def _text(data: bytes, charset: str) -> str:
    try:
        return bytes(data).decode(charset)
    except UnicodeError as error:  # UnicodeDecodeError, and less of some codecs
        where = f": {error.reason} at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise MalformedMessageError(f"not {charset}{where}") from None


def _no_column(fields: Mapping[str, Any], names: Sequence[str]) -> MissingFieldError:
    reason = f"none of the declared columns ({', '.join(names)}) is in the value"
    hint = ": names are case-sensitive, and a value in Connect's schema block is not read"
    return MissingFieldError(f"{reason}; it has {', '.join(sorted(fields))}{hint}", "$", bare=reason + hint)


def _check_part(part: str, format: str, columns: Sequence[Column]) -> None:
    """Refuse columns that a format cannot hold."""
    if format == "raw" and len(columns) != 1:
        listed = ", ".join(quote(column.name) for column in columns) or "none"
        raise SchemaError(f"{part}_format 'raw' holds exactly one column, and the {part} has {listed}")
    for column in columns:
        name = column.type.name
        if format == "raw" and name not in (*_RAW, "STRING", "CHAR", "VARCHAR", "BINARY"):
            raise SchemaError(f"{part}_format 'raw' cannot hold {column}")
        if format == "csv" and (name in _CSV_NESTED or (name == "ARRAY" and column.type.fields[0].type.fields)):
            raise SchemaError(f"{part}_format 'csv' cannot hold {column}")
