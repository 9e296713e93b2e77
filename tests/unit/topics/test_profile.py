"""Sample profiles: tables, keys, order, unreadable records, sizes, call that reads the topic."""

import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from cdc_formats.topics.profile import Partition, Sizes, TopicProfile, profile_records
from cdc_formats.topics.sampler import SampledRecord
from tests.support.error_texts import error_test
from tests.support.samples import call_of, messages, recorded, sample

BINLOG = {
    "connector": "mysql",
    "server_id": 1,
    "file": "b.000001",
    "row": 0,
    "db": "shop",
    "table": "parts",
}


def debezium(
    op: str, before: dict | None, after: dict | None, pos: int = 4, clock: int = 1
) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "op": op,
        "source": {**BINLOG, "pos": pos, "ts_ms": clock},
    }


def change(
    number: int, pos: int, clock: int = 1, *, partition: int = 0, offset: int = 0
) -> SampledRecord:
    value = json.dumps(
        debezium("u", {"id": number, "n": pos}, {"id": number, "n": pos + 1}, pos, clock)
    ).encode()
    return SampledRecord(
        "t", partition, offset, clock, json.dumps({"id": number}).encode(), value, ()
    )


# --------------------------------------------------------------------------------------------------
# tables


def test_a_topic_of_several_tables() -> None:
    profile = profile_records(recorded("maxwell-mariadb", 4000), topic="maxwell")
    by_name = {each.name: each for each in profile.tables}
    assert "inventory.customers" in by_name
    assert [each.records for each in profile.tables] == sorted(
        (each.records for each in profile.tables), reverse=True
    )
    customers = by_name["inventory.customers"]
    found = (customers.primary_key, customers.options, customers.key_agrees)
    assert found == (("id",), {"table_include": "customers"}, True)
    assert call_of(profile.call("customers")) == {
        "topic": "maxwell",
        "format": "maxwell-json",
        "format_options": {"table_include": "customers"},
        "schema": customers.ddl,
        "primary_key": ["id"],
        "options": {"kafka.bootstrap.servers": "localhost:9092"},
    }
    assert (
        profile.call("inventory.customers")
        == profile.call("customers")
        == profile.calls["inventory.customers"]
    )
    with pytest.raises(
        ArgumentError, match="has no table 'nope' with known columns: choose inventory"
    ):
        profile.call("nope")


# --------------------------------------------------------------------------------------------------
# keys


@pytest.mark.parametrize(
    ("key", "value", "options", "primary_key"),
    [
        pytest.param(b"ada", {"name": "ada", "n": 1}, {"key_format": "raw"}, ("name",), id="text"),
        pytest.param(b"7", {"id": 7, "n": 1}, {"key_format": "csv"}, ("id",), id="a number"),
        pytest.param(
            b'{"id": 7}',
            {"n": 1},
            {"value_fields_include": "EXCEPT_KEY"},
            ("id",),
            id="key columns that the value lacks",
        ),
        pytest.param(b'{"id": 7}', {"id": 7}, {}, ("id",), id="an object"),
    ],
)
def test_how_an_upsert_topic_writes_its_keys(
    key: bytes, value: dict, options: dict, primary_key: tuple[str, ...]
) -> None:
    profile = profile_records(messages(value, key=key))
    (table,) = profile.tables
    assert (table.options, table.primary_key, table.key_agrees) == (options, primary_key, True)
    format = UpsertKafka(**table.options)
    assert format.decoder(table.ddl, unique_key=table.primary_key).decode(
        key, json.dumps(value).encode()
    )


# --------------------------------------------------------------------------------------------------
# faults and the rest


def test_the_call_declares_no_units_and_notes_the_declarations() -> None:
    profile = profile_records(
        recorded("dbz34-mariadb-json.inventory.customers"),
        servers="kafka:9092",
        connection=("sasl.password", "ssl.ca"),
    )
    call = call_of(profile.call())
    assert {"updated BIGINT", "balance STRING"} <= {*call["schema"].split(", ")}
    assert call.keys() == {"topic", "format", "schema", "primary_key", "options"}
    assert call["options"] == {"kafka.bootstrap.servers": "kafka:9092"}
    comments = " ".join(
        line.removeprefix("# ") for line in profile.call().splitlines() if line.startswith("#")
    )
    assert "if it is one, declare it, and time_precision_mode" in comments
    assert (
        "add Spark's kafka.* options that match the sample's client: sasl.password, ssl.ca"
        in comments
    )


