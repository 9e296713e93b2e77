"""``python -m bench.resync``: a large table is read again beside nine tables with live changes.

python -m bench.resync                     # 1,000,000 rows, as in the documentation
python -m bench.resync --rows 50000 --baseline 30

A job writes ten Delta tables. A thread changes rows of all of them all the time. After a baseline,
rows of the large table are changed by hand, and ``cdc resync`` asks for the table. The driver gets
SIGKILL twice meanwhile, after a third and after two thirds of the offsets, and starts again.

It prints the median lag of the nine tables before and meanwhile (the age of the oldest record of a
micro-batch by Kafka's timestamp, when its table was written), and compares all ten tables with the
source, a PostgreSQL that gets the rows as the thread has written them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import IO, Any

import pyarrow as pa
import yaml

from normalize import DeltaTarget, JdbcSource, LocalKafka, local_session, verify_table
from tests.support.servers.local_databases import LocalPostgres

LARGE, SMALL = "large", [f"t{number}" for number in range(9)]
_ROWS_OF_SMALL, _PARTITIONS = 2_000, 4
_CHANGES_OF_SMALL, _CHANGES_OF_LARGE = 10, 20  # a second
_WAIT = 1_200  # seconds


def main() -> None:
    """Run the job, read the table again, and print the lags and the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table")
    parser.add_argument("--baseline", type=int, default=120, help="seconds before the request")
    parser.add_argument("--job", default="", help="run the job of this file")
    options = parser.parse_args()
    if options.job:
        run(options.job)
        return
    with tempfile.TemporaryDirectory(prefix="bench-resync-") as folder, LocalKafka() as kafka:
        job = Job(Path(folder), kafka)
        source = Source(kafka, options.rows)
        job.start()
        job.wait_until_caught_up()
        print(f"{time.strftime('%X')} caught up with {options.rows:,} rows", flush=True)
        source.start()
        time.sleep(options.baseline)
        before = job.end_of_lags()
        job.kill()
        damage(job)
        job.start()
        seconds = read_again(job)
        meanwhile = job.end_of_lags()
        source.stop()
        job.wait_until_caught_up()
        job.kill()
        shown = (
            f"before {before:.1f} s, meanwhile {meanwhile:.1f} s, {meanwhile / before:.2f} times"
        )
        print(f"median lag of nine tables: {shown}; read again in {seconds:.0f} s", flush=True)
        verify(job, source)


def run(path: str) -> None:
    """Run a job file, and print its events as JSON."""
    from normalize.run import read_job, run_job

    run_job(read_job(path), report=lambda event: print(event.to_json(), flush=True))


