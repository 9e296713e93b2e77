"""Every renderer of a `MergePlan`, on real tables: the vectors of `tests.support.merge_vectors`."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from cdc_formats.errors import PartialImageError
from normalize.core.output import ROW_KIND
from normalize.monitoring.explain_error import explain_error
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import Sink as TableSink
from tests.support.merge_vectors import FAILING, VECTORS, Vector, frames, shown, spec_of
from tests.support.sink_kinds import KINDS
from tests.support.sinking import Sink


def insert(sink: TableSink, rows: DataFrame, spec: TableSpec) -> None:
    """Insert the rows that a table has before a change."""
    plain = replace(spec, partial_rows=False, deleted_column=None, position_column=None)
    sink.merge(rows.withColumn(ROW_KIND, F.lit("+I")), plain)


@pytest.mark.parametrize("kind", [*KINDS, "delta-rs"])
def test_a_merge_ends_in_the_rows_of_the_vectors(
    spark: SparkSession, new_sink: Callable[[str], Sink], kind: str
) -> None:
    for policy, vectors in VECTORS.items():
        spec = spec_of(spark, policy)
        before, changes, after = frames(spark, policy, vectors)
        table = new_sink(kind)
        if spec.versions and not table.table.histories:
            continue
        sink = table.table.sink(spark)
        insert(sink, before, sink.prepare(spec))
        sink.merge(changes, spec)
        assert (policy, shown(table.read(), policy)) == (policy, after)


@pytest.mark.parametrize("kind", [*KINDS, "delta-rs"])
def test_a_change_that_its_row_cannot_complete_is_an_error(
    spark: SparkSession, new_sink: Callable[[str], Sink], kind: str
) -> None:
    for policy, failing in FAILING.items():
        table, spec = new_sink(kind), spec_of(spark, policy)
        sink = table.table.sink(spark)
        sink.prepare(spec)
        for before, change in failing:
            rows, changes, _ = frames(spark, policy, [Vector(before, "+U", change, None)])
            insert(sink, rows, spec)
            with pytest.raises((PartialImageError, PySparkException, Py4JJavaError)) as failed:
                sink.merge(changes, spec)
            text = explain_error(failed.value)
            assert "the target does not have its key" in text
            assert "MySQL: binlog_row_image=FULL" in text
            assert text.rstrip().endswith("in shop[0]@8")
            assert len(shown(table.read(), policy)) == (before is not None)
