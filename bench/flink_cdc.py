"""Flink CDC's MySQL connector on the table of the capture's benchmark: the peer that the capture is measured against.

``INSERT INTO counted SELECT * FROM source`` in a process of its own, into a sink that counts (`CaptureCount.java`), with checkpoints as in
`bench.flink`. The connector and MySQL's driver, which it does not bring, come from where Flink does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

import msgspec

from normalize import local_kafka

from .capture_runs import Job, Run
from .capture_source import Source
from .flink import _OPENED, HEAP, OPTIONS

FLINK_VERSION = "1.20.3"  # the last that the connector is made for
CDC_VERSION = "3.5.0"
DRIVER_VERSION = "8.0.33"
_WHOLE = ("flink-clients", "flink-table-api-java-bridge")
_SINGLE = ("flink-cep", "flink-connector-base", "flink-json", "flink-table-planner-loader", "flink-table-runtime")
COLUMNS = (
    "id BIGINT, quantity INT, customer STRING, price DECIMAL(12, 2), created_at TIMESTAMP(6), updated_at TIMESTAMP_LTZ(0), "
    "weight DOUBLE, note STRING"
)


class _Found(msgspec.Struct):
    """What `CaptureCount` prints of a job."""

    start_ms: int
    running_ms: int
    points: list[tuple[int, int]]
    counts: dict[str, tuple[int, int, int]]


def run_flink_cdc(source: Source, jobs: list[Job], parallelism: int) -> list[Run]:
    """Run jobs one after the other in a Flink that is started for them.

    Raises
    ------
    RuntimeError
        When Flink cannot be fetched or compiled, or a job fails; with the end of what it says.
    """
    java, path = local_kafka._find_java(), f"{_jars()}/*"
    with tempfile.TemporaryDirectory(prefix="bench-capture-") as name:
        work = Path(name)
        # In a file, since the password is in it.
        (work / "jobs").write_text("\n".join(f"{job.rows}\t{source_table(source, job)}" for job in jobs))
        # A changelog as it comes: with duplicates to expect, Flink would keep all rows in a state.
        options = OPTIONS | {"table.exec.source.cdc-events-duplicate": "false"}
        options |= {"parallelism.default": str(parallelism), "io.tmp.dirs": f"{work}/tmp"}
        arguments = [f"{work}/checkpoints", f"{work}/jobs", COLUMNS, *(f"{option}={value}" for option, value in options.items())]
        command = [java, f"-Xmx{HEAP}", *_OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        classes = _compiled(Path(java), path, work / "classes")
        said = _said([*command, "-cp", f"{classes}:{path}", "CaptureCount", *arguments], work / "log")
        return [_run(msgspec.json.decode(line, type=_Found)) for line in said.splitlines()]


def _run(found: _Found) -> Run:
    return Run(found.start_ms, (found.running_ms, 0), found.points, found.counts)


def _said(command: list[str], log: Path) -> bytes:
    """Run a command that ends with this process, whatever ends that."""
    guard = [sys.executable, "-I", local_kafka.__file__, "--guard", ""]
    with log.open("wb") as file:
        done = subprocess.Popen([*guard, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
    assert done.stdout is not None
    try:
        said = done.stdout.read()
        if done.wait() != 0:
            raise RuntimeError(f"Flink failed; the end of what it says:\n{log.read_text(errors='replace')[-5000:]}")
        return said
    finally:
        done.terminate()
        done.wait()


def source_table(source: Source, job: Job) -> str:
    """Return the DDL of the table ``source``, on one line."""
    zone = source.run("SELECT IF(@@global.time_zone = 'SYSTEM', @@system_time_zone, @@global.time_zone)")[0][0]
    settings = {"connector": "mysql-cdc", "server-time-zone": zone, "jdbc.properties.useSSL": "false"}
    settings |= {"jdbc.properties.allowPublicKeyRetrieval": "true"}
    options = source.reader(job.table, **settings, **job.startup)
    listed = ", ".join("'{}' = '{}'".format(name, value.replace("'", "''")) for name, value in options.items())
    return f"CREATE TABLE source ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({listed})"


def _jars() -> Path:
    """Return the folder of Flink's jars, the connector's and the driver's, fetched if the user's cache has none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-kafka-changelog"
    jars = cache / f"flink-cdc-{CDC_VERSION}"
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        print(f"Fetching Flink CDC {CDC_VERSION} and Flink {FLINK_VERSION} (once) into {jars}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as work:
            # Renamed when whole, so that a half download is never taken for it.
            _fetch(Path(work)).rename(jars)
    return jars


def _fetch(work: Path) -> Path:
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f"root={quoteattr(repository)}" if repository else ""
    (work / "settings.xml").write_text(local_kafka.IVY_SETTINGS.format(root=root))
    (work / "ivy.xml").write_text(_ivy_module())
    files = ["-settings", f"{work}/settings.xml", "-ivy", f"{work}/ivy.xml", "-cache", f"{work}/cache"]
    ivy = [local_kafka._find_java(), "-jar", str(local_kafka._find_ivy())]
    pattern = f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"
    done = subprocess.run([*ivy, *files, "-retrieve", pattern], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cannot fetch Flink CDC {CDC_VERSION}:\n{(done.stdout + done.stderr)[-2000:]}")
    return work / "jars"


def _ivy_module() -> str:
    """Return what Ivy is to fetch; the driver too, which the connector does not bring."""
    flink = [("org.apache.flink", name, FLINK_VERSION, name in _WHOLE) for name in (*_WHOLE, *_SINGLE)]
    others = [
        ("org.apache.flink", "flink-sql-connector-mysql-cdc", CDC_VERSION, False),
        ("com.mysql", "mysql-connector-j", DRIVER_VERSION, False),
        ("org.slf4j", "slf4j-simple", "1.7.36", True),
    ]
    wanted = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default" transitive="{str(transitive).lower()}"/>'
        for organisation, name, version, transitive in flink + others
    )
    return f'<ivy-module version="2.0"><info organisation="local" module="flink-cdc"/><dependencies>{wanted}</dependencies></ivy-module>'


def _compiled(java: Path, path: str, classes: Path) -> Path:
    """Compile the sink, and announce it as Flink looks for connectors."""
    javac = shutil.which("javac", path=str(java.parent)) if java.parent != Path() else shutil.which("javac")
    if javac is None:
        raise RuntimeError(f"no javac beside {java}: a JDK is needed, not a JRE alone: sudo apt install openjdk-17-jdk-headless")
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.flink.table.factories.Factory").write_text("CaptureCount$Factory\n")
    source = Path(__file__).with_name("CaptureCount.java")
    done = subprocess.run([javac, "-nowarn", "-d", classes, "-cp", path, source], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cannot compile {source.name}:\n{done.stdout}{done.stderr}")
    return classes
