"""``cdc init``, ``run``, ``maintain``, ``resync``, ``status``: a job file, its query and checkpoint."""

from __future__ import annotations

import json as json_text
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cdc_formats.errors import printable
from cdc_formats.topics.kafka import profile_topic

from .arguments import (
    Config,
    Connection,
    FileError,
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
from .job_text import JobTarget, TargetKind, has_questions, job_text
from .source import connector_modes, with_source
from .terminal import Color, print_message, print_result, progress_bar, status_line
from .topic import SAMPLE, Topic, check_topic
from .verify import Password, User, password_of

if TYPE_CHECKING:
    from normalize.checkpoint.status import CheckpointStatus
    from normalize.run import Event
    from normalize.run.events import Report


# --------------------------------------------------------------------------------------------------
# What ``cdc run`` prints: events of the job, warnings, and on a terminal what is left.

_STYLES = {
    "failed": "yellow",
    "warning": "yellow",
    "caught up": "green",
    "started": "dim",
    "stopped": "dim",
}


@contextmanager
def screen(*, json: bool) -> Iterator[Report]:
    """Print the events of a job, of which the warnings of the logger ``normalize`` are some.

    Parameters
    ----------
    json : bool
        Whether events are lines of JSON on standard output.
    """
    from normalize.run.events import Warnings

    logger, done = logging.getLogger("normalize"), 0
    with progress_bar("offsets left") as show_left:

        def report(event: Event) -> None:
            nonlocal done
            if json:
                typer.echo(event.to_json())
                sys.stdout.flush()
            else:
                text = f"{datetime.now():%H:%M:%S} {event.text}"
                print_message(text, _STYLES.get(event.kind, ""))
            if event.kind == "micro-batch":
                done += event.values["records"]
                show_left(done, event.values["offsets_left"])

        handler = Warnings(report)
        logger.addHandler(handler)
        try:
            yield report
        finally:
            logger.removeHandler(handler)


JobFile = Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)]


