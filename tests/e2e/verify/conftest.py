"""Two databases, and a Delta table with the same rows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize import DeltaTarget
from tests.support.servers.local_databases import LocalPostgres
from tests.support.servers.local_source import LocalSource
from tests.support.sinking import table_name
from tests.support.verifying import COLUMNS, VALUES, Database


@pytest.fixture
def maria(spark: SparkSession, source: LocalSource) -> Database:
    return Database(spark, source, "mariadb")


@pytest.fixture
def postgresql(spark: SparkSession, postgres: LocalPostgres) -> Database:
    return Database(spark, postgres, "postgresql")


@pytest.fixture(params=["mariadb", "postgresql"])
def database(request: pytest.FixtureRequest, maria: Database, postgresql: Database) -> Database:
    return maria if request.param == "mariadb" else postgresql


@pytest.fixture
def delta(spark: SparkSession, tmp_path: Path) -> Callable[[int], DeltaTarget]:
    """A function that creates a Delta table with the rows of `Database.table`."""

    def create(rows: int = 3) -> DeltaTarget:
        target = DeltaTarget(str(tmp_path / table_name()))
        values = ", ".join(
            f"CAST(IF(id < {rows}, {value}, NULL) AS {kind}) AS {name}"
            for (name, kind), value in zip(COLUMNS.items(), VALUES, strict=True)
        )
        spark.sql(
            f"CREATE TABLE {target.sql_name} USING delta AS SELECT id, {values} FROM range(1, {rows + 1})"
        )
        return target

    return create
