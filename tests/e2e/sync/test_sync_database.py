"""`sync_database` on a real broker and real tables: many tables, schemas that move, errors of one table, restarts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize import DeadLetter, JdbcDatabase, TableOptions
from normalize.local_kafka import ProducerRecord
from normalize.sinks import lake
from normalize.sinks.databases import table_name
from normalize.sinks.targets import ConflictError, LakeTarget
from tests.support.databases import Message, canal, debezium, maxwell
from tests.support.sinking import forget_last_commit
from tests.support.syncing import MINIMAL, ORDER, NewSync, Sync

TYPES = {"id": "int(11)", "name": "varchar(20)", "price": "decimal(10,2)"}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_tables_of_one_topic_with_new_columns_and_new_tables(new_sync: NewSync, kind: str) -> None:
    sync = new_sync(kind)
    template = sync.tables.database.table

    def rows(table: str) -> list[dict[str, Any]]:
        return sync.rows(table_name(template, f"shop.{table}"))

    sync.produce(
        "all",
        [
            maxwell("orders", "insert", ORDER),
            maxwell("items", "insert", {"id": 1, "qty": 5}),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
            maxwell("orders", "delete", {"id": 2, "name": "b"}),
            maxwell("orders", "update", {"id": 3, "name": "c"}, {"id": 1}),  # the key changes
        ],
    )
    sync.run()
    assert rows("orders") == [{"id": 3, "name": "c"}]
    assert rows("items") == [{"id": 1, "qty": 5}]
    sync.produce(
        "all",
        [
            maxwell("orders", "insert", {"id": 4, "name": "d"}),
            maxwell("orders", "insert", {"id": 5, "name": "e", "note": "new column"}),
            maxwell("added", "insert", {"id": 9}),
            maxwell("items", "delete", {"id": 1, "qty": 5}),
            maxwell("orders", "update", {"id": 3, "note": "name is dropped"}, {"note": None}),
        ],
    )
    sync.run()
    assert rows("orders") == [{"id": 3, "note": "name is dropped"}, {"id": 4, "name": "d"}, {"id": 5, "name": "e", "note": "new column"}]
    assert rows("items") == []
    assert rows("added") == [{"id": 9}]
    # As after a kill between the tables' commits and Spark's commit.
    forget_last_commit(sync.folder / "checkpoint")
    sync.produce("all", [maxwell("added", "insert", {"id": 10})])
    sync.run()
    assert rows("orders") == [{"id": 3, "note": "name is dropped"}, {"id": 4, "name": "d"}, {"id": 5, "name": "e", "note": "new column"}]
    assert rows("added") == [{"id": 10}, {"id": 9}]


@pytest.mark.parametrize("types", [None, {"id": "int32", "name": "string"}], ids=["bare", "schema-block"])
def test_topic_for_each_table_of_debezium(sync: Sync, types: dict[str, str] | None) -> None:
    sync.produce("orders", [debezium("orders", "c", None, ORDER, types), debezium("orders", "u", ORDER, ORDER | {"name": "b"}, types)])
    sync.produce("items", [debezium("items", "c", None, ORDER, types), debezium("items", "d", ORDER, None, types), (b'{"id": 1}', None)])
    sync.run(format="debezium-json")
    assert sync.rows("orders") == [{"id": 1, "name": "b"}]
    assert sync.rows("items") == []
    assert sync.file("shop.orders")["schema"] == [f"id {'INT' if types else 'BIGINT'} NOT NULL", "name STRING"]
    # A topic that appears later, and a column that only the schema block of a new record has.
    more = types and {**types, "price": "double"}
    sync.produce("later", [debezium("later", "r", None, ORDER, types)])
    sync.produce("items", [debezium("items", "c", None, {**ORDER, "price": 1.5}, more)])
    sync.run(format="debezium-json")
    assert sync.rows("later") == [ORDER]
    assert sync.rows("items") == [{**ORDER, "price": 1.5}]


def test_types_of_canal(sync: Sync) -> None:
    sync.produce("all", [canal("orders", "INSERT", {"id": 1, "name": "a", "price": "9.50"}, TYPES), canal("items", "INSERT", ORDER, TYPES)])
    sync.run(format="canal-json")
    assert sync.file("shop.orders")["schema"] == ["id INT NOT NULL", "name STRING", "price DECIMAL(10,2)"]
    assert [str(row["price"]) for row in sync.rows("orders")] == ["9.50"]
    sync.produce("all", [canal("items", "DELETE", ORDER, TYPES)])
    sync.run(format="canal-json")
    assert sync.rows("items") == []


def test_key_in_several_partitions_of_a_large_micro_batch(sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)  # decoded by Spark
    messages = [maxwell("orders", "insert", {"id": number % 20, "name": str(number)}) for number in range(400)]
    for first in range(0, 400, 100):
        # Without keys, so that a row's messages are in all partitions.
        sync.produce("all", [(None, value) for _, value in messages[first : first + 100]], partitions=3)
    options = TableOptions(primary_key="id", where="id <> 7")
    sync.run(tables={"shop.orders": options})
    assert sorted(row["id"] for row in sync.rows("orders")) == [number for number in range(20) if number != 7]
    assert all(int(row["name"]) % 20 == row["id"] for row in sync.rows("orders"))


def test_failing_table_fails_the_query_and_the_others_are_written(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER), maxwell("items", "insert", {"id": 1})])
    sync.run()
    sync.produce("all", [maxwell("orders", "insert", {"id": "x"}), maxwell("items", "insert", {"id": 2})])
    text = sync.error()
    assert text.startswith("[SYNC] shop.orders: [TYPE_CONVERSION] expected `BIGINT`, got `str` 'x' - at `$.data.id`")
    assert text.endswith("The other tables of the micro-batch are written")
    assert sync.rows("items") == [{"id": 1}, {"id": 2}]
    # The micro-batch is repeated.
    assert "[TYPE_CONVERSION]" in sync.error()


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_value_that_needs_a_wider_type(new_sync: NewSync, kind: str) -> None:
    sync = new_sync(kind)
    tables = {"shop.orders": TableOptions(types={"qty": "INT"})}
    sync.produce("all", [maxwell("orders", "insert", {"id": 1, "qty": 1})])
    sync.run(tables=tables)
    sync.produce("all", [maxwell("orders", "insert", {"id": 2, "qty": 3_000_000_000})])
    text = sync.error(tables=tables)
    assert text.startswith("[SYNC] shop.orders: [TYPE_CONVERSION]")
    found = re.search("To widen the column, write 'qty BIGINT' into (.*), run (.*), and restart the query", text)
    assert found is not None
    for statement in found[2].split("; "):
        sync.tables.execute(statement)
    file = Path(found[1])
    file.write_text(file.read_text("utf-8").replace("qty INT", "qty BIGINT"), "utf-8")
    sync.run(tables=tables)
    assert sync.rows(table_name(sync.tables.database.table, "shop.orders")) == [{"id": 1, "qty": 1}, {"id": 2, "qty": 3_000_000_000}]


def test_stopped_table_stays_stopped_and_the_others_go_on(sync: Sync, caplog: pytest.LogCaptureFixture) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER), maxwell("items", "insert", {"id": 1})])
    sync.run(on_table_error="stop_table")
    sync.produce("all", [maxwell("orders", "insert", {"id": "x"}), maxwell("items", "insert", {"id": 2})])
    sync.run(on_table_error="stop_table")
    assert "shop.orders is stopped, and the other tables go on: [TYPE_CONVERSION]" in caplog.text
    assert sync.file("shop.orders")["stopped"].startswith("[TYPE_CONVERSION]")
    sync.produce("all", [maxwell("orders", "insert", {"id": 3}), maxwell("items", "insert", {"id": 3})])
    sync.run(on_table_error="stop_table")
    assert "shop.orders is stopped and misses 1 records: [TYPE_CONVERSION]" in caplog.text
    assert sync.rows("orders") == [ORDER]
    assert sync.rows("items") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_edited_file_pins_a_type(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run()
    path = sync.folder / "schemas" / "shop.orders.json"
    path.write_text(path.read_text("utf-8").replace('"name STRING"', '"name STRING", "age SMALLINT"'), "utf-8")
    sync.produce("all", [maxwell("orders", "insert", {"id": 2, "age": 7})])
    sync.run()
    assert sync.rows("orders") == [ORDER, {"id": 2, "age": 7}]
    assert sync.tables.types("orders") == {"id": "bigint", "name": "string", "age": "smallint"}


def test_column_without_a_value_waits_for_one(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", {"id": 1, "note": None})])
    sync.run()
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL"]
    sync.produce("all", [maxwell("orders", "insert", {"id": 2, "note": 7})])
    sync.run()
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL", "note BIGINT"]
    assert sync.rows("orders") == [{"id": 1}, {"id": 2, "note": 7}]


@pytest.mark.parametrize(("on_new_column", "found"), [("ignore", ""), ("fail", "it has the new columns `note`")])
def test_new_column_that_is_not_added(sync: Sync, caplog: pytest.LogCaptureFixture, on_new_column: str, found: str) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run(on_new_column=on_new_column)
    sync.produce("all", [maxwell("orders", "insert", {"id": 2, "note": "n"})])
    if found:
        assert found in sync.error(on_new_column=on_new_column)
        assert sync.rows("orders") == [ORDER]
    else:
        sync.run(on_new_column=on_new_column)
        assert "shop.orders: the new columns `note` are ignored" in caplog.text
        assert sync.rows("orders") == [ORDER, {"id": 2}]


def test_options_of_a_table(sync: Sync) -> None:
    options = TableOptions(name="renamed", columns=["id", "name", "price"], types={"price": "DECIMAL(8,2)"}, where="name <> 'hidden'")
    rows = [{"id": 1, "name": "a", "price": 1.5, "secret": "s"}, {"id": 2, "name": "hidden", "price": 2}]
    sync.produce("all", [maxwell("orders", "insert", row) for row in rows] + [maxwell("tmp_1", "insert", {"id": 1})])
    sync.run(tables={"shop.orders": options}, exclude="shop[.]tmp_.*")
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL", "name STRING", "price DECIMAL(8,2)"]
    assert [(row["id"], str(row["price"])) for row in sync.rows("renamed")] == [(1, "1.50")]
    assert not (sync.folder / "lake" / "tmp_1").exists()
    # A row that no longer matches is deleted.
    sync.produce("all", [maxwell("orders", "update", {"id": 1, "name": "hidden"}, {"name": "a"})])
    sync.run(tables={"shop.orders": options}, exclude="shop[.]tmp_.*")
    assert sync.rows("renamed") == []


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql"])
def test_soft_deletes(new_sync: NewSync, kind: str) -> None:
    sync = new_sync(kind)
    template = sync.tables.database.table

    def rows(table: str) -> list[tuple[Any, ...]]:
        return [(row["id"], row.get("name"), "deleted_at" in row, "gone_at" in row) for row in sync.rows(table_name(template, table))]

    tables = {
        "shop.tags": TableOptions(deletes="hard"),
        # The source has a column deleted_at itself.
        "shop.users": TableOptions(deleted_column="gone_at", where="name <> 'hidden'"),
    }
    options = {"target": replace(sync.tables.database, deletes="soft"), "tables": tables}
    two = [ORDER, {"id": 2, "name": "b"}]
    sync.produce("all", [maxwell(table, "insert", row) for table in ("orders", "tags") for row in two])
    sync.produce("all", [maxwell("users", "insert", row | {"deleted_at": "-"}) for row in two])
    sync.run(**options)
    assert rows("shop.orders") == rows("shop.tags") == [(1, "a", False, False), (2, "b", False, False)]
    sync.produce("all", [maxwell(table, "delete", ORDER) for table in ("orders", "tags", "users")])
    sync.produce("all", [maxwell("users", "update", {"id": 2, "name": "hidden", "deleted_at": "-"}, {"name": "b"})])
    sync.run(**options)
    assert rows("shop.orders") == [(1, "a", True, False), (2, "b", False, False)]
    assert rows("shop.tags") == [(2, "b", False, False)]
    assert sorted(rows("shop.users")) == [(1, "a", True, True), (2, "b", True, True)]
    # As after a kill between the tables' commits and Spark's commit: the first delete's time stays.
    before = sync.rows(table_name(template, "shop.orders"))
    forget_last_commit(sync.folder / "checkpoint")
    sync.run(**options)
    assert sync.rows(table_name(template, "shop.orders")) == before
    # A row that is inserted again is not deleted.
    sync.produce("all", [maxwell("orders", "insert", {"id": 1, "name": "again"})])
    sync.run(**options)
    assert sorted(rows("shop.orders")) == [(1, "again", False, False), (2, "b", False, False)]


def test_column_of_soft_deletes_that_the_source_has(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER | {"Deleted_At": "2026-01-02"})])
    text = sync.error(target=replace(sync.tables.database, deletes="soft"))
    assert "[SYNC] shop.orders: its column Deleted_At has the name of deleted_column: pass tables={'shop.orders': Table" in text


def test_options_of_soft_deletes_without_effect(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    with pytest.raises(ArgumentError, match=r"tables has wrong options for 'shop.orders': deleted_column has no effect with hard deletes"):
        sync.start(tables={"shop.orders": TableOptions(deleted_column="gone_at")})
    with pytest.raises(ArgumentError, match="deletes='sft' is unknown"):
        replace(sync.tables.database, deletes="sft")  # type: ignore[arg-type]


def test_options_of_a_misspelt_table_are_a_warning(sync: Sync, caplog: pytest.LogCaptureFixture) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run(tables={"shop.order": TableOptions(name="renamed"), "shop.later": TableOptions()})
    found = [message for message in caplog.messages if message.startswith("tables=")]
    assert found == ["tables= has 'shop.order', which no message names so far: if it is misspelt, correct it to 'shop.orders'"]


def test_two_tables_with_one_name_are_an_error(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER, database=database) for database in ("a", "b")])
    assert "the target 'orders' is that of a.orders and of b.orders: pass another template of names" in sync.error()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_new_columns_of_small_and_large_micro_batches(new_sync: NewSync, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = new_sync(kind)
    sync.produce("all", [])
    query = sync.writer().start()
    try:
        for number, (few, names) in enumerate([(0, "a"), (100, "ab"), (0, "ab"), (100, "abc"), (0, "abc"), (100, "abc")]):
            monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", few)
            # A new row, and an update of the one before it.
            rows = [{"id": key} | dict.fromkeys(names, number) for key in (number, number + 1)]
            sync.produce("all", [maxwell("orders", "insert", row) for row in rows])
            query.processAllAvailable()
    finally:
        query.stop()
    names = ["a", "ab", "ab", "abc", "abc", "abc", "abc"]
    expected = [{"id": key} | dict.fromkeys(names[key], min(key, 5)) for key in range(7)]
    assert sync.rows(table_name(sync.tables.database.table, "shop.orders")) == expected


@pytest.mark.parametrize(("kind", "few"), [("delta", True), ("delta", False), ("iceberg", True)])
def test_histories(new_sync: NewSync, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)
    sync = new_sync(kind)
    tables = {"shop.tags": TableOptions(scd_type=1), "shop.users": TableOptions(where="name <> 'hidden'")}
    options = {"target": replace(sync.tables.database, scd_type=2), "tables": tables}

    def versions(table: str) -> list[tuple[Any, ...]]:
        rows = sync.rows(table)
        places = ((row.get("__START_AT"), row.get("__END_AT")) for row in rows)
        offsets = ([None if place is None else place["offset"] for place in each] for each in places)
        return sorted(((row["id"], row.get("name"), *each) for row, each in zip(rows, offsets, strict=True)), key=repr)

    sync.produce(
        "all",
        [
            maxwell("orders", "insert", ORDER),
            maxwell("orders", "update", {"id": 1, "name": "b"}, {"name": "a"}),
            maxwell("orders", "delete", {"id": 1, "name": "b"}),
            maxwell("orders", "insert", {"id": 1, "name": "c"}),
            maxwell("tags", "insert", ORDER),
            maxwell("users", "insert", ORDER),
        ],
    )
    sync.run(**options)
    first = [(1, "a", 0, 1), (1, "b", 1, 2), (1, "c", 3, None)]
    assert versions("orders") == first
    assert versions("tags") == [(1, "a", None, None)]
    messages = [
        maxwell("orders", "update", {"id": 1, "name": "d", "note": "new"}, {"name": "c"}),
        maxwell("orders", "update", {"id": 2, "name": "d"}, {"id": 1}),  # the key changes
        maxwell("tags", "update", {"id": 1, "name": "b"}, {"name": "a"}),
        maxwell("users", "update", {"id": 1, "name": "hidden"}, {"name": "a"}),
        maxwell("users", "update", {"id": 1, "name": "z"}, {"name": "hidden"}),
    ]
    sync.produce("all", messages)
    sync.run(**options)
    second = [*first[:2], (1, "c", 3, 6), (1, "d", 6, 7), (2, "d", 7, None)]
    assert versions("orders") == second
    assert versions("tags") == [(1, "b", None, None)]
    assert versions("users") == [(1, "a", 5, 9), (1, "z", 10, None)]
    # As after a kill between the tables' commits and Spark's commit.
    forget_last_commit(sync.folder / "checkpoint")
    sync.run(**options)
    assert versions("orders") == second
    # An event that the producer repeats is no version.
    sync.produce("all", [maxwell("orders", "insert", {"id": 2, "name": "d"})])
    sync.run(**options)
    assert [row for row in versions("orders") if row[2] != row[3]] == second
    assert {row["__START_AT"]["partition"] for row in sync.rows("orders")} == {f"{sync.prefix}.all[0]"}


class Story:
    """Random changes of the rows of two tables, whose messages have the row's key, and the history that they must make."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: dict[tuple[str, int], str] = {}
        self.versions: dict[tuple[str, int], list[tuple[str, bool]]] = {}

    def messages(self, number: int) -> list[Message]:
        """Return new messages: an update always changes the row, so that each version has another name."""
        found = []
        for _ in range(number):
            place = table, key = self.random.choice(["orders", "items"]), self.random.randrange(20)
            before, versions = self.rows.pop(place, None), self.versions.setdefault(place, [])
            if before is not None:
                versions[-1] = (before, True)
            if before is not None and self.random.random() < 0.3:
                found.append(maxwell(table, "delete", {"id": key, "name": before}))
                continue
            name = self.rows[place] = f"{len(versions)}{self.random.choice('abc')}"
            versions.append((name, False))
            found.append(maxwell(table, "insert" if before is None else "update", {"id": key, "name": name}, before and {"name": before}))
        return found

    def history(self, table: str) -> list[tuple[int, str, bool]]:
        """Return the versions of a table in their order: key, name, whether the version has ended."""
        return [(key, *version) for (of, key), versions in sorted(self.versions.items()) if of == table for version in versions]


