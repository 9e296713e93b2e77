"""``cdc init`` and ``cdc run``: a job file for a database, made from its topics, and run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_formats.errors import ArgumentError, ChangelogError

from .connection import Config, Properties, Servers, Timeout, Verbose, connection
from .errors import FileError
from .options import Sample
from .reading import check_topic
from .table import SAMPLE
from .terminal import print_message, status_line

if TYPE_CHECKING:
    from cdc_formats.topics.profile import TopicProfile

JobFile = Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
]
Output = Annotated[Path, typer.Option("--output", help="The file to write.")]
Lake = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="FOLDER",
        help="The folder of the Delta tables, of their schemas and the checkpoint.",
    ),
]


def run(context: typer.Context, job: JobFile) -> None:
    """Run a job file: keep the tables of a database equal to those that its topics describe.

    The query is started again after failures. SIGTERM and Ctrl-C stop it. `cdc init` writes a job
    file.
    """
    from normalize.monitoring.explain_error import explain_error
    from normalize.run import read_job, run_job

    try:
        run_job(read_job(job))
    except ChangelogError:
        raise
    except Exception as error:
        if context.meta.get("cdc_cli.traceback"):
            raise
        print_message(f"error: {explain_error(error)}", "red")
        raise typer.Exit(1) from None


def init(
    topics: Topics,
    servers: Servers = "",
    lake: Lake = "/lake",
    output: Output = Path("job.yaml"),
    sample: Sample = SAMPLE,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Write a job file for topics, with the format and the tables that a sample of each shows.

    Passwords are not written: the file names the environment variables to set.
    """
    from cdc_formats.topics.kafka import profile_topic

    broker = connection(servers, config, properties, timeout, verbose)
    profiles = []
    for topic in topics:
        check_topic(broker, topic)
        with status_line(f"sampling {topic}"):
            profiles.append(
                profile_topic(
                    broker.servers,
                    topic,
                    sample=sample,
                    config=broker.client_config(),
                    timeout_seconds=broker.timeout_seconds,
                )
            )
    text = job_text(profiles, sorted(broker.config), lake.rstrip("/"))
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"the job file {output} cannot be written: {error.strerror}") from None
    print_message(f"wrote {output}: read it, then run it with `cdc run {output}`")


def job_text(profiles: Sequence[TopicProfile], properties: Sequence[str], lake: str) -> str:
    """Return a job file for topics.

    Parameters
    ----------
    profiles : sequence of TopicProfile
        One for each topic.
    properties : sequence of str
        The names of the connection's properties besides the servers; the file asks for their
        values.
    lake : str
        The folder of the tables, without a slash at its end.

    Raises
    ------
    ArgumentError
        When a topic has no known format, or the topics have several.
    """
    formats = {each.format for each in profiles}
    for each in profiles:
        if each.format is None:
            raise ArgumentError(
                f"the format of {each.topic} is not known: see `cdc profile {each.topic}`"
            )
    if len(formats) > 1:
        shown = ", ".join(f"{each.topic}: {each.format}" for each in profiles)
        raise ArgumentError(
            f"a job has one format, and the topics have several ({shown}): write a file for each"
        )
    lines = [
        (
            "# The options are those of normalize.sync_database. A text env:NAME is the value of "
            "an environment variable."
        ),
        f"topic: {json.dumps([each.topic for each in profiles])}",
        f"format: {profiles[0].format}",
        *_format_options(profiles),
        "options:",
        f"  kafka.bootstrap.servers: {json.dumps(profiles[0].servers)}",
        "  maxOffsetsPerTrigger: 100000",
        *(
            f"  # {name} was passed to cdc: write Spark's option for it, kafka.*"
            for name in properties
        ),
        "target:",
        f"  delta: {{name: {json.dumps(lake)}}}",
        f"schema_location: {json.dumps(f'{lake}/_schemas')}",
        f"checkpoint_location: {json.dumps(f'{lake}/_checkpoint')}",
        "packages: [delta]",
        "trigger: {processing_time: 10 seconds}",
        "restart: {limit: 10}",
    ]
    tables = list(chain.from_iterable(map(_tables, profiles)))
    return "\n".join([*lines, *(["tables:", *tables] if tables else [])]) + "\n"


def _format_options(profiles: Sequence[TopicProfile]) -> list[str]:
    """Return the entry of the format's options that the samples show, the same for each table."""
    shown = [
        table.options for each in profiles for table in each.tables if table.schema is not None
    ]
    common = [
        (name, value)
        for name, value in (shown[0] if shown else {}).items()
        if all(each.get(name) == value for each in shown)
    ]
    return (
        ["format_options:", *(f"  {name}: {json.dumps(value)}" for name, value in common)]
        if common
        else []
    )


def _tables(profile: TopicProfile) -> list[str]:
    """Return the entries of tables that need a decision: those without a primary key."""
    return [
        line
        for table in profile.tables
        if table.schema is not None and not table.primary_key
        for line in (
            "  # Its messages do not name a primary key: name the columns that identify a row.",
            f"  {json.dumps(table.name or profile.topic)}: {{primary_key: []}}",
        )
    ]
