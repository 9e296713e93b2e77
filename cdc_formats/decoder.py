"""A format compiled for one table: `Decoder`, from the bytes of Kafka records to changes.

It completes before-images, converts types, projects metadata and adds the path to every error.

Decoding is pure: the same bytes always give the same changes, independent of earlier records, the
clock, the machine's time zone and the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from traceback import extract_tb
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from .decoding.other_messages import named
from .decoding.rows import RowConverter, check_masks, read_columns
from .errors import (
    ChangelogError,
    DecodeError,
    FormatBugError,
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
from .events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Change,
    Event,
    Headers,
    Ignored,
    KeyedChange,
    Position,
    Reader,
)
from .message_format import (
    MessageFormat,
    RowNames,
    json_schema_of,
    message_validator,
    table_reader,
    untyped_reader,
)
from .values.connect_schema import key_fields
from .values.equality import key_getter, row_unifier
from .values.schema import ABSENT, Column, complete

T = TypeVar("T")


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


class Decoder:
    """A format compiled for one table; `Format.decoder` returns it.

    `decode` returns the changelog of the message. `upserts` returns one change per key, for a keyed
    stage. Flink's planner puts DropUpdateBefore under its ChangelogNormalize; likewise, `upserts`
    reads only the key of a before-image. An event that changes the key becomes a delete of the old
    key and an upsert of the new one (Flink drops the old key's ``-U`` and leaves a stale row). With
    `positions`, each change has its position in the source's log.

    Attributes
    ----------
    columns : tuple of Column
        The columns of rows. A masked column has the type of its masked values, and a dropped one is
        left out.
    tables : dict
        The tables of all messages with rows decoded so far, in the order of their first message.
        Each is a tuple of the values of the columns `tables` of `Format.decoder`. No result depends
        on it.
    """

    def __init__(
        self,
        format: MessageFormat,
        columns: tuple[Column, ...],
        unique_key: tuple[str, ...],
        metadata: tuple[str, ...],
        *,
        positions: bool = False,
        tables: Sequence[str] = (),
        require_key: bool = False,
        completes_moved: bool = True,
    ) -> None:
        check_masks(format.handling.masks, columns, unique_key)
        read = read_columns(columns, format.handling.masks)
        format.check(read, unique_key)
        if positions and format.traits.positions:
            raise FormatOptionError(
                f"{format.identifier} has no positions that order changes: {format.traits.positions}"
            )
        self.format, self._traits = format, format.traits
        self.unique_key = unique_key
        self.metadata_columns = tuple(map(self._metadata_column, metadata))
        self._declared = {column.name for column in columns}
        self._rows = RowConverter(read, format.handling, unique_key)
        self.columns = self._rows.results
        self._read = _with_headers(format, format.reader(self._rows))
        self._read_keyed = _with_headers(format, format.reader(self._rows, keyed=True))
        self._key_of = key_getter(self.columns, self._rows.key_indices)
        self._unified_key = (
            row_unifier([self.columns[index] for index in self._rows.key_indices]) or tuple
        )
        self._tombstones = format.traits.reads_tombstones
        self._readers = tuple(format.metadata[name].read for name in metadata)
        self._position_of: Callable[[Any], Position | None] = (
            format.traits.position if positions else lambda message: None
        )
        self._require_key, self._completes_moved = require_key, completes_moved
        self._remedy = f": {self._traits.whole_rows}" if self._traits.whole_rows else ""
        self._table_of = table_reader(format, tables) if tables else None
        self.tables: dict[tuple[Any, ...], None] = {}
        self._with_update_before = format.changelog_mode.contains(UPDATE_BEFORE)
        if format.validate:
            check = message_validator(format.identifier, json_schema_of(type(format)))
            self._read, self._read_keyed = (
                _validated(self._read, check),
                _validated(self._read_keyed, check),
            )
        self._read_known = self._names_reader() if format.unknown_columns == "fail" else None

    def _metadata_column(self, name: str) -> Column:
        metadata = self.format.metadata
        if name not in metadata:
            listed = ", ".join(sorted(metadata)) or "none"
            raise SchemaError(
                f"{self.format.identifier} has no metadata column {name!r}; it has {listed}"
            )
        return Column(name, metadata[name].sql_type)

    def decode(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> list[Change] | Ignored:
        """Return the changelog rows of one Kafka record, in order, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the record cannot be decoded; the caller adds the record's topic and offset.
        """
        return self._decoded(self._read, self._changes, key, value, headers)

    def __repr__(self) -> str:
        key = f", unique_key={self.unique_key!r}" if self.unique_key else ""
        return f"{self.format!r}.decoder({', '.join(map(str, self.columns))!r}{key})"

    def upserts(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> list[KeyedChange] | Ignored:
        """Return one Kafka record's upserts and deletes, in order, or the reason why it has none.

        Raises
        ------
        DecodeError
            As `decode`; a missing before-image is an error only for a delete whose key it holds.
        """
        changes = self._decoded(self._read_keyed, self._keyed, key, value, headers)
        if not (headers and self._traits.old_key_header) or isinstance(changes, Ignored):
            return changes
        return [
            replace(change, moved_from=self._key_in(headers, change)) if change.partial else change
            for change in changes
        ]

    def _decoded(
        self,
        read: Reader,
        add: Callable[[Event, list[T]], None],
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> list[T] | Ignored:
        """Return the changes of a record's events."""
        events: Any = ()
        try:
            events = self._events(read, key, value, headers)
            if isinstance(events, Ignored):
                return events
            if self._table_of is not None:
                self._collect_tables(self._table_of, events)
            if self._read_known is not None:
                self._require_known(self._events(self._read_known, key, value, headers))
            changes: list[T] = []
            for event in events:
                add(event, changes)
            return changes
        except DecodeError as error:
            raise self._with_excerpt(
                named(error, value, self.format.identifier), key, value
            ) from None
        except (AttributeError, TypeError):
            if isinstance(events, list) and all(isinstance(each, Event) for each in events):
                raise
            wrong = type(events).__name__
            if isinstance(events, list):
                wrong = f"a list with {type(next(e for e in events if not isinstance(e, Event))).__name__}"
            bug = FormatBugError(
                f"read of {self.format.identifier} returned {wrong}: it must return a list of Event, "
                "or an Ignored reason"
            )
            raise self._with_excerpt(bug, key, value) from None
        except RecursionError:
            # A value that the JSON reader accepts can be nested too deeply for code further down
            # the stack.
            raise self._with_excerpt(
                MalformedMessageError("nested too deeply"), key, value
            ) from None

    def _events(
        self, read: Reader, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Event] | Ignored:
        return (
            Ignored.TOMBSTONE if not value and not self._tombstones else read(key, value, headers)
        )

    def _collect_tables(
        self, table_of: Callable[[Any], tuple[Any, ...]], events: Sequence[Event]
    ) -> None:
        message: Any = events  # no event's message
        for event in events:
            if event.message is not message:
                message = event.message
                self.tables[table_of(message)] = None

    def compare_names(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> NameDifference | None:
        """Return how declared columns differ from a record's first row; None if it names none.

        Parameters
        ----------
        key, value : bytes or None
        headers : sequence of (str, bytes or None)

        Raises
        ------
        DecodeError
            When the record cannot be decoded; an undeclared column may be the cause.
        """
        try:
            events = self._events(self._read_names, key, value, headers)
        except InferenceError:
            return None
        if isinstance(events, Ignored) or not events:
            return None
        row = self._traits.row_names(events[0])
        if row is None:
            return None
        absent = [name for name in self._rows.names if name not in row.names] if row.whole else []
        return NameDifference(tuple(absent), self._unknown(row))

    def _unknown(self, row: RowNames) -> tuple[str, ...]:
        return tuple(
            [name for name in row.names if name not in self._declared and name not in row.added]
        )

    def _names_reader(self) -> Reader:
        try:
            return self._read_names
        except InferenceError:
            raise FormatOptionError(
                f"{self.format.identifier}: its messages have no column names here, which "
                "unknown_columns='fail' needs"
            ) from None

    def _require_known(self, events: Sequence[Event] | Ignored) -> None:
        """Raise if a row has a value in an undeclared column."""
        for event in () if isinstance(events, Ignored) else events:
            row = None if event.after is None else self._traits.row_names(event)
            unknown = () if row is None else self._unknown(row)
            name = next((name for name in unknown if event.after.get(name) is not None), None)
            if name is not None:
                raise UnknownColumnError(
                    f"column `{name}` has a value and is not declared: add it to the schema and "
                    "start the query again (engine='native' needs a new checkpoint). "
                    "unknown_columns='ignore' loses its values",
                    f"{event.after_path}.{name}",
                )

    @cached_property
    def _read_names(self) -> Reader:
        return _with_headers(
            self.format, untyped_reader(self.format, self._rows.columns, self.unique_key)
        )

    def _with_excerpt(
        self, error: DecodeError, key: bytes | None, value: bytes | None
    ) -> DecodeError:
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
                # The producer omits NULLs: a missing column that changed is NULL.
                pairs = zip(row, rows.raw(event.before), strict=True)
                row = tuple([None if now is ABSENT is not was else now for now, was in pairs])
            if ABSENT in row and event.before is not None and not event.changed_only:
                row = complete(row, self._logged_before(event, rows))
            partial = ABSENT in row
        if rows.required:
            rows.require(row, event.after, event.after_path, self._traits.whole_rows)
        return row, partial

    def _logged_before(self, event: Event, rows: RowConverter) -> tuple[Any, ...]:
        """Return the row before an update, with `ABSENT` for values that its log may lack.

        An unavailable value is a large one, so that an empty value is not the one before it.
        """
        before, was = rows.row(event.before, event.before_path), rows.raw(event.before)
        if not any(map(_is_empty, was)) or self._traits.logs_empty_values(event.message):
            return before
        # A column that the row after lacks is no unavailable value.
        return tuple(
            [
                ABSENT if new is not ABSENT and _is_empty(old) else value
                for value, old, new in zip(before, was, rows.raw(event.after), strict=True)
            ]
        )

    def _changes(self, event: Event, changes: list[Change]) -> None:
        rows, metadata = event.rows or self._rows, self._metadata(event)
        if event.after is None:
            row = rows.row(event.before, event.before_path)
            self._check_key(row, event.before_path)
            if not event.sparse:
                row = _missing_as_null(row, rows.raw(event.before))
            if ABSENT in row:
                raise self._partial(row, event.before_path)
            changes.append(Change(event.kind, row, metadata))
            return
        after, partial = self._after(event, rows)
        self._check_key(after, event.after_path)
        if partial:
            raise self._partial(after, event.after_path)
        if event.kind is UPDATE_AFTER and self._with_update_before and not event.single:
            before = self._before(event, rows, after)
            self._check_key(before, event.before_path)
            changes.append(Change(UPDATE_BEFORE, before, metadata))
        changes.append(Change(event.kind, after, metadata))

    def _before(self, event: Event, rows: RowConverter, after: tuple[Any, ...]) -> tuple[Any, ...]:
        if event.before is None:
            raise MissingBeforeImageError(
                "an update without its before-image cannot give -U. Configure the producer to "
                "write it (PostgreSQL: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL), or "
                "set a primary_key so that ChangelogNormalize builds -U from its state",
                event.before_path,
            )
        if event.changed_only:
            return rows.before(event.before, after, event.before_path)
        before, raw = rows.row(event.before, event.before_path), rows.raw(event.before)
        # Columns of the key that the message lacks did not change.
        key, nulled = self._rows.key_indices, _missing_as_null(before, raw)
        if ABSENT in nulled:
            raise self._partial(nulled, event.before_path)
        return tuple(
            [
                new if index in key and was is ABSENT else value
                for index, (value, was, new) in enumerate(zip(nulled, before, after, strict=True))
            ]
        )

    def _absent(self, row: tuple[Any, ...]) -> str:
        return ", ".join(
            column.name for column, value in zip(self.columns, row, strict=True) if value is ABSENT
        )

    def _partial(self, row: tuple[Any, ...], path: str) -> PartialImageError:
        remedy = f", or {self._traits.whole_rows}" if self._traits.whole_rows else ""
        return PartialImageError(
            f"the producer left out {self._absent(row)} (unchanged): only ChangelogNormalize can "
            f"complete the row, from its state. Set a primary_key{remedy}",
            path,
        )

    def _keyed(self, event: Event, changes: list[KeyedChange]) -> None:
        rows, metadata = event.rows or self._rows, self._metadata(event)
        if event.after is None:
            if event.kind is DELETE:
                key = self._checked(rows.key(event.before, event.before_path), event.before_path)
                changes.append(
                    KeyedChange(key, None, metadata, position=self._position_of(event.message))
                )
            return
        row, partial = self._after(event, rows)
        key = self._key_of(row)
        self._require_whole(key, event.after_path)
        old = self._key_before(event, rows, key)
        # Debezium writes a changed key as a delete and an insert: no stored row of the new key
        # completes a partial one.
        if partial and not self._completes_moved and (old is not None or event.kind is INSERT):
            raise PartialImageError(
                f"the primary key changed, and the producer left out {self._absent(row)} "
                f"(unchanged), whose values only the row of the old key has{self._remedy}",
                event.after_path,
            )
        position = self._position_of
        if old is not None:
            self._require_whole(old, event.before_path)
            changes.append(KeyedChange(old, None, metadata, position=position(event.message)))
        changes.append(
            KeyedChange(
                key, row, metadata, partial, position(event.message), old if partial else None
            )
        )

    def _key_before(
        self, event: Event, rows: RowConverter, key: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        """Return the key before an event that changes it; None for other events."""
        if event.before is None:
            return None
        before = self._unified_key(complete(rows.key(event.before, event.before_path), key))
        return None if before == key else before

    def _key_in(self, headers: Headers, change: KeyedChange) -> tuple[Any, ...] | None:
        """Return the key that a changed row had before, of the event or of a header."""
        image = key_fields(dict(headers).get(self._traits.old_key_header))
        if change.moved_from is not None or not image:
            return change.moved_from
        try:
            key = self._unified_key(self._rows.key(image, "$"))
        except DecodeError:  # a type that the producer writes in another way in headers
            return None
        return None if None in key or ABSENT in key or key == change.key else key

    def _check_key(self, row: tuple[Any, ...], path: str) -> None:
        if self._require_key:
            self._checked(tuple([row[index] for index in self._rows.key_indices]), path)

    def _checked(self, key: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        self._require_whole(key, path)
        return self._unified_key(key)

    def _require_whole(self, key: tuple[Any, ...], path: str) -> None:
        # A key is required in every mode: a row without a key cannot be identified.
        if None not in key and ABSENT not in key:
            return
        index, part = next(
            each
            for each in zip(self._rows.key_indices, key, strict=True)
            if each[1] is None or each[1] is ABSENT
        )
        name = self.columns[index].name
        reason = f"`{name}` is part of the primary key and is null or missing"
        raise MissingFieldError(reason + self._remedy * (part is ABSENT), f"{path}.{name}")


def _with_headers(format: MessageFormat, read: Reader) -> Reader:
    """Return a reader that takes the headers, too."""
    return read if format.traits.reads_headers else lambda key, value, headers: read(key, value)


def _validated(read: Reader, check: Callable[[bytes], None]) -> Reader:
    def validated(
        key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Event] | Ignored:
        try:
            events = read(key, value, headers)
        except DecodeError:
            if value is not None:
                check(value)
            raise
        # Messages of other tables are not validated.
        if value is not None and events is not Ignored.OTHER_TABLE:
            check(value)
        return events

    return validated


def _is_empty(value: Any) -> bool:
    """Whether a message's value is null, or the default of a type that can be unavailable."""
    return value is None or value in ("", b"", "{}", [], {})


def _missing_as_null(row: tuple[Any, ...], raw: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `row` with NULL for missing columns (as Flink does); a placeholder stays `ABSENT`."""
    return tuple([None if was is ABSENT else value for was, value in zip(raw, row, strict=True)])


# --------------------------------------------------------------------------------------------------
# One Kafka record: its rows, the reason why it has none, or the error that it causes.


class Record(Protocol):
    """The parts of a Kafka record that an error text needs."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def where(self) -> str: ...


def decode_one(identifier: str, decode: Callable[..., T], *arguments: Any) -> T | DecodeError:
    """Return what `decode` returns for one record, or the error that the record causes.

    Parameters
    ----------
    identifier : str
        The format's.
    decode : callable
        An exception of it that is not a `DecodeError` is a bug of the format.
    *arguments
        Those of `decode`.

    Raises
    ------
    ChangelogError, OSError, ImportError, MemoryError
        Infrastructure errors, which no record causes.
    """
    try:
        return decode(*arguments)
    except DecodeError as error:
        return error.at()  # without the frames of the traceback
    except (ChangelogError, OSError, ImportError, MemoryError):
        raise
    except RecursionError:
        return MalformedMessageError("nested too deeply")
    except Exception as error:
        # Spark does not show a cause's traceback: the text includes the line.
        _, line, function, _ = extract_tb(error.__traceback__)[-1]
        what = f"{identifier} failed with {type(error).__name__}"
        rule = (
            f" (line {line}, in {function}), but a format may only raise DecodeError: please report "
            "this bug of the format"
        )
        bug = FormatBugError(f"{what}: {error}{rule}", bare=what + rule)
        bug.__cause__ = error
        return bug


def in_record(error: DecodeError, record: Record, *, excerpt: bool) -> DecodeError:
    """Return an error with its record's position in Kafka.

    Parameters
    ----------
    error : DecodeError
    record : Record
    excerpt : bool
        Whether the error shows data of the message (`Format.error_excerpt`), also in its cause.
    """
    if not excerpt:
        return error.without_data().at(where=record.where)
    message = record.key if error.field == "key" else record.value
    located = error.at(where=record.where, excerpt=excerpt_of(message))
    located.__cause__ = error.__cause__
    return located
