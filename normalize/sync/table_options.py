"""What a user says about single tables, and which tables are synchronized."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from cdc_formats.errors import ArgumentError, ChangelogError
from cdc_formats.values.schema import Column
from normalize.changelog_normalize import names_of
from normalize.dataframe import table_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SyncError(ChangelogError, RuntimeError):
    """A table of `sync_database` cannot be synchronized; the text names the table and the reason."""

    condition = "SYNC"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of one source table, which override what `sync_database` infers.

    Parameters
    ----------
    name : str or None
        The name of the target table, instead of the database's template.
    primary_key : str or sequence of str
        The columns that identify a row.
    schema : str or StructType or None
        All columns. Columns that the messages have in addition are new columns (`on_new_column`).
    types : mapping
        The types of some columns, as Spark DDL: ``{"price": "DECIMAL(10,2)"}``. The others are inferred.
    columns : str or sequence of str
        The columns to write; by default all. Others are ignored.
    exclude_columns : str or sequence of str
        Columns to ignore.
    where : str or None
        A SQL condition on the columns. A row for which it is not true is deleted from the target.
    deletes : {"hard", "soft"} or None
        As of `apply_changes`; None: as of the database.
    deleted_column : str or None
        The column of soft deletes; None: as of the database.
    """

    name: str | None = None
    primary_key: str | Sequence[str] = ()
    schema: str | StructType | None = None
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    columns: str | Sequence[str] = ()
    exclude_columns: str | Sequence[str] = ()
    where: str | None = None
    deletes: Literal["hard", "soft"] | None = None
    deleted_column: str | None = None

    def __post_init__(self) -> None:
        if self.columns and self.exclude_columns:
            raise ArgumentError("TableOptions has columns and exclude_columns: remove one of them")
        if self.schema is not None and self.types:
            raise ArgumentError("TableOptions has schema and types: write the types into the schema")
        for text in (self.declared, self.typed):  # raises for a type that does not exist
            _ = text
        lost = [name for name in names_of(self.primary_key) if not self.writes(name)]
        if lost:
            raise ArgumentError(f"TableOptions leaves out {lost[0]!r}, which is part of the primary key")

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns of `schema`; empty without one."""
        return () if self.schema is None else table_columns(self.schema)

    @property
    def typed(self) -> tuple[Column, ...]:
        """The columns of `types`."""
        return tuple(column for name, kind in self.types.items() for column in table_columns(f"`{name.replace('`', '``')}` {kind}"))

    def writes(self, column: str) -> bool:
        """Whether a column is written."""
        return column not in names_of(self.exclude_columns) and (not self.columns or column in names_of(self.columns))


def misspelt(tables: Collection[str], options: Collection[str]) -> dict[str, str]:
    """Return names in `options` that no table has and that are nearly the name of a table without options, with that name.

    Examples
    --------
    >>> misspelt(["shop.orders", "shop.items"], ["shop.order", "shop.items", "other"])
    {'shop.order': 'shop.orders'}
    """
    without = [table for table in tables if table not in options]
    near = {name: get_close_matches(name, without, 1, 0.85) for name in options if name not in tables}
    return {name: found[0] for name, found in near.items() if found}


@dataclass(frozen=True)
class Selection:
    """The source tables to synchronize, by regular expressions that match a whole name (``shop[.].*``)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for argument, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in patterns:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ArgumentError(f"{argument} has {pattern!r}, which is not a regular expression: {error}") from None

    def selects(self, table: str) -> bool:
        """Whether a source table is selected."""
        included = not self.include or any(re.fullmatch(pattern, table) for pattern in self.include)
        return included and not any(re.fullmatch(pattern, table) for pattern in self.exclude)
