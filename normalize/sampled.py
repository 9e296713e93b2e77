"""A schema that nobody declared: inferred from a sample of the topic, on the driver, and printed so that it can be pinned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cdc_formats.base import Format
from cdc_formats.errors import ArgumentError
from cdc_formats.inference import InferredSchema, infer_schema
from cdc_formats.kafka import SAMPLE, SampledRecord, key_values, sample_topic
from cdc_formats.printable import printable
from cdc_formats.schema import quote

from .client_options import librdkafka_options
from .topics import subscribed


class Sampled(NamedTuple):
    """What a sample says of what was not declared.

    Attributes
    ----------
    format : Format
        With the options that the sample tells, where they were not given.
    schema : str
    primary_key : tuple of str
    """

    format: Format
    schema: str
    primary_key: tuple[str, ...]


def sampled(
    format: Format, options: Mapping[str, str], *, given: Mapping[str, Any] | None, primary_key: tuple[str, ...], sample: int = SAMPLE
) -> Sampled:
    """Sample a topic, infer its schema, and print what was chosen.

    Parameters
    ----------
    format : Format
    options : mapping
        Of Spark's Kafka source: which topics, and how to connect.
    given : mapping or None
        The format's options that the user gave by name; None: the user gave a format, which stays as it is.
    primary_key : tuple of str
        Empty: the sample's.
    sample : int

    Raises
    ------
    InferenceError
        When the sample says too little.
    ArgumentError, SampleError, MissingDependencyError
        When the topic cannot be sampled.
    """
    topics = _topics(options)
    connection = _connection(options)
    servers = connection.pop("bootstrap.servers")
    records: list[SampledRecord] = []
    for topic in topics:
        records += sample_topic(servers, topic, sample=-(-sample // len(topics)), config=connection)
    found = infer_schema(key_values(records), format=format)
    told = {} if given is None else {name: found.format_options[name] for name in found.option_reasons if name not in _names(given)}
    print(pinned(found, topics, told, primary_key))
    return Sampled(replace(format, **told), found.ddl, primary_key or found.primary_key)


def _topics(options: Mapping[str, str]) -> list[str]:
    if "subscribePattern" in options:
        raise ArgumentError("without a schema topics are sampled by their names, and a pattern names none: pass schema, or the topics")
    if "assign" in options:
        try:
            return sorted(json.loads(options["assign"]))
        except ValueError:
            raise ArgumentError('the option assign is no JSON, for example {"orders": [0, 1]}') from None
    return subscribed(options)


def _connection(options: Mapping[str, str]) -> dict[str, str]:
    try:
        return librdkafka_options(options)
    except ArgumentError as error:
        reason = str(error.args[0]).partition(", which writes")[0]
        raise ArgumentError(f"without a schema the topic is sampled, by librdkafka: {reason}. Pass schema") from None


def _names(given: Mapping[str, Any]) -> set[str]:
    return {name.replace("-", "_").replace(".", "_") for name in given}


def pinned(found: InferredSchema, topics: Sequence[str], told: Mapping[str, Any], primary_key: Sequence[str] = ()) -> str:
    """Return what was inferred as text: the arguments that pin it, and what a user should know."""
    key, why = (primary_key, "as given") if primary_key else (found.primary_key, found.primary_key_reason)
    noted: dict[str, list[str]] = {}
    for each in found.evidence:
        for note in [*each.notes, *(["guessed from its values"] if each.certainty == "values" else [])]:
            noted.setdefault(note, []).append(each.column.name)
    return "\n".join(
        [
            f"Inferred from {found.records} records of {', '.join(topics)}, {found.rows} rows:",
            _schema_argument(found),
            printable(f"primary_key={list(key)!r}  # {why}"),
            *([f"format_options={dict(told)!r}"] if told else []),
            *(printable(f"# {name}: {found.option_reasons[name]}") for name in told),
            *(printable(f"# {', '.join(map(quote, names))}: {note}") for note, names in noted.items()),
            *(printable(f"# {note}") for note in found.notes),
            "Pin it by passing these arguments: another sample may say something else.",
        ]
    )


def _schema_argument(found: InferredSchema) -> str:
    """Return the columns as they can be pasted into a program: names are a message's, and none may end the text, or hide in it."""
    columns = [f"    {column}" for column in found.columns]
    if any(printable(column) != column or '"""' in column or "\\" in column for column in columns):
        return f"schema={found.ddl!r}"
    return 'schema="""\n' + ",\n".join(columns) + '\n"""'
