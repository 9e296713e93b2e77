"""The history of one key: its changes, with the changed columns marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions as F

from cdc_formats.errors import ArgumentError, printable
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_changelog

if TYPE_CHECKING:
    import pandas as pd

METADATA = ("topic", "partition", "offset", "timestamp", "timestamp-type", "headers", "header-list")
"""Columns that describe the record, not the row; as do those with a dot in their name
(``source.timestamp``)."""
KIND_COLORS = {"+I": "#2e9e5b", "-U": "#d9a62e", "+U": "#3b7dd8", "-D": "#d64550"}
"""The colors of row kinds, readable on light and dark backgrounds."""
_CELL = "padding:2px 10px;text-align:left;white-space:nowrap"
_LONG_CELL = (
    "padding:2px "
    "10px;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;min-width:20em;max-width:40em"
)
_LONG_TEXT, _MOST_TEXT = 40, 200


@dataclass(frozen=True)
class History:
    """One key's changes in order; a notebook shows them as a table with changed columns marked.

    Attributes
    ----------
    key : dict
    columns : tuple of str
        ``row_kind`` and the columns of `changes`.
    changes : tuple of tuple
        A row for each change, ``row_kind`` first.
    """

    key: dict[str, Any]
    columns: tuple[str, ...]
    changes: tuple[tuple[Any, ...], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """The changes as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.changes, columns=list(self.columns), dtype=object)

    def changed(self) -> Iterator[set[str]]:
        """Yield for each change the columns, without metadata, that differ from the one before."""
        last: tuple[Any, ...] | None = None
        for row in self.changes:
            yield {
                name
                for name, value, old in zip(self.columns, row, last or row, strict=True)
                if _differs(name, value, old)
            }
            last = row

    def __str__(self) -> str:
        lines = [f"{_key_text(self.key)}: {len(self.changes)} changes"]
        for row, changed in zip(self.changes, self.changed(), strict=True):
            values = zip(self.columns[1:], row[1:], strict=True)
            lines.append(
                f"{row[0]} "
                + ", ".join(
                    f"{'*' if name in changed else ''}{printable(name)}={_text(v)}"
                    for name, v in values
                )
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th style="{_CELL}">{escape(printable(name))}</th>' for name in self.columns
        )
        body = "".join(
            self._html_row(row, changed)
            for row, changed in zip(self.changes, self.changed(), strict=True)
        )
        caption = (
            f"<caption style='text-align:left'>{escape(_key_text(self.key))}: {len(self.changes)} "
            "changes</caption>"
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _html_row(self, row: tuple[Any, ...], changed: set[str]) -> str:
        color = KIND_COLORS.get(str(row[0]), "inherit")
        cells = [f'<td style="{_CELL};font-weight:bold;color:{color}">{escape(_text(row[0]))}</td>']
        for name, value in zip(self.columns[1:], row[1:], strict=True):
            text, mark = (
                _text(value),
                f";background:{color}33;font-weight:bold" if name in changed else "",
            )
            cells.append(
                "<td "
                f'style="{_LONG_CELL if len(text) > _LONG_TEXT else _CELL}{mark}">{escape(text)}</td>'
            )
        return f"<tr>{''.join(cells)}</tr>"


def history(changes: DataFrame, key: Mapping[str, Any]) -> History:
    """Return the history of one key.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog (``from_kafka_changelog(..., bounded=True)``);
        ``metadata=["timestamp", "offset"]`` adds times and offsets.
    key : mapping
        The values of the primary key's columns: ``{"id": 106}``.

    Raises
    ------
    ArgumentError
        When the key has a column that the changelog lacks, or the changelog is a stream.
    """
    require_bounded(changes)
    require_columns(changes, list(key))
    if not key:
        raise ArgumentError(
            "key is empty: pass the primary key's columns and their values, {'id': 106}"
        )
    of_key = changes
    for name, value in key.items():
        of_key = of_key.where(F.col(backquoted(name)).eqNullSafe(F.lit(value)))
    rows = of_key.collect()
    return History(dict(key), tuple(changes.columns), tuple(tuple(row) for row in rows))


def require_bounded(changes: DataFrame) -> None:
    """Raise an error for a DataFrame that is not a changelog, and for a stream.

    Raises
    ------
    ArgumentError
    """
    require_changelog(changes)
    if changes.isStreaming:
        raise ArgumentError("the changelog is a stream: read it with bounded=True")


def require_columns(changes: DataFrame, names: Sequence[str]) -> None:
    """Raise an error for names that are not columns of the changelog.

    Raises
    ------
    ArgumentError
    """
    missing = [name for name in names if name not in changes.columns]
    if missing:
        raise ArgumentError(
            f"the changelog has no column {missing[0]!r}; it has {', '.join(changes.columns)}"
        )


def _differs(name: str, value: Any, old: Any) -> bool:
    about_the_record = name == ROW_KIND or name in METADATA or "." in name
    return not about_the_record and value != old


def _key_text(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{printable(name)} = {_text(value)}" for name, value in key.items())


def _text(value: Any) -> str:
    text = (
        "NULL"
        if value is None
        else value.hex()
        if isinstance(value, bytes | bytearray)
        else str(value)
    )
    return printable(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…")
