"""ChangelogNormalize's options in real queries: streams, and bounded reads with the same result."""

import json
import time
from dataclasses import fields
from datetime import timedelta

import pytest

from cdc_formats.errors import ChangelogError
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.local_kafka import ProducerRecord
from tests.support.events import A0, A1, A2, B0, CLEAN, HISTORY, event, row
from tests.support.streams import new_topic, run_stream, servers, spelled

SCHEMA = "id INT, name STRING, qty INT"


STAGE_OPTIONS = {option.name for option in fields(ChangelogNormalize)} - {
    "primary_key",
    "metadata",
    "changelog_mode",
}


def read(spark, kafka, topic, **options):
    """Read a topic; the options of the stage are passed on to ChangelogNormalize."""
    stage = {"key_groups": 2, **{name: options.pop(name) for name in STAGE_OPTIONS & set(options)}}
    defaults = {
        "format": "debezium-json",
        "schema": SCHEMA,
        "primary_key": "id",
        "options": servers(kafka),
    }
    return from_kafka_changelog(
        spark, topic, normalize=ChangelogNormalize(**stage), **{**defaults, **options}
    )


def test_redeliveries_a_restart_a_new_snapshot_and_a_reset_log_leave_no_trace(
    spark, kafka, tmp_path
):
    again = [
        *HISTORY,
        *HISTORY[1:4],
        *HISTORY,
        event("r", 55, None, A2),
        event("u", 20, A0, A1),
        event("d", 40, B0, None),
    ]
    after_reset = [
        event("u", 4, A2, A0, file=1, ts=90_000),
        event("d", 9, A0, None, file=1, ts=91_000),
    ]
    topic = new_topic(kafka, [*again, *after_reset, HISTORY[4]])
    expected = sorted([*CLEAN, "-U(1,a,2)", "+U(1,a,0)", "-D(1,a,0)"])
    run = run_stream(
        read(spark, kafka, topic, options=servers(kafka, maxOffsetsPerTrigger=10), order="source"),
        tmp_path,
    )
    assert sorted(run.changelog) == expected
    assert run.metric("changelog_normalize", "REDELIVERIES") == 11
    assert run.metric("changelog_normalize", "SUPPRESSED_EQUAL") == 1
    assert len(run.progress) == 2
    assert sorted(spelled(read(spark, kafka, topic, bounded=True, order="source"))) == expected


def test_positions_order_keys_that_move_between_partitions_within_one_millisecond(
    spark, kafka, tmp_path
):
    # The older changes are in the partition that is merged last.
    moved = [(1, HISTORY[0]), (1, HISTORY[1]), (1, HISTORY[2]), (0, HISTORY[3]), (0, HISTORY[4])]
    topic = new_topic(
        kafka,
        [ProducerRecord(*message, partition, 1_700_000_000_000) for partition, message in moved],
        partitions=2,
    )
    by_arrival = ["+I(1,a,2)", "+I(2,b,0)", "+U(1,a,0)", "+U(1,a,1)", "-U(1,a,0)", "-U(1,a,2)"]
    assert sorted(spelled(read(spark, kafka, topic, bounded=True))) == by_arrival
    assert spelled(read(spark, kafka, topic, bounded=True, order="source")) == ["+I(1,a,2)"]
    run = run_stream(read(spark, kafka, topic, order="source"), tmp_path)
    assert run.changelog == ["+I(1,a,2)"]
    assert run.metric("changelog_normalize", "REDELIVERIES") == 3


def test_where_deletes_rows_that_stop_matching_and_inserts_rows_that_begin_to(
    spark, kafka, tmp_path
):
    from pyspark.sql import functions as F

    never = [
        event("c", 60, None, row(3, None, 0)),
        event("u", 70, row(3, None, 0), row(3, None, 1)),
    ]
    topic = new_topic(
        kafka, [*HISTORY, *never, event("d", 80, row(3, None, 1), None), event("u", 90, A2, A1)]
    )
    expected = [*CLEAN[:5], "-D(1,a,1)", "+I(1,a,1)"]
    run = run_stream(read(spark, kafka, topic, where="qty < 2 AND name IS NOT NULL"), tmp_path)
    assert sorted(run.changelog) == sorted(expected)
    bounded = read(
        spark, kafka, topic, where=(F.col("qty") < 2) & F.col("name").isNotNull(), bounded=True
    )
    assert sorted(spelled(bounded)) == sorted(expected)


def test_where_on_columns_with_reserved_names(spark, kafka, tmp_path):
    records = [
        (
            b"1",
            json.dumps(
                {"before": None, "after": {"key": key, "source": "s", "row": 1}, "op": "c"}
            ).encode(),
        )
        for key in (1, 2)
    ]
    topic = new_topic(kafka, records)
    schema = "key INT, source STRING, `row` INT"
    assert run_stream(
        read(spark, kafka, topic, schema=schema, primary_key="key", where="key = 2"), tmp_path
    ).changelog == ["+I(2,s,1)"]


def toast(key: int, name: str | None, qty: int) -> tuple[bytes, bytes]:
    source = {"connector": "postgresql", "table": "t"}
    return b"k", json.dumps(
        {"before": None, "after": row(key, name, qty), "op": "u", "source": source}
    ).encode()


