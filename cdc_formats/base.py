"""The interface of a format: `Format` (configuration), `Decoder` (bytes to changes), `Encoder` (rows to bytes).

Like Flink's DecodingFormat and DeserializationSchema, configuration and decoding are separate. A format is a small frozen description made
on the driver; each worker compiles a decoder from it once. The author of a format writes one method, `Format.read`, which turns the bytes
of a Kafka record into `Event` values with unconverted row images. `Decoder` does the rest for all formats: it completes before-images,
converts types, projects metadata and adds the path to every error.

Decoding is pure: the same bytes always give the same changes, independent of earlier records, the clock, the machine's time zone and the
network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from cdc_formats.decoding.images import ABSENT, absent_as_null, complete
from cdc_formats.decoding.other_messages import named
from cdc_formats.decoding.rows import Image, RowConverter
from cdc_formats.decoding.validation import message_validator, packaged_schema
from cdc_formats.values.equality import key_getter, row_unifier
from cdc_formats.values.handling import ROUNDING, Handling
from cdc_formats.values.schema import Column, SqlType, columns as to_columns

from .changelog_mode import ChangelogMode
from .errors import (
    DecodeError,
    FormatOptionError,
    InferenceError,
    MalformedMessageError,
    MissingBeforeImageError,
    MissingFieldError,
    PartialImageError,
    SchemaError,
    UnknownColumnError,
    excerpt_of,
)
from .position import Position
from .row_kind import RowKind
from .sampling import SampledFormat

if TYPE_CHECKING:
    from cdc_formats.decoding.envelope import Envelope

C = TypeVar("C")
F = TypeVar("F", bound="Format")

# Member lookup on an Enum is slow up to Python 3.11.
_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE

_FLINK_OPTIONS_ELSEWHERE = {
    "basic_auth_credentials_source": "basic_auth_user_info, or a user in the url, is enough",
    "bearer_auth_credentials_source": "bearer_auth_token is enough",
    "ignore_parse_errors": "Flink's ignore-parse-errors is from_kafka_changelog(mode='DROPMALFORMED') here, or 'PERMISSIVE'",
    "encode_decimal_as_plain_number": "Decimals are always written as plain numbers",
    "encode_ignore_null_fields": "NULL is always written: in a before-image, and in ogg-json, a missing column is unchanged and not NULL",
    "json_encode_ignore_null_fields": "NULL is always written",
    "ssl_keystore_location": "Java's key stores are not read: ssl_certificate_location and ssl_key_location are PEM files",
    "ssl_truststore_location": "Java's key stores are not read: ssl_ca_location is a PEM file",
}
"""Flink's options that formats here do not have, and what to use instead."""


class Ignored(Enum):
    """The reason why a valid record gives no rows. Such records are counted by reason."""

    TOMBSTONE = "TOMBSTONE"
    """A null (or empty) value in a format whose deletes are messages."""
    DDL = "DDL"
    """A statement that changes the schema."""
    HEARTBEAT = "HEARTBEAT"
    TRANSACTION = "TRANSACTION"
    """The begin or end of a transaction."""
    TRUNCATE = "TRUNCATE"
    """All rows of the table are gone."""
    MESSAGE = "MESSAGE"
    """A logical message, or a statement without rows."""
    SNAPSHOT_MARK = "SNAPSHOT_MARK"
    """The begin or end of a snapshot."""
    OTHER_TABLE = "OTHER_TABLE"
    """A table that the format's filters exclude."""


