"""Database, go-tpc, Debezium, Kafka and `sync_database` at once, which are killed in turn."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from normalize import DeltaTarget, JdbcSource, LocalKafka, local_session, verify_table
from normalize.tables.writers.jdbc import JdbcConnection
from tests.support.servers.standalone_cluster import StandaloneCluster

from .conditions import violations
from .copies import SYNC_OPTIONS
from .record import (
    ends,
    execute,
    jdbc_table,
    login,
    prepare,
    row_count,
    say,
    source_rows,
    source_table,
    topic_of,
    wait_for,
)
from .servers import END, SOURCES, Connect, Source, check_source, go_tpc_command, kill_at
from .tables import TABLES

KINDS = ("driver", "executor", "broker", "connector", "database", "target")
"""What can be killed; the database is the source, and the target that of `--into`."""
TARGETS = ("delta", *SOURCES)
_RUNNING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> "
    "pg_backend_pid() AND backend_type = 'client backend'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx",
}
"""The queries for the number of transactions of others."""
TERMINALS = 100
"""go-tpc's connections, which wait between transactions as the specification says."""
_PATIENCE = 900  # seconds without a micro-batch
_SETTINGS = {
    # Compiled plans, as of users: the tests' cluster interprets them.
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.memory": "1g",
}
_JOB = Path(__file__).with_name("live_job.py")


class Outcome(NamedTuple):
    """What a live run ended in.

    Attributes
    ----------
    kills : dict
        By what was killed.
    equal : dict
        Whether `verify_table` found each table equal; None: unknown.
    violations : dict
        Rows that violate each condition in the copy.
    source : str
        go-tpc's check of the source.
    """

    kills: dict[str, int]
    equal: dict[str, bool | None]
    violations: dict[str, int]
    source: str

    @property
    def sentence(self) -> str:
        """Say whether the copy is right."""
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items() if count)
        wrong = [name for name, equal in self.equal.items() if not equal]
        wrong += [f"condition {name}" for name, count in self.violations.items() if count]
        if wrong:
            return f"WRONG after {sum(self.kills.values())} kills ({kills}): {', '.join(wrong)}"
        return (
            f"right after {sum(self.kills.values())} kills ({kills}): verify_table found "
            f"{len(self.equal)} tables equal, {len(self.violations)} conditions hold"
        )


