"""The parts of `sync_database` that need no Spark: routing, schemas, names."""

import json
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import get_format, list_formats
from cdc_formats.errors import (
    SchemaError,
    TypeConversionError,
)
from cdc_formats.values.schema import columns, source_id
from normalize import DeltaDatabase, IcebergDatabase, JdbcDatabase
from normalize.tables.database_target import table_name
from normalize.tables.route import (
    KnownRows,
    Route,
    Routed,
    Router,
    decode_summary,
    merged,
    route_pass,
)
from normalize.tables.schema import TableSchema, decide, decide_merged, extend, new_columns
from normalize.tables.table_options import Selection, SyncError, TableOptions, misspelt
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


def test_table_and_columns_of_a_message() -> None:
    router = Router(get_format("maxwell-json"), ALL)
    routed = router.route("t", *maxwell("orders", "insert", {"id": 1, "name": None, "price": 1.5}))
    of_table: dict[str, Any] = {"source_key": ("id",), "named": ("shop", "orders")}
    assert routed == Routed(
        "shop.orders", 1, frozenset({"id", "price"}), absent=frozenset({"name"}), **of_table
    )
    assert router.route("t", *maxwell("orders", "delete", {"id": 1})) == Routed(
        "shop.orders", **of_table
    )


@pytest.mark.parametrize(
    ("format", "message", "table"),
    [
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
    ],
)
def test_table_of_each_format(format: str, message: tuple[bytes | None, bytes], table: str) -> None:
    routed = Router(get_format(format), ALL).route("t", *message)
    assert (routed.table, routed.rows, routed.names, routed.reason) == (table, 1, {"id"}, "")


def test_delete_without_a_value_belongs_to_the_topic() -> None:
    assert Router(get_format("debezium-flat-json"), ALL).route("t", b'{"id": 1}', None).table == "t"
    assert Router(get_format("debezium-json"), ALL).route("t", b'{"id": 1}', None) == Routed(
        "", reason="TOMBSTONE"
    )


def test_excluded_tables_are_not_routed() -> None:
    router = Router(
        get_format("maxwell-json"), Selection(include=("shop[.].*",), exclude=("shop[.]tmp_.*",))
    )
    assert router.route("t", *maxwell("orders", "insert", {"id": 1})).table == "shop.orders"
    assert router.route("t", *maxwell("tmp_1", "insert", {"id": 1})) == Routed(
        "", reason="OTHER_TABLE", named=("shop", "tmp_1")
    )
    assert router.route("t", *maxwell("orders", "insert", {"id": 1}, database="other")) == Routed(
        "", reason="OTHER_TABLE", named=("other", "orders")
    )


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


def test_many_records_of_a_table_are_several_values_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("normalize.tables.route._MOST_BYTES", 1_000)
    messages = [maxwell(name, "insert", {"id": i}) for i in range(50) for name in "ab"]
    route = Route(get_format("maxwell-json"), ALL, False, None)
    part, _ = route_pass(iter([batch(*messages)]), route=route)
    assert part.num_rows > 10
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


@pytest.mark.parametrize(
    "of_format",
    [
        [*each]
        for _, each in groupby(sorted(topics(), key=attrgetter("format")), attrgetter("format"))
    ],
    ids=lambda each: each[0].format,
)
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


def test_shards_are_routed_to_their_table() -> None:
    router = Router(
        get_format("maxwell-json"), shards_of(orders=TableOptions(shards="shop_[0-9]+[.]orders"))
    )
    routed = router.route("t", *maxwell("orders", "insert", {"id": 1}, database="shop_7"))
    assert routed == Routed(
        "shop.orders",
        1,
        frozenset({"id"}),
        shard="shop_7.orders",
        source_key=("id",),
        named=("shop_7", "orders"),
    )
    assert (
        router.route("t", *maxwell("orders", "insert", {"id": 1}, database="shop_x")).table
        == "shop_x.orders"
    )
    truncate = (
        b'{"database": "shop_1", "table": "orders", "type": "TRUNCATE", "isDdl": true, "sql": '
        b'"TRUNCATE orders"}'
    )
    canal_router = Router(
        get_format("canal-json"), shards_of(orders=TableOptions(shards="shop_[0-9]+[.]orders"))
    )
    assert canal_router.route("t", None, truncate).table == "shop.orders"


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


