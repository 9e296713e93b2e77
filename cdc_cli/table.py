"""The columns and key of a topic, declared or inferred from a sample."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import ArgumentError
from cdc_formats.format import Format
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.values.schema import Column, columns as to_columns, quote

from .arguments import names
from .connection import Connection
from .reading import check_topic
from .terminal import print_message, status_line

if TYPE_CHECKING:
    from cdc_formats.topics.inference import InferredSchema

SAMPLE = 1000
"""The default sample size, in records."""


class TableSchema(NamedTuple):
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


def table_of(
    format: Format,
    named_options: Iterable[str],
    *,
    schema: str,
    primary_key: str,
    sample: Callable[[], list[SampledRecord]],
) -> TableSchema:
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
        return TableSchema(format, to_columns(schema), names(primary_key))
    from cdc_formats.topics.inference import infer_schema  # importing it takes a tenth of a second
    from cdc_formats.topics.kafka import key_values

    with status_line("inferring the columns from a sample"):
        sampled = infer_schema(key_values(sample()), format=format, primary_key=names(primary_key))
    inferred = sampled.options_besides(named_options)
    print_message(_pasteable(sampled, inferred), "dim")
    return TableSchema(replace(format, **inferred), sampled.columns, sampled.primary_key)


def sample_of_topic(broker: Connection, topic: str, sample: int) -> list[SampledRecord]:
    """Return a sample of a topic's records."""
    from cdc_formats.topics.kafka import sample_topic

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
    from cdc_formats.topics.profile.detect import candidates, choose
    from cdc_formats.topics.profile.read import inspect_all

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
