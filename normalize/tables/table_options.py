"""What a user says about single tables, and which tables are synchronized."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, Protocol

import msgspec
from pyspark.sql.types import StructType

from cdc_formats.errors import ArgumentError, ChangelogError, SchemaError, refuse
from cdc_formats.format import Format
from cdc_formats.values.masks import folded
from cdc_formats.values.schema import Column, SqlType, quote
from normalize.arguments import check_choice, names_of, seconds_of
from normalize.dataframe import table_columns

from .expressions import COMPUTED_PROPERTY
from .layout import NO_LAYOUT, Layout, Properties

AS_IS, QUESTION = "as_is", "?"
"""What `TableOptions.types` has for a type that is right as it is inferred, and for an unanswered
question, which is an error."""
DELETED_AT = "deleted_at"
"""The default name of the column of soft deletes."""
_LEAST = {"delta": 7, "iceberg": 1}
"""The least days of a retention: Delta's default, and Iceberg's least for orphan files."""


class SyncError(ChangelogError, RuntimeError):
    """The error for a `sync_database` table that cannot be synchronized, with table and reason."""

    condition = "SYNC"


class OpenQuestionError(SyncError):
    """The error for a table with a question that the messages do not answer."""

    condition = SyncError.condition


class Maintenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Maintenance of a Delta or Iceberg table.

    Parameters
    ----------
    every : str
        The least time between two runs of a query, after whose micro-batches it happens: at first
        this long after the start.
    compact : bool
        Whether small files are written together into larger ones.
    expire : str or bool
        How long files that the table no longer has are kept: ``"7 days"``. True: as long as the
        table format keeps them by default (Delta: 7 days, Iceberg: 5 days, and 3 for files that no
        commit names), or as the table's properties say. False: nothing is removed.
    """

    every: str = "1 hour"
    compact: bool = True
    expire: str | bool = True

    def __post_init__(self) -> None:
        seconds_of("every", self.every)
        if isinstance(self.expire, str):
            seconds_of("expire", self.expire)

    def check(self, provider: str) -> None:
        """Raise an error for a retention that could remove the files of a running statement.

        Raises
        ------
        ArgumentError
        """
        # VACUUM does not refuse it: Delta 4.4 takes RETAIN 1 HOURS.
        least = _LEAST[provider]
        if isinstance(self.expire, str) and seconds_of("expire", self.expire) < least * 86400:
            raise ArgumentError(
                f"expire is {self.expire!r}, and a running MERGE or reader needs older files: pass "
                f"at least '{least} days', or expire=True and the retention in the table's property"
            )


