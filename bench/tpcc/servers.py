"""The benchmark's servers and tools: two databases with logs, go-tpc, and Debezium in Kafka Connect.

Each server keeps its data and its port when it is killed, and can be started again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import psutil

from normalize import local_kafka
from tests.support.servers import processes
from tests.support.servers.local_databases import LocalMariaDb, LocalPostgres
from tests.support.servers.processes import LocalServer

from .tables import TABLES

GO_TPC = "1.0.12"
"""1.0.7 has no driver for PostgreSQL."""
DEBEZIUM, CONNECT = "3.4.0.Final", "4.1.1"
"""Debezium, and the version of Kafka Connect that it is built with. With the clients of Kafka 4.4,
Debezium fails: they lack a class that it uses."""
PREFIX = "tpcc"
"""The beginning of the topics' names."""
END = "tpcc_end"
"""A table that gets a row after the last change."""


def server_at(port: int) -> psutil.Process | None:
    """Return the process that listens at a port of 127.0.0.1."""
    listening = (
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    )
    return next((psutil.Process(number) for number in listening if number), None)


def kill_at(port: int) -> bool:
    """Kill the server at a port with SIGKILL, and return whether there was one."""
    server = server_at(port)
    if server is not None:
        with suppress(psutil.NoSuchProcess):
            server.kill()
            server.wait(30)
    return server is not None


class _Restartable(LocalServer):
    """A server that is started again with its command."""

    more: tuple[str, ...] = ()
    ready = ""
    """What the server writes to its log when it is ready, if it listens earlier."""
    command: list[str]

    def _start(self, command: list[str], **options: Any) -> None:
        self.command, self.options = [*command, *self.more], options
        super()._start(self.command, **options)

    def restart(self) -> None:
        """Start the killed server again, and wait until it is ready."""
        before = self._readiness()
        # MariaDB's file creates the user, who exists by now.
        command = [part for part in self.command if not part.startswith("--init-file")]
        super()._start(command, **self.options)
        self._wait(
            lambda: processes.listens(self.port) and (not self.ready or self._readiness() > before)
        )

    def _readiness(self) -> int:
        """Return how often the server said in its log that it is ready."""
        return self._log.read_text(errors="replace").count(self.ready)


class MariaDb(_Restartable, LocalMariaDb):
    """A MariaDB with a binary log, whose commits survive its kill."""

    kind, database, driver = "mariadb", "test", "mysql"
    more = (
        "--log-bin=binlog",
        "--server-id=7",
        "--binlog-format=ROW",
        "--performance-schema=OFF",
        "--skip-ssl",
        "--default-time-zone=+00:00",
        "--innodb-buffer-pool-size=512M",
        "--innodb-log-file-size=256M",
        "--innodb-flush-log-at-trx-commit=2",
    )
    connector: ClassVar = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.server.id": "8848",
        "database.ssl.mode": "disable",
        "table.include.list": ",".join(f"test.{name}" for name in (*(t.name for t in TABLES), END)),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "include.schema.changes": "false",
        "connect.keep.alive.interval.ms": "2000",
    }


class Postgres(_Restartable, LocalPostgres):
    """A PostgreSQL with logical decoding, whose commits survive its kill."""

    kind, database, driver = "postgresql", "public", "postgres"
    ready = "ready to accept connections"
    more = tuple(
        part
        for setting in (
            "wal_level=logical",
            "shared_buffers=512MB",
            "max_wal_size=4GB",
            "timezone=UTC",
        )
        for part in ("-c", setting)
    )
    connector: ClassVar = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.dbname": "postgres",
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(
            f"public.{name}" for name in (*(t.name for t in TABLES), END)
        ),
    }


Source = MariaDb | Postgres
SOURCES: dict[str, type[Source]] = {"mariadb": MariaDb, "postgresql": Postgres}


