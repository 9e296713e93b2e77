"""Print which pinned versions are behind those that Maven Central and the package index serve.

    python -m tools.versions

PySpark's Ivy looks up Java packages, and pip the Python packages of this environment. An image of
``compose.yaml`` is compared with a Java package of the same release. The images without one are
listed as not checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from bench import flink, flink_cdc
from normalize.local_kafka import IVY_SETTINGS, KAFKA_VERSION, find_ivy, find_java
from normalize.spark_versions import KINDS, has_package, package

REPOSITORY = Path(__file__).parent.parent
SPARK_VERSIONS = ("4.0", "4.1", "4.2")
NEWEST = "latest.release"
_OF_SPARK, _OF_FLINK = "org.apache.spark:spark", "org.apache.flink:flink"
OF_IMAGES = {
    "apache/kafka": ("org.apache.kafka:kafka_2.13", NEWEST),
    "quay.io/debezium/connect": ("io.debezium:debezium-connector-mysql", NEWEST),
    # The release line of the converters in Debezium's image.
    "apicurio/apicurio-registry-mem": ("io.apicurio:apicurio-registry-client", "2.6.+"),
}
"""For images, the Java package of the same release, and the release line to follow."""


@dataclass(frozen=True)
class Pin:
    """A pinned version of a Java package.

    Parameters
    ----------
    package : str
        ``group:artifact``.
    version : str
    file : str
        Where it is pinned.
    line : str
        The release line to follow, as Ivy writes it: ``4.1.+``.
    """

    package: str
    version: str
    file: str
    line: str = NEWEST


def pins() -> list[Pin]:
    """Return the pinned versions."""
    return list(dict.fromkeys(_pins()))


def _pins() -> Iterator[Pin]:
    versions = "normalize/spark_versions.py"
    for spark in SPARK_VERSIONS:
        # Fewer releases of it are published than of the Kafka source, which needs it.
        kafka = package("kafka", spark).rpartition(":")[2]
        yield Pin(f"{_OF_SPARK}-token-provider-kafka-0-10_2.13", kafka, versions, f"{spark}.+")
        for kind in (each for each in KINDS if has_package(each, spark)):
            name, _, version = package(kind, spark).rpartition(":")
            yield Pin(name, version, versions)
    yield Pin("org.apache.kafka:kafka_2.13", KAFKA_VERSION, "normalize/local_kafka.py")
    # The line of the Kafka connector for Flink.
    line = f"{flink.CONNECTOR_VERSION.rpartition('-')[2]}.+"
    yield Pin(f"{_OF_FLINK}-clients", flink.FLINK_VERSION, "bench/flink.py", line)
    yield Pin(f"{_OF_FLINK}-sql-connector-kafka", flink.CONNECTOR_VERSION, "bench/flink.py")
    yield Pin(f"{_OF_FLINK}-sql-connector-mysql-cdc", flink_cdc.CDC_VERSION, "bench/flink_cdc.py")
    yield Pin(f"{_OF_FLINK}-clients", flink_cdc.FLINK_VERSION, "bench/flink_cdc.py", "1.20.+")
    for image, tag in images().items():
        if image in OF_IMAGES:
            name, line = OF_IMAGES[image]
            yield Pin(name, tag, "compose.yaml", line)


def images() -> dict[str, str]:
    """Return the tags of the images of ``compose.yaml``."""
    text = (REPOSITORY / "compose.yaml").read_text("utf-8")
    return dict(re.findall(r"^\s*image: (\S+):(\S+)$", text, re.M))


def served(wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the newest version of each package in a release line; Ivy downloads no jar."""
    newest = {}
    # Ivy resolves one version of a package at a time.
    rounds: list[dict[str, str]] = []
    for name, line in dict.fromkeys(wanted):
        free = next((each for each in rounds if name not in each), None)
        if free is None:
            rounds.append(free := {})
        free[name] = line
    for lines in rounds:
        newest |= {(name, lines[name]): version for name, version in _resolved(lines).items()}
    return newest


def _resolved(lines: Mapping[str, str]) -> dict[str, str]:
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default" transitive="false"/>'.format(
            *name.split(":"), line
        )
        for name, line in lines.items()
    )
    with tempfile.TemporaryDirectory() as work:
        module, settings = Path(work, "ivy.xml"), Path(work, "settings.xml")
        module.write_text(
            '<ivy-module version="2.0"><info organisation="local" module="versions"/>'
            f"<dependencies>{dependencies}</dependencies></ivy-module>"
        )
        settings.write_text(IVY_SETTINGS.format(root=""))
        command = [find_java(), "-jar", str(find_ivy()), "-settings", str(settings)]
        command += ["-ivy", str(module), "-cache", f"{work}/cache", "-types", "none"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return newest(done.stdout)


def newest(output: str) -> dict[str, str]:
    """Return the version that Ivy chose for each package, from what it prints."""
    chosen = re.findall(r"^\s*\[(\S+)\] (\S+)#(\S+);", output, re.M)
    return {f"{group}:{artifact}": version for version, group, artifact in chosen}


def behind(
    pinned: Iterable[Pin], served: Mapping[tuple[str, str], str]
) -> Iterator[tuple[Pin, str]]:
    """Yield the pins whose line has another version, and that version; empty if there is none."""
    for pin in pinned:
        version = served.get((pin.package, pin.line), "")
        if version != pin.version:
            yield pin, version


def requirements() -> dict[str, Requirement]:
    """Return the requirements of ``setup.cfg``, by the name of the package."""
    setup = ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", "utf-8")
    texts = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    lines = (line.strip() for text in texts for line in text.splitlines())
    each = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {requirement.name.lower(): requirement for requirement in each}


def outdated() -> list[dict[str, str]]:
    """Return the Python packages of this environment of which pip knows a newer version."""
    command = [sys.executable, "-m", "pip", "list", "--outdated", "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    packages: list[dict[str, str]] = json.loads(done.stdout)
    return packages


def main() -> None:
    """Print what is behind."""
    pinned = pins()
    found = served((pin.package, pin.line) for pin in pinned)
    for pin, version in behind(pinned, found):
        newer = version or "not found"
        line = "" if pin.line == NEWEST else f" (of {pin.line})"
        print(f"{pin.file}: {pin.package} {pin.version}, served {newer}{line}")
    bounds = requirements()
    for each in outdated():
        bound = bounds.get(each["name"].lower())
        if bound is not None and each["latest_version"] not in bound.specifier:
            print(f"setup.cfg: {bound}, served {each['latest_version']}")
    unchecked = [f"{image}:{tag}" for image, tag in images().items() if image not in OF_IMAGES]
    print(f"not checked: {', '.join(unchecked)}")


if __name__ == "__main__":
    main()
