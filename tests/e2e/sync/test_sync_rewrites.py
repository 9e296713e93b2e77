"""`sync_database` beside jobs that rewrite the files of its tables."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from normalize.tables.table_options import TableOptions
from normalize.tables.writers.lake import LakeTarget
from tests.support.maintenance import MAINTENANCE, Maintained
from tests.support.syncing import NewSync, Story, versions


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
