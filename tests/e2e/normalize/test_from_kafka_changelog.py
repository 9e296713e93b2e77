"""`from_kafka_changelog` on a real broker and Spark: three engines, plans, modes and arguments."""

import json
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from cdc_formats.topics.kafka import sample_topic
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.local_kafka import ProducerRecord
from tests.support.histories import TABLE, random_history, records_of, rows_by_key
from tests.support.strategies import by_key, fold_history
from tests.support.streams import ROCKSDB, debezium, new_topic, run_stream, servers, settings, spell


@pytest.fixture(scope="module")
def history_topic(kafka):
    # The timestamps go back: within a partition, only the offsets give the order.
    history = random_history(7, changes=800)
    stamp = 1_600_000_000_000
    records = [
        ProducerRecord(*record, timestamp=stamp - number)
        for number, record in enumerate(records_of(history))
    ]
    return history, new_topic(kafka, records, partitions=3)


def read_history(
    spark, kafka, topic, most: int | None = None, stage: dict | None = None, **arguments
):
    options = servers(kafka) if most is None else servers(kafka, maxOffsetsPerTrigger=most)
    stage = ChangelogNormalize(key_groups=5, **(stage or {}))
    return from_kafka_changelog(
        spark,
        topic,
        **{**TABLE, "options": options, "normalize": stage, "check": False, **arguments},
    )


@pytest.mark.cross_section
def test_stream_and_bounded_read_give_the_rows_of_the_fold(spark, kafka, tmp_path, history_topic):
    history, topic = history_topic
    expected = by_key(fold_history(history))
    run = run_stream(read_history(spark, kafka, topic, most=700), tmp_path / "checkpoint")
    assert rows_by_key(run.rows) == expected
    assert len(run.progress) > 1
    assert run.metric("changelog_decode", "RECORDS") == len(history)
    assert rows_by_key(read_history(spark, kafka, topic, bounded=True).collect()) == expected
    # Several tasks read a partition.
    several = read_history(
        spark, kafka, topic, bounded=True, options=servers(kafka, minPartitions=9)
    )
    assert rows_by_key(several.collect()) == expected


@pytest.mark.cross_section
def test_upserts_in_rocksdb_are_the_same_changelog_without_update_before(
    spark, kafka, tmp_path, history_topic
):
    history, topic = history_topic
    expected = {
        key: [row for row in rows if row[0] != "-U"]
        for key, rows in by_key(fold_history(history)).items()
    }
    with settings(spark, ROCKSDB):
        run = run_stream(
            read_history(spark, kafka, topic, most=500, changelog_mode="upsert"),
            tmp_path / "checkpoint",
        )
    assert rows_by_key(run.rows) == expected
    assert len(run.progress) > 1
    assert run.progress[0]["stateOperators"][0]["customMetrics"]["rocksdbPutCount"] > 0


@pytest.mark.cross_section
def test_restarts_give_new_rows_only_and_other_columns_read_the_old_state(spark, kafka, tmp_path):
    row, moved = {"id": 5, "name": "a", "qty": 1}, {"id": 6, "name": "a", "qty": 1}
    scooter = debezium("c", None, {"id": 1, "name": "scooter", "qty": 1})
    topic = new_topic(
        kafka,
        [(b"1", scooter), (b"1", debezium("c", None, row)), (b"1", debezium("u", row, moved))],
    )
    stream = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka))
    # An event that changes the key leaves no old row.
    assert sorted(run_stream(stream, tmp_path / "checkpoint").changelog) == [
        "+I(1,scooter,1)",
        "+I(5,a,1)",
        "+I(6,a,1)",
        "-D(5,a,1)",
    ]
    kafka.produce(
        topic, [(b"1", scooter), (b"1", debezium("u", None, {"id": 1, "name": "bike", "qty": 1}))]
    )
    restarted = run_stream(stream, tmp_path / "checkpoint")
    assert restarted.changelog == ["-U(1,scooter,1)", "+U(1,bike,1)"]
    assert restarted.metric("changelog_normalize", "SUPPRESSED_EQUAL") == 1
    kafka.produce(
        topic,
        [
            (b"1", debezium("u", None, {"id": 1, "name": "bike", "colour": "red"})),
            (b"1", debezium("d", {"id": 1})),
        ],
    )
    wider = from_kafka_changelog(
        spark,
        topic,
        **{**TABLE, "schema": "id INT, colour STRING, name STRING"},
        options=servers(kafka),
    )
    assert run_stream(wider, tmp_path / "checkpoint").changelog == [
        "-U(1,None,bike)",
        "+U(1,red,bike)",
        "-D(1,red,bike)",
    ]


