"""``cdc profile``: reports what a topic contains."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from cdc_formats.json_reader import json_bytes

from .connection import Config, Properties, Servers, Timeout, Verbose, connection
from .given import make_format, pairs
from .options import FormatOption, Json, Sample, Topic, WhichColor, format_option
from .reading import reach
from .table import SAMPLE
from .terminal import Color, console, for_eyes, json_for_eyes


def profile(
    topic: Topic,
    servers: Servers = "",
    sample: Sample = SAMPLE,
    format: Annotated[str, format_option("--format", "-f", help="The format. By default, detected.")] = "",
    option: FormatOption = None,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Report what a topic contains: its format, tables, columns, keys, operations, and problems."""
    from cdc_formats.kafka import profile_topic

    way = connection(servers, config, properties, timeout, verbose)
    options: dict[str, Any] = dict(pairs(option or (), "--option"))
    # Without a format, each one that is tried uses the options that it declares.
    known = {"format": make_format(format, options)} if format else options
    reach(way, topic)
    found = profile_topic(
        way.servers,
        topic,
        sample=sample,
        config=way.client_config(),
        timeout_seconds=way.timeout_seconds,
        **known,
    )
    if json:
        typer.echo(json_for_eyes(msgspec.json.format(json_bytes(found.to_dict()))).decode())
    elif for_eyes(color):
        console(color).print(found, soft_wrap=False)
    else:
        typer.echo(str(found))
