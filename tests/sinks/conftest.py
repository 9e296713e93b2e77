"""Target tables of each kind: new for each test, in databases that all tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from local_databases import LocalMariaDb, LocalPostgres
from sinking import Sink, database_sink, delta_sink, iceberg_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The recorded topics and their truth are those of the replay tests.
sys.path.append(str(Path(__file__).parents[1] / "replay"))

KINDS = ("delta", "iceberg", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """A real PostgreSQL server."""
    with LocalPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[LocalMariaDb]:
    """A real MariaDB server."""
    with LocalMariaDb() as server:
        yield server


@pytest.fixture
def new_sink(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""

    def new(kind: str) -> Sink:
        name = f"t_{uuid4().hex[:10]}"
        if kind == "delta":
            return delta_sink(spark, str(tmp_path / name))
        if kind == "iceberg":
            return iceberg_sink(spark, f"lake.db.{name}")
        if kind == "postgresql":
            return database_sink(spark, request.getfixturevalue("postgres"), name)
        server = request.getfixturevalue("mariadb")
        return database_sink(spark, server, name, scheme="mysql" if kind == "mysql-driver" else "mariadb")

    return new


@pytest.fixture(params=KINDS)
def sink(request: pytest.FixtureRequest, new_sink: Callable[[str], Sink]) -> Sink:
    """A table of each kind that does not exist yet."""
    return new_sink(request.param)
