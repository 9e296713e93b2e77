"""Java options that let the tests' JVMs start quickly.

Without them, loading and compiling classes would take most of the JVMs' time.

`spark_packages` archives the classes that Spark and Kafka load (Java's AppCDS) in this
environment's folder. Without an archive for this Java and these jars, a JVM loads its classes from
the jars.
"""

import os
import shlex
import shutil
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

from normalize.local_kafka import KAFKA_VERSION

# Only the quick compiler: the optimising one costs more CPU than it saves in short runs. No
# warnings about unusable archives. Room for the code of many tables: without the optimising
# compiler, Java reserves a fifth of its usual code cache.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xshare:auto "
    "-Xlog:cds=off -Xlog:cds+dynamic=off"
)
# Where Linux has huge pages for whoever asks, they save 6 % of the CPU of a virtual machine.
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
VARIABLES = {"SPARK_SUBMIT_OPTS": "spark", "KAFKA_JVM_PERFORMANCE_OPTS": "kafka"}


def archive(name: str) -> Path:
    """Return the path of the class archive of Spark or Kafka, for the Java that both would use."""
    home = os.environ.get("JAVA_HOME")
    java = Path(
        shutil.which(os.path.join(home, "bin", "java") if home else "java") or "java"
    ).resolve()
    built = java.stat().st_mtime_ns if java.exists() else 0
    key = zlib.crc32(f"{java} {built} {version('pyspark')} {KAFKA_VERSION}".encode())
    return Path(sys.prefix, f"{name}-classes-{key:08x}.jsa")


def options() -> dict[str, str]:
    """Return the environment variables that make JVMs start quickly."""
    return {
        variable: _option("SharedArchiveFile", archive(name), archive(name).exists())
        for variable, name in VARIABLES.items()
    }


def archiving() -> dict[str, str]:
    """Return environment variables that make JVMs write archives at exit to `unfinished` paths."""
    return {
        variable: _option("ArchiveClassesAtExit", unfinished(name), True)
        for variable, name in VARIABLES.items()
    }


def unfinished(name: str) -> Path:
    """Return the path that an archive is written to.

    The archive is renamed when complete, because Java crashes on a truncated archive.
    """
    return archive(name).with_suffix(".part")


def _option(option: str, path: Path, is_set: bool) -> str:
    # Other systems refuse the option, and Linux without huge pages warns.
    has_huge_pages = HUGE_PAGES.exists() and "[never]" not in HUGE_PAGES.read_text()
    quick = f"{QUICK} -XX:+UseTransparentHugePages" if has_huge_pages else QUICK
    return f"{quick} -XX:{option}={shlex.quote(str(path))}" if is_set else quick
