"""Where in its source's log a change stands: positions that can be compared."""

from __future__ import annotations

import msgspec


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where in its source's log a change stands.

    Attributes
    ----------
    history : str
        Names the log's lineage. Positions compare within one history alone.
    high, low : int or None, int
        From 0 to 2**64-1, compared as a pair; `high` is None where the change stands nowhere in the log.
    clock_ms : int or None
        The source's own time of the change, in milliseconds since 1970-01-01 UTC.
    """

    history: str
    high: int | None
    low: int
    clock_ms: int | None
