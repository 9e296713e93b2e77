"""Histories of `sync_database`, on bounded micro-batches."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from normalize.local_kafka import ProducerRecord
from normalize.tables.table_options import TableOptions
from tests.support.databases import Message, maxwell
from tests.support.syncing import ORDER, BoundedSync, NewBoundedSync, Story, versions, write


@pytest.mark.parametrize(("kind", "by_spark"), [("delta", False), ("iceberg", True)])
def test_histories(new_sync: NewBoundedSync, kind: str, by_spark: bool) -> None:
    sync = new_sync(kind)
    tables = {
        "shop.tags": TableOptions(scd_type=1),
        "shop.users": TableOptions(where="name <> 'hidden'"),
        "shop.notes": TableOptions(track_history="name"),
    }
    options = {
        "target": replace(sync.tables.database, scd_type=2),
        "tables": tables,
        "by_spark": by_spark,
    }

    def versions(table: str) -> list[tuple[Any, ...]]:
        rows = sync.rows(table)
        places = ((row.get("__START_AT"), row.get("__END_AT")) for row in rows)
        offsets = (
            [None if place is None else place["offset"] for place in each] for each in places
        )
        return sorted(
            ((row["id"], row.get("name"), *each) for row, each in zip(rows, offsets, strict=True)),
            key=repr,
        )

    changes = [
        ("insert", ORDER),
        ("update", {"id": 1, "name": "b"}, {"name": "a"}),
        ("delete", {"id": 1, "name": "b"}),
        ("insert", {"id": 1, "name": "c"}),
    ]
    noted = [
        ("insert", ORDER | {"note": "x"}),
        ("update", ORDER | {"note": "y"}, {"note": "x"}),
        ("update", {"id": 1, "name": "b", "note": "y"}, {"name": "a"}),
    ]
    tagged = [("insert", ORDER), ("update", {"id": 1, "name": "b"}, {"name": "a"})]
    write(sync, {"orders": changes, "tags": tagged, "users": tagged[:1], "notes": noted})
    sync.run(**options)
    # The update of another column changes its version, and is a row that is valid at no time.
    assert versions("notes") == [(1, "a", 0, 2), (1, "a", 1, 1), (1, "b", 2, None)]
    first = [(1, "a", 0, 1), (1, "b", 1, 2), (1, "c", 3, None)]
    assert versions("orders") == first
    assert versions("tags") == [(1, "b", None, None)]
    write(
        sync,
        {
            "orders": [
                ("update", {"id": 1, "name": "d", "note": "new"}, {"name": "c"}),
                ("update", {"id": 2, "name": "d"}, {"id": 1}),  # the key changes
            ],
            "users": [
                ("update", {"id": 1, "name": "hidden"}, {"name": "a"}),
                ("update", {"id": 1, "name": "z"}, {"name": "hidden"}),
            ],
        },
    )
    sync.run(**options)
    second = [*first[:2], (1, "c", 3, 4), (1, "d", 4, 5), (2, "d", 5, None)]
    assert versions("orders") == second
    assert versions("users") == [(1, "a", 0, 1), (1, "z", 2, None)]
    # The micro-batch is repeated, and then an event of the producer, which is no version.
    sync.forget_last_commit()
    write(sync, {"orders": [("insert", {"id": 2, "name": "d"})]})
    sync.run(**options)
    assert versions("orders") == sorted([*second, (2, "d", 6, 6)], key=repr)
    assert {row["__START_AT"]["partition"] for row in sync.rows("orders")} == {"orders[0]"}


@pytest.mark.parametrize(
    ("kind", "by_spark", "seed", "rounds"),
    [
        ("delta", True, "delta", 2),
        ("iceberg", False, "iceberg", 2),
        *(
            pytest.param(kind, by_spark, f"{kind} {seed}", 20, marks=pytest.mark.soak)
            for kind, by_spark in [("delta", False), ("delta", True), ("iceberg", True)]
            for seed in range(3)
        ),
    ],
)
def test_random_histories_of_keys_in_several_partitions(
    new_sync: NewBoundedSync, kind: str, by_spark: bool, seed: str, rounds: int
) -> None:
    """All micro-batches are repeated but the first and the last."""
    sync, story = new_sync(kind), Story(Random(seed))
    options = {"target": replace(sync.tables.database, scd_type=2), "by_spark": by_spark}
    for number in range(rounds):
        sync.produce("all", story.messages(80), partitions=3)
        sync.run(**options)
        if 0 < number < rounds - 1:
            sync.forget_last_commit()
            sync.run(**options)
        for table in ("orders", "items"):
            assert versions(sync, table) == story.history(table)
    assert len({row["__START_AT"]["partition"] for row in sync.rows("orders")}) == 3


BEFORE = {
    "version_together": ["insert"],
    "version_alone": ["insert"],
    "deleted_alone": ["insert", "delete"],
    "delete_alone": ["delete"],
}
"""The changes of a key in the first partition, by the name of the case.

