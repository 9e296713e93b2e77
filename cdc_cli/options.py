"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from .changelog import Errors
from .given import complete_format
from .terminal import Color

FormatOption = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the format; may stand more than once.")
]
Schema = Annotated[str, typer.Option(metavar="DDL", help="The columns, such as 'id INT, name STRING'. Without, they are inferred.")]
PrimaryKey = Annotated[str, typer.Option(metavar="NAME,...", help="The columns that tell rows apart. Without, as the sample says.")]
Sample = Annotated[int, typer.Option(min=1, help="How many records to look at.")]
OnErrors = Annotated[
    Errors,
    typer.Option("--errors", help="A record that cannot be decoded ends the command, is counted, or is told with its place and counted."),
]
Normalize = Annotated[
    bool,
    typer.Option("--normalize", help="Keep the newest row of each key, in memory: make -U, complete deletes, drop what changes nothing."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
WhichColor = Annotated[Color, typer.Option("--color", help="When to use colours.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]


def format_option(*names: str, help: str, panel: str | None = None) -> typer.models.OptionInfo:
    """Return an option that takes the name of a format, which the shell completes."""
    made: typer.models.OptionInfo = typer.Option(*names, help=help, metavar="FORMAT", autocompletion=complete_format, rich_help_panel=panel)
    return made