def versions(sync: Sync, table: str) -> list[tuple[int, str, bool]]:
    """Return the versions of a history in the same form."""
    rows = sorted(sync.rows(table), key=lambda row: (row["id"], row["__START_AT"]))
    for row, after in pairwise(rows):
        if row["id"] == after["id"]:
            # A delete may be before the next insert.
            assert row["__START_AT"] < row["__END_AT"] <= after["__START_AT"]
    return [(row["id"], row["name"], "__END_AT" in row) for row in rows]


@pytest.mark.parametrize(("kind", "few"), [("delta", True), ("delta", False), ("iceberg", False)])
def test_histories_of_keys_in_several_partitions(new_sync: NewSync, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)
    sync, story = new_sync(kind), Story(Random(kind))
    options = {"target": replace(sync.tables.database, scd_type=2)}

    for repeated in (False, True, True):
        sync.produce("all", story.messages(80), partitions=5)
        sync.run(**options)
        if repeated:
            # As after a kill between the tables' commits and Spark's commit.
            forget_last_commit(sync.folder / "checkpoint")
            sync.run(**options)
        for table in ("orders", "items"):
            assert versions(sync, table) == story.history(table)
    assert len({row["__START_AT"]["partition"] for row in sync.rows("orders")}) == 5


REWRITES = {
    "delta": ("'delta.enableDeletionVectors' = 'true'", "OPTIMIZE {}", "DESCRIBE HISTORY {}", "OPTIMIZE"),
    "iceberg": (
        "'write.merge.mode' = 'merge-on-read'",
        "CALL lake.system.rewrite_data_files(table => '{}', options => map('min-input-files', '2'))",
        "SELECT operation FROM {}.snapshots",
        "replace",
    ),
}
"""By kind: the property by which each MERGE adds files, the statement that rewrites them, the one that lists commits, and the name of its
commits."""


