"""The parts of `sync_database` that need no Spark: routing, schemas, names."""

import json
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import get_format, list_formats
from cdc_formats.errors import DecodeError
from cdc_formats.values.schema import Column, SqlType, columns, source_id, to_ddl
from normalize import DeltaDatabase, IcebergDatabase, JdbcDatabase
from normalize.decode.columnar.known_rows import KnownRows
from normalize.decode.columnar.native import IN_DOUBT, native_module, row_counter
from normalize.decode.plan import DecodePlan
from normalize.tables.changes import TableDecoder, table_changes
from normalize.tables.database_target import table_name
from normalize.tables.route import (
    Route,
    Routed,
    Router,
    decode_summary,
    merged,
    route_pass,
)
from normalize.tables.schema import TableSchema, decide, decide_merged, extend, new_columns
from normalize.tables.table_options import Selection, TableOptions, misspelt
from normalize.tables.targets import TargetError
from tests.support.databases import RECORDS, canal, debezium, maxwell
from tests.support.error_texts import error_test
from tests.support.examples import examples
from tests.support.replay.replaying import read_recording
from tests.support.replay.topics import Topic, topics
from tools.fuzz import mutated

ALL = Selection()


def batch(*messages: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    """Messages as records of one partition."""
    rows = [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "stamp": 5,
            "headers": None,
        }
        for offset, (key, value) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS)


# --------------------------------------------------------------------------------------------------
# routing


