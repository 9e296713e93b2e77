"""Notices in the log of a job: undeclared columns, and a topic whose records were all refused."""

import json
import re
from base64 import b64encode
from random import Random

import pytest
from pyspark.sql import Observation

from normalize import ChangelogNormalize, from_kafka_changelog
from tests.support.streams import debezium, new_topic, run_stream, servers

ROWS = [
    (None, debezium("c", None, {"id": i, "wieght": i, "colour\x1b[31m": "red"})) for i in range(40)
]
BAD = [(None, b'{"after": {"id": %d}, "op": "no such"}' % i) for i in range(39)] + [
    (None, b"no JSON")
]


def read(
    spark, kafka, records, bounded: bool, checkpoint, **options
) -> tuple[str, int, list[dict]]:
    """Read a new topic, as a stream in two micro-batches.

    Return its name, the number of rows, and the counts of each batch.
    """
    topic = new_topic(kafka, records)
    arguments = {"format": "debezium-json", "primary_key": "id", "check": False, **options}
    if bounded:
        observed = Observation()
        changes = from_kafka_changelog(
            spark, topic, bounded=True, observation=observed, options=servers(kafka), **arguments
        )
        return topic, changes.count(), [observed.get]
    run = run_stream(
        from_kafka_changelog(
            spark, topic, options=servers(kafka, maxOffsetsPerTrigger=20), **arguments
        ),
        checkpoint,
    )
    return (
        topic,
        len(run.rows),
        [batch["observedMetrics"]["changelog_decode"] for batch in run.progress],
    )


@pytest.mark.parametrize("bounded", [True, False])
def test_undeclared_columns_are_logged_once(spark, kafka, tmp_path, caplog, bounded):
    topic, rows, counts = read(
        spark, kafka, ROWS, bounded, tmp_path, schema="id BIGINT, weight BIGINT"
    )
    absent, unknown = caplog.messages
    sampled = 5  # a small micro-batch
    assert (
        f"declared but missing from {sampled} of {sampled} sampled records (first: {topic}[0]@0): "
        "`weight`. "
    ) in absent
    assert (
        f"in {sampled} of {sampled} sampled records (first: {topic}[0]@0) but not declared: "
        "`wieght`, `colour\\x1b[31m`. "
    ) in unknown
    assert rows == 40
    assert len(counts) == (1 if bounded else 2)
    assert {(each["ABSENT_COLUMNS"], each["UNKNOWN_COLUMNS"]) for each in counts} == {
        (sampled, sampled)
    }


@pytest.mark.parametrize("bounded", [True, False])
def test_a_job_without_readable_records_logs_it_once(spark, kafka, tmp_path, caplog, bounded):
    topic, rows, _ = read(
        spark, kafka, BAD, bounded, tmp_path, schema="id BIGINT", mode="DROPMALFORMED"
    )
    (notice,) = caplog.messages
    refused = (
        "40 of 40: UNKNOWN_OPERATION 39, MALFORMED_MESSAGE 1"
        if bounded
        else "20 of 20: UNKNOWN_OPERATION 20"
    )
    assert f"every record that a task read is bad ({refused})" in notice
    assert (
        "The first error: [UNKNOWN_OPERATION] op 'no such' is none of c, d, r, u, t, m - at "
        f"`$.op` of the value in {topic}[0]@0"
    ) in notice
    assert rows == 0


def test_the_driver_logs_notices_of_every_process(spark, kafka, caplog):
    topic = new_topic(kafka, BAD, partitions=1)
    secret = {"error_excerpt": False}
    read = {
        "format": "debezium-json",
        "format_options": secret,
        "schema": "id BIGINT",
        "primary_key": "id",
        "options": servers(kafka),
    }
    changes = from_kafka_changelog(spark, topic, bounded=True, mode="DROPMALFORMED", **read)
    for _ in range(2):
        assert changes.collect() == []
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("normalize", "WARNING")
    assert "no such" not in record.getMessage(), "error_excerpt=False keeps data out of notices too"


def test_facts_in_the_result_cause_no_notice(spark, kafka, tmp_path, caplog):
    topic = new_topic(kafka, [*ROWS[:2], *BAD])
    read = {
        "format": "debezium-json",
        "schema": "id BIGINT, wieght BIGINT, `colour\x1b[31m` STRING",
        "primary_key": "id",
    }
    some = from_kafka_changelog(
        spark, topic, bounded=True, mode="DROPMALFORMED", options=servers(kafka), **read
    )
    assert some.count() == 2
    only_bad = from_kafka_changelog(
        spark,
        topic,
        mode="PERMISSIVE",
        options=servers(kafka, startingOffsets=json.dumps({topic: {"0": 2}})),
        check=False,
        **read,
    )
    assert len(run_stream(only_bad, tmp_path / "checkpoint").rows) == 40
    assert caplog.records == []


def test_large_state_is_reported_once_before_memory_ends_and_with_few_changes_the_other_engine(
    spark, kafka, tmp_path, caplog
):
    random = Random(0)  # the state is compressed, and these texts cannot be
    rows = [{"id": i, "doc": b64encode(random.randbytes(75_000)).decode()} for i in range(340)]
    topic = new_topic(kafka, [(None, debezium("c", None, row)) for row in rows])
    read = {
        "format": "debezium-json",
        "schema": "id BIGINT, doc STRING",
        "primary_key": "id",
        "options": servers(kafka),
    }
    stream = from_kafka_changelog(
        spark, topic, normalize=ChangelogNormalize(key_groups=1), **read
    ).drop("doc")
    assert len(run_stream(stream, tmp_path / "checkpoint").rows) == 340
    (large_group,) = caplog.messages  # no more, since every row is new
    assert large_group.startswith("the state of one key group has 32 MB. ")
    assert "use more than 1 key groups" in large_group
    for row in rows[:2]:
        kafka.produce(topic, [(None, debezium("u", row, row | {"doc": row["doc"][::-1]}))])
        assert len(run_stream(stream, tmp_path / "checkpoint").rows) == 2
    notice = caplog.messages[-1]
    assert caplog.messages == [large_group, notice]
    pattern = (
        r"the state of the query has about 32 MB in 1 key groups, .* all 340 keys of one group for "
        r"1 changes"
    )
    assert re.match(pattern, notice)
    assert "ChangelogNormalize(engine='native')" in notice
