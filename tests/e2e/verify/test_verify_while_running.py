"""A running query compares a table with its source: each fault is found once, and no late row is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka, TableOptions, Verify
from normalize.checkpoint.status import checkpoint_status
from tests.support.databases import maxwell, new_tables
from tests.support.resyncing import sync_name
from tests.support.sinking import table_name
from tests.support.syncing import Sync
from tests.support.verifying import Database

ROWS = [{"id": number, "name": f"name {number}", "secret": f"s{number}"} for number in range(1, 9)]
FOUND = [
    "different  `id` = 1: `name`",
    "different  `id` = 21: `name`",
    "different  `id` = 5: `secret`",
    "extra  `id` = 99",
    "missing  `id` = 2",
    "missing  `id` = 20",
]


class Shop:
    """A table of a database, and the records that its producer writes."""

    def __init__(self, sync: Sync, database: Database) -> None:
        self.sync, self.database, self.name = sync, database, table_name()
        text = "VARCHAR(20)" + " CHARACTER SET utf8mb4" * (database.kind == "mariadb")
        database.run(
            f"CREATE TABLE {self.name} (id INT PRIMARY KEY, name {text}, secret {text}, new {text})"
        )

    def insert(self, *rows: Mapping[str, Any]) -> None:
        """Insert rows into the database."""
        for row in rows:
            values = ", ".join(f"'{value}'" for value in row.values())
            self.database.run(f"INSERT INTO {self.name} ({', '.join(row)}) VALUES ({values})")

    def produce(self, *rows: Mapping[str, Any], table: str = "orders") -> None:
        """Write the records of new rows."""
        self.sync.produce("all", [maxwell(table, "insert", dict(row)) for row in rows])

    def verify(self, table: str) -> Verify:
        source = self.database.source(self.name)
        login = {"user": source.user, "password": source.password}
        options = {"every": "0 seconds", "at_most": "100 %", "max_lag_seconds": 0, "rows": 7}
        return Verify(source=source.url, table=table, **login, **options)  # type: ignore[arg-type]

    def proof(self) -> dict[str, Any]:
        """The last comparison of all rows."""
        proof: dict[str, Any] = self.sync.file("shop.orders")["facts"]["verified"]
        return proof


@pytest.mark.parametrize(
    ("database", "of_target"),
    [("mariadb", "postgresql"), ("postgresql", "delta-rs")],
    indirect=["database"],
)
@pytest.mark.mariadb
@pytest.mark.postgres
def test_each_fault_is_found_in_a_cycle_and_told_once(
    spark: SparkSession,
    kafka: LocalKafka,
    database: Database,
    postgresql: Database,
    of_target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MASK_KEY", "0123456789abcdef")
    tables = new_tables(spark, of_target, tmp_path, postgresql.server)
    sync = Sync(spark, kafka, tables, tmp_path)
    shop = Shop(sync, database)
    shop.insert(*ROWS, {"id": 100, "name": "not in the target"})
    shop.produce(*ROWS)
    query = sync.writer(
        tables={
            "shop.orders": TableOptions(verify=shop.verify(shop.name), where="id < 100"),
            "shop.items": TableOptions(verify=shop.verify("is_missing")),
        },
        format_options={"mask": {"secret": "hmac"}, "mask_key_env": "MASK_KEY"},
    ).start()
    try:
        query.processAllAvailable()
        by_hand = spark.sql if of_target == "delta-rs" else postgresql.run
        for statement in (
            "UPDATE {} SET name = 'by hand' WHERE id = 1",
            "DELETE FROM {} WHERE id = 2",
            "INSERT INTO {} (id, name) VALUES (99, 'by hand')",
            "UPDATE {} SET secret = 's5' WHERE id = 5",
        ):
            by_hand(statement.format(sync_name(sync, "orders")))
        shop.insert({"id": 20, "name": "lost"}, {"id": 21, "name": "a value that is cut"})
        late = {"id": 22, "name": "late"}
        shop.insert(late)
        shop.produce({"id": 21, "name": "a value"})
        query.processAllAvailable()  # the table is compared the first time
        shop.produce(late)
        query.processAllAvailable()
        cycles = [shop.proof()]
        for _ in range(12):
            shop.produce({"id": 1}, table="items")
            query.processAllAvailable()
            cycles += [shop.proof()] if shop.proof() != cycles[-1] else []
            if len(cycles) == 3:
                break
    finally:
        query.stop()
    first, second = cycles[1:]
    assert cycles[0]["at"] == ""
    assert first["at"] < second["at"]
    assert [(each["rows"], each["different"], each["unsettled"]) for each in (first, second)] == [
        (12, len(FOUND), 0)
    ] * 2
    told = re.compile(r"shop[.]orders: \d rows differ from \S+ at \S+: (.*)[.] `cdc verify .*")
    warnings = [found[1] for text in caplog.messages if (found := told.fullmatch(text))]
    assert sorted("; ".join(warnings).split("; ")) == FOUND
    cannot = "shop.items cannot be compared with its source: "
    assert [text.startswith(cannot) for text in caplog.messages].count(True) == 1
    missing, shown = checkpoint_status(str(tmp_path / "checkpoint")).proofs
    assert cannot in missing.progress
    assert shown.progress.startswith(f"12 rows through {second['position']} at {second['at']}, ")
