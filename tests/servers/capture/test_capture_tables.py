"""Several tables in one reader, selected by name or regular expression."""

import logging
from typing import Any

import pyarrow as pa
import pytest

from capture.binlog import LogReader
from capture.chunk import Chunk, read_chunks, rows_of
from capture.errors import SchemaChangedError, ServerNotReadyError
from capture.options import read_options
from capture.server import LogPosition, Server, connect, run_query
from capture.source import MySqlChangelog
from capture.tables import find_tables, read_tables
from cdc_formats.errors import ArgumentError, SchemaError, StateVersionError
from cdc_formats.values.key_range import KeyRange
from tests.support.servers.local_source import (
    LATEST,
    SMALL,
    LocalSource,
    Replica,
    Stream,
    everything,
    inferred,
)


def brief(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("table", "row_kind", *names)) for row in rows]


def make(source: LocalSource, *names: str, columns: str = "id INT PRIMARY KEY, v INT") -> None:
    for name in names:
        source.table(name, columns, rows=2, v="seq")


def selected(source: LocalSource, database: str, table: str) -> list[str]:
    options = read_options(source.options(table) | {"database-name": database})
    return [
        f"{each.database}.{each.name}"
        for each in run_query(options, lambda server: find_tables(server, options))
    ]


def test_existing_name_takes_precedence_over_a_regular_expression(source: LocalSource) -> None:
    source.run(
        *(
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY)"
            for name in ("a.b", "axb", "price$", "price", "o(pen", "Cased")
        ),
        "CREATE VIEW price_view AS SELECT * FROM price",
        "CREATE TABLE `pri``ce` (id INT PRIMARY KEY)",
    )
    expected = {
        ("test", "a.b"): ["test.a.b"],
        ("test", "a[.x]b"): ["test.a.b", "test.axb"],
        ("test", "price$"): ["test.price$"],
        ("te.t", "price.*|axb"): ["test.axb", "test.price", "test.price$"],
        ("test", "o(pen"): ["test.o(pen"],
        ("test|mysql", "Case.|user|pri`ce"): ["test.Cased", "test.pri`ce"],
    }
    assert {names: selected(source, *names) for names in expected} == expected
    with pytest.raises(
        ServerNotReadyError,
        match=(
            r"no table matches te\.t\.cased, by name or as a regular expression.*GRANT SELECT ON "
            r"\*\.\*"
        ),
    ):
        selected(source, "te.t", "cased")
    with pytest.raises(
        ArgumentError,
        match=(
            "option 'table-name' is 'a\\(', which is neither an existing name nor a valid regular "
            "expr"
        ),
    ):
        selected(source, "test", "a(")
    stream = Stream(source.options("a.b", **SMALL))
    assert stream.batch() == []
    source.run("INSERT INTO `a.b` VALUES (1)", "INSERT INTO axb VALUES (2)")
    assert brief(stream.batch(), "id") == [("a.b", "+I", 1)]


def test_tables_of_several_databases_with_different_keys(source: LocalSource) -> None:
    source.run("CREATE DATABASE shop_1", "CREATE DATABASE shop_2")
    make(source, "shop_1.orders")
    make(source, "shop_2.orders", columns="v INT, id INT, PRIMARY KEY (id, v)")
    options = source.options("orders", **SMALL) | {"database-name": "shop_[0-9]"}
    stream, replicas = Stream(options), {"shop_1": Replica("id"), "shop_2": Replica("id", "v")}
    rows = stream.batch()
    assert not stream.start["snapshot"], "small tables share a batch"
    source.run(
        "UPDATE shop_1.orders SET v = 7 WHERE id = 1",
        "UPDATE shop_2.orders SET v = 8 WHERE id = 1",
        "DELETE FROM shop_1.orders LIMIT 1",
    )
    rows += everything(Stream(options, stream.start))
    for name, replica in replicas.items():
        replica.apply(row for row in rows if row["database"] == name)
    assert [replica.contents() for replica in replicas.values()] == [{(2, 2)}, {(1, 8), (2, 2)}]
    assert [row["row_kind"] for row in rows if row["database"] == "shop_2"][2:] == [
        "-D",
        "+I",
    ]  # its key changed