def test_to_dict_is_json_and_has_all_fields() -> None:
    for name in (
        "dbz34-mariadb-json.inventory.customers",
        "canal-mariadb-flat",
        "maxwell-mariadb-ddl",
    ):
        profile = profile_records(recorded(name))
        written = json.loads(json.dumps(profile.to_dict()))
        assert set(written) == set(TopicProfile.__dataclass_fields__)
        assert written["format"] == profile.format
        assert [each["name"] for each in written["tables"]] == [
            each.name for each in profile.tables
        ]


def test_huge_values_and_deep_nesting_are_read_in_time() -> None:
    deep = b'{"type": "insert", "data": ' + b'{"a":' * 500 + b"1" + b"}" * 501
    huge = json.dumps({"type": "insert", "data": {"id": 1, "text": "x" * 2_000_000}}).encode()
    too_deep = b'{"type": "insert", "data": ' + b'{"a":' * 100_000
    profile = profile_records(
        sample((None, deep), (None, huge), (too_deep, huge), (None, too_deep))
    )
    assert (profile.format, profile.corrupt) == ("maxwell-json", 1)
    assert "nested too deeply" in profile.errors[0].error
    assert len(str(profile)) < 20_000
    assert len(profile._repr_html_()) < 40_000


# --------------------------------------------------------------------------------------------------
# facts of a profile


def facts(profile: Any, names: str) -> list[Any]:
    """Return attributes of a profile, or of its only table if their names begin with a dot."""
    return [
        attrgetter(name.removeprefix("."))(profile.tables[0] if name[0] == "." else profile)
        for name in names.split()
    ]


def placed(*records: SampledRecord) -> list[Any]:
    """Return how many records have a position, lie before an earlier one, and are redelivered."""
    profile = profile_records(
        [record._replace(offset=offset) for offset, record in enumerate(records)]
    )
    return facts(profile, "positions.placed positions.backwards positions.redelivered")


def of_key(key: bytes | None) -> list[Any]:
    """Return whether a Kafka key is the primary key of two rows."""
    row = {"data": [{"id": "1", "n": "2"}], "type": "INSERT", "isDdl": False, "id": 3}
    row |= {"pkNames": ["id"], "mysqlType": {"id": "int"}}
    return facts(profile_records(messages(row, row, key=key)), ".kafka_key .key_agrees")


def unavailable(connector: str, version: str) -> str | None:
    """Return what a profile says of a value that a connector does not have."""
    value = debezium("u", None, {"id": 1, "doc": "__debezium_unavailable_value"})
    value["source"] |= {"connector": connector, "version": f"{version}.Final"}
    return dict(profile_records(messages(value)).handling).get("unavailable values")


def handled(*values: Any) -> dict[str, str]:
    return dict(profile_records(messages(*values)).handling)


