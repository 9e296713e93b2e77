"""A checkpoint that is rewritten for another number of key groups: the query goes on as if nothing had been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.errors import PythonException, StreamingQueryException
from streams import new_topic, run_stream, servers
from test_from_kafka_changelog import TABLE, random_history, records_of, rows_by_key
from test_read_state import LAYOUT, stored_by_hand

from cdc_formats import columns
from cdc_formats.errors import ArgumentError
from normalize import from_kafka_changelog, read_state
from normalize.order import Epoch
from normalize.packing import key_group_of, pack
from normalize.rescale import merged, rescale, split
from normalize.state import KeyGroup, Layout

sys.path.insert(0, str(Path(__file__).parents[1] / "normalize"))
from strategies import by_key, fold_history

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HISTORY = random_history(23)
HALF = len(HISTORY) // 2
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def changelog_of(spark, kafka, topic: str, key_groups: int, **options):
    return from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=300), key_groups=key_groups, **options)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def half_read(spark, kafka, tmp_path):
    """A topic whose first half a query with 4 key groups has read, with its checkpoint."""
    topic = new_topic(kafka, records_of(HISTORY[:HALF]), partitions=2)
    return topic, run_stream(changelog_of(spark, kafka, topic, 4), tmp_path / "old")


@pytest.mark.parametrize("key_groups", [12, 3])
def test_the_query_goes_on_with_another_number_of_key_groups(spark, kafka, tmp_path, half_read, key_groups):
    topic, first = half_read
    before = content_of(tmp_path / "old")
    batch = rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), key_groups)
    assert content_of(tmp_path / "old") == before
    kafka.produce(topic, records_of(HISTORY[HALF:]))
    second = run_stream(changelog_of(spark, kafka, topic, key_groups), tmp_path / "new")
    assert rows_by_key(first.rows + second.rows) == by_key(fold_history(HISTORY))
    assert second.progress[0]["batchId"] == batch == first.progress[-1]["batchId"] + 1
    assert second.progress[0]["id"] == first.progress[0]["id"]
    groups = {row._key_group for row in read_state(spark, str(tmp_path / "new")).collect()}
    assert groups == set(range(key_groups))


def test_the_command_rewrites_a_checkpoint_of_rocksdb(spark, kafka, tmp_path):
    topic = new_topic(kafka, records_of(HISTORY[:HALF]), partitions=2)
    spark.conf.set(PROVIDER, ROCKSDB)
    spark.conf.set(CHANGELOG, "true")
    try:
        first = run_stream(changelog_of(spark, kafka, topic, 4), tmp_path / "old")
        command = [sys.executable, "-m", "normalize.rescale", str(tmp_path / "old"), f"file://{tmp_path}/new", "--key-groups", "12"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert printed.strip() == f"file://{tmp_path}/new is written: start the query from it with key_groups=12; next is batch 3"
        kafka.produce(topic, records_of(HISTORY[HALF:]))
        second = run_stream(changelog_of(spark, kafka, topic, 12), tmp_path / "new")
    finally:
        spark.conf.unset(PROVIDER)
        spark.conf.unset(CHANGELOG)
    assert rows_by_key(first.rows + second.rows) == by_key(fold_history(HISTORY))


def test_a_batch_that_was_planned_and_not_committed_is_run_from_the_new_checkpoint(spark, kafka, tmp_path):
    topic = new_topic(kafka, records_of(HISTORY[:HALF]), partitions=2)
    sink: dict[int, list] = {}  # by batch, as of one that tells by the batch's number what it has

    def run(checkpoint: str, key_groups: int) -> list[dict]:
        writer = changelog_of(spark, kafka, topic, key_groups).writeStream.foreachBatch(
            lambda batch, number: sink.update({number: batch.collect()})
        )
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(batch.json) for batch in query.recentProgress]

    last = run("old", 4)[-1]
    # What a crash before the commit leaves.
    for name in (str(last["batchId"]), f".{last['batchId']}.crc"):
        (tmp_path / "old" / "commits" / name).unlink()
    assert rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 12) == last["batchId"]
    kafka.produce(topic, records_of(HISTORY[HALF:]))
    again = run("new", 12)[0]
    assert again["batchId"] == last["batchId"]
    assert [source["endOffset"] for source in again["sources"]] == [source["endOffset"] for source in last["sources"]]
    rows = [row for number in sorted(sink) for row in sink[number]]
    assert rows_by_key(rows) == by_key(fold_history(HISTORY))


def test_a_file_sink_takes_the_batches_after(spark, kafka, tmp_path):
    topic = new_topic(kafka, records_of(HISTORY[:HALF]), partitions=2)

    def run(checkpoint: str, key_groups: int) -> None:
        writer = changelog_of(spark, kafka, topic, key_groups).writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start().awaitTermination()

    run("old", 4)
    rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 12, shuffle_partitions=3)
    kafka.produce(topic, records_of(HISTORY[HALF:]))
    run("new", 12)
    # The rows of a file sink have no order.
    expected = [(kind.short_string, row) for kind, row in fold_history(HISTORY)]
    rows = [(row.row_kind, tuple(row)[1:]) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    partitions = {path.name for path in (tmp_path / "new" / "state" / "0").iterdir()}
    assert partitions == {"0", "1", "2", "_metadata"}


def test_without_it_another_number_is_an_error_that_names_the_command(spark, kafka, tmp_path, half_read):
    topic, _ = half_read
    kafka.produce(topic, records_of(HISTORY[HALF:]))
    with pytest.raises(StreamingQueryException, match=r"python -m normalize\.rescale CHECKPOINT NEW_CHECKPOINT --key-groups 12"):
        run_stream(changelog_of(spark, kafka, topic, 12), tmp_path / "old")


# ------------------------------------------------------------------------------------------------------------ what is refused


def test_what_cannot_be_rewritten_is_refused_and_nothing_is_written(spark, kafka, tmp_path, half_read):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    with pytest.raises(ArgumentError, match="old exists"):
        rescale(spark, old, old, 12)
    with pytest.raises(ArgumentError, match="at least 1"):
        rescale(spark, old, new, 0)
    with pytest.raises(ArgumentError, match="is no checkpoint"):
        rescale(spark, str(tmp_path / "nothing"), new, 12)
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


@pytest.mark.parametrize(
    ("layout", "key_groups", "message"),
    [
        pytest.param(Layout(2, LAYOUT.columns, ("id",), compact=True), 4, "the state is compact", id="compact"),
        pytest.param(Layout(2, LAYOUT.columns, ("id",), with_positions=True), 3, "take a multiple of 2", id="merged positions"),
    ],
)
def test_a_state_that_cannot_be_regrouped_is_refused(spark, tmp_path, layout, key_groups, message):
    empty = layout.encode(layout.empty())
    stored_by_hand(spark, {0: empty, 1: empty}, tmp_path / "old")
    with pytest.raises(ArgumentError, match=message):
        rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), key_groups)
    assert not (tmp_path / "new").exists()


def test_a_failure_leaves_no_new_checkpoint(spark, tmp_path):
    data = LAYOUT.encode(LAYOUT.empty())
    other = Layout(LAYOUT.key_groups, LAYOUT.columns, ("name",))
    stored_by_hand(spark, {0: data, 1: other.encode(other.empty())}, tmp_path / "old")
    with pytest.raises(PythonException, match=r"\[STATE_VERSION\].*is by primary key"):
        rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 4)
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------------------------------------ key groups


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_a_group_is_split_and_merged_without_loss(ids, old, times):
    layout = Layout(old, columns("id INT"), ("id",), with_positions=True)
    keys, epochs = [pack((number,)) for number in sorted(ids)], [Epoch("t[0]", "db", 1, (0, 0), (5, 0), (5, 0))]
    places = [pa.array(np.arange(len(keys)), field.type) for field in list(layout.schema)[2:]]
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(sorted(ids), pa.int32()), *places], schema=layout.schema)
    parts = split(KeyGroup(rows, epochs), old * times)
    assert len({number for number, _ in parts}) == len(parts)
    for number, part in parts:
        assert len(part)
        assert {key_group_of(key, old * times) for key in part.rows.column("key").to_pylist()} == {number}
        assert part.epochs == epochs
    whole = merged([part for _, part in parts], layout)
    assert sorted(whole.rows.to_pylist(), key=lambda row: row["c0"]) == rows.to_pylist()