def records_in(values: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the table and the value of each packed record."""
    return [
        (value["table"], record["value"])
        for value in values
        for record in pa.ipc.open_stream(value["ipc"]).read_all().to_pylist()
    ]


def test_records_and_summaries_of_a_task() -> None:
    first = [
        maxwell("orders", "insert", {"id": 1}),
        (None, b"{"),
        maxwell("items", "delete", {"id": 1}),
    ]
    second = [maxwell("orders", "update", {"id": 1, "note": "n"}, {"note": None}), (None, None)]
    route = Route(get_format("maxwell-json"), ALL, False, None)
    *parts, last = route_pass(iter([batch(*first), batch(*second)]), route=route)
    assert [records_in(part.to_pylist()) for part in parts] == [
        [("shop.orders", first[0][1]), ("shop.items", first[2][1])],
        [("shop.orders", second[0][1])],
    ]
    summaries = merged(decode_summary(packed) for packed in last.column("summary").to_pylist())
    assert {
        name: (each.records, each.rows, each.names) for name, each in summaries.items() if name
    } == {
        "shop.orders": (2, 2, {"id", "note"}),
        "shop.items": (1, 0, set()),
    }
    assert summaries[""].reasons == {"MALFORMED_MESSAGE": 1, "TOMBSTONE": 1}
    # The driver gets the first records, and learns that they are not all.
    route = replace(route, small=sum(len(value["ipc"]) for value in parts[0].to_pylist()))
    *parts, last = route_pass(iter([batch(*first), batch(*second)]), route=route)
    assert [part.column("small").to_pylist() for part in parts] == [[True, True], [False]]
    assert not any(last.column("small").to_pylist())


ORDERS = TableDecoder(
    DecodePlan(
        format=get_format("maxwell-json"),
        columns=columns("id INT NOT NULL, note STRING"),
        unique_key=("id",),
        distinguished_by=("database", "table", "topic"),
        completes_moved=True,
    ),
    names=frozenset({"id", "note"}),
)


@pytest.mark.parametrize(
    ("last", "most_bytes", "decoded"),
    [
        (maxwell("orders", "update", {"id": 1, "note": "n"}, {"note": None}), 1 << 20, True),
        (maxwell("orders", "update", {"id": 1, "note": "n"}, {"note": None}), 9, False),
        (maxwell("orders", "insert", {"id": 2, "new": 3}), 1 << 20, False),
        (maxwell("orders", "insert", {"id": "x"}), 1 << 20, False),
    ],
    ids=["all", "many bytes", "a new column", "an error"],
)
def test_tasks_decode_the_records_of_known_tables(
    last: tuple[bytes, bytes], most_bytes: int, decoded: bool
) -> None:
    batches = [
        batch(maxwell("orders", "insert", {"id": 1}), maxwell("items", "insert", {"id": 1})),
        batch((None, None), maxwell("orders", "delete", {"id": 7}), last),
    ]
    # The second batch follows the first.
    offsets = pa.array([2, 3, 4])
    batches[1] = batches[1].set_column(4, RECORDS.field("offset"), offsets)
    route = Route(get_format("maxwell-json"), ALL, False, None)
    decoding = replace(route, decoders={"shop.orders": ORDERS}, most_bytes=most_bytes)
    rows = [row for part in route_pass(iter(batches), route=decoding) for row in part.to_pylist()]
    summaries = merged(decode_summary(row["summary"]) for row in rows if row["summary"])
    assert {name: each.undecoded for name, each in summaries.items() if name} == {
        "shop.orders": not decoded,
        "shop.items": False,
    }
    assert [row["table"] for row in rows if row["decoded"] is False] == ["shop.items"]
    changes_of_orders = [row["ipc"] for row in rows if row["decoded"]]
    assert len(changes_of_orders) == decoded
    if decoded:
        [packed] = changes_of_orders
        changes, seen = ORDERS.changes(pa.ipc.open_stream(packed).read_all())
        table = changes.table()
        assert sorted(table.select(["row_kind", "id", "note"]).to_pylist(), key=str) == [
            {"row_kind": "+U", "id": 1, "note": "n"},
            {"row_kind": "-D", "id": 7, "note": None},
        ]
        assert (seen.rows, seen.counts["RECORDS"], seen.source_keys) == (2, 3, {("id",)})


def test_many_bytes_of_a_table_are_several_values_in_their_order() -> None:
    text = "x" * 200_000
    messages = [
        maxwell(name, "insert", {"id": i, "text": text}) for i in range(50) for name in "ab"
    ]
    route = Route(get_format("maxwell-json"), ALL, False, None)
    part, _ = route_pass(iter([batch(*messages)]), route=route)
    assert 2 < part.num_rows < 10
    assert records_in(part.to_pylist()) == [
        (f"shop.{name}", value) for at, name in enumerate("ab") for _, value in messages[at::2]
    ]


@pytest.mark.parametrize("identifier", list_formats())
def test_each_format_has_readers_of_known_rows_or_none(identifier: str) -> None:
    options = {"key_format": "raw"} if identifier == "upsert-kafka" else {}
    known = KnownRows.of(get_format(identifier, **options))
    assert known is None or known.read("t", [None, b"", b"{", b"{}", b"1"]) == {}


Messages = list[tuple[bytes | None, bytes | None]]


def summary_of(format: str, messages: Messages, size: int, selection: Selection = ALL) -> Any:
    """Return the tables of messages in batches of this size, and the summaries."""
    parts = [batch(*messages[start : start + size]) for start in range(0, len(messages), size)]
    *routed, last = route_pass(iter(parts), route=Route(get_format(format), selection, False, None))
    tables, samples = dict[str, list[Any]](), 0
    for value in (value for part in routed for value in part.to_pylist()):
        records = records_in([value])
        tables.setdefault(value["table"], []).extend(records)
        samples += len(records) * value["sample"]
    return tables, samples, merged(decode_summary(packed) for packed in last["summary"].to_pylist())


BY_FORMAT = pytest.mark.parametrize(
    "of_format",
    [
        [*each]
        for _, each in groupby(sorted(topics(), key=attrgetter("format")), attrgetter("format"))
    ],
    ids=lambda each: each[0].format,
)


@BY_FORMAT
@pytest.mark.skipif(native_module() is None, reason="the native decoder is not built")
def test_the_native_decoder_counts_the_rows_that_python_counts(
    of_format: list[Topic],
) -> None:
    format, draw, counted = get_format(of_format[0].format), Random(7), 0
    if KnownRows.of(format) is None:
        pytest.skip("its messages are read one by one")
    router = Router(format, ALL)
    for topic in of_format:
        records = [(each.key, each.value) for each in read_recording(topic.path)][:2_000]
        learnt, values = list[Routed](), list[bytes | None]()
        for key, value in records:
            with suppress(DecodeError):
                routed = router.route("t", key, value)
                if routed.named is not None and routed.named == (learnt or [routed])[0].named:
                    # Columns that only later messages have are new.
                    learnt += [routed] * (draw.random() < 0.2 or not learnt)
            values += [value, mutated((key, value), draw)[1]]
        if not learnt or not learnt[0].rows:
            continue
        results = []
        for native in (True, False):
            known = KnownRows.of(format, native=native)
            assert known is not None
            for routed in learnt:
                assert routed.named is not None
                known.learn(("t", routed.named), routed.names | routed.absent, routed.names)
            results.append(known.read("t", values))
        assert results[0] == results[1]
        counted += sum(map(len, results[0].values()))
    assert counted


@pytest.mark.skipif(native_module() is None, reason="the native decoder is not built")
@pytest.mark.parametrize(
    "identifier",
    [
        "canal-json",
        "changelog-json",
        "debezium-json",
        "maxwell-json",
        "ogg-json",
        "ticdc-canal-json",
    ],
)
def test_the_native_decoder_knows_the_rows_of_a_format(identifier: str) -> None:
    known = KnownRows.of(get_format(identifier))
    assert known is not None
    native = row_counter(known.envelope, {}, {"id": True, "empty": False})
    assert native.counts(pa.array([b"{}", None], pa.binary())) == bytes([IN_DOUBT, IN_DOUBT])


@BY_FORMAT
def test_messages_are_routed_together_as_one_by_one(of_format: list[Topic]) -> None:
    messages: Messages = []
    for topic in of_format:
        if "registry" not in topic.options and "avro" not in topic.format:
            records = [(record.key, record.value) for record in read_recording(topic.path)]
            messages += records[:: max(1, len(records) // examples(1_500))]
    draw, format = Random(5), of_format[0].format
    if not messages:
        pytest.skip("its messages need a registry")
    draw.shuffle(messages)
    one = summary_of(format, messages, 1)
    assert summary_of(format, messages, 1_000) == one
    damaged = [
        mutated((key, value), draw) if draw.random() < 0.02 else (key, value)
        for key, value in messages
    ]
    # A damaged value of a known column is an error of the table's own pass.
    assert len(summary_of(format, damaged, 1_000)[0]) >= len(summary_of(format, damaged, 1)[0])
    some = Selection(include=(".*s",))
    assert summary_of(format, messages, 1_000, some) == summary_of(format, messages, 1, some)


def shards_of(**tables: TableOptions) -> Selection:
    """A selection with these options, of tables of the database ``shop``."""
    return Selection.of((), (), {f"shop.{name}": options for name, options in tables.items()})


def test_tables_of_goldengate_have_a_schema() -> None:
    all_of = TableOptions(shards="S_.[.]T")
    router = Router(
        get_format("ogg-json"), Selection.of((), ("SHOP[.]TMP.*",), {"SHOP.ALL": all_of})
    )
    tables = {
        "SHOP.ORDERS": "SHOP.ORDERS",
        "PDB.SHOP.ORDERS": "PDB.SHOP.ORDERS",
        "A.B.C.D": "`A.B.C.D`",
        "SHOP.TMP_1": "",
        "S_1.T": "SHOP.ALL",
        "T": "T",
    }
    for kind in "ITD":
        routed = {name: router.route("t", None, message(name, kind)).table for name in tables}
        assert routed == tables
    assert table_name("{database}_{table}", "SHOP.ORDERS") == "SHOP_ORDERS"
    assert table_name("{database}_{schema}_{table}", "PDB.SHOP.ORDERS") == "PDB_SHOP_ORDERS"


def message(table: str, kind: str) -> bytes:
    """A message of GoldenGate."""
    image = "before" if kind == "D" else "after"
    return json.dumps({"table": table, "op_type": kind, image: {"ID": 1}}).encode()


# --------------------------------------------------------------------------------------------------
# schemas


def decided(
    *messages: tuple[bytes | None, bytes | None], format: str = "maxwell-json", **options: object
) -> TableSchema:
    """The schema of the table of these messages."""
    records = [(key, value, ()) for key, value in messages]
    return decide(
        "shop.orders",
        records,
        format=get_format(format),
        passed_options=(),
        options=TableOptions(**options),
    )  # type: ignore[arg-type]


def merged_schema(**shards: tuple[bytes | None, bytes | None]) -> TableSchema:
    """The schema of a table that is merged from shards, with a message for each."""
    samples = {name: [(*message, ())] for name, message in shards.items()}
    return decide_merged(
        "shop.orders",
        samples,
        format=get_format("canal-json"),
        passed_options=(),
        options=TableOptions(),
    )


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (TableOptions(), {"id", "balance"}),
        (TableOptions(types={"balance": "DECIMAL(10,2)"}), {"id"}),
        (TableOptions(types={"balance": "as_is"}, exclude_columns="id"), set()),
        (TableOptions(schema="id INT, balance BINARY"), set()),
    ],
)
def test_questions_on_guessed_types_are_kept_and_answered(
    options: TableOptions, asked: set[str]
) -> None:
    # Small integers are no dates and times.
    row = {"id": 1000, "balance": "Pc6+GzfufIc=", "flag": 1}
    arguments = {"format": get_format("debezium-json"), "passed_options": (), "options": options}
    if "id" not in options.exclude_columns:
        decided = decide("t", [(*debezium("t", "c", None, row), [])], **arguments)
        assert decided.questions.keys() == asked
        assert TableSchema.from_json(decided.to_json(), "file").questions == decided.questions
    types = {"id": "int32", "balance": "string", "flag": "int16"}
    assert not decide(
        "t",
        [(*debezium("t", "c", None, row, types), [])],
        **arguments | {"options": TableOptions()},
    ).questions


# --------------------------------------------------------------------------------------------------
# names


@pytest.mark.parametrize("name", ["../orders", "a/b", "..", "a\\b"])
def test_name_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be a folder's name"):
        DeltaDatabase(str(tmp_path)).target(name)


# --------------------------------------------------------------------------------------------------
# facts


def routed(
    message: tuple[bytes | None, bytes | None],
    selection: Selection = ALL,
    format: str = "maxwell-json",
) -> Routed:
    return Router(get_format(format), selection).route("t", *message)


def routed_of(format: str, message: tuple[bytes | None, bytes | None]) -> tuple[object, ...]:
    """Return the table of a message with one row, the rows, the columns and the reason."""
    found = routed(message, format=format)
    return found.table, found.rows, {*found.names}, found.reason


def extended(schema: TableSchema, column: str, message: Any, format: str, **options: Any) -> Any:
    """Return a schema with a column that a message has."""
    return extend(
        schema,
        [column],
        {"shop.orders": [(*message, ())]},
        format=get_format(format),
        options=TableOptions(**options),
    )


def shown(schema: TableSchema) -> tuple[str, tuple[str, ...]]:
    return to_ddl(schema.columns), schema.primary_key


def order(row: dict[str, Any], kind: str = "insert", database: str = "shop") -> Any:
    return maxwell("orders", kind, row, database=database)


def shard(row: dict[str, Any], *types: str) -> Any:
    """Return a message of Canal with types of MySQL."""
    return canal("orders", "INSERT", row, dict(zip(row, types, strict=True)))


SOME = Selection(include=("shop[.].*",), exclude=("shop[.]tmp_.*",))
SHARDS = shards_of(orders=TableOptions(shards="shop_[0-9]+[.]orders"))
TRUNCATE = (
    b'{"database": "shop_1", "table": "orders", "type": "TRUNCATE", "isDdl": true, "sql": '
    b'"TRUNCATE orders"}'
)
NAMED = order({"id": 1, "name": "a"})
PRICED = order({"id": 1, "name": "a", "price": 1.5})
KEYLESS = (None, order({"id": 1})[1])
PLACEHOLDER = {"id": 1, "name": "a", "doc": "__debezium_unavailable_value"}
TOASTED = (
    b'{"id": 1}',
    json.dumps(
        {"before": None, "after": PLACEHOLDER, "op": "u", "source": {"connector": "postgresql"}}
    ).encode(),
)
ARRAY = {"doc": "ARRAY<INT>"}
FIRST = shard({"id": 1, "name": "a"}, "int", "varchar(9)")
SECOND = shard({"id": 1, "price": 1}, "int", "double")
STORED = TableSchema(
    "shop.orders",
    columns("id INT NOT NULL, `a b` DECIMAL(9,2)"),
    ("id",),
    {"time_zone": "UTC"},
    ("a note",),
    stopped="why",
)
PASSWORD = JdbcDatabase(
    "jdbc:postgresql://db/x", password="secret", options={"sslpassword": "secret"}
)
OF_SHOP: dict[str, Any] = {"source_key": ("id",), "named": ("shop", "orders")}
TOAST = "__debezium_unavailable_value"


def of_postgres(op: str, earlier: int | None = None, **row: Any) -> Any:
    """Return a message of PostgreSQL, and its header with the key before, if it has one."""
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
    key = b'{"id":%d}' % (earlier or 0)
    headers = [] if earlier is None else [{"key": "__debezium.oldkey", "value": key}]
    return json.dumps({**images, "op": op, "source": source}).encode(), headers


def updates(*rows: tuple[dict[str, Any], dict[str, Any]], **options: Any) -> list[Any]:
    """Return updates of Maxwell, each with the row and the values before it."""
    return [(maxwell("orders", "update", *each, **options)[1], []) for each in rows]


def changes(
    *messages: Any, format: str = "debezium-json", shard: bool = False, **options: Any
) -> dict[int, tuple[Any, ...]]:
    """Return each key's last change: kind, columns, missing columns, the key whose row has them."""
    rows = batch(*((None, value) for value, _ in messages)).to_pylist()
    rows = [{**row, "headers": each} for row, (_, each) in zip(rows, messages, strict=True)]
    parts = ("database", "table") if shard else ()
    source = DecodePlan(
        format=get_format(format, **options),
        columns=columns("id INT NOT NULL, name STRING, qty INT"),
        unique_key=("id",),
        metadata=dict(zip(parts, parts, strict=True)),
        distinguished_by=(*parts, "topic"),
        completes_moved=True,
    )
    column = Column("shard", SqlType("STRING")) if shard else None
    records = pa.Table.from_pylist(rows, schema=RECORDS)
    with table_changes(records, TableDecoder(source, column), None) as (decoded, _):
        changed = decoded.rows.to_pylist()
    names = ["row_kind", "c1", "c2", "absent", "b0", *(["b1"] if shard else [])]
    return {row["c0"]: tuple(row.get(name) for name in names) for row in changed}


MINIMAL: dict[str, Any] = {"format": "maxwell-json", "binlog_row_image": "MINIMAL"}
MOVED = ({"id": 2, "qty": 5}, {"id": 1, "qty": 4})
DELETED = ("-D", None, None, None, None)
DELETE_OF_1 = of_postgres("d", id=1, name=None, qty=None)
ADAPTIVE = get_format("debezium-json", time_precision_mode="adaptive_time_microseconds")
FACTS: dict[str, tuple[object, object]] = {
    "an insert that follows the delete of the key before": (
        changes(
            of_postgres("c", id=7, name="other", qty=7),
            DELETE_OF_1,
            of_postgres("c", id=2, name=TOAST, qty=5, earlier=1),
        ),
        {7: ("+U", "other", 7, None, None), 1: DELETED, 2: ("+U", None, 5, "010", 1)},
    ),
    "values of the micro-batch are preferred to those of the target": (
        changes(
            of_postgres("u", id=1, name="a", qty=4),
            DELETE_OF_1,
            of_postgres("c", id=2, name=TOAST, qty=5, earlier=1),
            of_postgres("u", id=2, name=TOAST, qty=6),
        ),
        {1: DELETED, 2: ("+U", "a", 6, None, None)},
    ),
    "a chain of keys of Maxwell": (
        changes(
            *updates(MOVED, ({"id": 3}, {"id": 2}), ({"id": 9, "name": "x"}, {"name": "y"})),
            **MINIMAL,
        ),
        {1: DELETED, 2: DELETED, 3: ("+U", None, 5, "010", 1), 9: ("+U", "x", None, "001", None)},
    ),
    "the key before is one of the same shard": (
        changes(*updates(MOVED, database="shop_2"), shard=True, **MINIMAL)[2],
        ("+U", None, 5, "010", 1, "shop_2.orders"),
    ),
    **{
        f"a type that a format writes, {each}": (
            TableOptions(types={"at": each}).check_types(format),
            None,
        )
        for each, format in (
            ("TIMESTAMP(6)", ADAPTIVE),
            ("TIMESTAMP", ADAPTIVE),  # text with a zone, in each mode of Debezium
            ("TIMESTAMP_NTZ", get_format("upsert-kafka")),
        )
    },
    "the table and the columns of a message": (
        routed(order({"id": 1, "name": None, "price": 1.5})),
        Routed(
            *("shop.orders", 1, frozenset({"id", "price"})), absent=frozenset({"name"}), **OF_SHOP
        ),
    ),
    "the table of a delete": (routed(order({"id": 1}, "delete")), Routed("shop.orders", **OF_SHOP)),
    **{
        f"the table of a message of {format}": (
            routed_of(format, message),
            (table, 1, {"id"}, ""),
        )
        for format, message, table in (
            ("debezium-json", debezium("orders", "c", None, {"id": 1}), "shop.orders"),
            ("canal-json", canal("orders", "INSERT", {"id": 1}, {"id": "int"}), "shop.orders"),
            ("maxwell-json", maxwell("or.ders", "insert", {"id": 1}), "shop.`or.ders`"),
            (
                "ogg-json",
                (None, b'{"table": "SHOP.ORDERS", "op_type": "I", "after": {"id": 1}}'),
                "SHOP.ORDERS",
            ),
            ("debezium-flat-json", (b'{"id": 1}', b'{"id": 1, "__table": "orders"}'), "t"),
            ("changelog-json", (None, b'{"op": "+I", "data": {"id": 1}}'), "t"),
        )
    },
    "a flattened delete without a value belongs to the topic": (
        routed((b'{"id": 1}', None), format="debezium-flat-json").table,
        "t",
    ),
    "a tombstone": (
        routed((b'{"id": 1}', None), format="debezium-json"),
        Routed("", reason="TOMBSTONE"),
    ),
    "an included table": (routed(order({"id": 1}), SOME).table, "shop.orders"),
    "an excluded table": (
        routed(maxwell("tmp_1", "insert", {"id": 1}), SOME),
        Routed("", reason="OTHER_TABLE", named=("shop", "tmp_1")),
    ),
    "a table that is not included": (
        routed(order({"id": 1}, database="other"), SOME),
        Routed("", reason="OTHER_TABLE", named=("other", "orders")),
    ),
    "a shard": (
        routed(order({"id": 1}, database="shop_7"), SHARDS),
        Routed(
            *("shop.orders", 1, frozenset({"id"})),
            shard="shop_7.orders",
            source_key=("id",),
            named=("shop_7", "orders"),
        ),
    ),
    "a table that is no shard": (
        routed(order({"id": 1}, database="shop_x"), SHARDS).table,
        "shop_x.orders",
    ),
    "a TRUNCATE of a shard": (routed((None, TRUNCATE), SHARDS, "canal-json").table, "shop.orders"),
    **{
        f"options {options} of the tables {tables}": (misspelt(tables, options), found)
        for tables, options, found in (
            (["SHOP.ORDERS"], ["`SHOP.ORDERS`"], {"`SHOP.ORDERS`": "SHOP.ORDERS"}),
            (["SHOP.ORDERS"], ['"SHOP"."ORDERS"'], {'"SHOP"."ORDERS"': "SHOP.ORDERS"}),
            (["shop.order", "shop.orders"], ["SHOP.ORDERS"], {"SHOP.ORDERS": "shop.orders"}),
            (["shop.orders", "SHOP.ORDERS"], ["SHOP.ORDERS"], {}),
            (["shop.orders"], ["SHOP.ORDERS", "shop.orders"], {}),
            (["shop.orders"], ["orders"], {}),
        )
    },
    "columns with a value, and their key": (
        shown(decided(order({"id": 1, "name": "a", "note": None}))),
        ("id BIGINT NOT NULL, name STRING", ("id",)),
    ),
    "declared columns need no value, and are nullable": (
        shown(decided(shard({"id": 1, "name": None}, "int", "varchar(9)"), format="canal-json")),
        ("id INT NOT NULL, name STRING", ("id",)),
    ),
    "types of the user": (
        shown(decided(PRICED, types={"price": "DOUBLE"}, exclude_columns="name")),
        ("id BIGINT NOT NULL, price DOUBLE", ("id",)),
    ),
    "columns of the user": (
        shown(decided(PRICED, schema="id INT, name STRING", primary_key="id")),
        ("id INT NOT NULL, name STRING", ("id",)),
    ),
    "the key of the user": (decided(KEYLESS, primary_key="id").primary_key, ("id",)),
    "new columns": (
        new_columns(decided(NAMED), {"early", "id", "name"}, TableOptions()),
        ["early"],
    ),
    "new columns that are excluded": (
        new_columns(decided(NAMED), {"early"}, TableOptions(exclude_columns="early")),
        [],
    ),
    "new columns are added at the end": (
        shown(
            extended(
                decided(NAMED), "early", order({"early": True, "id": 1, "name": 7}), "maxwell-json"
            )
        ),
        ("id BIGINT NOT NULL, name STRING, early BOOLEAN", ("id",)),
    ),
    "a column of which only the placeholder is known": (
        shown(decided(TOASTED, format="debezium-json")),
        ("id BIGINT NOT NULL, name STRING", ("id",)),
    ),
    "such a column with the type of the user": (
        shown(decided(TOASTED, format="debezium-json", types=ARRAY)),
        ("id BIGINT NOT NULL, name STRING, doc ARRAY<INT>", ("id",)),
    ),
    "such a column that is new": (
        shown(
            extended(
                decided(TOASTED, format="debezium-json"),
                *("doc", TOASTED, "debezium-json"),
                types=ARRAY,
            )
        ),
        ("id BIGINT NOT NULL, name STRING, doc ARRAY<INT>", ("id",)),
    ),
    "shards have the columns of all": (
        shown(merged_schema(a=FIRST, b=SECOND)),
        ("id INT NOT NULL, name STRING, price DOUBLE", ("id",)),
    ),
    "a shard without rows": (
        shown(merged_schema(a=(None, None), b=FIRST)),
        ("id INT NOT NULL, name STRING", ("id",)),
    ),
    "a new column is a question, too": (
        extended(
            TableSchema("t", columns("id INT NOT NULL"), ("id",), questions={"id": "?"}),
            *("at", debezium("t", "c", None, {"id": 1, "at": 20454}), "debezium-json"),
        ).questions.keys(),
        {"id", "at"},
    ),
    "the file of a table is read back": (
        TableSchema.from_json(STORED.to_json(), "file"),
        STORED,
    ),
    "a name with a dot": (source_id(["shop", "a.b"]), "shop.`a.b`"),
    **{
        f"the target of {name} by {template}": (table_name(template, name), target)
        for template, name, target in (
            ("{database}_{table}", "shop.`a.b`", "shop_a.b"),
            ("{database}_{schema}_{table}", "db.public.orders", "db_public_orders"),
            ("{table}", "server.shop.orders", "orders"),
        )
    },
    "a target in a folder": (
        str(attrgetter("name")(DeltaDatabase("/lake/shop/").target("a.b"))),
        "/lake/shop/a.b",
    ),
    "a target in a database": (
        attrgetter("sql_name")(DeltaDatabase("shop").target("a.b")),
        "`shop`.`a.b`",
    ),
    "a target of Iceberg": (
        attrgetter("sql_name")(IcebergDatabase("lake.shop").target("or`ders")),
        "`lake`.`shop`.`or``ders`",
    ),
    "a target of a database's schema": (
        attrgetter("table")(JdbcDatabase("jdbc:postgresql://db/x", schema="s").target("orders")),
        "s.orders",
    ),
    "a password is not shown": ("secret" in repr(PASSWORD), False),
}
"""Facts, and what they must be."""


@pytest.mark.parametrize(("fact", "expected"), FACTS.values(), ids=FACTS)
def test_a_fact_of_routes_schemas_and_names(fact: object, expected: object) -> None:
    assert fact == expected


test_error_texts = error_test(
    __file__,
    {
        "the change of the key before is a delete": lambda: changes(
            *[
                (maxwell("orders", *each)[1], [])
                for each in (
                    ("insert", {"id": 2, "name": "a", "qty": 1}, None),
                    ("delete", {"id": 2}, None),
                    ("update", {"id": 2, "qty": 5}, {"qty": 1}),
                    ("update", {"id": 5}, {"id": 2}),
                )
            ],
            **MINIMAL,
        ),
        "a type that needs an option of the format": lambda: TableOptions(
            types={"at": "TIMESTAMP_NTZ"}
        ).check_types(ADAPTIVE),
        "record that cannot be read fails the task": lambda: list(
            route_pass(
                iter([batch(maxwell("orders", "insert", {"id": 1}), (None, b"{"))]),
                route=Route(get_format("maxwell-json"), ALL, fail=True, dead_letters=None),
            )
        ),
        "shards that contradict each other, 1": lambda: Router(
            get_format("maxwell-json"),
            shards_of(a=TableOptions(shards="shop_1[.].*"), b=TableOptions(shards=".*[.]orders")),
        ).route("t", *maxwell("orders", "insert", {"id": 1}, database="shop_1")),
        "shards that contradict each other, 2": lambda: Router(
            get_format("maxwell-json"),
            shards_of(orders=TableOptions(shards="shop_[0-9]+[.]orders")),
        ).route("t", *maxwell("orders", "insert", {"id": 1})),
        "shards that contradict each other, 3": lambda: shards_of(
            all=TableOptions(shards="shop[.]i.*"), items=TableOptions(primary_key="id")
        ),
        "shards that contradict each other, 4": lambda: shards_of(all=TableOptions(shards="[")),
        "shards that contradict each other, 5": lambda: TableOptions(shard_column="shard"),
        "columns that differ in case are an error": lambda: decided(
            maxwell("orders", "insert", {"id": 1, "name": "a", "Name": "b"})
        ),
        "new column without a type is an error": lambda: extend(
            decided(maxwell("orders", "insert", {"id": 1})),
            [""],
            {"shop.orders": [(*maxwell("orders", "insert", {"id": 1, "": 2}), ())]},
            format=get_format("maxwell-json"),
            options=TableOptions(),
        ),
        "an unknown primary key": lambda: decided(KEYLESS),
        "a new column of which only the placeholder is known": lambda: extended(
            decided(TOASTED, format="debezium-json"), "doc", TOASTED, "debezium-json"
        ),
        "types of shards that contradict each other": lambda: merged_schema(
            a=FIRST, b=shard({"id": 1, "name": 2}, "int", "int")
        ),
        "types of a new column of shards that contradict each other": lambda: extend(
            merged_schema(a=FIRST),
            ["price"],
            {
                name: [(*shard({"id": 1, "price": 1}, "int", kind), ())]
                for name, kind in (("a", "double"), ("b", "int"))
            },
            format=get_format("canal-json"),
            options=TableOptions(),
        ),
        "shards have the columns of all": lambda: merged_schema(a=(None, None)),
        "a question in types is an error": lambda: TableOptions(types={"id": "INT", "at": "?"}),
        **{
            f"file with a mistake is an error, {number}": lambda text=text: TableSchema.from_json(
                text, "/lake/t.json"
            )
            for number, text in enumerate(
                [
                    "{",
                    '{"table": "t", "schema": ["id NONSENSE"], "primary_key": []}',
                    '{"table": "t", "shema": []}',
                ],
                1,
            )
        },
        "names of targets": lambda: table_name("{schema}_{table}", "orders"),
        **{
            f"wrong template is an error, {number}": lambda template=template: DeltaDatabase(
                "lake", table=template
            )
            for number, template in enumerate(["orders", "{tabel}", "{table", "{table}{0}"], 1)
        },
        "databases without histories, 1": lambda: DeltaDatabase("/lake/shop", scd_type=3),
        "databases without histories, 2": lambda: IcebergDatabase(
            "lake.shop", scd_type=2, deletes="soft"
        ),
        **{
            f"options that contradict each other, {number}": lambda options=options: TableOptions(
                **options
            )
            for number, options in enumerate(
                [
                    {"columns": "id", "exclude_columns": "name"},
                    {"schema": "id INT", "types": {"id": "INT"}},
                    {"primary_key": "id", "exclude_columns": "id"},
                    {"track_history": "name", "columns": "id"},
                ],
                1,
            )
        },
        "pattern that is none is an error": lambda: Selection(exclude=("[",)),
    },
)
