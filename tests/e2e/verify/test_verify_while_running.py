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
from normalize.verify.chunk import Key
from normalize.verify.comparison import Comparison, Scan
from tests.support.databases import maxwell, new_tables
from tests.support.resyncing import sync_name
from tests.support.sinking import table_name
from tests.support.syncing import Sync
from tests.support.verifying import Database

COLUMNS = (
    "id INT NOT NULL, name STRING, secret STRING, flag BOOLEAN, doc STRING, at TIMESTAMP_NTZ(6), "
    "{odd} STRING"
)
SOURCE = {
    "mariadb": (
        "id INT PRIMARY KEY, name LONGTEXT CHARACTER SET utf8mb4, secret VARCHAR(20) CHARACTER SET "
        "utf8mb4, flag TINYINT(1), doc JSON, at DATETIME(6), {odd} DOUBLE, new INT"
    ),
    "postgresql": (
        "id INT PRIMARY KEY, name TEXT, secret VARCHAR(20), flag SMALLINT, doc JSONB, at TIMESTAMP, "
        "{odd} DOUBLE PRECISION, new INT"
    ),
}
ROWS = [{"id": number, "name": f"name {number}", "secret": f"s{number}"} for number in range(1, 15)]
"""Two chunks, of which the second has no fault."""
LONG = {"id": 23, "name": "x" * 40_000}
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "missing  `id` = 20": ({"id": 20, "name": "lost"}, None),
    "different  `id` = 21: `name`": (
        {"id": 21, "name": "a value that is cut"},
        {"id": 21, "name": "a value"},
    ),
    # LobMaxSize
    "different  `id` = 23: `name`": (LONG, {**LONG, "name": LONG["name"][:32_768]}),  # type: ignore[index]
    # Maxwell's bootstrap
    "different  `id` = 24: `flag`": ({"id": 24, "flag": 5}, {"id": 24, "flag": True}),
    "different  `id` = 26: `at`": (
        {"id": 26, "at": "2026-11-24 12:00:00"},
        {"id": 26, "at": "2026-11-24 14:00:00"},
    ),
    # PARTIAL_JSON
    "different  `id` = 27: `doc`": (
        {"id": 27, "doc": '{"a": [2], "b": 1}'},
        {"id": 27, "doc": '{"a": [1], "b": 1}'},
    ),
}
"""The difference that a warning names, the source's row, and the row that the topic has."""
RIGHT = [{"id": 25, "flag": 1}, {"id": 28, "doc": '{"a": [1]}', "at": "2026-11-24 12:00:00"}]
BY_HAND = {
    "different  `id` = 1: `name`": "UPDATE {} SET name = 'by hand' WHERE id = 1",
    "missing  `id` = 2": "DELETE FROM {} WHERE id = 2",
    "different  `id` = 5: `secret`": "UPDATE {} SET secret = 's5' WHERE id = 5",
    "extra  `id` = 99": "INSERT INTO {} (id, name) VALUES (99, 'by hand')",
    "duplicate  `id` = 6": "INSERT INTO {0} SELECT * FROM {0} WHERE id = 6",
}


class Shop:
    """A table of a database, and the records that its producer writes."""

    def __init__(self, sync: Sync, database: Database, table: str, odd: str) -> None:
        self.sync, self.database, self.table, self.name = sync, database, table, table_name()
        database.run(f"CREATE TABLE {self.name} ({SOURCE[database.kind].format(odd=odd)})")

    def insert(self, *rows: Mapping[str, Any]) -> None:
        """Insert rows into the database."""
        for row in rows:
            values = ", ".join(f"'{value}'" for value in row.values())
            self.database.run(f"INSERT INTO {self.name} ({', '.join(row)}) VALUES ({values})")

    def produce(self, *rows: Mapping[str, Any], kind: str = "insert") -> None:
        """Write the records of new rows, or of those that are deleted."""
        self.sync.produce("all", [maxwell(self.table, kind, dict(row)) for row in rows])

    def verify(self, name: str = "") -> Verify:
        source = self.database.source(name or self.name)
        login = {"user": source.user, "password": source.password}
        options = {"every": "0 seconds", "at_most": "100 %", "max_lag_seconds": 0, "rows": 7}
        return Verify(source=source.url, table=source.table, **login, **options)  # type: ignore[arg-type]

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.sync.file(f"shop.{self.table}")["facts"]
        return facts


