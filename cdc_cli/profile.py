"""``cdc profile``: what is in a topic."""

from __future__ import annotations

import json as json_text
from typing import Annotated

import typer

from .connection import Config, Properties, Servers, Timeout, Verbose, connection
from .given import pairs
from .options import FormatOption, Json, Sample, Topic, WhichColor, format_option
from .table import SAMPLE
from .terminal import Color, console, for_eyes


def profile(
    topic: Topic,
    servers: Servers = "",
    sample: Sample = SAMPLE,
    format: Annotated[str, format_option("--format", "-f", help="The format, where it is known; else it is found out.")] = "",
    option: FormatOption = None,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Tell what is in a topic: its format, tables, columns, keys, operations, and what is wrong with it."""
    from cdc_formats.kafka import profile_topic

    way = connection(servers, config, properties, timeout, verbose)
    found = profile_topic(
        way.servers,
        topic,
        sample=sample,
        config=way.client_config(),
        format=format or None,
        timeout_seconds=way.timeout_seconds,
        **pairs(option or (), "--option"),
    )
    if json:
        typer.echo(json_text.dumps(found.to_dict(), indent=2))
    elif for_eyes(color):
        console(color).print(found)
    else:
        typer.echo(str(found))