@pytest.mark.parametrize("kind", list(REWRITES))
def test_files_are_rewritten_beside_the_query(new_sync: NewSync, kind: str) -> None:
    sync, story = new_sync(kind), Story(Random(kind))
    kafka = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers, "maxOffsetsPerTrigger": 10}
    tables = {"shop.items": TableOptions(scd_type=2)}
    sync.produce("all", story.messages(20))
    sync.run(tables=tables)
    sync.produce("all", story.messages(30))
    adding, rewrite, commits, operation = REWRITES[kind]
    targets = [sync.tables.database.target(table) for table in ("items", "orders")]
    for target in targets:
        assert isinstance(target, LakeTarget)
        sync.spark.sql(f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ({adding})")
    query = sync.writer(options=kafka, tables=tables).start()
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(query.processAllAvailable)
            while not reading.done():
                for target in targets:
                    assert isinstance(target, LakeTarget)
                    # As another job: Iceberg keeps the tables that a session has read.
                    other = sync.spark.newSession()
                    # This writer may lose, too.
                    with suppress(ConflictError), lake.conflicts(other, target):
                        other.sql(rewrite.format(target.sql_name)).collect()
            reading.result()
    finally:
        query.stop()
    for target in targets:
        assert operation in {row["operation"] for row in sync.spark.newSession().sql(commits.format(target.sql_name)).collect()}
    rows = [{"id": key, "name": name} for (table, key), name in story.rows.items() if table == "orders"]
    assert sync.rows("orders") == sorted(rows, key=repr)
    assert versions(sync, "items") == story.history("items")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("before", ["a version", "a deleted row", "a delete without a row"])
def test_key_in_two_partitions_is_an_error_of_a_history(sync: Sync, together: bool, before: str) -> None:
    insert, delete = maxwell("orders", "insert", ORDER)[1], maxwell("orders", "delete", ORDER)[1]
    values = {"a version": [insert], "a deleted row": [insert, delete], "a delete without a row": [delete]}[before]
    options = {"tables": {"shop.orders": TableOptions(scd_type=2, schema="id BIGINT, name STRING", primary_key="id")}}
    # In the order of places, versions of the first partition ended before the new change.
    sync.produce("all", [ProducerRecord(None, value, partition=0) for value in values], partitions=2)
    if not together:
        sync.run(**options)
        found = sync.rows("orders")
    sync.produce("all", [ProducerRecord(None, maxwell("orders", "insert", {"id": key, "name": "b"})[1], partition=1) for key in (5, 1)])
    text = sync.error(**options)
    topic = f"{sync.prefix}.all"
    assert f"shop.orders: [CHANGE_ORDER] the changes of a key are in the Kafka partitions {topic}[0] and {topic}[1], and so" in text
    assert together or sync.rows("orders") == found


def test_history_of_shards_in_several_topics(sync: Sync) -> None:
    def orders(shard: int, kind: str, key: int, name: str) -> list[Message]:
        return [maxwell("orders", kind, {"id": key, "name": name}, database=f"shop_{shard}")]

    tables = {"shop.orders": TableOptions(shards="shop_[0-9]+[.]orders", scd_type=2)}
    for shard in (1, 2):
        sync.produce(f"shop_{shard}", orders(shard, "insert", shard, "a"))
    sync.run(tables=tables)
    for shard in (1, 2):
        sync.produce(f"shop_{shard}", orders(shard, "update", shard, "b"))
    sync.run(tables=tables)
    places = [{"partition": f"{sync.prefix}.shop_{shard}[0]", "offset": offset} for shard in (1, 2) for offset in (0, 1)]
    found = sorted((row["id"], row["name"], row["__START_AT"].asDict()) for row in sync.rows("orders"))
    assert found == [(1, "a", places[0]), (1, "b", places[1]), (2, "a", places[2]), (2, "b", places[3])]
    sync.produce("shop_2", orders(2, "insert", 1, "c"))  # a row that moves
    text = sync.error(tables=tables)
    assert f"in the Kafka partitions {sync.prefix}.shop_1[0] and {sync.prefix}.shop_2[0], and so their order is unknown" in text


@pytest.mark.parametrize("few", [True, False])
def test_history_of_records_with_several_changes_of_a_row(sync: Sync, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)

    def message(kind: str, *rows: tuple[int, str], old: Sequence[dict[str, Any]] = ()) -> Message:
        key, value = canal("orders", kind, {}, {"id": "int", "name": "varchar(9)"})
        data = [{"id": str(number), "name": name} for number, name in rows]
        return key, json.dumps(json.loads(value or b"") | {"data": data} | ({"old": list(old)} if old else {})).encode()

    changed = [{"name": "a"}, {"name": "b"}]
    # 1 becomes 2 and then 3: the last change of 2 is a delete.
    moved = [{"id": "1"}, {"id": "2"}]
    messages = [
        message("INSERT", (1, "a")),
        message("UPDATE", (1, "b"), (1, "c"), old=changed),
        message("UPDATE", (2, "c"), (3, "c"), old=moved),
    ]
    sync.produce("all", messages)
    sync.run(format="canal-json", target=replace(sync.tables.database, scd_type=2))
    found = [
        [row["id"], row.get("name"), *(row.get(name, {"offset": None})["offset"] for name in ("__START_AT", "__END_AT"))]
        for row in sync.rows("orders")
    ]
    assert sorted(found) == [[1, "a", 0, 1], [1, "c", 1, 2], [2, None, None, 2], [3, "c", 2, None]]


def test_history_requires_whole_rows_and_free_names(sync: Sync) -> None:
    options = {**MINIMAL, "target": replace(sync.tables.database, scd_type=2)}
    sync.produce("all", [maxwell("orders", "insert", ORDER), maxwell("orders", "update", {"id": 1}, {"id": 1})])
    assert "[PARTIAL_IMAGE] the row lacks unchanged columns, and a history cannot complete it: pass scd_type=1" in sync.error(**options)
    sync.produce("all", [maxwell("items", "insert", {"id": 1, "__start_at": 1})])
    assert "shop.items: its column __start_at has the name of a column of a history" in sync.error(**options, include="shop[.]items")


@pytest.mark.parametrize("name", ["row_kind", "__Absent", "__place"])
def test_column_with_the_name_of_one_of_sync_database(sync: Sync, name: str) -> None:
    sync.produce("all", [maxwell("orders", "insert", {"id": 1, name: "x"})])
    text = sync.error()
    assert (
        f"shop.orders: its column {name} has the name of a column of sync_database: pass tables={{'shop.orders': TableOptions(excl" in text
    )
    sync.run(tables={"shop.orders": TableOptions(exclude_columns=name)})
    assert sync.rows("orders") == [{"id": 1}]


def test_table_of_rows_is_not_a_history(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run()
    sync.produce("all", [maxwell("orders", "insert", {"id": 2})])
    assert "shop.orders: [SCHEMA] " in (text := sync.error(target=replace(sync.tables.database, scd_type=2)))
    assert "has no column __START_AT, __END_AT, which scd_type=2 requires: run ALTER TABLE" in text


def test_options_of_histories_without_effect(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    database = JdbcDatabase("jdbc:postgresql://db/shop")
    with pytest.raises(ArgumentError, match=r"wrong options for 'shop.orders': scd_type=2 is not supported for JdbcDatabase"):
        sync.start(target=database, tables={"shop.orders": TableOptions(scd_type=2)})
    with pytest.raises(ArgumentError, match=r"wrong options for 'shop.orders': scd_type=2 and deletes='soft' cannot be combined"):
        sync.start(tables={"shop.orders": TableOptions(scd_type=2, deletes="soft")})


@pytest.mark.parametrize(("kind", "few"), [("delta", True), ("delta", False), ("iceberg", True), ("postgresql", True)])
def test_shards(new_sync: NewSync, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)
    sync = new_sync(kind)
    name = table_name(sync.tables.database.table, "shop.orders")
    options = {"tables": {"shop.orders": TableOptions(shards="shop_[0-9]+[.]orders")}, "exclude": ".*items"}
    sync.produce(
        "all",
        [
            maxwell("orders", "insert", ORDER, database="shop_1"),
            maxwell("orders", "insert", {"id": 2, "name": "b", "note": "n"}, database="shop_2"),
            maxwell("items", "insert", {"id": 1}, database="shop_1"),
        ],
    )
    sync.run(**options)
    assert sync.rows(name) == [ORDER, {"id": 2, "name": "b", "note": "n"}]
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL", "name STRING", "note STRING"]
    # A shard that appears later, a column that another shard adds, a row that moves to another shard.
    sync.produce(
        "all",
        [
            maxwell("orders", "insert", {"id": 3, "name": "c", "qty": 1}, database="shop_3"),
            maxwell("orders", "update", {"id": 2, "name": "x"}, {"name": "b"}, database="shop_2"),
            maxwell("orders", "delete", ORDER, database="shop_1"),
            maxwell("orders", "insert", {"id": 1, "name": "moved"}, database="shop_3"),
        ],
    )
    sync.run(**options)
    assert sync.rows(name) == [{"id": 1, "name": "moved"}, {"id": 2, "name": "x"}, {"id": 3, "name": "c", "qty": 1}]


@pytest.mark.parametrize(("kind", "few"), [("delta", True), ("delta", False), ("iceberg", True), ("postgresql", True), ("mariadb", True)])
def test_shards_with_a_column_in_the_key(new_sync: NewSync, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)
    sync = new_sync(kind)
    name = table_name(sync.tables.database.table, "shop.orders")
    options = {**MINIMAL, "tables": {"shop.orders": TableOptions(shards="shop_[0-9]+[.]orders", shard_column="shard")}}
    sync.produce("all", [maxwell("orders", "insert", ORDER, database=f"shop_{number}") for number in (1, 2, 3)])
    sync.run(**options)
    assert sync.rows(name) == [{**ORDER, "shard": f"shop_{number}.orders"} for number in (1, 2, 3)]
    messages = [
        maxwell("orders", "delete", ORDER, database="shop_1"),
        maxwell("orders", "update", {"id": 1, "name": "b"}, {"name": "a"}, database="shop_2"),
        maxwell("orders", "update", {"id": 1, "qty": 2}, {"qty": None}, database="shop_3"),  # a partial row
    ]
    sync.produce("all", messages)
    sync.run(**options)
    assert sync.rows(name) == [{"id": 1, "name": "a", "qty": 2, "shard": "shop_3.orders"}, {"id": 1, "name": "b", "shard": "shop_2.orders"}]
    forget_last_commit(sync.folder / "checkpoint")
    sync.run(**options)
    assert len(sync.rows(name)) == 2


def test_shards_by_topic(sync: Sync) -> None:
    key = json.dumps({"id": 1}).encode()
    for number in (1, 2):
        sync.produce(f"shop_{number}.orders", [(key, json.dumps({"id": 1, "name": f"n{number}"}).encode())])
    options = {"tables": {"orders": TableOptions(shards=".*[.]shop_[0-9][.]orders", shard_column="shard", primary_key="id")}}
    sync.run(format="debezium-flat-json", **options)
    sync.produce("shop_1.orders", [(key, None)])
    sync.run(format="debezium-flat-json", **options)
    assert sync.rows("orders") == [{"id": 1, "name": "n2", "shard": f"{sync.prefix}.shop_2.orders"}]


def test_shards_whose_types_differ(sync: Sync) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": 5}]
    sync.produce("all", [maxwell("orders", "insert", row, database=f"shop_{row['id']}") for row in rows])
    tables = {"shop.orders": TableOptions(shards="shop_.*[.]orders")}
    text = sync.error(tables=tables)
    assert "shop.orders: its shards shop_1.orders and shop_2.orders have the column name as STRING and as BIGINT: pass its type" in text
    sync.run(tables={"shop.orders": TableOptions(shards="shop_.*[.]orders", types={"name": "STRING"})})
    assert sync.rows("orders") == [{"id": 1, "name": "a"}, {"id": 2, "name": "5"}]


@pytest.mark.parametrize(
    ("kind", "deletes", "few"),
    [
        ("delta", "hard", False),
        ("delta", "soft", True),
        ("iceberg", "hard", True),
        ("iceberg", "soft", False),
        ("postgresql", "hard", True),
        ("postgresql", "soft", False),
        ("mariadb", "hard", False),
        ("mariadb", "soft", True),
    ],
)
def test_partial_rows(new_sync: NewSync, kind: str, deletes: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)
    sync = new_sync(kind)
    table = table_name(sync.tables.database.table, "shop.orders")
    options = {**MINIMAL, "target": replace(sync.tables.database, deletes=deletes)}

    def rows() -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != "deleted_at"} for row in sync.rows(table)]

    sync.produce("all", [maxwell("orders", "insert", {"id": number, "name": "a", "qty": 1, "note": "n"}) for number in (1, 2, 3)])
    sync.produce("all", [maxwell("orders", "update", {"id": 3, "qty": 2}, {"qty": 1})])  # completed in the micro-batch
    sync.run(**options)
    assert rows()[2] == {"id": 3, "name": "a", "qty": 2, "note": "n"}
    sync.produce(
        "all",
        [
            maxwell("orders", "update", {"id": 1, "qty": 5}, {"qty": 1}),
            maxwell("orders", "update", {"id": 1, "name": None}, {"name": "a"}),  # NULL, which is not absent
            maxwell("orders", "update", {"id": 2, "qty": 6, "name": "b", "note": "m"}, {"qty": 1}),
            maxwell("orders", "update", {"id": 3, "note": "gone"}, {"note": "n"}),
            maxwell("orders", "delete", {"id": 3}),
            maxwell("orders", "insert", {"id": 4, "name": "d"}),  # NULL in an insert
            maxwell("orders", "update", {"id": 4, "qty": 9}, {"qty": None}),
        ],
    )
    sync.run(**options)
    deleted = [{"id": 3, "name": "a", "qty": 2, "note": "n"}] if deletes == "soft" else []
    expected = [{"id": 1, "note": "n", "qty": 5}, {"id": 2, "name": "b", "note": "m", "qty": 6}, *deleted, {"id": 4, "name": "d", "qty": 9}]
    assert rows() == expected
    # As after a kill between the tables' commits and Spark's commit.
    forget_last_commit(sync.folder / "checkpoint")
    sync.run(**options)
    assert rows() == expected
    # The target deleted the row.
    topic = sync.produce("all", [maxwell("orders", "update", {"id": 3, "qty": 7}, {"qty": 2})])
    text = sync.error(**options)
    assert "shop.orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and the target does not have its key" in text
    assert "MySQL: binlog_row_image=FULL" in text
    assert f"in {topic}[0]@11" in text
    assert rows() == expected


def test_partial_rows_of_several_partitions(sync: Sync) -> None:
    sync.produce("all", [(b"1", maxwell("orders", "insert", {"id": 1, "a": 0, "b": 0, "c": 0})[1])], partitions=3)
    sync.run(**MINIMAL, tables={"shop.orders": TableOptions(primary_key="id")})
    for number, name in enumerate("abacb", 1):
        # Each has its own timestamp, and the partitions take turns.
        sync.produce("all", [(str(number).encode(), maxwell("orders", "update", {"id": 1, name: number}, {name: 0})[1])])
    sync.run(**MINIMAL, tables={"shop.orders": TableOptions(primary_key="id")})
    assert sync.rows("orders") == [{"id": 1, "a": 3, "b": 5, "c": 4}]


def test_partial_rows_with_a_condition(sync: Sync) -> None:
    options = {**MINIMAL, "tables": {"shop.orders": TableOptions(where="qty < 9")}}
    sync.produce("all", [maxwell("orders", "insert", {"id": number, "name": "a", "qty": 1}) for number in (1, 2)])
    sync.run(**options)
    sync.produce(
        "all",
        [maxwell("orders", "update", {"id": 1, "qty": 5}, {"qty": 1}), maxwell("orders", "update", {"id": 2, "qty": 9}, {"qty": 1})],
    )
    sync.run(**options)
    assert sync.rows("orders") == [{"id": 1, "name": "a", "qty": 5}]
    # The target does not have a row that did not match.
    sync.produce("all", [maxwell("orders", "update", {"id": 2, "qty": 8}, {"qty": 9})])
    assert "the target does not have its key, and so cannot complete it" in sync.error(**options)
    sync.run(**options, exclude="shop[.]orders")
    sync.produce("all", [maxwell("orders", "update", {"id": 1, "name": "b"}, {"name": "a"})])
    assert "shop.orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and where reads its column qty" in sync.error(**options)


def test_partial_row_after_a_delete_in_a_micro_batch(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER), maxwell("orders", "delete", ORDER)])
    sync.produce("all", [maxwell("orders", "update", {"id": 1}, {"id": 1})])
    assert "[PARTIAL_IMAGE] the row lacks unchanged columns, and the change of its key before it is a delete" in sync.error(**MINIMAL)


