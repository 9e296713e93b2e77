"""A user's cluster job that keeps tables equal to their source.

It uses `apply_changes` and `sync_database`. Its arguments are JSON.

It prints the files from which executors import the package, ``stored`` and the way when executors
hold the rows of a micro-batch that are then written, and at the end the rows of each table as JSON.
"""

import json
import os
import sys
import threading
import time

from normalize import (
    DeltaDatabase,
    IcebergDatabase,
    JdbcDatabase,
    JdbcTarget,
    apply_changes,
    from_kafka_changelog,
    sync_database,
)
from normalize.tables.table_options import TableOptions

SCHEMA, KEY = "id INT, name STRING, qty INT", "id"


def loaded(_: int) -> tuple[str, bool]:
    """Return the file from which a worker imports the package, and whether its data is included."""
    import normalize
    from cdc_formats.message_format import packaged_schema

    return os.path.abspath(normalize.__file__), packaged_schema("debezium-json") is not None


def watch(spark, query, way: str) -> None:
    """Print when rows are stored."""
    stored, context = set[int](), spark.sparkContext._jsc.sc()
    while query.isActive:
        # Spark forgets rows a moment after they are released, when those of the next micro-batch
        # are already there.
        now = {each.id() for each in context.getRDDStorageInfo() if each.isCached()}
        if now - stored:
            print("stored", way, flush=True)
        stored |= now
        time.sleep(0.02)


def written(spark, way: str, kind: str, topic: str, folder: str, options: dict, login: dict):
    """Return the writer, and a function that reads the table."""
    databases = {
        "delta": lambda: DeltaDatabase(f"{folder}/lake", writer="spark"),
        "delta-rs": lambda: DeltaDatabase(f"{folder}/lake"),
        "iceberg": lambda: IcebergDatabase("lake.db"),
        "postgresql": lambda: JdbcDatabase(**login),
    }
    database, name = databases[kind](), f"{way}_{topic}".replace("-", "_")
    table = database.target(name)
    if way == "sync_database":
        writer = sync_database(
            spark,
            topic,
            format="debezium-json",
            target=database,
            schema_location=f"{folder}/schemas",
            options=options,
            tables={"t": TableOptions(schema=SCHEMA, primary_key=KEY, name=name)},
        )
    else:
        validated = {"format": "debezium-json", "format_options": {"validate": True}}
        changes = from_kafka_changelog(
            spark, topic, **validated, schema=SCHEMA, primary_key=KEY, options=options
        )
        writer = apply_changes(changes, table, keys=KEY)
    if isinstance(table, JdbcTarget):
        source = {
            "url": table.url,
            "user": table.user,
            "password": table.password,
            "dbtable": table.table,
        }
        source["driver"] = "org.postgresql.Driver"
        return writer, lambda: spark.read.format("jdbc").options(**source).load()
    return writer, lambda: spark.table(table.sql_name)


def copied(spark, way: str, folder: str, **arguments) -> list:
    """Read the topic until its end, and return the table's rows."""
    writer, read = written(spark, way, folder=folder, **arguments)
    query = (
        writer.option("checkpointLocation", f"{folder}/checkpoint-{way}")
        .trigger(availableNow=True)
        .start()
    )
    watching = threading.Thread(target=watch, args=(spark, query, way), daemon=True)
    watching.start()
    query.awaitTermination()
    watching.join()
    return sorted(([row["id"], row["name"], row["qty"]] for row in read().collect()), key=repr)


def main(text: str) -> None:
    """Copy the topic in each way."""
    from pyspark.sql import SparkSession

    arguments = json.loads(text)
    spark = SparkSession.builder.getOrCreate()
    print(json.dumps(spark.sparkContext.parallelize(range(4), 4).map(loaded).collect()), flush=True)
    print(
        json.dumps(
            {way: copied(spark, way, **arguments) for way in ("apply_changes", "sync_database")}
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
