"""Facts that `sync_database` keeps with its schemas, and what a micro-batch may not contradict."""

import json
import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.errors import (
    SchemaError,
)
from cdc_formats.topics.client import TopicDescription
from cdc_formats.values.schema import columns
from normalize import DeltaDatabase
from normalize.core.guard import Expected, Identity, PartitionSummary, SourceTable
from normalize.tables.facts import (
    GuardFacts,
    Proof,
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
from normalize.tables.table_options import Selection
from normalize.tables.targets import TargetError
from normalize.tables.writers.dialects import Dialect, MySql
from tests.support.databases import RECORDS, Message, maxwell
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


def summaries_of(*topics: list[Message], **options: Any) -> dict[str, Any]:
    """Return what a task that routes these messages of the topics t, u returns of each table."""
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
        for topic, messages in zip(("t", "u"), topics, strict=True)
        for offset, (key, value) in enumerate(messages)
    ]
    route = Route(get_format("maxwell-json"), Selection(), dead_letters=None, **options)
    *_, last = route_pass(iter([pa.RecordBatch.from_pylist(rows, schema=RECORDS)]), route=route)
    return merged(decode_summary(packed) for packed in last.column("summary").to_pylist())


FIRST = maxwell("orders", "insert", {"id": 1})


def test_summaries_have_all_keys_and_topics_of_a_table() -> None:
    wide = text({"database": "shop", "table": "orders", "pk.id": 2, "pk.v": 3})
    both = [FIRST, maxwell("items", "insert", {"id": 1})]
    last = (wide, maxwell("orders", "delete", {"id": 2})[1])
    summaries = summaries_of(both, [*both, last], fail=True)
    assert {name: (each.topics, each.source_keys) for name, each in summaries.items()} == {
        "shop.orders": ({"t", "u"}, {("id",), ("id", "v")}),
        "shop.items": ({"t", "u"}, {("id",)}),
    }


def test_record_that_cannot_be_read_is_one_of_its_topic() -> None:
    messages = [(None, FIRST[1]), (None, b"{"), (None, b"[")]
    unread = summaries_of(messages, messages, fail=False, stops_table=True)[""].unread
    assert unread.keys() == {"t", "u"}
    assert re.fullmatch(r"\[MALFORMED_MESSAGE\].* in u\[0\]@1.*", unread["u"])


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
# the file


NAMED = Expected(Identity(("table",), ("",), False, ("id",)), {"t": TopicDescription("x", 2)})


def seen(partition: int, stamp: int, table: str = "") -> PartitionSummary:
    """What a micro-batch shows of a partition."""
    tables = [SourceTable({"table": table}, "t", f"t[{partition}]@{stamp}")] if table else []
    return PartitionSummary("t", partition, stamp, tables, 0)


SOURCE_KEYS: list[tuple[str, Any, Any, Key]] = [
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
]
# --------------------------------------------------------------------------------------------------
# facts


def checked(kept: TableFacts, seen: TableFacts, *columns: str) -> TableFacts:
    """Return what is kept of a table after a micro-batch that shows `seen`."""
    named = {"columns": columns} if columns else {}
    return checked_facts(kept, seen, ("id",), user_key=False, file=FILE, **named)


def masked(before: str | None, after: str | None, target: str, *columns: str) -> dict[str, str]:
    """Return the masks of a table in which `email` gets another mask."""
    kept, seen = ({} if mask is None else {"email": mask} for mask in (before, after))
    return checked(TableFacts(target, masks=kept), TableFacts("orders", masks=seen), *columns).masks


