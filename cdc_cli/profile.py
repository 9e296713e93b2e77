"""``cdc profile``: reports what a topic contains."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from cdc_formats.values.json_reader import json_bytes

from .arguments import make_format, pairs
from .connection import Config, Properties, Servers, Timeout, Verbose, connection
from .options import FormatOption, Json, Sample, Topic, WhichColor, format_option
from .reading import check_topic
from .table import SAMPLE
from .terminal import Color, console, interactive_json, is_interactive


def profile(
    topic: Topic,
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
    from cdc_formats.topics.kafka import profile_topic

    broker = connection(servers, config, properties, timeout, verbose)
    options: dict[str, Any] = dict(pairs(option or (), "--option"))
    # Without a format, each one that is tried uses the options that it declares.
    chosen = {"format": make_format(format, options)} if format else options
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
