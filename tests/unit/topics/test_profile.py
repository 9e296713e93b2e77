"""Sample profiles: tables, keys, order, unreadable records, sizes, call that reads the topic."""

import json
from typing import Any

import pytest

from cdc_formats import columns
from cdc_formats.errors import ArgumentError
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.profile import Partition, Sizes, TopicProfile, profile_records
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
    assert customers.primary_key == ("id",)
    assert customers.options == {"table_include": "customers"}
    assert customers.key_agrees is True
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


def test_tables_of_one_name_are_distinguished_by_their_databases() -> None:
    rows = [
        {"type": "insert", "database": name, "table": "a.b", "data": {"id": 1}}
        for name in ("x", "y+")
    ]
    profile = profile_records(messages(*rows))
    assert [each.options for each in profile.tables] == [
        {"table_include": "a\\.b", "database_include": "x"},
        {"table_include": "a\\.b", "database_include": "y\\+"},
    ]
    assert columns(profile.tables[0].ddl)[0].name == "id"


def test_operations_are_counted_as_rows_and_as_the_producer_names_them() -> None:
    row, other = {"id": 1, "n": 1}, {"id": 1, "n": None}
    values = [
        debezium("r", None, row),
        debezium("c", None, row),
        debezium("u", row, other),
        debezium("u", None, row),
        debezium("d", row, None),
    ]
    (table,) = profile_records(messages(*values)).tables
    assert table.name == "shop.parts"
    assert table.kinds == {"+I": 2, "-U": 2, "+U": 2, "-D": 1}
    assert table.operations == {"u": 2, "r": 1, "c": 1, "d": 1}
    assert (
        table.before.updates,
        table.before.updates_with,
        table.before.deletes,
        table.before.deletes_whole,
    ) == (2, 1, 1, 1)


def test_upserts_and_their_tombstones() -> None:
    profile = profile_records(sample((b'{"id": 1}', b'{"id": 1, "n": 2}'), (b'{"id": 1}', None)))
    assert profile.tables[0].kinds == {"+U": 1, "-D": 1}
    assert profile.tombstones == 1
    assert profile.tables[0].options == {}


def test_a_table_without_rows_has_the_reason_for_the_missing_schema() -> None:
    profile = profile_records(messages(debezium("d", {"id": 1}, None)))
    assert profile.format == "debezium-json"
    assert profile.tables[0].schema is None
    assert "the sample has no row of debezium-json" in profile.tables[0].reason
    assert profile.calls == {}
    with pytest.raises(ArgumentError, match="has no table with known columns"):
        profile.call()


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


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, "no: the records have no key"),
        (b'{"id": 1}', "yes: (id), equal to the row's in 2 events"),
        (b'{"id": 2}', "no: (id) differs from the row in 2 of 2 events"),
        (b"1", "yes: (id), equal to the row's in 2 events"),
        (b'{"other": 1}', "no: the key has (other), the primary key is (id)"),
        (b"[1, 2]", "no: the key is JSON value, and not (id)"),
    ],
)
def test_whether_the_kafka_key_is_the_primary_key(key: bytes | None, expected: str) -> None:
    value = {
        "data": [{"id": "1", "n": "2"}],
        "type": "INSERT",
        "isDdl": False,
        "id": 3,
        "pkNames": ["id"],
        "mysqlType": {"id": "int"},
    }
    (table,) = profile_records(messages(value, value, key=key)).tables
    assert table.kafka_key == expected
    assert table.key_agrees is expected.startswith("yes")


def test_the_encodings_of_keys_and_values() -> None:
    keys = [
        None,
        b"",
        b'{"id": 1}',
        b'{"schema": {}, "payload": {"id": 1}}',
        b"17",
        b"null",
        b"\0\0\0\0\x07\2",
        b"ada",
        b"\xff",
    ]
    profile = profile_records(sample(*((key, b"{}") for key in keys)))
    assert profile.keys.encodings == dict.fromkeys(
        (
            "null",
            "empty",
            "JSON object",
            "JSON with a schema block",
            "JSON value",
            "JSON null",
            "Confluent framing (Avro or Protobuf)",
            "text",
            "bytes",
        ),
        1,
    )
    framed = profile_records(
        sample((None, b'\0\0\0\0\x07{"id": 1}'), (None, b"\1" + b"\xc3" * 16 + b"\2"))
    )
    assert framed.values == {
        "Confluent framing, then JSON": 1,
        "Confluent framing (Avro or Protobuf)": 1,
    }


