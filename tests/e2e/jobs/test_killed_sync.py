"""A `sync_database` that is killed between MERGEs ends in the right tables.

It has written every dead letter.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka
from normalize.tables.database_target import table_name
from tests.support.databases import Message, maxwell, new_tables
from tests.support.jobs import sync_job
from tests.support.streams import letters, new_topic

pytestmark = pytest.mark.slow(60)

TABLES = [f"t{number}" for number in range(6)]
OF_MICRO_BATCH = 60


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.jobs.sync_job", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def kill_after(job: subprocess.Popen[str], merges: int, pause: float = 0) -> int:
    """Kill a job once it has merged this many tables, and return how many it has merged.

    `pause` is how long it goes on after that, in seconds.
    """
    for _ in range(merges):
        assert job.stdout.readline().startswith("merged")
    time.sleep(pause)
    os.killpg(job.pid, signal.SIGKILL)  # Python and the JVM
    rest = job.communicate()[0]
    return merges + rest.count("merged")


def history(
    tables: list[str], changes: int
) -> tuple[list[Message], dict[str, dict[int, dict[str, Any]]]]:
    """Return messages that touch each table in each micro-batch, and the tables after them.

    There are `changes` messages, and a column appears half way.
    """
    random, messages = Random(7), []
    truth: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in tables}
    for number in range(changes):
        name = tables[number % len(tables)]
        rows, key = truth[name], random.randrange(4)
        if key in rows and random.random() < 0.3:
            messages.append(maxwell(name, "delete", rows.pop(key)))
            continue
        old = {"v": rows[key]["v"]} if key in rows else None
        row = {"id": key, "v": number}
        rows[key] = row if number < changes // 2 else {**row, "note": f"n{number}"}
        messages.append(maxwell(name, "update" if old else "insert", rows[key], old))
    return messages, truth


def long(*case: Any) -> Any:
    """A case of the long form."""
    return pytest.param(*case, marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("kind", "tables", "batches", "kills"),
    [
        ("delta-rs", TABLES[:3], 1, (1,)),
        # In the first micro-batch, in its repetition, and in later ones.
        long("delta", TABLES, 6, (2, 1, len(TABLES) + 4, len(TABLES) + 1, len(TABLES) + 5)),
        long("delta-rs", TABLES, 6, (2, 1, len(TABLES) + 4, len(TABLES) + 1, len(TABLES) + 5)),
        long("iceberg", TABLES, 3, (len(TABLES) + 2,)),
        long("postgresql", TABLES, 3, (len(TABLES) + 2,)),
        long("mariadb", TABLES, 3, (2, len(TABLES) + 2)),
    ],
)
def test_sigkill_between_merges_and_restart_loses_no_row_and_no_dead_letter(
    spark: SparkSession,
    kafka: LocalKafka,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    tables: list[str],
    batches: int,
    kills: tuple[int, ...],
) -> None:
    messages, truth = history(tables, batches * OF_MICRO_BATCH)
    server = {"postgresql": "postgres", "mariadb": "mariadb"}.get(kind)
    target = new_tables(spark, kind, tmp_path, server and request.getfixturevalue(server))
    (tmp_path / "target").write_bytes(pickle.dumps(target.database))
    warehouse = Path(spark.conf.get("spark.sql.catalog.lake.warehouse", ""))
    bad = {number: b"poison %d" % number for number in range(0, len(messages), OF_MICRO_BATCH // 2)}
    for number in reversed(bad):
        messages.insert(number, (None, bad[number]))
    dead = new_topic(kafka, [])
    arguments = kafka.bootstrap_servers, new_topic(kafka, messages), dead
    for merges in kills:
        killed = kill_after(start(*arguments, str(tmp_path), str(warehouse.parent)), merges)
        assert killed % len(tables), (
            "the job was killed after the last MERGE of a micro-batch: kill it earlier"
        )
    # Here, because a restarted query needs no process of its own.
    sync_job.run(spark, *arguments, tmp_path)
    for name in tables:
        assert target.rows(table_name(target.database.table, f"shop.{name}")) == sorted(
            truth[name].values(), key=repr
        ), name
    written = {(letter.key(), letter.value()) for letter in letters(kafka, dead)}
    assert sorted(value for _, value in written) == sorted(bad.values()), (
        "copies of a record have equal keys"
    )
