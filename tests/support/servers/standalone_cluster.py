"""A standalone Spark cluster: a Master and Workers from PySpark's own jars, each a process, with executors in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyspark

from normalize import local_kafka
from tests.support.quick_java import QUICK

START_TIMEOUT = 60.0  # seconds
EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """A Master and two Workers of one core each.

    Parameters
    ----------
    folder : Path
        For Spark's home and the logs of the Workers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "spark"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> StandaloneCluster:
        # Workers write the logs of executors to Spark's home; this home has only Spark.
        self.home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            (self.home / part.name).symlink_to(part)
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._wait_for_master()
        for number in range(2):
            self.start_worker(number)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in reversed(self._processes.values()):  # the Master last
            self._end(process)

    def start_worker(self, number: int) -> None:
        """Start a Worker, or start it again."""
        limits = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self.folder / f"work{number}"))
        self._start(f"worker{number}", "worker.Worker", "--host", "127.0.0.1", *limits, self.url)

    def kill_worker(self, number: int) -> None:
        """Kill a Worker and its executors with SIGKILL."""
        for process in self._java(f"work{number}"):
            process.kill()
        self._end(self._processes.pop(f"worker{number}"))

    def kill_executor(self, number: int) -> bool:
        """Kill the executors of a Worker with SIGKILL, and return whether there was one."""
        executors = [process for process in self._java(f"work{number}") if EXECUTOR in " ".join(process.cmdline())]
        for process in executors:
            process.kill()
        return bool(executors)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)

    def _java(self, folder: str) -> list[psutil.Process]:
        """Return the processes of a Worker and of its executors, which name or have its folder."""
        path, processes = str(self.folder / folder), []
        for process in psutil.process_iter():
            try:
                if process.name() == "java" and (path in process.cmdline() or process.cwd().startswith(path)):
                    processes.append(process)
            except psutil.Error:  # it ended, or is another user's
                continue
        return processes

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        """Start a process under the guard of local_kafka, which ends it with this process."""
        command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        scratch = self.folder / f"{name}.scratch"
        scratch.mkdir(exist_ok=True)
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", str(scratch), *command]
        environment = {**os.environ, "SPARK_HOME": str(self.home), "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_DAEMON_MEMORY": "256m"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                guard, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self.folder
            )

    def _wait_for_master(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            log = (self.folder / "master.log").read_text(errors="replace")
            ended = self._processes["master"].poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"the Master did not start; its log:\n{log[-3000:]}")
            time.sleep(0.05)
