"""upsert-kafka: the Kafka key is the primary key, and the value is the newest row.

A null value (tombstone) deletes the row.

========  =======================================
value     rows
========  =======================================
a row     ``+U`` (an insert or an update: the topic does not distinguish)
null      ``-D`` with the key's columns, the others NULL
========  =======================================

Changelog mode: ``+U``, ``-D`` by key. Key: required, a null key is an error. Null value: a delete.

A record, with ``key_format="raw"`` and ``value_format="json"``::

    key    101
    value  {"id": 101, "name": "scooter", "weight": 3.14}

Key and value each have a row format: ``json`` (an object), ``csv`` (a line), ``raw`` (the bytes of
one column), ``avro`` (with the schema derived from the columns) or ``avro-confluent`` (a schema id
and Avro; the schema is in a registry). The key has the primary key's columns in order, with their
names without ``key_fields_prefix``. The value has all columns (``value_fields_include="ALL"``) or
all others (``"EXCEPT_KEY"``).

Written: an insert and an update as the new row, and a delete as a tombstone. ``-U`` is not written
(Flink writes a tombstone, since it can be all that it receives when a key is removed).

Absent and null: a column that is not in the value is NULL. With ALL, the value's copy of a key
column has precedence if present.

Differs from Flink (2.3, its Kafka connector 4.0):

- A null key is an error (Flink silently drops the record, even a tombstone; ``raw`` gives a row
  with a NULL key).
- A key column that is missing or null in the value (ALL) is taken from the key (Flink: a NULL
  primary key).
- An empty value is an error for json and csv (Flink: no row), and text for ``raw`` STRING, as in
  Flink. It never deletes.
- JSON ``null`` as a value is an error, as by default in Flink; ``json_null="delete"`` makes it a
  delete: Debezium's ExtractNewRecordState writes it in its mode ``tombstone``.
- A truncated value is an error in every mode; under ``ignore-parse-errors`` Flink's parser makes it
  a delete of the key.
- A JSON array is not a list of rows.
- An upsert is ``+U``, as the mode declares (Flink's rows are ``+I`` at runtime).
- ``csv``: options are common to key and value; ARRAY is the only nested type; no comments, no
  trailing comma. As in Flink, ``n``, ``r``, ``t`` and ``0`` after the escape character are LF, CR,
  TAB and NUL, and quoted text may have line breaks.
- ``avro-confluent`` reads columns by name in each record's schema, and a plain value if there is
  one column; the id can be in a header. ``avro`` has Flink's types with
  ``timestamp_mapping.legacy=false``. Options apply to key and value, except the subject.
  `cdc_formats.avro.records` describes the types.
- The mode declares deletes with only the key (Flink's connector declares full deletes, so that a
  sink that requires them may get NULLs).

Source: Flink's UpsertKafkaDynamicTableFactory, DynamicKafkaDeserializationSchema and
DynamicKafkaRecordSerializationSchema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_formats.avro.schema_registry import key_record, plain_value
from cdc_formats.decoding.envelope import Envelope, Framing, Images, RowKeys
from cdc_formats.decoding.other_messages import WRAPPED, is_wrapped_row, refuse_other
from cdc_formats.decoding.rows import RowConverter, key_indices
from cdc_formats.errors import DecodeError, InferenceError, MissingFieldError, SchemaError
from cdc_formats.events import (
    DELETE,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogMode,
    Event,
    Headers,
    Ignored,
    KeyValue,
    Reader,
    RowKind,
)
from cdc_formats.format import Encoder
from cdc_formats.values.connect_schema import key_fields
from cdc_formats.values.equality import picker
from cdc_formats.values.json_reader import read_object
from cdc_formats.values.schema import ABSENT, Column, Handling, columns as to_columns

from .row_formats import ROW_FORMATS, Row, RowFormat, UpsertOptions

_NAMED = ("json", "avro-confluent")
"""The formats whose columns have names."""


@dataclass(frozen=True, kw_only=True)
class UpsertKafka(UpsertOptions):
    """Newest rows by key, of any producer.

    Parameters
    ----------
    key_format, value_format : {"json", "csv", "raw", "avro", "avro-confluent"}
    key_fields_prefix : str
        The prefix of the primary key's columns, which their names in the key lack; requires
        ``EXCEPT_KEY``.
    value_fields_include : {"ALL", "EXCEPT_KEY"}
    json_null : {"fail", "delete"}
        The meaning of JSON ``null`` as a value.
    json_timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written in ``json``: with a blank or with a ``T`` between date and time.
        Both are read.
    csv_field_delimiter, csv_quote_character, csv_escape_character, csv_null_literal, csv_array_element_delimiter : str
        As in Flink's csv format; an empty quote character disables quoting. By default there is no
        escape character and no null literal.
    raw_charset : str
        The encoding of a ``raw`` STRING.
    raw_endianness : {"big-endian", "little-endian"}
        The byte order of a ``raw`` number.
    avro_confluent_url, avro_confluent_basic_auth_user_info, avro_confluent_bearer_auth_token : str or None
    avro_confluent_ssl_ca_location, avro_confluent_ssl_certificate_location, avro_confluent_ssl_key_location : str or None
    avro_confluent_ssl_key_password, avro_confluent_properties, avro_confluent_retry_seconds
        The registry of ``avro-confluent``, with the options of `registry_client.RegistryOptions`.
    key_avro_confluent_subject, value_avro_confluent_subject : str or None
        The subjects for writing the schemas; `for_topic` sets ``<topic>-key`` and
        ``<topic>-value``.
    avro_confluent_auto_register_schemas : bool
        Whether a missing schema is registered (as in Flink) or is an error.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "upsert-kafka"
    sampler = "cdc_formats.topics.samplers.messages:UpsertKafkaSampler"
    changelog_mode = ChangelogMode(frozenset({UPDATE_AFTER, DELETE}), key_only_deletes=True)
    reads_key = True
    reads_tombstones = True
    positions = "a record has a key and its newest row, but no position in a log"

    @property
    def reads_headers(self) -> bool:
        """Whether a schema id can be in a header."""
        return "avro-confluent" in (self.key_format, self.value_format)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise for no primary key, a key without the prefix, and columns a format cannot hold."""
        if not unique_key:
            raise SchemaError("upsert-kafka needs a primary_key: the columns of the Kafka key")
        wrong = [name for name in unique_key if not name.startswith(self.key_fields_prefix)]
        if wrong:
            raise SchemaError(
                f"key_fields_prefix is {self.key_fields_prefix!r}, but primary key column "
                f"{wrong[0]!r} does not begin with it"
            )
        parts = self._parts(columns, unique_key)
        types = {columns[index].name: columns[index].type.name for index in parts.value_indices}
        if types.get("after") in ("MAP", "STRUCT", "VARIANT") and is_wrapped_row(
            types.keys() - {*unique_key}
        ):
            raise SchemaError(f"the columns are those of an envelope: {WRAPPED}")

    def _parts(self, columns: Sequence[Column], unique_key: Sequence[str]) -> _Parts:
        return _Parts(self, columns, key_indices(columns, unique_key))

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's records."""
        if rows.untyped:
            if self.value_format not in _NAMED:
                raise InferenceError(
                    f"value_format {self.value_format!r} has no column names to infer a schema from: "
                    "pass schema"
                )

            def read(
                key: bytes | None, value: bytes | None, headers: Headers = ()
            ) -> Sequence[Event] | Ignored:
                is_json = self.value_format == "json"
                if value is None or (is_json and _is_json_null(value)):
                    return Ignored.TOMBSTONE
                if is_json:
                    refuse_other(value)  # any object is a row
                    row: Any = read_object(value)
                else:
                    row = plain_value(self.registry, "value", bytes(value), headers)
                row = row if isinstance(row, dict) else {}
                of_key = {} if self.key_format in _NAMED else dict.fromkeys(rows.unique_key)
                of_key.update(self.key_columns(key, headers))
                missing = {name: part for name, part in of_key.items() if name not in row}
                return [Event.insert({**missing, **row}, path="$")]

            return read
        return _Reader(
            self,
            self._parts(rows.columns, rows.unique_key),
            _CanonicalRows(rows.columns, Handling(), rows.unique_key),
        ).read

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the key and the row are, None in Avro.

        A missing column is NULL. A missing key column is taken from the key.
        """
        if not {self.key_format, self.value_format} <= {"json", "csv", "raw"}:
            return None
        prefix = len(self.key_fields_prefix)
        parts = self._parts(rows.columns, rows.unique_key)
        names = [
            name[prefix:] if index in rows.key_indices else name
            for index, name in enumerate(rows.names)
        ]
        key = rows.struct(rows.key_indices, names, None)
        return Envelope(
            kinds=Envelope.NEWEST,
            images=Images(missing_is_null=True, columns=parts.value_indices),
            framing=Framing(
                row_reader=None if self.value_format == "json" else parts.value.batch_reader
            ),
            keys=RowKeys(
                shape=key,
                reader=None if self.key_format == "json" else parts.key.batch_reader,
                of_rows=True,
                deletes=(None, b"null")
                if self.json_null == "delete" and self.value_format == "json"
                else (None,),
            ),
        )

    def for_topic(self, topic: str) -> UpsertKafka:
        """Return the format with missing subjects set to ``<topic>-key`` and ``<topic>-value``."""
        return replace(
            self,
            key_avro_confluent_subject=self.key_avro_confluent_subject or f"{topic}-key",
            value_avro_confluent_subject=self.value_avro_confluent_subject or f"{topic}-value",
        )

    def encoder(
        self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()
    ) -> Encoder:
        """Return the encoder of one table's rows."""
        declared = to_columns(columns)
        self.check(declared, unique_key)
        parts = self._parts(declared, unique_key)
        parts.key.check_written()
        parts.value.check_written()
        return _Encoder(parts)

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the fields of a JSON or Avro key, with the prefix of the row's columns."""
        if self.key_format == "avro-confluent":
            values = key_record(self.registry, key, headers)
        else:
            values = key_fields(key) if self.key_format == "json" else {}
        return {self.key_fields_prefix + name: part for name, part in values.items()}


