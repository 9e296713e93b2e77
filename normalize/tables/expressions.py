"""What is computed of changes before the MERGE: columns, a condition, and the times of deletes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import ArgumentError, refuse
from cdc_formats.values.schema import backquoted, quote
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_of_row
from normalize.decode.last_changes import partial_row
from normalize.spark.plans import class_of, elements, plan_of

from .layout import in_lower
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
    of_key = in_lower(key)
    refuse(
        *(
            (
                name.lower() in of_key,
                f"select computes {name!r}, which is part of the primary key: two rows could get one "
                "key, and a delete may lack what it reads. Declare another type, or compute another "
                "column",
            )
            for name in select
        )
    )
    if where:
        with _wrong_expression(rows, "where", "a condition on its columns"):
            require_of_row(rows.where(F.expr(where)), F.expr(where), "where")
    for name, text in select.items():
        option = f"select of {name!r}"
        with _wrong_expression(rows, option, "an expression of a row"):
            require_of_row(rows, F.expr(text), option)
            computed = elements(_project(rows, text).expressions())
            leaves = (leaf for each in computed for leaf in elements(each.collectLeaves()))
            refuse(
                *(
                    (
                        function.startswith(_OF_TIME),
                        f"{option} depends on the time or the session ({function}), and a repeated "
                        "micro-batch would have another value: use the row's columns",
                    )
                    for function in map(class_of, leaves)
                )
            )


@contextmanager
def _wrong_expression(rows: DataFrame, option: str, what: str) -> Iterator[None]:
    """Raise an error of Spark's analysis as one of an option.

    Of a table whose columns are unknown, only the syntax can be checked.
    """
    try:
        yield
    except AnalysisException as error:
        if rows.columns or isinstance(error, ParseException):
            reason = str(error).strip().splitlines()[0]
            raise ArgumentError(f"{option} is not {what}: {reason}") from None


def _project(rows: DataFrame, expression: str) -> Any:
    return plan_of(rows.select(F.expr(expression))).java


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


DELETED_PROPERTY = "changelog.deleted_column"
"""The property with the column's name, of Delta and Iceberg tables that get the column here."""


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
