"""The native engine finds late records of added partitions in SQL as the pure function does."""

from random import Random

from pyspark.sql import SparkSession

from normalize.core.last import FirstRecord, is_late, partition_facts
from normalize.engines.native import late_record


def test_sql_finds_late_records_as_python_does(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    random = Random(5)
    values = [
        fact
        for batch in (0, 1, 2)
        for partition in (0, 1, 2)
        for stamp in (0, 7, 8, 1_800_000_000_000)
        for _, fact in partition_facts(
            FirstRecord("t", partition, random.randrange(2), stamp), {"t": 2}, batch
        )
    ]
    rows = [sorted(random.choices(values, k=2)) for _ in range(2_000)]
    late = (
        spark.createDataFrame(rows, "least STRING, greatest STRING")
        .select(late_record(F.col("least"), F.col("greatest")))
        .collect()
    )
    assert [bool(value) for (value,) in late] == [is_late(*row) for row in rows]
    assert 0 < sum(is_late(*row) for row in rows) < len(rows)
