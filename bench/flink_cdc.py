"""Runs Flink CDC's MySQL connector on the table of the capture benchmark, for comparison.

A separate process runs ``INSERT INTO counted SELECT * FROM source`` into a counting sink
(`CaptureCount.java`), with checkpoints as in `bench.flink`. The connector does not include MySQL's
driver. Both come from the same repository as Flink.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from normalize import local_kafka

from .capture_runs import Job, Run
from .capture_source import Source
from .flink import _OPENED, HEAP, OPTIONS, compiled

FLINK_VERSION = "1.20.5"  # the latest version that the connector supports
CDC_VERSION = "3.5.0"
DRIVER_VERSION = "8.0.33"
_WHOLE = ("flink-clients", "flink-table-api-java-bridge")
_SINGLE = (
    "flink-cep",
    "flink-connector-base",
    "flink-json",
    "flink-table-planner-loader",
    "flink-table-runtime",
)
COLUMNS = (
    "id BIGINT, quantity INT, customer STRING, price DECIMAL(12, 2), created_at TIMESTAMP(6), "
    "updated_at TIMESTAMP_LTZ(0), weight DOUBLE, note STRING"
)


class _Counted(msgspec.Struct):
    """The line that `CaptureCount` prints for a job."""

    start_ms: int
    running_ms: int
    points: list[tuple[int, int]]
    counts: dict[str, tuple[int, int, int]]


def run_flink_cdc(source: Source, jobs: list[Job], parallelism: int) -> list[Run]:
    """Run jobs one after the other in a new Flink process.

    Raises
    ------
    RuntimeError
        If Flink cannot be fetched or compiled, or a job fails; with the end of Flink's output.
    """
    java = local_kafka.find_java()
    jars = local_kafka.fetch_jars(
        f"flink-cdc-{CDC_VERSION}",
        ivy_module(),
        f"Flink CDC {CDC_VERSION} and Flink {FLINK_VERSION}",
        "once",
    )
    with tempfile.TemporaryDirectory(prefix="bench-capture-") as name:
        work = Path(name)
        # In a file, because the text contains the password.
        (work / "jobs").write_text(
            "\n".join(f"{job.rows}\t{source_table(source, job)}" for job in jobs)
        )
        # The changelog passes unchanged: if Flink expected duplicates, it would keep all rows in
        # its state.
        options = OPTIONS | {"table.exec.source.cdc-events-duplicate": "false"}
        options |= {"parallelism.default": str(parallelism), "io.tmp.dirs": f"{work}/tmp"}
        arguments = [
            f"{work}/checkpoints",
            f"{work}/jobs",
            COLUMNS,
            *(f"{option}={value}" for option, value in options.items()),
        ]
        command = [java, f"-Xmx{HEAP}", *_OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        classes = compiled(Path(java), "CaptureCount", jars, work / "classes")
        output = _output_of(
            [*command, "-cp", f"{classes}:{jars}/*", "CaptureCount", *arguments], work / "log"
        )
        return [_run(msgspec.json.decode(line, type=_Counted)) for line in output.splitlines()]


def _run(counted: _Counted) -> Run:
    return Run(counted.start_ms, (counted.running_ms, 0), counted.points, counted.counts)


def _output_of(command: list[str], log: Path) -> bytes:
    """Return the output of a command; the command is killed if this process ends."""
    guard = [sys.executable, "-I", local_kafka.__file__, "--guard", ""]
    with log.open("wb") as file:
        done = subprocess.Popen(
            [*guard, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
        )
    assert done.stdout is not None
    try:
        output = done.stdout.read()
        if done.wait() != 0:
            raise RuntimeError(
                f"Flink failed; the end of its output:\n{log.read_text(errors='replace')[-5000:]}"
            )
        return output
    finally:
        done.terminate()
        done.wait()


def source_table(source: Source, job: Job) -> str:
    """Return the DDL of the table ``source``, on one line."""
    zone = source.run(
        "SELECT IF(@@global.time_zone = 'SYSTEM', @@system_time_zone, @@global.time_zone)"
    )[0][0]
    settings = {
        "connector": "mysql-cdc",
        "server-time-zone": zone,
        "jdbc.properties.useSSL": "false",
    }
    settings |= {"jdbc.properties.allowPublicKeyRetrieval": "true"}
    options = source.reader(job.table, **settings, **job.startup)
    listed = ", ".join(
        "'{}' = '{}'".format(name, value.replace("'", "''")) for name, value in options.items()
    )
    return f"CREATE TABLE source ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({listed})"


def ivy_module() -> str:
    """Return the Ivy module with all dependencies; the connector does not include the driver."""
    flink = [
        ("org.apache.flink", name, FLINK_VERSION, name in _WHOLE) for name in (*_WHOLE, *_SINGLE)
    ]
    other_modules = [
        ("org.apache.flink", "flink-sql-connector-mysql-cdc", CDC_VERSION, False),
        ("com.mysql", "mysql-connector-j", DRIVER_VERSION, False),
        ("org.slf4j", "slf4j-simple", "1.7.36", True),
    ]
    dependencies = "".join(
        (
            f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default" '
            f'transitive="{str(transitive).lower()}"/>'
        )
        for organisation, name, version, transitive in flink + other_modules
    )
    return (
        '<ivy-module version="2.0"><info organisation="local" '
        f'module="flink-cdc"/><dependencies>{dependencies}</dependencies></ivy-module>'
    )
