"""Columns a table lacks: `on_new_column` of `apply_changes` and `apply_batch`, by kind of table."""

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import JdbcTarget
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
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
    apply("id INT, name STRING, more INT", ("+U", 3, "e", 1), on_new_column="add")
    assert sink.rows("id", "more") == [(1, None), (3, 1)]


@pytest.mark.postgres
def test_columns_that_the_sink_writes_itself_are_never_ignored(
    spark: SparkSession, new_sink: NewSink
) -> None:
    sink = new_sink("postgresql")
    first, changes = (
        changelog(spark, FIRST, [("+I", 1, "a")]),
        changelog(spark, SECOND, [("+U", 1, "b", 7), ("-D", 1, "b", 7)]),
    )
    apply_batch(first, sink.table, keys="id")
    with pytest.raises(
        SchemaError,
        match="has no column deleted_at, which deletes='soft' requires: run ALTER TABLE",
    ):
        apply_batch(changes, sink.table, keys="id", deletes="soft", on_new_column="ignore")
    with pytest.raises(
        (SchemaError, TargetError),
        match=r"has no column other, which is part of the primary key|has no unique index on ",
    ):
        apply_batch(
            changelog(spark, "id INT, other INT", [("+I", 1, 2)]),
            sink.table,
            keys=["id", "other"],
            on_new_column="ignore",
        )
    assert sink.rows() == [(1, "a")]
    with pytest.raises(
        ArgumentError, match="on_new_column is 'merge': use 'add' or 'ignore' or 'fail'"
    ):
        apply_batch(changes, sink.table, keys="id", on_new_column="merge")
