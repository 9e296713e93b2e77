"""Facts that `sync_database` keeps with its schemas, and what a micro-batch may not contradict."""

import json
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.errors import (
    PartitionsAddedError,
    SchemaError,
    SeveralTablesError,
    TopicReplacedError,
)
from cdc_formats.topics.client import TopicDescription
from cdc_formats.values.schema import columns
from normalize import DeltaDatabase
from normalize.core.guard import Expected, Identity, PartitionSummary, SourceTable
from normalize.tables.facts import (
    GuardFacts,
    QueryFacts,
    TableFacts,
    checked_facts,
    checked_guard,
    checked_topics,
    require_same_address,
    same_target,
    tables_of_topic,
)
from normalize.tables.route import Route, Router, decode_summary, merged, route_pass
from normalize.tables.schema import TableSchema
from normalize.tables.table_options import Selection, SyncError
from normalize.tables.targets import TargetError
from normalize.tables.writers.dialects import Dialect, MySql
from tests.support.databases import RECORDS, maxwell
from tests.support.error_texts import error_test

Key = tuple[str, ...]
FILE = "/lake/_schemas/shop.orders.json"


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def after(
    kept: tuple[Key, ...], *seen: Key, key: Key = ("id",), user_key: bool = False
) -> tuple[Key, ...]:
    """Return the kept keys of a table merged by `key` after a micro-batch's records name `seen`."""
    facts = TableFacts("orders", kept, ("t",))
    new_facts = checked_facts(
        facts, TableFacts("orders", set(seen), {"t", "u"}), key, user_key=user_key, file=FILE
    )
    assert new_facts.topics == ("t", "u")
    return new_facts.source_keys


# --------------------------------------------------------------------------------------------------
# the source's key


def test_source_key_that_stays_is_kept() -> None:
    assert after((), ("id",)) == (("id",),)
    assert after((("id",),), ("id",)) == (("id",),)
    assert after((("id", "v"),), ("V", "ID"), key=("id", "v")) == (
        ("id", "v"),
    )  # Maxwell writes lower case
    assert after((("id",),)) == (("id",),)  # records that name no key


@pytest.mark.parametrize(
    "other", [("id", "v"), ("v",), ("id2",)], ids=["wider", "another", "renamed"]
)
@pytest.mark.parametrize("kept", [(("id",),), ()], ids=["kept key", "file of an earlier release"])
def test_another_source_key_is_an_error(kept: tuple[Key, ...], other: Key) -> None:
    with pytest.raises(
        SyncError,
        match=(
            r"source was \(id\), and its records now name \(.*\): different rows .* source_keys in "
            r"/lake/"
        ),
    ):
        after(kept, ("id",), other)


def test_narrower_source_key_is_an_error_if_the_wider_one_is_kept() -> None:
    # A file of an earlier release, whose key a user made finer: its rows are distinguished.
    assert after((), ("id",), key=("id", "v")) == (("id",),)


def test_key_of_the_user_may_differ_from_the_first_keys_of_the_source_alone() -> None:
    assert after((), ("uid",), ("uid", "zone"), user_key=True) == (("uid",), ("uid", "zone"))


CONNECT_KEY = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 1, "v": 2}}
ENVELOPE = {
    "before": None,
    "after": {"id": 1, "v": 2},
    "op": "c",
    "source": {"connector": "mysql", "db": "shop", "table": "orders"},
}
MAXWELL = {
    "database": "shop",
    "table": "orders",
    "type": "insert",
    "ts": 1,
    "data": {"id": 1, "v": 2},
}
CANAL = {
    "database": "shop",
    "table": "orders",
    "type": "INSERT",
    "isDdl": False,
    "data": [{"id": "1"}],
}
OGG = {"table": "SHOP.ORDERS", "op_type": "I", "after": {"id": 1}}


