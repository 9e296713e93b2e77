"""How a table is kept: deletes, versions, layout, maintenance, and expressions on its rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import Column, SqlType, backquoted, quote
from normalize.arguments import seconds_of
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_of_row
from normalize.decode.last_changes import partial_row
from normalize.spark.plans import class_of, elements, plan_of

from .layout import NO_LAYOUT, Layout
from .merge import ABSENT_COLUMN, ADDS, BASE_COLUMN, is_absent

# --------------------------------------------------------------------------------------------------
# Computed columns and the condition of a table: Spark's SQL on the decoded rows.
#
# They are checked when the query starts (`check_expressions`), and applied behind the decoding and
# before the MERGE (`selected`). Only the row decides: a repeated micro-batch has the same values.

COMPUTED_PROPERTY = "changelog.computed_columns"
"""The property of Delta and Iceberg tables with the names of the computed columns, as JSON. A
database's table has it as its comment."""
_OF_TIME = ("Current", "Now", "LocalTime")
"""How the classes of Spark's functions begin whose value depends on the time or the session."""


def computed_comment(properties: Mapping[str, str]) -> str:
    """Return the comment of a database's table with computed columns; empty without one.

    Examples
    --------
    >>> comment = computed_comment({"changelog.computed_columns": '["Total"]'})
    >>> comment, sorted(columns_of_comment(comment)), columns_of_comment("orders")
    ('changelog.computed_columns=["Total"]', ['total'], frozenset())
    """
    names = properties.get(COMPUTED_PROPERTY)
    return f"{COMPUTED_PROPERTY}={names}" if names else ""


def columns_of_comment(comment: str) -> frozenset[str]:
    """Return the computed columns that a `computed_comment` names, in lower case."""
    prefix = f"{COMPUTED_PROPERTY}="
    return computed_columns(comment.removeprefix(prefix) if comment.startswith(prefix) else "[]")


def computed_columns(names: str) -> frozenset[str]:
    """Return the columns that the property names, in lower case."""
    return frozenset(map(str.lower, json.loads(names)))


def check_expressions(
    rows: DataFrame, where: str | None, select: Mapping[str, str], key: Collection[str]
) -> None:
    """Raise an error for an expression that cannot be computed from a row.

    Parameters
    ----------
    rows : DataFrame
        Without rows; without columns if they are unknown, when only the syntax is checked.
    where : str or None
    select : mapping
    key : collection of str
        The primary key.

    Raises
    ------
    ArgumentError
    """
    for name in select:
        if name.lower() in {each.lower() for each in key}:
            raise ArgumentError(
                f"select computes {name!r}, which is part of the primary key: two rows could get one "
                "key, and a delete may lack what it reads. Declare another type, or compute another "
                "column"
            )
    named = {f"select of {name!r}": text for name, text in select.items()}
    for option, text in (*([("where", where)] if where else ()), *named.items()):
        try:
            if option == "where":
                rows = rows.where(F.expr(text))
            require_of_row(rows, F.expr(text), option)
            of_time = [] if option == "where" else [*_leaves_of_time(rows, text)]
        except AnalysisException as error:
            # Of a table whose columns are unknown, only the syntax can be checked.
            if rows.columns or isinstance(error, ParseException):
                what = (
                    "a condition on its columns" if option == "where" else "an expression of a row"
                )
                reason = str(error).strip().splitlines()[0]
                raise ArgumentError(f"{option} is not {what}: {reason}") from None
            continue
        if of_time:
            raise ArgumentError(
                f"{option} depends on the time or the session ({of_time[0]}), and a repeated "
                "micro-batch would have another value: use the row's columns"
            )


def _project(rows: DataFrame, expression: str) -> Any:
    return plan_of(rows.select(F.expr(expression))).java


def _leaves_of_time(rows: DataFrame, expression: str) -> Iterator[str]:
    for each in elements(_project(rows, expression).expressions()):
        for leaf in elements(each.collectLeaves()):
            name = class_of(leaf)
            if name.startswith(_OF_TIME):
                yield name


def selected(changes: DataFrame, where: str | None, select: Mapping[str, str]) -> DataFrame:
    """Return the changes of the rows that the table has, with computed columns.

    Parameters
    ----------
    changes : DataFrame
    where : str or None
        As in ChangelogNormalize: a row that no longer matches is deleted.
    select : mapping
        The expressions, of the decoded row.

    Raises
    ------
    PartialImageError
        For a partial row without a column that an expression reads.
    """
    if ABSENT_COLUMN in changes.columns:
        for option, text in (*([("where", where)] if where else ()), *select.items()):
            _require_columns_of(option, text, changes)
    spelled = {name.lower(): name for name in changes.columns}
    columns = {spelled.get(name.lower(), name): F.expr(text) for name, text in select.items()}
    if where is not None:
        kept = F.col(ROW_KIND).isin(*ADDS) & F.coalesce(F.expr(where), F.lit(False))
        columns[ROW_KIND] = F.when(kept, "+U").otherwise("-D")
    return changes.withColumns(columns) if columns else changes


def computed_fields(
    changes: DataFrame, fields: Sequence[StructField], select: Mapping[str, str]
) -> tuple[StructField, ...]:
    """Return the fields with those of computed columns, as `selected` returns them."""
    computed = {name.lower(): name for name in select}
    replaced = [
        changes.schema[field.name] if computed.pop(field.name.lower(), "") else field
        for field in fields
    ]
    return (*replaced, *(changes.schema[name] for name in computed.values()))


