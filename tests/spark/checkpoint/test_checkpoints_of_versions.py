"""Checkpoints of another Spark version (`tests.support.jobs.checkpoint_job`) go on in this one."""

import shutil
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from normalize.checkpoint.read_state import read_state
from normalize.monitoring.explain_error import explain_error
from tests.support.jobs.checkpoint_job import (
    FOLDER,
    MOVED,
    ORDERS,
    STORES,
    message,
    move_source,
    name,
    run,
    table_row,
    write_files,
)


@pytest.mark.parametrize(
    ("store", "order"),
    # Short: each version with each store and with each order.
    [
        pytest.param(
            store,
            order,
            marks=pytest.mark.cross_section if place == ORDERS.index(order) else pytest.mark.soak,
        )
        for place, store in enumerate(STORES)
        for order in ORDERS
    ],
)
@pytest.mark.parametrize(
    "written_by", [version for version in ("4.0", "4.1", "4.2") if version <= pyspark.__version__]
)
def test_a_query_continues(
    spark: SparkSession, tmp_path: Path, written_by: str, store: str, order: str
) -> None:
    checkpoint, files = tmp_path / "checkpoint", tmp_path / "files"
    shutil.unpack_archive(FOLDER / f"{name(written_by, store, order)}.zip", checkpoint)
    write_files(files)
    move_source(checkpoint, MOVED, str(files))
    lines = [
        message("u", 10, table_row(0, "first"), table_row(0, "second")),  # again
        message("u", 20, table_row(0, "second"), table_row(0, "third")),
        message("d", 21, table_row(2, "first"), None),
        message("c", 22, None, table_row(1, "third")),
    ]
    (files / "3.json").write_text("\n".join(lines))
    changes = [
        (row.row_kind, row.id, row.name, row.price)
        for row in run(spark, files, checkpoint, store, order)
    ]
    price = [Decimal(f"{number}.50") for number in range(3)]
    assert sorted(changes, key=lambda row: (row[1], "+I -U +U -D".index(row[0]))) == [
        ("-U", 0, "second", price[0]),
        ("+U", 0, "third", price[0]),
        ("+I", 1, "third", price[1]),
        ("-D", 2, "first", price[2]),
    ]
    stored = {
        row.id: row
        for row in read_state(spark, str(checkpoint)).where("name IS NOT NULL").collect()
    }
    assert {number: row.name for number, row in stored.items()} == {
        0: "third",
        1: "third",
        3: "first",
        4: "first",
        5: "first",
    }
    assert stored[3].tags == ["first", None]
    assert stored[3].at == datetime.fromtimestamp(1_700_000_000.000003)


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="Spark 4.2 wrote the checkpoint")
def test_a_compact_checkpoint_is_refused_with_the_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, files = tmp_path / "checkpoint", tmp_path / "files"
    shutil.unpack_archive(FOLDER / "spark-4.2-hdfs-compact.zip", checkpoint)
    write_files(files)
    move_source(checkpoint, MOVED, str(files))
    (files / "3.json").write_text(message("u", 20, table_row(0, "second"), table_row(0, "third")))
    calls: list[Callable[[], object]] = [
        lambda: run(spark, files, checkpoint, "hdfs", "arrival"),
        lambda: read_state(spark, str(checkpoint)),
    ]
    for call in calls:
        with pytest.raises(PySparkException) as refused:
            call()
        text = explain_error(refused.value)
        assert text.startswith(
            "[STATE_VERSION] the checkpoint's state is compact (state_layout='compact')"
        )
        assert text.endswith("start from a new checkpoint")