class Live:
    """Everything that runs at once, each part of which can be killed."""

    def __init__(
        self, spark: Any, options: argparse.Namespace, folder: Path, stack: ExitStack
    ) -> None:
        self.spark = spark
        self.options, self.folder, self._stack = options, folder, stack
        self.kills = dict.fromkeys(KINDS, 0)
        self.ended: list[str] = []
        self.source: Source = stack.enter_context(SOURCES[options.database]())
        into = SOURCES.get(options.into)
        self.target: Source | None = into and stack.enter_context(into())
        self.topics = [topic_of(self.source, table.name) for table in TABLES]
        self._data = folder / "kafka"
        self.kafka = LocalKafka(data_dir=self._data).start()
        self.servers = self.kafka.bootstrap_servers
        stack.callback(lambda: self.kafka.stop())
        # The cluster's temporary folder must exist for its workers.
        self.cluster = stack.enter_context(StandaloneCluster(folder))
        self.connect: Connect | None = None
        self.job: subprocess.Popen[str] | None = None
        self.tool: subprocess.Popen[bytes] | None = None
        stack.callback(self.stop)

    # -- the parts ---------------------------------------------------------------------------------

    def start_job(self) -> None:
        """Submit the job, for the first time or again."""
        work = self.folder / "submitted"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        arguments = {
            "repository": str(Path(__file__).parents[2]),
            "by_hand": self.options.by_hand,
            "topics": self.topics,
            "format_options": SYNC_OPTIONS,
            "lake": str(self.folder / "lake"),
            "database": self.target and login(self.target),
            "schemas": str(self.folder / "schemas"),
            "checkpoint": str(self.folder / "checkpoint"),
            "verify": self._verify(),
            "options": {"kafka.bootstrap.servers": self.servers, "maxOffsetsPerTrigger": 100_000},
            "tables": {
                source_table(self.options.database, table.name): {
                    "schema": table.ddl,
                    "primary_key": table.key,
                }
                for table in TABLES
            },
        }
        self.job = self.cluster.submit(work, _JOB, json.dumps(arguments), more=_SETTINGS)

    def _verify(self) -> dict[str, Any]:
        """Return how the job compares its tables with their source; empty if it does not."""
        if not self.options.verify:
            return {}
        source = login(self.source)
        more = {"every": "0 seconds", "max_lag_seconds": self.options.verify_lag}
        return {"source": source.pop("url"), **source, **more, "at_most": self.options.verify}

    def start_tool(self, seconds: float) -> None:
        """Let go-tpc write transactions for some time."""
        command = go_tpc_command(
            self.source,
            "run",
            self.options.warehouses,
            *("-T", str(TERMINALS), "--wait", "--ignore-error", "--silence"),
            *("--time", f"{max(1, seconds):.0f}s"),
        )
        with (self.folder / "go-tpc.log").open("ab") as log:
            self.tool = subprocess.Popen(command, stdout=log, stderr=log)

    def watch(self, seconds: float) -> None:
        """Start again what has ended by itself."""
        if self.job is not None and self.job.poll() is not None:
            log = (self.folder / "submitted" / "driver.log").read_text(errors="replace")
            self.ended.append(f"job: {_reason(log)}")
            say(f"the job ended by itself, and is started again: {_reason(log)}")
            self.start_job()
        if self.tool is not None and seconds > 0 and self.tool.poll() is not None:
            self.start_tool(seconds)
        if self.connect is not None and (failure := self.connect.failure()):
            self.ended.append(f"connector: {failure.splitlines()[0]}")
            say(f"the connector failed, and is started again: {failure.splitlines()[0]}")
            kill_at(self.connect.port)
            self.connect.restart()

    def kill(self, kind: str) -> None:
        """Kill a part with SIGKILL, and start it again."""
        killed = {
            "driver": self._kill_driver,
            "executor": lambda: any(self.cluster.kill_executor(number) for number in range(2)),
            "broker": self._kill_broker,
            "connector": self._kill_connector,
            "database": lambda: self._kill_server(self.source),
            "target": self._kill_target,
        }[kind]()
        self.kills[kind] += bool(killed)

    def _kill_driver(self) -> bool:
        assert self.job is not None
        killed = _kill_tree(self.job.pid)
        self.job.wait()
        self.start_job()
        return killed

    def _kill_broker(self) -> bool:
        port = int(self.servers.rpartition(":")[2])
        killed = kill_at(port)
        self.kafka.stop()
        self.kafka = LocalKafka(port, self._data).start()
        return killed

    def _kill_connector(self) -> bool:
        assert self.connect is not None
        killed = kill_at(self.connect.port)
        self.connect.restart()
        return killed

    def _kill_server(self, server: Source) -> bool:
        killed = kill_at(server.port)
        server.restart()
        return killed

    def _kill_target(self) -> bool:
        """Kill the target within a transaction, if one begins soon."""
        assert self.target is not None
        with JdbcConnection.open(self.spark, jdbc_table(self.target, "any")) as connection:
            end = time.monotonic() + 10
            while not connection.number(_RUNNING[self.target.kind]) and time.monotonic() < end:
                pass
            return self._kill_server(self.target)

    def stop(self) -> None:
        """End the job and go-tpc."""
        for process in (self.job, self.tool):
            if process is not None and process.poll() is None:
                _kill_tree(process.pid)
                process.wait()
        self.job = self.tool = None

    # -- the end -----------------------------------------------------------------------------------

    def wait_for_copy(self) -> None:
        """Wait until a micro-batch with the last records of all topics is committed."""
        expected = ends(self.servers, self.topics)
        before, since = {}, time.monotonic()
        while (reached := committed(self.folder / "checkpoint")) != expected:
            self.watch(0)
            if reached != before:
                before, since = reached, time.monotonic()
            if time.monotonic() > since + _PATIENCE:
                raise SystemExit(f"the copy stays at {reached}, before {expected}")
            time.sleep(1)


def _reason(log: str) -> str:
    lines = [line for line in log.splitlines() if "Exception" in line or "Error" in line]
    return lines[-1][:300] if lines else "no error in its log"


