"""``cdc tail``: shows a topic as a live changelog, as Flink's SQL client does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated

import typer

from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import InferenceError
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.values.schema import Column

from .arguments import Config, Properties, Servers, Timeout, Verbose, connection, make_format, pairs
from .changelog import Changelog, Errors, Row, print_summary_at_end
from .options import (
    FormatOption,
    Json,
    Normalize,
    OnErrors,
    PrimaryKey,
    Sample,
    Schema,
    Topic as TopicName,
    WhichColor,
    format_option,
)
from .reading import Start, Topic
from .table import (
    SAMPLE,
    SeveralTables,
    TopicSchema,
    detected_format,
    other_format,
    sample_of_topic,
    several_tables,
    table_of,
)
from .terminal import Color, ReadProgress, print_message
from .view import Shown, View, text_of, view_of

_LAST, _ALL = "-10", "beginning"


From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Where to start: beginning, end, an offset, -N for the last N of each partition, or a "
        f"time such as 2026-11-21T10:00:00Z. Default: {_LAST}; with --normalize {_ALL}.",
        show_default=False,
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option(min=0, help="Read only this partition. Can be repeated.")
]
Most = Annotated[
    int | None, typer.Option("--max", min=1, help="Stop after this many rows.", show_default=False)
]
Expanded = Annotated[
    bool,
    typer.Option(
        "--expanded",
        "-x",
        help=(
            "Show each column of a row on a line of its own, as is done if the terminal is too "
            "narrow."
        ),
    ),
]
Follow = Annotated[
    bool,
    typer.Option(help="Continue at the end of the topic, or stop where it ended at the start."),
]
WhereKey = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Show only rows of this key; VALUE as it is shown. Can be repeated for more columns.",
    ),
]


def tail(
    topic: TopicName,
    servers: Servers = "",
    *,
    format: Annotated[
        str,
        format_option(
            "The format of the messages; cdc formats lists them. By default, detected from a "
            "sample."
        ),
    ] = "",
    option: FormatOption = None,
    schema: Schema = "",
    primary_key: PrimaryKey = "",
    sample: Sample = SAMPLE,
    start: From = "",
    partition: Partitions = None,
    most: Most = None,
    follow: Follow = True,
    where_key: WhereKey = None,
    normalize: Normalize = False,
    errors: OnErrors = Errors.SHOW,
    json: Json = False,
    expanded: Expanded = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 10.0,
    verbose: Verbose = False,
) -> None:
    """Follow a topic as a changelog.

    A topic of several tables has a column with the table's name; --json needs one of them.

    Rows are coloured by kind: +I, -U, +U, -D. In a pipe they are tab-separated lines; --json writes
    changelog-json messages with the position of each record. Records without rows and records that
    cannot be decoded are reported on standard error. No consumer group is joined.
    """
    broker = connection(servers, config, properties, timeout, verbose)
    begin = Start.parse(start or (_ALL if normalize else _LAST))
    options = pairs(option or (), "--option")
    sampled = cache(lambda: sample_of_topic(broker, topic, sample))
    chosen = make_format(format, options) if format else detected_format(topic, sampled(), options)
    table: TopicSchema | SeveralTables
    try:
        table = table_of(chosen, options, schema=schema, primary_key=primary_key, sample=sampled)
        columns = result_columns(table.columns, table.format.handling.masks)
    except InferenceError as error:
        several = None if json or primary_key else several_tables(topic, chosen, sampled())
        if several is None:
            hint = other_format(chosen, sampled())
            raise InferenceError(f"{error.args[0]}{hint}") from None
        table, columns = several, several.columns
    view = view_of(columns, json=json, color=color, expanded=expanded)
    shown = RowPrinter(view, _has_key(table, columns, pairs(where_key or (), "--where-key")), most)
    changelog = Changelog(
        table,
        normalize=normalize,
        errors=errors,
        show_ignored=errors is not Errors.SKIP,
        print_message=shown.print_message,
    )
    with Topic(broker, topic, partition or ()) as opened, print_summary_at_end(changelog.summary):
        if not start and not normalize:
            print_message(
                (
                    f"starting with the last {_LAST[1:]} records of each partition; --from {_ALL} "
                    "shows all"
                ),
                "dim",
            )
        shown.follow(opened.batches(begin, follow=follow), changelog)


class RowPrinter:
    """Shows rows on standard output and messages on standard error, in the order of the records."""

    def __init__(self, view: View, is_shown: Callable[[Row], bool], most: int | None) -> None:
        self.view, self.is_shown, self.left = view, is_shown, most
        self.pending: list[Shown] = []

    def follow(self, batches: Iterable[list[SampledRecord]], changelog: Changelog) -> None:
        """Show rows until there are no more, or until the requested number is reached."""
        try:
            for batch in batches:
                for record in batch:
                    self._take(record, changelog)
                    if self.left == 0:
                        break
                self._flush()
                if self.left == 0:
                    break
        finally:
            self._flush()
        self.view.end()

    def print_message(self, text: str, style: str) -> None:
        """Print a message about a record, below the rows before it."""
        self._flush()
        print_message(text, style)

    def _take(self, record: SampledRecord, changelog: Changelog) -> None:
        rows = [(kind, row) for kind, row in changelog.rows(record) if self.is_shown(row)][
            : self.left
        ]
        changelog.seen(rows)
        self.pending += [(record, kind, row) for kind, row in rows]
        if self.left is not None:
            self.left -= len(rows)

    def _flush(self) -> None:
        shown, self.pending = self.pending, []
        if shown:
            ReadProgress.remove()
        self.view.show(shown)


def _has_key(
    table: TopicSchema | SeveralTables, columns: Sequence[Column], key: Mapping[str, str]
) -> Callable[[Row], bool]:
    """Return the test for rows with the given key values, which are written as they are shown."""
    key_names = table.primary_key or tuple(column.name for column in columns)
    for name in key:
        if name not in key_names:
            raise typer.BadParameter(
                f"--where-key {name}: not a key column; the key has {', '.join(key_names)}"
            )
    tests = [
        (index, text_of(column.type), key[column.name])
        for index, column in enumerate(columns)
        if column.name in key
    ]
    return lambda row: all(text(row[index]) == value for index, text, value in tests)