def test_a_key_in_two_partitions_is_counted() -> None:
    profile = profile_records([change(1, 10), change(2, 11), change(1, 12, partition=1)])
    assert (profile.keys.distinct, profile.keys.moved, profile.keys.partitions) == (2, 1, 2)
    assert "2, 1 of them in more than one partition" in str(profile)


# --------------------------------------------------------------------------------------------------
# order


def placed(*records: SampledRecord) -> tuple[int, int, int]:
    positions = profile_records(
        [record._replace(offset=offset) for offset, record in enumerate(records)]
    ).positions
    assert positions is not None
    return positions.placed, positions.backwards, positions.redelivered


def test_positions_in_order() -> None:
    assert placed(change(1, 10), change(2, 11), change(1, 12, 2)) == (3, 0, 0)


def test_a_redelivery_is_at_or_before_its_keys_last_place_with_no_later_clock() -> None:
    assert placed(change(1, 10), change(2, 11), change(1, 10), change(2, 11)) == (4, 1, 2)
    # A later clock: the log was reset and nothing was redelivered.
    assert placed(change(1, 10), change(2, 11), change(1, 10, 99)) == (3, 1, 0)


def test_order_is_checked_within_each_partition() -> None:
    assert placed(
        change(1, 10), change(2, 5, partition=1), change(1, 11), change(2, 6, partition=1)
    ) == (4, 0, 0)


def test_histories_are_counted_and_missing_positions_have_a_reason() -> None:
    profile = profile_records(recorded("dbz34-mariadb-json.inventory.customers", 2000)).positions
    assert profile is not None
    assert set(profile.histories) == {"snapshot", "33061 7-33061"}
    assert (profile.unplaced, profile.backwards, profile.redelivered, profile.reason) == (
        0,
        0,
        0,
        "",
    )
    maxwell = profile_records(recorded("maxwell-mariadb")).positions
    assert maxwell is not None
    assert maxwell.reason == "`position` is missing: set Maxwell's output_binlog_position=true"
    canal = profile_records(recorded("canal-mariadb-flat", 400)).positions
    assert canal is not None
    assert canal.reason.startswith("Canal writes no binlog position")


def test_repeated_records_are_counted() -> None:
    row = {"type": "insert", "data": {"id": 1}}
    assert profile_records(messages(row, row, {"type": "insert", "data": {"id": 2}})).repeated == 1


# --------------------------------------------------------------------------------------------------
# faults and the rest


def test_corrupt_records_are_shown_with_their_offset() -> None:
    values = [b'{"type": "insert", "data": {"id": 1}}'] * 8 + [b'{"type": "explode"}', b"\xff\xfe"]
    profile = profile_records(sample(*((b'{"pk.id": 1}', value) for value in values)))
    assert profile.corrupt == 2
    assert [each.place for each in profile.errors] == ["t[0]@8", "t[0]@9"]
    assert profile.errors[0].error.startswith("[UNKNOWN_OPERATION] type 'explode' is none of ")
    assert "2 records of the sample cannot be read and would fail the query" in profile.call()


def test_error_excerpt_off_keeps_data_out() -> None:
    records = sample(
        *[(None, json.dumps(debezium("c", None, {"id": 1})).encode())] * 2,
        (None, b'{"op": "secret"}'),
    )
    profile = profile_records(records, format=DebeziumJson(error_excerpt=False))
    assert profile.corrupt == 1
    assert "secret" not in profile.errors[0].error
    assert "secret" in profile_records(records, format=DebeziumJson()).errors[0].error


def test_control_events_are_shown_with_their_statements() -> None:
    profile = profile_records(recorded("maxwell-mariadb-ddl"))
    assert set(profile.ignored) == {"DDL"}
    assert len(profile.control_events) == 3
    assert all(text.startswith("DDL ") for text in profile.control_events)
    message = profile_records(recorded("dbz34-postgres-json.message"))
    assert message.ignored == {"MESSAGE": 2}
    assert message.tables == ()