def test_where_reads_the_stored_values_of_columns_that_the_producer_left_out(
    spark, kafka, tmp_path
):
    topic = new_topic(kafka, [HISTORY[0], toast(1, "__debezium_unavailable_value", 5)])
    assert spelled(read(spark, kafka, topic, where="name = 'a' AND qty < 6", bounded=True)) == [
        "+I(1,a,0)",
        "-U(1,a,0)",
        "+U(1,a,5)",
    ]
    run = run_stream(
        read(
            spark, kafka, topic, where="name = 'a'", options=servers(kafka, maxOffsetsPerTrigger=1)
        ),
        tmp_path,
    )
    assert run.changelog == ["+I(1,a,0)", "-U(1,a,0)", "+U(1,a,5)"]


def test_another_condition_than_that_of_the_checkpoint_stops_the_query(spark, kafka, tmp_path):
    from pyspark.sql import functions as F

    topic = new_topic(kafka, HISTORY[:1])
    assert run_stream(read(spark, kafka, topic, where="qty  <  2"), tmp_path).changelog == [
        "+I(1,a,0)"
    ]
    kafka.produce(topic, HISTORY[1:2])
    with pytest.raises(
        Exception,
        match=(
            r"\[STATE_VERSION\] where= is \(qty < 3\), and was \(qty < 2\) when the checkpoint was "
            r"written"
        ),
    ):
        run_stream(read(spark, kafka, topic, where="qty < 3"), tmp_path)
    assert run_stream(read(spark, kafka, topic, where=F.col("qty") < 2), tmp_path).changelog == [
        "-U(1,a,0)",
        "+U(1,a,1)",
    ]


def test_ignored_deletes(spark, kafka, tmp_path):
    topic = new_topic(kafka, [*HISTORY, event("c", 60, None, row(2, "b", 7))])
    kept = [line for line in CLEAN if not line.startswith("-D")]
    run = run_stream(read(spark, kafka, topic, ignore_deletes=True), tmp_path)
    assert sorted(run.changelog) == sorted([*kept, "-U(2,b,0)", "+U(2,b,7)"])
    without_stage = read(
        spark, kafka, topic, ignore_deletes=True, source_duplicates=False, bounded=True
    )
    assert sorted(spelled(without_stage)) == sorted([*kept, "+I(2,b,7)"])


def test_rows_that_expire_are_retracted_without_a_new_event(spark, kafka, tmp_path):
    topic = new_topic(kafka, HISTORY[:1])
    options = {"state_ttl": timedelta(milliseconds=300), "on_expiry": "retract"}
    seen: list[str] = []
    query = (
        read(spark, kafka, topic, **options)
        .writeStream.foreachBatch(lambda batch, _: seen.extend(spelled(batch)))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        until = time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < until:
            assert not query.awaitTermination(0.1)
    finally:
        query.stop()
    assert seen == ["+I(1,a,0)", "-D(1,a,0)"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"order": "offset"}, "order is 'offset': use 'arrival' or 'source'"),
        ({"ignore_columns": ["id"]}, "ignore_columns has 'id', which is part of the primary key"),
        ({"ignore_columns": ["x"]}, "ignore_columns has 'x', which is not one of id, name, qty"),
        ({"order": "source", "format": "canal-json"}, "canal-json has no positions"),
        ({"on_expiry": "retract"}, "on_expiry='retract' requires state_ttl"),
        ({"delete_retention": 5}, "delete_retention is 5"),
        ({"where": "nowhere > 1", "check": False}, "where is not a condition"),
        (
            {"where": "qty > 1", "source_duplicates": False},
            "where requires ChangelogNormalize, which the plan does not have",
        ),
        (
            {"order": "source", "source_duplicates": False},
            "order='source' requires ChangelogNormalize, which the plan does not have",
        ),
    ],
)
def test_invalid_options_are_refused_at_the_call(spark, kafka, options, text):
    with pytest.raises(ChangelogError, match=text):
        read(spark, kafka, "t", **options)


def test_a_binary_a_decimal_and_a_composite_key_in_any_script(spark, kafka, tmp_path):
    keys = [
        ("AAE=", "1.50", "ключ"),
        ("AAE=", "1.5", "ключ"),
        ("AAE=", "1.50", "鍵 😀"),
        ("", "-0.00", ""),
    ]
    records = [
        (None, json.dumps({"op": "c", "after": {"b": b, "d": d, "s": s, "n": n}}).encode())
        for n, (b, d, s) in enumerate(keys)
    ]
    topic = new_topic(kafka, records)
    schema = "b BINARY, d DECIMAL(5,2), s STRING, n INT"
    df = read(
        spark,
        kafka,
        topic,
        schema=schema,
        primary_key=["b", "d", "s"],
        format_options={"decimal_handling_mode": "string"},
    )
    run = run_stream(df, tmp_path)
    assert sorted(
        (row.row_kind, bytes(row.b).hex(), str(row.d), row.s, row.n) for row in run.rows
    ) == [
        ("+I", "", "0.00", "", 3),
        ("+I", "0001", "1.50", "ключ", 0),
        ("+I", "0001", "1.50", "鍵 😀", 2),
        ("+U", "0001", "1.50", "ключ", 1),
        ("-U", "0001", "1.50", "ключ", 0),
    ]
