"""Runs Apache Flink on the benchmark's topic, to compare this library with it.

``INSERT INTO counted SELECT * FROM source`` with ChangelogNormalize in the plan, into a sink that
requests all four row kinds (`KindCount.java`). One process with a cluster of one task manager;
parallelism 2; checkpoints every 2 s to local disk.

The sink sees rows and not messages. The measured part of a run therefore begins when the sink has
received as many rows as this library had written at the same message.

PySpark's Ivy downloads the jars from Maven Central, or from the repository in
``DEFAULT_ARTIFACT_REPOSITORY``, as `normalize.local_kafka` downloads Kafka. This module compiles
the sink with the JDK's javac.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from normalize import local_kafka

from .cpu import CpuWatch
from .history import SCHEMA

FLINK_VERSION = "2.2.1"
CONNECTOR_VERSION = "5.0.0-2.2"
HEAP = "4g"

OPTIONS = {
    "parallelism.default": "2",
    "table.exec.source.cdc-events-duplicate": "true",
    "execution.checkpointing.interval": "2 s",
    "restart-strategy.type": "none",
    "rest.port": "0",
    "rest.bind-port": "0",
    "taskmanager.memory.managed.size": "1g",
}
STATES = {
    "heap": {"state.backend.type": "hashmap"},
    "rocksdb": {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
}

# The packages that Flink's configuration opens on Java 17.
_PACKAGES = (
    "lang",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (*(f"java.{name}" for name in _PACKAGES), "sun.nio.ch")
]

_WHOLE = ("flink-clients", "flink-statebackend-rocksdb", "flink-table-api-java-bridge")
_SINGLE = (
    "flink-cep",
    "flink-connector-base",
    "flink-json",
    "flink-table-planner-loader",
    "flink-table-runtime",
)


class Run(msgspec.Struct):
    """A run of the job.

    Attributes
    ----------
    running_ms, begin_ms, end_ms : int
        When all tasks were running, when the measured part began, and when the job was finished:
        milliseconds since 1970-01-01 UTC.
    checkpoints : int
        Completed checkpoints.
    rows, ids : dict
        Rows, and the sum of their ids, by row kind.
    cpu : dict
        CPU seconds of the measured part, by process.
    """

    running_ms: int
    begin_ms: int
    end_ms: int
    checkpoints: int
    rows: dict[str, int]
    ids: dict[str, int]
    cpu: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """The seconds of the measured part."""
        return (self.end_ms - self.begin_ms) / 1000


def run_flink(
    format: str, state: str, servers: str, topic: str, *, left_out: int, runs: int, warm_up: int
) -> Iterator[Run]:
    """Run the job in a new process, and yield each run when it is finished.

    Parameters
    ----------
    format : str
        Flink's identifier, which is also this library's.
    state : {"heap", "rocksdb"}
    servers, topic : str
    left_out : int
        The rows at the sink with which the measured part begins. 0: it begins when all tasks are
        running.
    runs : int
    warm_up : int
        Runs before them that are not yielded.

    Raises
    ------
    RuntimeError
        When Flink cannot be downloaded, the sink cannot be compiled, or the job fails; with the end
        of the log.
    """
    jars, java = flink_jars(), local_kafka.find_java()
    with tempfile.TemporaryDirectory(prefix="bench-flink-") as name:
        work = Path(name)
        classes = compiled(Path(java), "KindCount", jars, work / "classes")
        options = [
            f"{option}={value}"
            for option, value in {**OPTIONS, **STATES[state], "io.tmp.dirs": f"{work}/tmp"}.items()
        ]
        job = [
            str(work / "checkpoints"),
            str(warm_up + runs),
            source_table(format, servers, topic),
            _flink_columns(),
            str(left_out),
        ]
        command = [java, f"-Xmx{HEAP}", *_OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        # The guard of local_kafka ends Flink when this process ends for any reason.
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", ""]
        log = work / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*guard, *command, "-cp", f"{classes}:{jars}/*", "KindCount", *job, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            with CpuWatch() as watch:
                for number, line in enumerate(process.stdout):
                    run = msgspec.json.decode(line, type=Run)
                    run.cpu = watch.spent_since(run.begin_ms / 1000)
                    if number >= warm_up:
                        yield run
            if process.wait() != 0:
                raise RuntimeError(
                    f"Flink failed; the end of its log:\n{log.read_text(errors='replace')[-5000:]}"
                )
        finally:
            process.terminate()
            process.wait()


def source_table(format: str, servers: str, topic: str) -> str:
    """Return the DDL of the table ``source``: the topic from its beginning to its current end."""
    upsert = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
    kafka = {"connector": "kafka", "format": format, "scan.startup.mode": "earliest-offset"}
    where = {
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "scan.bounded.mode": "latest-offset",
    }
    options = {**(upsert if format == "upsert-kafka" else kafka), **where}
    return (
        f"CREATE TABLE source ({_flink_columns()}, PRIMARY KEY (id) NOT ENFORCED) WITH "
        f"({_options(options)})"
    )


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def _flink_columns() -> str:
    return SCHEMA.replace("TIMESTAMP_NTZ", "TIMESTAMP")


def compiled(java: Path, sink: str, jars: Path, classes: Path) -> Path:
    """Compile a sink, register it for Flink's connector lookup, and return its classes' folder.

    Parameters
    ----------
    java : Path
        The program, next to which javac is, or its bare name.
    sink : str
        The class, which contains a class ``Factory``.
    jars, classes : Path
        The folder of Flink's jars, and a new folder for the compiled classes.
    """
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.flink.table.factories.Factory").write_text(f"{sink}$Factory\n")
    return compiled_class(java, sink, jars, classes)


def compiled_class(java: Path, name: str, jars: Path, classes: Path) -> Path:
    """Compile a class of this folder; as in `compiled`, but nothing is registered."""
    javac = (
        shutil.which("javac", path=str(java.parent))
        if java.parent != Path()
        else shutil.which("javac")
    )
    if javac is None:
        raise RuntimeError(
            f"no javac next to {java}: a JDK is required, not only a JRE: sudo apt install "
            "openjdk-17-jdk-headless"
        )
    source = Path(__file__).with_name(f"{name}.java")
    done = subprocess.run(
        [javac, "-nowarn", "-d", classes, "-cp", f"{jars}/*", source],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"cannot compile {source.name}:\n{done.stdout}{done.stderr}")
    return classes


def flink_jars() -> Path:
    """Return the folder of Flink's jars; download them if they are not in the user's cache."""
    return local_kafka.fetch_jars(
        f"flink-{FLINK_VERSION}",
        _ivy_module(),
        f"Flink {FLINK_VERSION}",
        "about 50 jars, 190 MB, once",
    )


def _ivy_module() -> str:
    """Return the Ivy module of the jars; jars that include dependencies are not transitive."""

    def needs(
        name: str, version: str, transitive: bool, organisation: str = "org.apache.flink"
    ) -> str:
        follow = str(transitive).lower()
        return (
            f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default" '
            f'transitive="{follow}"/>'
        )

    jars = [needs(name, FLINK_VERSION, True) for name in _WHOLE] + [
        needs(name, FLINK_VERSION, False) for name in _SINGLE
    ]
    jars += [
        needs("flink-sql-connector-kafka", CONNECTOR_VERSION, False),
        needs("slf4j-simple", "1.7.36", True, "org.slf4j"),
    ]
    info = '<info organisation="local" module="flink"/>'
    return (
        f'<ivy-module version="2.0">{info}<dependencies>{"".join(jars)}</dependencies></ivy-module>'
    )
