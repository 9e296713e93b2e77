"""One table of a query is read again: killed at each write, and when it is refused."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from cdc_formats.errors import ArgumentError
from normalize.checkpoint.status import checkpoint_status
from normalize.run import read_job, resync_job
from normalize.tables.database import SyncDatabase
from normalize.tables.schema_store import SchemaStore
from normalize.tables.writers.delta import DeltaSink
from tests.support.databases import Message, maxwell
from tests.support.job_file import job_file
from tests.support.resyncing import ROWS, cut, left_behind, read_again, request, state
from tests.support.syncing import Sync

SMALL_STEPS: dict[str, Any] = {"_LEAST": 2, "_MOST": 2}


class KilledError(RuntimeError):
    """Ends a query as a kill does: no code of the library catches it."""


@contextmanager
def killed_once_at_each(
    patch: pytest.MonkeyPatch, killed: set[Any], only: Collection[Any]
) -> Iterator[None]:
    """Kill the query before and after each write of a table that is read again, once at each.

    With `only`, it is killed only there.
    """

    def once(place: Any) -> None:
        if place not in killed and (not only or place in only):
            killed.add(place)
            raise KilledError(str(place))

    def around(of: type, name: str, place_of: Callable[..., Any]) -> None:
        function = getattr(of, name)

        def killing(self: Any, *arguments: Any, **options: Any) -> Any:
            place = place_of(self, *arguments)
            if place is not None:
                once(("before", *place))
            result = function(self, *arguments, **options)
            if place is not None:
                once(("after", *place))
            return result

        patch.setattr(of, name, killing)

    around(SchemaStore, "write_resync", lambda _, to: (to.phase, bool(to.until)))
    around(DeltaSink, "replace_rows", lambda *_: ("replace",))
    around(DeltaSink, "drop", lambda *_: ("drop",))
    around(SchemaStore, "remove", lambda *_: ("remove",))
    around(
        SyncDatabase,
        "apply",
        lambda job, _: ("apply",) if "resync" in job.query.store.location else None,
    )
    yield


AFTER_COMMITS = [("after", "apply"), ("after", "replace"), ("after", "replaced", False)]


@pytest.mark.parametrize(
    ("stopped", "only"),
    [
        (True, AFTER_COMMITS),
        pytest.param(False, [], marks=pytest.mark.soak),
        pytest.param(True, [], marks=pytest.mark.soak),
    ],
    ids=["quick", "running", "stopped"],
)
def test_a_query_that_is_killed_before_and_after_each_write_ends_in_the_right_table(
    sync: Sync, monkeypatch: pytest.MonkeyPatch, stopped: bool, only: Collection[Any]
) -> None:
    rows = {row["id"]: row for row in ROWS}
    sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    table = sync.tables.database.target("orders").sql_name
    for statement in (
        f"UPDATE {table} SET name = 'wrong' WHERE id = 1",
        f"DELETE FROM {table} WHERE id = 2",
        f"INSERT INTO {table} VALUES (3, 'twice'), (99, 'only here')",
    ):
        sync.spark.sql(statement)
    if stopped:
        sync.edit("shop.orders", '"stopped": ""', '"stopped": "by hand"')
    request(sync, remove_missing=True)
    with pytest.raises(ArgumentError, match=r"shop[.]orders is being read again"):
        request(sync)
    killed: set[Any] = set()
    with monkeypatch.context() as patch, killed_once_at_each(patch, killed, only):
        for name, value in SMALL_STEPS.items():
            patch.setattr(f"normalize.tables.resync.{name}", value)
        for number in range(100, 150):
            key = 1 + number % 5
            changes: list[Message] = []
            if key in rows and number % 3 == 0:
                changes.append(maxwell("orders", "delete", rows.pop(key)))
            else:
                old = {"name": rows[key]["name"]} if key in rows else None
                rows[key] = {"id": key, "name": f"m{number}"}
                changes.append(maxwell("orders", "update" if old else "insert", rows[key], old))
            sync.produce("all", changes)
            before = len(killed)
            with suppress(StreamingQueryException):
                sync.run()
            if len(killed) == before:
                break
    assert len(killed) == (len(only) or 16), killed
    assert state(sync).phase == "replaced"
    assert sync.rows("orders") == sorted(rows.values(), key=lambda row: row["id"])
    assert left_behind(sync) == []
    # A record after it, and a repetition of the micro-batch, change nothing else.
    sync.forget_last_commit()
    read_again(sync, maxwell("orders", "insert", {"id": 50, "name": "later"}))
    assert sync.rows("orders") == [
        *sorted(rows.values(), key=lambda row: row["id"]),
        {"id": 50, "name": "later"},
    ]
    (shown,) = checkpoint_status(str(sync.folder / "checkpoint")).resyncs
    assert (shown.table, shown.phase) == ("shop.orders", "replaced")
    assert re.fullmatch(
        r"replaced, \d+ records, 1 keys that only the old table has [(]removed[)]", shown.progress
    )


def test_a_topic_of_which_kafka_removed_records_is_refused(sync: Sync) -> None:
    topic = sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    cut(sync, topic, 2)
    lines = list[str]()

    def go_on(line: str) -> None:
        lines.append(line)
        if "requested" in line:
            read_again(sync)

    resync_job(read_job(job_file(sync.kafka, sync.folder, topic)), "shop.orders", go_on, sync.spark)
    assert len(lines) == 2
    assert lines[1] == (
        f"shop.orders: refused: {topic}[0] begins at the offset 2: Kafka has removed older records, and rows "
        "that did not change since would be missing. Give topics of tables cleanup.policy=compact, "
        "or let the producer write a new snapshot"
    )
    assert sync.rows("orders") == ROWS
    with pytest.raises(
        ArgumentError, match=r"has no table 'shop[.]order': pass one of shop[.]items"
    ):
        request(sync, "order")
