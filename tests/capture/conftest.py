"""A MariaDB with a binary log, shared by all tests of the capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from local_source import LocalSource


@pytest.fixture(scope="session")
def source() -> Iterator[LocalSource]:
    """A real MariaDB that writes a binary log."""
    with LocalSource() as server:
        yield server