def test_unchanged_toast_values(sync: Sync) -> None:
    order, source = ORDER | {"photo": "AAEC/w=="}, {"connector": "postgresql", "db": "shop", "table": "orders"}

    def toasted(quantity: int) -> Message:
        # Of a text and of bytes.
        unchanged = {"name": "__debezium_unavailable_value", "photo": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
        event = {"before": None, "after": {"id": 1, "qty": quantity, **unchanged}, "op": "u", "source": source}
        return b'{"id": 1}', json.dumps(event).encode()

    sync.produce("orders", [debezium("orders", "c", None, order | {"qty": 1})])
    sync.run(format="debezium-json")
    sync.produce("orders", [toasted(2)])
    sync.run(format="debezium-json")
    assert sync.rows("orders") == [order | {"qty": 2}]
    # Without the table's file, no value of the columns is known.
    (sync.folder / "schemas" / "shop.orders.json").unlink()
    sync.produce("orders", [toasted(3)])
    assert "shop.orders: the type of its new column 'name' is unknown, because no record has a value" in sync.error(format="debezium-json")
    assert sync.rows("orders") == [order | {"qty": 2}]
    sync.run(format="debezium-json", tables={"shop.orders": TableOptions(types={"name": "STRING", "photo": "STRING"})})
    assert sync.rows("orders") == [order | {"qty": 3}]


def test_update_without_old_when_a_column_is_new(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run()
    # The update changes nothing, and is older than the column.
    sync.produce("all", [maxwell("orders", "update", ORDER), maxwell("orders", "insert", {"id": 2, "name": "b", "note": "n"})])
    sync.run()
    assert sync.rows("orders") == [ORDER, {"id": 2, "name": "b", "note": "n"}]


def test_truncate_is_an_error_unless_ignored(sync: Sync, caplog: pytest.LogCaptureFixture) -> None:
    source = {"connector": "postgresql", "db": "shop", "table": "orders"}
    truncate = json.dumps({"before": None, "after": None, "op": "t", "source": source}).encode()
    sync.produce("orders", [debezium("orders", "c", None, ORDER), (None, truncate)])
    assert "shop.orders: [TRUNCATE] the source table was truncated" in sync.error(format="debezium-json")
    sync.run(format="debezium-json", on_truncate="ignore")
    assert sync.rows("orders") == [ORDER]
    assert "shop.orders: 1 records not applied (TRUNCATE)" in caplog.text


def test_deletes_in_an_unknown_table(sync: Sync) -> None:
    sync.produce("all", [maxwell("orders", "delete", ORDER)])
    sync.run()
    assert not (sync.folder / "schemas" / "shop.orders.json").exists()
    sync.spark.sql(f"CREATE TABLE delta.`{sync.folder / 'lake' / 'orders'}` (id BIGINT) USING delta")
    sync.produce("all", [maxwell("orders", "delete", ORDER)])
    assert "shop.orders: its first records are deletes, from which no schema can be inferred, and " in sync.error()


def test_records_that_cannot_be_read(sync: Sync, caplog: pytest.LogCaptureFixture) -> None:
    dead = f"dead.{sync.prefix}"
    sync.kafka.create_topic(dead)
    topic = sync.produce("all", [maxwell("orders", "insert", ORDER), (None, b"{"), maxwell("orders", "insert", {"id": 2, "name": "b"})])
    with pytest.raises(Exception, match=re.escape(f"in {topic}[0]@1")):
        sync.run()
    assert f"{topic}[0]@1" in sync.error(check=False)
    sync.run(mode=DeadLetter(dead))
    assert sync.rows("orders") == [ORDER, {"id": 2, "name": "b"}]
    letters = sync.spark.read.format("kafka").option("kafka.bootstrap.servers", sync.kafka.bootstrap_servers)
    assert [bytes(row["value"]) for row in letters.option("subscribe", dead).load().collect()] == [b"{"]