@pytest.mark.parametrize(
    ("database", "of_target", "kept"),
    [
        ("mariadb", "postgresql", {"deletes": "soft"}),
        ("postgresql", "delta-rs", {"scd_type": 2}),
        pytest.param("postgresql", "iceberg", {"deletes": "soft"}, marks=pytest.mark.iceberg),
    ],
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
    kept: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MASK_KEY", "0123456789abcdef")
    tables = new_tables(spark, of_target, tmp_path, postgresql.server)
    sync = Sync(spark, kafka, tables, tmp_path)
    odd = f"odd_{of_target.replace('-', '_')}"  # a warning is logged once in a process
    shop, gone, items = (Shop(sync, database, table, odd) for table in ("orders", "gone", "items"))
    shop.insert(*ROWS, {"id": 100, "name": "not in the target"})
    shop.produce({**ROWS[9], "name": "an older version"})
    shop.produce(*ROWS)
    gone.insert(*ROWS[:2])
    gone.produce(*ROWS[:2])
    orders = TableOptions(
        schema=COLUMNS.format(odd=odd),
        primary_key="id",
        where="id < 100",
        select={"upper_name": "upper(name)"},
        verify=shop.verify(),
        **kept,
    )
    options: dict[str, Any] = {
        "tables": {
            "shop.orders": orders,
            "shop.gone": TableOptions(verify=gone.verify()),
            "shop.items": TableOptions(verify=items.verify("is_missing")),
        },
        "format_options": {"mask": {"secret": "hmac"}, "mask_key_env": "MASK_KEY"},
    }
    chunk = Comparison.chunk

    def outage(comparison: Comparison, after: Key | None, most: int) -> Scan:
        if after == ("14",):
            raise ConnectionError("no third chunk")
        return chunk(comparison, after, most)

    query = sync.writer(**options).start()
    try:
        query.processAllAvailable()
        by_hand = dict(list(BY_HAND.items())[: 4 if of_target == "postgresql" else None])
        run = postgresql.run if of_target == "postgresql" else spark.sql
        for statement in by_hand.values():
            run(statement.format(sync_name(sync, "orders")))
        gone.database.run(f"TRUNCATE TABLE {gone.name}")  # Maxwell never writes it
        late, deleted = {"id": 22, "name": "late"}, {"id": 30, "name": "deleted"}
        for in_source, in_topic in FAULTS.values():
            shop.insert(in_source)
            shop.produce(*[in_topic] * (in_topic is not None))  # type: ignore[list-item]
        shop.insert(late, *RIGHT)
        shop.produce(*({**row, "flag": True} if "flag" in row else row for row in RIGHT), deleted)
        shop.produce(deleted, kind="delete")
        with monkeypatch.context() as patch:
            patch.setattr(Comparison, "chunk", outage)
            for _ in range(7):
                items.produce({"id": 1})
                query.processAllAvailable()
                if shop.facts()["verifying"]["after"]:
                    break
        begun = shop.facts()["verifying"]
        query.stop()
        before = list(caplog.messages)
        caplog.clear()
        query = sync.writer(**options).start()
        cycles = []
        for number in range(15):
            items.produce({"id": 1})
            if number == 2:  # the third chunk has been compared
                shop.produce(late)
            query.processAllAvailable()
            proof = shop.facts()["verified"]
            cycles += [proof] if proof["at"] and proof not in cycles else []
            if len(cycles) == 2:
                break
    finally:
        query.stop()
    found = sorted([*by_hand, *FAULTS])
    assert (begun["after"], begun["rows"], begun["different"]) == (["14"], 14, len(by_hand) - 1)
    first, second = cycles
    # A restart goes on with the comparison.
    assert begun["at"] == first["at"] < second["at"]
    assert [(each["rows"], each["different"], each["unsettled"]) for each in cycles] == [
        (len(ROWS) + len(FAULTS) + len(RIGHT) + 2, len(found), 0)
    ] * 2
    assert told(before) == sorted(each for each in by_hand if "99" not in each)
    assert told(caplog.messages) == found
    assert (gone.facts()["verified"]["rows"], gone.facts()["verified"]["different"]) == (0, 2)
    cannot = "shop.items cannot be compared with its source: "
    assert [text.startswith(cannot) for text in before].count(True) == 1
    without = f"column `{odd}` is DOUBLE in the source and STRING in the target, which cannot be"
    assert [without in text for text in before].count(True) == 1
    _, missing, shown = checkpoint_status(str(tmp_path / "checkpoint")).proofs
    assert cannot in missing.progress
    rows = f"{second['rows']} rows through {second['position']} at {second['at']}, "
    assert shown.progress.startswith(rows)
    assert "not compared: " in shown.progress
    assert f"`{odd}`" in shown.progress


def told(messages: list[str]) -> list[str]:
    """Return the differences of ``shop.orders`` of which warnings were logged."""
    warning = re.compile(r"shop[.]orders: \d+ rows differ from \S+ at \S+: (.*)[.] `cdc verify .*")
    found = [each[1] for text in messages if (each := warning.fullmatch(text))]
    return sorted("; ".join(found).split("; "))
