"""The MERGE of the last change of each key into a table: one plan, which every kind of table renders.

========================================  ==================  =====================================
policy                                    a deleted row       a change
========================================  ==================  =====================================
hard deletes                              is removed          replaces its row
soft deletes                              gets the time of    replaces its row, and clears the time
                                          its first delete
positions                                 also the position   is dropped unless its position is
                                          of its last delete  after that of its row
partial rows                                                  keeps the row's values in the columns
                                                              that it lacks; fails without a row
========================================  ==================  =====================================

A partial row lacks columns that did not change. Its column `ABSENT_COLUMN` is text with a flag for
each column of the table, in their order, and the place of the record: ``010 shop[0]@8`` lacks the
second of three columns. It is NULL for a whole row, and missing if all rows are whole.

A partial row of a key that the table does not have is an error: the table does not have the values
either.

If the key of a partial row changed, the row of the earlier key has the values (`BASE_COLUMN`). A
repeated micro-batch would find another row there, and is not applied: the table has its record.

A renderer reads the plan alone: `merge_statement` (Delta, Iceberg), `delta_rs`, and
`normalize.tables.writers.dialects` (PostgreSQL, MySQL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cdc_formats.errors import PartialImageError
from cdc_formats.values.schema import backquoted
from normalize.core.order import redelivery_condition
from normalize.core.output import ROW_KIND
from normalize.decode.last_changes import partial_row

ADDS = ("+I", "+U")
ABSENT_COLUMN = "__absent"
BASE_COLUMN = "__base"
"""The column with the earlier key of a partial row, a struct of the key's columns; NULL for a row
whose key did not change."""
_ADDED, _REMOVED = f"s.{ROW_KIND} IN {ADDS}", f"s.{ROW_KIND} NOT IN {ADDS}"
_PARTIAL = f"s.{ABSENT_COLUMN} IS NOT NULL"
Side = Literal["s", "t"]
"""The alias of the changes (source), and that of the table (target)."""


def missing_row(where: str = "") -> PartialImageError:
    """Return the error for a partial row of a key that the table does not have.

    Parameters
    ----------
    where : str
        The record.
    """
    return partial_row(
        (
            "the target does not have its key, and so cannot complete it: read the source table "
            "from a snapshot"
        ),
        where,
    )


def is_absent(index: int) -> str:
    """Return the SQL condition that a change, ``s``, lacks the column with this index.

    Examples
    --------
    >>> is_absent(1)
    "s.__absent IS NOT NULL AND substring(s.__absent, 2, 1) = '1'"
    """
    return f"s.{ABSENT_COLUMN} IS NOT NULL AND substring(s.{ABSENT_COLUMN}, {index + 1}, 1) = '1'"


class Sql(NamedTuple):
    """An SQL expression on a row ``t`` and its change ``s``.

    Attributes
    ----------
    text : str
        With ``{}`` for each column.
    columns : tuple of (str, str)
        The alias and the name of each column.
    """

    text: str
    columns: tuple[tuple[Side, str], ...] = ()

    def render(self, column: Callable[[Side, str], str]) -> str:
        """Return the text, with the columns as `column` returns them.

        Examples
        --------
        >>> Sql("{} = {}", (("t", "id"), ("s", "id"))).render(lambda of, name: f"{of}.{name}")
        't.id = s.id'
        """
        return self.text.format(*(column(*each) for each in self.columns))


class Clause(NamedTuple):
    """What happens to a row and its change.

    Attributes
    ----------
    kind : {"delete", "update", "insert"}
        The first two are for rows that have a change, the third is for changes without a row.
    when : Sql
    values : dict of str to Sql
        The new values of the columns.
    fails : Sql or None
        When the clause is an error instead: the row cannot complete the change.
    """

    kind: Literal["delete", "update", "insert"]
    when: Sql
    values: dict[str, Sql]
    fails: Sql | None = None


@dataclass(frozen=True)
class MergePlan:
    """The MERGE of one table.

    The conditions of two clauses are never both true for a row, and so clauses may be applied one
    after the other.

    Parameters
    ----------
    primary_key : tuple of str
    same : Sql
        Whether a change is one of a row.
    position : str or None
        The column that is compared (`redelivery_condition`): a redelivery has no effect on its row.
    partial : Sql
        Whether a change lacks columns.
    completed : dict of str to Sql
        The values of a change that lacks columns, with those of its row.
    clauses : tuple of Clause
    """

    primary_key: tuple[str, ...]
    same: Sql
    position: str | None
    partial: Sql
    completed: Mapping[str, Sql]
    clauses: tuple[Clause, ...]


def merge_plan(
    names: Iterable[str],
    primary_key: Sequence[str],
    *,
    deleted_column: str | None = None,
    position_column: str | None = None,
    partial_rows: bool = False,
    place: Sequence[str] = (),
) -> MergePlan:
    """Return the plan of a table.

    Parameters
    ----------
    names : iterable of str
        The columns.
    primary_key : sequence of str
    deleted_column, position_column : str or None
        As in `TableSpec`.
    partial_rows : bool
        Whether the changes have the column `ABSENT_COLUMN`.
    place : sequence of str
        The columns of which the first that is not NULL identifies a row, too: those of a version.

    Examples
    --------
    >>> [(each.kind, each.when.text) for each in merge_plan(["id", "name"], ["id"]).clauses]
    [('delete', "s.row_kind NOT IN ('+I', '+U')"), ('update', "s.row_kind IN ('+I', '+U')"), ('insert', "s.row_kind IN ('+I', '+U')")]
    """
    names = list(names)
    computed = {deleted_column, position_column}
    written, added = {name: _changed(name) for name in names}, Sql(_ADDED)
    equal = [Sql("{} = {}", (("t", name), ("s", name))) for name in primary_key]
    if place:
        first = f"coalesce({', '.join('{}' for _ in place)})"
        sides: tuple[Side, ...] = ("t", "s")
        equal.append(
            Sql(f"{first} = {first}", tuple((side, name) for side in sides for name in place))
        )
    keeps_deletes = [Clause("insert", Sql(_REMOVED), written)] if position_column else []
    lost = Sql(_PARTIAL) if partial_rows else None
    lost_in_deleted = (
        _and(Sql(_PARTIAL), Sql("{} IS NOT NULL", (("t", deleted_column),)))
        if partial_rows and deleted_column
        else None
    )
    return MergePlan(
        tuple(primary_key),
        _and(*equal),
        position_column,
        Sql(_PARTIAL),
        {
            name: Sql(f"CASE WHEN {is_absent(index)} THEN {{}} ELSE {{}} END", _both(name))
            for index, name in enumerate(names)
            if partial_rows and name not in computed
        },
        (
            _removal(deleted_column, position_column),
            Clause("update", added, written, lost_in_deleted),
            Clause("insert", added, written, lost),
            # Also a delete: the insert before it may be delivered again.
            *keeps_deletes,
        ),
    )


def _removal(deleted: str | None, position: str | None) -> Clause:
    """Return what a delete does to its row."""
    if deleted is None:
        return Clause("delete", Sql(_REMOVED), {})
    if position is None:
        # The first delete counts, also if its micro-batch is repeated.
        first = _and(Sql(_REMOVED), Sql("{} IS NULL", (("t", deleted),)))
        return Clause("update", first, {deleted: _changed(deleted)})
    times = {deleted: Sql("coalesce({}, {})", _both(deleted)), position: _changed(position)}
    return Clause("update", Sql(_REMOVED), times)


def _changed(name: str) -> Sql:
    return Sql("{}", (("s", name),))


def _both(name: str) -> tuple[tuple[Side, str], ...]:
    return ("t", name), ("s", name)


def _and(*conditions: Sql) -> Sql:
    text = " AND ".join(each.text for each in conditions)
    return Sql(text, tuple(column for each in conditions for column in each.columns))


# --------------------------------------------------------------------------------------------------
# A `MergePlan` in Spark: as ``MERGE INTO``, and as the join that returns the same rows.

RAISED = f"raise_error(concat('{missing_row()} in ', substring_index(s.{ABSENT_COLUMN}, ' ', -1)))"
"""The SQL that raises the error for a partial row of a key that the table does not have."""


class SparkSql:
    """Renders a plan in Spark's SQL, for a statement that applies all clauses to a row at once."""

    def column(self, side: Side, name: str) -> str:
        """Return a column."""
        return f"{side}.{backquoted(name)}"

    def redelivery(self, name: str) -> str:
        """Return the condition that the position of a change is not after that of its row."""
        return redelivery_condition(self.column("s", name), self.column("t", name))

    def failing(self, condition: str, value: str) -> str:
        """Return a value whose computation fails, for a change that its row cannot complete."""
        return f"CASE WHEN {condition} THEN {RAISED} ELSE {value} END"

    def clauses(self, plan: MergePlan) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield the kind, the condition and the values of each clause."""
        for clause in plan.clauses:
            when = clause.when.render(self.column)
            if plan.position is not None and clause.kind != "insert":
                when = f"NOT coalesce({self.redelivery(plan.position)}, false) AND {when}"
            # An update has the completed values of partial rows.
            completed = {} if clause.kind == "insert" else plan.completed
            values = {
                name: (completed.get(name, value) if value == _changed(name) else value).render(
                    self.column
                )
                for name, value in clause.values.items()
            }
            if clause.fails is not None:
                # In a value, since it is computed only for rows that are written.
                first = next(iter(values))
                condition = clause.fails.render(self.column)
                values[first] = self.failing(condition, values[first])
            yield clause.kind, when, values


SPARK_SQL = SparkSql()


def merge_statement(plan: MergePlan, table: str, changes: str) -> str:
    """Return the ``MERGE`` statement.

    Rows are matched by the primary key alone, so that a row whose partition column changes moves to
    its new partition.

    Parameters
    ----------
    plan : MergePlan
    table, changes : str
        The table and the view with the changes, in SQL.

    Examples
    --------
    >>> from normalize.tables.merge import merge_plan
    >>> print(merge_statement(merge_plan(["id", "name"], ["id"]), "`products`", "changes"))
    MERGE INTO `products` AS t USING changes AS s ON t.`id` = s.`id`
    WHEN MATCHED AND s.row_kind NOT IN ('+I', '+U') THEN DELETE
    WHEN MATCHED AND s.row_kind IN ('+I', '+U') THEN UPDATE SET t.`id` = s.`id`, t.`name` = s.`name`
    WHEN NOT MATCHED AND s.row_kind IN ('+I', '+U') THEN INSERT (`id`, `name`) VALUES (s.`id`, s.`name`)
    """
    lines = [
        f"MERGE INTO {table} AS t USING {changes} AS s ON {plan.same.render(SPARK_SQL.column)}"
    ]
    for kind, when, values in SPARK_SQL.clauses(plan):
        if kind == "insert":
            names = ", ".join(map(backquoted, values))
            then = f"INSERT ({names}) VALUES ({', '.join(values.values())})"
        else:
            sets = ", ".join(f"t.{backquoted(name)} = {value}" for name, value in values.items())
            then = "DELETE" if kind == "delete" else f"UPDATE SET {sets}"
        lines.append(f"WHEN {'NOT ' * (kind == 'insert')}MATCHED AND {when} THEN {then}")
    return "\n".join(lines)
