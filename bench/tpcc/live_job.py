"""The job of `bench.tpcc.live`: a copy of the nine tables, until it is killed.

Its argument is JSON. `sync_database` has the package from the cluster's archive. The recipe by hand
runs on the driver alone, which has this repository.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from normalize import DeltaDatabase, JdbcDatabase, Verify, sync_database
from normalize.tables.database import SyncDatabase
from normalize.tables.table_options import TableOptions
from normalize.verify.proof import Verifier


def note(folder: Path) -> None:
    """Write the warnings to a file, and for each micro-batch its seconds to another one."""
    handlers = [logging.FileHandler(folder / "warnings.log"), logging.StreamHandler()]
    logging.basicConfig(handlers=handlers)
    apply, compare, compared = SyncDatabase.__call__, Verifier.__call__, [0.0]

    def timed_compare(verifier: Verifier, jobs: Any) -> None:
        began = time.monotonic()
        compare(verifier, jobs)
        compared[0] = time.monotonic() - began

    def timed_apply(tables: SyncDatabase, batch: Any, number: int) -> None:
        began, compared[0] = time.monotonic(), 0.0
        apply(tables, batch, number)
        seconds = {"at": time.time(), "all": time.monotonic() - began, "compared": compared[0]}
        with (folder / "seconds.jsonl").open("a") as file:
            file.write(json.dumps(seconds) + "\n")

    setattr(Verifier, "__call__", timed_compare)  # noqa: B010
    setattr(SyncDatabase, "__call__", timed_apply)  # noqa: B010


def main(text: str) -> None:
    """Run the query."""
    from pyspark.sql import SparkSession

    arguments = json.loads(text)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # After the archive, which lacks the benchmark and the capture.
    sys.path.append(arguments["repository"])
    if arguments["by_hand"]:
        from bench.tpcc.copies import merged_by_hand
        from bench.tpcc.tables import TABLES

        tables = dict(zip(arguments["topics"], TABLES, strict=True))
        writer = merged_by_hand(spark, tables, Path(arguments["lake"]), arguments["options"])
        writer.option("checkpointLocation", arguments["checkpoint"]).start().awaitTermination()
        return
    note(Path(arguments["lake"]).parent)
    verify = Verify(**arguments["verify"]) if arguments["verify"] else None
    database = arguments["database"]
    writer = sync_database(
        spark,
        arguments["topics"],
        format="debezium-json",
        format_options=arguments["format_options"],
        target=JdbcDatabase(**database, verify=verify)
        if database
        else DeltaDatabase(arguments["lake"], only_writer=True, verify=verify),
        schema_location=arguments["schemas"],
        options=arguments["options"],
        tables={name: TableOptions(**each) for name, each in arguments["tables"].items()},
    )
    writer.option("checkpointLocation", arguments["checkpoint"]).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
