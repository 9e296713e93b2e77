"""ALTER TABLE in a capture: added columns are read as declared; all else stops it without loss."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from capture.errors import SchemaChangedError
from capture.options import read_options
from cdc_formats.errors import SchemaError
from tests.support.servers.local_source import (
    LATEST,
    SMALL,
    LocalSource,
    Replica,
    Stream,
    everything,
    inferred,
)


def table(
    source: LocalSource, name: str, columns: str = "id INT PRIMARY KEY, v INT"
) -> dict[str, str]:
    source.table(name, columns, rows=3)
    return source.options(name, **SMALL)


def declared_with(options: dict[str, str], *added: tuple[str, pa.DataType]) -> pa.Schema:
    """Return the current schema with further columns after the table's own."""
    schema = inferred(read_options(options))
    for name, kind in added:
        schema = schema.insert(len(schema) - 4, pa.field(name, kind))
    return schema


def brief(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("row_kind", *names)) for row in rows]


def test_undeclared_added_column_is_omitted_with_a_warning(
    source: LocalSource, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(table(source, "left_out"))
    everything(stream)
    source.run(
        "INSERT INTO left_out VALUES (4, 4)",
        "ALTER TABLE left_out ADD COLUMN w VARCHAR(9) DEFAULT 'd' AFTER id",
        "INSERT INTO left_out VALUES (5, 'x', 5)",
        "UPDATE left_out SET v = 1 WHERE id = 1",
    )
    with caplog.at_level(logging.WARNING):
        rows = everything(stream)
    assert brief(rows, "id", "v") == [("+I", 4, 4), ("+I", 5, 5), ("-U", 1, 0), ("+U", 1, 1)]
    assert "w" not in rows[0]
    assert [record.message for record in caplog.records if "`w` is omitted" in record.message] == [
        "`test`.`left_out`: column `w` is omitted; to read it, declare it or restart the query"
    ]


def test_declared_column_is_null_until_it_is_added(
    source: LocalSource, caplog: pytest.LogCaptureFixture
) -> None:
    options = table(source, "declared")
    with caplog.at_level(logging.WARNING):
        stream = Stream(
            options, declared=declared_with(options, ("w", pa.int32()), ("x", pa.string()))
        )
    assert "has no column `w`: it is NULL until it is added" in caplog.text
    assert brief(everything(stream), "id", "w", "x") == [
        ("+I", key, None, None) for key in (1, 2, 3)
    ]
    source.run(
        "INSERT INTO declared VALUES (4, 4)",
        "ALTER TABLE declared ADD COLUMN w INT DEFAULT 7",
        "UPDATE declared SET v = 1 WHERE id = 1",
        "ALTER TABLE declared COMMENT 'harmless'",
        "ALTER TABLE declared ADD COLUMN (y INT, x VARCHAR(5)), ADD INDEX (w)",
        "DROP INDEX w ON declared",
        "INSERT INTO declared VALUES (5, 5, 8, 9, 'x')",
    )
    assert brief(everything(stream), "id", "v", "w", "x") == [
        ("+I", 4, 4, None, None),
        ("-U", 1, 0, 7, None),
        ("+U", 1, 1, 7, None),
        ("+I", 5, 5, 8, "x"),
    ]


def test_chunk_selected_after_a_column_was_added_has_the_previous_columns(
    source: LocalSource,
) -> None:
    options = table(source, "chunk_of")
    stream = Stream(options)
    end = stream.latest()
    planned = stream.between(stream.start, end)
    source.run(
        "UPDATE chunk_of SET v = 1 WHERE id = 1",
        "ALTER TABLE chunk_of ADD COLUMN w INT DEFAULT 7 FIRST",
        "UPDATE chunk_of SET v = 2 WHERE id IN (1, 2)",
        "DELETE FROM chunk_of WHERE id = 3",
    )
    rows = list(planned)
    assert sorted(brief(rows, "id", "v")) == [("+I", 1, 0), ("+I", 2, 0), ("+I", 3, 0)]
    # A query with the new column, started from the checkpoint, returns the same rows.
    again = Stream(options, end)
    replayed = list(again.between(stream.start, end))
    assert sorted(brief(replayed, "id", "v", "w")) == [
        ("+I", 1, 0, None),
        ("+I", 2, 0, None),
        ("+I", 3, 0, None),
    ]
    assert brief(everything(again), "id", "v", "w") == [
        ("-U", 1, 0, None),
        ("+U", 1, 1, None),
        ("-U", 1, 1, 7),
        ("+U", 1, 2, 7),
        ("-U", 2, 0, 7),
        ("+U", 2, 2, 7),
        ("-D", 3, 0, 7),
    ]


def test_declared_types_that_differ_from_the_table_raise_an_error(source: LocalSource) -> None:
    options = table(source, "typed")
    right = inferred(read_options(options))
    with pytest.raises(
        SchemaError,
        match=r"column `v` of `test`\.`typed` has another type than declared: declare it INT",
    ):
        Stream(options, declared=right.set(right.get_field_index("v"), pa.field("v", pa.string())))
    with pytest.raises(SchemaError, match="lacks row_kind, id"):
        Stream(options, declared=right.remove(1).remove(0))
    stream = Stream(options, declared=declared_with(options, ("w", pa.int64())))
    everything(stream)
    source.run(
        "INSERT INTO typed VALUES (4, 4)",
        "ALTER TABLE typed ADD COLUMN w INT",
        "INSERT INTO typed VALUES (5, 5, 5)",
    )
    assert brief(stream.batch(), "id") == [("+I", 4)]
    with pytest.raises(SchemaError, match=r"column `w`.* declare it INT"):
        stream.batch()
    restarted = Stream(options, stream.start, declared_with(source.options("typed")))
    assert brief(everything(restarted), "id", "w") == [("+I", 5, 5)]


def test_declared_columns_may_be_fewer_and_in_another_order(source: LocalSource) -> None:
    options = table(source, "fewer", "id INT PRIMARY KEY, a INT DEFAULT 1, v INT")
    schema = inferred(read_options(options))
    stream = Stream(
        options,
        declared=pa.schema([schema.field(name) for name in ("database", "v", "row_kind", "id")]),
    )
    assert list(stream.batch()[0].items()) == [
        ("database", "test"),
        ("v", 0),
        ("row_kind", "+I"),
        ("id", 1),
    ]


SWAP = "ALTER TABLE {0} RENAME COLUMN k TO v, RENAME COLUMN v TO k"
MORE = "; INSERT INTO {0} (id, k, v) VALUES (2, 10, 20)"
STOPS = {
    "dropped_column": "ALTER TABLE {} DROP COLUMN v",
    "modified": "ALTER TABLE {} MODIFY v INT UNSIGNED",
    "renamed_column": "ALTER TABLE {} RENAME COLUMN v TO w",
    "added_and_modified": "ALTER TABLE {} ADD COLUMN w INT, MODIFY v BIGINT",
    "other_key": "ALTER TABLE {} DROP PRIMARY KEY, ADD PRIMARY KEY (id, k)",
    "truncated": "TRUNCATE TABLE {}",
    "renamed_table": "RENAME TABLE {0} TO {0}_old",
    "renamed_too": "ALTER TABLE {0} RENAME {0}_old",
    "dropped_table": "/* now */ DROP TABLE test.`{}`",
    "replaced": "CREATE OR REPLACE TABLE {} (id INT PRIMARY KEY)",
    "emptied_partition": "ALTER TABLE {} TRUNCATE PARTITION p",
    "partition_behind_comment": "ALTER TABLE {} /*!50000 TRUNCATE */ PARTITION p",
    "partition_made_table": "ALTER TABLE {0} CONVERT PARTITION p TO TABLE {0}_p",
    "behind_hash": "# comment\nTRUNCATE TABLE {}",
    "behind_comments": "/* c */" * 40 + "-- c\n" * 40 + "TRUNCATE TABLE {}",
    "executable": "/*!50000 TRUNCATE TABLE {} */",
    "executable_by_mariadb": "/*M!100000 TRUNCATE TABLE {} */",
    "of_default_database": "TRUNCATE TABLE .{}",
    "set_and_truncated": "SET STATEMENT max_statement_time=100 FOR TRUNCATE TABLE {}",
    "set_twice_and_renamed": (
        "SET STATEMENT lock_wait_timeout=9 FOR SET STATEMENT max_statement_time=(SELECT 9) FOR "
        "RENAME TABLE {} TO old"
    ),
    "replaced_behind_comment": "CREATE /* c */ OR REPLACE TABLE {} (id INT PRIMARY KEY, v INT, k INT)",
    "replaced_by_sequence": "CREATE OR REPLACE SEQUENCE {}",
    "rows_ignored": "ALTER IGNORE TABLE {} ADD UNIQUE (k)",
    "renamed_by_equals": "ALTER TABLE {0} RENAME = {0}_x",
    "dropped_and_added": "ALTER TABLE {} DROP COLUMN v, ADD COLUMN v INT",
    "regenerated": "ALTER TABLE {} MODIFY g INT AS (k + 2) STORED",
    "swapped": SWAP + MORE,
    "executable_swap": f"/*!50000 {SWAP} */{MORE}",
    "swap_behind_hash": f"# c\n{SWAP}{MORE}",
    "set_and_swapped": f"SET STATEMENT max_statement_time=100 FOR {SWAP}{MORE}",
    "replaced_by_swapped": "CREATE/* c */OR REPLACE TABLE {0} (id INT PRIMARY KEY, v INT, k INT)"
    + MORE,
}


@pytest.mark.parametrize("name", STOPS)
def test_statement_that_does_more_than_add_columns_stops_after_all_earlier_changes(
    source: LocalSource, name: str
) -> None:
    of_partition = (
        " PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN "
        "(99))"
    )
    generated = ", g INT AS (k + 1) STORED" if name == "regenerated" else ""
    source.run(
        f"CREATE TABLE {name} (id INT, k INT, v INT{generated}, PRIMARY KEY (id)) "
        f"{of_partition if 'partition' in name else ''}"
    )
    stream = Stream(source.options(name, **LATEST))
    source.run(
        f"INSERT INTO {name} (id, k, v) VALUES (1, 10, 20)", *STOPS[name].format(name).split("; ")
    )
    assert brief(stream.batch(), "id", "k", "v") == [("+I", 1, 10, 20)]
    with pytest.raises(
        SchemaChangedError, match="The query has emitted all changes before it and none after it"
    ):
        stream.batch()


def test_reverted_change_of_columns_stops(source: LocalSource) -> None:
    source.run("CREATE TABLE undone (id INT PRIMARY KEY, k INT, v INT)")
    stream = Stream(source.options("undone", **LATEST))
    moves = [f"ALTER TABLE undone MODIFY v INT {place}" for place in ("AFTER id", "AFTER k")]
    source.run(moves[0], "INSERT INTO undone (id, k, v) VALUES (1, 10, 20)", moves[1])
    with pytest.raises(SchemaChangedError, match="MODIFY v INT AFTER id"):
        stream.batch()


def test_statement_of_a_session_with_other_settings_stops(
    source: LocalSource, tmp_path: Path
) -> None:
    (tmp_path / "row").write_text("3\t3\n")
    load = f"LOAD DATA LOCAL INFILE '{tmp_path / 'row'}' INTO TABLE loaded"
    statements = {
        "quoted": ("SET sql_mode = 'ANSI_QUOTES'", 'TRUNCATE "quoted"', "is altered at .*TRUNCATE"),
        "müll": ("SET NAMES latin1", "TRUNCATE müll", "is altered at .*TRUNCATE müll"),
        "written": (
            "SET binlog_format = STATEMENT",
            "UPDATE written SET v = 5",
            "is changed at .*UPDATE.*Use binlog_format = ROW",
        ),
        "loaded": (
            "SET binlog_format = STATEMENT",
            load,
            "is changed at .*LOAD DATA.*Use binlog_format = ROW",
        ),
    }
    for name, (setting, statement, reason) in statements.items():
        stream = Stream(table(source, name) | LATEST)
        source.run(f"INSERT INTO {name} VALUES (9, 9)")
        with source.connect(local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(setting)
            connection.encoding = "cp1252" if "latin1" in setting else "utf8"
            cursor.execute(statement)
        assert brief(stream.batch(), "id") == [("+I", 9)]
        with pytest.raises(SchemaChangedError, match=reason):
            stream.batch()


def test_replaced_database_stops(source: LocalSource) -> None:
    source.run("CREATE DATABASE replaced_db", "CREATE TABLE replaced_db.t (id INT PRIMARY KEY)")
    stream = Stream(source.options("t", **LATEST) | {"database-name": "replaced_db"})
    source.run("CREATE OR REPLACE DATABASE replaced_db")
    with pytest.raises(SchemaChangedError, match=r"is altered at .*CREATE OR REPLACE DATABASE"):
        stream.batch()


def test_statement_that_keeps_rows_and_columns_does_not_stop(source: LocalSource) -> None:
    source.run("CREATE TABLE harmless2 (id INT)", "CREATE DATABASE IF NOT EXISTS elsewhere")
    stream = Stream(table(source, "harmless") | LATEST)
    source.run(
        "DROP TABLE harmless2",
        "CREATE TABLE elsewhere.harmless (id INT)",
        "DROP TABLE elsewhere.harmless",
        "ANALYZE TABLE harmless",
        "OPTIMIZE TABLE harmless",
        (
            "CREATE OR REPLACE TRIGGER harmless_trigger BEFORE INSERT ON harmless FOR EACH ROW SET "
            "NEW.v = NEW.v + 1"
        ),
        "CREATE PROCEDURE harmless_procedure() BEGIN TRUNCATE TABLE harmless; END",
        "CREATE OR REPLACE VIEW harmless_view AS SELECT * FROM harmless",
        "CREATE OR REPLACE TABLE harmless_copy AS SELECT * FROM harmless",
        "CREATE TEMPORARY TABLE harmless (x INT)",
        "TRUNCATE harmless",
        "DROP TEMPORARY TABLE harmless",
        "ALTER TABLE harmless_copy ADD FOREIGN KEY (id) REFERENCES harmless (id), DROP COLUMN v",
        "CREATE UNIQUE INDEX i ON harmless (id, v)",
        "ALTER TABLE harmless ENGINE=InnoDB, MODIFY v INT COMMENT 'DROP COLUMN v', DROP INDEX i",
        "INSERT INTO harmless VALUES (4, 4)",
    )
    assert brief(everything(stream), "id", "v") == [("+I", 4, 5)]


def test_restarted_query_continues_with_the_current_columns(source: LocalSource) -> None:
    options = table(source, "again") | LATEST
    stream = Stream(options)
    source.run(
        "INSERT INTO again VALUES (4, 4)",
        "ALTER TABLE again DROP COLUMN v, ADD COLUMN w INT",
        "INSERT INTO again VALUES (5, 5)",
    )
    assert brief(stream.batch(), "id", "v") == [("+I", 4, 4)]
    with pytest.raises(SchemaChangedError):
        stream.batch()
    assert brief(everything(Stream(options, stream.start)), "id", "w") == [("+I", 5, 5)]


def test_rows_with_unknown_columns_stop(source: LocalSource) -> None:
    options = table(source, "unknown") | LATEST
    stream = Stream(options)
    source.run("INSERT INTO unknown VALUES (4, 4)", "ALTER TABLE unknown MODIFY v INT UNSIGNED")
    with pytest.raises(SchemaChangedError, match="the columns that it had there are unknown"):
        Stream(options, stream.start).batch()  # this stream did not run when the column was altered
    twice = table(source, "twice") | LATEST
    stream = Stream(twice)
    source.run(
        "ALTER TABLE twice ADD COLUMN w INT",
        "INSERT INTO twice VALUES (4, 4, 4)",
        "ALTER TABLE twice MODIFY w INT UNSIGNED DEFAULT 1",
    )
    with pytest.raises(SchemaChangedError, match="ADD COLUMN w INT"):
        stream.batch()


def test_key_that_changes_during_the_snapshot_requires_a_new_checkpoint(
    source: LocalSource,
) -> None:
    source.run(
        "CREATE TABLE rekeyed (id INT, k INT, PRIMARY KEY (id))",
        "INSERT INTO rekeyed SELECT seq, -seq FROM seq_1_to_40",
    )
    options, replica = source.options("rekeyed", **SMALL), Replica("id")
    stream = Stream(options)
    replica.apply(stream.batch())
    replica.apply(stream.batch())
    source.run("ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (k)")
    with pytest.raises(SchemaChangedError):
        everything(stream)
    with pytest.raises(SchemaChangedError, match="another key"):
        Stream(options, stream.start).batch()


MOVES = {
    "back": [("ALTER TABLE {} MODIFY k INT AFTER v",), ("ALTER TABLE {} MODIFY k INT AFTER id",)],
    "added": [
        ("ALTER TABLE {} ADD COLUMN w INT AFTER id",),
        ("ALTER TABLE {} MODIFY w INT AFTER k",),
    ],
    "swapped": [("SET STATEMENT max_statement_time=9 FOR " + SWAP,), ()],
}


@pytest.mark.parametrize("name", MOVES)
def test_columns_that_move_while_a_chunk_is_read_stop(source: LocalSource, name: str) -> None:
    source.run(
        f"CREATE TABLE moved_{name} (id INT PRIMARY KEY, k INT, v INT)",
        f"INSERT INTO moved_{name} VALUES (1, 10, 20)",
    )
    stream = Stream(source.options(f"moved_{name}", **SMALL))
    partitions = stream.reader.partitions(stream.start, stream.latest())
    first, second = (
        [statement.format(f"moved_{name}") for statement in statements]
        for statements in MOVES[name]
    )
    source.run(*first, f"UPDATE moved_{name} SET id = 2", *second)
    with pytest.raises(
        SchemaChangedError, match=r"while its snapshot was read.*Start with a new checkpoint"
    ):
        list(stream.reader.read(partitions[0]))


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE {} DROP COLUMN v", "DROP TABLE {}"], ids=["column", "table"]
)
def test_column_or_table_dropped_before_its_chunk_is_read_stops(
    source: LocalSource, statement: str
) -> None:
    name = f"lost_{statement.split()[0].lower()}"
    stream = Stream(table(source, name))
    partitions = stream.reader.partitions(stream.start, stream.latest())
    source.run(statement.format(name))
    with pytest.raises(
        SchemaChangedError, match=r"while its snapshot was read.*Start with a new checkpoint"
    ):
        list(stream.reader.read(partitions[0]))