def run(
    job: JobFile,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only check the file, its format, the broker, the topics, the folders, and the tables "
            "of a sample, without Spark, and say what is not checked.",
        ),
    ] = False,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark", help="With `--check`: check expressions and targets by Spark, too."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Run a job file: keep the tables of a database equal to those that its topics describe.

    It prints a line for each micro-batch, and when it has caught up; with `--json` a line of JSON
    on standard output. The query is started again after failures. SIGTERM and Ctrl-C stop it.
    `cdc init` writes a job file.
    """
    from normalize.run import check_job, read_job, run_job
    from normalize.run.supervise import session_of

    if check:
        checked, colors = read_job(job), {"ok": "", "not checked": "yellow", "error": "red"}
        failed = False
        for finding in check_job(checked, session_of(checked) if spark else None):
            print_message(str(finding), colors[finding.state])
            failed |= finding.state == "error"
        raise typer.Exit(int(failed))
    with screen(json=json) as report:
        run_job(read_job(job), report=report)


def maintain(
    job: JobFile,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="The job's query does not run now.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only look for what delta-rs damaged in an earlier version: wrong statistics, "
            "doubled keys, lost timestamps. It reads the keys of the tables.",
        ),
    ] = False,
) -> None:
    """Maintain the Delta or Iceberg tables of a job file: compact them, and remove old files.

    It prints a line for each table, and ends with 1 if one failed or is damaged. The query may be running, unless
    the job has `only_writer`. Without `maintenance` in the file, the options are the defaults.
    """
    from normalize.run import maintain_job, read_job

    if maintain_job(read_job(job), print_message, stopped=stopped, check=check):
        raise typer.Exit(1)


def resync(
    job: JobFile,
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="The source table: shop.orders.", show_default=False),
    ],
    remove_missing: Annotated[
        bool,
        typer.Option("--remove-missing", help="Remove the keys that only the old table has."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only count these keys: read the table again, and replace nothing."
        ),
    ] = False,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="URL",
            help="Read the rows of the source database instead of the topic: "
            "jdbc:postgresql://host/db, jdbc:mysql://... or jdbc:mariadb://...",
        ),
    ] = "",
    source_table: Annotated[
        str,
        typer.Option(
            "--source-table",
            metavar="TABLE",
            help="Its name in the database or for Debezium. By default, TABLE.",
        ),
    ] = "",
    user: User = "",
    password: Password = "",
    signal_topic: Annotated[
        str,
        typer.Option(
            "--signal-topic",
            metavar="TOPIC",
            help="Let Debezium write all rows to the topic first, by its signal.kafka.topic.",
        ),
    ] = "",
    notification_topic: Annotated[
        str,
        typer.Option(
            "--notification-topic",
            metavar="TOPIC",
            help="Debezium's notification.sink.topic.name, for --signal-topic.",
        ),
    ] = "",
    topic_prefix: Annotated[
        str,
        typer.Option(
            "--topic-prefix", metavar="PREFIX", help="Debezium's topic.prefix, for --signal-topic."
        ),
    ] = "",
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets",
            metavar="JSON",
            help="""The first offsets to read, if the producer wrote all rows again from there: """
            """'{"shop.orders": {"0": 1200}}'.""",
        ),
    ] = "",
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Replace a request that the query has not begun, or whose command ended meanwhile.",
        ),
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Withdraw a request that the query has not begun."),
    ] = False,
) -> None:
    """Read one table of a job file again, from its topic or its source, in the running query.

    The query begins at its next micro-batch; the other tables go on, and the old table stays
    current until the new rows replace its own in one commit. A stopped table is resumed.

    It prints how far the query is until the end, and ends with 1 if the table was not replaced.
    Ctrl-C ends the command alone.
    """
    from normalize import JdbcSource
    from normalize.kafka.debezium_snapshot import IncrementalSnapshot
    from normalize.run import read_job, resync_job

    ways = {"--source": source, "--signal-topic": signal_topic, "--offsets": offsets}
    if len(given := [name for name, value in ways.items() if value]) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other: pass one of them")
    if bool(signal_topic) != bool(notification_topic and topic_prefix):
        raise typer.BadParameter("--signal-topic needs --notification-topic and --topic-prefix")
    of_source = snapshot = None
    if signal_topic:
        snapshot = IncrementalSnapshot(
            signal_topic, notification_topic, topic_prefix, source_table or table
        )
    if source:
        secret = password_of("source", user, password)
        of_source = JdbcSource(source, source_table or table, user or None, secret)
    try:
        of_offsets = msgspec.json.decode(offsets or "null", type=dict[str, dict[int, int]] | None)
    except msgspec.DecodeError:
        raise typer.BadParameter(
            """--offsets is not JSON of topics, partitions and offsets: '{"shop.orders": {"0": 1200}}'"""
        ) from None
    ended = resync_job(
        read_job(job),
        table,
        print_message,
        source=of_source,
        snapshot=snapshot,
        offsets=of_offsets,
        remove_missing=remove_missing,
        dry_run=dry_run,
        again=again,
        cancel=cancel,
    )
    if ended.reason and not cancel:
        raise typer.Exit(1)


def init(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
    ],
    servers: Servers = "",
    target: Annotated[
        TargetKind, typer.Option("--target", help="The kind of the tables.")
    ] = TargetKind.DELTA,
    lake: Annotated[
        str,
        typer.Option(
            "--lake",
            metavar="FOLDER",
            help=(
                "The folder of the Delta tables or of Iceberg's warehouse, of the schemas and the "
                "checkpoint."
            ),
        ),
    ] = "/lake",
    url: Annotated[
        str,
        typer.Option(
            "--url", metavar="URL", help="The database of --target jdbc: jdbc:postgresql://host/db."
        ),
    ] = "",
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="URL",
            help="Read types and primary keys from the source database: "
            "jdbc:postgresql://host/db, jdbc:mysql://... or jdbc:mariadb://...",
            rich_help_panel="Source",
        ),
    ] = "",
    user: User = "",
    password: Password = "",
    connector: Annotated[
        str,
        typer.Option(
            "--connector",
            envvar="CDC_CONNECTOR",
            metavar="URL",
            help="Read Debezium's modes of decimals, times and bytes from Kafka Connect: "
            "http://connect:8083/connectors/NAME. Nothing else of its settings is kept.",
            rich_help_panel="Source",
        ),
    ] = "",
    sample: Sample = SAMPLE,
    format: Annotated[str, format_option("The format. By default, detected.")] = "",
    option: FormatOption = None,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Write a job file for topics, with the format and the tables that a sample of each shows.

    What the messages do not say, such as the scale of a decimal in base64, is a question in the
    file: `"?"`. `cdc run` needs an answer to each. `--source` and `--connector` answer most.

    Passwords are not written: the file names the environment variables to set.
    """
    if output.exists() and not force:
        raise FileError(
            f"the job file {output} exists: name another one with --output, or replace it with "
            "--force"
        )
    written = JobTarget(target, lake.rstrip("/"), url)
    broker = connection(servers, config, properties, timeout, verbose)
    modes = connector_modes(connector, timeout) if connector else {}
    chosen = format_arguments(format, option, modes)
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
                    **chosen,
                )
            )
    if source:
        secret = password_of("source", user, password)
        profiles = with_source(profiles, source, user or None, secret)
    text = job_text(profiles, sorted(broker.config), written)
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"the job file {output} cannot be written: {error.strerror}") from None
    number = has_questions(text)
    then = "read it" if not number else f'it has {number} "?": replace each by your answer'
    print_message(f"wrote {output}: {then}, then run it with `cdc run {output}`")


