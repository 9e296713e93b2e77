"""Hostile names of columns and tables in real tables of each kind, and through Kafka."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import to_ddl
from normalize import (
    ChangelogNormalize,
    IcebergTarget,
    JdbcTarget,
    LocalKafka,
    from_kafka_changelog,
)
from normalize.api import encode_changelog
from normalize.checkpoint.read_state import read_state
from normalize.dataframe import table_columns
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TableTarget, TargetError
from normalize.tables.writers.jdbc import JdbcConnection
from tests.support.hostile_names import HOSTILE, OF_DELTA, hostile, quoted, values
from tests.support.sinking import NewSink, apply_stream


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb", "mysql-driver"])
def test_a_table_with_hostile_names(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink, lake = new_sink(kind), kind in ("delta", "iceberg")
    names = [name for name in (OF_DELTA if kind == "delta" else HOSTILE) if lake or len(name) < 60]
    apply_batch(
        hostile(spark, names[:-2], [("+I", 1, 10), ("+I", 2, 20)]), sink.table, keys=names[0]
    )
    changes = hostile(
        spark,
        names,
        [("-U", 1, 10), ("+U", 1, 30), ("-D", 2, 20), ("+I", 3, 40)],
        names if lake else (),
    )
    for _ in range(2 if lake else 1):  # the second run finds the nested columns
        apply_batch(changes, sink.table, keys=names[0], order_by=[names[1]], on_new_column="add")
        assert set(sink.read().columns) == set(changes.columns[1:])
        assert sorted(
            map(tuple, sink.read().select(*map(quoted, changes.columns[1:])).collect()), key=repr
        ) == values(changes)


REFUSED = {
    "delta": {
        "a b": r"the column 'a b' of DeltaTarget.* has one of the characters",
        "${env:PATH}": r"Spark would replace \$\{\.\.\.\} in the name '\$\{env:PATH\}'",
    },
    "iceberg": {
        "${env:PATH}": r"Spark would replace \$\{\.\.\.\} in the name '\$\{env:PATH\}'",
        "": r"the column '' of IcebergTarget.* has an empty name",
    },
    "postgresql": {
        "": "the column name '' is empty",
        "é" * 32: "longer than PostgreSQL's 63 bytes",
    },
    "mariadb": {
        "": "the column name '' is empty",
        "x" * 65: "longer than MySQL's 64 characters",
        "x ": "ends with a blank",
        "😀": r"beyond U\+FFFF",
    },
}
"""Names that a table cannot hold, and the errors."""


@pytest.mark.parametrize("kind", REFUSED)
def test_a_name_that_the_table_cannot_hold_is_refused_at_the_call(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)

    def refused(**options: Any) -> None:
        for name, text in REFUSED[kind].items():
            with pytest.raises(SchemaError, match=text):
                apply_batch(
                    hostile(spark, ["id", name], [("+I", 1, 10)]), sink.table, keys="id", **options
                )

    refused()
    # The table does not exist yet: `create=False` is an error.
    with pytest.raises(TargetError, match="does not exist"):
        apply_batch(hostile(spark, ["id"], [("+I", 1, 10)]), sink.table, keys="id", create=False)
    apply_batch(hostile(spark, ["id"], [("+I", 1, 10)]), sink.table, keys="id")
    refused(on_new_column="add")


@pytest.mark.iceberg
def test_hostile_names_through_kafka_and_its_state(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path
) -> None:
    topic, servers = (
        f"names-{uuid4().hex[:8]}",
        {"kafka.bootstrap.servers": kafka.bootstrap_servers},
    )
    kafka.create_topic(topic)
    changes = hostile(
        spark, HOSTILE, [("+I", 1, 10), ("+I", 2, 20), ("-U", 1, 10), ("+U", 1, 30)], HOSTILE
    )
    position = {"pos": quoted("a.b")}
    encode_changelog(changes, primary_key=HOSTILE[0], source=position).write.format(
        "kafka"
    ).options(**servers, topic=topic).save()
    written = [name for name in HOSTILE if name != "a.b"]
    schema = table_columns(changes.drop("row_kind", "a.b").schema)
    arguments: dict[str, Any] = {
        "format": "changelog-json",
        "schema": to_ddl(schema),
        "primary_key": HOSTILE[0],
        "options": servers,
    }
    stage = ChangelogNormalize(where=f"{quoted('``')} > 0 AND {quoted('_change')} > 0")
    table = from_kafka_changelog(spark, topic, bounded=True, normalize=stage, **arguments)
    assert table.columns == ["row_kind", *written, "it's.deep`er"]
    assert values(table) == values(changes.drop("a.b"))
    sink = new_sink("iceberg")
    stream = from_kafka_changelog(spark, topic, normalize=stage, **arguments)
    apply_stream(stream, sink.table, tmp_path, keys=HOSTILE[0])
    assert sorted(map(tuple, sink.read().collect()), key=repr) == values(table)
    stored = read_state(spark, str(tmp_path)).drop("_key_group")
    assert sorted(map(tuple, stored.collect()), key=repr) == values(table)


@pytest.mark.parametrize("kind", ["iceberg", "postgresql", "mariadb", "mysql-driver"])
def test_a_table_with_a_hostile_name(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    """The database's indexes are found by the hostile names of a table and of its key."""
    table = new_sink(kind).table
    key = (
        ["id"]
        if kind == "iceberg"
        else ['"', '"a', 'a"', 'a"b', "`", "a`b", "a.b", "it's", "?", "\\", "A b"]
    )
    name = f"t'?\"`; DROP TABLE x -- {uuid4().hex[:8]}"
    target: TableTarget = (
        IcebergTarget(f"lake.db.{quoted(name)}")
        if kind == "iceberg"
        else replace(table, table=name)
    )

    for value in (10, 20):
        rows = [("+I", *[1] * len(key), value)]
        changes = spark.createDataFrame(
            spark.sparkContext.parallelize(rows, 1), ["row_kind", *key, "v"]
        )
        apply_batch(changes, target, keys=key)
    if isinstance(target, JdbcTarget):
        with JdbcConnection.open(spark, target) as connection:
            counted = connection.number(
                f"SELECT COUNT(*) * 100 + MAX(v) FROM {connection.dialect.table(name)}"
            )
    else:
        counted = spark.table(target.sql_name).selectExpr("COUNT(*) * 100 + MAX(v)").first()[0]
    assert counted == 120