@pytest.mark.parametrize(
    ("format", "key", "value", "expected"),
    [
        ("debezium-json", {"id": 1, "v": 2}, ENVELOPE, ("id", "v")),
        ("debezium-json", CONNECT_KEY, ENVELOPE, ("id", "v")),
        ("debezium-json", None, ENVELOPE, ()),
        ("debezium-json", 5, ENVELOPE, ()),
        ("debezium-flat-json", {"id": 1}, {"id": 1}, ("id",)),
        ("debezium-flat-json", {"id": 1}, None, ("id",)),
        ("upsert-kafka", {"id": 1, "v": 2}, None, ("id", "v")),
        (
            "debezium-mongodb-json",
            {"id": "7"},
            {"after": '{"_id": 7}', "op": "c", "source": {}},
            ("_id",),
        ),
        ("maxwell-json", None, MAXWELL | {"primary_key_columns": ["id", "v"]}, ("id", "v")),
        ("maxwell-json", {"database": "shop", "table": "orders", "pk.id": 1}, MAXWELL, ("id",)),
        ("maxwell-json", ["shop", "orders", [{"id": 1}, {"v": 2}]], MAXWELL, ("id", "v")),
        ("maxwell-json", {"database": "shop", "table": "orders", "_uuid": "a"}, MAXWELL, ()),
        ("canal-json", None, CANAL | {"pkNames": ["id", "v"]}, ("id", "v")),
        ("canal-json", None, CANAL | {"pkNames": None}, ()),
        ("ticdc-canal-json", None, CANAL | {"pkNames": ["id"]}, ("id",)),
        ("ogg-json", None, OGG | {"primary_keys": ["id", "v"]}, ("id", "v")),
        ("ogg-json", {"id": 1}, OGG, ()),
        ("changelog-json", {"id": 1}, {"op": "+I", "data": {"id": 1}}, ()),
    ],
)
def test_source_key_of_each_format(format: str, key: Any, value: Any, expected: Key) -> None:
    record = (None if key is None else text(key), None if value is None else text(value))
    assert Router(get_format(format), Selection()).route("t", *record).source_key == expected


def test_summaries_have_all_keys_and_topics_of_a_table() -> None:
    wide = text({"database": "shop", "table": "orders", "pk.id": 2, "pk.v": 3})
    messages = [
        maxwell("orders", "insert", {"id": 1}),
        maxwell("items", "insert", {"id": 1}),
        (wide, maxwell("orders", "delete", {"id": 2})[1]),
    ]
    rows = [
        {
            "key": key,
            "value": value,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "stamp": 5,
            "headers": None,
        }
        for topic in ("t", "u")
        for offset, (key, value) in enumerate(messages[: 2 if topic == "t" else 3])
    ]
    route = Route(get_format("maxwell-json"), Selection(), fail=True, dead_letters=None)
    *_, last = route_pass(iter([pa.RecordBatch.from_pylist(rows, schema=RECORDS)]), route=route)
    summaries = merged(decode_summary(packed) for packed in last.column("summary").to_pylist())
    assert {name: (each.topics, each.source_keys) for name, each in summaries.items()} == {
        "shop.orders": ({"t", "u"}, {("id",), ("id", "v")}),
        "shop.items": ({"t", "u"}, {("id",)}),
    }


def test_record_that_cannot_be_read_is_one_of_its_topic() -> None:
    rows = [
        {
            "key": None,
            "value": value,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "stamp": 5,
            "headers": None,
        }
        for topic in ("t", "u")
        for offset, value in enumerate([maxwell("orders", "insert", {"id": 1})[1], b"{", b"["])
    ]
    route = Route(
        get_format("maxwell-json"), Selection(), fail=False, dead_letters=None, stops_table=True
    )
    *_, last = route_pass(iter([pa.RecordBatch.from_pylist(rows, schema=RECORDS)]), route=route)
    unread = merged(decode_summary(packed) for packed in last.column("summary").to_pylist())[
        ""
    ].unread
    assert sorted(unread) == ["t", "u"]
    assert unread["u"].startswith("[MALFORMED_MESSAGE]")
    assert "in u[0]@1" in unread["u"]


# --------------------------------------------------------------------------------------------------
# the target


def test_target_of_two_tables() -> None:
    targets = {"shop1.orders": "orders", "shop2.orders": "Orders", "shop1.items": "items"}
    assert same_target("shop2.orders", targets, ["shop1.orders"]) == ["shop1.orders"]
    assert same_target("shop1.orders", targets, ["shop1.orders"]) == []
    # Neither table has rows in it, or both have.
    for owners in ([], ["shop1.orders", "shop2.orders"]):
        assert [same_target(table, targets, owners) for table in targets] == [
            ["shop2.orders"],
            ["shop1.orders"],
            [],
        ]


