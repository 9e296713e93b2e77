"""The ``from_kafka_changelog`` call for a table; unknown facts become comments, never guesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from cdc_formats.changelog_mode import ChangelogMode
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.printable import printable
from cdc_formats.row_kind import RowKind

from .facts import Positions
from .tables import TableProfile

_SERVERS = "localhost:9092"
_SECRET = "..."
_COMMENT = 74  # with its indentation, it fits a terminal of 80 columns


def call_text(
    topic: str,
    servers: str,
    connection: Sequence[str],
    format: Format,
    table: TableProfile,
    notes: Sequence[str] = (),
) -> str:
    """Return the call that reads a table, as Python text that expects a session named ``spark``.

    Parameters
    ----------
    topic, servers : str
    connection : sequence of str
        The names of the Kafka client's options; their values are not shown.
    format : Format
    table : TableProfile
        A table with a schema.
    notes : sequence of str
        Notes on the topic; those on the table are added.
    """
    comments = [*notes, *_table_notes(format, table)]
    if connection:
        comments.append(
            "options: add Spark's kafka.* options that match the sample's client: "
            f"{', '.join(sorted(connection))}"
        )
    if _SECRET in table.options.values():
        comments.append('format_options: replace "..." with the secret')
    return "\n".join(
        [
            "from normalize import from_kafka_changelog",
            "",
            *(
                f"# {line}"
                for note in comments
                for line in wrap(printable(note), _COMMENT, break_on_hyphens=False)
            ),
            "changes = from_kafka_changelog(",
            *(
                f"    {line}"
                for line in _arguments(topic, servers or _SERVERS, format.identifier, table)
            ),
            ")",
        ]
    )


def _arguments(topic: str, servers: str, identifier: str, table: TableProfile) -> Iterator[str]:
    yield "spark,"
    yield f"{literal(topic)},"
    yield f"format={literal(identifier)},"
    if table.options:
        yield f"format_options={_mapping(table.options)},"
    yield from _schema(table)
    if table.primary_key:
        yield f"primary_key=[{', '.join(map(literal, table.primary_key))}],"
    else:
        yield "normalize=False,"
    yield f"options={_mapping({'kafka.bootstrap.servers': servers})},"


def _schema(table: TableProfile) -> Iterator[str]:
    columns = [str(column) for column in table.schema.columns] if table.schema else []
    yield "schema=("
    for number, column in enumerate(columns, 1):
        yield f"    {literal(column + (', ' if number < len(columns) else ''))}"
    yield "),"


def literal(value: Any) -> str:
    """Return a value as Python text: one line, control characters escaped.

    Examples
    --------
    >>> print(literal("a 'b'"), literal('say "hi"'), literal(True))
    "a 'b'" 'say "hi"' True
    """
    if not isinstance(value, str):
        return printable(repr(value))
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text and "\\'" not in text else text


def _mapping(values: Mapping[str, Any]) -> str:
    return (
        "{"
        + ", ".join(f"{literal(name)}: {literal(value)}" for name, value in values.items())
        + "}"
    )


def _table_notes(format: Format, table: TableProfile) -> Iterator[str]:
    if not table.primary_key:
        yield _without_key(format)
        has_updates = format.reads_key and format.changelog_mode.contains(RowKind.UPDATE_BEFORE)
        if has_updates and table.before.updates > table.before.updates_with:
            yield (
                "an update of a table without a key does not identify the replaced row and is an "
                "error: see mode"
            )
    if table.schema is None:
        return
    yield from (f"{', '.join(names)}: {note}" for note, names in table.schema.noted_columns.items())
    guessed = [each.column.name for each in table.schema.evidence if not each.source_type]
    if guessed:
        yield (
            "types guessed from the sample's values; other values may not fit: "
            f"{', '.join(guessed)}"
        )
    yield from table.schema.notes


def _without_key(format: Format) -> str:
    if format.changelog_mode == ChangelogMode.all():
        return (
            "no primary key is known: rows pass unchanged. Pass primary_key=[...] to remove "
            "duplicates"
        )
    return f"no primary key is known, and {format.identifier} needs one: pass primary_key=[...]"


def topic_notes(ignored: Mapping[str, int], corrupt: int, positions: Positions) -> Iterator[str]:
    """Return notes on decisions that a reader of the topic has to make.

    Parameters
    ----------
    ignored : mapping
        The number of records without rows, by reason.
    corrupt : int
        The number of unreadable records.
    positions : Positions
    """
    if corrupt:
        yield (
            f"{corrupt} records of the sample cannot be read and would fail the query: see "
            "mode='PERMISSIVE' and mode=DeadLetter(...)"
        )
    if truncated := ignored.get(Ignored.TRUNCATE.value):
        yield (
            f"{truncated} records of the sample truncate the table, which fails the query: see "
            "on_truncate and control_events"
        )
    if positions.placed and not positions.unplaced and positions.redelivered:
        drops = "normalize=ChangelogNormalize(order='source') drops them (it requires primary_key)"
        yield f"{positions.redelivered} events of the sample are redeliveries: {drops}"
