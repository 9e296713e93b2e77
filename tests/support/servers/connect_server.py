"""A Spark Connect server as a process of its own, as on a cluster: the client has no JVM that could help it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from normalize import local_kafka

START_TIMEOUT = 120.0  # seconds


class ConnectServer:
    """A Spark Connect server on a free port of 127.0.0.1.

    Parameters
    ----------
    settings : mapping
        Spark's settings.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings

    def __enter__(self) -> ConnectServer:
        import pyspark

        home = Path(pyspark.__file__).parent
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"sc://127.0.0.1:{self._port}"
        self._scratch = tempfile.mkdtemp(prefix="connect-server-")
        self._log = Path(self._scratch) / "server.log"
        settings = {**self._settings, "spark.connect.grpc.binding.port": self._port, "spark.connect.grpc.binding.address": "127.0.0.1"}
        submit = [f"{home}/bin/spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        # The guard of local_kafka ends the server when this process ends for any reason.
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", self._scratch]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*guard, *submit, *options, "spark-internal"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                env=environment,
            )
        self._wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)

    @property
    def log(self) -> str:
        """What the server and its workers have logged."""
        return self._log.read_text(errors="replace")

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Spark Connect server did not start; its log:\n{self.log[-3000:]}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5):
            return True
        return False
