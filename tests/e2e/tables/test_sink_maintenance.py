"""`apply_changes` beside jobs that rewrite the files of its table and remove old ones."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka, apply_changes, from_kafka_changelog
from normalize.tables.apply import apply_batch
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.lake import LakeTarget
from tests.support.histories import TABLE, random_history, records_of
from tests.support.maintenance import MAINTENANCE, Maintained
from tests.support.sinking import Sink, changelog
from tests.support.strategies import last_rows
from tests.support.streams import new_topic, servers
from tests.support.syncing import NewSync, Story, versions

CHANGES = 20
"""The changes of a round: the query applies them in a micro-batch, or in two if it begins while
they are written."""


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", list(MAINTENANCE))
def test_files_are_rewritten_and_removed_beside_the_query(
    spark: SparkSession,
    kafka: LocalKafka,
    new_sink: Callable[[str], Sink],
    tmp_path: Path,
    kind: str,
    rounds: int,
) -> None:
    sink, history = new_sink(kind), random_history(29, CHANGES * rounds)[: CHANGES * rounds]
    assert isinstance(sink.table, LakeTarget)
    apply_batch(changelog(spark, TABLE["schema"], [("+I", -1, "before", 0)]), sink.table, keys="id")
    table, topic = Maintained(spark, sink.table), new_topic(kafka, [])
    stream = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=CHANGES)
    )
    query = (
        apply_changes(stream, sink.table, keys="id")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    try:
        for start in range(0, len(history), CHANGES):
            kafka.produce(topic, records_of(history[start : start + CHANGES]))
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(query.processAllAvailable)
                table.rewrite()
                if rounds > 2:
                    table.remove()
                reading.result()
            if start + CHANGES < len(history):
                # Now no MERGE needs anything but the table's own files, also those that the query
                # has read before.
                table.rewrite()
                table.remove(timedelta(0))
                assert table.has_only_its_files()
        assert table.is_rewritten()
    finally:
        query.stop()
    expected = [(-1, "before", 0), *last_rows(history).values()]
    assert sorted(
        map(tuple, spark.newSession().table(sink.sql_name).collect()), key=repr
    ) == sorted(expected, key=repr)


# --------------------------------------------------------------------------------------------------
# `sync_database` beside jobs that rewrite the files of its tables
@pytest.mark.parametrize("changes", [20, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", list(MAINTENANCE))
def test_files_are_rewritten_beside_the_query(new_sync: NewSync, kind: str, changes: int) -> None:
    sync, story = new_sync(kind), Story(Random(kind))
    kafka = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers, "maxOffsetsPerTrigger": 10}
    tables = {"shop.items": TableOptions(scd_type=2)}
    sync.produce("all", story.messages(20))
    sync.run(tables=tables)
    sync.produce("all", story.messages(changes))
    targets = [sync.tables.database.target(table) for table in ("items", "orders")]
    maintained = [
        Maintained(sync.spark, target) for target in targets if isinstance(target, LakeTarget)
    ]
    query = sync.writer(options=kafka, tables=tables).start()
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(query.processAllAvailable)
            while not reading.done():
                for table in maintained:
                    table.rewrite()
            reading.result()
    finally:
        query.stop()
    assert [table.is_rewritten() for table in maintained] == [True, True]
    rows = [
        {"id": key, "name": name} for (table, key), name in story.rows.items() if table == "orders"
    ]
    assert sync.rows("orders") == sorted(rows, key=repr)
    assert versions(sync, "items") == story.history("items")
