"""``cdc tail``: shows a topic as a live changelog, as Flink's SQL client does."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import Annotated, Any

import typer

from cdc_formats.decoder import decode_one, in_record
from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    InferenceError,
    MissingBeforeImageError,
    PartialImageError,
)
from cdc_formats.events import SHORT_STRINGS, Ignored, RowKind
from cdc_formats.fold import FoldedTable
from cdc_formats.topics.sampler import SampledRecord
from cdc_formats.values.schema import Column

from .arguments import (
    Config,
    FormatOption,
    Json,
    Properties,
    Sample,
    Servers,
    Timeout,
    TopicName,
    Verbose,
    WhichColor,
    connection,
    format_option,
    make_format,
    pairs,
)
from .terminal import Color, ReadProgress, print_message
from .topic import (
    SAMPLE,
    SeveralTables,
    Start,
    Topic,
    TopicSchema,
    detected_format,
    other_format,
    sample_of_topic,
    several_tables,
    table_of,
)
from .view import Row, Shown, View, text_of, view_of

_LAST, _ALL = "-10", "beginning"
Rows = list[tuple[RowKind, Row]]
Decode = Callable[[SampledRecord], "Rows | Ignored"]

_NOT_SHOWN = (Ignored.OTHER_TABLE, Ignored.TOMBSTONE)
"""The user left other tables out with the format's options, and a tombstone follows each delete:
they are only counted."""


class Errors(str, Enum):
    """What happens when a record cannot be decoded."""

    FAIL = "fail"
    SKIP = "skip"
    SHOW = "show"


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
    schema: Annotated[
        str,
        typer.Option(
            metavar="DDL",
            help=(
                "The columns, such as 'id INT, name STRING'. By default, inferred from a sample."
            ),
        ),
    ] = "",
    primary_key: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="The primary key columns. By default, inferred from a sample.",
        ),
    ] = "",
    sample: Sample = SAMPLE,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help=(
                "Where to start: beginning, end, an offset, -N for the last N of each partition, "
                f"or a time such as 2026-11-21T10:00:00Z. Default: {_LAST}; with --normalize {_ALL}."
            ),
            show_default=False,
        ),
    ] = "",
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Read only this partition. Can be repeated.")
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max", min=1, help="Stop after this many rows.", show_default=False),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(help="Continue at the end of the topic, or stop where it ended at the start."),
    ] = True,
    where_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help=(
                "Show only rows of this key; VALUE as it is shown. Can be repeated for more columns."
            ),
        ),
    ] = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            help=(
                "Keep the newest row of each key in memory: add -U, complete deletes, drop changes "
                "without effect."
            ),
        ),
    ] = False,
    errors: Annotated[
        Errors,
        typer.Option(
            "--errors",
            help=(
                "For a record that cannot be decoded: end the command, count it, or print the "
                "error and count it."
            ),
        ),
    ] = Errors.SHOW,
    json: Json = False,
    expanded: Annotated[
        bool,
        typer.Option(
            "--expanded",
            "-x",
            help=(
                "Show each column of a row on a line of its own, as is done if the terminal is too "
                "narrow."
            ),
        ),
    ] = False,
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
                    rows = [each for each in changelog.rows(record) if self.is_shown(each[1])]
                    rows = rows[: self.left]
                    changelog.kinds.update(kind for kind, _ in rows)
                    self.pending += [(record, kind, row) for kind, row in rows]
                    if self.left is not None:
                        self.left -= len(rows)
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


# --------------------------------------------------------------------------------------------------
# Decodes records to the rows of a changelog, normalises them on request, and counts them.


class Changelog:
    """Decodes records one at a time.

    Parameters
    ----------
    table : TopicSchema or SeveralTables
    normalize : bool
        Whether to keep the newest row of each key in memory. It adds ``-U`` rows, completes deletes
        and drops changes without effect (`cdc_formats.fold`).
    errors : Errors
    show_ignored : bool
        Whether to print each record without rows, with its position.
    print_message : callable
        Prints a text in a rich style.

    Attributes
    ----------
    counts : Counter
        The numbers of records, of ignored ones by their reason, and of corrupt ones by their error.
    kinds : Counter
        The numbers of rows that were shown, by their kind.

    Raises
    ------
    SchemaError, FormatOptionError, ArgumentError
        When the format cannot read the table, or when rows are normalised without a primary key.
    """

    def __init__(
        self,
        table: TopicSchema | SeveralTables,
        *,
        normalize: bool,
        errors: Errors,
        show_ignored: bool = False,
        print_message: Callable[[str, str], None] = print_message,
    ) -> None:
        self.format, self.errors, self.show_ignored = table.format, errors, show_ignored
        self._print_message = print_message
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[RowKind] = Counter()
        self._decode = (
            several_decoded(table, normalize=normalize)
            if isinstance(table, SeveralTables)
            else decode_of(table, normalize=normalize)
        )
        self._normalizes = normalize

    def rows(self, record: SampledRecord) -> Rows:
        """Return the rows of a record; an empty list if it has none or is skipped.

        Raises
        ------
        DecodeError
            When the record cannot be decoded and `errors` is ``FAIL``.
        """
        self.counts["records"] += 1
        rows = decode_one(self.format.identifier, self._decode, record)
        if isinstance(rows, DecodeError):
            error = in_record(rows, record, excerpt=self.format.error_excerpt)
            if (
                isinstance(error, (MissingBeforeImageError, PartialImageError))
                and not self._normalizes
            ):
                error = type(error)(f"{error.reason}. In cdc: pass --normalize", *error.args[1:])
            if self.errors is Errors.FAIL:
                raise error from None
            self.counts[f"corrupt ({error.condition})"] += 1
            if self.errors is Errors.SHOW:
                self._print_message(str(error), "red")
            return []
        if isinstance(rows, Ignored):
            self.counts[f"ignored ({rows.value})"] += 1
            if self.show_ignored and rows not in _NOT_SHOWN:
                self._print_message(f"ignored {rows.value} in {record.where}", "dim")
            return []
        return rows

    def summary(self) -> str:
        """Return the counts as one line."""
        kinds = ", ".join(
            f"{count:,} {SHORT_STRINGS[kind]}" for kind, count in sorted(self.kinds.items())
        )
        rows = f"{self.kinds.total():,} rows" + (f" ({kinds})" if kinds else "")
        more = "".join(
            f", {count:,} {what}"
            for what, count in sorted(self.counts.items())
            if what != "records"
        )
        return f"{rows} of {self.counts['records']:,} records{more}"


@contextmanager
def print_summary_at_end(summary: Callable[[], str]) -> Iterator[None]:
    """Print the counts when the block ends, also on errors, unless a pipe's reader closed it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except BaseException as error:
        has_mark = isinstance(error, KeyboardInterrupt) and sys.stderr.isatty()  # the terminal's ^C
        print_message("\n" * has_mark + summary(), "bold")
        raise
    print_message(summary(), "bold")