# --------------------------------------------------------------------------------------------------
# without a stage


def test_upsert_kafka_deletes_by_key_are_completed_from_state(spark, kafka, tmp_path):
    records = [
        (b'{"id":1}', b'{"id":1,"name":"a","qty":1}'),
        (b'{"id":1}', b'{"id":1,"name":"b","qty":1}'),
        (b'{"id":1}', None),
        (b'{"id":2}', None),
    ]
    topic = new_topic(kafka, records)
    table = {**TABLE, "format": "upsert-kafka"}
    run = run_stream(
        from_kafka_changelog(spark, topic, **table, options=servers(kafka)), tmp_path / "c"
    )
    assert run.changelog == ["+I(1,a,1)", "-U(1,a,1)", "+U(1,b,1)", "-D(1,b,1)"]
    assert run.metric("changelog_normalize", "DELETES_OF_UNKNOWN_KEYS") == 1
    straight = from_kafka_changelog(
        spark,
        topic,
        **table,
        options=servers(kafka),
        normalize=False,
        changelog_mode="upsert",
        bounded=True,
    )
    assert [spell(row) for row in straight.collect()] == [
        "+U(1,a,1)",
        "+U(1,b,1)",
        "-D(1,None,None)",
        "-D(2,None,None)",
    ]


# --------------------------------------------------------------------------------------------------
# bad records


@pytest.mark.parametrize(
    ("bounded", "table"),
    [(False, TABLE), (True, {**TABLE, "normalize": False})],
    ids=["stage, stream", "no stage, bounded"],
)
def test_failfast_reports_the_error_and_the_record(spark, kafka, tmp_path, bounded, table):
    good = debezium("c", None, {"id": 1, "name": "a", "qty": 1})
    topic = new_topic(kafka, [(b"1", good), (b"2", b'{"op": "c", "after": {"id": "x"}}')])
    df = from_kafka_changelog(
        spark, topic, **table, options=servers(kafka), bounded=bounded, check=False
    )
    with pytest.raises(
        Exception,
        match=(
            r"\[TYPE_CONVERSION\] expected `INT`.*`\$\.after\.id` of the value in "
            rf"{topic}\[0\]@1"
        ),
    ):
        df.collect() if bounded else run_stream(df, tmp_path / "c")


def test_a_truncate_fails_unless_configured(spark, kafka, tmp_path):
    topic = new_topic(
        kafka,
        [(None, debezium("t")), (b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1}))],
    )
    refused = (
        rf"\[TRUNCATE\].*in {topic}\[0\]@0.*on_truncate='ignore'.*control_events=\['TRUNCATE'\]"
    )
    with pytest.raises(Exception, match=refused):
        from_kafka_changelog(
            spark,
            topic,
            **TABLE,
            options=servers(kafka),
            control_events="DDL",
            check=False,
            bounded=True,
        ).collect()
    run = run_stream(
        from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), on_truncate="ignore"),
        tmp_path / "ignore",
    )
    assert run.changelog == ["+I(1,a,1)"]
    assert run.metric("changelog_decode", "TRUNCATE") == 1


