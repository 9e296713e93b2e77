"""Runs ``cdc`` as users do: as a process, in a pipe or in a terminal."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from typer.testing import CliRunner

from cdc_cli.app import app

CDC = (sys.executable, "-m", "cdc_cli")
_KEPT = ("CDC_BOOTSTRAP_SERVERS", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")


class Done(NamedTuple):
    """The exit code and output of a command.

    Attributes
    ----------
    code : int
    out, err : str
    """

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**more: str) -> dict[str, str]:
    """Return the environment with `more`, without variables that change the command's behaviour."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _KEPT},
        "TERM": "xterm-256color",
        **more,
    }


def cdc(*arguments: object, **env: str) -> Done:
    """Run ``cdc`` as a process, its output in pipes."""
    done = subprocess.run(
        [*CDC, *map(str, arguments)],
        input=b"",
        capture_output=True,
        env=environment(**env),
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def quick(*arguments: object, **env: str) -> Done:
    """Run ``cdc`` in this process."""
    done = CliRunner().invoke(
        app,
        list(map(str, arguments)),
        input=b"",
        env={"CDC_BOOTSTRAP_SERVERS": None, **env},
        prog_name="cdc",
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``cdc`` with its output in pipes; kill it at the end."""
    process = subprocess.Popen(
        [*CDC, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[bytes]) -> Done:
    """Send Ctrl-C and return the exit code and output."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    return Done(process.returncode, out.decode(), err.decode())


class Terminal:
    """A terminal in which a command runs.

    Parameters
    ----------
    *arguments
        The arguments of ``cdc``.
    columns : int
        The terminal's width.
    **env
        Additional environment variables.
    """

    def __init__(self, *arguments: object, columns: int = 100, **env: str) -> None:
        self._screen, inner = pty.openpty()
        self.resize(columns)
        self.text = ""
        self.process = subprocess.Popen(
            [*CDC, *map(str, arguments)],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment(**env),
            start_new_session=True,
        )
        os.close(inner)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def resize(self, columns: int) -> None:
        """Make the terminal wider or narrower."""
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def read_until(self, text: str) -> str:
        """Read the output until it contains `text`, and return all of it."""
        while text not in self.text and self._read():
            pass
        assert text in self.text, self.text
        return self.text

    def end(self) -> tuple[int, str]:
        """Read to the end, and return the exit code and all output."""
        while self._read():
            pass
        return self.process.wait(timeout=20), self.text

    def _read(self) -> bool:
        assert select.select([self._screen], [], [], 30)[0], (
            f"no more output within 30 s; so far:\n{self.text}"
        )
        try:
            data = os.read(self._screen, 65536)
        except OSError as error:  # Linux raises EIO when the other end is closed
            if error.errno != errno.EIO:
                raise
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
