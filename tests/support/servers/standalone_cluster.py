"""A standalone Spark cluster of PySpark's jars, with a process per Master, Worker and executor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil
import pyspark

from tests.support.distributions import without_the_package, zipped
from tests.support.quick_java import options as java_options
from tests.support.servers import processes
from tests.support.spark_packages import settings

EXECUTOR = "CoarseGrainedExecutorBackend"
JAVA = java_options()["SPARK_SUBMIT_OPTS"]


class StandaloneCluster:
    """A Master and two Workers of one core each.

    Parameters
    ----------
    folder : Path
        For the logs of the Workers and of their executors.
    """

    def __init__(self, folder: Path) -> None:
        # Java uses an archive of classes only with the same paths of jars.
        self.folder, self.home = folder, Path(pyspark.__file__).parent
        self.port = processes.free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> StandaloneCluster:
        self._start(
            "master",
            "master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--webui-port",
            "0",
        )
        processes.wait_until(
            lambda: processes.listens(self.port),
            self._processes["master"],
            self.folder / "master.log",
        )
        for number in range(2):
            self.start_worker(number)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in reversed(self._processes.values()):  # the Master last
            processes.end(process)

    def start_worker(self, number: int) -> None:
        """Start a Worker, or start it again."""
        limits = (
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(self.folder / f"work{number}"),
        )
        self._start(f"worker{number}", "worker.Worker", "--host", "127.0.0.1", *limits, self.url)

    def submit(
        self,
        folder: Path,
        application: str | Path,
        *arguments: str,
        more: Mapping[str, object] | None = None,
    ) -> subprocess.Popen[str]:
        """Submit an application that has the package only from ``--py-files``.

        This holds for its driver and its executors. Their errors are in `folder`. `more` are
        settings of Spark.
        """
        conf = settings(folder) | {
            "spark.driver.extraJavaOptions": JAVA,
            "spark.executor.extraJavaOptions": JAVA,
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
            # the tests' own daemon is not in the package
            "spark.python.daemon.module": "pyspark.daemon",
            # both executors run the first tasks
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.task.maxFailures": "8",
            # by default, a task asks a lost executor for its blocks for 15 s
            "spark.shuffle.io.retryWait": "200ms",
            **(more or {}),
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        package = ["--py-files", str(zipped(folder / "package.zip"))]
        command = [
            str(self.home / "bin" / "spark-submit"),
            "--master",
            self.url,
            *options,
            *package,
            str(application),
            *arguments,
        ]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")
        }
        python = without_the_package(folder / "environment")
        environment = {
            **inherited,
            "SPARK_HOME": str(self.home),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (folder / "driver.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def kill_worker(self, number: int) -> None:
        """Kill a Worker and its executors with SIGKILL."""
        for process in self._java(f"work{number}"):
            process.kill()
        processes.end(self._processes.pop(f"worker{number}"))

    def kill_executor(self, number: int) -> bool:
        """Kill the executors of a Worker with SIGKILL, and return whether there was one."""
        executors = [
            process
            for process in self._java(f"work{number}")
            if EXECUTOR in " ".join(process.cmdline())
        ]
        for process in executors:
            process.kill()
        return bool(executors)

    def _java(self, folder: str) -> list[psutil.Process]:
        """Return the processes of a Worker and of its executors, which name or have its folder."""
        path, java_processes = str(self.folder / folder), []
        for process in psutil.process_iter():
            try:
                if process.name() == "java" and (
                    path in process.cmdline() or process.cwd().startswith(path)
                ):
                    java_processes.append(process)
            except psutil.Error:  # it ended, or is another user's
                continue
        return java_processes

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        command = [
            str(self.home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind}",
            *arguments,
        ]
        scratch = self.folder / f"{name}.scratch"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self._processes[name] = processes.start(
            command, scratch, self.folder / f"{name}.log", env=environment, cwd=self.folder
        )


class OneExecutor(StandaloneCluster):
    """A cluster of one executor, whose Master and Worker are threads of the driver."""

    def __enter__(self) -> OneExecutor:
        # Spark writes the executor's logs to its home; this home has only Spark.
        self.home = self.folder / "spark"
        self.home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            (self.home / part.name).symlink_to(part)
        self.url = "local-cluster[1,1,1024]"
        return self
