"""ALTER TABLE during a capture: added columns as declared, anything else a stop with nothing lost."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from local_source import SMALL, LocalSource, Replica, Stream, everything, inferred

from capture.errors import SchemaChangedError
from capture.options import read_options
from cdc_formats.errors import SchemaError

LATEST = {"scan.startup.mode": "latest-offset"}


def table(source: LocalSource, name: str, columns: str = "id INT PRIMARY KEY, v INT") -> dict[str, str]:
    source.run(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} (id, v) SELECT seq, 0 FROM seq_1_to_3")
    return source.options(name, **SMALL)


def declared_with(options: dict[str, str], *added: tuple[str, pa.DataType]) -> pa.Schema:
    """The schema of now with columns after the table's own."""
    found = inferred(read_options(options))
    for name, kind in added:
        found = found.insert(len(found) - 4, pa.field(name, kind))
    return found


def brief(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("row_kind", *names)) for row in rows]


def test_added_column_that_is_not_declared_is_left_out_with_a_warning(source: LocalSource, caplog: pytest.LogCaptureFixture) -> None:
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
    assert [record.message for record in caplog.records if "`w` is left out" in record.message] == [
        "`test`.`left_out`: column `w` is left out; to have it, declare it or start the query again"
    ]


def test_declared_column_is_null_until_it_is_added(source: LocalSource, caplog: pytest.LogCaptureFixture) -> None:
    options = table(source, "declared")
    with caplog.at_level(logging.WARNING):
        stream = Stream(options, declared=declared_with(options, ("w", pa.int32()), ("x", pa.string())))
    assert "has no column `w`: it is NULL until it is added" in caplog.text
    assert brief(everything(stream), "id", "w", "x") == [("+I", key, None, None) for key in (1, 2, 3)]
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


def test_chunk_that_is_selected_after_a_column_was_added_has_the_columns_of_before(source: LocalSource) -> None:
    options = table(source, "chunk_of")
    stream = Stream(options)
    end = stream.reader.latestOffset()
    planned = stream.between(stream.start, end)
    source.run(
        "UPDATE chunk_of SET v = 1 WHERE id = 1",
        "ALTER TABLE chunk_of ADD COLUMN w INT DEFAULT 7 FIRST",
        "UPDATE chunk_of SET v = 2 WHERE id IN (1, 2)",
        "DELETE FROM chunk_of WHERE id = 3",
    )
    rows = list(planned)
    assert sorted(brief(rows, "id", "v")) == [("+I", 1, 0), ("+I", 2, 0), ("+I", 3, 0)]
    # The same from the checkpoint, by a query that has the column.
    again = Stream(options, end)
    replayed = list(again.between(stream.start, end))
    assert sorted(brief(replayed, "id", "v", "w")) == [("+I", 1, 0, None), ("+I", 2, 0, None), ("+I", 3, 0, None)]
    assert brief(everything(again), "id", "v", "w") == [
        ("-U", 1, 0, None),
        ("+U", 1, 1, None),
        ("-U", 1, 1, 7),
        ("+U", 1, 2, 7),
        ("-U", 2, 0, 7),
        ("+U", 2, 2, 7),
        ("-D", 3, 0, 7),
    ]


def test_declared_types_that_are_not_the_tables_are_refused(source: LocalSource) -> None:
    options = table(source, "typed")
    right = inferred(read_options(options))
    with pytest.raises(SchemaError, match=r"column `v` of `test`\.`typed` has another type than declared: declare it INT"):
        Stream(options, declared=right.set(right.get_field_index("v"), pa.field("v", pa.string())))
    with pytest.raises(SchemaError, match="lacks row_kind, id"):
        Stream(options, declared=right.remove(1).remove(0))
    stream = Stream(options, declared=declared_with(options, ("w", pa.int64())))
    everything(stream)
    source.run("INSERT INTO typed VALUES (4, 4)", "ALTER TABLE typed ADD COLUMN w INT", "INSERT INTO typed VALUES (5, 5, 5)")
    assert brief(stream.batch(), "id") == [("+I", 4)]
    with pytest.raises(SchemaError, match=r"column `w`.* declare it INT"):
        stream.batch()
    restarted = Stream(options, stream.start, declared_with(source.options("typed")))
    assert brief(everything(restarted), "id", "w") == [("+I", 5, 5)]


