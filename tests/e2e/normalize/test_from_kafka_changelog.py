"""`from_kafka_changelog` on a real broker and real Spark: the three engines, the plans, the modes, the arguments."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation

from cdc_formats import Event, Format, read_object
from normalize import ChangelogNormalize, from_kafka_changelog
from tests.support.histories import TABLE, changes, random_history, records_of, rows_by_key
from tests.support.paths import REPOSITORY
from tests.support.strategies import by_key, fold_history, last_rows, table_of
from tests.support.streams import debezium, new_topic, run_stream, servers, spell


@pytest.fixture(scope="module")
def history_topic(kafka):
    history = random_history(7)
    return history, new_topic(kafka, records_of(history), partitions=3)


@pytest.mark.cross_section
def test_stream_and_bounded_read_give_the_rows_of_the_fold(spark, kafka, tmp_path, history_topic):
    history, topic = history_topic
    expected = by_key(fold_history(history))
    stream = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=400), normalize=ChangelogNormalize(key_groups=5)
    )
    bounded = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), bounded=True)
    run = run_stream(stream, tmp_path / "checkpoint")
    assert rows_by_key(run.rows) == expected
    assert rows_by_key(bounded.collect()) == expected
    assert len(run.progress) > 3
    assert run.metric("changelog_decode", "RECORDS") == len(history)


def test_mini_batch_ends_in_the_same_table(spark, kafka, tmp_path, history_topic):
    history, topic = history_topic
    stream = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=700), normalize=ChangelogNormalize(mini_batch=True)
    )
    bounded = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka), normalize=ChangelogNormalize(mini_batch=True), bounded=True
    )
    run = run_stream(stream, tmp_path / "checkpoint")
    assert table_of(changes(run.rows)) == last_rows(history)
    assert table_of(changes(bounded.collect())) == last_rows(history)
    assert len(run.rows) < len(fold_history(history))


def test_upserts_are_the_same_changelog_without_update_before(spark, kafka, tmp_path, history_topic):
    history, topic = history_topic
    upserts = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), changelog_mode="upsert")
    expected = {key: [row for row in rows if row[0] != "-U"] for key, rows in by_key(fold_history(history)).items()}
    assert rows_by_key(run_stream(upserts, tmp_path / "checkpoint").rows) == expected


@pytest.mark.cross_section
def test_the_state_store_does_not_matter(spark, kafka, tmp_path, history_topic):
    history, topic = history_topic
    stream = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=400), normalize=ChangelogNormalize(key_groups=5)
    )
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    try:
        assert rows_by_key(run_stream(stream, tmp_path / "checkpoint").rows) == by_key(fold_history(history))
    finally:
        spark.conf.unset(provider)


@pytest.mark.cross_section
def test_a_restart_from_the_checkpoint_gives_new_rows_only(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", debezium("c", None, {"id": 1, "name": "scooter", "qty": 1}))])
    stream = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka))
    assert run_stream(stream, tmp_path / "checkpoint").changelog == ["+I(1,scooter,1)"]
    kafka.produce(
        topic,
        [
            (b"1", debezium("u", None, {"id": 1, "name": "scooter", "qty": 1})),
            (b"1", debezium("u", None, {"id": 1, "name": "bike", "qty": 1})),
            (b"1", debezium("d", {"id": 1})),
        ],
    )
    restarted = run_stream(stream, tmp_path / "checkpoint")
    assert restarted.changelog == ["-U(1,scooter,1)", "+U(1,bike,1)", "-D(1,bike,1)"]
    assert restarted.metric("changelog_normalize", "SUPPRESSED_EQUAL") == 1


def test_a_restart_with_other_columns_reads_the_old_state(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", debezium("c", None, {"id": 1, "name": "scooter", "qty": 1}))])
    run_stream(from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka)), tmp_path / "checkpoint")
    kafka.produce(topic, [(b"1", debezium("u", None, {"id": 1, "name": "scooter", "colour": "red"}))])
    wider = {**TABLE, "schema": "id INT, colour STRING, name STRING"}
    restarted = run_stream(from_kafka_changelog(spark, topic, **wider, options=servers(kafka)), tmp_path / "checkpoint")
    assert restarted.changelog == ["-U(1,None,scooter)", "+U(1,red,scooter)"]


def test_a_restart_with_another_number_of_key_groups_is_refused(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1}))])
    run_stream(
        from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), normalize=ChangelogNormalize(key_groups=1)),
        tmp_path / "checkpoint",
    )
    kafka.produce(topic, [(b"%d" % key, debezium("c", None, {"id": key, "name": "a", "qty": 1})) for key in range(50)])
    other = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), normalize=ChangelogNormalize(key_groups=2))
    with pytest.raises(StreamingQueryException, match=r"\[STATE_VERSION\].*set key_groups=1"):
        run_stream(other, tmp_path / "checkpoint")


def test_a_state_ttl_is_forgotten_in_processing_time(spark, kafka, tmp_path):
    import time

    topic = new_topic(kafka, [(b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1}))])
    stream = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka), normalize=ChangelogNormalize(state_ttl=timedelta(seconds=1))
    )
    assert run_stream(stream, tmp_path / "checkpoint").changelog == ["+I(1,a,1)"]
    time.sleep(1.2)
    kafka.produce(topic, [(b"1", debezium("u", None, {"id": 1, "name": "b", "qty": 1}))])
    again = run_stream(stream, tmp_path / "checkpoint")
    assert again.changelog == ["+I(1,b,1)"]
    assert again.metric("changelog_normalize", "EXPIRED") == 1


# ------------------------------------------------------------------------------------------------------- without a stage


def test_a_source_without_duplicates_passes_unchanged(spark, kafka, tmp_path):
    row, other = {"id": 1, "name": "a", "qty": 1}, {"id": 1, "name": "b", "qty": 1}
    topic = new_topic(kafka, [(None, debezium("c", None, row)), (None, debezium("u", row, other)), (None, debezium("u", row, other))])
    table = {**TABLE, "primary_key": (), "normalize": False}
    expected = ["+I(1,a,1)", "-U(1,a,1)", "+U(1,b,1)", "-U(1,a,1)", "+U(1,b,1)"]
    assert run_stream(from_kafka_changelog(spark, topic, **table, options=servers(kafka)), tmp_path / "c").changelog == expected
    assert [spell(row) for row in from_kafka_changelog(spark, topic, **table, options=servers(kafka), bounded=True).collect()] == expected


def test_upserts_of_a_source_without_duplicates_split_a_changed_key(spark, kafka):
    row, same, moved = {"id": 1, "name": "a", "qty": 1}, {"id": 1, "name": "b", "qty": 1}, {"id": 2, "name": "b", "qty": 1}
    topic = new_topic(kafka, [(None, debezium("c", None, row)), (None, debezium("u", row, same)), (None, debezium("u", same, moved))])
    upserts = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), normalize=False, changelog_mode="upsert", bounded=True)
    assert [spell(row) for row in upserts.collect()] == ["+I(1,a,1)", "+U(1,b,1)", "-D(1,b,1)", "+U(2,b,1)"]


def test_an_event_that_changes_the_key_leaves_no_old_row(spark, kafka, tmp_path):
    row, moved = {"id": 1, "name": "a", "qty": 1}, {"id": 2, "name": "a", "qty": 1}
    topic = new_topic(kafka, [(None, debezium("c", None, row)), (None, debezium("u", row, moved))])
    stream = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka))
    assert sorted(run_stream(stream, tmp_path / "c").changelog) == ["+I(1,a,1)", "+I(2,a,1)", "-D(1,a,1)"]


def test_upsert_kafka_deletes_by_key_are_completed_from_state(spark, kafka, tmp_path):
    records = [
        (b'{"id":1}', b'{"id":1,"name":"a","qty":1}'),
        (b'{"id":1}', b'{"id":1,"name":"b","qty":1}'),
        (b'{"id":1}', None),
        (b'{"id":2}', None),
    ]
    topic = new_topic(kafka, records)
    table = {**TABLE, "format": "upsert-kafka"}
    run = run_stream(from_kafka_changelog(spark, topic, **table, options=servers(kafka)), tmp_path / "c")
    assert run.changelog == ["+I(1,a,1)", "-U(1,a,1)", "+U(1,b,1)", "-D(1,b,1)"]
    assert run.metric("changelog_normalize", "DELETES_OF_UNKNOWN_KEYS") == 1
    straight = from_kafka_changelog(spark, topic, **table, options=servers(kafka), normalize=False, changelog_mode="upsert", bounded=True)
    assert [spell(row) for row in straight.collect()] == ["+U(1,a,1)", "+U(1,b,1)", "-D(1,None,None)", "-D(2,None,None)"]


# ------------------------------------------------------------------------------------------------------------ bad records

BAD = [
    (b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1})),
    (b"2", b'{"op": "c", "after": {"id": "x"}}'),
    (b"3", b"no json"),
    (b"4", debezium("m")),
    (b"5", None),
    (b"6", debezium("c", None, {"id": 6, "name": "b", "qty": 1})),
]


@pytest.mark.parametrize("bounded", [False, True], ids=["stream", "bounded"])
@pytest.mark.parametrize("table", [TABLE, {**TABLE, "normalize": False}], ids=["stage", "no stage"])
def test_failfast_reports_the_error_and_the_record(spark, kafka, tmp_path, bounded, table):
    topic = new_topic(kafka, BAD)
    df = from_kafka_changelog(spark, topic, **table, options=servers(kafka), bounded=bounded, check=False)
    with pytest.raises(Exception, match=rf"\[TYPE_CONVERSION\] expected `INT`.*`\$\.after\.id` of the value in {topic}\[0\]@1"):
        df.collect() if bounded else run_stream(df, tmp_path / "c")


@pytest.mark.parametrize("table", [TABLE, {**TABLE, "normalize": False}], ids=["stage", "no stage"])
def test_dropmalformed_drops_and_counts(spark, kafka, tmp_path, table):
    topic = new_topic(kafka, BAD)
    stream = from_kafka_changelog(spark, topic, **table, options=servers(kafka), mode="DROPMALFORMED")
    run = run_stream(stream, tmp_path / "c")
    assert sorted(run.changelog) == ["+I(1,a,1)", "+I(6,b,1)"]
    counted = {
        name: run.metric("changelog_decode", name) for name in ("RECORDS", "TYPE_CONVERSION", "MALFORMED_MESSAGE", "MESSAGE", "TOMBSTONE")
    }
    assert counted == {"RECORDS": 6, "TYPE_CONVERSION": 1, "MALFORMED_MESSAGE": 1, "MESSAGE": 1, "TOMBSTONE": 1}


def test_a_bounded_read_counts_into_an_observation(spark, kafka):
    topic, counts = new_topic(kafka, BAD), Observation("counts")
    df = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), mode="DROPMALFORMED", bounded=True, observation=counts)
    assert df.count() == 2
    assert (counts.get["RECORDS"], counts.get["MALFORMED_MESSAGE"]) == (6, 1)


@pytest.mark.parametrize("bounded", [False, True], ids=["stream", "bounded"])
@pytest.mark.parametrize("table", [TABLE, {**TABLE, "normalize": False}], ids=["stage", "no stage"])
def test_permissive_keeps_the_record_and_the_error(spark, kafka, tmp_path, bounded, table):
    topic = new_topic(kafka, BAD)
    df = from_kafka_changelog(spark, topic, **table, options=servers(kafka), mode="PERMISSIVE", metadata=["offset"], bounded=bounded)
    rows = df.collect() if bounded else run_stream(df, tmp_path / "c").rows
    good = sorted(spell(row) for row in rows if row.row_kind)
    assert good == ["+I(1,a,1,0)", "+I(6,b,1,5)"]
    bad = {row._corrupt_record.offset: row for row in rows if row.row_kind is None}
    assert sorted(bad) == [1, 2]
    record = bad[2]._corrupt_record
    assert (record.topic, record.partition, bytes(record.key), bytes(record.value)) == (topic, 0, b"3", b"no json")
    assert record.error.startswith("[MALFORMED_MESSAGE] not JSON")
    assert bad[2].id is None


@pytest.mark.parametrize("table", [{}, {"normalize": False}], ids=["stage", "no stage"])
def test_decimals_with_too_many_digits_are_bad_records_or_rounded_and_the_others_are_rows(spark, kafka, tmp_path, table):
    prices = ["9.99", "9.990", "9.999", "1e-1"]
    topic = new_topic(kafka, [(b"%d" % id, debezium("c", None, {"id": id, "price": price})) for id, price in enumerate(prices)])
    read = {"format": "debezium-json", "schema": "id INT, price DECIMAL(10,2)", "primary_key": "id", "options": servers(kafka), **table}
    strings = {"decimal_handling_mode": "string"}
    strict = from_kafka_changelog(spark, topic, **read, format_options=strings, mode="PERMISSIVE")
    rows = run_stream(strict, tmp_path / "strict").rows
    assert sorted(spell(row) for row in rows if row.row_kind) == ["+I(0,9.99)", "+I(1,9.99)", "+I(3,0.10)"]
    (bad,) = [row._corrupt_record for row in rows if row.row_kind is None]
    assert bad.offset == 2
    assert "more digits after the point than the type holds" in bad.error
    rounds = from_kafka_changelog(spark, topic, **read, format_options={**strings, "rounding": "half_up"})
    assert sorted(run_stream(rounds, tmp_path / "rounds").changelog) == ["+I(0,9.99)", "+I(1,9.99)", "+I(2,10.00)", "+I(3,0.10)"]


def test_a_truncate_fails_unless_configured(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(None, debezium("t")), (b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1}))])
    with pytest.raises(StreamingQueryException, match=rf"\[TRUNCATE\].*in {topic}\[0\]@0.*on_truncate='ignore'"):
        run_stream(from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), check=False), tmp_path / "fail")
    run = run_stream(from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), on_truncate="ignore"), tmp_path / "ignore")
    assert run.changelog == ["+I(1,a,1)"]
    assert run.metric("changelog_decode", "TRUNCATE") == 1


# --------------------------------------------------------------------------------------------------- types and metadata


@pytest.mark.cross_section
def test_every_type_arrives_typed(spark, kafka):
    schema = """id BIGINT, b BOOLEAN, t TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, dec DECIMAL(38,18), big DECIMAL(20,0), c CHAR(3),
        v VARCHAR(9), bin BINARY, day DATE, at TIME(6), ts TIMESTAMP(6), ntz TIMESTAMP_NTZ(3), span INTERVAL DAY TO SECOND,
        arr ARRAY<DECIMAL(5,2)>, m MAP<STRING, TIMESTAMP_NTZ>, st STRUCT<a: INT, days: ARRAY<DATE>>"""
    data = {
        "id": 2**63 - 1, "b": True, "t": -128, "s": 32767, "i": -(2**31), "f": 1.5, "d": 5e-324, "dec": "0.000000000000000001",
        "big": 18446744073709551615, "c": "é😀", "v": "", "bin": "AP8=", "day": "0001-01-01", "at": "23:59:59.999999",
        "ts": "2024-02-29 12:00:00.123456Z", "ntz": "9999-12-31 23:59:59.999", "span": "-838:59:59.000001", "arr": [1.005, None],
        "m": {"b": None, "a": "2020-01-01 00:00:00"}, "st": {"a": 1, "days": ["1970-01-02"]},
    }  # fmt: skip
    nulls = {"id": 1}
    topic = new_topic(kafka, [(None, json.dumps({"data": row, "op": "+I"}).encode()) for row in (data, nulls)])
    table = {"format": "changelog-json", "format_options": {"rounding": "half_up"}, "schema": schema, "primary_key": "id"}
    df = from_kafka_changelog(spark, topic, **table, options=servers(kafka), bounded=True)
    full, empty = sorted(df.collect(), key=lambda row: -row.id)
    assert full.asDict() == {
        "row_kind": "+I", "id": 2**63 - 1, "b": True, "t": -128, "s": 32767, "i": -(2**31), "f": 1.5, "d": 5e-324,
        "dec": Decimal("0.000000000000000001"), "big": Decimal(18446744073709551615), "c": "é😀", "v": "", "bin": b"\x00\xff",
        "day": date(1, 1, 1), "at": "23:59:59.999999", "ts": datetime(2024, 2, 29, 12, 0, 0, 123456),
        "ntz": datetime(9999, 12, 31, 23, 59, 59, 999000), "span": -timedelta(hours=838, minutes=59, seconds=59, microseconds=1),
        "arr": [Decimal("1.01"), None], "m": {"a": datetime(2020, 1, 1), "b": None}, "st": full.st,
    }  # fmt: skip
    assert (full.st.a, full.st.days) == (1, [date(1970, 1, 2)])
    assert [value for name, value in empty.asDict().items() if name not in ("row_kind", "id")] == [None] * 19


def test_a_schema_may_be_a_struct_type(spark, kafka):
    from pyspark.sql.types import StructType

    topic = new_topic(kafka, [(None, b'{"data": {"id": 1, "tags": ["a"]}, "op": "+I"}')])
    schema = StructType.fromDDL("id BIGINT NOT NULL, tags ARRAY<STRING>")
    df = from_kafka_changelog(spark, topic, format="changelog-json", schema=schema, primary_key="id", options=servers(kafka), bounded=True)
    assert [tuple(row) for row in df.collect()] == [("+I", 1, ["a"])]


def test_metadata_columns_come_from_the_causing_record_and_are_not_compared(spark, kafka, tmp_path):
    row, other = {"id": 1, "name": "a", "qty": 1}, {"id": 1, "name": "b", "qty": 1}
    topic = new_topic(kafka, [(b"1", debezium("c", None, row)), (b"1", debezium("c", None, row)), (b"1", debezium("u", row, other))])
    names = ["offset", "source.table", "topic", "partition", "timestamp-type", "source.timestamp", "headers"]
    stream = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), metadata=names)
    rows = run_stream(stream, tmp_path / "c").rows
    assert stream.columns == ["row_kind", "id", "name", "qty", *names]
    assert [(row.row_kind, row.offset) for row in rows] == [("+I", 0), ("-U", 2), ("+U", 2)]
    first = rows[0]
    assert (first["source.table"], first.topic, first.partition, first["timestamp-type"], first.headers) == (
        "t",
        topic,
        0,
        "CreateTime",
        {},
    )
    assert first["source.timestamp"] == datetime(1970, 1, 1, 0, 0, 0, 1000)


def test_several_topics_a_pattern_and_assigned_partitions(spark, kafka):
    one = new_topic(kafka, [(b"1", debezium("c", None, {"id": 1, "name": "one", "qty": 1}))])
    two = new_topic(kafka, [(b"2", debezium("c", None, {"id": 2, "name": "two", "qty": 1}))])

    def read(*topic, **more):
        options = servers(kafka, **more.pop("options", {}))
        df = from_kafka_changelog(spark, *topic, **TABLE, options=options, metadata=["topic"], bounded=True, **more)
        return sorted((row.name, row.topic) for row in df.collect())

    both = [("one", one), ("two", two)]
    assert read([one, two]) == both
    assert read(re.compile(f"{one}|{two}")) == both
    assert read(options={"subscribe": f"{one},{two}"}) == both
    assert read(options={"assign": json.dumps({two: [0]})}) == [("two", two)]


def test_minimum_partitions_do_not_change_the_order(spark, kafka, history_topic):
    history, topic = history_topic
    bounded = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka, minPartitions=9), bounded=True)
    assert rows_by_key(bounded.collect()) == by_key(fold_history(history))


# --------------------------------------------------------------------------------------------------------- custom formats


def test_a_format_defined_in_a_notebook_works_on_the_workers(spark, kafka, tmp_path):
    from cdc_formats import register_format

    @register_format
    class Acme(Format):
        """``{"what": "put"|"drop", "row": {...}}``."""

        identifier = "acme-in-a-test"

        def read(self, key, value):
            message = read_object(value)
            row = message["row"]
            return [Event.insert(row) if message["what"] == "put" else Event.delete(row)]

    topic = new_topic(kafka, [(None, b'{"what": "put", "row": {"id": 1, "name": "a"}}'), (None, b'{"what": "drop", "row": {"id": 1}}')])
    table = {"format": "acme-in-a-test", "schema": "id INT, name STRING", "primary_key": "id"}
    assert run_stream(from_kafka_changelog(spark, topic, **table, options=servers(kafka)), tmp_path / "c").changelog == [
        "+I(1,a)",
        "-D(1,a)",
    ]


def test_the_format_of_the_docs_works_on_the_workers(spark, kafka):
    from doctest import DocTestParser

    notebook: dict = {"__name__": "__main__"}
    for example in DocTestParser().get_examples((REPOSITORY / "docs" / "tasks" / "your-own-format.md").read_text()):
        if "class MyTool" in example.source or example.source.startswith("from cdc_formats"):
            exec(example.source, notebook)
    messages = [{"what": "put", "row": {"id": 1, "price": "9.5"}}, {"what": "ping"}, {"what": "drop", "row": {"id": 1}}]
    topic = new_topic(kafka, [(None, json.dumps(message).encode()) for message in messages])
    table = {"format": "my-tool", "schema": "id INT, price DECIMAL(5,2)", "primary_key": "id"}
    df = from_kafka_changelog(spark, topic, **table, options=servers(kafka), bounded=True)
    assert [spell(row) for row in df.collect()] == ["+I(1,9.50)", "-D(1,9.50)"]
