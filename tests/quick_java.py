"""Options for the tests' JVMs, which live for seconds: most of their work would be to load, verify and compile classes.

`spark_packages` archives the classes that a Spark and a Kafka load (Java's AppCDS) in this environment's folder. Where there is no archive,
or it is not of this Java and these jars, a JVM loads its classes from the jars.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

from normalize.local_kafka import KAFKA_VERSION

# No compiling for long runs, which would take more of the two cores than it gives back; nothing said of archives that do not fit.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
VARIABLES = {"SPARK_SUBMIT_OPTS": "spark", "KAFKA_JVM_PERFORMANCE_OPTS": "kafka"}


def archive(name: str) -> Path:
    """Return where the classes of a Spark or a Kafka are, for the Java that both would take."""
    home = os.environ.get("JAVA_HOME")
    java = Path(shutil.which(os.path.join(home, "bin", "java") if home else "java") or "java").resolve()
    built = java.stat().st_mtime_ns if java.exists() else 0
    key = zlib.crc32(f"{java} {built} {version('pyspark')} {KAFKA_VERSION}".encode())
    return Path(sys.prefix, f"{name}-classes-{key:08x}.jsa")


def options() -> dict[str, str]:
    """Return the environment of quick JVMs."""
    return {variable: _option("SharedArchiveFile", archive(name), archive(name).exists()) for variable, name in VARIABLES.items()}


def archiving() -> dict[str, str]:
    """Return the environment of JVMs that write their archives when they end, each beside its place."""
    return {variable: _option("ArchiveClassesAtExit", unfinished(name), True) for variable, name in VARIABLES.items()}


def unfinished(name: str) -> Path:
    """Return where an archive is written; it is moved when it is whole, as Java dies of one that is cut short."""
    return archive(name).with_suffix(".part")


def _option(option: str, path: Path, given: bool) -> str:
    return f"{QUICK} -XX:{option}={shlex.quote(str(path))}" if given else QUICK
