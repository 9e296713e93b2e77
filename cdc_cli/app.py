"""The typer application: its commands, errors and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cdc_formats.errors import missing_dependency

from .doctor import doctor
from .formats import formats
from .job import init, maintain, resync, run, schema, status
from .tail import tail
from .terminal import print_error
from .topics import profile, topics
from .verify import verify

_READER_IS_GONE = 141  # 128 + SIGPIPE, as shells report it
_EXTRAS = {
    "init": "cli,run",
    "run": "cli,run",
    "maintain": "cli,run",
    "resync": "cli,run",
    "schema": "cli,run",
    "verify": "capture,cli,spark",
}
"""The commands that run Spark, and what they need besides the extra ``cli``."""
_EXIT = {"verify": 2}
"""The exit code of a failure, if it is not 1."""


class _Commands(TyperGroup):
    """Prints a short error and exits with a code, instead of a traceback, when a command fails."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        arguments = sys.argv[1:] if args is None else args
        remaining = [each for each in arguments if each != "--traceback"]
        # Users add it after a failure, at the end of the line that failed.
        return super().main(
            ["--traceback", *remaining] if len(remaining) < len(arguments) else remaining,
            *rest,
            **extra,
        )

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The buffer still holds data that cannot be written: without this, Python prints an
            # error at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_READER_IS_GONE) from None
        except Exception as error:
            of_typer = type(error).__module__.partition(".")[0] in (
                "typer",
                "click",
            )  # a usage error, or an exit
            if ctx.meta.get(_TRACEBACK) or of_typer:
                raise
            command = ctx.invoked_subcommand or ""
            if isinstance(error, ImportError):
                error = missing_dependency(error, _EXTRAS.get(command, "cli"))
            print_error(error, of_spark=command in _EXTRAS)
            raise typer.Exit(_EXIT.get(command, 1)) from None


_TRACEBACK = "cdc_cli.traceback"


app = typer.Typer(
    cls=_Commands,
    name="cdc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # paragraphs are filled
    context_settings={"help_option_names": ["-h", "--help"]},
)
EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    formats: ("cdc formats", "cdc formats debezium-json"),
    topics: (
        "cdc topics -b localhost:9092",
        "cdc topics 'dbserver1[.]shop[.].*' -b localhost:9092 --json",
    ),
    profile: (
        "cdc profile orders -b localhost:9092",
        "cdc profile orders -b broker:9093 -X security.protocol=SSL -X ssl.ca.location=ca.pem",
    ),
    tail: (
        "cdc tail orders -b localhost:9092",
        "cdc tail orders -b localhost:9092 --from 2026-11-21T10:00:00Z --where-key id=7",
        "cdc tail shop -b localhost:9092 -o table_include=orders --normalize",
    ),
    doctor: ("cdc doctor orders -b localhost:9092", "cdc doctor job.yaml --json"),
    verify: (
        "cdc verify jdbc:mysql://db:3306/shop products /lake/products --user reader",
        "cdc verify jdbc:postgresql://db/shop public.products lake.shop.products --kind iceberg",
    ),
    status: (
        "cdc status /checkpoints/products",
        "cdc status s3://bucket/checkpoints/products -b localhost:9092 --json",
    ),
    init: (
        "cdc init orders items -b localhost:9092 --lake /lake/shop",
        "cdc init orders -b localhost:9092 -o time_precision_mode=isostring --output orders.yaml",
        "cdc init orders -b localhost:9092 --target jdbc --url jdbc:postgresql://db/shop",
        "cdc init orders items -b localhost:9092 --source jdbc:mysql://db:3306/shop --user reader "
        "--connector http://connect:8083/connectors/shop",
    ),
    maintain: (
        "cdc maintain job.yaml",
        "cdc maintain job.yaml --stopped",
        "cdc maintain job.yaml --check",
    ),
    resync: (
        "cdc resync job.yaml shop.orders --dry-run",
        "cdc resync job.yaml shop.orders --remove-missing",
        "cdc resync job.yaml shop.orders --source jdbc:mysql://db:3306/shop --user reader",
        "cdc resync job.yaml shop.orders --signal-topic dbz.signals --notification-topic dbz.notes "
        "--topic-prefix shop",
    ),
    schema: ("cdc schema > job.schema.json",),
    run: ("cdc run --check job.yaml", "cdc run job.yaml", "cdc run job.yaml --json"),
}
"""The commands, each with lines that its help shows."""
for command, lines in EXAMPLES.items():
    app.command(epilog="\n\n".join(["Examples:", *lines]))(command)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"cdc {version('pyspark-kafka-changelog')}")
        raise typer.Exit


@app.callback()
def cdc(
    context: typer.Context,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback",
            help="Show where in the program an error occurs. Accepted anywhere on the line.",
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Inspect Kafka CDC topics, follow them as changelogs; check copied tables and checkpoints."""
    context.meta[_TRACEBACK] = traceback
    if traceback:
        os.environ["CHANGELOG_QUERY_ERRORS"] = "error"
    # If a terminal cannot show a character, it gets the escape sequence.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
