"""`ChangelogNormalize(engine="native")` on Spark 4.2: the rows of the fold, for the last change of each key in a micro-batch."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from cdc_formats import columns
from cdc_formats.errors import ArgumentError, ChangelogError, MissingDependencyError
from normalize import ChangelogNormalize, aggregate_changes, decode_changelog, explain_error
from normalize.core.arrow import spark_ddl, to_arrow
from normalize.spark_versions import installed_version
from tests.support.canonical_values import TYPES, values_of
from tests.support.examples import examples
from tests.support.histories import TABLE, random_history, records_of, rows_by_key
from tests.support.strategies import DDL, KeyChange, by_key, fold_history, key_changes, table_of, unified
from tests.support.streams import debezium, run_stream

pytestmark = pytest.mark.skipif(installed_version() < "4.2", reason="Spark 4.1 and older have no max_by with a number of rows")
NATIVE = ChangelogNormalize(engine="native")


def last_of_each_key(batch: list[KeyChange]) -> list[KeyChange]:
    """The changes that remain of a micro-batch."""
    return list({unified(key): (key, row) for key, row in batch}.values())


def folded(batches: list[list[KeyChange]]) -> dict:
    return by_key(fold_history([change for batch in batches for change in last_of_each_key(batch)]), unified)


class Changelog:
    """A stream of typed changes, each file of which is a micro-batch."""

    def __init__(self, spark: Any, folder: Path, ddl: str, stage: ChangelogNormalize) -> None:
        self.spark, self.folder, self.columns, self.stage = spark, folder / uuid4().hex, columns(ddl), stage
        self.files = self.folder / "files"
        self.files.mkdir(parents=True)

    def write(self, batch: list[KeyChange]) -> None:
        rows = [(key, *(None,) * (len(self.columns) - 1)) if row is None else row for key, row in batch]
        kinds = pa.array(["-D" if row is None else "+U" for _, row in batch], pa.string())
        values = [to_arrow(column.type, [row[index] for row in rows]) for index, column in enumerate(self.columns)]
        names = ["row_kind", *(column.name for column in self.columns)]
        pq.write_table(pa.table([kinds, *values], names=names), self.files / f"{len(list(self.files.iterdir())):06d}.parquet")

    def run(self) -> list:
        schema = f"row_kind STRING, {spark_ddl(self.columns)}"
        stream = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.files))
        return run_stream(stream.transform(self.stage), self.folder / "checkpoint", "update").rows


def native_rows(spark, folder, ddl, stage, batches, restarts=()) -> list:
    """Run the batches as micro-batches of one query, which is stopped and started before those of `restarts`."""
    changelog, rows = Changelog(spark, folder, ddl, stage), []
    for number, batch in enumerate(batches):
        if number in restarts:
            rows += changelog.run()
        changelog.write(batch)
    return rows + changelog.run()


BATCHES = st.lists(st.lists(key_changes(), min_size=1, max_size=8), min_size=1, max_size=5)
IN_SPARK = settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@IN_SPARK
@given(batches=BATCHES, restarts=st.sets(st.integers(1, 4)), repartition=st.booleans(), again=st.booleans())
def test_any_cut_into_micro_batches_gives_the_rows_of_the_fold(spark, tmp_path, batches, restarts, repartition, again):
    if again:  # a redelivery of the whole history
        batches = [*batches, [change for batch in batches for change in batch]]
    stage = ChangelogNormalize("id", engine="native", repartition=repartition)
    rows = native_rows(spark, tmp_path, DDL, stage, batches, restarts)
    canonical = [(row.row_kind, canonical_row(row)) for row in rows]
    grouped: dict = {}
    for kind, row in canonical:
        grouped.setdefault(unified(row[0]), []).append((kind, unified(row)))
    assert grouped == folded(batches)


def canonical_row(row: Any) -> tuple:
    *plain, marks = tuple(row)[1:]
    return (*plain, None if marks is None else [[key, value] for key, value in marks.items()])
