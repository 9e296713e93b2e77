"""`sync_database` beside jobs that rewrite the files of its tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from normalize.sinks import lake
from normalize.sinks.targets import ConflictError, LakeTarget
from normalize.sync.table_options import TableOptions
from tests.support.syncing import NewSync, Story, versions

REWRITES = {
    "delta": ("'delta.enableDeletionVectors' = 'true'", "OPTIMIZE {}", "DESCRIBE HISTORY {}", "OPTIMIZE"),
    "iceberg": (
        "'write.merge.mode' = 'merge-on-read'",
        "CALL lake.system.rewrite_data_files(table => '{}', options => map('min-input-files', '2'))",
        "SELECT operation FROM {}.snapshots",
        "replace",
    ),
}
"""By kind: the property by which each MERGE adds files, the statement that rewrites them, the one that lists commits, and the name of its
commits."""


@pytest.mark.parametrize("changes", [30, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", list(REWRITES))
def test_files_are_rewritten_beside_the_query(new_sync: NewSync, kind: str, changes: int) -> None:
    sync, story = new_sync(kind), Story(Random(kind))
    kafka = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers, "maxOffsetsPerTrigger": 10}
    tables = {"shop.items": TableOptions(scd_type=2)}
    sync.produce("all", story.messages(20))
    sync.run(tables=tables)
    sync.produce("all", story.messages(changes))
    adding, rewrite, commits, operation = REWRITES[kind]
    targets = [sync.tables.database.target(table) for table in ("items", "orders")]
    for target in targets:
        assert isinstance(target, LakeTarget)
        sync.spark.sql(f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ({adding})")
    query = sync.writer(options=kafka, tables=tables).start()
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(query.processAllAvailable)
            while not reading.done():
                for target in targets:
                    assert isinstance(target, LakeTarget)
                    # As another job: Iceberg keeps the tables that a session has read.
                    other = sync.spark.newSession()
                    # This writer may lose, too.
                    with suppress(ConflictError), lake.conflicts(other, target):
                        other.sql(rewrite.format(target.sql_name)).collect()
            reading.result()
    finally:
        query.stop()
    for target in targets:
        assert operation in {row["operation"] for row in sync.spark.newSession().sql(commits.format(target.sql_name)).collect()}
    rows = [{"id": key, "name": name} for (table, key), name in story.rows.items() if table == "orders"]
    assert sync.rows("orders") == sorted(rows, key=repr)
    assert versions(sync, "items") == story.history("items")
