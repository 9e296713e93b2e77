"""A server process of the tests, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from normalize import local_kafka

START_TIMEOUT = 120.0  # seconds


class Server:
    """A server process under the guard of local_kafka, which ends it with this process."""

    def __init__(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-"))
        self._log = self._scratch / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def __exit__(self, *exc_info: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def log(self) -> str:
        """What the server has logged."""
        return self._log.read_text(errors="replace")

    def _start(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        guard = [sys.executable, "-I", local_kafka.__file__, "--guard", str(self._scratch), *command]
        env = {**os.environ, **(environment or {})}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=self._scratch, env=env)

    def _wait(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{type(self).__name__} did not start; its log:\n{self.log[-3000:]}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