class Job:
    """The job in a process of its own, and what it prints."""

    def __init__(self, folder: Path, kafka: LocalKafka) -> None:
        self.folder, self.file = folder, folder / "job.yaml"
        self._process: subprocess.Popen[str] | None = None
        self._caught_up = threading.Event()
        self._lags: list[float] = []
        self.batches = 0
        content = {
            "topic": [f"shop.{name}" for name in (LARGE, *SMALL)],
            "format": "maxwell-json",
            "options": {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "maxOffsetsPerTrigger": 200_000,
            },
            "target": {"delta": {"name": str(folder / "lake")}},
            "schema_location": str(folder / "schemas"),
            "checkpoint_location": str(folder / "checkpoint"),
            "packages": ["delta"],
            "check": False,
        }
        self.file.write_text(yaml.safe_dump(content))

    def start(self) -> None:
        """Start the job, or start it again."""
        command = [sys.executable, "-m", "bench.resync", "--job", str(self.file)]
        log = (self.folder / "job.log").open("a")
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            with suppress(json.JSONDecodeError):
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "failed":
            print(event["error"], flush=True)
        if event["event"] == "micro-batch":
            self.batches += 1
            self._caught_up.clear()
            if event["offsets_left"] == 0:
                self._caught_up.set()
            self._lags += [
                table["lag_seconds"]["oldest"]
                for name, table in event["tables"].items()
                if name != f"shop.{LARGE}" and table["lag_seconds"]
            ]

    def kill(self) -> None:
        """Kill Python and its JVM."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait_until_caught_up(self) -> None:
        """Wait until a micro-batch ends at the ends of the topics, and no other follows."""
        deadline, quiet = time.monotonic() + _WAIT, 0
        while quiet < 20:  # seconds
            batches = self.batches
            time.sleep(1)
            is_quiet = self._caught_up.is_set() and batches == self.batches
            quiet = quiet + 1 if is_quiet else 0
            if time.monotonic() > deadline:
                raise SystemExit(f"the job has not caught up in {_WAIT} s")

    def end_of_lags(self) -> float:
        """Return the median lag since the last call."""
        lags, self._lags = self._lags, []
        return median(lags)

    @property
    def resync(self) -> dict[str, Any]:
        """How far the large table is; empty before the request."""
        file = self.folder / "schemas" / "query" / "resync" / f"shop.{LARGE}.json"
        with suppress(FileNotFoundError, json.JSONDecodeError):
            content: dict[str, Any] = json.loads(file.read_text())
            return content
        return {}


class Source(threading.Thread):
    """The rows of the source, and the thread that changes them and writes the messages."""

    def __init__(self, kafka: LocalKafka, rows: int) -> None:
        super().__init__(daemon=True)
        self.kafka = kafka
        self.rows = {name: dict.fromkeys(range(_ROWS_OF_SMALL), 0) for name in SMALL}
        self.rows[LARGE] = dict.fromkeys(range(rows), 0)
        self.next = {name: len(of) for name, of in self.rows.items()}
        self._done = threading.Event()
        for name, of in self.rows.items():
            kafka.create_topic(f"shop.{name}", partitions=_PARTITIONS)
            kafka.produce(f"shop.{name}", (message(name, "insert", key, 0) for key in of))

    def run(self) -> None:
        """Change rows: four updates, a delete and an insert in turn."""
        number = 0
        while not self._done.is_set():
            began = time.monotonic()
            for name in (LARGE, *SMALL):
                many = _CHANGES_OF_LARGE if name == LARGE else _CHANGES_OF_SMALL
                self.kafka.produce(f"shop.{name}", list(self._changes(name, number, many)))
                number += many
            self._done.wait(max(0.0, 1 - (time.monotonic() - began)))

    def _changes(self, name: str, number: int, many: int) -> Iterator[tuple[bytes, bytes]]:
        rows = self.rows[name]
        for value in range(number + 1, number + many + 1):
            key = value * 7_919 % self.next[name]
            if value % 6 == 5:
                key, self.next[name] = self.next[name], self.next[name] + 1
                rows[key] = value
                yield message(name, "insert", key, value)
            elif key in rows and value % 6 == 4:
                yield message(name, "delete", key, rows.pop(key))
            elif key in rows:
                rows[key] = value
                yield message(name, "update", key, value)

    def stop(self) -> None:
        """Stop the changes."""
        self._done.set()
        self.join()


def message(table: str, kind: str, key: int, value: int) -> tuple[bytes, bytes]:
    """Return a message of Maxwell."""
    old = ', "old": {"v": -1}' if kind == "update" else ""
    text = (
        f'{{"database": "shop", "table": "{table}", "type": "{kind}", "ts": 1700000000, '
        f'"primary_key_columns": ["id"], '
        f'"data": {{"id": {key}, "v": {value}, "note": "{_note(key, value)}"}}{old}}}'
    )
    return str(key).encode(), text.encode()


def _note(key: int, value: int) -> str:
    return f"the note of row {key} in version {value}"


def damage(job: Job) -> None:
    """Change the large table by hand, as a mistake does."""
    spark = local_session("damage", packages=["delta"])
    table = DeltaTarget(str(job.folder / "lake" / LARGE)).sql_name
    spark.sql(f"DELETE FROM {table} WHERE id % 1000 = 3")
    spark.sql(f"UPDATE {table} SET v = -1 WHERE id % 1000 = 4")
    spark.stop()


def read_again(job: Job) -> float:
    """Request the table, kill the driver twice meanwhile, and return the seconds until the end."""
    began = time.monotonic()
    cdc = str(Path(sys.executable).parent / "cdc")
    command = subprocess.Popen([cdc, "resync", str(job.file), f"shop.{LARGE}"])
    offsets, kills = 0, [2 / 3, 1 / 3]
    while command.poll() is None:
        time.sleep(0.2)
        state = job.resync
        offsets = max(offsets, state.get("left", 0))
        if kills and state.get("phase") == "reading" and state["left"] < kills[0] * offsets:
            kills.pop(0)
            job.kill()
            print(f"{time.strftime('%X')} killed at {state['left']:,} offsets left", flush=True)
            job.start()
    if command.returncode or kills:
        raise SystemExit(f"cdc resync ended with {command.returncode}, before {len(kills)} kills")
    return time.monotonic() - began


def verify(job: Job, source: Source) -> None:
    """Compare all tables with the rows of the source."""
    with LocalPostgres() as server:
        settings = {"spark.sql.session.timeZone": "UTC"}
        spark = local_session("verify", packages=["delta", "postgresql"], **settings)
        equal = True
        for name, rows in source.rows.items():
            notes = [_note(key, value) for key, value in rows.items()]
            columns = {"id": list(rows), "v": list(rows.values()), "note": notes}
            frame = spark.createDataFrame(pa.table(columns))
            account = {"user": server.user, "password": server.password}
            driver = {"driver": "org.postgresql.Driver"}
            options = {"url": server.url, "dbtable": name, **driver, **account}
            frame.write.format("jdbc").options(**options).save()
            of = JdbcSource(server.url, name, **account)
            target = DeltaTarget(str(job.folder / "lake" / name))
            result = verify_table(spark, of, target, keys="id", max_lag_seconds=0)
            equal &= result.equal is True
            print(f"{name}: {str(result).splitlines()[0]}", flush=True)
        spark.stop()
    if not equal:
        raise SystemExit("a table differs from its source")


if __name__ == "__main__":
    main()
