"""What a pass changes in Spark's Python worker."""

import gc

import pyarrow as pa

from normalize.worker import prepare


def test_the_modules_of_a_worker_are_left_out_of_collections_once(spark) -> None:
    def freeze(batches):
        prepare()
        frozen = gc.get_freeze_count()
        later = [[number] for number in range(1_000)]
        prepare()
        rows = sum(batch.num_rows for batch in batches)
        counts = {
            "frozen": frozen,
            "again": gc.get_freeze_count(),
            "rows": rows,
            "later": len(later),
        }
        yield pa.RecordBatch.from_pylist([counts])

    (row,) = (
        spark.range(3)
        .coalesce(1)
        .mapInArrow(freeze, "frozen LONG, again LONG, rows LONG, later LONG")
        .collect()
    )
    assert row.rows == 3
    assert row.frozen > 10_000
    assert row.again <= row.frozen
    in_driver = gc.get_freeze_count()
    prepare()
    assert gc.get_freeze_count() == in_driver