def decode_of(table: TopicSchema, *, normalize: bool) -> Decode:
    """Return the function from a record to the rows of a table.

    Raises
    ------
    SchemaError, FormatOptionError, ArgumentError
        As `Changelog`.
    """
    if normalize and not table.primary_key:
        raise ArgumentError("rows cannot be normalised without a primary key: pass --primary-key")
    decoder = table.format.decoder(table.columns, unique_key=table.primary_key)
    changes_of: Callable[..., Any] = decoder.upserts if normalize else decoder.decode
    rows_of: Callable[..., Rows] = (
        FoldedTable().apply
        if normalize
        else lambda changes: [(change.kind, change.row) for change in changes]
    )

    def decode(record: SampledRecord) -> Rows | Ignored:
        changes = changes_of(record.key, record.value, record.headers)
        return changes if isinstance(changes, Ignored) else rows_of(changes)

    return decode


def several_decoded(tables: SeveralTables, *, normalize: bool) -> Decode:
    """Return the function from a record to rows with the table's name and all columns, as text."""
    each = [
        (decode_of(table, normalize=normalize), tables.row_of(name))
        for name, table in tables.tables.items()
    ]

    def decode(record: SampledRecord) -> Rows | Ignored:
        result: Rows | Ignored = Ignored.OTHER_TABLE
        for decode_table, row_of in each:
            result = decode_table(record)
            if not isinstance(result, Ignored):
                return [(kind, row_of(row)) for kind, row in result]
            if result is not Ignored.OTHER_TABLE:
                return result
        return result

    return decode