ROW, OTHER_ROW = {"id": 1, "n": 1}, {"id": 1, "n": None}
OPERATIONS = messages(
    debezium("r", None, ROW),
    debezium("c", None, ROW),
    debezium("u", ROW, OTHER_ROW),
    debezium("u", None, ROW),
    debezium("d", ROW, None),
)
KEYS: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "JSON object": b'{"id": 1}',
    "JSON with a schema block": b'{"schema": {}, "payload": {"id": 1}}',
    "JSON value": b"17",
    "JSON null": b"null",
    "Confluent framing (Avro or Protobuf)": b"\0\0\0\0\x07\2",
    "text": b"ada",
    "bytes": b"\xff",
}
FRAMED = ((None, b'\0\0\0\0\x07{"id": 1}'), (None, b"\1" + b"\xc3" * 16 + b"\2"))
INSERT = {"type": "insert", "data": {"id": 1}}
CORRUPT = [json.dumps(INSERT).encode()] * 8 + [b'{"type": "explode"}', b"\xff\xfe"]
SECRET = sample(
    *[(None, json.dumps(debezium("c", None, {"id": 1})).encode())] * 2, (None, b'{"op": "secret"}')
)
SIZED = [
    SampledRecord("t", 0, offset, time, key, b"x" * size, (("h", b"1"), ("h", b"2")))
    for offset, time, key, size in (
        (5, 0, b"abc", 1),
        (6, -1, None, 3),
        (9, 1_700_000_000_123, b"", 9),
        (90, 2**62, b"k", 2),
    )
]
DOC = "1, written as '__debezium_unavailable_value': doc (1)"
FACTS: dict[str, tuple[Callable[[], object], object]] = {
    "tables of one name are distinguished by their databases": (
        lambda: [
            each.options
            for each in profile_records(
                messages(*({**INSERT, "database": name, "table": "a.b"} for name in ("x", "y+")))
            ).tables
        ],
        [
            {"table_include": "a\\.b", "database_include": "x"},
            {"table_include": "a\\.b", "database_include": "y\\+"},
        ],
    ),
    "operations are counted as rows, and as the producer names them": (
        lambda: facts(profile_records(OPERATIONS), ".name .kinds .operations"),
        ["shop.parts", {"+I": 2, "-U": 2, "+U": 2, "-D": 1}, {"u": 2, "r": 1, "c": 1, "d": 1}],
    ),
    "before-images are counted": (
        lambda: facts(
            profile_records(OPERATIONS),
            ".before.updates .before.updates_with .before.deletes .before.deletes_whole",
        ),
        [2, 1, 1, 1],
    ),
    "upserts and their tombstones": (
        lambda: facts(
            profile_records(sample((b'{"id": 1}', b'{"id": 1, "n": 2}'), (b'{"id": 1}', None))),
            ".kinds tombstones .options",
        ),
        [{"+U": 1, "-D": 1}, 1, {}],
    ),
    "a table without rows has the reason for the missing schema": (
        lambda: facts(
            profile_records(messages(debezium("d", {"id": 1}, None))),
            "format .schema .reason calls",
        ),
        [
            "debezium-json",
            None,
            "the sample has no row of debezium-json to infer a schema from (ignored: none): take a "
            "larger sample, check the format and its filters, or pass schema",
            {},
        ],
    ),
    **{
        f"the Kafka key {key!r}": (lambda key=key: of_key(key), [text, text.startswith("yes")])
        for key, text in (
            (None, "no: the records have no key"),
            (b'{"id": 1}', "yes: (id), equal to the row's in 2 events"),
            (b'{"id": 2}', "no: (id) differs from the row in 2 of 2 events"),
            (b"1", "yes: (id), equal to the row's in 2 events"),
            (b'{"other": 1}', "no: the key has (other), the primary key is (id)"),
            (b"[1, 2]", "no: the key is JSON value, and not (id)"),
        )
    },
    "encodings of keys": (
        lambda: profile_records(sample(*((key, b"{}") for key in KEYS.values()))).keys.encodings,
        dict.fromkeys(KEYS, 1),
    ),
    "framed values": (
        lambda: profile_records(sample(*FRAMED)).values,
        {"Confluent framing, then JSON": 1, "Confluent framing (Avro or Protobuf)": 1},
    ),
    "a key in two partitions is counted": (
        lambda: facts(
            profile_records([change(1, 10), change(2, 11), change(1, 12, partition=1)]),
            "keys.distinct keys.moved keys.partitions",
        ),
        [2, 1, 2],
    ),
    "positions in order": (
        lambda: placed(change(1, 10), change(2, 11), change(1, 12, 2)),
        [3, 0, 0],
    ),
    "a redelivery is at or before its key's last place, with no later clock": (
        lambda: placed(change(1, 10), change(2, 11), change(1, 10), change(2, 11)),
        [4, 1, 2],
    ),
    "with a later clock, the log was reset and nothing was redelivered": (
        lambda: placed(change(1, 10), change(2, 11), change(1, 10, 99)),
        [3, 1, 0],
    ),
    "order is checked within each partition": (
        lambda: placed(
            change(1, 10), change(2, 5, partition=1), change(1, 11), change(2, 6, partition=1)
        ),
        [4, 0, 0],
    ),
    "histories of positions": (
        lambda: facts(
            profile_records(recorded("dbz34-mariadb-json.inventory.customers", 2000)),
            "positions.unplaced positions.backwards positions.redelivered positions.reason",
        ),
        [0, 0, 0, ""],
    ),
    "the names of histories": (
        lambda: {
            *profile_records(
                recorded("dbz34-mariadb-json.inventory.customers", 2000)
            ).positions.histories
        },
        {"snapshot", "33061 7-33061"},
    ),
    "Maxwell without positions": (
        lambda: profile_records(recorded("maxwell-mariadb")).positions.reason,
        "`position` is missing: set Maxwell's output_binlog_position=true",
    ),
    "Canal without positions": (
        lambda: profile_records(recorded("canal-mariadb-flat", 400)).positions.reason[:31],
        "Canal writes no binlog position",
    ),
    "repeated records are counted": (
        lambda: profile_records(messages(INSERT, INSERT, {**INSERT, "data": {"id": 2}})).repeated,
        1,
    ),
    "corrupt records are shown with their offset": (
        lambda: [
            (each.place, each.error[:49])
            for each in profile_records(sample(*((b'{"pk.id": 1}', v) for v in CORRUPT))).errors
        ],
        [
            ("t[0]@8", "[UNKNOWN_OPERATION] type 'explode' is none of boo"),
            ("t[0]@9", "[MALFORMED_MESSAGE] not JSON: JSON is malformed: "),
        ],
    ),
    "error_excerpt=False keeps data out": (
        lambda: [
            "secret"
            in profile_records(SECRET, format=DebeziumJson(error_excerpt=each)).errors[0].error
            for each in (False, True)
        ],
        [False, True],
    ),
    "control events are shown with their statements": (
        lambda: [
            text[:4] for text in profile_records(recorded("maxwell-mariadb-ddl")).control_events
        ],
        ["DDL "] * 3,
    ),
    "logical messages": (
        lambda: facts(profile_records(recorded("dbz34-postgres-json.message")), "ignored tables"),
        [{"MESSAGE": 2}, ()],
    ),
    "sizes, times, headers and partitions": (
        lambda: facts(
            profile_records(SIZED, ranges={0: (5, 91), 1: (0, 7)}, asked={0: 6}),
            "key_sizes value_sizes times headers partitions",
        ),
        [
            Sizes(0, 1, 3),
            Sizes(1, 2, 9),
            ("1970-01-01T00:00:00.000Z", f"{2**62} ms after 1970"),
            {"h": 4},
            (Partition(0, 5, 91, 4, 2), Partition(1, 0, 7, 0, 0)),
        ],
    ),
    "schema blocks": (
        lambda: handled({"schema": None, "payload": debezium("c", None, {"id": 1})})[
            "schema blocks"
        ],
        "1 of 1 values have one",
    ),
    "options that are not in the messages": (
        lambda: handled(debezium("c", None, {"id": 20454, "w": "AQ=="}))["not in the messages"],
        "time_precision_mode (perhaps for id); decimal_handling_mode (perhaps for w); "
        "bigint_unsigned_handling_mode (perhaps for w)",
    ),
    "nulls": (
        lambda: handled(debezium("u", None, {"id": 1, "w": None}))["nulls"],
        "in 1 of 2 columns: w (1)",
    ),
    "updates without a before-image": (
        lambda: handled(debezium("u", None, {"id": 1}))["before-images"],
        "0 of 1 updates have one",
    ),
    "unavailable values of PostgreSQL": (lambda: unavailable("postgresql", "3.6.1"), DOC),
    "unavailable values of MySQL": (lambda: unavailable("mysql", "3.7.1"), DOC),
    "a connector that never writes the placeholder": (lambda: unavailable("mysql", "3.6.1"), None),
    **{
        f"a profile says: {text}": (lambda text=text, made=made: text in made(), True)
        for text, made in {
            "2, 1 of them in more than one partition": lambda: str(
                profile_records([change(1, 10), change(2, 11), change(1, 12, partition=1)])
            ),
            "2 records of the sample cannot be read and would fail the query": lambda: (
                profile_records(sample(*((b'{"pk.id": 1}', v) for v in CORRUPT))).call()
            ),
            "1 records of the sample truncate the table, which fails the query: see on_truncate": (
                lambda: (
                    profile_records(
                        messages(
                            debezium("c", None, {"id": 1}),
                            {"op": "t", "before": None, "after": None, "source": BINLOG},
                        )
                    )
                    .call()
                    .replace("\n# ", " ")
                )
            ),
            "compacted, or was written in transactions": lambda: str(
                profile_records(SIZED, ranges={0: (5, 91), 1: (0, 7)}, asked={0: 6})
            ),
            "the first offsets are gone (retention)": lambda: str(
                profile_records(SIZED, ranges={0: (5, 91), 1: (0, 7)}, asked={0: 6})
            ),
            "no primary key is known: rows pass unchanged": lambda: profile_records(
                recorded("flink-ogg.tags")
            ).call(),
        }.items()
    },
    "the call of a table without a key lets rows pass": (
        lambda: [
            call_of(profile_records(recorded("flink-ogg.tags")).call()).get(name)
            for name in ("normalize", "primary_key")
        ],
        [False, None],
    ),
}
"""Facts of profiles, and what they must be."""


@pytest.mark.parametrize(("fact", "expected"), FACTS.values(), ids=FACTS)
def test_what_a_profile_has(fact: Callable[[], object], expected: object) -> None:
    assert fact() == expected


test_error_texts = error_test(
    __file__,
    {
        "a table without known columns has no call": lambda: profile_records(
            messages(debezium("d", {"id": 1}, None))
        ).call(),
        "options require a format name": lambda: profile_records(
            [], format=DebeziumJson(), table_include="x"
        ),
    },
)
