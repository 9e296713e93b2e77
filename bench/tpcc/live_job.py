"""The job of `bench.tpcc.live`: a copy of the nine tables into Delta, until it is killed.

Its argument is JSON. `sync_database` has the package from the cluster's archive. The recipe by hand
runs on the driver alone, which has this repository.
"""

import json
import sys
from pathlib import Path

from normalize import DeltaDatabase, sync_database
from normalize.tables.table_options import TableOptions


def main(text: str) -> None:
    """Run the query."""
    from pyspark.sql import SparkSession

    arguments = json.loads(text)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if arguments["by_hand"]:
        sys.path.insert(0, arguments["by_hand"])
        from bench.tpcc.copies import merged_by_hand
        from bench.tpcc.tables import TABLES

        tables = dict(zip(arguments["topics"], TABLES, strict=True))
        writer = merged_by_hand(spark, tables, Path(arguments["lake"]), arguments["options"])
        writer.option("checkpointLocation", arguments["checkpoint"]).start().awaitTermination()
        return
    writer = sync_database(
        spark,
        arguments["topics"],
        format="debezium-json",
        format_options=arguments["format_options"],
        target=DeltaDatabase(arguments["lake"], only_writer=True),
        schema_location=arguments["schemas"],
        options=arguments["options"],
        tables={name: TableOptions(**each) for name, each in arguments["tables"].items()},
    )
    writer.option("checkpointLocation", arguments["checkpoint"]).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