They are in the micro-batch of the change in the second partition, or alone in the one before.
"""


def test_changes_of_a_key_in_two_partitions_are_an_error(sync: BoundedSync) -> None:
    def of_shard(shard: int, kind: str, key: int, name: str) -> list[Message]:
        return [maxwell("sharded", kind, {"id": key, "name": name}, database=f"shop_{shard}")]

    tables = {
        f"shop.{case}": TableOptions(scd_type=2, schema="id BIGINT, name STRING", primary_key="id")
        for case in BEFORE
    }
    tables["shop.sharded"] = TableOptions(shards="shop_[0-9]+[.]sharded", scd_type=2)

    def first(when: str) -> None:
        for case, kinds in BEFORE.items():
            if case.endswith(when):
                # In the order of places, versions of the first partition ended before the new
                # change.
                sync.produce(
                    case,
                    [
                        ProducerRecord(None, maxwell(case, kind, ORDER)[1], partition=0)
                        for kind in kinds
                    ],
                )

    first("alone")
    for shard in (1, 2):
        changes = [("insert", "a"), ("update", "b")]
        messages = [each for kind, name in changes for each in of_shard(shard, kind, shard, name)]
        sync.produce(f"shard_{shard}", messages)
    sync.run(tables=tables)
    places = [
        {"partition": f"shard_{shard}[0]", "offset": offset}
        for shard in (1, 2)
        for offset in (0, 1)
    ]
    sharded = sorted(
        (row["id"], row["name"], row["__START_AT"].asDict()) for row in sync.rows("sharded")
    )
    assert sharded == [
        (1, "a", places[0]),
        (1, "b", places[1]),
        (2, "a", places[2]),
        (2, "b", places[3]),
    ]
    before = {
        table: sync.rows(table)
        for table in (*(case for case in BEFORE if case.endswith("alone")), "sharded")
    }
    assert [len(rows) for rows in before.values()] == [1, 1, 1, 4]
    first("together")
    for case in BEFORE:
        records = [
            ProducerRecord(None, maxwell(case, "insert", {"id": key, "name": "b"})[1], partition=1)
            for key in (5, 1)
        ]
        sync.produce(case, records)
    sync.produce("shard_2", of_shard(2, "insert", 1, "c"))  # a row that moves
    text = sync.error(tables=tables)
    reason = (
        "[CHANGE_ORDER] the changes of a key are in the Kafka partitions {} and {}, and so their "
        "order is unknown"
    )
    expected = [f"shop.{case}: {reason.format(f'{case}[0]', f'{case}[1]')}" for case in BEFORE]
    expected.append(f"shop.sharded: {reason.format('shard_1[0]', 'shard_2[0]')}")
    assert [sentence for sentence in expected if sentence not in text] == []
    assert {table: sync.rows(table) for table in before} == before
