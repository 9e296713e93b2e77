"""Flink SQL from the topics into PostgreSQL by its JDBC sink: an upsert for each table in one job.

The sink writes up to 1,000 rows at once, at least once in a second, and PostgreSQL's driver joins
them into statements. Flink expects no duplicates, its default, so that it keeps no state.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.flink import _OPENED, HEAP, OPTIONS, compiled_class, flink_jars
from normalize import local_kafka
from normalize.tables.writers.jdbc import JdbcConnection

from .databases import database_of, in_database
from .record import Recording
from .replay import TOPICS
from .results import Readable
from .servers import Postgres
from .tables import TABLES, Table
from .targets import Target, session

JDBC_CONNECTOR = "4.0.0-2.0"
"""The latest release. It is built for Flink 2.0, and runs in 2.2."""
DRIVER = "42.7.7"
_GROUP = "flink"


def jdbc_jars() -> Path:
    """Return the folder of the JDBC connector's jars; fetch them if they are missing."""
    modules = [
        ("org.apache.flink", "flink-connector-jdbc-core", JDBC_CONNECTOR),
        ("org.apache.flink", "flink-connector-jdbc-postgres", JDBC_CONNECTOR),
        ("org.postgresql", "postgresql", DRIVER),
    ]
    dependencies = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default" '
        'transitive="false"/>'
        for organisation, name, version in modules
    )
    return local_kafka.fetch_jars(
        f"flink-jdbc-{JDBC_CONNECTOR}",
        '<ivy-module version="2.0"><info organisation="local" module="flink-jdbc"/><dependencies>'
        f"{dependencies}</dependencies></ivy-module>",
        f"Flink's JDBC connector {JDBC_CONNECTOR}",
        "once",
    )


def statements(servers: str, url: str, user: str, password: str) -> Iterator[str]:
    """Yield the statements of the job, each on one line."""
    for table, topic in zip(TABLES, TOPICS, strict=True):
        source = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": servers,
            "properties.group.id": _GROUP,
            "scan.startup.mode": "earliest-offset",
            "format": "debezium-json",
        }
        sink = {
            "connector": "jdbc",
            "url": f"{url}?reWriteBatchedInserts=true",
            "table-name": table.name,
            "username": user,
            "password": password,
            "sink.buffer-flush.max-rows": "1000",
            "sink.buffer-flush.interval": "1s",
        }
        yield _create(f"from_{table.name}", table, {"TIMESTAMP_NTZ": "BIGINT"}, source)
        yield _create(f"into_{table.name}", table, {"TIMESTAMP_NTZ": "TIMESTAMP(3)"}, sink)
        columns = ", ".join(
            f"CAST(TO_TIMESTAMP_LTZ({name}, 3) AS TIMESTAMP(3))"
            if kind == "TIMESTAMP_NTZ"
            else name
            for name, kind in table.columns.items()
        )
        yield f"INSERT INTO into_{table.name} SELECT {columns} FROM from_{table.name}"


def _create(name: str, table: Table, types: dict[str, str], options: dict[str, str]) -> str:
    columns = ", ".join(
        f"{column} {types.get(kind, kind)}" for column, kind in table.columns.items()
    )
    listed = ", ".join(
        "'{}' = '{}'".format(option, value.replace("'", "''")) for option, value in options.items()
    )
    key = ", ".join(table.key)
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({listed})"


class FlinkCopy:
    """The job. Its records are written when a checkpoint has committed their offsets."""

    def __init__(self, server: Postgres, servers: str, work: Path) -> None:
        self.servers = servers
        file = work / "statements"
        file.touch(mode=0o600)
        file.write_text("\n".join(statements(servers, server.url, server.user, server.password)))
        java, jars = local_kafka.find_java(), flink_jars()
        classes = compiled_class(Path(java), "JdbcCopy", jars, work / "classes")
        options = OPTIONS | {
            "table.exec.source.cdc-events-duplicate": "false",
            "table.local-time-zone": "UTC",
            "execution.checkpointing.dir": (work / "checkpoints").as_uri(),
            "io.tmp.dirs": f"{work}/tmp",
            "taskmanager.memory.network.max": "256m",
        }
        command = [java, f"-Xmx{HEAP}", *_OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{classes}:{jars}/*:{jdbc_jars()}/*", "JdbcCopy", str(file)]
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", ""]
        self._log = work / "flink.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*guard, *command, *(f"{name}={value}" for name, value in options.items())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def readable(self) -> list[Readable]:
        """Return nothing: the tables are probed."""
        return []

    def wait(self, records: list[int]) -> float:
        """Wait until a checkpoint has committed the last records' offsets."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        # Not by an AdminClient: librdkafka's crashed while the broker loaded the group.
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": _GROUP})
        partitions = [TopicPartition(topic, 0) for topic in TOPICS]
        while True:
            if self._process.poll() is not None:
                log = self._log.read_text(errors="replace")
                raise RuntimeError(f"Flink failed; the end of its log:\n{log[-5000:]}")
            with suppress(KafkaException):  # the broker has not loaded the group
                committed = consumer.committed(partitions, timeout=30)
                if all(
                    each.offset >= count for each, count in zip(committed, records, strict=True)
                ):
                    consumer.close()
                    return time.time()
            time.sleep(0.2)

    def stop(self) -> None:
        """End Flink."""
        self._process.terminate()
        self._process.wait()


_POSTGRES = {"STRING": "TEXT", "TIMESTAMP_NTZ": "TIMESTAMP"}


@contextmanager
def flink(recording: Recording, folder: Path, trigger: str | None) -> Iterator[Target]:
    """Yield Flink's copy into the tables of a PostgreSQL; it has no micro-batches."""
    with Postgres() as server, session("postgresql") as spark:
        with JdbcConnection.open(spark, database_of(server).target("any")) as connection:
            for table in TABLES:
                columns = ", ".join(
                    f"{name} {_POSTGRES.get(kind, kind)}" for name, kind in table.columns.items()
                )
                key = ", ".join(table.key)
                connection.execute(f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({key}))")
        yield in_database(spark, server, lambda servers, work: FlinkCopy(server, servers, work))