# --------------------------------------------------------------------------------------------------
# types and metadata


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
    topic = new_topic(
        kafka, [(None, json.dumps({"data": row, "op": "+I"}).encode()) for row in (data, nulls)]
    )
    table = {
        "format": "changelog-json",
        "format_options": {"rounding": "half_up"},
        "schema": schema,
        "primary_key": "id",
    }
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
    assert [value for name, value in empty.asDict().items() if name not in ("row_kind", "id")] == [
        None
    ] * 19


def test_metadata_columns_come_from_the_causing_record_and_are_not_compared(spark, kafka, tmp_path):
    row, other = {"id": 1, "name": "a", "qty": 1}, {"id": 1, "name": "b", "qty": 1}
    topic = new_topic(
        kafka,
        [
            (b"1", debezium("c", None, row)),
            (b"1", debezium("c", None, row)),
            (b"1", debezium("u", row, other)),
        ],
    )
    names = [
        "offset",
        "source.table",
        "topic",
        "partition",
        "timestamp-type",
        "source.timestamp",
        "headers",
    ]
    stream = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), metadata=names)
    rows = run_stream(stream, tmp_path / "c").rows
    assert stream.columns == ["row_kind", "id", "name", "qty", *names]
    assert [(row.row_kind, row.offset) for row in rows] == [("+I", 0), ("-U", 2), ("+U", 2)]
    first = rows[0]
    assert (
        first["source.table"],
        first.topic,
        first.partition,
        first["timestamp-type"],
        first.headers,
    ) == (
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
        return from_kafka_changelog(
            spark, *topic, **TABLE, options=options, metadata=["topic"], bounded=True, **more
        )

    both = [("one", one), ("two", two)]
    reads = {
        "list": (read([one, two]), both),
        "pattern": (read(re.compile(f"{one}|{two}")), both),
        "subscribe": (read(options={"subscribe": f"{one},{two}"}), both),
        "assign": (read(options={"assign": json.dumps({two: [0]})}), [("two", two)]),
    }
    rows = reduce(
        DataFrame.union,
        [df.selectExpr(f"'{name}' AS option", "name", "topic") for name, (df, _) in reads.items()],
    ).collect()
    assert {
        name: sorted((row.name, row.topic) for row in rows if row.option == name) for name in reads
    } == {name: expected for name, (_, expected) in reads.items()}


def test_records_of_an_aborted_transaction_are_not_read(spark, kafka, tmp_path):
    topic = new_topic(kafka, [])
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"writer-of-{topic}"}
    )
    producer.init_transactions()
    one, two = {"id": 1, "name": "a", "qty": 1}, {"id": 2, "name": "b", "qty": 2}
    aborted = [debezium("u", one, {**one, "qty": 666}), debezium("d", two)]
    for messages_of, end in (
        ([debezium("c", None, one), debezium("c", None, two)], producer.commit_transaction),
        (aborted, producer.abort_transaction),
        ([debezium("u", two, {**two, "qty": 3})], producer.commit_transaction),
        (aborted, producer.abort_transaction),
    ):
        producer.begin_transaction()
        for message in messages_of:
            producer.produce(topic, message)
        producer.flush()
        end()
    expected = ["+I(1,a,1)", "+I(2,b,2)", "-U(2,b,2)", "+U(2,b,3)"]
    table = {**TABLE, "options": servers(kafka)}
    stream = from_kafka_changelog(spark, topic, **table)
    assert sorted(run_stream(stream, tmp_path / "c").changelog) == sorted(expected)
    bounded = from_kafka_changelog(spark, topic, **table, bounded=True)
    assert sorted(map(spell, bounded.collect())) == sorted(expected)
    sample = sample_topic(kafka.bootstrap_servers, topic)
    assert [json.loads(record.value)["op"] for record in sample] == ["c", "c", "u"]
    # What the user passes wins.
    options = servers(kafka, **{"kafka.isolation.level": "read_uncommitted"})
    dirty = from_kafka_changelog(spark, topic, **TABLE, options=options, bounded=True)
    assert "-D(2,b,3)" in map(spell, dirty.collect())


# --------------------------------------------------------------------------------------------------
# custom formats
