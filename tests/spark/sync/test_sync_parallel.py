"""`sync_database` writes tables beside each other, each with local properties of its own."""

from threading import Barrier
from typing import Any

import pytest

from normalize.tables.writers.delta import DeltaSink
from tests.support.databases import maxwell
from tests.support.syncing import BoundedSync


def test_no_statement_sees_the_properties_of_another(
    sync: BoundedSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, properties = Barrier(2, timeout=60), {}

    def merge(sink: DeltaSink, *_: Any) -> None:
        # As Spark does with the number of an SQL execution.
        context = sink.spark.sparkContext
        context.setLocalProperty("tests.table", sink.table.name)
        both.wait()
        properties[sink.table.name] = context.getLocalProperty("tests.table")

    for name in ("merge", "merge_arrow"):
        monkeypatch.setattr(DeltaSink, name, merge)
    for table in ("orders", "items"):
        sync.produce(table, [maxwell(table, "insert", {"id": 1})])
    sync.run()
    assert len(properties) == 2
    assert all(name == seen for name, seen in properties.items())
