"""`sync_database` beside jobs that rewrite the files of its tables and remove old ones."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random

import pytest

from normalize.tables.table_options import TableOptions
from normalize.tables.writers.lake import LakeTarget
from tests.support.maintenance import MAINTENANCE, Maintained
from tests.support.syncing import NewSync, Story, versions


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", list(MAINTENANCE))
def test_files_are_rewritten_and_removed_beside_the_query(
    new_sync: NewSync, kind: str, rounds: int
) -> None:
    sync, story = new_sync(kind), Story(Random(kind))
    kafka = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers, "maxOffsetsPerTrigger": 10}
    tables = {"shop.items": TableOptions(scd_type=2)}
    sync.produce("all", story.messages(20))
    sync.run(tables=tables)
    targets = [sync.tables.database.target(table) for table in ("items", "orders")]
    maintained = [
        Maintained(sync.spark, target) for target in targets if isinstance(target, LakeTarget)
    ]
    query = sync.writer(options=kafka, tables=tables).start()
    try:
        for _ in range(rounds):
            # From now on, no MERGE needs anything but the table's own files, also not
            # those that the query has read before.
            for table in maintained:
                table.rewrite()
                table.remove(timedelta(0))
                assert table.has_only_its_files()
            sync.produce("all", story.messages(10))
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(query.processAllAvailable)
                while not reading.done():
                    for table in maintained:
                        table.rewrite()
                        if rounds > 2:
                            table.remove()
                reading.result()
    finally:
        query.stop()
    assert [table.is_rewritten() for table in maintained] == [True, True]
    rows = [{"id": key, "name": name} for key, name in story.names("orders").items()]
    assert sync.rows("orders") == sorted(rows, key=repr)
    assert versions(sync, "items") == story.history("items")