def with_options(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    kept, seen_now = (TableFacts("orders", options=options) for options in (before, now))
    return checked(kept, seen_now).options


def topics_after(kept: QueryFacts, query: str = "q1", **ids: str) -> QueryFacts:
    described = {name: TopicDescription(of, 1) for name, of in ids.items()}
    return checked_topics(kept, query, described, "lake")


def source_key(format: str, key: Any, value: Any) -> Key:
    record = (None if key is None else text(key), None if value is None else text(value))
    return Router(get_format(format), Selection()).route("t", *record).source_key


def guarded(
    kept: GuardFacts, *summaries: PartitionSummary, query: str = "q", batch: int = 0
) -> GuardFacts:
    return checked_guard(kept, list(summaries), NAMED, query=query, batch=batch)


def after_growth(batch: int, *summaries: PartitionSummary) -> GuardFacts:
    """Return the guard of a topic that got a partition in the micro-batch 7."""
    return checked_guard(GROWN_FACTS, list(summaries), GROWN, query="q", batch=batch)


FIRST_TOPICS = QueryFacts("q1", {"a": "A", "b": "B"}, "lake")
OF_TARGETS = {"shop1.orders": "orders", "shop2.orders": "Orders", "shop1.items": "items"}
OF_TOPICS = {"shop.orders": ("all", "orders"), "shop.items": ("all",)}
STORED = TableFacts("orders", (("id",), ("id", "v")), ("t",))
OF_ORDERS = TableSchema("shop.orders", columns("id INT NOT NULL"), ("id",), facts=STORED)
OF_EARLIER = {
    "table": "t",
    "schema": ["id INT NOT NULL"],
    "primary_key": ["id"],
    "format_options": {},
    "notes": [],
    "stopped": "",
}
GUARD = guarded(GuardFacts(), seen(0, 5, "a"))
GROWN = Expected(Identity(), {"t": TopicDescription("x", 3)})
BOTH = seen(2, 50), seen(0, 40)
GROWN_FACTS = checked_guard(
    guarded(GuardFacts(), seen(0, 5)), list(BOTH), GROWN, query="q", batch=7
)
FACTS: dict[str, tuple[object, object]] = {
    "the first key of the source": (after((), ("id",)), (("id",),)),
    "a key of the source that stays": (after((("id",),), ("id",)), (("id",),)),
    "a key that Maxwell writes in lower case": (
        after((("id", "v"),), ("V", "ID"), key=("id", "v")),
        (("id", "v"),),
    ),
    "records that name no key": (after((("id",),)), (("id",),)),
    # A file of an earlier release, whose key a user made finer: its rows are distinguished.
    "a narrower key of the source": (after((), ("id",), key=("id", "v")), (("id",),)),
    "the key of the user, and the first keys of the source": (
        after((), ("uid",), ("uid", "zone"), user_key=True),
        (("uid",), ("uid", "zone")),
    ),
    **{
        f"the key of {format} in {key} and {str(value)[:60]}": (
            source_key(format, key, value),
            expected,
        )
        for format, key, value, expected in SOURCE_KEYS
    },
    "one of two tables has rows in the target": (
        [
            same_target(table, OF_TARGETS, ["shop1.orders"])
            for table in ("shop2.orders", "shop1.orders")
        ],
        [["shop1.orders"], []],
    ),
    **{
        f"{len(owners)} of two tables have rows in the target": (
            [same_target(table, OF_TARGETS, owners) for table in OF_TARGETS],
            [["shop2.orders"], ["shop1.orders"], []],
        )
        for owners in ([], ["shop1.orders", "shop2.orders"])
    },
    "the name of the target": (
        checked(TableFacts(), TableFacts("shop_orders", [], [])).target,
        "shop_orders",
    ),
    **{
        f"the mask {before} becomes {now}, {case}": (
            masked(before, now, *arguments),
            {} if now is None else {"email": now},
        )
        for before, now in ((None, "redact"), ("redact", None), ("hmac 1", "hmac 2"))
        for case, arguments in (
            ("of a column that the user removed from the file", ("orders", "id")),
            ("before the first row", ("", "email")),
        )
    },
    "the topics of a query": (
        topics_after(topics_after(QueryFacts(), a="A"), a="A", b="B"),
        FIRST_TOPICS,
    ),
    "a topic that is missing, and a broker that does not know the ids": (
        topics_after(FIRST_TOPICS, b=""),
        FIRST_TOPICS,
    ),
    "another checkpoint": (
        topics_after(FIRST_TOPICS, "q2", a="Z"),
        QueryFacts("q2", {"a": "Z"}, "lake"),
    ),
    "the tables of topics": (
        [tables_of_topic(topic, OF_TOPICS) for topic in ("all", "orders", "other")],
        [["shop.items", "shop.orders"], ["shop.orders"], ["other"]],
    ),
    "the file of a table is read back": (
        TableSchema.from_json(OF_ORDERS.to_json(), FILE),
        OF_ORDERS,
    ),
    "facts in the file of a table": (
        json.loads(OF_ORDERS.to_json())["facts"],
        {
            "target": "orders",
            "source_keys": [["id"], ["id", "v"]],
            "topics": ["t"],
            "guard": {"query": "", "batch": -1, "before": "", "after": ""},
            "masks": {},
            "written": False,
            "position_column": "",
            "options": {},
            "columns": [],
            "verified": msgspec.to_builtins(Proof()),
            "verifying": msgspec.to_builtins(Proof()),
        },
    ),
    "the file of an earlier release has no facts": (
        TableSchema.from_json(json.dumps(OF_EARLIER), FILE),
        TableSchema("t", columns("id INT NOT NULL"), ("id",)),
    ),
    **{
        f"the options {now} after {before}": (with_options(before, now), now)
        for before, now in (
            ({}, {"where": "id > 1"}),  # a file of an earlier release
            ({"where": "id > 1"}, {"where": "id > 1"}),
            ({"deleted_column": ""}, {"deleted_column": "gone_at"}),
        )
    },
    **{
        f"the target {now} after {kept!r}": (
            require_same_address(QueryFacts(address=kept), now, "/f.json"),
            None,
        )
        # The first is a file of release 0.2.0.
        for kept, now in (("", "delta /lake"), ("delta /lake", "delta /lake"))
    },
    "a guard that does not change is kept": (
        guarded(GUARD, seen(1, 6, "a"), batch=1) is GUARD,
        True,
    ),
    "another checkpoint may read another table": (
        guarded(GUARD, seen(1, 6, "b"), query="other").query,
        "other",
    ),
    "a repeated micro-batch is compared with the guard before it": (
        after_growth(7, *BOTH),
        GROWN_FACTS,
    ),
}
"""Facts, and what they must be."""


@pytest.mark.parametrize(("fact", "expected"), FACTS.values(), ids=FACTS)
def test_a_fact_of_a_table_or_a_query(fact: object, expected: object) -> None:
    assert fact == expected


test_error_texts = error_test(
    __file__,
    {
        **{
            f"another source key, {number}": lambda kept=kept, other=other: after(
                kept, ("id",), other
            )
            for number, (kept, other) in enumerate(
                [
                    (kept, other)
                    for kept in ((("id",),), ())  # the second is a file of an earlier release
                    for other in (("id", "v"), ("v",), ("id2",))
                ],
                1,
            )
        },
        "another name of the target": lambda: checked(
            TableFacts("orders"), TableFacts("shop_orders", [], [])
        ),
        **{
            f"another mask of a column, {number}": lambda before=before, now=now: masked(
                before, now, "orders", "id", "email"
            )
            for number, (before, now) in enumerate(
                [(None, "redact"), ("redact", None), ("hmac 1", "hmac 2")], 1
            )
        },
        "a topic with another id": lambda: topics_after(FIRST_TOPICS, a="A", b="C"),
        **{
            f"another target, {number}": lambda kept=kept, now=now: require_same_address(
                QueryFacts(address=kept), now, "/f.json"
            )
            for number, (kept, now) in enumerate(
                [
                    ("delta /lake", "delta /lake2"),
                    ("jdbc:postgresql://a/shop", "jdbc:postgresql://b/shop"),
                ],
                1,
            )
        },
        **{
            f"an option that decides which rows the target has, {number}": lambda before=before, now=now: (
                with_options(before, now)
            )
            for number, (before, now) in enumerate(
                [
                    ({"where": ""}, {"where": "id > 1"}),
                    ({"where": "id > 1"}, {}),
                    ({"deleted_column": "a"}, {"deleted_column": "b"}),
                    ({"shard_column": "a"}, {"shard_column": ""}),
                ],
                1,
            )
        },
        "a fact that does not exist": lambda: TableSchema.from_json(
            json.dumps(OF_EARLIER | {"facts": {"targt": "t"}}), FILE
        ),
        "a second table of a query": lambda: guarded(GUARD, seen(1, 6, "b"), batch=1),
        "an older record after those of an added partition": lambda: after_growth(8, seen(0, 45)),
        "narrower source key is an error if the wider one is kept": lambda: after(
            (("id", "v"),), ("id",), key=("id", "v")
        ),
        "key of the user may differ from the first keys of the source alone": lambda: after(
            (("uid",),), ("uid", "zone"), user_key=True
        ),
    },
)
