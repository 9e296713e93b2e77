"""The number of a property test's random examples: a fifth in `make check`, all in `make test`."""

import os

SHARE = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "check" else 1


def examples(most: int) -> int:
    """Return the number of examples for this run."""
    return max(1, most // SHARE)
