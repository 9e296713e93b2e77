"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import complete_format
from .changelog import Errors
from .terminal import Color

FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="An option of the format. Can be repeated."
    ),
]
Schema = Annotated[
    str,
    typer.Option(
        metavar="DDL",
        help="The columns, such as 'id INT, name STRING'. By default, inferred from a sample.",
    ),
]
PrimaryKey = Annotated[
    str,
    typer.Option(
        metavar="NAME,...", help="The primary key columns. By default, inferred from a sample."
    ),
]
Sample = Annotated[int, typer.Option(min=1, help="How many records to sample.")]
OnErrors = Annotated[
    Errors,
    typer.Option(
        "--errors",
        help=(
            "For a record that cannot be decoded: end the command, count it, or print the error "
            "and count it."
        ),
    ),
]
Normalize = Annotated[
    bool,
    typer.Option(
        "--normalize",
        help=(
            "Keep the newest row of each key in memory: add -U, complete deletes, drop changes "
            "without effect."
        ),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
WhichColor = Annotated[Color, typer.Option("--color", help="When to use colours.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]


def format_option(help: str) -> typer.models.OptionInfo:
    """Return the option for a format's name, with shell completion."""
    made: typer.models.OptionInfo = typer.Option(
        "--format", "-f", help=help, metavar="FORMAT", autocompletion=complete_format
    )
    return made