def test_another_name_of_the_target_is_an_error() -> None:
    kept, seen = TableFacts("orders"), TableFacts("shop_orders", [], [])
    with pytest.raises(
        SyncError,
        match=(
            "in the target 'orders', and its target is now 'shop_orders': pass .* write its name "
            f"into {FILE}"
        ),
    ):
        checked_facts(kept, seen, ("id",), user_key=False, file=FILE)
    assert (
        checked_facts(TableFacts(), seen, ("id",), user_key=False, file=FILE).target
        == "shop_orders"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, "redact"), ({"email": "redact"}, None), ({"email": "hmac 1"}, "hmac 2")],
)
def test_another_mask_of_a_column_is_an_error(before: dict[str, str], after: str | None) -> None:
    masks = {} if after is None else {"email": after}
    kept, seen = TableFacts("orders", masks=before), TableFacts("orders", masks=masks)
    with pytest.raises(
        SyncError, match=f"the mask of 'email' is {after!r}, and was .* delete its file {FILE}"
    ):
        checked_facts(kept, seen, ("id",), user_key=False, file=FILE, columns=["id", "email"])
    # A column that the user removed from the file is not compared.
    facts = checked_facts(kept, seen, ("id",), user_key=False, file=FILE, columns=["id"])
    assert facts.masks == masks
    first = checked_facts(
        TableFacts(masks=before), seen, ("id",), user_key=False, file=FILE, columns=["email"]
    )
    assert first.masks == masks


@pytest.mark.parametrize("name", ["_delta_log", "_Change_Data", "_spark_metadata"])
@pytest.mark.parametrize("database", ["/lake/shop", "shop"], ids=["path", "catalog"])
def test_name_of_a_folder_in_tables_is_no_target_in_delta(name: str, database: str) -> None:
    with pytest.raises(
        TargetError,
        match=f"the table name '{name}' is that of a folder in Delta tables: pass tables=",
    ):
        DeltaDatabase(database).target(name)
    assert DeltaDatabase(database).target("_migrations")


@pytest.mark.parametrize(
    ("dialect", "longest", "refused"),
    [
        (Dialect(), "ä" * 31 + "a", "ä" * 32),
        (MySql(), "ä" * 64, "ä" * 65),
        (MySql(), "a", "a "),
        (Dialect(), "a", "a\0"),
    ],
)
def test_names_of_tables_that_a_database_cuts_or_refuses(
    dialect: Dialect, longest: str, refused: str
) -> None:
    dialect.require_name(longest, "table")
    with pytest.raises(
        SchemaError,
        match=(
            r"the table name '.*' is empty, longer than (PostgreSQL's 63 bytes|MySQL's 64 "
            r"characters)"
        ),
    ):
        dialect.require_name(refused, "table")


# --------------------------------------------------------------------------------------------------
# the topics


def test_topic_with_another_id_is_an_error_for_the_same_checkpoint() -> None:
    def described(**ids: str) -> dict[str, TopicDescription]:
        return {name: TopicDescription(of, 1) for name, of in ids.items()}

    first = checked_topics(QueryFacts(), "q1", described(a="A"), "lake")
    later = checked_topics(first, "q1", described(a="A", b="B"), "lake")
    assert later == QueryFacts("q1", {"a": "A", "b": "B"}, "lake")
    # A topic that is missing now, and a broker that does not know the ids.
    assert checked_topics(later, "q1", described(b=""), "lake") == later
    with pytest.raises(
        TopicReplacedError, match=r"topic b was deleted and created again .*id B, now C"
    ):
        checked_topics(later, "q1", described(a="A", b="C"), "lake")
    assert checked_topics(later, "q2", described(a="Z"), "lake") == QueryFacts(
        "q2", {"a": "Z"}, "lake"
    )


@pytest.mark.parametrize(
    ("kept", "now", "is_same"),
    [
        ("", "delta /lake", True),  # a file of release 0.2.0
        ("delta /lake", "delta /lake", True),
        ("delta /lake", "delta /lake2", False),
        ("jdbc:postgresql://a/shop", "jdbc:postgresql://b/shop", False),
    ],
)
def test_another_target_is_an_error(kept: str, now: str, is_same: bool) -> None:
    with (
        nullcontext()
        if is_same
        else pytest.raises(
            SyncError,
            match=f"the rows of this query are in {kept}, and its target is now {now}.* into /f.json",
        )
    ):
        require_same_address(QueryFacts(address=kept), now, "/f.json")


def test_tables_of_a_topic() -> None:
    tables = {"shop.orders": ("all", "orders"), "shop.items": ("all",)}
    assert tables_of_topic("all", tables) == ["shop.items", "shop.orders"]
    assert tables_of_topic("orders", tables) == ["shop.orders"]
    assert tables_of_topic("other", tables) == ["other"]


# --------------------------------------------------------------------------------------------------
# the file


