"""``cdc convert``: a changelog in one format becomes the same changelog in another, from topic or file to topic or file."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from cdc_formats.base import Format
from cdc_formats.row_kind import RowKind

from .changelog import Changelog, Errors, OnTruncate, summed_up
from .connection import Config, Connection, Properties, Servers, Timeout, Verbose, connection
from .conversion import Conversion, Encoding, FileSource, Sink, Source, TopicSource
from .files import STANDARD, FileSink, Lines, lines_of
from .given import make_format, pairs
from .options import Normalize, OnErrors, PrimaryKey, Sample, Schema, format_option
from .reading import Topic
from .table import SAMPLE, Table, table_of
from .terminal import tell
from .writing import TopicSink

_FROM, _TO = "What is read", "What is written"


FromTopic = Annotated[str, typer.Option(metavar="TOPIC", help="Read this topic, from its beginning.", rich_help_panel=_FROM)]
FromFile = Annotated[
    str, typer.Option(metavar="FILE", help="Read this file, or - for standard input, which is the default.", rich_help_panel=_FROM)
]
FromLines = Annotated[
    Lines | None,
    typer.Option(
        help="A line is a value, or a record: an object with key, value and headers. Default: records where the format reads keys.",
        show_default=False,
        rich_help_panel=_FROM,
    ),
]
FromOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of its format; may stand more than once.", rich_help_panel=_FROM)
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Go on at the end of the topic; else end where it ended at the start.", rich_help_panel=_FROM)
]
ToTopic = Annotated[str, typer.Option(metavar="TOPIC", help="Write to this topic, which has to be there.", rich_help_panel=_TO)]
ToFile = Annotated[
    str, typer.Option(metavar="FILE", help="Write this file, or - for standard output, which is the default.", rich_help_panel=_TO)
]
ToLines = Annotated[Lines | None, typer.Option(help="As --from-lines.", show_default=False, rich_help_panel=_TO)]
ToOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of its format; may stand more than once.", rich_help_panel=_TO)
]
Truncate = Annotated[OnTruncate, typer.Option(help="What a truncated source table does: no row of a changelog says it.")]


def convert(
    from_: Annotated[str, format_option("--from", help="The format of what is read.", panel=_FROM)],
    to: Annotated[str, format_option("--to", help="The format to write.", panel=_TO)],
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

    An update is written with both of its rows, and what a format cannot hold is an error that names the column. Rows are normalised in
    any case where the format read has no -U and the one written needs it. The Kafka key that is written is made of the primary key.
    Kafka is written by an idempotent producer, and the delivery of each record is checked.
    """
    _check(from_topic, from_file, to_topic, to_file, follow)
    way = connection(servers, config, properties, timeout, verbose) if from_topic or to_topic else None
    read = make_format(from_, given := pairs(from_option or (), "--from-option"))
    written = make_format(to, pairs(to_option or (), "--to-option"))
    with ExitStack() as stack:
        lines = from_lines or lines_of(read)
        source: Source = TopicSource(way, from_topic, follow) if way and from_topic else FileSource(stack, from_file or STANDARD, lines)
        table = table_of(read, given, schema=schema, primary_key=primary_key, option="--from-option", sample=lambda: source.sample(sample))
        changelog = Changelog(table, normalize=normalize or _needs_before(read, written, table), errors=errors, on_truncate=on_truncate)
        encoder = (written.for_topic(to_topic) if to_topic else written).encoder(table.columns, unique_key=table.primary_key)
        sink: Sink = _topic_sink(way, to_topic) if way and to_topic else FileSink(to_file or STANDARD, to_lines or lines_of(written))
        with summed_up(lambda: f"{changelog.summary()}; {sink.written:,} records written to {sink}"), sink:
            Conversion(changelog, Encoding(encoder, table), sink).run(source.batches())


def _check(from_topic: str, from_file: str, to_topic: str, to_file: str, follow: bool) -> None:
    for side, topic, file in (("from", from_topic, from_file), ("to", to_topic, to_file)):
        if topic and file:
            raise typer.BadParameter(f"give --{side}-topic or --{side}-file, not both")
    if from_topic and from_topic == to_topic:
        raise typer.BadParameter("a topic is not converted into itself: --from-topic and --to-topic are the same")
    if from_file not in ("", STANDARD) and os.path.exists(to_file) and os.path.samefile(from_file, to_file):
        raise typer.BadParameter("a file is not converted into itself: --from-file and --to-file are the same")
    if follow and not from_topic:
        raise typer.BadParameter("--follow is for a topic: --from-topic")
    if not from_topic and from_file in ("", STANDARD) and sys.stdin.isatty():
        raise typer.BadParameter("nothing to read: give --from-topic or --from-file, or pipe lines in")


def _needs_before(read: Format, written: Format, table: Table) -> bool:
    """Whether rows have to be normalised, since one format has no ``-U`` and the other needs it; Flink's planner sees to that, too."""
    needs = written.changelog_mode.contains(RowKind.UPDATE_BEFORE) and not read.changelog_mode.contains(RowKind.UPDATE_BEFORE)
    if needs and table.primary_key:
        key = ", ".join(table.primary_key)
        tell(f"{read.identifier} has no -U: rows are normalised by {key}, the newest of each key is kept in memory", "dim")
    return needs


def _topic_sink(way: Connection, topic: str) -> TopicSink:
    with Topic(way, topic) as target:
        partitions = len(target.ranges)
    # Without a key, what was in one partition stays in one partition, and so in order.
    return TopicSink(way, topic, lambda key, partition: None if key is not None else partition % partitions)
