"""`verify_table` on real databases: equality, each kind of difference, and concurrent writers."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import DeltaTarget, IcebergTarget, JdbcSource, JdbcTarget, verify_table
from normalize.tables.apply import apply_batch
from normalize.tables.policy import COMPUTED_PROPERTY, TablePolicy
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import TargetError
from normalize.tables.writers.jdbc import JdbcConnection
from normalize.verify.repair import DebeziumSignal
from normalize.verify.verification import Verification
from tests.support.commands import quick
from tests.support.masks import KEY, KEY_ENV, hashed
from tests.support.servers.local_databases import LocalPostgres
from tests.support.servers.local_source import LocalSource, repeating
from tests.support.sinking import changelog, database_sink, lake_sink, table_name

COLUMNS = {
    "name": "STRING",
    "price": "DECIMAL(12,3)",
    "f": "FLOAT",
    "d": "DOUBLE",
    "day": "DATE",
    "local": "TIMESTAMP_NTZ",
    "moment": "TIMESTAMP",
    "bin": "BINARY",
    "doc": "STRING",
}
VALUES = (
    "'a'",
    "1.50",
    "1.1",
    "0.1D",
    "DATE'2026-11-24'",
    "TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",
    "TIMESTAMP'2026-10-25 00:30:00.000001Z'",
    "X'00FF'",
    '\'{"b":[1,2],"a":null}\'',
)
CHANGED = {
    "name": "'A'",
    "price": "1.501",
    "f": "CAST(1.2 AS FLOAT)",
    "d": "0.1000000000000001D",
    "day": "DATE'2026-11-25'",
    "local": "TIMESTAMP_NTZ'2026-03-29 02:30:00.123457'",
    "moment": "TIMESTAMP'2026-10-25 01:30:00.000001Z'",
    "bin": "X'00FE'",
    "doc": '\'{"b":[2,1],"a":null}\'',
}
MARIADB = (
    "id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4, price DECIMAL(10,2), f FLOAT, d "
    "DOUBLE, day DATE, local DATETIME(6), moment TIMESTAMP(6) NULL, bin VARBINARY(9), doc TEXT "
    "CHARACTER SET utf8mb4"
)
POSTGRES = (
    "id INT PRIMARY KEY, name VARCHAR(20), price NUMERIC(10,2), f REAL, d DOUBLE PRECISION, day "
    "DATE, local TIMESTAMP, moment TIMESTAMPTZ, bin BYTEA, doc JSONB"
)


class Database:
    """A source database."""

    def __init__(self, spark: SparkSession, server: Any, kind: str) -> None:
        self.spark, self.server, self.kind = spark, server, kind

    def run(self, *statements: str) -> None:
        if self.kind == "mariadb":
            self.server.run(*statements)
        else:
            with JdbcConnection.open(self.spark, self.source("pg_class")) as connection:
                for statement in statements:
                    connection.execute(statement)

    def source(self, table: str) -> JdbcSource:
        return JdbcSource(
            self.server.url, table, user=self.server.user, password=self.server.password
        )

    def table(self, rows: int = 3) -> str:
        """Create a table with a column of each family of types; its last row is NULL."""
        name, values = (
            table_name(),
            (
                "'a', 1.5, 1.1, 0.1, '2026-11-24', '2026-03-29 02:30:00.123456', '2026-10-25 "
                "00:30:00.000001"
            ),
        )
        if self.kind == "mariadb":
            values += "', x'00ff', '{\"b\":[1,2],\"a\":null}'"
        else:
            values += "+00', '\\x00ff', '{\"a\": null, \"b\": [1, 2]}'"
        self.run(f"CREATE TABLE {name} ({MARIADB if self.kind == 'mariadb' else POSTGRES})")
        setting = ["SET time_zone = '+00:00'"] if self.kind == "mariadb" else []
        inserts = [f"INSERT INTO {name} VALUES ({number}, {values})" for number in range(1, rows)]
        self.run(*setting, *inserts, f"INSERT INTO {name} (id) VALUES ({rows})")
        return name


@pytest.fixture
def maria(spark: SparkSession, source: LocalSource) -> Database:
    return Database(spark, source, "mariadb")


@pytest.fixture
def postgresql(spark: SparkSession, postgres: LocalPostgres) -> Database:
    return Database(spark, postgres, "postgresql")


@pytest.fixture(params=["mariadb", "postgresql"])
def database(request: pytest.FixtureRequest, maria: Database, postgresql: Database) -> Database:
    return maria if request.param == "mariadb" else postgresql


@pytest.fixture
def delta(spark: SparkSession, tmp_path: Path) -> Callable[[int], DeltaTarget]:
    """A function that creates a Delta table with the rows of `Database.table`."""

    def create(rows: int = 3) -> DeltaTarget:
        target = DeltaTarget(str(tmp_path / table_name()))
        values = ", ".join(
            f"CAST(IF(id < {rows}, {value}, NULL) AS {kind}) AS {name}"
            for (name, kind), value in zip(COLUMNS.items(), VALUES, strict=True)
        )
        spark.sql(
            f"CREATE TABLE {target.sql_name} USING delta AS SELECT id, {values} FROM range(1, {rows + 1})"
        )
        return target

    return create


def verify(spark: SparkSession, source: JdbcSource, target: Any, **options: Any) -> Verification:
    return verify_table(spark, source, target, **{"max_lag_seconds": 0, **options})


def differences(result: Verification) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(each.kind, each.key[0][1], each.columns) for each in result.differences]


@pytest.mark.parametrize(
    "database",
    [pytest.param("postgresql", marks=pytest.mark.cross_section), "mariadb"],
    indirect=True,
)
def test_equal_tables_with_every_family_of_types_and_empty_ones(
    spark: SparkSession, database: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target = database.table(), delta()
    result = verify(spark, database.source(source), target)
    assert (result.equal, result.source_rows, result.target_rows, result.rechecked) == (
        True,
        3,
        3,
        0,
    ), str(result)
    assert len(result.columns) == 10
    assert result
    assert result.position in str(result)
    database.run(f"DELETE FROM {source}")
    spark.sql(f"DELETE FROM {target.sql_name}")
    result = verify(spark, database.source(source), target)
    assert (result.equal, result.source_rows, result.target_rows) == (True, 0, 0)


def test_rows_that_differ_are_found_and_repair_merges_them(
    spark: SparkSession, database: Database, delta: Callable[..., DeltaTarget]
) -> None:
    rows = len(CHANGED) + 3
    missing = rows - 1
    source, target = database.table(rows), delta(rows)
    spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMN loaded STRING")
    # A row for each column, in which only that value is another.
    changes = [
        f"{column} = CASE id WHEN {number} THEN {value} ELSE {column} END"
        for number, (column, value) in enumerate(CHANGED.items(), 1)
    ]
    spark.sql(
        f"UPDATE {target.sql_name} SET loaded = 'mine', {', '.join(changes)} WHERE id <= "
        f"{len(CHANGED)}"
    )
    spark.sql(f"DELETE FROM {target.sql_name} WHERE id = {missing}")
    spark.sql(f"INSERT INTO {target.sql_name} (id) VALUES (77), ({rows}), (NULL)")
    result = verify(spark, database.source(source), target)
    changed = [("different", str(number), (column,)) for number, column in enumerate(CHANGED, 1)]
    assert [each for each in differences(result) if each[0] == "different"] == changed
    kinds = [
        ("missing", str(missing), ()),
        ("extra", "77", ()),
        ("duplicate", str(rows), ()),
        ("extra", None, ()),
    ]
    assert sorted(differences(result), key=str) == sorted([*changed, *kinds], key=str)
    assert (result.equal, result.is_complete) == (False, True)
    assert result.counts == {"different": len(CHANGED), "missing": 1, "extra": 2, "duplicate": 1}
    assert "`id` = 77" in str(result)
    assert "NOT equal" in str(result)

    spark.sql(f"DELETE FROM {target.sql_name} WHERE id IS NULL")
    before = spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count()
    result = verify(spark, database.source(source), target, repair="merge")
    assert (result.equal, result.repaired, result.differences) == (True, len(CHANGED) + 3, ()), str(
        result
    )
    assert f"repaired         {len(CHANGED) + 3} keys" in str(result)
    # One commit for the duplicate, one for all others; and columns that only the target has keep
    # their values.
    assert spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count() == before + 2
    assert spark.table(target.sql_name).where("loaded = 'mine'").count() == len(CHANGED)
    assert verify(spark, database.source(source), target, repair="merge").repaired == 0
    assert spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count() == before + 2


@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("iceberg", marks=pytest.mark.iceberg), "postgresql"]
)
def test_repair_of_soft_deletes(
    spark: SparkSession, maria: Database, postgres: LocalPostgres, tmp_path: Path, kind: str
) -> None:
    name = table_name()
    maria.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9))",
        f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    source = maria.source(name)
    sink = (
        database_sink(spark, postgres, table_name())
        if kind == "postgresql"
        else lake_sink(spark, kind, tmp_path)
    )
    inserts = [("+I", key, text, key) for key, text in enumerate(("a", "x", "c", "d", "e"), 1)]
    deletes = [("-D", 3, "c", 6), ("-D", 5, "e", 7)]
    for rows in (inserts, deletes):
        apply_batch(
            changelog(spark, "id INT, name STRING, no INT", rows),
            sink.table,
            keys="id",
            order_by="no",
            column_list=["id", "name"],
            deletes="soft",
        )
    sink.execute(
        f"ALTER TABLE {sink.sql_name} ADD COLUMN place {'TEXT' if kind == 'postgresql' else 'STRING'}"
    )
    sink.execute(f"UPDATE {sink.sql_name} SET place = concat('at ', id)")

    def stored() -> dict[int, tuple[Any, ...]]:
        return {row.id: (row.name, row.deleted_at, row.place) for row in sink.read().collect()}

    before, known = stored(), {"deleted_column": "deleted_at"} if kind == "postgresql" else {}
    if kind != "postgresql":
        sink.execute(
            f"ALTER TABLE {sink.sql_name} RENAME COLUMN deleted_at TO gone_at"
            if kind == "iceberg"
            else f"ALTER TABLE {sink.sql_name} UNSET TBLPROPERTIES ('changelog.deleted_column')"
        )
    text = (
        "deleted_column is 'deleted_at', which is not a TIMESTAMP column"
        if kind == "iceberg"
        else "has the column `deleted_at`, which the source lacks: pass deleted_column='deleted_at'"
    )
    with pytest.raises(ArgumentError, match=text):
        verify(spark, source, sink.table, repair="merge")
    if kind == "iceberg":
        sink.execute(f"ALTER TABLE {sink.sql_name} RENAME COLUMN gone_at TO deleted_at")
    elif kind == "delta":
        sink.execute(
            f"ALTER TABLE {sink.sql_name} SET TBLPROPERTIES ('changelog.deleted_column' = 'deleted_at')"
        )
    assert stored() == before
    with pytest.raises(ArgumentError, match="deleted_column is 'name', which is not a TIMESTAMP"):
        verify(spark, source, sink.table, deleted_column="name")

    result = verify(spark, source, sink.table, **known)
    assert sorted(differences(result)) == [
        ("different", "2", ("name",)),
        ("extra", "4", ()),
        ("missing", "3", ()),
    ]
    result = verify(spark, source, sink.table, repair="merge", **known)
    assert (result.equal, result.repaired, result.source_rows, result.target_rows) == (
        True,
        3,
        3,
        3,
    ), str(result)
    # The deleted rows stay, also that which the repair deletes, and no row loses its place.
    after = stored()
    assert {key: (row[0], row[1] is None, row[2]) for key, row in after.items()} == {
        1: ("a", True, "at 1"),
        2: ("b", True, "at 2"),
        3: ("c", True, "at 3"),
        4: ("d", False, "at 4"),
        5: ("e", False, "at 5"),
    }
    assert after[5] == before[5]
    # For a target that has hard deletes after all.
    result = verify(spark, source, sink.table, repair="merge", deleted_column="")
    assert (result.equal, sorted(stored())) == (True, [1, 2, 3])


def test_repair_by_a_signal_to_debezium(
    spark: SparkSession, postgresql: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target, signals = postgresql.table(5), delta(5), table_name()
    postgresql.run(
        f"CREATE TABLE {signals} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data "
        "VARCHAR(2048))"
    )
    signal = DebeziumSignal(f"public.{signals}")
    assert verify(spark, postgresql.source(source), target, repair=signal).repaired == 0
    spark.sql(f"DELETE FROM {target.sql_name} WHERE id IN (2, 3)")
    spark.sql(f"INSERT INTO {target.sql_name} (id) VALUES (77)")
    result = verify(spark, postgresql.source(source), target, repair=signal)
    assert (result.equal, result.repaired, result.counts["missing"], result.counts["extra"]) == (
        False,
        2,
        2,
        1,
    )
    with JdbcConnection.open(spark, postgresql.source(source)) as connection:
        ((kind, data),) = connection.rows(f"SELECT type, data FROM {signals}")
        request = json.loads(data)
        condition = request["additional-conditions"][0]["filter"]
        assert sorted(connection.rows(f"SELECT id FROM {source} WHERE {condition}")) == [
            ("2",),
            ("3",),
        ]
    assert (kind, request["type"], request["data-collections"]) == (
        "execute-snapshot",
        "incremental",
        [f"public.{source}"],
    )
    assert request["additional-conditions"][0]["data-collection"] == f"public.{source}"


def test_database_targets(
    spark: SparkSession, database: Database, maria: Database, postgresql: Database
) -> None:
    """Each database is the source of the other."""
    name, other = database.table(), postgresql if database.kind == "mariadb" else maria
    target = other.source(other.table())
    if other is postgresql:  # JSON text in the source's spelling, which is text too
        other.run(
            f"ALTER TABLE {target.table} ALTER doc TYPE text",
            f"""UPDATE {target.table} SET doc = '{{"b":[1,2],"a":null}}' WHERE id < 3""",
        )
    assert verify(spark, database.source(name), target).equal
    other.run(
        f"UPDATE {target.table} SET name = '' WHERE id = 1",
        f"DELETE FROM {target.table} WHERE id = 3",
    )
    assert differences(verify(spark, database.source(name), target)) == [
        ("different", "1", ("name",)),
        ("missing", "3", ()),
    ]


def test_a_database_target_says_which_columns_are_computed(
    spark: SparkSession, database: Database
) -> None:
    name, copy = table_name(), database.source(table_name())
    target = JdbcTarget(copy.url, copy.table, copy.user, copy.password, copy.options)
    fields = spark.createDataFrame([], "id INT, `é'\\` STRING").schema.fields
    policy = TablePolicy(select={"É'\\": "upper(name)"})
    target.sink(spark).prepare(TableSpec.of(policy, fields, ("id",)))
    quote = "`" if database.kind == "mariadb" else '"'
    column = f"{quote}é'\\{quote}"
    database.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, {column} VARCHAR(9))",
        f"INSERT INTO {name} VALUES (1, 'a')",
        f"INSERT INTO {target.table} VALUES (1, 'A')",
    )
    result = verify(spark, database.source(name), target)
    assert (result.equal, result.not_compared) == (True, ("é'\\",))


@pytest.mark.iceberg
def test_iceberg_target(
    spark: SparkSession, maria: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target = maria.source(maria.table()), IcebergTarget(f"lake.db.{table_name()}")
    spark.sql(f"CREATE TABLE {target.sql_name} USING iceberg AS SELECT * FROM {delta().sql_name}")
    assert verify(spark, source, target.name).equal
    spark.sql(f"UPDATE {target.sql_name} SET name = '' WHERE id = 1")
    assert differences(verify(spark, source, target)) == [("different", "1", ("name",))]


def test_keys_of_text_bytes_and_times_and_null_and_empty_text(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    name, target = table_name(), DeltaTarget(str(tmp_path / "keys"))
    maria = database.kind == "mariadb"
    types = ("VARBINARY(9)", "DATETIME") if maria else ("BYTEA", "TIMESTAMP")
    zero, backslash = ("x'00ff'", "\\\\") if maria else ("'\\x00ff'", "\\")
    key = f"{zero}, '2026-01-01 00:00:00'"
    database.run(
        f"CREATE TABLE {name} (t VARCHAR(20) NOT NULL, bin {types[0]} NOT NULL, at {types[1]} NOT "
        "NULL, a VARCHAR(9), b VARCHAR(9), PRIMARY KEY (t, bin, at))",
        f"INSERT INTO {name} VALUES ('it''s {backslash}', {key}, '', 'x'), ('2', {key}, NULL, "
        f"'x'), ('3', {key}, 'ab', 'c'), ('4', {key}, 'same', NULL), ('5', {key}, 'new', NULL)",
    )
    spark.sql(
        f"CREATE TABLE {target.sql_name} (t STRING, bin BINARY, at TIMESTAMP_NTZ, a STRING, b "
        "STRING) USING delta"
    )
    key = "X'00FF', TIMESTAMP_NTZ'2026-01-01 00:00:00'"
    spark.sql(
        f"INSERT INTO {target.sql_name} VALUES (concat('it', chr(39), 's ', chr(92)), {key}, NULL, "
        f"'x'), ('2', {key}, 'x', NULL), ('3', {key}, 'a', 'bc'), ('4', {key}, 'same', NULL)"
    )

    def compared(**options: Any) -> list[tuple[str, str | None, tuple[str, ...]]]:
        result = verify(spark, database.source(name), target, **options)
        return sorted((each.kind, dict(each.key)["t"], each.columns) for each in result.differences)

    text = ("different", "it's \\", ("a",))
    both = [("different", each, ("a", "b")) for each in ("2", "3")]
    assert compared() == [*both, text, ("missing", "5", ())]
    # A key with NULL is looked up again in the source, too.
    absent = [("extra", each, ()) for each in ("2", "3")]
    missing = [("missing", each, ()) for each in ("2", "3", "5")]
    assert compared(keys=["t", "b"]) == [text, *absent, *missing]


def test_writers_cause_no_false_difference(spark: SparkSession, database: Database) -> None:
    """A writer changes the source all the time, and a copy follows half a second later, or more."""
    name, target = table_name(), f"{table_name()}_copy"
    create = "(id INT PRIMARY KEY, v INT)"
    numbers = (
        "SELECT seq, 0 FROM seq_1_to_2000"
        if database.kind == "mariadb"
        else "SELECT n, 0 FROM generate_series(1, 2000) AS n"
    )
    for table in (name, target):
        database.run(f"CREATE TABLE {table} {create}", f"INSERT INTO {table} {numbers}")
    written: deque[tuple[float, list[str]]] = deque()
    turns, results = count(), list[Verification]()

    def write() -> None:
        number = next(turns)
        key = number * 37 % 2000
        statements = [
            f"UPDATE {{}} SET v = {number} WHERE id = {key}",
            f"DELETE FROM {{}} WHERE id = {key + 1}",
        ]
        statements.append(f"INSERT INTO {{}} VALUES ({3000 + number}, {number})")
        database.run(*(each.format(name) for each in statements))
        # A copy that is as late as the comparison reads it after the source needs no second look,
        # so the lag grows with each comparison.
        written.append((time.monotonic() + 0.5 + len(results) / 4, statements))
        follow(time.monotonic())

    def follow(now: float) -> None:
        while written and written[0][0] < now:
            database.run(*(each.format(target) for each in written.popleft()[1]))

    copy = database.source(target)
    with repeating(write, pause=0.02):
        while not any(result.rechecked for result in results) and len(results) < 10:
            results.append(verify(spark, database.source(name), copy, max_lag_seconds=6))
    follow(math.inf)
    assert all(result.equal for result in results), "\n".join(map(str, results))
    assert results[-1].rechecked
    database.run(f"INSERT INTO {target} VALUES (999999, 1)")
    assert differences(verify(spark, database.source(name), copy)) == [("extra", "999999", ())]


def test_a_key_whose_source_keeps_changing_is_unsettled(
    spark: SparkSession, maria: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target, numbers = maria.table(), delta(), count(1)
    with repeating(
        lambda: maria.run(f"UPDATE {source} SET price = {next(numbers)} WHERE id = 1"), pause=0.01
    ):
        result = verify(spark, maria.source(source), target, max_lag_seconds=0.5)
    assert (result.equal, result.unsettled, result.differences) == (None, 1, ())
    assert "not known" in str(result)
    assert not result


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


def test_bits_of_one_definition(spark: SparkSession, maria: Database) -> None:
    names = [table_name(), table_name()]
    for name in names:
        maria.run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, flag BIT(1), bits BIT(9))",
            f"INSERT INTO {name} VALUES (1, b'1', b'100000001')",
        )
    source, target = (maria.source(name) for name in names)
    assert verify(spark, source, target).equal
    maria.run(f"UPDATE {names[1]} SET bits = b'1'")
    assert differences(verify(spark, source, target)) == [("different", "1", ("bits",))]


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