@pytest.mark.parametrize(
    ("tables", "options", "found"),
    [
        (["SHOP.ORDERS"], ["`SHOP.ORDERS`"], {"`SHOP.ORDERS`": "SHOP.ORDERS"}),
        (["SHOP.ORDERS"], ['"SHOP"."ORDERS"'], {'"SHOP"."ORDERS"': "SHOP.ORDERS"}),
        (["shop.order", "shop.orders"], ["SHOP.ORDERS"], {"SHOP.ORDERS": "shop.orders"}),
        (["shop.orders", "SHOP.ORDERS"], ["SHOP.ORDERS"], {}),
        (["shop.orders"], ["SHOP.ORDERS", "shop.orders"], {}),
        (["shop.orders"], ["orders"], {}),
    ],
)
def test_options_of_no_table_and_the_similar_table(
    tables: list[str], options: list[str], found: dict[str, str]
) -> None:
    assert misspelt(tables, options) == found


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


def test_columns_with_a_value_and_their_key() -> None:
    schema = decided(maxwell("orders", "insert", {"id": 1, "name": "a", "note": None}))
    assert schema.columns == columns("id BIGINT NOT NULL, name STRING")
    assert schema.primary_key == ("id",)


def test_declared_columns_need_no_value_and_are_nullable() -> None:
    schema = decided(
        canal("orders", "INSERT", {"id": 1, "name": None}, {"id": "int", "name": "varchar(9)"}),
        format="canal-json",
    )
    assert schema.columns == columns("id INT NOT NULL, name STRING")


def test_types_and_columns_of_the_user() -> None:
    message = maxwell("orders", "insert", {"id": 1, "name": "a", "price": 1.5})
    assert decided(message, types={"price": "DOUBLE"}, exclude_columns="name").columns == columns(
        "id BIGINT NOT NULL, price DOUBLE"
    )
    assert decided(message, schema="id INT, name STRING", primary_key="id").columns == columns(
        "id INT NOT NULL, name STRING"
    )


def test_unknown_primary_key_is_an_error() -> None:
    message = (None, maxwell("orders", "insert", {"id": 1})[1])
    with pytest.raises(
        SyncError,
        match=r"its primary key is unknown .* pass tables=\{'shop.orders': TableOptions\(primary_key=",
    ):
        decided(message)
    assert decided(message, primary_key="id").primary_key == ("id",)


def test_new_columns_are_added_at_the_end() -> None:
    schema = decided(maxwell("orders", "insert", {"id": 1, "name": "a"}))
    key, value = maxwell("orders", "insert", {"early": True, "id": 1, "name": 7})
    assert new_columns(schema, {"early", "id", "name"}, TableOptions()) == ["early"]
    assert new_columns(schema, {"early"}, TableOptions(exclude_columns="early")) == []
    new_schema = extend(
        schema,
        ["early"],
        {"shop.orders": [(key, value, ())]},
        format=get_format("maxwell-json"),
        options=TableOptions(),
    )
    assert new_schema.columns == columns("id BIGINT NOT NULL, name STRING, early BOOLEAN")


def test_column_of_which_only_the_placeholder_is_known_has_the_type_of_the_user() -> None:
    after = {"id": 1, "name": "a", "doc": "__debezium_unavailable_value"}
    value = json.dumps(
        {"before": None, "after": after, "op": "u", "source": {"connector": "postgresql"}}
    ).encode()
    record, format = (b'{"id": 1}', value), get_format("debezium-json")
    schema = decided(record, format="debezium-json")
    assert schema.columns == columns("id BIGINT NOT NULL, name STRING")
    with pytest.raises(
        SyncError,
        match=(
            r"'doc' is unknown, because no record has a value of it .* pass "
            r".*TableOptions\(types=\{'doc': "
        ),
    ):
        extend(
            schema, ["doc"], {"shop.orders": [(*record, ())]}, format=format, options=TableOptions()
        )
    typed = {"doc": "ARRAY<INT>"}
    new_schema = extend(
        schema,
        ["doc"],
        {"shop.orders": [(*record, ())]},
        format=format,
        options=TableOptions(types=typed),
    )
    assert new_schema.columns == columns("id BIGINT NOT NULL, name STRING, doc ARRAY<INT>")
    assert decided(record, format="debezium-json", types=typed).columns == new_schema.columns


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


def test_shards_have_the_columns_of_all() -> None:
    first = canal("orders", "INSERT", {"id": 1, "name": "a"}, {"id": "int", "name": "varchar(9)"})
    second = canal("orders", "INSERT", {"id": 1, "price": 1}, {"id": "int", "price": "double"})
    schema = merged_schema(a=first, b=second)
    assert schema.columns == columns("id INT NOT NULL, name STRING, price DOUBLE")
    assert schema.primary_key == ("id",)
    # A shard without rows.
    assert merged_schema(a=(None, None), b=first).columns == columns("id INT NOT NULL, name STRING")