class ControlEvent(NamedTuple):
    """The content of a record that has no rows, such as a schema change or a truncate.

    Attributes
    ----------
    type : Ignored
    database, schema, table : str or None
        The table concerned; None if the record does not name it or concerns all.
    statement : str or None
        The SQL text of a DDL; the prefix and content of a logical message (as a JSON object); ``BEGIN`` or ``END`` and the id of a
        transaction; the producer's name for a snapshot's begin or end.
    """

    type: Ignored
    database: str | None = None
    schema: str | None = None
    table: str | None = None
    statement: str | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One row of a changelog.

    Attributes
    ----------
    kind : RowKind
    row : tuple
        Canonical values (see `cdc_formats.values.types`) in the order of the declared columns.
    metadata : tuple
        Canonical values of the requested metadata columns, in the requested order.
    """

    kind: RowKind
    row: tuple[Any, ...]
    metadata: tuple[Any, ...] = ()


class KeyedChange(msgspec.Struct, frozen=True, gc=False):
    """The effect of one event on one key: its newest row, or its deletion.

    Attributes
    ----------
    key : tuple
        Canonical values of the unique key's columns, the same ones for equal keys (`equality`).
    row : tuple or None
        The row after the event, with `ABSENT` for columns that the event lacks; ``None``: deleted.
    metadata : tuple
    partial : bool
        Whether `row` contains `ABSENT`.
    position : Position or None
        The event's position in its source's log, if positions were requested; None if the message has none.
    moved_from : tuple or None
        Of a partial row whose key the event changed, the key before: the row of that key has the missing columns.
    """

    key: tuple[Any, ...]
    row: tuple[Any, ...] | None
    metadata: tuple[Any, ...] = ()
    partial: bool = False
    position: Position | None = None
    moved_from: tuple[Any, ...] | None = None


class Event(msgspec.Struct, gc=False):
    """One event of a message (or of one element of its arrays), with unconverted values.

    Parameters
    ----------
    kind : RowKind
        ``INSERT`` has `after`, ``UPDATE_AFTER`` has `after` and may have `before`, ``DELETE`` has `before`.
    before, after : mapping, `RowConverter.shape` or None
        Row images: column name to the message's value.
    message : Any
        The object from which the format's metadata is read.
    before_path, after_path : str
        The paths of the images in the message, for errors.
    changed_only : bool
        Whether `before` has only the columns that changed (Canal's and Maxwell's ``old``).
    sparse : bool
        Whether a column that is missing in `after`, or in `before` of a delete, is unknown and not NULL (OGG's compressed updates).
        With `changed_only`, a column that is in `before` and not in `after` is NULL.
    rows : RowConverter or None
        The converter of this message's images, where the message describes its columns itself.
    single : bool
        Whether each message holds one changelog row, so that the ``-U`` of an update is a separate message (changelog-json).
    """

    kind: RowKind
    before: Any = None
    after: Any = None
    message: Any = None
    before_path: str = "$.before"
    after_path: str = "$.after"
    changed_only: bool = False
    sparse: bool = False
    rows: RowConverter | None = None
    single: bool = False

    @classmethod
    def insert(cls, after: Image, message: Any = None, path: str = "$.after") -> Event:
        """A row that was inserted, or read by a snapshot."""
        return cls(_INSERT, None, after, message, "", path)

    @classmethod
    def update(cls, before: Image | None, after: Image, message: Any = None, paths: tuple[str, str] = ("$.before", "$.after")) -> Event:
        """A row that was updated; `before` is None if the producer does not write it."""
        return cls(_UPDATE_AFTER, before, after, message, *paths)

    @classmethod
    def delete(cls, before: Image, message: Any = None, path: str = "$.before") -> Event:
        """A row that was deleted."""
        return cls(_DELETE, before, None, message, path, "")


class RowNames(NamedTuple):
    """The columns of a row in a message.

    Attributes
    ----------
    names : collection of str
        The names in the row.
    whole : bool
        Whether the producer writes all columns of the table; then a column that is missing here is missing in the table.
    added : collection of str
        The members of `names` that the producer adds to the table's columns.
    """

    names: Collection[str]
    whole: bool
    added: Collection[str] = ()


class NameDifference(NamedTuple):
    """The differences between the declared columns and those of a message.

    Attributes
    ----------
    absent : tuple of str
        Declared columns that the message's table lacks.
    unknown : tuple of str
        Columns of the message that are not declared.
    """

    absent: tuple[str, ...]
    unknown: tuple[str, ...]


Headers = Sequence[tuple[str, "bytes | None"]]
"""The headers of a Kafka record, in order; a name may occur twice."""
KeyValue = tuple["bytes | None", "bytes | None"]
"""The key and the value of a Kafka record."""
Reader = Callable[..., "Sequence[Event] | Ignored"]
"""A function from the key and value of a Kafka record (and its headers if `Format.reads_headers`) to its events."""


@dataclass(frozen=True)
class MetadataColumn:
    """A readable metadata column: its type and the function that reads it from `Event.message`.

    Parameters
    ----------
    type : str
        DDL text.
    read : callable
        From the message to the canonical value, or None if the message has none.
    """

    type: str
    read: Callable[[Any], Any]

    @property
    def sql_type(self) -> SqlType:
        """The type, parsed."""
        return to_columns(f"value {self.type}")[0].type


@dataclass(frozen=True, kw_only=True)
class Format(SampledFormat, ABC):
    """A changelog format: its name, its declarations, and its options (the dataclass's fields).

    Subclass it, set `identifier` and `changelog_mode`, write `read`, and decorate the class with
    `cdc_formats.register_format`; options are fields of a ``@dataclass(frozen=True, kw_only=True)``. The hooks of
    `cdc_formats.sampling.SampledFormat` help inference and profiling; all of them have defaults.

    Parameters
    ----------
    error_excerpt : bool
        Whether errors show the first bytes of the message (at most 200) and the invalid value. Turn it off if messages contain personal
        data.
    validate : bool
        Whether each message is validated against `json_schema` before it is decoded. This is slow and requires the package ``jsonschema``.
    rounding : {"error", "half_up"}
        The treatment of a decimal with more digits after the point than its column holds. ``error`` rejects the record. ``half_up``
        rounds the value, as Flink does: 9.995 becomes 10.00 in a ``DECIMAL(10,2)`` column. Zeros at the end always fit.
    unknown_columns : {"ignore", "fail"}
        The treatment of columns that are not declared. ``ignore`` skips them. ``fail`` rejects a record whose row has a value in one, so
        that no value of a new column is lost. Each record is then parsed twice. Only formats with column names support it.
    """

    identifier: ClassVar[str]
    changelog_mode: ClassVar[ChangelogMode] = ChangelogMode.all()
    reads_tombstones: ClassVar[bool] = False
    """Whether null values are passed to `read`; otherwise they are `Ignored.TOMBSTONE`."""
    reads_headers: ClassVar[bool] = False
    """Whether the reader needs the Kafka headers; then it is called with three arguments."""
    whole_rows: ClassVar[str] = ""
    """The producer setting for whole rows, quoted in errors about a missing column; empty if there is no such setting."""
    positions: ClassVar[str] = "the format does not implement `Format.position`"
    """The reason why messages have no position in their source's log; empty if `position` reads one."""
    metadata: ClassVar[Mapping[str, MetadataColumn]] = {}
    """Readable metadata columns, by Flink's names."""
    table_identity: ClassVar[Mapping[str, str]] = {}
    """The `metadata` columns that together identify the table of a message, from the outermost to the table's own name.

    Each has the option that selects its values by a regular expression, or empty text if there is none. Without entries, messages do not
    name their table, and the topic identifies it.
    """

    error_excerpt: bool = True
    validate: bool = False
    rounding: Literal["error", "half_up"] = "error"
    unknown_columns: Literal["ignore", "fail"] = "ignore"

    def __post_init__(self) -> None:
        self._check_choice("rounding", ROUNDING)
        self._check_choice("unknown_columns", ("ignore", "fail"))

    @classmethod
    def json_schema(cls) -> dict[str, Any] | None:
        """Return the JSON Schema (draft 2020-12) of this format's messages, or None; override it in your own format."""
        return packaged_schema(cls.identifier)

    def read(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        """Return the events of one Kafka record, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the record is not valid in this format. No input may raise another exception.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither read() nor reader()")

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return `read` compiled for one table; override it for speed.

        Parameters
        ----------
        rows : RowConverter
            The table's columns and key, and the msgspec shapes for its images.
        keyed : bool
            Whether only the key's columns of a before-image are used (`Decoder.upserts`).
        """
        return self.read

    def envelope(self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False) -> Envelope | None:
        """Return the places of the operation and the rows in messages, so that many messages are decoded together.

        None: each message is decoded alone, by `read`. The rows are the same. Only the formats of this library are asked.

        Parameters
        ----------
        rows : RowConverter
            The table's columns and key.
        metadata : sequence of str
            The names of the requested metadata.
        positions : bool
            Whether `position` is called for each message.
        """
        return None

    def row_names(self, event: Event) -> RowNames | None:
        """Return the columns of an event's row, or None if the format has no column names.

        By default these are the names in the after-image, or in the before-image of a delete, which may be incomplete. Override it if rows
        have additional columns or omit columns that are NULL.

        Parameters
        ----------
        event : Event
            Its images are mappings with all names in the message; only the names are used.
        """
        image = event.before if event.after is None else event.after
        if not isinstance(image, Mapping):
            return None
        return RowNames(image.keys(), event.after is not None and not event.sparse)

    def position(self, message: Any) -> Position | None:
        """Return the position of a message's event in its source's log.

        None is only for a message that never has one. Its change is applied as it arrives, also if
        it is a redelivery. It is counted, and warned about.

        Parameters
        ----------
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the position is missing or malformed, or the producer is not configured to write
            it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no position()")

    def previous_key(self, headers: Headers) -> Mapping[str, Any]:
        """Return the columns of the key that a record's row had before, with the producer's values; empty if no header names it.

        Only producers need it that write a change of the key as a delete and an insert, which may lack unchanged columns.

        Parameters
        ----------
        headers : sequence of (str, bytes or None)
        """
        return {}

    def table_reader(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """Return the function from `Event.message` to the values of these columns of `table_identity`.

        The decoder calls it for every message.

        Parameters
        ----------
        names : sequence of str
        """
        readers = [self.metadata[name].read for name in names]
        return lambda message: tuple([read(message) for read in readers])

    def control_event(self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()) -> ControlEvent:
        """Return the control event of a record that `read` ignored for `reason`; called only if the user requests control events.

        Parameters
        ----------
        key, value : bytes or None
        reason : Ignored
        headers : sequence of (str, bytes or None)
            Empty unless `reads_headers`.

        Raises
        ------
        DecodeError
            When the record is not one of this format's.
        """
        return ControlEvent(reason)

    @property
    def encodings(self) -> Handling:
        """The producer's value encodings; override it in formats with options for them."""
        return Handling()

    @property
    def handling(self) -> Handling:
        """The rules for reading and writing values: `encodings` and the options of all formats."""
        return replace(self.encodings, rounding=self.rounding)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Reject columns or a key that this format cannot read as configured; called on the driver.

        Raises
        ------
        SchemaError, FormatOptionError
        """
        return None

    def decoder(
        self,
        columns: str | Sequence[Column],
        *,
        unique_key: Sequence[str] = (),
        metadata: Sequence[str] = (),
        positions: bool = False,
        tables: Sequence[str] = (),
        require_key: bool = False,
        completes_moved: bool = True,
    ) -> Decoder:
        """Compile a decoder.

        Parameters
        ----------
        columns : str or sequence of Column
            DDL text, or its columns.
        unique_key : sequence of str
            The columns of the primary key; `Decoder.upserts` needs it.
        metadata : sequence of str
            Names of `metadata` to read.
        positions : bool
            Whether `Decoder.upserts` reads `KeyedChange.position`.
        tables : sequence of str
            Columns of `table_identity` whose values `Decoder.tables` collects.
        require_key : bool
            Whether `Decoder.decode` refuses a row without its key, as `Decoder.upserts` always
            does.
        completes_moved : bool
            Whether the caller of `Decoder.upserts` can complete a partial row whose key is new,
            from the row of the old key. Otherwise such a row is an error, and its old row is not
            deleted.

        Raises
        ------
        SchemaError
            When the columns, the key or the metadata do not exist or cannot be read by this format.
        FormatOptionError
            When positions are requested and the format has none; the text includes the reason.
        """
        return Decoder(
            self,
            to_columns(columns),
            tuple(unique_key),
            tuple(metadata),
            positions=positions,
            tables=tables,
            require_key=require_key,
            completes_moved=completes_moved,
        )

    def for_topic(self: F, topic: str) -> F:
        """Return the format for writing a topic; override it if option defaults depend on the topic."""
        return self

    def encoder(self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()) -> Encoder:
        """Compile an encoder, if the format has one.

        Parameters
        ----------
        columns : str or sequence of Column
        unique_key : sequence of str
            The columns of the Kafka key; records have no key if empty.

        Raises
        ------
        FormatOptionError
            When the format cannot be written.
        """
        raise FormatOptionError(f"{self.identifier} cannot be written, only read: choose another format, such as debezium-json")

    @classmethod
    def from_options(cls: type[F], options: Mapping[str, Any]) -> F:
        """Make the format from named options; dots and dashes in names (Flink's spelling) count as underscores.

        Raises
        ------
        FormatOptionError
            When an option does not exist (the text lists the existing ones), or its value cannot be used.
        """
        known = {field.name: field.type for field in fields(cls)}
        given = {name.replace("-", "_").replace(".", "_"): value for name, value in options.items()}
        unknown = sorted(set(given) - set(known))
        if unknown:
            hint = "".join(f". {_FLINK_OPTIONS_ELSEWHERE[name]}" for name in unknown if name in _FLINK_OPTIONS_ELSEWHERE)
            raise FormatOptionError(f"{cls.identifier} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}{hint}")
        return cls(**{name: _boolean(value) if known[name] in ("bool", bool) else value for name, value in given.items()})

    def _check_choice(self, name: str, choices: Sequence[Any]) -> None:
        value = getattr(self, name)
        if value not in choices:
            listed = ", ".join(repr(choice) for choice in choices)
            raise FormatOptionError(f"{self.identifier}: {name} is {value!r}; it is one of {listed}")


def _boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


class Encoder(ABC):
    """Encodes rows as the key and value of a Kafka record."""

    pairs_updates: ClassVar[bool] = True
    """Whether an update is one record, with the ``-U`` row as `before` of its ``+U``. Otherwise each row is encoded separately."""
    writes_source: ClassVar[bool] = False
    """Whether messages have a ``source`` block, like Debezium's, with the position in the source's log."""
    source: Any = None
    """The ``source`` block: a JSON object, or its text as `msgspec.Raw`; set it before each `encode`. None: no block is written."""

    @abstractmethod
    def encode(self, kind: RowKind, row: tuple[Any, ...], before: tuple[Any, ...] | None = None) -> KeyValue | None:
        """Return the key and value of the record for a change, or None if the format has no record for it.

        Parameters
        ----------
        kind : RowKind
            ``UPDATE_BEFORE`` is passed only if the matching ``+U`` is missing or has another key. Formats without a record for half an
            update then write a delete, and an insert for such a ``+U`` (Flink does so for every update).
        row : tuple
            Canonical values in the order of the columns.
        before : tuple or None
            The row before an ``UPDATE_AFTER``, if known; then the record is an update.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """


class Decoder:
    """A format compiled for one table; `Format.decoder` returns it.

    `decode` returns the changelog of the message. `upserts` returns one change per key, for a keyed stage. Flink's planner puts
    DropUpdateBefore under its ChangelogNormalize; likewise, `upserts` reads only the key of a before-image. An event that changes the key
    becomes a delete of the old key and an upsert of the new one (Flink drops the old key's ``-U`` and leaves a stale row). With
    `positions`, each change has its position in the source's log.

    Attributes
    ----------
    tables : dict
        The tables of all messages with rows decoded so far, in the order of their first message. Each is a tuple of the values of the
        columns `tables` of `Format.decoder`. No result depends on it.
    """

    def __init__(
        self,
        format: Format,
        columns: tuple[Column, ...],
        unique_key: tuple[str, ...],
        metadata: tuple[str, ...],
        *,
        positions: bool = False,
        tables: Sequence[str] = (),
        require_key: bool = False,
        completes_moved: bool = True,
    ) -> None:
        format.check(columns, unique_key)
        if positions and format.positions:
            raise FormatOptionError(f"{format.identifier} has no positions that order changes: {format.positions}")
        self.format = format
        self.columns = columns
        self.unique_key = unique_key
        self.metadata_columns = tuple(self._metadata_column(name) for name in metadata)
        self._rows = RowConverter(columns, format.handling, unique_key)
        self._read = format.reader(self._rows)
        self._read_keyed = format.reader(self._rows, keyed=True)
        self._key_of = key_getter(columns, self._rows.key_indices)
        self._unified_key = row_unifier([columns[index] for index in self._rows.key_indices]) or tuple
        self._read_names: Reader | None = None
        self._tombstones = format.reads_tombstones
        self._headers = format.reads_headers
        self._readers = tuple(format.metadata[name].read for name in metadata)
        self._positions = positions
        self._require_key, self._completes_moved = require_key, completes_moved
        self._table_of = format.table_reader(tables) if tables else None
        self.tables: dict[tuple[Any, ...], None] = {}
        self._with_update_before = format.changelog_mode.contains(_UPDATE_BEFORE)
        if format.validate:
            check = message_validator(format.identifier, format.json_schema())
            self._read, self._read_keyed = _validated(self._read, check), _validated(self._read_keyed, check)
        self._require_known = _known_columns(format, columns) if format.unknown_columns == "fail" else None

    def _metadata_column(self, name: str) -> Column:
        known = self.format.metadata
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise SchemaError(f"{self.format.identifier} has no metadata column {name!r}; it has {listed}")
        return Column(name, known[name].sql_type)

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> list[Change] | Ignored:
        """Return the changelog rows of one Kafka record, in order, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the record cannot be decoded; the caller adds the record's topic and offset.
        """
        return self._decoded(self._read, self._changes, key, value, headers)

    def upserts(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> list[KeyedChange] | Ignored:
        """Return the upserts and deletes of one Kafka record, in order, or the reason why it has none.

        Raises
        ------
        DecodeError
            As `decode`; a missing before-image is an error only for a delete whose key it holds.
        """
        return self._decoded(self._read_keyed, self._keyed_with_position if self._positions else self._keyed, key, value, headers)

    def _decoded(
        self, read: Reader, add: Callable[[Event, list[C]], None], key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[C] | Ignored:
        """Return the changes of a record's events."""
        try:
            if not value and not self._tombstones:
                return Ignored.TOMBSTONE
            events = read(key, value, headers) if self._headers else read(key, value)
            if isinstance(events, Ignored):
                return events
            if self._table_of is not None:
                self._collect_tables(self._table_of, events)
            if self._require_known is not None:
                self._require_known(key, value, headers)
            changes: list[C] = []
            for event in events:
                add(event, changes)
            return changes
        except DecodeError as error:
            raise self._with_excerpt(named(error, value), key, value) from None
        except RecursionError:
            # A value that the JSON reader accepts can be nested too deeply for code further down the stack.
            raise self._with_excerpt(MalformedMessageError("nested too deeply"), key, value) from None

    def _collect_tables(self, table_of: Callable[[Any], tuple[Any, ...]], events: Sequence[Event]) -> None:
        message: Any = events  # no event's message
        for event in events:
            if event.message is not message:
                message = event.message
                self.tables[table_of(message)] = None

    def compare_names(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> NameDifference | None:
        """Return the differences between the declared columns and those of a record's first row; None if it names no columns.

        Parameters
        ----------
        key, value : bytes or None
        headers : sequence of (str, bytes or None)

        Raises
        ------
        DecodeError
            When the record cannot be decoded; an undeclared column may be the cause.
        """
        if not value and not self._tombstones:
            return None
        if self._read_names is None:
            rows = RowConverter(self.columns, self.format.handling, self.unique_key, names_only=True)
            self._read_names = self.format.reader(rows, keyed=True)
        events = self._read_names(key, value, headers) if self._headers else self._read_names(key, value)
        found = self.format.row_names(events[0]) if not isinstance(events, Ignored) and events else None
        if found is None:
            return None
        absent = [name for name in self._rows.names if name not in found.names] if found.whole else []
        unknown = [name for name in found.names if name not in self._rows.names and name not in found.added]
        return NameDifference(tuple(absent), tuple(unknown))

    def _with_excerpt(self, error: DecodeError, key: bytes | None, value: bytes | None) -> DecodeError:
        if not self.format.error_excerpt:
            return error.without_data()
        return error.at(excerpt=excerpt_of(key if error.field == "key" else value))

    def _metadata(self, event: Event) -> tuple[Any, ...]:
        return tuple([read(event.message) for read in self._readers])

    def _after(self, event: Event, rows: RowConverter) -> tuple[tuple[Any, ...], bool]:
        """Return the row after an event, and whether it contains `ABSENT`."""
        row = rows.row(event.after, event.after_path)
        if partial := ABSENT in row:
            if not event.sparse:
                row = _missing_as_null(row, rows.raw(event.after))
            elif event.changed_only and event.before is not None:
                row = _changed_as_null(row, rows.raw(event.before))
            if ABSENT in row and event.before is not None and not event.changed_only:
                row = complete(row, rows.row(event.before, event.before_path))
            partial = ABSENT in row
        if rows.required:
            rows.require(row, event.after, event.after_path, self.format.whole_rows)
        return row, partial

    def _changes(self, event: Event, changes: list[Change]) -> None:
        rows, metadata = event.rows or self._rows, self._metadata(event) if self._readers else ()
        if event.after is None:
            gone = rows.row(event.before, event.before_path)
            if self._require_key:
                self._check_key(gone, event.before_path)
            if event.sparse and ABSENT in gone:
                raise self._partial(gone, event.before_path)
            changes.append(Change(event.kind, gone if ABSENT not in gone else absent_as_null(gone), metadata))
            return
        after, partial = self._after(event, rows)
        if self._require_key:
            self._check_key(after, event.after_path)
        if partial:
            raise self._partial(after, event.after_path)
        kind = event.kind
        if kind is _UPDATE_AFTER and self._with_update_before and not event.single:
            before = self._before(event, rows, after)
            if self._require_key:
                self._check_key(before, event.before_path)
            changes.append(Change(_UPDATE_BEFORE, before, metadata))
        changes.append(Change(kind, after, metadata))

    def _before(self, event: Event, rows: RowConverter, after: tuple[Any, ...]) -> tuple[Any, ...]:
        if event.before is None:
            raise MissingBeforeImageError(
                "an update without its before-image cannot give -U. Configure the producer to write it (PostgreSQL: REPLICA IDENTITY FULL; "
                "MySQL: binlog_row_image=FULL), or set a primary_key so that ChangelogNormalize builds -U from its state",
                event.before_path,
            )
        if event.changed_only:
            return rows.before(event.before, after, event.before_path)
        before = rows.row(event.before, event.before_path)
        return complete(self._of_before(before, rows.raw(event.before)), after)

    def _of_before(self, row: tuple[Any, ...], raw: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the row before an update with NULL for columns that the message lacks.

        Columns of the key that it lacks did not change, and stay absent.
        """
        key, nulled = self._rows.key_indices, _missing_as_null(row, raw)
        return tuple([row[index] if index in key else value for index, value in enumerate(nulled)])

    def _moved(self, row: tuple[Any, ...], path: str) -> PartialImageError:
        remedy = f": {self.format.whole_rows}" if self.format.whole_rows else ""
        return PartialImageError(
            f"the primary key changed, and the producer left out {self._absent(row)} (unchanged), "
            f"whose values only the row of the old key has{remedy}",
            path,
        )

    def _absent(self, row: tuple[Any, ...]) -> str:
        pairs = zip(self.columns, row, strict=True)
        return ", ".join(column.name for column, value in pairs if value is ABSENT)

    def _partial(self, row: tuple[Any, ...], path: str) -> PartialImageError:
        remedy = f", or {self.format.whole_rows}" if self.format.whole_rows else ""
        return PartialImageError(
            f"the producer left out {self._absent(row)} (unchanged): only ChangelogNormalize can complete the row, from its state. "
            f"Set a primary_key{remedy}",
            path,
        )

    def _keyed(self, event: Event, changes: list[KeyedChange]) -> None:
        rows, metadata = event.rows or self._rows, self._metadata(event) if self._readers else ()
        if event.after is None:
            if event.kind is _DELETE:
                key = rows.key(event.before, event.before_path)
                changes.append(KeyedChange(self._checked(key, event.before_path), None, metadata))
            return
        row, partial = self._after(event, rows)
        key = self._key_of(row)
        if None in key or (partial and ABSENT in key):
            raise self._no_key(key, event.after_path)
        old = key
        if event.before is not None:
            old = self._unified_key(complete(rows.key(event.before, event.before_path), key))
        # Debezium writes a changed key as a delete and an insert.
        if partial and not self._completes_moved and (old != key or event.kind is _INSERT):
            raise self._moved(row, event.after_path)
        if old != key:
            changes.append(KeyedChange(self._checked(old, event.before_path), None, metadata))
        moved_from = old if partial and old != key else None
        changes.append(KeyedChange(key, row, metadata, partial, moved_from=moved_from))

    def _keyed_with_position(self, event: Event, changes: list[KeyedChange]) -> None:
        made: list[KeyedChange] = []
        self._keyed(event, made)
        if made:
            position = self.format.position(event.message)
            changes += [msgspec.structs.replace(change, position=position) for change in made]

    def _check_key(self, row: tuple[Any, ...], path: str) -> None:
        self._checked(tuple([row[index] for index in self._rows.key_indices]), path)

    def _checked(self, key: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        if None in key or ABSENT in key:
            raise self._no_key(key, path)
        return self._unified_key(key)

    def _no_key(self, key: tuple[Any, ...], path: str) -> MissingFieldError:
        # A key is required in every mode: a row without a key cannot be identified.
        index, part = next(each for each in zip(self._rows.key_indices, key, strict=True) if each[1] is None or each[1] is ABSENT)
        name = self.columns[index].name
        remedy = f": {self.format.whole_rows}" if part is ABSENT and self.format.whole_rows else ""
        return MissingFieldError(f"`{name}` is part of the primary key and is null or missing{remedy}", f"{path}.{name}")


def _validated(read: Reader, check: Callable[[bytes], None]) -> Reader:
    def validated(key: bytes | None, value: bytes | None, *headers: Headers) -> Sequence[Event] | Ignored:
        try:
            events = read(key, value, *headers)
        except DecodeError:
            if value is not None:
                check(value)
            raise
        # Messages of other tables are not validated.
        if value is not None and events is not Ignored.OTHER_TABLE:
            check(value)
        return events

    return validated


def _known_columns(format: Format, columns: Sequence[Column]) -> Callable[[bytes | None, bytes | None, Headers], None]:
    """Return a function that raises an error for a record with a value in a column that is not declared."""
    declared = {column.name for column in columns}
    try:
        # msgspec has no field for this name, so that the reader returns images with all their columns.
        read = format.sample_reader(RowConverter((Column('"', SqlType("STRING")),), format.handling))
    except InferenceError:
        raise FormatOptionError(
            f"{format.identifier}: its messages have no column names here, which unknown_columns='fail' needs"
        ) from None

    def require_known(key: bytes | None, value: bytes | None, headers: Headers) -> None:
        events = read(key, value, headers) if format.reads_headers else read(key, value)
        for event in () if isinstance(events, Ignored) else events:
            names = format.row_names(event) if event.after is not None else None
            added = () if names is None else names.added
            for name, given in (event.after or {}).items():
                if given is not None and name not in declared and name not in added:
                    raise UnknownColumnError(
                        f"column `{name}` has a value and is not declared: add it to the schema and start the query again (a checkpoint "
                        "of engine='native' first needs carry_over). unknown_columns='ignore' loses its values",
                        f"{event.after_path}.{name}",
                    )

    return require_known


def _missing_as_null(row: tuple[Any, ...], raw: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `row` with NULL for columns that the message lacks (as Flink does); a placeholder stays `ABSENT`."""
    return tuple([None if was is ABSENT else value for was, value in zip(raw, row, strict=True)])


def _changed_as_null(row: tuple[Any, ...], before: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `row` with NULL for missing columns that changed, for a producer that omits NULLs."""
    return tuple([None if value is ABSENT and was is not ABSENT else value for value, was in zip(row, before, strict=True)])