class _Parts:
    """The row formats of key and value, and the indices of their columns in a row."""

    def __init__(self, format: UpsertKafka, columns: Sequence[Column], key: Sequence[int]) -> None:
        all_columns = format.value_fields_include == "ALL"
        self.key_indices = tuple(key)
        self.value_indices = tuple(
            index for index in range(len(columns)) if all_columns or index not in key
        )
        prefix = len(format.key_fields_prefix)
        key_columns = [replace(columns[index], name=columns[index].name[prefix:]) for index in key]
        self.key: RowFormat = ROW_FORMATS[format.key_format](format, "key", key_columns)
        self.value: RowFormat = ROW_FORMATS[format.value_format](
            format, "value", [columns[index] for index in self.value_indices]
        )


class _CanonicalRows(RowConverter):
    """A table's rows whose images are already canonical: whole tuples in the columns' order."""

    def row(self, image: Any, path: str) -> Row:
        return tuple(image)

    def key(self, image: Any, path: str) -> Row:
        return tuple([image[index] for index in self.key_indices])

    def raw(self, image: Any) -> Row:
        return tuple(image)


def _is_json_null(value: bytes) -> bool:
    return bytes(value).strip(b" \t\r\n") == b"null"


class _Reader:
    def __init__(self, format: UpsertKafka, parts: _Parts, rows: _CanonicalRows) -> None:
        self.parts, self.rows = parts, rows
        self.json_null = format.json_null == "delete" and format.value_format == "json"
        self.width = len(rows.columns)

    def read(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        if key is None:
            raise MissingFieldError(
                "the Kafka key is null: upsert-kafka reads the primary key from it", "", "key"
            )
        try:
            key_values = self.parts.key.read(key, headers)
        except DecodeError as error:
            raise error.at(field="key") from None
        if value is None or (self.json_null and _is_json_null(value)):
            return [
                Event(
                    DELETE,
                    self._with_key(key_values, [None] * self.width),
                    None,
                    None,
                    "$",
                    "",
                    rows=self.rows,
                )
            ]
        values = self.parts.value.read(value, headers)
        row: list[Any] = [None] * self.width
        for index, part in zip(self.parts.value_indices, values, strict=True):
            row[index] = None if part is ABSENT else part
        return [
            Event(
                UPDATE_AFTER, None, self._with_key(key_values, row), None, "", "$", rows=self.rows
            )
        ]

    def _with_key(self, key: Row, row: list[Any]) -> Row:
        """Return `row` with missing key columns taken from the key."""
        for index, value in zip(self.parts.key_indices, key, strict=True):
            if row[index] is None and value is not ABSENT:
                row[index] = value
        return tuple(row)


class _Encoder(Encoder):
    """Writes the newest row of a key, or its tombstone."""

    def __init__(self, parts: _Parts) -> None:
        self.parts = parts
        self.key_of, self.value_of = picker(parts.key_indices), picker(parts.value_indices)

    def encode(
        self, kind: RowKind, row: tuple[Any, ...], before: tuple[Any, ...] | None = None
    ) -> KeyValue | None:
        """Return a change's key and value; None for ``-U``, since the next row replaces it.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        SchemaRegistryError
            When a schema cannot be registered.
        """
        if kind is UPDATE_BEFORE:
            return None
        return (
            self.parts.key.write(self.key_of(row)),
            None if kind is DELETE else self.parts.value.write(self.value_of(row)),
        )
