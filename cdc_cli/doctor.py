"""``cdc doctor``: the faults of a producer that the records of its topics show."""

from __future__ import annotations

import json as json_text
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_formats.topics.client import KafkaReader
from cdc_formats.topics.kafka import diagnose_topic

from .arguments import (
    Config,
    FormatOption,
    Json,
    Properties,
    Sample,
    Servers,
    Timeout,
    Verbose,
    WhichColor,
    connection,
    format_arguments,
    format_option,
)
from .terminal import Color, print_result
from .topic import SAMPLE, check_topic

_JOB_FILES = (".yaml", ".yml")


def doctor(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC|JOB", help="A topic, or a job file, of which all topics."),
    ],
    servers: Servers = "",
    sample: Sample = SAMPLE,
    format: Annotated[str, format_option("The format. By default, detected.")] = "",
    option: FormatOption = None,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Look for faults of the producer: each with a record that shows it, and what mends it.

    Exit code 1 if there is one. No fault is no proof: a sample shows only what is in it, and
    `cdc verify` compares a table with its source.
    """
    if topic.endswith(_JOB_FILES):
        servers, client, names, chosen = _job(Path(topic), timeout)
    else:
        broker = connection(servers, config, properties, timeout, verbose)
        check_topic(broker, topic)
        servers, client, names = broker.servers, broker.client_config(), [topic]
        chosen = format_arguments(format, option)
    failed = False
    for name in names:
        faults = diagnose_topic(
            servers, name, sample=sample, config=client, timeout_seconds=timeout, **chosen
        )
        failed |= bool(faults)
        if json:
            for each in faults:
                typer.echo(json_text.dumps({"topic": name, **each.to_dict()}))
            continue
        for each in faults:
            print_result(f"{each.name}: {each}", color, "red")
        if not faults:
            print_result(f"{name}: no fault in a sample of {sample:,} records", color, "green")
    raise typer.Exit(int(failed))


def _job(path: Path, seconds: float) -> tuple[str, dict[str, str], list[str], dict[str, Any]]:
    """Return the brokers of a job, the client's options, the topics and the format."""
    from normalize.arguments import as_format
    from normalize.kafka.client_options import librdkafka_options
    from normalize.kafka.reader_options import reader_options
    from normalize.kafka.topics import selected_topics
    from normalize.run import read_job

    arguments = read_job(path).arguments
    options = reader_options(arguments["topic"], arguments["options"])
    client, topics = librdkafka_options(options), selected_topics(options)
    servers = client.pop("bootstrap.servers")
    if isinstance(topics, re.Pattern):
        with KafkaReader(servers, client) as reader:
            topics = reader.topics(topics, seconds)
    format = as_format(arguments["format"], arguments["format_options"])
    return servers, client, sorted(topics), {"format": format}
