"""A real schema registry for the tests: Apicurio in memory, with its Confluent-compatible API.

::

    with LocalRegistry() as registry:
        get_format("debezium-avro-confluent", url=registry.url)

``python -m tests.support.servers.local_registry --fetch`` downloads it (140 MB, once, into the user's cache folder) with PySpark's Ivy, as
`normalize.local_kafka` downloads Kafka. It starts in about ten seconds and ends with the process that started it.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from xml.sax.saxutils import quoteattr

from normalize import local_kafka

VERSION = "2.5.11.Final"
START_TIMEOUT = 120.0  # seconds

IVY_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class LocalRegistry:
    """An empty registry on a free port of 127.0.0.1."""

    def __enter__(self) -> LocalRegistry:
        home = registry_home()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._scratch = tempfile.mkdtemp(prefix="local-registry-")
        self._log = Path(self._scratch) / "registry.log"
        # The quick compiler is fast enough for a few hundred requests.
        java = [local_kafka.find_java(), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        quarkus = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
        jar = str(home / f"apicurio-registry-app-{VERSION}-runner.jar")
        # The guard of local_kafka ends the server when this process ends for any reason.
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", self._scratch]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*guard, *java, *quarkus, "-jar", jar], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=home
            )
        self._wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=30)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the registry did not start; its log:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def registry_home() -> Path:
    """Return the registry's folder; download the registry if it is not in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-kafka-changelog"
    home = cache / f"apicurio-{VERSION}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        print(f"Fetching Apicurio Registry {VERSION} (140 MB, once) into {home}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as work:
            _fetch(Path(work))
            # Renamed when complete, so that a partial download is never used.
            (Path(work) / "home").rename(home)
    return home


def _fetch(work: Path) -> None:
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f"root={quoteattr(repository)}" if repository else ""
    (work / "settings.xml").write_text(local_kafka.IVY_SETTINGS.format(root=root))
    (work / "ivy.xml").write_text(IVY_MODULE)
    files = ["-settings", f"{work}/settings.xml", "-ivy", f"{work}/ivy.xml", "-cache", f"{work}/cache"]
    ivy = [local_kafka.find_java(), "-jar", str(local_kafka.find_ivy())]
    done = subprocess.run([*ivy, *files, "-retrieve", f"{work}/[artifact].[ext]"], capture_output=True, text=True)
    archives = list(work.glob("*.tar.gz"))
    if done.returncode != 0 or not archives:
        raise RuntimeError(f"cannot fetch Apicurio Registry {VERSION}:\n{(done.stdout + done.stderr)[-2000:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(work / "home", filter="data")


def main(arguments: list[str]) -> None:
    """Download the registry, or run it until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run a schema registry.")
    parser.add_argument("--fetch", action="store_true", help="download it, if it is not in the cache, and exit")
    if parser.parse_args(arguments).fetch:
        registry_home()
        return
    with LocalRegistry() as registry:
        print(registry.url, flush=True)
        time.sleep(10**6)


if __name__ == "__main__":
    main(sys.argv[1:])