def test_declared_columns_may_be_fewer_and_in_another_order(source: LocalSource) -> None:
    options = table(source, "fewer", "id INT PRIMARY KEY, a INT DEFAULT 1, v INT")
    found = inferred(read_options(options))
    stream = Stream(options, declared=pa.schema([found.field(name) for name in ("database", "v", "row_kind", "id")]))
    assert list(stream.batch()[0].items()) == [("database", "test"), ("v", 0), ("row_kind", "+I"), ("id", 1)]


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
}


@pytest.mark.parametrize("name", STOPS)
def test_statement_that_does_more_than_to_add_columns_stops_after_all_before_it(source: LocalSource, name: str) -> None:
    more = " PARTITION BY HASH (id) (PARTITION p)" if name == "emptied_partition" else ""
    source.run(f"CREATE TABLE {name} (id INT, k INT, v INT, PRIMARY KEY (id)) {more}")
    stream = Stream(source.options(name, **LATEST))
    source.run(f"INSERT INTO {name} VALUES (1, 1, 1)", STOPS[name].format(name))
    assert brief(stream.batch(), "id", "v") == [("+I", 1, 1)]
    with pytest.raises(SchemaChangedError, match="All before it has been emitted"):
        stream.batch()


def test_query_that_starts_again_goes_on_with_the_columns_of_then(source: LocalSource) -> None:
    options = table(source, "again") | LATEST
    stream = Stream(options)
    source.run("INSERT INTO again VALUES (4, 4)", "ALTER TABLE again DROP COLUMN v, ADD COLUMN w INT", "INSERT INTO again VALUES (5, 5)")
    assert brief(stream.batch(), "id", "v") == [("+I", 4, 4)]
    with pytest.raises(SchemaChangedError):
        stream.batch()
    assert brief(everything(Stream(options, stream.start)), "id", "w") == [("+I", 5, 5)]


def test_rows_whose_columns_are_not_known_stop(source: LocalSource) -> None:
    options = table(source, "unknown") | LATEST
    stream = Stream(options)
    source.run("INSERT INTO unknown VALUES (4, 4)", "ALTER TABLE unknown MODIFY v INT UNSIGNED")
    with pytest.raises(SchemaChangedError, match="the columns that it had there are not known"):
        Stream(options, stream.start).batch()  # it was not there when the column was altered
    twice = table(source, "twice") | LATEST
    stream = Stream(twice)
    source.run(
        "ALTER TABLE twice ADD COLUMN w INT", "INSERT INTO twice VALUES (4, 4, 4)", "ALTER TABLE twice MODIFY w INT UNSIGNED DEFAULT 1"
    )
    with pytest.raises(SchemaChangedError, match="ADD COLUMN w INT"):
        stream.batch()


def test_key_that_changes_within_the_snapshot_stops_for_good(source: LocalSource) -> None:
    source.run("CREATE TABLE rekeyed (id INT, k INT, PRIMARY KEY (id))", "INSERT INTO rekeyed SELECT seq, -seq FROM seq_1_to_40")
    options, replica = source.options("rekeyed", **SMALL), Replica("id")
    stream = Stream(options)
    replica.apply(stream.batch())
    replica.apply(stream.batch())
    source.run("ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (k)")
    with pytest.raises(SchemaChangedError):
        everything(stream)
    with pytest.raises(SchemaChangedError, match="another key"):
        Stream(options, stream.start).batch()


@pytest.mark.parametrize("statement", ["ALTER TABLE {} DROP COLUMN v", "DROP TABLE {}"], ids=["column", "table"])
def test_chunk_whose_column_or_table_is_gone_stops(source: LocalSource, statement: str) -> None:
    name = f"lost_{statement.split()[0].lower()}"
    stream = Stream(table(source, name))
    partitions = stream.reader.partitions(stream.start, stream.reader.latestOffset())
    source.run(statement.format(name))
    with pytest.raises(SchemaChangedError, match=r"while its snapshot was read.*[Bb]egin anew"):
        list(stream.reader.read(partitions[0]))
