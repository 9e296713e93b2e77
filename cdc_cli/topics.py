"""``cdc topics`` and ``profile``: a broker's topics with their formats, and the profile of one."""

from __future__ import annotations

import json as json_text
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from cdc_formats.errors import SampleError
from cdc_formats.topics.client import KafkaReader
from cdc_formats.topics.kafka import profile_topic
from cdc_formats.topics.profile.terminal import shortened
from cdc_formats.topics.sampler import FRAMED
from cdc_formats.values.json_reader import json_bytes

from .arguments import (
    Config,
    Connection,
    FormatOption,
    Json,
    Properties,
    Sample,
    Servers,
    Timeout,
    TopicName,
    Verbose,
    WhichColor,
    connection,
    format_arguments,
    format_option,
)
from .formats import show_table
from .terminal import Color, console, interactive_json, is_interactive, status_line
from .topic import SAMPLE, check_topic

_HEADS = ("topic", "partitions", "records", "format", "tables")
_INTERNAL = "__"


def topics(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="A regular expression for whole names. By default, all but the broker's own.",
            show_default=False,
        ),
    ] = "",
    servers: Servers = "",
    sample: Sample = 20,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 10.0,
    verbose: Verbose = False,
) -> None:
    """List topics with the format and tables that a sample of each shows.

    `cdc profile TOPIC` reports one of them in full.
    """
    try:
        compiled = re.compile(pattern or ".*")
    except re.error as error:
        raise typer.BadParameter(f"{pattern!r} is not a regular expression: {error}") from None
    broker = connection(servers, config, properties, timeout, verbose)
    with KafkaReader(broker.servers, broker.client_config()) as reader:
        names = reader.topics(compiled, timeout)
    selected = [each for each in names if pattern or not each.startswith(_INTERNAL)]
    summaries = list(_summaries(broker, selected, sample))
    if json:
        typer.echo(json_text.dumps(summaries))
    else:
        show_table(_HEADS, list(map(_cells, summaries)), color)


def _summaries(broker: Connection, names: list[str], sample: int) -> Iterator[dict[str, Any]]:
    for name in names:
        try:
            with status_line(f"sampling {name}"):
                profile = profile_topic(
                    broker.servers,
                    name,
                    sample=sample,
                    config=broker.client_config(),
                    timeout_seconds=broker.timeout_seconds,
                    progress=False,
                )
        except SampleError as error:  # such as a topic that this user may not read
            yield {"topic": name, "error": str(error)}
            continue
        best = profile.candidates[0] if profile.format else None
        yield {
            "topic": profile.topic,
            "partitions": len(profile.partitions),
            "records": sum(each.end - each.begin for each in profile.partitions),
            "format": profile.format,
            "is_guess": best is not None and not (best.specific or best.distinctive),
            "values": dict(profile.values),
            "tables": [each.name for each in profile.tables if each.name],
        }


def _cells(summary: dict[str, Any]) -> list[str]:
    if "error" in summary:
        return [summary["topic"], "", "", summary["error"], ""]
    # The framing of most values needs a registry to be read.
    most = max(summary["values"], key=summary["values"].get, default="")
    unknown = f"{most}: see cdc profile" if most in FRAMED else "unknown"
    return [
        summary["topic"],
        f"{summary['partitions']:,}",
        f"{summary['records']:,}",
        (summary["format"] or (unknown if summary["records"] else "empty"))
        + "?" * summary["is_guess"],
        shortened(summary["tables"]),
    ]


# --------------------------------------------------------------------------------------------------
# ``cdc profile``: reports what a topic contains.


def profile(
    topic: TopicName,
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
    """Report what a topic contains: its format, tables, columns, keys, operations, and problems."""
    broker = connection(servers, config, properties, timeout, verbose)
    chosen = format_arguments(format, option)
    check_topic(broker, topic)
    report = profile_topic(
        broker.servers,
        topic,
        sample=sample,
        config=broker.client_config(),
        timeout_seconds=broker.timeout_seconds,
        **chosen,
    )
    if json:
        typer.echo(interactive_json(msgspec.json.format(json_bytes(report.to_dict()))).decode())
    elif is_interactive(color):
        console(color).print(report, soft_wrap=False)
    else:
        typer.echo(str(report))
