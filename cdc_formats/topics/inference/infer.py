"""Inference of a table's columns, primary key and format options from a sample of its topic.

Each comes with its evidence.

``infer_schema(records, format=...)`` prefers declarations to values, in this order:

1. the columns and the primary key that records declare (`Sampler.declaration`): Connect's schema
   blocks, Avro schemas of a registry, names of the source's types, the fields of the Kafka key
2. the values (`observed` has the rules)

Values come from after-images: a before-image may hold filler values (PostgreSQL's default replica
identity) or only part of the row. Columns have the order of the newest schema, otherwise of the row
with the most columns. A column is NOT NULL when a schema declares it so, or when it belongs to the
primary key. Encodings that depend on the producer's configuration are not guessed: an epoch number
stays BIGINT, base64 stays STRING, and a note says how to declare the column.

`infer_schema` decodes the sample with the inferred schema and notes the records that fail.

Schema inference from a registry alone: the newest schemas of a topic's subjects, no records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from cdc_formats.avro.schema_registry import Registry
from cdc_formats.decoder import decode_one
from cdc_formats.decoding.other_messages import named
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    FormatOptionError,
    InferenceError,
    MalformedMessageError,
    MissingBeforeImageError,
    PartialImageError,
    SchemaError,
    printable,
)
from cdc_formats.events import Event, Headers, Ignored
from cdc_formats.format import Format, get_format, option_name, untyped_reader
from cdc_formats.topics.declared import DeclaredColumn, Question
from cdc_formats.topics.inference.observed import DIGITS, ColumnValues
from cdc_formats.topics.inference.source_types import STRING, avro_columns, field_names
from cdc_formats.topics.sampler import (
    InspectedRecord,
    SampleCounts,
    SampledRecord,
    sampler_of,
)
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import Column, SqlType, leaves, quote, to_ddl
from cdc_formats.values.types import wider

# --------------------------------------------------------------------------------------------------
# Reads records without declared columns: their events, with images exactly as in the message.


class Reading(NamedTuple):
    """The result of reading a record: events, a reason why it has none, or an error.

    Attributes
    ----------
    inspected : InspectedRecord
    events : tuple of Event
    table : tuple of str or None
        The names of the table of the events, or of the declared columns.
    ignored : Ignored or None
    error : DecodeError or None
    """

    inspected: InspectedRecord
    events: tuple[Event, ...] = ()
    table: tuple[str, ...] | None = None
    ignored: Ignored | None = None
    error: DecodeError | None = None

    @property
    def record(self) -> SampledRecord:
        """The record."""
        return self.inspected.record


def named_format(format: str | Format, options: Mapping[str, Any]) -> Format:
    """Return the format of a name and options, or the format, which takes no options.

    Raises
    ------
    ArgumentError, FormatOptionError, UnknownFormatError
    """
    if not isinstance(format, Format):
        return get_format(format, **options)
    if options:
        raise ArgumentError(
            f"options require a format's name: pass them to {type(format).__name__}(...) instead"
        )
    return format


class AnyColumns:
    """Reads the records of a format without declared columns.

    Parameters
    ----------
    format : Format

    Raises
    ------
    InferenceError
        When the format has no column names.
    """

    def __init__(self, format: Format) -> None:
        self.format = format
        self.sampler = sampler_of(format)
        self._read = untyped_reader(format)

    def read(self, inspected: InspectedRecord) -> Reading:
        """Read a record.

        Raises
        ------
        ChangelogError, OSError, ImportError, MemoryError
            Infrastructure errors, for example of a schema registry that does not answer.
        """
        result = decode_one(self.format.identifier, self._reading, inspected)
        return Reading(inspected, error=result) if isinstance(result, DecodeError) else result

    def _reading(self, inspected: InspectedRecord) -> Reading:
        record = inspected.record
        result = self.events(record.key, record.value, record.headers)
        if isinstance(result, Ignored):
            names = (
                self.format.control_event(record.key, record.value, result, record.headers)[1:4]
                if result in self.sampler.declaring
                else ()
            )
            return Reading(inspected, table=tuple(filter(None, names)) or None, ignored=result)
        events = tuple(result)
        return Reading(inspected, events, self.table(events[0].message) if events else None)

    def events(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        """Return a record's events with the producer's values, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the format cannot read the record.
        """
        if not value and not self.format.traits.reads_tombstones:
            return Ignored.TOMBSTONE
        try:
            events: Sequence[Event] | Ignored
            events = (
                self._read(key, value, headers)
                if self.format.traits.reads_headers
                else self._read(key, value)
            )
        except DecodeError as error:
            raise named(error, value, self.format.identifier) from None
        except RecursionError:
            raise MalformedMessageError("nested too deeply") from None
        return events

    def table(self, message: Any) -> tuple[str, ...] | None:
        """Return the table's names from a message's metadata; None when it has none.

        Parameters
        ----------
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the metadata cannot be read.
        """
        if message is None:
            return None
        names = [
            self.format.metadata[name].read(message) for name in self.format.traits.table_identity
        ]
        return tuple(str(name) for name in names if name is not None) or None


VALUES = "values"
_UNSIZED = SqlType("DECIMAL")
"""A number whose digits no declaration has."""


@dataclass(frozen=True)
class ColumnEvidence:
    """A column, and the evidence for its type.

    Parameters
    ----------
    column : Column
        The chosen name, type and nullability.
    certainty : str
        The type's source: ``schema block``, ``schema registry``, ``mysqlType``, ``sqlType``, or
        ``values`` (a guess).
    source_type : str
        The producer's name of the type; empty if unknown.
    seen : mapping
        The number of values of each JSON type, including nulls.
    lengths : tuple of int or None
        The shortest and the longest text.
    examples : tuple of str
    notes : tuple of str
        Also the texts of the questions.
    questions : tuple of Question
        What the user has to decide, since the type is a guess.
    comment : str
        The column's comment in the source; empty if the messages do not have it.
    """

    column: Column
    certainty: str
    source_type: str = ""
    seen: Mapping[str, int] = field(default_factory=dict)
    lengths: tuple[int, int] | None = None
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    comment: str = ""

    @property
    def origin(self) -> str:
        """Where the type comes from, in words."""
        return (
            f"{self.certainty}: {self.source_type}"
            if self.source_type
            else f"guessed from {self.certainty}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values = {
            "name": self.column.name,
            "type": str(self.column.type),
            "nullable": self.column.nullable,
            **vars(self),
        }
        del values["column"]
        return dict(msgspec.to_builtins(values))

    def __str__(self) -> str:
        seen = ", ".join(f"{count} {kind}" for kind, count in self.seen.items())
        lengths = f" of {self.lengths[0]} to {self.lengths[1]} characters" if self.lengths else ""
        shown = f"; for example {', '.join(self.examples)}" if self.examples else ""
        return f"{self.column}: {self.origin}; {seen or 'no value'}{lengths}{shown}"


class TopicSample(SampleCounts):
    """Collects the evidence of a sample, record by record.

    Parameters
    ----------
    reader : AnyColumns
    examples : int
        How many example values of each column to keep.
    """

    def __init__(self, reader: AnyColumns, examples: int) -> None:
        super().__init__()
        self.format, self.examples = reader.format, examples
        self.reader, self.sampler = reader, reader.sampler
        self._row_names = reader.format.traits.row_names
        self.observed: dict[str, ColumnValues] = {}
        self.missing: Counter[str] = Counter()
        self.certainty: dict[str, str] = {}
        self.order: list[str] = []
        self.declared_order: list[str] = []
        self.tables: Counter[tuple[str, ...]] = Counter()
        self.keys: Counter[tuple[str, ...]] = Counter()
        self.key_sources: dict[tuple[str, ...], str] = {}
        self.ignored: Counter[Ignored] = Counter()
        self.refused: list[DecodeError] = []

    def add(self, reading: Reading) -> None:
        """Add a record."""
        record = reading.record
        self.with_key += record.key is not None
        self.json_nulls += record.value is not None and bytes(record.value) == b"null"
        if reading.ignored is not None:
            self.ignored[reading.ignored] += 1
            if reading.ignored not in self.sampler.declaring:
                return
        error = reading.error or decode_one(self.format.identifier, self._add_events, reading)
        if error is not None:
            self.refused.append(error)

    def _add_events(self, reading: Reading) -> None:
        record = reading.record
        if record.value:
            declaration = self.sampler.declaration(record.key, record.value, record.headers)
            self.messages += 1
            self.keys[declaration.primary_key] += 1
            self.key_sources[declaration.primary_key] = declaration.key_source
            self.sources[declaration.source] += 1
            if declaration.columns:
                self.declared_order = [each.column.name for each in declaration.columns]
            for each in declaration.columns:
                self.certainty[each.column.name] = declaration.source
                declarations = self.declared.setdefault(each.column.name, [])
                if each not in declarations:
                    declarations.append(each)
        for event in reading.events:
            if event.after is not None:
                self._add_row(event)
            self.connectors.add(str(self.sampler.connector(event.message) or ""))
            if (table := self.reader.table(event.message)) is not None:
                self.tables[table] += 1

    def _add_row(self, event: Event) -> None:
        names = self._row_names(event)
        added = () if names is None else names.added
        self.with_added += bool(added)
        row = {name: value for name, value in event.after.items() if name not in added}
        cells = [value for value in row.values() if value is not None]
        # Debezium's connectors for Cassandra and YugabyteDB write cells.
        if cells and all(
            isinstance(cell, dict)
            and {"value", "set"} <= set(cell) <= {"value", "set", "deletion_ts"}
            for cell in cells
        ):
            raise MalformedMessageError(
                "the row has cells with `value` and `set`, not values, and a null cell means "
                "unchanged"
            )
        self.rows += 1
        for name, value in row.items():
            if name not in self.observed:
                self.observed[name] = ColumnValues(self.format.handling.placeholder)
                self.missing[name] = self.rows - 1
            self.observed[name].add(self.sampler.plain_value(value), self.examples)
        for name in self.observed.keys() - row.keys():
            self.missing[name] += 1
        if len(row) >= len(self.order):
            self.order = list(row)

    def require_rows(self) -> None:
        """Raise if the sample has neither rows nor declared columns, or several tables' rows."""
        format = self.format.identifier
        if not self.rows and not self.declared:
            ignored = (
                ", ".join(f"{count} {reason.value}" for reason, count in self.ignored.items())
                or "none"
            )
            refused = (
                (
                    f"; {len(self.refused)} could not be read, the first: "
                    f"{self.refused[0].without_data()}"
                )
                if self.refused
                else ""
            )
            raise InferenceError(
                f"the sample has no row of {format} to infer a schema from (ignored: "
                f"{ignored}{refused}): take a larger sample, check the format and its filters, or "
                "pass schema"
            )
        filters = [
            option
            for option in reversed(list(self.format.traits.table_identity.values()))
            if option
        ]
        if len(self.tables) > 1 and all(getattr(self.format, name) is None for name in filters):
            listed = ", ".join(
                f"{'.'.join(table)} ({count} changes)"
                for table, count in self.tables.most_common(20)
            )
            more = f" and {len(self.tables) - 20} more" if len(self.tables) > 20 else ""
            choose = (
                f"choose one with {filters[0]}, a regular expression" if filters else "pass schema"
            )
            raise InferenceError(f"the topic has several tables: {listed}{more}; {choose}")

    def primary_key(self) -> tuple[tuple[str, ...], str]:
        """Return the primary key and the reason for it."""
        keys = [names for names in self.keys if names]
        if not keys:
            return (), "the sample does not name one: pass primary_key"
        if len(keys) > 1:
            listed = " and ".join(f"({', '.join(names)})" for names in keys)
            return (), f"it changes in the sample, {listed}: pass primary_key"
        # Maxwell writes the names of a key in lower case.
        by_lower = {name.lower(): name for name in (*self.observed, *self.declared)}
        names = tuple(
            name if name in self.observed else by_lower.get(name.lower(), name) for name in keys[0]
        )
        unknown = [
            name for name in names if name not in self.observed and name not in self.declared
        ]
        if unknown:
            return (), f"the key has {', '.join(unknown)}, which no row has: pass primary_key"
        return names, f"{self.key_sources[keys[0]]}, in {self.keys[keys[0]]} records"

    def evidence(self, key: Sequence[str]) -> Iterator[ColumnEvidence]:
        """Return the evidence for each column, in the columns' order."""
        for name in dict.fromkeys(
            [*self.declared_order, *self.order, *self.observed, *self.declared]
        ):
            if name:
                yield self._of_column(name, name in key)

    def _of_column(self, name: str, of_key: bool) -> ColumnEvidence:
        seen, declared = self.observed.get(name, ColumnValues()), self.declared.get(name, [])
        missing = self.missing[name] if name in self.observed else self.rows
        column, source_type, notes = self._declared(name, seen, declared)
        if column is None:
            column = Column(name, seen.type(exact_numbers=self.sampler.exact_numbers))
            notes = [*notes, *self._guess_notes(seen, column.type)]
        noted = self.sampler.column_notes(
            column, seen, notes, guessed=not source_type, connectors=self.connectors
        )
        notes = [
            each
            for each in noted
            if not (isinstance(each, Question) and each.is_settled(self.format))
        ]
        questions = [each for each in notes if isinstance(each, Question) and not source_type]
        if missing:
            notes = [*notes, f"not in {missing} of {self.rows} rows"]
        column = replace(column, nullable=not of_key and (column.nullable or missing > 0))
        return ColumnEvidence(
            column=column,
            certainty=self.certainty[name] if source_type else VALUES,
            source_type=source_type,
            seen=dict(sorted(seen.kinds.items(), key=lambda pair: (pair[0] == "null", -pair[1]))),
            lengths=seen.lengths,
            examples=tuple(seen.examples),
            notes=tuple(dict.fromkeys(map(str, notes))),
            questions=tuple(dict.fromkeys(questions)),
            comment=declared[-1].comment if declared else "",
        )

    def _declared(
        self, name: str, seen: ColumnValues, declared: Sequence[DeclaredColumn]
    ) -> tuple[Column | None, str, list[str | Question]]:
        """Return the column as the producer declares it, the producer's type name, and notes."""
        notes: list[str | Question] = [each.note for each in declared if each.note]
        types = [each.column.type for each in declared]
        if all(each == _UNSIZED for each in types):
            types = [seen.digits() or _UNSIZED for _ in types]
        if not types or SqlType("") in types or _UNSIZED in types:  # one depends on the values
            return None, "", notes
        sql_type = reduce(lambda first, second: wider(first, second, STRING) or STRING, types)
        if sql_type.name in INTEGER_BITS and seen.are_labels:
            return Column(name, STRING), declared[-1].source_type, ["its values are text"]
        if sql_type == STRING and DIGITS in seen.notes():
            notes.append(DIGITS)
        if len(set(types)) > 1:
            notes.append("its type changes in the sample: the wider one is used")
        return (
            Column(name, sql_type, any(each.column.nullable for each in declared)),
            ", then ".join(dict.fromkeys(each.source_type for each in declared)),
            notes,
        )

    def _guess_notes(self, seen: ColumnValues, sql_type: SqlType) -> Iterator[str | Question]:
        yield from (note for note in seen.notes() if note not in self.sampler.not_asked)
        types = set(leaves(sql_type))
        if any(each.name == "DECIMAL" and each.scale for each in types):
            yield (
                "a number with a fraction, and a value with more digits than this type is an error: declare "
                "the source's DECIMAL(p,s), or DOUBLE"
            )
        elif not self.sampler.exact_numbers and SqlType("DOUBLE") in types:
            yield Question(
                "a number with a fraction: if the source's column is a DECIMAL, declare it, since a DOUBLE "
                "holds 15 digits",
                {"decimal_handling_mode": ("double",)},
            )

    def notes(self) -> Iterator[str]:
        """Return notes for the user on the whole sample."""
        if self.refused:
            yield (
                f"{len(self.refused)} records could not be read, the first: "
                f"{self.refused[0].without_data()}"
            )
        if not self.rows:
            yield "the sample has only deletes: the columns are those that its messages declare"
        if len(self.tables) > 1:
            yield f"the filters select {len(self.tables)} tables, which are read as one"
        yield from self.sampler.sample_notes(self)
        if "" in self.observed:
            yield "a column without a name cannot be declared and is left out"


