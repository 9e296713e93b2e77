"""Computed columns and the condition of a table: Spark's SQL on the decoded rows.

They are checked when the query starts (`check_expressions`), and applied behind the decoding and
before the MERGE (`selected`). Only the row decides: a repeated micro-batch has the same values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import quote
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_of_row
from normalize.decode.last_changes import partial_row
from normalize.spark.plans import class_of, elements, plan_of

from .merge import ABSENT_COLUMN, ADDS, BASE_COLUMN, is_absent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

COMPUTED_PROPERTY = "changelog.computed_columns"
"""The property of Delta and Iceberg tables with the names of the computed columns, as JSON. A
database's table has it as its comment."""
_OF_TIME = ("Current", "Now", "LocalTime")
"""How the classes of Spark's functions begin whose value depends on the time or the session."""


def computed_property(select: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the property of a table with computed columns; empty without one."""
    return ((COMPUTED_PROPERTY, json.dumps([*select])),) if select else ()


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
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

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
