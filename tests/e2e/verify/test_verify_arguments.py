"""`verify_table`: the command, what is selected, masked and refused, and secrets."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import DeltaTarget, JdbcSource
from normalize.tables.expressions import COMPUTED_PROPERTY
from normalize.tables.targets import TargetError
from tests.support.commands import quick
from tests.support.masks import KEY, KEY_ENV, hashed
from tests.support.sinking import table_name
from tests.support.verifying import Database, differences, verify


def test_selected_rows_and_columns(
    spark: SparkSession, maria: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target = maria.table(), delta()
    spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMN deleted_at TIMESTAMP")
    spark.sql(f"INSERT INTO {target.sql_name} (id, deleted_at) VALUES (9, now())")
    spark.sql(f"UPDATE {target.sql_name} SET name = 'other'")
    result = verify(
        spark, maria.source(source), target, exclude="name", target_where="deleted_at IS NULL"
    )
    assert (result.equal, result.not_compared) == (True, ("name", "deleted_at"))
    # The table says itself which columns are computed.
    computed = f"'{COMPUTED_PROPERTY}' = '[\"NAME\"]'"
    spark.sql(f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ({computed})")
    assert result == replace(
        verify(spark, maria.source(source), target, target_where="deleted_at IS NULL"),
        seconds=result.seconds,
    )


def test_what_cannot_be_compared_is_refused(
    spark: SparkSession, maria: Database, delta: Callable[..., DeltaTarget], tmp_path: Path
) -> None:
    source, target = maria.source(maria.table()), delta()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"keys": "nothing"}, r"keys: .* has no column `nothing`"),
        ({"exclude": "id"}, "`id` is part of the key"),
        ({"repair": True}, r"repair is True: pass 'merge', DebeziumSignal"),
        (
            {"repair": "merge", "target_where": "id > 0"},
            "repair='merge' and target_where cannot be combined",
        ),
    ]
    for options, text in refused:
        with pytest.raises(ArgumentError, match=text):
            verify(spark, source, target, **options)
    for column, text in (("__START_AT", "is a history"), ("_change_type", "is a change feed")):
        several = DeltaTarget(str(tmp_path / column))
        spark.sql(
            f"CREATE TABLE {several.sql_name} USING delta AS SELECT *, id AS {column} FROM "
            f"{target.sql_name}"
        )
        with pytest.raises(ArgumentError, match=text):
            verify(spark, source, several, repair="merge")
    with pytest.raises(TargetError):
        verify(spark, source, DeltaTarget("nothing_there"))
    spark.sql(
        f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"ALTER TABLE {target.sql_name} DROP COLUMN day")
    with pytest.raises(SchemaError, match="has no column `day`"):
        verify(spark, source, target)
    spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMN day BINARY")
    with pytest.raises(
        SchemaError, match="column `day` is DATE in the source and BINARY in the target"
    ):
        verify(spark, source, target)


def test_no_error_or_repr_has_the_password(spark: SparkSession, database: Database) -> None:
    target = database.source(database.table())
    source = replace(database.source("nothing_there"), password="wr0ng-s3cret")
    assert "s3cret" not in repr(source)
    with pytest.raises(Exception, match=r"denied|authentication") as caught:
        verify(spark, source, target)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ArgumentError, match="JdbcSource has a password in its url"):
        JdbcSource("jdbc:mysql://u:s3cret@db/shop", "t")


def test_the_command_exits_as_cmp_does(
    spark: SparkSession, maria: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target = maria.table(), delta()
    command = [
        "verify",
        maria.server.url,
        source,
        target.name,
        "--user",
        maria.server.user,
        "--max-lag",
        "0",
    ]
    password = {"CDC_SOURCE_PASSWORD": maria.server.password}
    spark.sql(f"UPDATE {target.sql_name} SET name = 'x' WHERE id = 1")
    done = quick(
        *command, "--json", "--password", "env:ITS_PASSWORD", ITS_PASSWORD=maria.server.password
    )
    assert done.code == 1, done.err
    result = json.loads(done.out)
    assert (result["equal"], result["counts"]["different"]) == (False, 1)
    assert result["differences"] == [{"kind": "different", "key": {"id": "1"}, "columns": ["name"]}]
    spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMN gone_at TIMESTAMP")
    done = quick(*command, "--repair", **password)
    assert (done.code, "pass deleted_column='gone_at'" in done.err) == (2, True), done.err
    done = quick(*command, "--repair", "--deleted-column", "gone_at", **password)
    assert (done.code, done.out.splitlines()[0].startswith("equal: ")) == (0, True), done.err
    assert "repaired         1 keys" in done.out
    done = quick(*command, CDC_SOURCE_PASSWORD="wr0ng-s3cret")
    assert (done.code, "Access denied" in done.err, "s3cret" in done.err + done.out) == (
        2,
        True,
        False,
    )
    done = quick(*command[:3], "nothing_there", *command[4:], **password)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_names_that_differ_in_case_alone_are_refused(
    spark: SparkSession, postgresql: Database
) -> None:
    name = table_name()
    postgresql.run(f'CREATE TABLE {name} (id INT PRIMARY KEY, tx INT, "TX" INT)')
    source = postgresql.source(name)
    with pytest.raises(
        SchemaError,
        match=f"{name} has the columns `tx` and `TX`, whose names Spark cannot tell apart",
    ):
        verify(spark, source, source)


def test_a_masked_copy_is_compared_with_the_masks_of_its_source(
    spark: SparkSession, postgresql: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    name, target = table_name(), DeltaTarget(str(tmp_path / "copy"))
    postgresql.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, email TEXT, card BIGINT, name TEXT)",
        f"INSERT INTO {name} VALUES (1, 'ann', 4111, 'Ann'), (2, 'bob', NULL, 'Bob')",
    )
    rows = [(1, hashed("ann"), hashed("4111"), "***"), (2, hashed("bo"), None, "***")]
    copy = spark.createDataFrame(rows, "id INT, email STRING, card STRING, name STRING")
    copy.write.format("delta").save(target.name)
    options = {
        "mask": {"Email": "hmac", "card": "hmac", "NAME": "redact"},
        "mask_key_env": KEY_ENV,
    }
    result = verify(spark, postgresql.source(name), target, **options)
    assert differences(result) == [("different", "2", ("email",))]
    assert result.not_compared == ("name",)
    with pytest.raises(ArgumentError, match="would write the source's values of `email`"):
        verify(spark, postgresql.source(name), target, repair="merge", **options)
    for mask, text in (
        ({"id": "hmac"}, "`id` is part of the key"),
        ({"x": "hmac"}, "no column `x`"),
    ):
        with pytest.raises(ArgumentError, match=text):
            verify(spark, postgresql.source(name), target, mask=mask, mask_key_env=KEY_ENV)
