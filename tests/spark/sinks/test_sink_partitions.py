"""Tables of Delta and Iceberg with partitions."""

from datetime import date

import pytest
from pyspark.sql import SparkSession

from normalize.tables.apply import apply_batch
from tests.support.sinking import NewSink, changelog


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_row_that_moves_between_partitions_of_the_table_is_not_doubled(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    sink.execute(
        f"CREATE TABLE {sink.sql_name} (id INT, day DATE, own STRING) USING {kind} PARTITIONED BY "
        "(day)"
    )
    sink.execute(
        f"INSERT INTO {sink.sql_name} VALUES (1, DATE'2024-01-01', 'kept'), (2, DATE'2024-01-01', "
        "NULL)"
    )
    changes = [
        ("-U", 1, date(2024, 1, 1)),
        ("+U", 1, date(2024, 1, 2)),
        ("-D", 2, date(2024, 1, 1)),
    ]
    name = sink.sql_name if kind == "iceberg" else sink.table
    apply_batch(changelog(spark, "id INT, day DATE", changes), name, keys="id")
    # A column that the changelog does not have is not changed.
    assert sink.rows() == [(1, date(2024, 1, 2), "kept")]