class Verify(Protocol):
    """How a table is compared with its source while the query runs: `normalize.Verify`."""

    def verifier(self) -> Callable[[Collection[Any]], None]:
        """Return what compares tables of a query, whose jobs it gets after each micro-batch."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of one source table, or of one table merged from shards.

    They override what `sync_database` infers.

    Parameters
    ----------
    name : str or None
        The name of the target table, instead of the database's template.
    primary_key : str or sequence of str
        The columns that identify a row.
    schema : str or StructType or None
        All columns. Columns that the messages have in addition are new columns (`on_new_column`).
    types : mapping
        The types of some columns, as Spark DDL: ``{"price": "DECIMAL(10,2)"}``. The others are
        inferred. ``"as_is"`` says that the inferred type of a column is right, and no guess.
    columns : str or sequence of str
        The columns to write; by default all. Others are ignored.
    exclude_columns : str or sequence of str
        Columns to ignore.
    where : str or None
        A SQL condition on the columns. A row for which it is not true is deleted from the target.
    select : mapping
        Computed columns, as Spark's SQL on the decoded row: ``{"name": "upper(name)", "total":
        "price * quantity"}``. Other columns stay as they are. No column of the primary key.
    shards : str or None
        A regular expression for the names of the source tables that are merged into this one:
        ``"shop_[0-9]+[.]orders"``. A key must be in one of them only, unless there is a
        `shard_column`.
    shard_column : str or None
        The column with the name of the source table, which becomes part of the primary key.
    deletes : {"hard", "soft"} or None
        Same as `apply_changes`; None: as of the database.
    deleted_column : str or None
        The column of soft deletes; None: as of the database.
    scd_type : {1, 2} or None
        2 keeps every version of a row, as in `apply_changes`; None: as of the database.
    track_history : str or sequence of str
        The columns of which a change makes a version of a history, as in `apply_changes`; by
        default all.
    position_column : str or None
        A BINARY column for the position of each row's last change, also of its delete (`deletes`
        must be ``soft``). A change that was delivered before it never replaces the row, in any
        micro-batch. The position is that in the source's log. Formats without one (Canal, DMS,
        upsert-kafka) have the offset in the topic, which an event that the producer delivers again
        does not share.
    partition_by : str or sequence of str
        What a new Delta or Iceberg table is partitioned by: columns, ``year(x)``, ``month(x)``,
        ``day(x)``, ``hour(x)``; of Iceberg also ``bucket(16, x)`` and ``truncate(4, x)``. In Delta,
        ``day(x)`` is a generated column ``x_day``, and delta-rs does not write the table. None of
        the layout's options changes a table that exists: a warning has the statement.
    cluster_by : str or sequence of str
        The columns by which rows are near each other: liquid clustering of Delta, which delta-rs
        does not write; the sort order of Iceberg, which every write then pays for.
    properties : mapping
        Properties of a new table, such as ``{"delta.enableDeletionVectors": True}``.
    maintenance : Maintenance or None
        The query compacts the Delta or Iceberg table at an interval, and removes old files; None:
        as of the database.
    verify : Verify or None
        The query compares the table with its source table, a part after each micro-batch; None: as
        of the database.
    """

    name: str | None = None
    primary_key: str | Sequence[str] = ()
    schema: str | StructType | None = None
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    columns: str | Sequence[str] = ()
    exclude_columns: str | Sequence[str] = ()
    where: str | None = None
    shards: str | None = None
    shard_column: str | None = None
    deletes: Literal["hard", "soft"] | None = None
    deleted_column: str | None = None
    scd_type: Literal[1, 2] | None = None
    track_history: str | Sequence[str] = ()
    position_column: str | None = None
    partition_by: str | Sequence[str] = ()
    cluster_by: str | Sequence[str] = ()
    properties: Properties = field(default_factory=dict, hash=False)
    maintenance: Maintenance | None = None
    verify: Verify | None = field(default=None, hash=False)
    select: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise an error for options that no table can have.

        Raises
        ------
        ArgumentError, SchemaError
        """
        Layout.of(self.partition_by, self.cluster_by, self.properties)
        refuse(
            (
                self.columns and self.exclude_columns,
                "TableOptions has columns and exclude_columns: remove one of them",
            ),
            (
                self.schema is not None and self.types,
                "TableOptions has schema and types: write the types into the schema",
            ),
            (
                self.shard_column is not None and self.shards is None,
                "TableOptions has shard_column without shards: pass shards=..., or remove it",
            ),
            *(
                (
                    kind == QUESTION,
                    f"TableOptions has no answer for the type of {name!r}: write its type in place "
                    f"of {QUESTION}, or {AS_IS}",
                )
                for name, kind in self.types.items()
            ),
        )
        for columns in (self.declared, self.typed):  # raises for a type that does not exist
            require_distinct_names(column.name for column in columns)
        roles = {
            "part of the primary key": self.primary_key,
            "one of track_history": self.track_history,
        }
        refuse(
            *(
                (not self.writes(name), f"TableOptions leaves out {name!r}, which is {role}")
                for role, names in roles.items()
                for name in names_of(names)
            )
        )

    @property
    def layout(self) -> Layout:
        """The layout of the table that is created."""
        return Layout.of(self.partition_by, self.cluster_by, self.properties)

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns of `schema`; empty without one."""
        return () if self.schema is None else table_columns(self.schema)

    @property
    def typed(self) -> tuple[Column, ...]:
        """The columns of `types`."""
        return tuple(
            column
            for name, kind in self.types.items()
            if kind != AS_IS
            for column in table_columns(f"`{name.replace('`', '``')}` {kind}")
        )

    def check_types(self, format: Format) -> None:
        """Raise an error if the format's options are not enough for the user's types.

        Raises
        ------
        SchemaError
        """
        columns = self.declared or self.typed
        names = {column.name for column in columns}
        key = tuple(name for name in names_of(self.primary_key) if name in names)
        if columns and (key or not format.traits.reads_tombstones):  # some formats need a key
            format.check(columns, key)

    def decides(self, column: str) -> bool:
        """Whether the user has decided the type of a column, or that it is not written."""
        return self.schema is not None or column in self.types or not self.writes(column)

    def writes(self, column: str) -> bool:
        """Whether a column is written."""
        return column not in names_of(self.exclude_columns) and (
            not self.columns or column in names_of(self.columns)
        )