def go_tpc() -> Path:
    """Return the program; fetch and build it if the user's cache does not have it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pyspark-kafka-changelog" / f"go-tpc-{GO_TPC}"
    if not (folder / "go-tpc").is_file():
        if shutil.which("go") is None:
            raise SystemExit("Go is missing, which builds go-tpc: sudo apt install golang")
        done = subprocess.run(
            ["go", "install", f"github.com/pingcap/go-tpc/cmd/go-tpc@v{GO_TPC}"],
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"go-tpc cannot be built:\n{done.stderr[-2000:]}")
    return folder / "go-tpc"


def go_tpc_command(source: Source, action: str, warehouses: int, *more: str) -> list[str]:
    """Return the command of an action: ``prepare``, ``run`` or ``check``."""
    postgres = source.driver == "postgres"
    login = {
        "-d": source.driver,
        "-H": "127.0.0.1",
        "-P": str(source.port),
        "-U": source.user,
        # The program puts the password into an address, which MySQL's driver does not decode.
        "-p": quote(source.password) if postgres else source.password,
        "-D": "postgres" if postgres else source.database,
        "--conn-params": "sslmode=disable" if postgres else "",
        "--warehouses": str(warehouses),
    }
    options = [part for name, value in login.items() if value for part in (name, value)]
    return [str(go_tpc()), "tpcc", action, *options, *more]


def run_go_tpc(source: Source, action: str, warehouses: int, *more: str) -> str:
    """Run go-tpc, and return its output."""
    done = subprocess.run(
        go_tpc_command(source, action, warehouses, *more), capture_output=True, text=True
    )
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise SystemExit(f"go-tpc {action} failed:\n{output[-3000:]}")
    return output


def check_source(source: Source, warehouses: int) -> str:
    """Return go-tpc's own check of the source in a sentence."""
    output = run_go_tpc(source, "check", warehouses)
    failed = [line for line in output.splitlines() if "failed" in line]
    checked = output.count("begin to check")
    return failed[0] if failed else f"{checked} checks of {warehouses} warehouses hold"


# --------------------------------------------------------------------------------------------------
# Kafka Connect


def connect_jars() -> Path:
    """Return the folder of the jars of Kafka Connect and Debezium; fetch them if they are missing."""
    modules = [
        ("org.apache.kafka", "connect-runtime", CONNECT),
        ("org.apache.kafka", "connect-json", CONNECT),
        ("io.debezium", "debezium-connector-postgres", DEBEZIUM),
        ("io.debezium", "debezium-connector-mariadb", DEBEZIUM),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    dependencies = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default"/>'
        for organisation, name, version in modules
    )
    return local_kafka.fetch_jars(
        f"debezium-{DEBEZIUM}-{CONNECT}",
        '<ivy-module version="2.0"><info organisation="local" module="debezium"/><dependencies>'
        f"{dependencies}</dependencies></ivy-module>",
        f"Debezium {DEBEZIUM}",
        "46 MB, once",
    )


class Connect(_Restartable):
    """Kafka Connect in standalone mode with one Debezium connector, which reads all tables.

    Its messages have no schema blocks. Decimals are text, and times are milliseconds.
    """

    def __init__(self, source: Source, servers: str) -> None:
        super().__init__()
        self.source, self.servers = source, servers

    def __enter__(self) -> Connect:
        files = {
            "worker": {
                "bootstrap.servers": self.servers,
                "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(self._scratch / "offsets"),
                "offset.flush.interval.ms": "2000",
                "listeners": f"http://127.0.0.1:{self.port}",
                "plugin.discovery": "service_load",
            },
            "connector": {
                "name": PREFIX,
                "tasks.max": "1",
                "topic.prefix": PREFIX,
                "database.hostname": "127.0.0.1",
                "database.port": str(self.source.port),
                "database.user": self.source.user,
                "database.password": self.source.password,
                "decimal.handling.mode": "string",
                "time.precision.mode": "connect",
                "topic.creation.default.partitions": "1",
                "topic.creation.default.replication.factor": "1",
                "schema.history.internal.file.filename": str(self._scratch / "history"),
                "retriable.restart.connector.wait.ms": "2000",
                **self.source.connector,
            },
        }
        for name, properties in files.items():
            path = self._scratch / f"{name}.properties"
            path.touch(mode=0o600)
            path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._start(
            [
                local_kafka.find_java(),
                "-Xmx768m",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{connect_jars()}/*",
                "org.apache.kafka.connect.cli.ConnectStandalone",
                str(self._scratch / "worker.properties"),
                str(self._scratch / "connector.properties"),
            ]
        )
        self._wait()
        return self

    def failure(self) -> str:
        """Return the error of a task that has failed; empty if none has."""
        url = f"http://127.0.0.1:{self.port}/connectors/{PREFIX}/status"
        with suppress(urllib.error.URLError, OSError, ValueError):
            with urllib.request.urlopen(url, timeout=10) as answer:
                status = json.load(answer)
            failed = [each for each in status["tasks"] if each["state"] == "FAILED"]
            return failed[0]["trace"][:2000] if failed else ""
        return ""

    def log(self) -> str:
        """Return the end of the worker's log."""
        return self._log.read_text(errors="replace")[-3000:]
