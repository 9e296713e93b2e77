"""`verify_table` on real databases: equality, each kind of difference, and concurrent writers."""

import math
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.values.masks import NO_MASKS
from normalize import DeltaTarget, JdbcTarget
from normalize.tables.table_options import TableOptions, TablePolicy
from normalize.tables.table_spec import TableSpec
from normalize.verify.chunk import Key
from normalize.verify.comparison import Comparison, Pair
from normalize.verify.verification import Verification
from normalize.verify.verify_table import comparison_of, source_table, target_table
from tests.support.servers.local_source import repeating
from tests.support.sinking import table_name
from tests.support.verifying import Database, differences, verify


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
    tables = source_table(spark, database.source(name)), target_table(spark, target)
    comparison = comparison_of(spark, *tables, (), (), "", None, NO_MASKS)
    assert in_chunks(comparison) == [("1", "different"), ("3", "missing")]


def in_chunks(comparison: Comparison) -> list[tuple[str | None, str]]:
    """Return the first columns of the keys that differ, as chunks of two rows show them."""
    differing, after, chunks = dict[Key, Pair](), None, 0
    while not chunks or after is not None:
        scan = comparison.chunk(after, 2)
        assert not differing.keys() & scan.differing.keys()
        differing |= scan.differing
        after, chunks = scan.upto, chunks + 1
    assert chunks > 1
    return sorted((key[0], pair.kind) for key, pair in differing.items())


def test_a_database_target_says_which_columns_are_computed(
    spark: SparkSession, database: Database
) -> None:
    name, copy = table_name(), database.source(table_name())
    target = JdbcTarget(copy.url, copy.table, copy.user, copy.password, copy.options)
    fields = spark.createDataFrame([], "id INT, `é'\\` STRING").schema.fields
    policy = TablePolicy.of(TableOptions(select={"É'\\": "upper(name)"}))
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
    tables = source_table(spark, database.source(name)), target_table(spark, target)
    comparison = comparison_of(spark, *tables, (), (), "", None, NO_MASKS)
    assert in_chunks(comparison) == [
        ("2", "different"),
        ("3", "different"),
        *(("5", "missing"), ("it's \\", "different")),
    ]
    absent = [("extra", each, ()) for each in ("2", "3")]
    missing = [("missing", each, ()) for each in ("2", "3", "5")]
    assert compared(keys=["t", "b"]) == [text, *absent, *missing]


def test_keys_of_texts_that_a_server_converts_and_of_numbers_that_are_text_in_spark(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    name, target = table_name(), DeltaTarget(str(tmp_path / "keys"))
    maria = database.kind == "mariadb"
    latin, numbers = (
        ("VARCHAR(9) CHARACTER SET latin1", "DECIMAL(45)") if maria else ("VARCHAR(9)", "NUMERIC")
    )
    keys = [("z", 10), ("z", 9), ("é", 9), ("ü", 10)]  # as their bytes are ordered
    database.run(
        f"CREATE TABLE {name} (t {latin}, n {numbers}, v INT, PRIMARY KEY (t, n))",
        *(f"INSERT INTO {name} VALUES ('{text}', {number}, 1)" for text, number in keys),
    )
    values = ", ".join(
        f"('{text}', '{number}', {1 + (number != 9 or text > 'z')})" for text, number in keys
    )
    spark.sql(f"CREATE TABLE {target.sql_name} (t STRING, n STRING, v INT) USING delta")
    spark.sql(f"INSERT INTO {target.sql_name} VALUES {values}")
    result = verify(spark, database.source(name), target)
    assert differences(result) == [("different", text, ("v",)) for text in "zéü"]
    tables = source_table(spark, database.source(name)), target_table(spark, target)
    comparison = comparison_of(spark, *tables, (), (), "", None, NO_MASKS)
    assert in_chunks(comparison) == [(text, "different") for text in "zéü"]


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
