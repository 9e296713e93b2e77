"""One MariaDB with a binary log for all tests of the capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from local_source import LocalSource


@pytest.fixture(scope="session")
def source() -> Iterator[LocalSource]:
    """A real MariaDB of its own, which writes a log."""
    with LocalSource() as server:
        yield server
