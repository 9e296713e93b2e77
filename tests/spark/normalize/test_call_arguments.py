"""Arguments of a wrong type or without a value: one sentence with the argument, for each function."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import (
    DeltaDatabase,
    DeltaTarget,
    from_kafka_changelog,
    sync_database,
    sync_table,
)
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from tests.support.sinking import changelog

TABLE = {"schema": "id INT, name STRING", "primary_key": "id"}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "from_kafka_changelog": (from_kafka_changelog, TABLE),
    "sync_table": (
        sync_table,
        {**TABLE, "target": DeltaTarget("/lake/shop"), "schema_location": "/lake/schemas"},
    ),
    "sync_database": (
        sync_database,
        {"target": DeltaDatabase("/lake/shop"), "schema_location": "/lake/schemas"},
    ),
}
SECRET = "kafka.sasl.jaas.config=s3cret"
EVERY, TABLES, SYNCS = tuple(CALLS), ("from_kafka_changelog", "sync_table"), tuple(CALLS)[1:]
WRONG = [
    (EVERY, "topic", 5, "topic is 5: pass a name, a list of names, or a compiled pattern"),
    (EVERY, "topic", [5], "topic is [5]: pass a name"),
    (EVERY, "topic", "", "pass exactly one of topic and the options"),
    (EVERY, "options", SECRET, "options is of type str: pass a mapping"),
    (EVERY, "options", None, "options lack 'kafka.bootstrap.servers'"),
    (EVERY, "format", 5, "format is 5: pass an identifier such as 'debezium-json'"),
    (EVERY, "format_options", 5, "format_options is of type int: pass a mapping"),
    (EVERY, "mode", 5, "mode is 5: use "),
    (EVERY, "on_truncate", 5, "on_truncate is 5: use 'fail' or 'ignore'"),
    (TABLES, "primary_key", 5, "primary_key is 5: pass a name or a list of names"),
    (TABLES, "primary_key", [5], "primary_key is [5]: pass a name or a list of names"),
    (TABLES, "schema", 5, "schema is 5: pass Spark DDL"),
    (SYNCS, "schema_location", "", "schema_location is '': pass the path or the URL of a folder"),
    (SYNCS, "schema_location", None, "schema_location is None: pass the path"),
    (("sync_table",), "target", 5, "target is 5: pass DeltaTarget(...), IcebergTarget(...)"),
    (("sync_table",), "target", "", "target is '': pass DeltaTarget(...)"),
    (("sync_table",), "table", 5, "table is 5: pass TableOptions(...)"),
    (("sync_database",), "target", 5, "target is 5: pass DeltaDatabase(...)"),
    (("sync_database",), "tables", 5, "tables is of type int: pass a mapping"),
    (("sync_database",), "tables", {"a": 5}, "tables has 5 for 'a': pass TableOptions(...)"),
    (("sync_database",), "include", 5, "include is 5: pass a name or a list of names"),
    (("sync_database",), "parallel", "4", "parallel is '4': pass a number of tables"),
]


@pytest.mark.parametrize(
    ("name", "argument", "value", "text"),
    [
        pytest.param(name, argument, value, text, id=f"{name}-{argument}={value!r}")
        for names, argument, value, text in WRONG
        for name in names
    ],
)
def test_a_wrong_argument_is_one_sentence_that_names_it(
    spark: SparkSession, name: str, argument: str, value: Any, text: str
) -> None:
    call, arguments = CALLS[name]
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    passed = {"topic": "shop", "format": "maxwell-json", "options": options, **arguments}
    with pytest.raises((ArgumentError, SchemaError), match=re.escape(text)) as refused:
        call(spark, **passed | {argument: value}, check=False)
    assert "s3cret" not in str(refused.value)


def test_the_error_of_a_target_says_what_to_do_about_its_own_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    rows = changelog(spark, "id INT", [("+I", 1)])
    for target, reason, remedy in (
        (DeltaTarget(str(tmp_path / "file" / "table")), "cannot be created", ""),
        (DeltaTarget("missing_schema.shop"), "SCHEMA_NOT_FOUND", ""),
        (
            DeltaTarget("nowhere.shop.orders"),
            "cannot be reached",
            "has no catalog nowhere: set spark.sql.",
        ),
    ):
        with pytest.raises(TargetError, match=reason) as refused:
            apply_batch(rows, target, keys="id", order_by="id")
        assert "spark.jars.packages" not in str(refused.value)
        assert remedy in str(refused.value)