def _require_columns_of(option: str, expression: str, changes: DataFrame) -> None:
    """Raise an error for a partial row without a column that an expression reads.

    The table may not have the row, or has it for another expression. A column that is computed from
    itself alone keeps the table's value.
    """
    references = _project(changes, expression).references().toSeq()
    read = {attribute.name() for attribute in elements(references)}
    if {name.lower() for name in read} == {option.lower()}:
        return
    names = [name for name in changes.columns if name not in (ROW_KIND, ABSENT_COLUMN, BASE_COLUMN)]
    for index, name in enumerate(names):
        lost = (
            changes.alias("s").where(F.col(ROW_KIND).isin(*ADDS)).where(is_absent(index)).first()
            if name in read
            else None
        )
        if lost is not None:
            what = option if option == "where" else f"select of {option!r}"
            raise partial_row(
                f"{what} reads its column {quote(name)}: use another expression",
                lost[ABSENT_COLUMN].split()[1],
            )


DELETED_AT = "deleted_at"
"""The default name of the column of soft deletes."""
DELETED_PROPERTY = "changelog.deleted_column"
"""The property with the column's name, of Delta and Iceberg tables that get the column here."""


_LEAST = {"delta": 7, "iceberg": 1}
"""The least days of a retention: Delta's default, and Iceberg's least for orphan files."""


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


@dataclass(frozen=True)
class TablePolicy:
    """How a table is kept.

    Parameters
    ----------
    deleted_column : str or None
        The TIMESTAMP column with the time of a soft delete; None for hard deletes.
    scd_type : {1, 2}
        1: the table has the rows of the source. 2: it is a history, with a row for each version.
    track_history : tuple of str
        The columns of which a change makes a version of a history; empty for all.
    position_column : str or None
        The BINARY column with the position of a row's last change, before which no change applies.
    where : str or None
        The condition of the rows that the table has.
    shards : str or None
        The pattern of the source tables that are merged into it.
    shard_column : str or None
        The column with the name of the source table, which is part of the key.
    layout, database_layout : Layout
        Of the table if it is created, and of those tables of its database that say nothing else.
    maintenance : Maintenance or None
    select : mapping
        The expressions of computed columns.

    Raises
    ------
    ArgumentError
        When a value is unknown, or two cannot be combined.
    """

    deleted_column: str | None = None
    scd_type: int = 1
    track_history: tuple[str, ...] = ()
    position_column: str | None = None
    where: str | None = None
    shards: str | None = None
    shard_column: str | None = None
    layout: Layout = NO_LAYOUT
    database_layout: Layout = NO_LAYOUT
    maintenance: Maintenance | None = None
    select: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        name, history = self.position_column, self.scd_type == 2
        deleted = self.deleted_column
        with_position = {
            (
                "scd_type=2 and position_column cannot be combined, since a history has a row for "
                "each change: remove one of them"
            ): history,
            (
                "position_column requires deletes='soft', which keeps the positions of deleted "
                "rows: pass both, or remove it"
            ): deleted is None,
            "where and position_column cannot be combined, since a row that does not match has no "
            "position: write the condition into a view": self.where is not None,
            f"deleted_column and position_column are both {name!r}: pass another name": str(
                name
            ).lower()
            == (deleted or "").lower(),
        }
        wrong = {
            f"scd_type={self.scd_type!r} is unknown: pass 1 or 2": self.scd_type not in (1, 2),
            "scd_type=2 and deletes='soft' cannot be combined: remove one of them": history
            and deleted is not None,
            "track_history requires scd_type=2: pass it too, or remove track_history": not history
            and self.track_history,
            **{text: name is not None and each for text, each in with_position.items()},
        }
        for text, is_wrong in wrong.items():
            if is_wrong:
                raise ArgumentError(text)

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


def soft_delete_column(deletes: str, deleted_column: str) -> str | None:
    """Return the column of soft deletes, or None for hard deletes.

    Raises
    ------
    ArgumentError
        When `deletes` is unknown, or `deleted_column` has no effect.
    """
    if deletes not in ("hard", "soft"):
        raise ArgumentError(f"deletes={deletes!r} is unknown: pass 'hard' or 'soft'")
    if deletes == "hard" and deleted_column != DELETED_AT:
        raise ArgumentError(
            "deleted_column has no effect with hard deletes: remove it, or pass deletes='soft'"
        )
    return deleted_column if deletes == "soft" else None


def with_deletion_times(changes: DataFrame, name: str, time_column: str | None = None) -> DataFrame:
    """Return changes with the column, which is NULL in rows that are not deleted.

    Parameters
    ----------
    changes : DataFrame
        With ``row_kind``.
    name : str
        The name of the new column.
    time_column : str or None
        The TIMESTAMP column with the time of a change; None for the time at which the changes are
        applied.
    """
    time = F.current_timestamp() if time_column is None else F.col(backquoted(time_column))
    return changes.withColumn(name, F.when(~F.col(ROW_KIND).isin(*ADDS), time))


def with_arrow_deletion_times(changes: pa.Table, name: str) -> pa.Table:
    """Return the same for Arrow's columns, with the time at which the changes are applied."""
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", "UTC"))
    added = pc.is_in(changes.column(ROW_KIND), pa.array(ADDS))
    return changes.append_column(name, pc.if_else(added, pa.scalar(None, now.type), now))
