"""Decodes records to the rows of a changelog, normalises them on request, and counts them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from cdc_formats.decoder import Decoder, decode_one, in_record
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    MissingBeforeImageError,
    PartialImageError,
)
from cdc_formats.events import SHORT_STRINGS, Ignored, RowKind
from cdc_formats.fold import FoldedTable
from cdc_formats.topics.encodings import SampledRecord

from .table import SeveralTables, TopicSchema
from .terminal import print_message

Row = tuple[Any, ...]
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
            self._bad(in_record(rows, record, excerpt=self.format.error_excerpt))
            return []
        if isinstance(rows, Ignored):
            self._ignore(rows, record)
            return []
        return rows

    def _bad(self, error: DecodeError) -> None:
        if isinstance(error, (MissingBeforeImageError, PartialImageError)) and not self._normalizes:
            error = type(error)(f"{error.reason}. In cdc: pass --normalize", *error.args[1:])
        if self.errors is Errors.FAIL:
            raise error from None
        self.counts[f"corrupt ({error.condition})"] += 1
        if self.errors is Errors.SHOW:
            self._print_message(str(error), "red")

    def _ignore(self, reason: Ignored, record: SampledRecord) -> None:
        self.counts[f"ignored ({reason.value})"] += 1
        if self.show_ignored and reason not in _NOT_SHOWN:
            self._print_message(f"ignored {reason.value} in {record.where}", "dim")

    def seen(self, rows: Rows) -> None:
        """Count rows that were shown."""
        self.kinds.update(kind for kind, _ in rows)

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
    except KeyboardInterrupt:
        print_message(
            ("\n" if sys.stderr.isatty() else "") + summary(), "bold"
        )  # the terminal shows ^C
        raise
    except BaseException:
        print_message(summary(), "bold")
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
    return _normalized(decoder) if normalize else _decoded(decoder)


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


def _decoded(decoder: Decoder) -> Decode:
    def decode(record: SampledRecord) -> Rows | Ignored:
        changes = decoder.decode(record.key, record.value, record.headers)
        return (
            changes
            if isinstance(changes, Ignored)
            else [(change.kind, change.row) for change in changes]
        )

    return decode


def _normalized(decoder: Decoder) -> Decode:
    table = FoldedTable()

    def decode(record: SampledRecord) -> Rows | Ignored:
        changes = decoder.upserts(record.key, record.value, record.headers)
        return changes if isinstance(changes, Ignored) else table.apply(changes)

    return decode
