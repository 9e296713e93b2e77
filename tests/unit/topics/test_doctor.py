"""The faults of a producer: none in healthy topics, and each in one that has it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from cdc_formats.topics.profile.doctor import FAULTS, diagnose
from cdc_formats.topics.sampler import SampledRecord
from tests.support.paths import REPOSITORY
from tests.support.samples import messages, recorded, sample

pytestmark = pytest.mark.usefixtures("no_other_formats")

HEALTHY = (
    "canal-mariadb-flat",
    "dbz34-mariadb-json",
    "dbz34-mariadb-upsert.inventory.dbz_signal",
    "dbz37-postgres-structuredschema.inventory.temporal",
    "flink-ogg.tags",
    "flink-upsert.tags",
    "maxwell-mariadb",
)
SOURCE = {"connector": "mysql", "db": "shop", "table": "items", "version": "3.7.0.Final"}


def change(op: str, before: Any, after: Any, at: int, **source: Any) -> Any:
    position = {"file": "binlog.000001", "pos": at, "row": 0, "ts_ms": at}
    return {"op": op, "before": before, "after": after, "source": {**SOURCE, **position, **source}}


def row(id: int, **columns: Any) -> dict[str, Any]:
    return {"id": id, "name": "a", "note": "b", **columns}


def keyed(*changes: Any) -> list[SampledRecord]:
    """Records of changes, each with the key of its row."""
    return sample(
        *(
            (
                json.dumps({"id": (each["after"] or each["before"])["id"]}).encode(),
                json.dumps(each).encode(),
            )
            for each in changes
        )
    )


def in_partition(records: list[SampledRecord], number: int) -> list[SampledRecord]:
    return [each._replace(partition=number) for each in records]


INSERTED, UPDATED = (
    change("c", None, row(1), 1),
    change("u", row(1), row(1, name="c"), 2),
)
DELETED = change("d", row(1, name="c"), None, 3)
CUTS = [row(id, note=f"{id:02}{'x' * (400 + 100 * id)}"[:1000]) for id in range(12)]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_topic_has_no_fault(name: str) -> None:
    assert diagnose(recorded(name)) == []


FAULTY: dict[str, Callable[[], list[Any]]] = {
    "missed change": lambda: diagnose(
        keyed(INSERTED, change("u", row(1, name="lost"), row(1, name="c"), 2))
    ),
    "inserted twice": lambda: diagnose(keyed(INSERTED, change("c", None, row(1, name="d"), 5))),
    "partial rows": lambda: diagnose(
        keyed(INSERTED, change("u", None, {"id": 1, "name": "c"}, 2), change("c", None, row(2), 3))
    ),
    "unavailable values": lambda: diagnose(
        recorded("dbz37-postgres-json.inventory.indexed"), format="debezium-json"
    ),
    "several partitions": lambda: diagnose(
        [*keyed(INSERTED), *in_partition(keyed(UPDATED), 1)], format="debezium-json"
    ),
    "other key": lambda: diagnose(
        [
            each._replace(key=b'{"name": "a"}')
            for each in messages(
                {
                    "database": "shop",
                    "table": "items",
                    "type": "insert",
                    "data": row(1),
                    "primary_key_columns": ["id"],
                }
            )
        ]
    ),
    "shared keys": lambda: diagnose(
        keyed(INSERTED, change("c", None, row(1), 2, table="tags")), format="debezium-json"
    ),
    "no tombstones": lambda: diagnose(keyed(INSERTED, UPDATED, DELETED), compacted=True),
    "compacted": lambda: diagnose(keyed(INSERTED), compacted=True),
    "aborted transactions": lambda: diagnose(keyed(INSERTED), aborted=keyed(UPDATED)),
    "cut values": lambda: diagnose(
        keyed(*(change("c", None, each, at) for at, each in enumerate(CUTS)))
    ),
    "types unknown": lambda: diagnose(recorded("dbz34-mariadb-json.inventory.customers")),
}


def test_each_fault_has_a_topic_that_shows_it() -> None:
    assert FAULTY.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_with_a_record_that_shows_it(name: str) -> None:
    (fault,) = (each for each in FAULTY[name]() if each.name == name)
    remedy = fault.to_dict()["remedy"]
    assert (remedy, f"mend: {remedy}" in str(fault)) == (FAULTS[name][1], True)
    assert "@" in fault.where


def test_the_page_of_producers_has_the_faults() -> None:
    page = (REPOSITORY / "docs" / "producers.md").read_text("utf-8")
    for name, (fault, remedy) in FAULTS.items():
        assert f"| {name} | {fault} | {remedy} |\n" in page


def test_what_is_delivered_again_or_read_by_a_snapshot_is_no_fault() -> None:
    snapshot = change("r", None, row(1, name="c"), 3)
    healthy = [
        INSERTED,
        UPDATED,
        INSERTED,
        UPDATED,
        snapshot,
        DELETED,
        change("c", None, row(1), 9),
    ]
    assert diagnose(keyed(*healthy), format="debezium-json", decimal_handling_mode="double") == []


def test_a_topic_of_no_format_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="no format reads this topic"):
        diagnose(sample((None, b"\x00\x01")))
