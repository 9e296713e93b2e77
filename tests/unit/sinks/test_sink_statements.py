"""Column names come from messages: statements quote them, and schemas keep them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import to_ddl
from normalize.dataframe import table_columns
from normalize.tables.merge import merge_plan
from normalize.tables.writers.dialects import Dialect, MySql
from tests.support.hostile_names import names, spark_type, tables

if TYPE_CHECKING:
    pass


@given(table=tables)
def test_a_schema_of_spark_is_read_with_all_its_names(table: Any) -> None:
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(column.name, spark_type(column)) for column in table])
    assert to_ddl(table_columns(schema)) == to_ddl(table)


@pytest.mark.parametrize("ddl", ["`a\0b` INT", "a ARRAY<STRUCT<`b\0`: INT>>"])
def test_a_name_that_arrow_cannot_hold_is_refused(ddl: str) -> None:
    with pytest.raises(SchemaError, match=r"the column name 'a.*' has a NUL character"):
        table_columns(ddl)


_QUOTED = {'"': r'"(?:[^"]|"")*"', "`": r"`(?:[^`]|``)*`"}


@pytest.mark.parametrize("dialect", [Dialect(), MySql()])
@given(
    column_names=st.lists(names.filter(bool), min_size=2, max_size=4, unique=True),
    table=names.filter(lambda name: "." not in name),
)
def test_names_change_only_the_quoted_parts_of_a_statement(
    dialect: Dialect, column_names: list[str], table: str
) -> None:
    from pyspark.sql.types import IntegerType, StructField

    def statements(table: str, names: Sequence[str]) -> str:
        fields = [StructField(name, IntegerType()) for name in names]
        columns = {name: f"c{index}" for index, name in enumerate(names)}
        plan = merge_plan(
            names, names[:1], deleted_column=names[-1], position_column=names[-1], partial_rows=True
        )
        made = [
            dialect.create(table, fields, names[:1]),
            dialect.add(table, fields[0]),
            dialect.stage("staging", table, columns),
            dialect.twins("staging", ["c0"]),
            *(statement for statement, _ in dialect.merge(plan, "staging", table, columns)),
        ]
        return re.sub(_QUOTED[dialect.quote], "name", "\n".join(made))

    assert statements(table, column_names) == statements(
        "table", [f"n{index}" for index, _ in enumerate(column_names)]
    )
