"""The columns and key of a topic, declared or inferred from a sample."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import ArgumentError
from cdc_formats.format import Format
from cdc_formats.topics.encodings import SampledRecord, inspect_all
from cdc_formats.topics.inference import InferredSchema, infer_schema
from cdc_formats.topics.kafka import key_values, sample_topic
from cdc_formats.topics.profile import profile_records
from cdc_formats.topics.profile.detect import candidates, choose
from cdc_formats.topics.profile.terminal import shortened
from cdc_formats.values.schema import Column, SqlType, columns as to_columns, quote

from .arguments import Connection, names
from .reading import check_topic
from .terminal import print_message, status_line
from .view import text_of

_TABLE = "table"
SAMPLE = 1000
"""The default sample size, in records."""


class TopicSchema(NamedTuple):
    """The format, columns and key that records are decoded with.

    Attributes
    ----------
    format : Format
    columns : tuple of Column
    primary_key : tuple of str
        Empty: not known.
    """

    format: Format
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class SeveralTables:
    """The tables of one topic, whose rows are shown as text with the table's name.

    Parameters
    ----------
    format : Format
    tables : mapping of str to TopicSchema
    """

    format: Format
    tables: Mapping[str, TopicSchema]

    @property
    def columns(self) -> tuple[Column, ...]:
        """``table``, and all columns of all tables."""
        names = dict.fromkeys(
            column.name
            for table in self.tables.values()
            for column in result_columns(table.columns, table.format.handling.masks)
        )
        return tuple(Column(name, SqlType("STRING")) for name in (_TABLE, *names))

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Empty: the tables have keys of their own."""
        return ()

    def row_of(self, name: str) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """Return the function from a table's row to the row that is shown."""
        table = self.tables[name]
        columns = result_columns(table.columns, table.format.handling.masks)
        places = {column.name: place for place, column in enumerate(columns)}
        texts = [text_of(column.type) for column in columns]
        shown = [places.get(column.name) for column in self.columns[1:]]

        def row(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return (
                name,
                *("" if place is None else texts[place](values[place]) for place in shown),
            )

        return row


def several_tables(
    topic: str, format: Format, records: Sequence[SampledRecord]
) -> SeveralTables | None:
    """Return the tables of a sample, and print their names; None if it has only one.

    Parameters
    ----------
    topic : str
    format : Format
    records : sequence of SampledRecord
    """
    with status_line("inferring the columns of each table from a sample"):
        profile = profile_records(records, topic=topic, format=format)
    schemas = {
        each.name: TopicSchema(
            replace(format, **each.options), each.schema.columns, each.schema.primary_key
        )
        for each in profile.tables
        if each.schema is not None
    }
    if len(schemas) < 2:
        return None
    print_message(
        f"{topic} has {len(schemas)} tables ({shortened(list(schemas))}), each with the columns that a "
        "sample shows; -o table_include=NAME shows one",
        "dim",
    )
    return SeveralTables(format, schemas)


def table_of(
    format: Format,
    named_options: Iterable[str],
    *,
    schema: str,
    primary_key: str,
    sample: Callable[[], list[SampledRecord]],
) -> TopicSchema:
    """Return the declared table, or infer it from a sample and print it on standard error.

    Parameters
    ----------
    format : Format
    named_options : iterable of str
        The names of the options that the user set. A sample does not override them.
    schema : str
        DDL; empty: inferred, together with the format options that are not given.
    primary_key : str
        Comma-separated names; empty: the sample's key, if it has one.
    sample : callable
        Takes a sample; called only if the table is inferred.

    Raises
    ------
    SchemaError
    InferenceError
        When the sample does not determine the columns.
    """
    if schema:
        return TopicSchema(format, to_columns(schema), names(primary_key))
    with status_line("inferring the columns from a sample"):
        sampled = infer_schema(key_values(sample()), format=format, primary_key=names(primary_key))
    inferred = sampled.options_besides(named_options)
    print_message(_pasteable(sampled, inferred), "dim")
    return TopicSchema(replace(format, **inferred), sampled.columns, sampled.primary_key)


def other_format(format: Format, records: Sequence[SampledRecord]) -> str:
    """Return what the records look like, if that is another format."""
    inspected = inspect_all(records)
    best, reason = choose(candidates(inspected, {}), inspected)
    if best is None or best.identifier == format.identifier:
        return ""
    return f". The records look like {best.identifier}: {reason}"


def sample_of_topic(broker: Connection, topic: str, sample: int) -> list[SampledRecord]:
    """Return a sample of a topic's records."""
    check_topic(broker, topic)
    return sample_topic(
        broker.servers,
        topic,
        sample=sample,
        config=broker.client_config(),
        timeout_seconds=broker.timeout_seconds,
    )


def detected_format(
    topic: str, records: Sequence[SampledRecord], options: Mapping[str, str]
) -> Format:
    """Return the format that a sample shows, and print it on standard error.

    Parameters
    ----------
    topic : str
        For the error.
    records : sequence of SampledRecord
    options : mapping
        Format options by name; each tried format gets those that it has.

    Raises
    ------
    ArgumentError
        When no format reads most of the sample.
    FormatOptionError, SchemaRegistryError
    """
    with status_line("detecting the format from a sample"):
        inspected = inspect_all(records)
        best, reason = choose(candidates(inspected, options), inspected)
    if best is None or best.format is None:
        raise ArgumentError(
            f"the format of {topic} is not known: {reason}. Pass -f, or see `cdc profile {topic}`"
        )
    print_message(f"detected -f {best.identifier}: {reason}", "dim")
    return best.format


def _pasteable(schema: InferredSchema, format_options: Mapping[str, Any]) -> str:
    """Return the inferred table as options to paste, with notes for the user."""
    options = [
        f"--schema {shlex.quote(schema.ddl)}",
        *(
            [f"--primary-key {shlex.quote(','.join(schema.primary_key))}"]
            if schema.primary_key
            else []
        ),
        *(f"-o {shlex.quote(f'{name}={value}')}" for name, value in format_options.items()),
    ]
    return "\n".join(
        [
            f"inferred from {schema.records:,} records, {schema.rows:,} rows; to declare it, pass",
            *(f"  {each}" for each in options),
            *(
                f"  {', '.join(map(quote, columns))}: {note}"
                for note, columns in schema.noted_columns.items()
            ),
            *(f"  {note}" for note in schema.notes),
        ]
    )
