"""Repeat commits that another writer prevented, after a pause."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from .targets import ConflictError

_log = logging.getLogger("normalize")
TRIES = 10
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # seconds


def repeat_conflicts(commit: Callable[[], None], *, pause: Callable[[float], None] = time.sleep) -> None:
    """Call `commit` until no other writer prevents it, at most `TRIES` times.

    The pauses double, up to ten seconds. Each is shortened at random, so that two writers do not collide again. Each conflict is logged as
    information.

    Parameters
    ----------
    commit : callable
        Raises `ConflictError` if it wrote nothing and can be called again.
    pause : callable
        Waits for a number of seconds.

    Raises
    ------
    ConflictError
        When every call raised it.
    """
    for tried in range(TRIES):
        try:
            return commit()
        except ConflictError as error:
            conflict = error
            _log.info("%s: attempt %s of %s", conflict.args[0], tried + 1, TRIES)
        if tried < TRIES - 1:
            pause(min(_FIRST_PAUSE * 2**tried, _LONGEST_PAUSE) * random.uniform(0.5, 1))
    raise ConflictError(
        f"{conflict.args[0]}, in each of {TRIES} attempts: let fewer queries write this table at a time, and restart this query"
    )
