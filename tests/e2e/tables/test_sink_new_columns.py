"""Columns a table lacks: `on_new_column` of `apply_changes` and `apply_batch`, by kind of table."""

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted
from normalize import JdbcTarget
from normalize.tables.apply import apply_batch
from tests.support.sink_kinds import delta_in_each_version
from tests.support.sinking import NewSink, Sink, changelog

FIRST, SECOND = "id INT, name STRING", "id INT, name STRING, `We``ight` INT"


@delta_in_each_version
def test_a_new_column_fails_is_ignored_or_is_added(
    spark: SparkSession, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    def apply(schema: str, *rows: Any, **more: Any) -> None:
        apply_batch(changelog(spark, schema, rows), sink.table, keys="id", **more)

    apply(FIRST, ("+I", 1, "a"), ("+I", 2, "b"))
    with pytest.raises(
        SchemaError,
        match=r"has no column We`ight: run ALTER TABLE .*'ignore', which does not write it",
    ) as failed:
        apply(SECOND, ("+U", 1, "c", 7))
    assert sink.rows("id", "name") == [(1, "a"), (2, "b")]

    # One warning for both.
    for _ in range(2 if isinstance(sink.table, JdbcTarget) else 1):
        apply(
            SECOND,
            ("+U", 1, "d", 7),
            ("-D", 2, "b", None),
            ("+I", 3, "e", 9),
            on_new_column="ignore",
        )
        assert sink.rows() == [(1, "d"), (3, "e")]
    ignored = [
        message
        for message in caplog.messages
        if "which the changes have: it is not written" in message
    ]
    assert len(ignored) == 1
    assert ignored[0].startswith(f"{sink.table} has no column `We`ight`, ")

    # The statement in the error adds the column, which is then no longer ignored.
    (statement,) = re.findall(r"run (ALTER TABLE .*), or pass on_new_column", str(failed.value))
    sink.execute(statement)
    apply(SECOND, ("+U", 1, "d", 7), on_new_column="ignore")
    assert sink.rows("id", "name", "`We``ight`") == [(1, "d", 7), (3, "e", None)]
    apply("id INT, name STRING, more INT", ("+U", 1, "d", 1), on_new_column="add")
    # A column that the changes do not have keeps its values.
    assert sink.rows("id", "`We``ight`", "more") == [(1, 7, 1), (3, None, None)]


# --------------------------------------------------------------------------------------------------
# Table columns narrower than the changes: no silent cuts, and errors whose SQL widens them
CASES = [
    # the table's type, the type of the changes, a value, whether Delta can widen the column
    ("DECIMAL(10,2)", "DECIMAL(8,4)", "1.2345", True),
    ("INT", "DECIMAL(10,2)", "1.25", True),
    ("INT", "DOUBLE", "1.25", True),
    ("DATE", "TIMESTAMP_NTZ", "2026-01-02 03:04:05", True),
    ("DATE", "TIMESTAMP", "2026-01-02 03:04:05", False),
]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_statement_of_the_error_widens_the_column(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink, quote = new_sink(kind), {"postgresql": '"', "mariadb": "`"}.get(kind, "")
    # A name of upper and lower case with the quote of the database, for each case.
    of_table = [f"Va{quote}l{index}" for index in range(len(CASES))]
    columns = [name if quote else name.lower() for name in of_table]
    quoted = [
        f"{quote}{name.replace(quote, quote * 2)}{quote}" if quote else name for name in of_table
    ]
    key, using = (
        ("INT PRIMARY KEY", "") if isinstance(sink.table, JdbcTarget) else ("INT", f"USING {kind}")
    )
    narrow = ", ".join(f"{name} {old}" for name, (old, *_) in zip(quoted, CASES, strict=True))
    sink.execute(f"CREATE TABLE {sink.sql_name} (id {key}, {narrow}) {using}")
    casts = [f"CAST('{value}' AS {new})" for _, new, value, _ in CASES]
    select_list = ", ".join(
        f"{cast} AS {backquoted(name)}" for name, cast in zip(columns, casts, strict=True)
    )
    changes = spark.sql(f"SELECT '+I' AS row_kind, 1 AS id, {select_list}")
    widened = []
    for column, (old, new, _, widens) in zip(columns, CASES, strict=True):
        with pytest.raises(
            SchemaError, match=rf"as {re.escape(old)}, which cuts values of {re.escape(new)}: "
        ) as error:
            apply_batch(changes, sink.table, keys="id", column_list=["id", column])
        advice = re.search("run (.*), or convert the column to", str(error.value))
        if kind == "iceberg" or (kind == "delta" and not widens):
            assert advice is None
            continue
        for statement in advice[1].split("; "):
            sink.execute(statement)
        widened.append(column)
    apply_batch(changes, sink.table, keys="id", column_list=["id", *widened])
    values = [backquoted(name) for name in ["id", *widened]]
    assert [tuple(row) for row in sink.read().select(values).collect()] == [
        tuple(changes.select(values).collect()[0])
    ]
