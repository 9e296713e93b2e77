"""A real schema registry for the tests: Apicurio in memory, with its Confluent-compatible API.

::

    with LocalRegistry() as registry:
        get_format("debezium-avro-confluent", url=registry.url)

PySpark's Ivy downloads it (140 MB, once, into the user's cache folder), as `normalize.local_kafka`
downloads Kafka. It starts in about ten seconds and ends with the process that started it.
"""

from __future__ import annotations

import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from normalize import local_kafka
from tests.support.servers.processes import LocalServer, home_of

VERSION = "2.5.11.Final"
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


class LocalRegistry(LocalServer):
    """An empty registry on a free port of 127.0.0.1."""

    def __enter__(self) -> LocalRegistry:
        home = registry_home()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        # The quick compiler is fast enough for a few hundred requests.
        java = [local_kafka.find_java(), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        quarkus = [f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1"]
        self._start(
            [*java, *quarkus, "-jar", str(home / f"apicurio-registry-app-{VERSION}-runner.jar")],
            cwd=home,
        )
        self._wait(self._answers)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def registry_home() -> Path:
    """Return the registry's folder; fetch it if the user's cache does not have it."""
    return home_of(f"apicurio-{VERSION}", IVY_MODULE, _unpack)


def _unpack(file: Path, home: Path) -> None:
    with tarfile.open(file) as archive:
        archive.extractall(home, filter="data")
