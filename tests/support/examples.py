"""How many random examples a property test draws: a fifth of them in `make check`, all of them in `make test`."""

from __future__ import annotations

import os

SHARE = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "check" else 1


def examples(most: int) -> int:
    """Return the number of examples for this run."""
    return max(1, most // SHARE)