def test_tables_with_different_columns_require_a_declared_schema(source: LocalSource) -> None:
    make(source, "differs_1")
    make(source, "differs_2", columns="v INT, id INT PRIMARY KEY")
    source.run(
        "CREATE TABLE differs_3 (v INT, w VARCHAR(5), id INT PRIMARY KEY)",
        "INSERT INTO differs_3 VALUES (3, 'w', 3)",
    )
    options = source.options("differs_.", **SMALL)
    assert (
        MySqlChangelog(source.options("differs_[12]"))
        .schema()
        .startswith("row_kind STRING, `id` INT, `v` INT, database")
    )
    with pytest.raises(
        SchemaError,
        match=(
            r"column `w` is STRING in `test`\.`differs_3` and missing in "
            r"`test`\.`differs_1`.*\.schema\("
        ),
    ):
        MySqlChangelog(options).schema()
    declared = inferred(read_options(source.options("differs_3")))
    rows = everything(Stream(options, declared=declared))
    assert sorted(brief(rows, "v", "w")) == [
        ("differs_1", "+I", 1, None),
        ("differs_1", "+I", 2, None),
        ("differs_2", "+I", 1, None),
        ("differs_2", "+I", 2, None),
        ("differs_3", "+I", 3, "w"),
    ]
    source.run("ALTER TABLE differs_2 MODIFY v BIGINT")
    with pytest.raises(
        SchemaError, match=r"column `v` is BIGINT in `test`\.`differs_2` and INT in"
    ):
        MySqlChangelog(options).schema()
    with pytest.raises(
        SchemaError, match=r"column `v` of `test`\.`differs_2` has another type than declared"
    ):
        Stream(options, declared=declared)
    source.run("ALTER TABLE differs_2 DROP PRIMARY KEY")
    with pytest.raises(ServerNotReadyError, match=r"test\.differs_2 has no primary key"):
        Stream(options, declared=declared)