@dataclass(frozen=True, kw_only=True)
class TablePolicy(TableOptions):
    """How a table is kept: as its options say, and else as its database's.

    Parameters
    ----------
    deleted_column : str or None
        None for hard deletes.
    deletes, scd_type, track_history
        Never None, and a tuple.
    database_layout : Layout
        The layout of the new tables whose options say nothing else.
    """

    deletes: Literal["hard", "soft"] = "hard"
    scd_type: Literal[1, 2] = 1
    track_history: tuple[str, ...] = ()
    database_layout: Layout = NO_LAYOUT

    @classmethod
    def of(cls, options: TableOptions, database: TableOptions | None = None) -> TablePolicy:
        """Return how a table with these options is kept.

        Parameters
        ----------
        options : TableOptions
        database : TableOptions or None
            What the tables of its database have by default.

        Raises
        ------
        ArgumentError
            When an option is unknown or has no effect, or two cannot be combined.
        """
        default = database or TableOptions()
        deletes = (default.deletes or "hard") if options.deletes is None else options.deletes
        name, scd_type = options.deleted_column, options.scd_type
        check_choice("deletes", deletes, ("hard", "soft"))
        if deletes == "hard" and name not in (None, DELETED_AT):
            raise ArgumentError(
                "deleted_column has no effect with hard deletes: remove it, or pass deletes='soft'"
            )
        own = {each.name: getattr(options, each.name) for each in fields(TableOptions)}
        decided = {
            "deletes": deletes,
            "deleted_column": (name or default.deleted_column or DELETED_AT)
            if deletes == "soft"
            else None,
            "scd_type": (default.scd_type or 1) if scd_type is None else scd_type,
            "track_history": names_of(options.track_history, "track_history"),
            "maintenance": options.maintenance or default.maintenance,
            "verify": options.verify or default.verify,
        }
        return cls(**(own | decided), database_layout=default.layout)

    def check(self) -> None:
        """Raise an error for an unknown option, and for two that cannot be combined.

        Raises
        ------
        ArgumentError
        """
        super().check()
        history, deleted, position = self.is_history, self.deleted_column, self.position_column
        has_position = position is not None
        refuse(
            (self.scd_type not in (1, 2), f"scd_type={self.scd_type!r} is unknown: pass 1 or 2"),
            (
                history and deleted is not None,
                "scd_type=2 and deletes='soft' cannot be combined: remove one of them",
            ),
            (
                self.track_history and not history,
                "track_history requires scd_type=2: pass it too, or remove track_history",
            ),
            (
                has_position and history,
                "scd_type=2 and position_column cannot be combined, since a history has a row for "
                "each change: remove one of them",
            ),
            (
                has_position and deleted is None,
                "position_column requires deletes='soft', which keeps the positions of deleted "
                "rows: pass both, or remove it",
            ),
            (
                has_position and self.where is not None,
                "where and position_column cannot be combined, since a row that does not match has "
                "no position: write the condition into a view",
            ),
            (
                has_position and (position or "").lower() == (deleted or "").lower(),
                f"deleted_column and position_column are both {position!r}: pass another name",
            ),
        )

    def layout_of(self, columns: Collection[str]) -> Layout:
        """Return the layout of a table with these columns, if it is created."""
        layout = self.layout.or_of(self.database_layout, columns)
        computed = [(COMPUTED_PROPERTY, json.dumps([*self.select]))] if self.select else []
        return replace(layout, properties=(*layout.properties, *computed))

    @property
    def is_computed(self) -> bool:
        """Whether Spark computes which rows the table has, or columns of them."""
        return self.where is not None or bool(self.select)

    @property
    def is_history(self) -> bool:
        """Whether the table has a row for each version of a row."""
        return self.scd_type == 2

    @property
    def shard(self) -> Column | None:
        """The column with the name of a row's source table, if it is part of the key."""
        name = self.shard_column
        return None if name is None else Column(name, SqlType("STRING"), nullable=False)

    @property
    def facts(self) -> dict[str, str]:
        """What decides which rows the table has (`TableFacts.options`)."""
        return {
            "where": " ".join((self.where or "").split()),
            "deleted_column": self.deleted_column or "",
            "shard_column": self.shard_column or "",
            **({"select": json.dumps(dict(self.select))} if self.select else {}),
        }