def test_shards_whose_schemas_contradict_each_other() -> None:
    first = canal("orders", "INSERT", {"id": 1, "name": "a"}, {"id": "int", "name": "varchar(9)"})
    other = canal("orders", "INSERT", {"id": 1, "name": 2}, {"id": "int", "name": "int"})
    with pytest.raises(
        SyncError,
        match="its shards a and b have the column name as STRING and as INT: pass its type in types=",
    ):
        merged_schema(a=first, b=other)
    prices = [
        canal("orders", "INSERT", {"id": 1, "price": 1}, {"id": "int", "price": kind})
        for kind in ("double", "int")
    ]
    samples = {name: [(*message, ())] for name, message in zip("ab", prices, strict=True)}
    with pytest.raises(
        SyncError, match="its shards, b among them, have the column price as DOUBLE and as INT"
    ):
        extend(
            merged_schema(a=first),
            ["price"],
            samples,
            format=get_format("canal-json"),
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


def test_types_that_need_an_option_of_the_format_are_an_error() -> None:
    options = TableOptions(types={"at": "TIMESTAMP_NTZ"})
    format = get_format("debezium-json", time_precision_mode="adaptive_time_microseconds")
    with pytest.raises(
        SchemaError, match=r"at TIMESTAMP_NTZ: .* declare TIMESTAMP_NTZ\(3\) or TIMESTAMP"
    ):
        options.check_types(format)
    TableOptions(types={"at": "TIMESTAMP(6)"}).check_types(format)
    TableOptions(types={"at": "TIMESTAMP_NTZ"}).check_types(get_format("upsert-kafka"))
    # Text with a zone, in each mode of Debezium.
    TableOptions(types={"at": "TIMESTAMP"}).check_types(format)
    decoder = format.decoder("id INT, at TIMESTAMP")
    message = b'{"before": null, "after": {"id": 1, "at": %s}, "op": "c"}'
    (change,) = decoder.decode(None, message % b'"2026-11-21T13:13:01.5Z"')
    assert change.row[1] == 1_795_266_781_500_000  # 2026-11-21T13:13:01.5Z
    with pytest.raises(TypeConversionError, match=r"declare TIMESTAMP\(3\) or TIMESTAMP"):
        decoder.decode(None, message % b"1795266781500")


def test_a_new_column_is_a_question_too() -> None:
    format = get_format("debezium-json")
    schema = TableSchema("t", columns("id INT NOT NULL"), ("id",), questions={"id": "?"})
    record = (*debezium("t", "c", None, {"id": 1, "at": 20454}), [])
    extended = extend(schema, ["at"], {"t": [record]}, format=format, options=TableOptions())
    assert extended.questions.keys() == {"id", "at"}


def test_file_of_a_table_is_read_back() -> None:
    schema = TableSchema(
        "shop.orders",
        columns("id INT NOT NULL, `a b` DECIMAL(9,2)"),
        ("id",),
        {"time_zone": "UTC"},
        ("a note",),
        stopped="why",
    )
    assert TableSchema.from_json(schema.to_json(), "file") == schema


# --------------------------------------------------------------------------------------------------
# names


def test_names_of_targets() -> None:
    assert source_id(["shop", "a.b"]) == "shop.`a.b`"
    assert table_name("{database}_{table}", "shop.`a.b`") == "shop_a.b"
    assert table_name("{database}_{schema}_{table}", "db.public.orders") == "db_public_orders"
    assert table_name("{table}", "server.shop.orders") == "orders"


def test_targets_of_a_database() -> None:
    assert str(DeltaDatabase("/lake/shop/").target("a.b").name) == "/lake/shop/a.b"  # type: ignore[union-attr]
    assert DeltaDatabase("shop").target("a.b").sql_name == "`shop`.`a.b`"  # type: ignore[union-attr]
    assert IcebergDatabase("lake.shop").target("or`ders").sql_name == "`lake`.`shop`.`or``ders`"  # type: ignore[union-attr]
    assert JdbcDatabase("jdbc:postgresql://db/x", schema="s").target("orders").table == "s.orders"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["../orders", "a/b", "..", "a\\b"])
def test_name_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be a folder's name"):
        DeltaDatabase(str(tmp_path)).target(name)


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(
        JdbcDatabase("jdbc:postgresql://db/x", password="secret", options={"sslpassword": "secret"})
    )


test_error_texts = error_test(
    __file__,
    {
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
