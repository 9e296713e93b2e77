"""Column names come from messages: every statement quotes them correctly or they are refused."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import to_ddl
from normalize import (
    ChangelogNormalize,
    DeltaTarget,
    IcebergTarget,
    aggregate_changes,
    signed_count,
    signed_sum,
)
from normalize.api import encode_changelog
from normalize.change_feed import from_change_feed, to_change_feed
from normalize.core.arrow import spark_ddl
from normalize.dataframe import type_ddl
from normalize.tables.apply import apply_batch
from normalize.tables.merge import merge_statement
from normalize.tables.table_spec import TableSpec
from normalize.tables.writers.lake import column_definition
from tests.support.examples import examples
from tests.support.hostile_names import (
    EVIL,
    HOSTILE,
    hostile,
    names,
    quoted,
    spark_type,
    tables,
    values,
)
from tests.support.sinking import NewSink

# --------------------------------------------------------------------------------------------------
# Spark's parser


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, name=names.filter(bool))
def test_spark_finds_the_intended_tables_and_columns_in_statements(
    spark: SparkSession, table: Any, name: str
) -> None:
    from pyspark.sql.types import DataType, StructField, StructType

    schema = StructType([StructField(column.name, spark_type(column)) for column in table])
    assert DataType.fromDDL(spark_ddl(table)) == schema
    assert DataType.fromDDL(type_ddl(schema)) == schema
    if "${" in to_ddl(table) + name:
        return
    parser = spark._jsparkSession.sessionState().sqlParser()
    target = IcebergTarget(f"lake.{quoted(name)}")
    made = parser.parsePlan(
        f"CREATE TABLE {target.sql_name} "
        f"({', '.join(column_definition(field, target) for field in schema)}) USING iceberg"
    )
    columns = [made.columns().apply(index) for index in range(made.columns().size())]
    types = [json.loads(column.dataType().json()) for column in columns]
    fields = [
        {"name": column.name(), "type": kind, "nullable": True, "metadata": {}}
        for column, kind in zip(columns, types, strict=True)
    ]
    assert StructType.fromJson({"fields": fields}) == schema
    assert made.tableSpec().location().isEmpty()
    assert [made.name().nameParts().apply(index) for index in range(2)] == ["lake", name]
    merge = parser.parsePlan(
        merge_statement(
            TableSpec(tuple(schema.fields), tuple(schema.names[:1]), True, "fail").plan(),
            target.sql_name,
            "changes",
        )
    )
    assignments = merge.matchedActions().apply(1).assignments()
    keys = [assignments.apply(index).key().nameParts() for index in range(assignments.size())]
    assert [(key.size(), key.apply(1)) for key in keys] == [(2, column) for column in schema.names]


# --------------------------------------------------------------------------------------------------
# the sinks


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_column_name_cannot_change_the_target_table(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    evil = EVIL.format(tmp_path / "evil")
    table = (DeltaTarget if kind == "delta" else IcebergTarget)(
        f"{'default' if kind == 'delta' else 'lake.db'}.t_{uuid4().hex}"
    )
    changes = hostile(spark, ["id", "v"], [("+I", 1, 10)], [evil, "b"])
    if kind == "delta":
        with pytest.raises(
            SchemaError,
            match=(
                r"has one of the characters ' ,;\{\}\(\).*in its name: rename it, or create the "
                r"table with"
            ),
        ):
            apply_batch(changes, table, keys="id")
    else:
        apply_batch(changes, table, keys="id")
        assert spark.table(table.sql_name).schema["it's.deep`er"].dataType.names[0] == evil
    assert not (tmp_path / "evil").exists()


def test_names_that_differ_only_in_case_are_refused(spark: SparkSession, new_sink: NewSink) -> None:
    changes = hostile(spark, ["id", "a", "A"], [("+I", 1, 10)])
    with pytest.raises(SchemaError, match="cannot distinguish the columns 'a', 'A'"):
        apply_batch(changes, new_sink("delta").table, keys="id")
    apply_batch(changes, new_sink("delta").table, keys="id", column_list=["id"])
    with pytest.raises(SchemaError, match="cannot distinguish the columns 'a', 'A'"):
        encode_changelog(changes)


def test_delta_with_column_mapping_holds_any_name(spark: SparkSession, new_sink: NewSink) -> None:
    sink, setting = (
        new_sink("delta"),
        "spark.databricks.delta.properties.defaults.columnMapping.mode",
    )
    spark.conf.set(setting, "name")
    try:
        apply_batch(hostile(spark, HOSTILE[:-1], [("+I", 1, 10)]), sink.table, keys=HOSTILE[0])
    finally:
        spark.conf.unset(setting)
    changes = hostile(spark, [*HOSTILE, "n; w"], [("+U", 1, 20)])
    apply_batch(changes, sink.table, keys=HOSTILE[0], on_new_column="add")
    assert list(map(tuple, sink.read().collect())) == values(changes)


# --------------------------------------------------------------------------------------------------
# the other functions


def test_hostile_names_through_the_functions_on_dataframes(spark: SparkSession) -> None:
    changes = hostile(
        spark, HOSTILE, [("+I", 1, 10), ("+I", 2, 20), ("-U", 1, 10), ("+U", 1, 30)], HOSTILE
    )
    assert from_change_feed(to_change_feed(changes)).collect() == changes.collect()
    clean = ChangelogNormalize(primary_key=HOSTILE[0], where=f"{quoted(HOSTILE[1])} > 10")(changes)
    assert clean.columns == changes.columns
    assert values(clean) == [row for row in values(changes) if row[1] > 10]
    columns = [quoted(name) for name in HOSTILE[1:]]
    sums = [signed_sum(column).alias(f"total{index}") for index, column in enumerate(columns)]
    totals = aggregate_changes(
        changes, columns, *sums, signed_count("*").alias("n"), changelog_mode="all"
    )
    assert totals.columns[: len(HOSTILE)] == ["row_kind", *HOSTILE[1:]]
    of_rows = [[value + shift for shift, _ in enumerate(columns)] for value in (20, 30)]
    assert sorted(map(tuple, totals.collect())) == [
        ("+U", *values, *values, 1) for values in of_rows
    ]
