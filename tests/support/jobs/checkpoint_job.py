"""Write the checkpoints of `test_checkpoints_of_versions` for the installed Spark.

The command is ``python -m tests.support.jobs.checkpoint_job``.

Run it once for each version of Spark, in the environment that ``make fetch SPARK=4.0`` creates.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from normalize import ChangelogNormalize, decode_changelog
from tests.support.paths import VECTORS
from tests.support.streams import run_stream

FOLDER = VECTORS / "checkpoints"
STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
ORDERS = ("arrival", "source")
SCHEMA = "id INT, name STRING, price DECIMAL(10,2), at TIMESTAMP(6), tags ARRAY<STRING>"
MOVED = "/files"
"""The source's folder in the archives."""
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def name(spark_version: str, store: str, order: str) -> str:
    """The name of a checkpoint's archive."""
    return f"spark-{'.'.join(spark_version.split('.')[:2])}-{store}-{order}"


def message(
    op: str, number: int, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> str:
    """A Debezium message with its position in a binary log."""
    source = {
        "connector": "mysql",
        "server_id": 1,
        "file": "binlog.000001",
        "pos": 1000 + number,
        "row": 0,
        "ts_ms": number,
        "snapshot": "false",
    }
    return json.dumps({"before": before, "after": after, "op": op, "source": source})


def table_row(number: int, name: str) -> dict[str, Any]:
    """A row of the table."""
    return {
        "id": number,
        "name": name,
        "price": f"{number}.50",
        "at": 1_700_000_000_000_000 + number,
        "tags": [name, None],
    }


def changes(spark: SparkSession, files: Path, order: str) -> DataFrame:
    """The changelog of a folder of text files with messages."""
    # Spark forgets the files that it has read after a week.
    reader = spark.readStream.format("text").options(maxFilesPerTrigger=1, maxFileAge="36500d")
    lines = reader.load(str(files))
    # All lines are records of one Kafka partition, in the order of their files.
    position = [
        "'t' AS topic",
        "0 AS partition",
        "CAST(get_json_object(value, '$.source.pos') AS BIGINT) AS offset",
    ]
    return decode_changelog(
        lines.selectExpr("value", *position),
        format="debezium-json",
        format_options={
            "decimal_handling_mode": "string",
            "time_precision_mode": "adaptive_time_microseconds",
        },
        schema=SCHEMA,
        primary_key="id",
        normalize=ChangelogNormalize(key_groups=4, order=order),  # type: ignore[arg-type]
    )


def run(spark: SparkSession, files: Path, checkpoint: Path, store: str, order: str) -> list[Any]:
    """Run the query on the files that it has not read, and return its rows."""
    spark.conf.set(_PROVIDER, STORES[store])
    try:
        return run_stream(changes(spark, files, order), checkpoint).rows
    finally:
        spark.conf.unset(_PROVIDER)


def write_files(files: Path) -> None:
    """Write the messages of the checkpoints' two micro-batches."""
    files.mkdir()
    created = [message("c", number, None, table_row(number, "first")) for number in range(6)]
    changed = [
        message("u", 10, table_row(0, "first"), table_row(0, "second")),
        message("d", 11, table_row(1, "first"), None),
    ]
    (files / "1.json").write_text("\n".join(created))
    (files / "2.json").write_text("\n".join(changed))


def move_source(checkpoint: Path, files: str, new_files: str) -> None:
    """Change the folder in the log of Spark's file source, and delete the files' checksums."""
    for log in sorted((checkpoint / "sources" / "0").iterdir()):
        if log.suffix == ".crc":
            log.unlink()
        else:
            log.write_text(log.read_text().replace(files, new_files))


def main() -> None:
    """Write a checkpoint for each state store and order."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    FOLDER.mkdir(exist_ok=True)
    for store in STORES:
        for order in ORDERS:
            with tempfile.TemporaryDirectory() as folder:
                files, checkpoint = Path(folder, "files"), Path(folder, "checkpoint")
                write_files(files)
                run(spark, files, checkpoint, store, order)
                move_source(checkpoint, str(files), MOVED)
                shutil.make_archive(
                    str(FOLDER / name(spark.version, store, order)), "zip", checkpoint
                )
    spark.stop()


if __name__ == "__main__":
    main()