def schema() -> None:
    """Write the JSON Schema of a job file, by which editors complete, explain and check it.

    The first line of a file that `cdc init` writes names `job.schema.json` beside it.
    """
    from normalize.run import job_schema

    typer.echo(json_text.dumps(job_schema(), indent=2))


# --------------------------------------------------------------------------------------------------
# ``cdc status``: shows what a query has processed, from its checkpoint.

Ends = dict[str, dict[int, int]]
"""The end of each partition of each topic: the offset of the next record."""


def status(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The query's checkpointLocation: a path, or s3://, gs://, abfs://, hdfs://.",
            show_default=False,
        ),
    ],
    servers: Servers = "",
    *,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 10.0,
    verbose: Verbose = False,
) -> None:
    """Show what a query has processed: offsets, last micro-batch and when it was planned, state.

    For tables, it also shows which decoder reads their messages; for Delta tables, whether Spark or
    delta-rs writes them, and why; how far a table is that `cdc resync` reads again; and through which
    position of the source a table with `verify` is compared with it.

    With -b, also how many records each partition has that are not processed yet. The query may be
    running. Spark is not needed; a checkpoint at a URL needs pyarrow.
    """
    from normalize.checkpoint.status import checkpoint_status

    described = checkpoint_status(checkpoint)
    broker = (
        connection(servers, config, properties, timeout, verbose) if servers or config else None
    )
    ends = {} if broker is None else _ends(broker, described)
    if json:
        typer.echo(
            json_text.dumps(
                {
                    **asdict(described),
                    "state_version": described.state_version,
                    "behind": _behind(described, ends),
                },
                default=datetime.isoformat,
            )
        )
    else:
        print_result(_shown(described, ends), color, "bold")


def _ends(broker: Connection, checkpoint: CheckpointStatus) -> Ends:
    ends: Ends = {}
    for name in checkpoint.offsets:
        with Topic(broker, name) as topic:
            ends[name] = {partition: high for partition, (_, high) in topic.ranges.items()}
    return ends


def _behind(checkpoint: CheckpointStatus, ends: Ends) -> Ends:
    """Return how many records are unprocessed: all of a partition still unknown to the query."""
    return {
        name: {
            partition: end - checkpoint.offsets[name].get(partition, 0)
            for partition, end in partitions.items()
        }
        for name, partitions in ends.items()
    }


def _shown(checkpoint: CheckpointStatus, ends: Ends) -> str:
    lines = [f"query {checkpoint.query_id}"]
    if checkpoint.committed_batch is None:
        lines.append("  no micro-batch is done yet")
    else:
        lines.append(
            f"  last micro-batch  {checkpoint.committed_batch}, planned at "
            f"{_at(checkpoint.committed_planned_at)}"
        )
    if checkpoint.is_running_or_failed:
        lines.append(
            f"  not done          {checkpoint.planned_batch}, planned at "
            f"{_at(checkpoint.planned_at)}: it is running, or the query ended in it"
        )
    behind = _behind(checkpoint, ends)
    for name, partitions in checkpoint.offsets.items():
        lines += _topic_lines(name, partitions, ends.get(name, {}), behind.get(name, {}))
    lines += [
        f"  source            {printable(source[:300])}" for source in checkpoint.other_sources
    ]
    lines += [
        f"  table             {printable(each.table)}, written by {each.writer}: "
        f"{printable(each.reason)}"
        for each in checkpoint.writers
    ]
    lines += [
        f"  decoded           {printable(each.table)}, by {printable(each.decoder)}"
        for each in checkpoint.decoders
    ]
    lines += [
        f"  read again        {printable(each.table)}: {printable(each.progress)}"
        for each in checkpoint.resyncs
    ]
    lines += [
        f"  verified          {printable(each.table)}: {printable(each.progress)}"
        for each in checkpoint.proofs
    ]
    for operator in checkpoint.operators:
        lines.append(
            f"  state             operator {operator.operator_id}, {operator.name}, "
            f"{operator.partitions} partitions"
        )
    if checkpoint.state_version is not None:
        lines.append(f"  state version     {checkpoint.state_version}")
    return "\n".join(lines)


def _topic_lines(
    name: str, offsets: Mapping[int, int], ends: Mapping[int, int], behind: Mapping[int, int]
) -> Iterator[str]:
    yield f"  {printable(name)}" + (f", {sum(behind.values()):,} behind" if behind else "")
    for partition in sorted({*offsets, *behind}):
        offset = f"{offsets[partition]:,}" if partition in offsets else "not read yet"
        end = (
            f" of {ends[partition]:,}: {behind[partition]:,} behind" if partition in behind else ""
        )
        yield f"    partition {partition}: {offset}{end}"


def _at(time: datetime | None) -> str:
    return "an unknown time" if time is None else time.isoformat(" ", "seconds")