def test_table_created_later_is_not_captured_and_logs_one_warning(
    source: LocalSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.run("CREATE DATABASE late_1", "CREATE DATABASE late_2")
    make(source, "late_1.a", "late_1.b", "late_2.a")
    options = source.options("[ab]", **LATEST, **{"heartbeat.interval": "0s"}) | {
        "database-name": "late_[12]"
    }
    stream = Stream(options)
    make(source, "late_2.b")
    source.run("INSERT INTO late_1.b VALUES (3, 3)")
    with caplog.at_level(logging.WARNING):
        assert brief(stream.batch(), "id") == [("b", "+I", 3)]
        source.run(
            "INSERT INTO late_2.b VALUES (3, 3)",
            "CREATE TABLE late_1.c (id INT)",
            "INSERT INTO late_2.a VALUES (4, 4)",
        )
        assert brief(stream.batch(), "id") == [("a", "+I", 4)]
    assert [record.message for record in caplog.records] == [
        "`late_2`.`b` is not captured: it did not exist or did not match the options when the "
        "stream began; to capture it, set scan.newly-added-table.enabled = true"
    ]
    with pytest.raises(
        ArgumentError,
        match=(
            r"the checkpoint contains `late_1`\.`b`, which the options database-name and "
            r"table-name do not match"
        ),
    ):
        Stream(options | {"table-name": "a"}, stream.start).batch()


@pytest.mark.parametrize("mode", ["initial", "latest-offset"])
def test_new_tables_are_added_with_all_their_rows(source: LocalSource, mode: str) -> None:
    name = f"join_{mode.partition('-')[0]}"
    make(source, f"{name}_a", f"{name}_0")
    joining = {
        "scan.newly-added-table.enabled": "true",
        "scan.startup.mode": mode,
        "heartbeat.interval": "0s",
    }
    options = source.options(f"{name}_a", **SMALL) | joining
    begun = Stream(options)
    rows = everything(begun)
    assert {row["table"] for row in rows} == ({f"{name}_a"} if mode == "initial" else set())
    make(source, f"{name}_b")
    source.run(
        f"INSERT INTO {name}_b SELECT seq, 3 FROM seq_3_to_40",
        f"UPDATE {name}_a SET v = 4 WHERE id = 1",
    )
    stream = Stream(
        options | {"table-name": f"{name}_[ab]"}, begun.start
    )  # b was created, and the options match it, since begun ended
    rows += (first := stream.batch())
    assert brief(first, "id")[:2] == [(f"{name}_a", kind, 1) for kind in ("-U", "+U")]
    assert {row["table"] for row in first} == {f"{name}_a", f"{name}_b"}, (
        "one batch adds a table and reads its first chunks"
    )
    source.run(
        f"UPDATE {name}_b SET v = 5 WHERE id IN (1, 40)", f"INSERT INTO {name}_a VALUES (6, 6)"
    )
    stream = Stream(
        options | {"table-name": f"{name}_."}, stream.start
    )  # during b's snapshot, the options add 0, which existed before
    rows += everything(stream)
    make(source, f"{name}_c")  # created while the stream runs
    source.run(
        f"ALTER TABLE {name}_c ADD w INT",
        f"ALTER TABLE {name}_c DROP w",
        f"UPDATE {name}_c SET v = 7",
    )
    rows += stream.batch()
    source.run(f"DELETE FROM {name}_c WHERE id = 2", f"UPDATE {name}_0 SET v = 8 WHERE id = 1")
    before = stream.start
    rows += (last := stream.batch())
    assert sorted(brief(last, "id")) == sorted(
        [(f"{name}_0", "+U", 1), (f"{name}_0", "-U", 1), (f"{name}_c", "+I", 1)]
    )
    assert list(stream.between(before, stream.start)) == last
    source.run(f"INSERT INTO {name}_c VALUES (9, 9)")
    rows += everything(stream)
    for table, lost in (
        (f"{name}_a", 2 * (mode == "latest-offset")),
        (f"{name}_b", 0),
        (f"{name}_c", 0),
        (f"{name}_0", 0),
    ):
        replica = Replica("id")
        replica.rows = {(id,): (id, 1 if id == 1 else 2) for id in range(1, 1 + lost)}
        replica.apply(row for row in rows if row["table"] == table)
        assert replica.contents() == set(source.rows(table)), table


def test_new_table_that_cannot_be_captured_raises_an_error(source: LocalSource) -> None:
    make(source, "able_1")
    options = source.options("able_.", **LATEST) | {"scan.newly-added-table.enabled": "TRUE"}
    stream = Stream(options)
    assert stream.batch() == []
    source.run("CREATE TABLE able_2 (id INT)")
    assert stream.batch() == []  # this batch detects the new table
    with pytest.raises(ServerNotReadyError, match=r"test\.able_2 has no primary key"):
        stream.batch()
    source.run("DROP TABLE able_2", "CREATE TABLE able_2 (id INT PRIMARY KEY, v INT) ENGINE = Aria")
    with pytest.raises(
        ServerNotReadyError, match=r"`able_2` has the engine Aria, without transactions"
    ):
        stream.batch()
    source.run("DROP TABLE able_2", "CREATE TABLE able_2 (id INT PRIMARY KEY, v DATE)")
    with pytest.raises(
        SchemaError, match=r"column `v` of `test`\.`able_2` has another type than declared"
    ):
        stream.batch()
    source.run("DROP TABLE able_2", "INSERT INTO able_1 VALUES (3, 3)")
    assert brief(stream.batch(), "id") == [("able_1", "+I", 3)]
    with pytest.raises(
        ArgumentError,
        match=r"option 'scan\.newly-added-table\.enabled' must be true or false, not 'yes'",
    ):
        read_options(options | {"scan.newly-added-table.enabled": "yes"})


def test_statement_on_one_table_keeps_the_changes_of_the_others(source: LocalSource) -> None:
    make(source, "altered_1", "altered_2")
    options = source.options("altered_.", **LATEST)
    declared = inferred(read_options(options))
    stream = Stream(options, declared=declared.append(pa.field("w", pa.int32())))
    source.run(
        "INSERT INTO altered_1 VALUES (3, 3)",
        "ALTER TABLE altered_2 ADD COLUMN w INT DEFAULT 9 FIRST",
        "INSERT INTO altered_1 VALUES (4, 4)",
        "UPDATE altered_2 SET v = 0 WHERE id = 1",
    )
    assert brief(stream.batch(), "id", "v", "w") == [("altered_1", "+I", 3, 3, None)]
    again = Stream(options, stream.start, declared.append(pa.field("w", pa.int32())))
    assert brief(again.batch(), "id", "v", "w") == [
        ("altered_1", "+I", 4, 4, None),
        ("altered_2", "-U", 1, 1, 9),
        ("altered_2", "+U", 1, 0, 9),
    ]
    source.run(
        "INSERT INTO altered_2 VALUES (5, 5, 5)",
        "RENAME TABLE altered_1 TO altered_gone",
        "INSERT INTO altered_2 VALUES (6, 6, 6)",
    )
    assert brief(again.batch(), "id", "v", "w") == [("altered_2", "+I", 5, 5, 5)]
    with pytest.raises(
        SchemaChangedError, match=r"`test`\.`altered_1` is altered at .*RENAME TABLE"
    ):
        again.batch()


def test_chunk_changed_before_and_after_its_select_is_as_of_the_position(
    source: LocalSource,
) -> None:
    source.run(
        "CREATE TABLE k (id VARCHAR(5) PRIMARY KEY, v VARCHAR(5))",
        (
            "INSERT INTO k VALUES ('k1', 'a'), ('k2', 'b'), ('k3', 'c'), ('k4', 'd'), ('k5', 'e'), "
            "('k6', 'f')"
        ),
    )

    class Between(Server):
        """Lets another client write between the SELECT and the HIGH position."""

        def written(self) -> LogPosition:
            source.run(
                "UPDATE k SET v = 'E' WHERE id = 'k5'", "UPDATE k SET v = 'A!' WHERE id = 'k1'"
            )
            return super().written()

    # The example in `capture.chunk`.
    options = read_options(source.options("k"))
    with connect(options) as server:
        as_of, (table,) = server.settled(), read_tables(server, options)
        source.run(
            "UPDATE k SET v = 'A' WHERE id = 'k1'",
            "DELETE FROM k WHERE id = 'k3'",
            "INSERT INTO k VALUES ('k7', 'g')",
        )
        between = Between(server.connection, options)
        ((_, chunk),) = read_chunks(
            between, LogReader(server, [table], 71), [Chunk(table, KeyRange(None, None))], as_of
        )
        ((_, chunk_again),) = read_chunks(
            server, LogReader(server, [table], 71), [Chunk(table, KeyRange(None, None))], as_of
        )
    rows, again = rows_of(chunk, [0, 1]), rows_of(chunk_again, [0, 1])
    assert sorted(rows) == [
        ("k1", "a"),
        ("k2", "b"),
        ("k3", "c"),
        ("k4", "d"),
        ("k5", "e"),
        ("k6", "f"),
    ]
    assert sorted(again) == sorted(rows)


def test_table_may_be_altered_after_its_last_chunk_is_read(source: LocalSource) -> None:
    make(source, "left_1", "left_2")
    options = read_options(source.options("left_."))
    with connect(options) as server:
        tables, as_of = read_tables(server, options), server.settled()
        source.run("UPDATE left_1 SET v = 9", "UPDATE left_2 SET v = 9 WHERE id = 1")
        reading = read_chunks(
            server,
            LogReader(server, tables, 72),
            [Chunk(table, KeyRange(None, None)) for table in tables],
            as_of,
        )
        chunks = [next(reading)[1].to_pylist()]
        source.run(
            "ALTER TABLE left_1 DROP COLUMN v",
            "DELETE FROM left_1",
            "DELETE FROM left_2 WHERE id = 2",
        )
        chunks += [texts.to_pylist() for _, texts in reading]
    assert [sorted(row["v"] for row in chunk) for chunk in chunks] == [["1", "2"], ["1", "2"]]


def test_rows_of_a_transaction_on_two_tables_have_distinct_positions(source: LocalSource) -> None:
    make(source, "placed_1", "placed_2")
    stream = Stream(source.options("placed_.", **LATEST))
    with source.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE placed_1 a JOIN placed_2 b USING (id) SET a.v = 5, b.v = 6")
        cursor.execute("UPDATE placed_2 SET v = 7")
        connection.commit()
    rows = [row for row in stream.batch() if row["row_kind"] == "+U"]
    assert sorted(brief(rows, "v")) == [
        (name, "+U", v)
        for name, v in (("placed_1", 5), ("placed_2", 6), ("placed_2", 7))
        for _ in (1, 2)
    ]
    assert sorted(row["position"]["row"] for row in rows) == [0, 1, 2, 3, 4, 5]
    assert [row["v"] for row in sorted(rows, key=lambda row: row["position"]["row"])][-2:] == [7, 7]


def test_older_offset_version_is_read_as_the_only_table(source: LocalSource) -> None:
    source.table("older")
    options = source.options("older", **SMALL)
    stream = Stream(options)
    now, (table,) = stream.start, stream.start["tables"]
    assert table[:2] == ["test", "older"]
    source.run("UPDATE older SET v = 1 WHERE id IN (10, 11)")
    first = {
        "server": now["server"],
        "snapshot": True,
        "frontier": ["10"],
        "step": None,
        "schema": table[2],
        "file": now["file"],
        "pos": now["pos"],
        "version": 1,
    }
    second = first | {"version": 2, "key": stream.latest()["key"], "step": 5}
    third = second | {"version": 3, "gtids": now["gtids"]}
    for old in (first, second, third):
        rows = everything(Stream(options, old))
        assert sorted(brief(rows, "id", "v")) == [
            *(("older", "+I", number, int(number == 11)) for number in range(11, 41)),
            ("older", "+U", 10, 1),
            ("older", "-U", 10, 0),
        ]
    with pytest.raises(SchemaChangedError, match="another key"):
        Stream(options, second | {"key": "another"}).batch()
    with pytest.raises(StateVersionError, match="version 5, of a newer release"):
        Stream(options, now | {"version": 5}).batch()
