"""What ``cdc run`` prints: events of the job, warnings, and on a terminal what is left."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from .terminal import print_message, progress_bar

if TYPE_CHECKING:
    from normalize.run import Event
    from normalize.run.events import Report

_STYLES = {"failed": "yellow", "caught up": "green", "started": "dim", "stopped": "dim"}


@contextmanager
def screen(*, json: bool) -> Iterator[Report]:
    """Print the events of a job and the warnings of the logger ``normalize``.

    Parameters
    ----------
    json : bool
        Whether events are lines of JSON on standard output.
    """
    handler = _Warnings(logging.WARNING)
    logger = logging.getLogger("normalize")
    logger.addHandler(handler)
    try:
        with progress_bar("offsets left") as show_left:
            done = 0

            def report(event: Event) -> None:
                nonlocal done
                if json:
                    typer.echo(event.to_json())
                    sys.stdout.flush()
                else:
                    print_message(_timed(event.text), _STYLES.get(event.kind, ""))
                if event.kind == "micro-batch":
                    done += event.values["records"]
                    show_left(done, event.values["offsets_left"])

            yield report
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    """Prints warnings above the line with what is left."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(_timed(record.getMessage()), "yellow")


def _timed(text: str) -> str:
    return f"{datetime.now():%H:%M:%S} {text}"
