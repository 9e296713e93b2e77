"""ChangelogNormalize's options in real queries: streams, and bounded reads with the same result."""

import json
import time
from dataclasses import fields
from datetime import timedelta

from normalize import ChangelogNormalize, from_kafka_changelog
from tests.support.events import A0, A1, A2, B0, CLEAN, HISTORY, event
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
    counts = {"REDELIVERIES": 11, "SUPPRESSED_EQUAL": 1}
    assert {name: run.metric("changelog_normalize", name) for name in counts} == counts
    assert len(run.progress) == 2
    assert sorted(spelled(read(spark, kafka, topic, bounded=True, order="source"))) == expected


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