def _kill_tree(number: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(number)
        for each in (*process.children(recursive=True), process):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        return True
    return False


def committed(checkpoint: Path) -> dict[str, int]:
    """Return the end offsets of the last committed micro-batch, by topic of one partition."""
    commits = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    if not commits:
        return {}
    log = (checkpoint / "offsets" / str(max(commits))).read_text()
    return {topic: each["0"] for topic, each in json.loads(log.splitlines()[-1]).items()}


def live(options: argparse.Namespace) -> Outcome:
    """Run and kill everything, and compare the copy; exit with an error if it is wrong."""
    # The job is a process of its own, and must end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    packages = list(dict.fromkeys(("delta", options.database, options.into)))
    folder = Path(tempfile.mkdtemp(prefix="tpcc-live-"))
    with ExitStack() as stack:
        spark = local_session(packages=packages, **{"spark.sql.session.timeZone": "UTC"})
        stack.callback(spark.stop)
        running = Live(spark, options, folder, stack)
        prepare(spark, running.source, options.warehouses)
        rows = sum(row_count(spark, running.source, table.name) for table in TABLES)
        running.connect = stack.enter_context(Connect(running.source, running.servers))
        wait_for(running.servers, running.connect, running.source, rows)
        say(f"snapshot: {rows:,} records in Kafka")
        running.start_job()
        _wait_until(lambda: committed(folder / "checkpoint"), running, "the first micro-batch")
        _kill_in_turn(running)
        execute(spark, running.source, f"INSERT INTO {END} VALUES (1)")
        wait_for(running.servers, running.connect, running.source, 1, [END])
        changes = sum(ends(running.servers, running.topics).values()) - rows
        say(f"{changes:,} records after the snapshot; waiting for the copy")
        running.wait_for_copy()
        running.stop()
        outcome = compared(spark, running)
    if not options.by_hand:
        say(compared_meanwhile(folder, rows + changes))
    say(f"go-tpc check of the source: {outcome.source}")
    if running.ended:
        say(f"ended by itself: {len(running.ended)} times")
    say(f"{'by hand' if options.by_hand else 'sync_database'}: {outcome.sentence}")
    if outcome.sentence.startswith("WRONG"):
        raise SystemExit(f"the copy is wrong; it is kept in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


def compared_meanwhile(folder: Path, records: int) -> str:
    """Say what the micro-batches took, and what the job's own comparison took and told.

    Parameters
    ----------
    folder : Path
        The run's folder.
    records : int
        All that the job has read.
    """
    lines = (folder / "seconds.jsonl").read_text().splitlines()
    batches = [json.loads(line) for line in lines]
    seconds, compared = (sum(each[name] for each in batches) for name in ("all", "compared"))
    passed = batches[-1]["at"] - batches[0]["at"] + batches[0]["all"]
    alarms = (folder / "warnings.log").read_text().count(" rows differ from ")
    files = sorted((folder / "schemas").glob("*.json"))
    facts = {file.stem: json.loads(file.read_text()).get("facts", {}) for file in files}
    proofs = {name: each["verified"] for name, each in facts.items() if each.get("verified")}
    shown = [
        f"{name}: {each['rows']:,} rows at {each['at']}, {each['different']} different, "
        f"{each['unsettled']} not known"
        for name, each in proofs.items()
        if each["at"]
    ]
    return "\n  ".join(
        [
            f"{records:,} records in {seconds:.0f} s of {len(batches)} micro-batches: "
            f"{records / max(seconds - compared, 1):,.0f}/s without the comparison, "
            f"{records / max(seconds, 1):,.0f}/s with it",
            f"compared for {compared:.1f} s, {compared / max(passed, 1):.1%} of {passed:.0f} s; "
            f"{alarms} alarms",
            *shown,
        ]
    )


def _wait_until(done: Callable[[], Any], running: Live, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not done():
        running.watch(0)
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} has not come after {_PATIENCE} s")
        time.sleep(0.5)


def _kill_in_turn(running: Live) -> None:
    options = running.options
    end = time.monotonic() + options.live_minutes * 60
    running.start_tool(options.live_minutes * 60)
    kinds, following = cycle(options.kill), time.monotonic() + options.every
    while (left := end - time.monotonic()) > 0:
        if time.monotonic() >= following and not sum(running.kills.values()) == options.kills > 0:
            kind = next(kinds)
            running.kill(kind)
            say(
                f"killed the {kind}; micro-batches committed: "
                f"{len(list((running.folder / 'checkpoint' / 'commits').glob('[0-9]*')))}"
            )
            following = time.monotonic() + options.every
        running.watch(left)
        time.sleep(0.5)
    assert running.tool is not None
    with suppress(subprocess.TimeoutExpired):
        running.tool.wait(30)
    if running.tool.poll() is None:
        _kill_tree(running.tool.pid)
        running.tool.wait()


def compared(spark: Any, running: Live) -> Outcome:
    """Compare the copy with the source, after the last record is applied."""
    equal: dict[str, bool | None] = {}
    source = running.source
    for table in TABLES:
        server = running.target
        target: Any = DeltaTarget(f"{running.folder}/lake/{table.name}")
        if server is not None:
            target = jdbc_table(server, table.name)
        name = f"public.{table.name}" if running.options.database == "postgresql" else table.name
        of_source = JdbcSource(table=name, **login(source))
        result = verify_table(spark, of_source, target, max_lag_seconds=0)
        equal[table.name] = result.equal
        rows = source_rows(spark, server, table.name) if server else spark.table(target.sql_name)
        rows.createOrReplaceTempView(table.name)
        if not result.equal:
            say(str(result))
    return Outcome(
        running.kills,
        equal,
        violations(lambda query: spark.sql(query).collect()),
        check_source(source, running.options.warehouses),
    )
