"""Column names come from messages: every statement quotes them correctly or they are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sinking import Sink, apply_stream

from cdc_formats.errors import SchemaError
from cdc_formats.schema import columns as to_columns, to_ddl
from normalize import (
    ChangelogNormalize,
    DeltaTable,
    IcebergTable,
    JdbcTable,
    LocalKafka,
    aggregate_changes,
    apply_changes,
    from_change_feed,
    from_kafka_changelog,
    read_state,
    to_change_feed,
    to_kafka_changelog,
)
from normalize.arrow import spark_ddl
from normalize.sinks.dialects import Dialect, MySql
from normalize.sinks.jdbc import Connection
from normalize.sinks.lake import _column, merge_statement
from normalize.typed import table_columns, type_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

NewSink = Callable[[str], Sink]

EVIL = "a:int>) USING delta LOCATION '{0}' --"
HOSTILE = [
    "first-name", "a.b", "a`b", "`", "``", "*", "a.*", "x; DROP TABLE t", "--", "/* x */", "it's", 'say "x"', '" TEXT); --', "a\nb",
    "a\tb", "a=b", "(a), b", "a:b", "<>", "{0}", "%s", "?", "\\", "select", "COMMENT 'x'", "NOT NULL", "名前", "é", "e\u0301", "\u2028",
    "t", "s", "c1", "one", "row", "flags", "kind", "last", "_flags", "_change", "_matches", "_sign", "_source", "Provider", "TIMESTAMP",
    "element", "counts",
]  # fmt: skip
"""Names that could end a name, a statement or a type, SQL keywords, and names that the statements use."""
OF_DELTA = [name for name in HOSTILE if not set(" ,;{}()\n\t=") & set(name)]

_any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("`.\"-<>:,;'"), max_size=8)
names = st.sampled_from(HOSTILE) | _any_text


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """DDL types of this project whose fields have hostile names."""
    fields = st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0])
    structs = fields.map(lambda found: f"STRUCT<{', '.join(f'{_quoted(name)}: {kind}' for name, kind in found)}>")
    return inner.map("ARRAY<{}>".format) | inner.map("MAP<STRING, {}>".format) | structs


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


types = st.recursive(st.just("INT"), nested, max_leaves=6)
tables = st.lists(st.tuples(names, types), min_size=1, max_size=4, unique_by=lambda column: column[0]).map(
    lambda found: to_columns(", ".join(f"{_quoted(name)} {kind}" for name, kind in found))
)


def spark_type(column: Any) -> DataType:
    """The Spark type of a column, made without a parser."""
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

    inner = [spark_type(field) for field in column.type.fields]
    match column.type.name:
        case "STRUCT":
            return StructType([StructField(field.name, kind) for field, kind in zip(column.type.fields, inner, strict=True)])
        case "ARRAY":
            return ArrayType(*inner)
        case "MAP":
            return MapType(*inner)
        case name:
            return StringType() if name == "STRING" else IntegerType()


# ------------------------------------------------------------------------------------------------------------------- pure


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
@given(found=st.lists(names.filter(bool), min_size=2, max_size=4, unique=True), table=names.filter(lambda name: "." not in name))
def test_names_change_only_the_quoted_parts_of_a_statement(dialect: Dialect, found: list[str], table: str) -> None:
    from pyspark.sql.types import IntegerType, StructField

    def statements(table: str, names: Sequence[str]) -> str:
        fields = [StructField(name, IntegerType()) for name in names]
        columns = {name: f"c{index}" for index, name in enumerate(names)}
        key = {names[0]: "c0"}
        made = [dialect.create(table, fields, names[:1]), dialect.add(table, fields[0]), dialect.stage("staging", table, columns)]
        made += [dialect.delete("staging", table, key), dialect.upsert("staging", table, columns, key), dialect.twins("staging", key)]
        return re.sub(_QUOTED[dialect.quote], "name", "\n".join(made))

    assert statements(table, found) == statements("table", [f"n{index}" for index, _ in enumerate(found)])


# --------------------------------------------------------------------------------------------------------- Spark's parser


@pytest.mark.spark
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, name=names.filter(bool))
def test_spark_reads_statements_as_they_are_meant(spark: SparkSession, table: Any, name: str) -> None:
    from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string, _parse_datatype_string

    schema = StructType([StructField(column.name, spark_type(column)) for column in table])
    assert _parse_datatype_string(spark_ddl(table)) == schema
    assert _parse_datatype_string(type_ddl(schema)) == schema
    if "${" in to_ddl(table) + name:
        return
    parser = spark._jsparkSession.sessionState().sqlParser()
    target = IcebergTable(f"lake.{_quoted(name)}")
    made = parser.parsePlan(f"CREATE TABLE {target.sql_name} ({', '.join(_column(field, target) for field in schema)}) USING iceberg")
    columns = [made.columns().apply(index) for index in range(made.columns().size())]
    assert [StructField(column.name(), _parse_datatype_json_string(column.dataType().json())) for column in columns] == schema.fields
    assert made.tableSpec().location().isEmpty()
    assert [made.name().nameParts().apply(index) for index in range(2)] == ["lake", name]
    merge = parser.parsePlan(merge_statement(target, "changes", schema.names, schema.names[:1]))
    assignments = merge.matchedActions().apply(1).assignments()
    keys = [assignments.apply(index).key().nameParts() for index in range(assignments.size())]
    assert [(key.size(), key.apply(1)) for key in keys] == [(2, column) for column in schema.names]


# --------------------------------------------------------------------------------------------------------------- the sinks


def hostile(spark: SparkSession, found: Sequence[str], rows: Sequence[tuple[str, int, int]], inner: Sequence[str] = ()) -> DataFrame:
    """A changelog with these column names; the first is the key. With inner names the last column is nested."""
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

    fields = [StructField("row_kind", StringType()), *(StructField(name, IntegerType()) for name in found)]
    made = [(kind, key, *(value + index for index, _ in enumerate(found[1:]))) for kind, key, value in rows]
    if inner:
        deep = StructType([StructField(name, IntegerType()) for name in inner])
        many = [StructField(inner[1], ArrayType(deep)), StructField("m", MapType(StringType(), deep))]
        document = StructType([StructField(inner[0], deep), *many])
        fields.append(StructField("it's.deep`er", document))
        made = [(*row, (leaf, [leaf], {"k": leaf})) for row in made for leaf in [tuple(row[2] + index for index, _ in enumerate(inner))]]
    return spark.createDataFrame(spark.sparkContext.parallelize(made, 1), StructType(fields))


def values(df: DataFrame) -> list[tuple[Any, ...]]:
    """The final rows of a changelog, without the row kind."""
    last = {row[1]: row for row in df.collect()}
    return sorted((tuple(row)[1:] for row in last.values() if row.row_kind in ("+I", "+U")), key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb", "mysql-driver"])
def test_a_table_with_hostile_names(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink, lake = new_sink(kind), kind in ("delta", "iceberg")
    found = [name for name in (OF_DELTA if kind == "delta" else HOSTILE) if lake or len(name) < 60]
    apply_changes(hostile(spark, found[:-2], [("+I", 1, 10), ("+I", 2, 20)]), sink.table, primary_key=found[0])
    changes = hostile(spark, found, [("-U", 1, 10), ("+U", 1, 30), ("-D", 2, 20), ("+I", 3, 40)], found if lake else ())
    for _ in range(2):  # the second run finds all columns
        apply_changes(changes, sink.table, primary_key=found[0], order_by=[found[1]], add_columns=True)
        assert set(sink.read().columns) == set(changes.columns[1:])
        assert sorted(map(tuple, sink.read().select(*map(_quoted, changes.columns[1:])).collect()), key=repr) == values(changes)
    history = new_sink(kind)
    apply_changes(changes, history.table, history=True)
    assert history.read().count() == 4


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql-driver"])
def test_a_key_of_a_hostile_name_is_found_in_the_database(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    key = ['"', '"a', 'a"', 'a"b', "`", "a`b", "a.b", "it's", "?", "\\", "A b"]
    sink = new_sink(kind)
    for value in (10, 20):
        changes = spark.createDataFrame([("+I", *[1] * len(key), value)], ["row_kind", *key, "v"])
        apply_changes(changes.coalesce(1), sink.table, primary_key=key, order_by="v")
    assert sink.rows("v") == [(20,)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_column_name_cannot_change_the_target_table(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    evil = EVIL.format(tmp_path / "evil")
    table = (DeltaTable if kind == "delta" else IcebergTable)(f"{'default' if kind == 'delta' else 'lake.db'}.t_{uuid4().hex}")
    changes = hostile(spark, ["id", "v"], [("+I", 1, 10)], [evil, "b"])
    if kind == "delta":
        with pytest.raises(SchemaError, match=r"has one of the characters ' ,;\{\}\(\).*in its name: rename it, or create the table with"):
            apply_changes(changes, table, primary_key="id")
    else:
        apply_changes(changes, table, primary_key="id")
        assert spark.table(table.sql_name).schema["it's.deep`er"].dataType.names[0] == evil
    assert not (tmp_path / "evil").exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("delta", "a b", r"the column 'a b' of DeltaTable.* has one of the characters"),
        ("delta", "${env:PATH}", r"Spark would replace \$\{\.\.\.\} in the name '\$\{env:PATH\}'"),
        ("iceberg", "${env:PATH}", r"Spark would replace \$\{\.\.\.\} in the name '\$\{env:PATH\}'"),
        ("iceberg", "", r"the column '' of IcebergTable.* has an empty name"),
        ("postgresql", "", "the column name '' is empty"),
        ("postgresql", "é" * 32, "longer than PostgreSQL's 63 bytes"),
        ("mariadb", "", "the column name '' is empty"),
        ("mariadb", "x" * 65, "longer than MySQL's 64 characters"),
        ("mariadb", "x ", "ends with a blank"),
        ("mariadb", "😀", r"beyond U\+FFFF"),
    ],
)
def test_a_name_that_the_table_cannot_hold_is_refused_at_the_call(
    spark: SparkSession, new_sink: NewSink, kind: str, name: str, text: str
) -> None:
    sink = new_sink(kind)
    with pytest.raises(SchemaError, match=text):
        apply_changes(hostile(spark, ["id", name], [("+I", 1, 10)]), sink.table, primary_key="id")
    apply_changes(hostile(spark, ["id"], [("+I", 1, 10)]), sink.table, primary_key="id")
    with pytest.raises(SchemaError, match=text):
        apply_changes(hostile(spark, ["id", name], [("+I", 1, 10)]), sink.table, primary_key="id", add_columns=True)


@pytest.mark.spark
def test_names_that_differ_only_in_case_are_refused(spark: SparkSession, new_sink: NewSink) -> None:
    changes = hostile(spark, ["id", "a", "A"], [("+I", 1, 10)])
    with pytest.raises(SchemaError, match="cannot distinguish the columns 'a', 'A'"):
        apply_changes(changes, new_sink("delta").table, primary_key="id")
    apply_changes(changes, new_sink("delta").table, primary_key="id", columns=["id"])
    with pytest.raises(SchemaError, match="cannot distinguish the columns 'a', 'A'"):
        to_kafka_changelog(changes, "t", options={"kafka.bootstrap.servers": "nobody:1"})


@pytest.mark.spark
def test_delta_with_column_mapping_holds_any_name(spark: SparkSession, new_sink: NewSink) -> None:
    sink, setting = new_sink("delta"), "spark.databricks.delta.properties.defaults.columnMapping.mode"
    spark.conf.set(setting, "name")
    try:
        apply_changes(hostile(spark, HOSTILE[:-1], [("+I", 1, 10)]), sink.table, primary_key=HOSTILE[0])
    finally:
        spark.conf.unset(setting)
    changes = hostile(spark, [*HOSTILE, "n; w"], [("+U", 1, 20)])
    apply_changes(changes, sink.table, primary_key=HOSTILE[0], add_columns=True)
    assert list(map(tuple, sink.read().collect())) == values(changes)


# ------------------------------------------------------------------------------------------------------ the other functions


@pytest.mark.spark
def test_hostile_names_through_the_functions_on_dataframes(spark: SparkSession) -> None:
    changes = hostile(spark, HOSTILE, [("+I", 1, 10), ("+I", 2, 20), ("-U", 1, 10), ("+U", 1, 30)], HOSTILE)
    assert from_change_feed(to_change_feed(changes)).collect() == changes.collect()
    clean = ChangelogNormalize(primary_key=HOSTILE[0], where=f"{_quoted(HOSTILE[1])} > 10")(changes)
    assert clean.columns == changes.columns
    assert values(clean) == [row for row in values(changes) if row[1] > 10]
    for name in HOSTILE[1:]:
        quoted = _quoted(name)
        query = f"SELECT {quoted}, SUM({quoted}) AS total, COUNT(*) AS n FROM t GROUP BY {quoted}"
        shift = HOSTILE.index(name) - 1
        assert sorted(map(tuple, aggregate_changes(changes, query).collect())) == [("+U", v + shift, v + shift, 1) for v in (20, 30)]


@pytest.mark.spark
@pytest.mark.kafka
def test_hostile_names_through_kafka_and_its_state(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path) -> None:
    topic, servers = f"names-{uuid4().hex[:8]}", {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    kafka.create_topic(topic)
    changes = hostile(spark, HOSTILE, [("+I", 1, 10), ("+I", 2, 20), ("-U", 1, 10), ("+U", 1, 30)], HOSTILE)
    position = {"pos": _quoted("a.b")}
    to_kafka_changelog(changes, topic, options=servers, primary_key=HOSTILE[0], source=position)
    written = [name for name in HOSTILE if name != "a.b"]
    schema = table_columns(changes.drop("row_kind", "a.b").schema)
    arguments: dict[str, Any] = {"format": "changelog-json", "schema": to_ddl(schema), "primary_key": HOSTILE[0], "options": servers}
    where = f"{_quoted('``')} > 0 AND {_quoted('_change')} > 0"
    table = from_kafka_changelog(spark, topic, bounded=True, where=where, **arguments)
    assert table.columns == ["row_kind", *written, "it's.deep`er"]
    assert values(table) == values(changes.drop("a.b"))
    sink = new_sink("iceberg")
    stream = from_kafka_changelog(spark, topic, source_duplicates=True, where=where, **arguments)
    apply_stream(stream, sink.table, tmp_path, primary_key=HOSTILE[0])
    assert sorted(map(tuple, sink.read().collect()), key=repr) == values(table)
    stored = read_state(spark, str(tmp_path)).drop("_key_group")
    assert sorted(map(tuple, stored.collect()), key=repr) == values(table)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["iceberg", "postgresql", "mariadb", "mysql-driver"])
@pytest.mark.parametrize("history", [False, True])
def test_a_table_with_a_hostile_name(spark: SparkSession, new_sink: NewSink, kind: str, history: bool) -> None:
    table, name = new_sink(kind).table, f"t'?\"`; DROP TABLE x -- {uuid4().hex[:8]}"
    hostile_table = IcebergTable(f"lake.db.{_quoted(name)}") if kind == "iceberg" else replace(table, table=name)
    options: dict[str, Any] = {"history": True} if history else {"primary_key": "id"}
    for value in (10, 20):
        apply_changes(hostile(spark, ["id", "v"], [("+I", 1, value)]), hostile_table, **options)
    if isinstance(hostile_table, JdbcTable):
        with Connection.open(spark, hostile_table) as connection:
            found = connection.number(f"SELECT COUNT(*) * 100 + MAX(v) FROM {connection.dialect.table(name)}")
    else:
        found = spark.table(hostile_table.sql_name).selectExpr("COUNT(*) * 100 + MAX(v)").collect()[0][0]
    assert found == (220 if history else 120)
