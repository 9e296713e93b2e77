"""The job of `bench.tpcc.live`: `sync_database` of the nine tables into Delta, until it is killed.

Its argument is JSON: the arguments of `sync_database`, and the tables' columns and keys. It imports
no other module of the benchmark, as a cluster has only the package.
"""

import json
import sys

from normalize import DeltaDatabase, sync_database
from normalize.sync.table_options import TableOptions


def main(text: str) -> None:
    """Run the query."""
    from pyspark.sql import SparkSession

    arguments = json.loads(text)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    writer = sync_database(
        spark,
        arguments["topics"],
        format="debezium-json",
        format_options=arguments["format_options"],
        target=DeltaDatabase(arguments["lake"]),
        schema_location=arguments["schemas"],
        options=arguments["options"],
        tables={name: TableOptions(**each) for name, each in arguments["tables"].items()},
    )
    writer.option("checkpointLocation", arguments["checkpoint"]).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
