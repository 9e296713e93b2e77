"""A `MergePlan` in Spark: as ``MERGE INTO``, and as the join that returns the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_formats.values.schema import backquoted
from normalize.core.stored_position import redelivery_condition
from normalize.tables.merge import ABSENT_COLUMN, MergePlan, OneStatement, Side, missing_row

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame
    from pyspark.sql.types import StructField

RAISED = f"raise_error(concat('{missing_row()} in ', substring_index(s.{ABSENT_COLUMN}, ' ', -1)))"
"""The SQL that raises the error for a partial row of a key that the table does not have."""


class SparkSql(OneStatement):
    """Spark's SQL."""

    def column(self, side: Side, name: str) -> str:
        return f"{side}.{backquoted(name)}"

    def redelivery(self, name: str) -> str:
        return redelivery_condition(self.column("s", name), self.column("t", name))

    def failing(self, condition: str, value: str) -> str:
        return f"CASE WHEN {condition} THEN {RAISED} ELSE {value} END"


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


def merged_rows(plan: MergePlan, stored: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the rows that a table has after the MERGE.

    Parameters
    ----------
    plan : MergePlan
    stored, changes : DataFrame
        The table's rows before, and the last change of each key.
    """
    from pyspark.sql import functions as F

    stored, changes = stored.alias("t"), changes.alias("s")
    same = F.expr(plan.same.render(SPARK_SQL.column))
    clauses = SPARK_SQL.clauses(plan)

    def written(field: StructField, values: dict[str, str]) -> SparkColumn | None:
        by_name = {name.lower(): value for name, value in values.items()}
        value = by_name.get(field.name.lower())
        return None if value is None else F.expr(value).cast(field.dataType)

    joined, columns = stored.join(changes, same, "left"), []
    for field in stored.schema.fields:
        column = F.col(f"t.{backquoted(field.name)}")
        for clause in clauses:
            value = written(field, clause.values)
            if clause.kind == "update" and value is not None:
                column = F.when(F.expr(clause.when), value).otherwise(column)
        columns.append(column.alias(field.name))
    for clause in clauses:
        if clause.kind == "delete":
            joined = joined.where(f"NOT coalesce({clause.when}, false)")
    rows = joined.select(*columns)
    without_row = changes.join(
        stored.join(changes, same, "left_semi").alias("t"), same, "left_anti"
    )
    for clause in clauses:
        if clause.kind == "insert":
            values = [
                (F.lit(None) if (value := written(each, clause.values)) is None else value)
                .cast(each.dataType)
                .alias(each.name)
                for each in stored.schema.fields
            ]
            rows = rows.union(without_row.where(clause.when).select(*values))
    return rows
