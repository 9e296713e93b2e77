"""Infer an undeclared schema from a sample of the topic, on the driver, and print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_formats.errors import ArgumentError, printable
from cdc_formats.format import Format
from cdc_formats.topics.inference import InferredSchema, infer_schema
from cdc_formats.topics.kafka import SAMPLE, key_values, sample_topic
from cdc_formats.topics.sampler import SampledRecord
from cdc_formats.values.schema import quote

from .client_options import librdkafka_options
from .topics import named_topics


def infer_arguments(
    format: Format,
    options: Mapping[str, str],
    *,
    named_options: Mapping[str, Any] | None,
    primary_key: tuple[str, ...],
    sample: int = SAMPLE,
) -> tuple[Format, str, tuple[str, ...], InferredSchema]:
    """Return the format, schema and primary key inferred from a sample of a topic, and print them.

    The last value is all that was inferred.

    Parameters
    ----------
    format : Format
    options : mapping
        Options of Spark's Kafka source: topics and connection.
    named_options : mapping or None
        The format options that the user passed by name; None: the user passed a format, whose
        options are not inferred.
    primary_key : tuple of str
        The user's primary key; empty: inferred.
    sample : int

    Raises
    ------
    InferenceError
        When the sample is not sufficient.
    ArgumentError, SampleError, MissingDependencyError
        When the topic cannot be sampled.
    """
    topics = _topics(options)
    connection = _connection(options)
    servers = connection.pop("bootstrap.servers")
    records: list[SampledRecord] = []
    for topic in topics:
        records += sample_topic(servers, topic, sample=-(-sample // len(topics)), config=connection)
    inferred = infer_schema(key_values(records), format=format)
    inferred_options = {} if named_options is None else inferred.options_besides(named_options)
    print(arguments_text(inferred, topics, inferred_options, primary_key))
    chosen = replace(format, **inferred_options)
    return chosen, inferred.ddl, primary_key or inferred.primary_key, inferred


def _topics(options: Mapping[str, str]) -> list[str]:
    if "subscribePattern" in options:
        raise ArgumentError(
            "a topic pattern requires a schema, since only named topics can be sampled: pass "
            "schema, or the topics"
        )
    return named_topics(options)


def _connection(options: Mapping[str, str]) -> dict[str, str]:
    try:
        return librdkafka_options(options)
    except ArgumentError as error:
        raise ArgumentError(
            f"without a schema, librdkafka samples the topic, but {error.args[0]}: pass schema"
        ) from None


def arguments_text(
    inferred: InferredSchema,
    topics: Sequence[str],
    inferred_options: Mapping[str, Any],
    primary_key: Sequence[str] = (),
) -> str:
    """Return the inferred arguments as text to paste, with notes."""
    key, why = (
        (primary_key, "as given")
        if primary_key
        else (inferred.primary_key, inferred.primary_key_reason)
    )
    guessed = [each.column.name for each in inferred.evidence if each.certainty == "values"]
    noted = {**inferred.noted_columns, **({"guessed from its values": guessed} if guessed else {})}
    return "\n".join(
        [
            (
                f"Inferred from {inferred.records} records of {', '.join(topics)}, {inferred.rows} "
                "rows:"
            ),
            _schema_argument(inferred),
            printable(f"primary_key={list(key)!r}  # {why}"),
            *([f"format_options={dict(inferred_options)!r}"] if inferred_options else []),
            *(printable(f"# {name}: {inferred.option_reasons[name]}") for name in inferred_options),
            *(
                printable(f"# {', '.join(map(quote, names))}: {note}")
                for note, names in noted.items()
            ),
            *(printable(f"# {note}") for note in inferred.notes),
            "Pass these arguments to pin them: another sample may lead to other results.",
        ]
    )


def _schema_argument(inferred: InferredSchema) -> str:
    """Return the columns as an argument to paste.

    The names come from messages: they must not end the string or be invisible in it.
    """
    columns = [f"    {column}" for column in inferred.columns]
    if any(printable(column) != column or '"""' in column or "\\" in column for column in columns):
        return f"schema={inferred.ddl!r}"
    return 'schema="""\n' + ",\n".join(columns) + '\n"""'
