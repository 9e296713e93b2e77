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
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import msgspec

from cdc_formats.avro.schema_registry import Registry
from cdc_formats.decoder import decode_one
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    FormatOptionError,
    InferenceError,
    MissingBeforeImageError,
    PartialImageError,
    SchemaError,
    printable,
)
from cdc_formats.format import Format, option_name
from cdc_formats.topics.encodings import InspectedRecord, Question, SampledRecord
from cdc_formats.topics.inference.sample import (
    AnyColumns,
    ColumnEvidence,
    Reading,
    TopicSample,
    named_format,
)
from cdc_formats.topics.inference.source_types import avro_columns, field_names
from cdc_formats.topics.sampler import sampler_of
from cdc_formats.values.schema import Column, quote, to_ddl

Sample = Sequence[Any]
"""A record of a sample: key, value and optional headers."""


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
        noted: dict[str, list[str]] = {}
        for each in self.evidence:
            for note in each.notes:
                noted.setdefault(note, []).append(each.column.name)
        return noted

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
    records: Iterable[Sample],
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
    chosen = named_format(format, options)
    reader = AnyColumns(chosen)
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
        unmasked = replace(format, mask=(), mask_key_env=None, mask_key_file=None)
        decoder = replace(unmasked, **detected).decoder(
            inferred.columns, unique_key=inferred.primary_key
        )
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