@dataclass(frozen=True)
class InferredSchema:
    """The schema inferred from a sample, with its evidence.

    Parameters
    ----------
    format : str
        The format's identifier.
    evidence : tuple of ColumnEvidence
        In the order of the columns.
    primary_key : tuple of str
        Empty when the sample does not name one.
    primary_key_reason : str
    format_options : mapping
        The options that the caller passed, and those inferred from the sample.
    option_reasons : mapping
        The reason for each inferred option.
    tables : tuple of str
        The tables of the rows, when the format names them.
    records, rows : int
        The number of records, and of after-images read.
    ignored : mapping
        The number of records without rows, by reason.
    notes : tuple of str
    """

    format: str
    evidence: tuple[ColumnEvidence, ...]
    primary_key: tuple[str, ...]
    primary_key_reason: str
    format_options: Mapping[str, Any]
    option_reasons: Mapping[str, str]
    tables: tuple[str, ...]
    records: int
    rows: int
    ignored: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns."""
        return tuple(each.column for each in self.evidence)

    @property
    def comments(self) -> dict[str, str]:
        """The comments of the source's columns, of those whose messages have one."""
        return {each.column.name: each.comment for each in self.evidence if each.comment}

    @property
    def same_but_for_case(self) -> tuple[str, ...]:
        """The columns whose names differ only by case, which Spark cannot read together."""
        lower = Counter(column.name.lower() for column in self.columns)
        return tuple(column.name for column in self.columns if lower[column.name.lower()] > 1)

    @property
    def noted_columns(self) -> dict[str, list[str]]:
        """The names of the columns that have each note."""
        return {
            note: [each.column.name for each in self.evidence if note in each.notes]
            for of_column in self.evidence
            for note in of_column.notes
        }

    def open_questions(self, is_answered: Callable[[str], bool]) -> dict[str, list[Question]]:
        """Return the questions by column, except those that the user has answered.

        ``cdc init`` writes them into a job file, and `normalize.sync_database` warns of them.

        Parameters
        ----------
        is_answered : callable
            Whether the user has decided the type of a column.
        """
        return {
            each.column.name: list(each.questions)
            for each in self.evidence
            if each.questions and not is_answered(each.column.name)
        }

    def options_besides(self, named: Iterable[str]) -> dict[str, Any]:
        """Return the inferred options except those the user named, also with dots or dashes."""
        names = set(map(option_name, named))
        return {
            name: self.format_options[name] for name in self.option_reasons if name not in names
        }

    @property
    def ddl(self) -> str:
        """The columns as DDL text, for ``schema=``."""
        return to_ddl(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values = {
            **vars(self),
            "schema": self.ddl,
            "columns": [each.to_dict() for each in self.evidence],
        }
        del values["evidence"]
        return dict(msgspec.to_builtins(values, enc_hook=repr))

    def __str__(self) -> str:
        of = f" of {', '.join(self.tables)}" if self.tables else ""
        key = f"({', '.join(map(quote, self.primary_key))})" if self.primary_key else "none"
        lines = [
            f"{self.format}: {self.rows} rows{of} in {self.records} records",
            *(f"  {each}" for each in self.evidence),
            f"primary key {key}: {self.primary_key_reason}",
            *(
                f"{name}={self.format_options[name]!r}: {reason}"
                for name, reason in self.option_reasons.items()
            ),
            *(
                f"note on {', '.join(map(quote, names))}: {note}"
                for note, names in self.noted_columns.items()
            ),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(map(printable, lines))  # names come from messages


def infer_schema(
    records: Iterable[Sequence[Any]],
    *,
    format: str | Format,
    examples: int = 0,
    primary_key: Sequence[str] = (),
    **options: Any,
) -> InferredSchema:
    """Infer the columns, the primary key and the format's options from a sample of a topic.

    Parameters
    ----------
    records : iterable of (key, value) or (key, value, headers)
        In the order of the topic, if it has one.
    format : str or Format
    examples : int
        How many example values of each column to keep; 0 by default, because values are data.
    primary_key : sequence of str
        The primary key, if you know it; otherwise it is inferred.
    **options
        Format options, when `format` is a name: ``table_include`` to choose a table, options that
        describe the producer.

    Raises
    ------
    InferenceError
        When the sample has no rows, or rows of several tables.
    FormatOptionError, UnknownFormatError, ArgumentError

    Examples
    --------
    >>> value = b'{"type": "insert", "database": "shop", "table": "parts", "data": {"id": 1, "price": 9.50, "since": "2025-01-02"}}'
    >>> inferred = infer_schema([(b'{"database": "shop", "table": "parts", "pk.id": 1}', value)], format="maxwell-json")
    >>> inferred.ddl, inferred.primary_key
    ('id BIGINT NOT NULL, price DECIMAL(38,18), since DATE', ('id',))
    """
    reader = AnyColumns(named_format(format, options))
    readings = [
        reader.read(
            InspectedRecord(SampledRecord("", 0, offset, -1, key, value, *headers or ((),)))
        )
        for offset, (key, value, *headers) in enumerate(records)
    ]
    return infer_readings(
        readings, reader, examples=examples, primary_key=primary_key, options=options
    )


def infer_readings(
    readings: Sequence[Reading],
    reader: AnyColumns,
    *,
    examples: int = 0,
    primary_key: Sequence[str] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> InferredSchema:
    """Infer the schema of records that were read; otherwise like `infer_schema`.

    Parameters
    ----------
    readings : sequence of Reading
    reader : AnyColumns
        A reader of the readings' format.
    examples : int
    primary_key : sequence of str
    options : mapping
        The format's options that the user named.
    """
    sample = TopicSample(reader, examples)
    for reading in readings:
        sample.add(reading)
    sample.require_rows()
    key, reason = (tuple(primary_key), "as given") if primary_key else sample.primary_key()
    evidence = tuple(sample.evidence(key))
    detected = {
        name: value
        for name, value in sample.sampler.inferred_options(sample).items()
        if name not in options
    }
    inferred = InferredSchema(
        format=reader.format.identifier,
        evidence=evidence,
        primary_key=key,
        primary_key_reason=reason,
        format_options={**options, **{name: value for name, (value, _) in detected.items()}},
        option_reasons={name: why for name, (_, why) in detected.items()},
        tables=tuple(sorted(".".join(table) for table in sample.tables)),
        records=len(readings),
        rows=sample.rows,
        ignored={ignored.value: count for ignored, count in sample.ignored.items()},
        notes=tuple(sample.notes()),
    )
    if (
        inferred.same_but_for_case
    ):  # each lacks the rows of the other, which is no error of the producer
        return replace(inferred, notes=(*inferred.notes, case_note(inferred.same_but_for_case)))
    return replace(inferred, notes=(*inferred.notes, *_tried(reader.format, inferred, readings)))


def case_note(names: Sequence[str]) -> str:
    """Return the sentence on names that differ by case alone."""
    return (
        f"columns {' and '.join(map(quote, names))} differ by case alone, as after a column was "
        "renamed. Spark ignores the case of names, and messages do not: declare the one that new "
        "messages have"
    )


def _tried(format: Format, inferred: InferredSchema, readings: Iterable[Reading]) -> Iterator[str]:
    """Decode the sample with the inferred schema and return a note on failures."""
    detected = {name: inferred.format_options[name] for name in inferred.option_reasons}
    try:
        # The sample may have no row with a masked column.
        decoder = replace(
            replace(format, mask=(), mask_key_env=None, mask_key_file=None), **detected
        ).decoder(inferred.columns, unique_key=inferred.primary_key)
    except (SchemaError, FormatOptionError) as error:
        yield str(error)
        return
    decode = decoder.upserts if inferred.primary_key else decoder.decode
    results = [
        decode_one(format.identifier, decode, record.key, record.value, record.headers)
        for record in (each.record for each in readings)
    ]
    # Columns that the producer left out do not contradict the schema.
    left_out = (MissingBeforeImageError, PartialImageError)
    failed = [
        each for each in results if isinstance(each, DecodeError) and not isinstance(each, left_out)
    ]
    if failed:
        yield (
            f"{len(failed)} records of the sample do not decode with this schema, the first: "
            f"{failed[0].without_data()}"
        )


# --------------------------------------------------------------------------------------------------
# Schema inference from a registry alone: the newest schemas of a topic's subjects, no recor

_VALUE, _KEY = "-value", "-key"


def infer_subject(subject: str, *, format: str | Format, **options: Any) -> InferredSchema:
    """Infer the columns and the primary key from the newest schema of a subject.

    Parameters
    ----------
    subject : str
        The subject of a topic's values, for example ``orders-value``. The primary key is taken from
        ``orders-key``, if registered.
    format : str or Format
        ``debezium-avro-confluent``, or ``upsert-kafka`` with its registry's options.
    **options
        Format options, when `format` is a name.

    Raises
    ------
    InferenceError
        When the registry has no such subject, or its schema does not describe a table.
    ArgumentError
        When the format has no registry, or options are passed with a format that is not a name.
    SchemaRegistryError
        When the registry does not answer.
    """
    chosen = named_format(format, options)
    registry = sampler_of(chosen).registry
    if registry is None:
        raise ArgumentError(
            f"{chosen.identifier} does not use a schema registry: call infer_schema() with a sample"
        )
    registry.require_url("url")
    schema = registry.client.newest(subject)
    if schema is None:
        raise InferenceError(f"the schema registry at {registry.url} has no subject {subject!r}")
    try:
        declared = avro_columns(schema)
    except SchemaError as error:
        raise InferenceError(
            f"the newest schema of {subject!r} does not describe a table: {error.args[0]}"
        ) from None
    key_subject = subject.removesuffix(_VALUE) + _KEY
    key = (
        _key(registry, key_subject, {each.column.name for each in declared})
        if subject.endswith(_VALUE)
        else ()
    )
    evidence = [
        ColumnEvidence(
            replace(each.column, nullable=each.column.nullable and each.column.name not in key),
            "schema registry",
            each.source_type,
            notes=(each.note,) if each.note else (),
            comment=each.comment,
        )
        for each in declared
    ]
    return InferredSchema(
        format=chosen.identifier,
        evidence=tuple(evidence),
        primary_key=key,
        primary_key_reason=f"the fields of {key_subject}"
        if key
        else "the registry has no key subject with these columns",
        format_options=options,
        option_reasons={},
        tables=(),
        records=0,
        rows=0,
        ignored={},
    )


def _key(registry: Registry, subject: str, columns: set[str]) -> tuple[str, ...]:
    schema = registry.client.newest(subject)
    try:
        names = () if schema is None else field_names(schema)
    except SchemaError:
        return ()
    return names if set(names) <= columns else ()