def test_facts_are_in_the_file_of_the_table() -> None:
    facts = TableFacts("orders", (("id",), ("id", "v")), ("t",))
    schema = TableSchema("shop.orders", columns("id INT NOT NULL"), ("id",), facts=facts)
    assert TableSchema.from_json(schema.to_json(), FILE) == schema
    not_compared = {
        "at": "",
        "position": "",
        "rows": 0,
        "different": 0,
        "unsettled": 0,
        "after": None,
    }
    assert json.loads(schema.to_json())["facts"] == {
        "target": "orders",
        "source_keys": [["id"], ["id", "v"]],
        "topics": ["t"],
        "guard": {"query": "", "batch": -1, "before": "", "after": ""},
        "masks": {},
        "written": False,
        "position_column": "",
        "options": {},
        "columns": [],
        "verified": not_compared,
        "verifying": not_compared,
    }


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({}, {"where": "id > 1"}, ""),  # a file of an earlier release
        ({"where": "id > 1"}, {"where": "id > 1"}, ""),
        ({"where": ""}, {"where": "id > 1"}, "where is 'id > 1', and was None when the rows"),
        ({"where": "id > 1"}, {}, "where is None, and was 'id > 1' when the rows"),
        ({"deleted_column": ""}, {"deleted_column": "gone_at"}, ""),
        ({"deleted_column": "a"}, {"deleted_column": "b"}, "deleted_column is 'b', and was 'a'"),
        ({"shard_column": "a"}, {"shard_column": ""}, "shard_column is None, and was 'a' when"),
    ],
)
def test_option_that_decides_which_rows_the_target_has_must_stay(
    before: dict[str, str], now: dict[str, str], text: str
) -> None:
    kept, seen = (TableFacts("orders", options=options) for options in (before, now))
    if not text:
        facts = checked_facts(kept, seen, ("id",), user_key=False, file=FILE)
        assert facts.options == now
        return
    with pytest.raises(SyncError, match=f"{text}.* delete its file {FILE} and its target"):
        checked_facts(kept, seen, ("id",), user_key=False, file=FILE)


def test_file_of_an_earlier_release_has_no_facts() -> None:
    old = {
        "table": "t",
        "schema": ["id INT NOT NULL"],
        "primary_key": ["id"],
        "format_options": {},
        "notes": [],
        "stopped": "",
    }
    assert TableSchema.from_json(json.dumps(old), FILE) == TableSchema(
        "t", columns("id INT NOT NULL"), ("id",)
    )
    with pytest.raises(SyncError, match="is not the file of a table"):
        TableSchema.from_json(json.dumps(old | {"facts": {"targt": "t"}}), FILE)


NAMED = Expected(Identity(("table",), ("",), False, ("id",)), {"t": TopicDescription("x", 2)})


def seen(partition: int, stamp: int, table: str = "") -> PartitionSummary:
    """What a micro-batch shows of a partition."""
    tables = [SourceTable({"table": table}, "t", f"t[{partition}]@{stamp}")] if table else []
    return PartitionSummary("t", partition, stamp, tables, 0)


def test_guard_is_kept_only_when_it_changes() -> None:
    first = checked_guard(GuardFacts(), [seen(0, 5, "a")], NAMED, query="q", batch=0)
    assert checked_guard(first, [seen(1, 6, "a")], NAMED, query="q", batch=1) is first
    with pytest.raises(SeveralTablesError):
        checked_guard(first, [seen(1, 6, "b")], NAMED, query="q", batch=1)
    # Another checkpoint may read another topic.
    assert checked_guard(first, [seen(1, 6, "b")], NAMED, query="other", batch=0).query == "other"


def test_repeated_micro_batch_is_compared_with_the_guard_before_it() -> None:
    grown = Expected(Identity(), {"t": TopicDescription("x", 3)})
    before = checked_guard(GuardFacts(), [seen(0, 5)], NAMED, query="q", batch=0)
    both = [seen(2, 50), seen(0, 40)]
    after = checked_guard(before, both, grown, query="q", batch=7)
    assert checked_guard(after, both, grown, query="q", batch=7) == after
    with pytest.raises(PartitionsAddedError, match=r"t\[2\] was added to the topic"):
        checked_guard(after, [seen(0, 45)], grown, query="q", batch=8)


test_error_texts = error_test(
    __file__,
    {
        "narrower source key is an error if the wider one is kept": lambda: after(
            (("id", "v"),), ("id",), key=("id", "v")
        ),
        "key of the user may differ from the first keys of the source alone": lambda: after(
            (("uid",),), ("uid", "zone"), user_key=True
        ),
    },
)