@contextmanager
def wrong_options(argument: str) -> Iterator[None]:
    """Raise an error of the block as one of an argument.

    Raises
    ------
    ArgumentError
    """
    try:
        yield
    except (ArgumentError, SchemaError, SyncError) as error:
        raise ArgumentError(f"{argument} has wrong options: {error.args[0]}") from None


def require_distinct_names(names: Iterable[str]) -> None:
    """Raise an error for two columns whose names are equal, ignoring case.

    Raises
    ------
    SchemaError
    """
    listed = list(names)
    lower = [name.lower() for name in listed]
    twice = [name for name in listed if lower.count(name.lower()) > 1]
    if twice:
        raise SchemaError(
            f"columns {' and '.join(map(quote, twice))} differ in case alone, and Spark ignores "
            "case: leave one of them out"
        )


def misspelt(tables: Collection[str], options: Collection[str]) -> dict[str, str]:
    """Return names in `options` that no table has, each with a similar table name without options.

    Examples
    --------
    >>> misspelt(["shop.orders", "shop.items"], ["shop.order", "shop.items", "other"])
    {'shop.order': 'shop.orders'}
    """
    without = {without_quotes(table): table for table in tables if table not in options}
    near = {
        name: get_close_matches(without_quotes(name), without, 1, 0.85)
        for name in options
        if name not in tables
    }
    return {name: without[similar[0]] for name, similar in near.items() if similar}


def without_quotes(name: str) -> str:
    """Return text that is equal for names that differ only in quotes or case.

    Examples
    --------
    >>> without_quotes("`SHOP.ORDERS`") == without_quotes("shop.orders")
    True
    """
    return folded(re.sub('[`"]', "", name))


@dataclass(frozen=True)
class Selection:
    """The source tables to synchronize, by regular expressions for whole names (``shop[.].*``)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shards: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The pattern of the source tables of each merged table."""

    def __post_init__(self) -> None:
        for argument, patterns in (
            ("include", self.include),
            ("exclude", self.exclude),
            ("shards", self.shards.values()),
        ):
            for pattern in patterns:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ArgumentError(
                        f"{argument} has {pattern!r}, which is not a regular expression: {error}"
                    ) from None

    @classmethod
    def of(
        cls, include: tuple[str, ...], exclude: tuple[str, ...], tables: Mapping[str, TableOptions]
    ) -> Selection:
        """Return the selection with the shards of these tables.

        Raises
        ------
        ArgumentError
            When a pattern is not a regular expression, or a shard has options of its own.
        """
        selection = cls(
            include,
            exclude,
            {
                name: options.shards
                for name, options in tables.items()
                if options.shards is not None
            },
        )
        for name in tables:
            merged = selection.merged(name)
            if merged != name:
                raise ArgumentError(
                    f"tables has options for {name!r}, which is a shard of {merged!r}: write them "
                    "there"
                )
        return selection

    def merged(self, table: str) -> str:
        """Return the merged table of a source table; the source table itself if it is not a shard.

        Raises
        ------
        ArgumentError
            When it is a shard of two tables.
        """
        names = [name for name, pattern in self.shards.items() if re.fullmatch(pattern, table)]
        if len(names) > 1:
            raise ArgumentError(
                f"the source table {table!r} matches the shards of {names[0]!r} and of "
                f"{names[1]!r}: change one of them"
            )
        return names[0] if names else table

    def target(self, table: str) -> str:
        """Return the merged table of a source table that a message names.

        Raises
        ------
        ArgumentError
            As `merged`, and when a source table has the name of a merged table that it is not a
            shard of.
        """
        merged = self.merged(table)
        if merged == table and table in self.shards and not re.fullmatch(self.shards[table], table):
            raise ArgumentError(
                f"tables= merges shards into {table!r}, which is a source table too: let shards "
                "match it, or rename the entry"
            )
        return merged

    def selects(self, table: str) -> bool:
        """Whether a source table is selected."""
        included = not self.include or any(re.fullmatch(pattern, table) for pattern in self.include)
        return included and not any(re.fullmatch(pattern, table) for pattern in self.exclude)
