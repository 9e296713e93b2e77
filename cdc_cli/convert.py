"""``cdc convert``: converts a changelog from one format to another, between topics and files."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from cdc_formats.format import Format
from cdc_formats.row_kind import RowKind

from .arguments import make_format, pairs
from .changelog import Changelog, Errors, OnTruncate, print_summary_at_end
from .connection import Config, Connection, Properties, Servers, Timeout, Verbose, connection
from .conversion import Conversion, Encoding, FileSource, Sink, Source, TopicSource
from .files import STANDARD, FileSink, Lines, lines_of
from .options import Normalize, OnErrors, PrimaryKey, Sample, Schema, format_option
from .reading import Topic
from .table import SAMPLE, TableSchema, table_of
from .terminal import print_message
from .writing import TopicSink

_FROM, _TO = "Input", "Output"


FromTopic = Annotated[str, typer.Option(metavar="TOPIC", help="Read this topic from its beginning.", rich_help_panel=_FROM)]
FromFile = Annotated[str, typer.Option(metavar="FILE", help="Read this file; - is standard input, the default.", rich_help_panel=_FROM)]
FromLines = Annotated[
    Lines | None,
    typer.Option(
        help="What a line is: a value, or a record (an object with key, value and headers). Default: records if the format reads keys.",
        show_default=False,
        rich_help_panel=_FROM,
    ),
]
FromOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the input format. Can be repeated.", rich_help_panel=_FROM)
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow", help="Continue at the end of the topic. By default, stop where the topic ended at the start.", rich_help_panel=_FROM
    ),
]
ToTopic = Annotated[str, typer.Option(metavar="TOPIC", help="Write to this topic, which must exist.", rich_help_panel=_TO)]
ToFile = Annotated[str, typer.Option(metavar="FILE", help="Write this file; - is standard output, the default.", rich_help_panel=_TO)]
ToLines = Annotated[Lines | None, typer.Option(help="What to write as a line, as --from-lines.", show_default=False, rich_help_panel=_TO)]
ToOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the output format. Can be repeated.", rich_help_panel=_TO)
]
Truncate = Annotated[OnTruncate, typer.Option(help="What to do when the source table was truncated: no changelog row can represent that.")]


def convert(
    from_: Annotated[str, format_option("--from", help="The input format.", panel=_FROM)],
    to: Annotated[str, format_option("--to", help="The output format.", panel=_TO)],
    from_topic: FromTopic = "",
    from_file: FromFile = "",
    from_lines: FromLines = None,
    from_option: FromOption = None,
    follow: Follow = False,
    to_topic: ToTopic = "",
    to_file: ToFile = "",
    to_lines: ToLines = None,
    to_option: ToOption = None,
    schema: Schema = "",
    primary_key: PrimaryKey = "",
    sample: Sample = SAMPLE,
    normalize: Normalize = False,
    errors: OnErrors = Errors.FAIL,
    on_truncate: Truncate = OnTruncate.FAIL,
    servers: Servers = "",
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 10.0,
    verbose: Verbose = False,
) -> None:
    """Convert messages from one format to another.

    An update is written with both of its rows. A value that the output format cannot hold is an error that names the column. Rows are
    always normalised if the input format has no -U and the output format requires it. The Kafka key is made from the primary key. An
    idempotent producer writes to Kafka, and each delivery is checked.
    """
    _check(from_topic, from_file, to_topic, to_file, follow)
    broker = connection(servers, config, properties, timeout, verbose) if from_topic or to_topic else None
    read = make_format(from_, options := pairs(from_option or (), "--from-option"))
    written = make_format(to, pairs(to_option or (), "--to-option"))
    with ExitStack() as stack:
        lines = from_lines or lines_of(read)
        source: Source = (
            TopicSource(broker, from_topic, follow) if broker and from_topic else FileSource(stack, from_file or STANDARD, lines)
        )
        table = table_of(
            read, options, schema=schema, primary_key=primary_key, option="--from-option", sample=lambda: source.sample(sample)
        )
        changelog = Changelog(table, normalize=normalize or _needs_before(read, written, table), errors=errors, on_truncate=on_truncate)
        encoder = (written.for_topic(to_topic) if to_topic else written).encoder(table.columns, unique_key=table.primary_key)
        sink: Sink = _topic_sink(broker, to_topic) if broker and to_topic else FileSink(to_file or STANDARD, to_lines or lines_of(written))
        with print_summary_at_end(lambda: f"{changelog.summary()}; {sink.written:,} records written to {sink}"), sink:
            Conversion(changelog, Encoding(encoder, table), sink).run(source.batches())


def _check(from_topic: str, from_file: str, to_topic: str, to_file: str, follow: bool) -> None:
    for side, topic, file in (("from", from_topic, from_file), ("to", to_topic, to_file)):
        if topic and file:
            raise typer.BadParameter(f"--{side}-topic and --{side}-file cannot be combined: remove one of them")
    if from_topic and from_topic == to_topic:
        raise typer.BadParameter("a topic cannot be converted into itself: --from-topic and --to-topic are the same")
    if from_file not in ("", STANDARD) and os.path.exists(to_file) and os.path.samefile(from_file, to_file):
        raise typer.BadParameter("a file cannot be converted into itself: --from-file and --to-file are the same")
    if follow and not from_topic:
        raise typer.BadParameter("--follow requires --from-topic")
    if not from_topic and from_file in ("", STANDARD) and sys.stdin.isatty():
        raise typer.BadParameter("there is no input: pass --from-topic or --from-file, or pipe lines in")


def _needs_before(read: Format, written: Format, table: TableSchema) -> bool:
    """Whether rows must be normalised: the input has no ``-U`` and the output requires it. Flink's planner does the same."""
    needs = written.changelog_mode.contains(RowKind.UPDATE_BEFORE) and not read.changelog_mode.contains(RowKind.UPDATE_BEFORE)
    if needs and table.primary_key:
        key = ", ".join(table.primary_key)
        print_message(f"{read.identifier} has no -U: rows are normalised by {key}, and the newest row of each key is kept in memory", "dim")
    return needs


def _topic_sink(broker: Connection, topic: str) -> TopicSink:
    with Topic(broker, topic) as target:
        partitions = len(target.ranges)
    # Without a key, the records of one partition go to one partition and stay in order.
    return TopicSink(broker, topic, lambda key, partition: None if key is not None else partition % partitions)