def test_a_truncate_is_noted_in_the_call() -> None:
    values = [
        debezium("c", None, {"id": 1}),
        {"op": "t", "before": None, "after": None, "source": BINLOG},
    ]
    profile = profile_records(messages(*values))
    assert (
        "1 records of the sample truncate the table, which fails the query: see on_truncate"
        in profile.call().replace("\n# ", " ")
    )


def test_sizes_times_headers_and_partitions() -> None:
    records = [
        SampledRecord("t", 0, offset, time, key, b"x" * size, (("h", b"1"), ("h", b"2")))
        for offset, time, key, size in (
            (5, 0, b"abc", 1),
            (6, -1, None, 3),
            (9, 1_700_000_000_123, b"", 9),
            (90, 2**62, b"k", 2),
        )
    ]
    profile = profile_records(records, ranges={0: (5, 91), 1: (0, 7)}, asked={0: 6})
    assert profile.key_sizes == Sizes(0, 1, 3)
    assert profile.value_sizes == Sizes(1, 2, 9)
    assert profile.times == ("1970-01-01T00:00:00.000Z", f"{2**62} ms after 1970")
    assert profile.headers == {"h": 4}
    assert profile.partitions == (Partition(0, 5, 91, 4, 2), Partition(1, 0, 7, 0, 0))
    assert "compacted, or was written in transactions" in str(profile)
    assert "the first offsets are gone (retention)" in str(profile)


@pytest.mark.parametrize(
    ("values", "what", "expected"),
    [
        (
            [{"schema": None, "payload": debezium("c", None, {"id": 1})}],
            "schema blocks",
            "1 of 1 values have one",
        ),
        (
            [debezium("c", None, {"id": 20454, "w": "AQ=="})],
            "not in the messages",
            (
                "time_precision_mode (perhaps for id); decimal_handling_mode (perhaps for w); "
                "bigint_unsigned_handling_mode (perhaps for w)"
            ),
        ),
        ([debezium("u", None, {"id": 1, "w": None})], "nulls", "in 1 of 2 columns: w (1)"),
        ([debezium("u", None, {"id": 1})], "before-images", "0 of 1 updates have one"),
    ],
)
def test_encodings_that_depend_on_the_producers_configuration(
    values: list, what: str, expected: str
) -> None:
    assert dict(profile_records(messages(*values)).handling)[what] == expected


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        ("postgresql 3.6.1", "1, written as '__debezium_unavailable_value': doc (1)"),
        ("mysql 3.7.1", "1, written as '__debezium_unavailable_value': doc (1)"),
        ("mysql 3.6.1", None),
    ],
)
def test_unavailable_values(connector: str, expected: str | None) -> None:
    value = debezium("u", None, {"id": 1, "doc": "__debezium_unavailable_value"})
    value["source"]["connector"], number = connector.split()
    value["source"]["version"] = f"{number}.Final"
    assert dict(profile_records(messages(value)).handling).get("unavailable values") == expected


def test_the_call_declares_no_units_and_notes_the_declarations() -> None:
    profile = profile_records(
        recorded("dbz34-mariadb-json.inventory.customers"),
        servers="kafka:9092",
        connection=("sasl.password", "ssl.ca"),
    )
    call = call_of(profile.call())
    assert "updated BIGINT" in call["schema"]
    assert "balance STRING" in call["schema"]
    assert "format_options" not in call
    assert call["options"] == {"kafka.bootstrap.servers": "kafka:9092"}
    comments = " ".join(
        line.removeprefix("# ") for line in profile.call().splitlines() if line.startswith("#")
    )
    assert "if it is one, declare it, and time_precision_mode" in comments
    assert (
        "add Spark's kafka.* options that match the sample's client: sasl.password, ssl.ca"
        in comments
    )


def test_the_call_of_a_table_without_a_key_lets_rows_pass() -> None:
    profile = profile_records(recorded("flink-ogg.tags"))
    call = call_of(profile.call())
    assert call["normalize"] is False
    assert "primary_key" not in call
    assert "no primary key is known: rows pass unchanged" in profile.call()


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
    assert profile.format == "maxwell-json"
    assert profile.corrupt == 1
    assert "nested too deeply" in profile.errors[0].error
    assert len(str(profile)) < 20_000
    assert len(profile._repr_html_()) < 40_000


test_error_texts = error_test(
    __file__,
    {
        "options require a format name": lambda: profile_records(
            [], format=DebeziumJson(), table_include="x"
        ),
    },
)
