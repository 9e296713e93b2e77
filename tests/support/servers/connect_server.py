"""A Spark Connect server in its own process, as on a cluster: the client has no JVM to help it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.processes import LocalServer


class ConnectServer(LocalServer):
    """A Spark Connect server on a free port of 127.0.0.1.

    Parameters
    ----------
    settings : mapping
        Spark's settings.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__()
        address = {
            "spark.connect.grpc.binding.port": self.port,
            "spark.connect.grpc.binding.address": "127.0.0.1",
        }
        self._settings = {**settings, **address}
        self.url = f"sc://127.0.0.1:{self.port}"

    def __enter__(self) -> ConnectServer:
        import pyspark

        home = Path(pyspark.__file__).parent
        submit = [
            f"{home}/bin/spark-submit",
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
        ]
        options = [
            word for name, value in self._settings.items() for word in ("--conf", f"{name}={value}")
        ]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        self._start([*submit, *options, "spark-internal"], env=environment)
        self._wait()
        return self
