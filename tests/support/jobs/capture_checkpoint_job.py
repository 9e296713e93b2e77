"""Write this Spark's capture checkpoint: ``python -m tests.support.jobs.capture_checkpoint_job``.

Its only micro-batch is the first 15 rows of a table with 60. Run it once for each version of Spark,
as `checkpoint_job`.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import capture
from tests.support.paths import VECTORS
from tests.support.servers.local_source import SMALL, LocalSource

TABLE = "carried"
CREATED = (
    f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, v INT)",
    f"INSERT INTO {TABLE} SELECT seq, 0 FROM seq_1_to_60",
)
_OF_THE_SERVER = ("server", "file", "pos", "gtids")


def archive(spark_version: str) -> Path:
    """The archive of a version's checkpoint."""
    return VECTORS / "checkpoints" / f"spark-{'.'.join(spark_version.split('.')[:2])}-capture.zip"


def unpack(spark_version: str, folder: Path, now: dict[str, Any]) -> None:
    """Unpack a checkpoint, and put the position of a server that runs now into its offset."""
    shutil.unpack_archive(archive(spark_version), folder)
    offsets = folder / "offsets" / "0"
    *head, offset = offsets.read_text().splitlines()
    offsets.write_text(
        "\n".join(
            [*head, json.dumps(json.loads(offset) | {name: now[name] for name in _OF_THE_SERVER})]
        )
    )
    (folder / "offsets" / ".0.crc").unlink(missing_ok=True)  # the checksum of the previous content


def main() -> None:
    """Run one micro-batch, and keep its checkpoint."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    capture.register(spark)
    folder = tempfile.mkdtemp()
    with LocalSource() as source:
        source.run(*CREATED)
        changes = (
            spark.readStream.format("mysql-changelog")
            .options(**source.options(TABLE, **SMALL))
            .load()
        )
        writer = changes.writeStream.format("noop").option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()
    shutil.make_archive(str(archive(spark.version).with_suffix("")), "zip", folder)
    shutil.rmtree(folder)
    spark.stop()


if __name__ == "__main__":
    main()
