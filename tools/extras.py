"""Installs each small extra of the package alone, and runs what its page promises.

    python -m tools.extras      about a minute: a new environment for each, packages from pip's cache

A command whose packages are missing prints one sentence, with the ``pip install`` that it needs.
The extras with Spark (0.9 GB) are installed by ``make package`` and ``make stranger``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.package import REPOSITORY, environment

UNREACHABLE = ("-b", "127.0.0.1:1", "--timeout", "1")
CHECKPOINT = "checkpoint"
JOB = "job.yaml"


class Promise(NamedTuple):
    """A command, its exit code, and a part of what it prints."""

    command: Sequence[str]
    code: int
    text: str


def python(source: str, code: int, text: str) -> Promise:
    """Return the promise of a Python program."""
    return Promise(("python", "-c", source), code, text)


def install(extras: str) -> str:
    """Return the command that an error names."""
    return f"pip install 'pyspark-kafka-changelog[{extras}]'"


DECODE = (
    "from cdc_formats import get_format; "
    "print(get_format('maxwell-json').decoder('id INT').decode(None, "
    'b\'{"database":"d","table":"t","type":"insert","ts":1,"data":{"id":7}}\'))'
)
PROMISES: dict[str, Sequence[Promise]] = {
    "": (
        python(DECODE, 0, "row=(7,)"),
        python("from normalize import from_kafka_changelog", 1, install("spark")),
        python("from normalize import sync_database", 1, install("spark")),
        Promise(("python", "-m", "normalize.run", JOB), 1, install("run")),
        Promise(("cdc", "formats"), 1, install("cli")),
    ),
    "cli": (
        Promise(("cdc", "--help"), 0, "profile"),
        Promise(("cdc", "formats", "debezium-json"), 0, "decimal_handling_mode"),
        Promise(("cdc", "profile", "orders", *UNREACHABLE), 1, "[KAFKA_UNAVAILABLE]"),
        Promise(("cdc", "tail", "orders", *UNREACHABLE), 1, "[KAFKA_UNAVAILABLE]"),
        Promise(("cdc", "init", "orders", *UNREACHABLE), 1, "[KAFKA_UNAVAILABLE]"),
        Promise(("cdc", "status", CHECKPOINT), 0, "no micro-batch is done yet"),
        Promise(("cdc", "status", "s3://bucket/checkpoint"), 1, "pip install pyarrow"),
        Promise(("cdc", "run", JOB), 1, install("cli,run")),
        Promise(("cdc", "verify", "jdbc:mysql://db/s", "t", "/t"), 2, install("capture,cli,spark")),
    ),
    "kafka": (
        python(
            "from cdc_formats.topics.kafka import profile_topic as p; "
            "p('127.0.0.1:1', 't', timeout_seconds=1)",
            1,
            "[KAFKA_UNAVAILABLE]",
        ),
    ),
    "metrics": (
        python("from normalize.monitoring.metrics_listener import MetricsListener", 1, "No module"),
    ),
}


def broken(folder: Path, project: str) -> list[str]:
    """Return the promises that do not hold, each with what its command printed.

    Parameters
    ----------
    folder : Path
        An empty folder, for the environments.
    project : str
        The folder of the project, or its wheel.
    """
    (folder / CHECKPOINT).mkdir()
    (folder / CHECKPOINT / "metadata").write_text('{"id":"8b36b1e8-a182-433a-9c09-454b9c987c0f"}')
    (folder / JOB).write_text("topic: orders\n")
    failed = []
    for extras, promises in PROMISES.items():
        name = extras or "no extra"
        programs = environment(
            folder / name, sys.executable, f"{project}[{extras}]" if extras else project
        ).parent
        for promise in promises:
            done = _run(programs, promise.command, folder)
            printed = " ".join((done.stdout + done.stderr).split())
            if done.returncode != promise.code or promise.text not in printed:
                command = " ".join(promise.command)
                failed.append(f"{name}: `{command}` ended with {done.returncode}: {printed[-500:]}")
    return failed


def _run(programs: Path, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    return subprocess.run(
        [programs / program, *arguments],
        cwd=folder,
        env={"PATH": str(programs), "HOME": str(folder), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        problems = broken(Path(made), str(REPOSITORY))
    print("\n".join(problems) or "each extra does what its page promises")
    sys.exit(bool(problems))
