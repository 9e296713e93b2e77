"""Checkpoint carry-over to the native engine: a query continues, nothing lost or emitted twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from cdc_formats.errors import ArgumentError, StateVersionError
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.checkpoint.carry_over import carry_over
from normalize.checkpoint.read_state import read_state
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from normalize.spark_versions import installed_version
from tests.support.events import HISTORY as WITH_POSITIONS
from tests.support.histories import TABLE, changes, random_history, records_of
from tests.support.strategies import last_rows, table_of
from tests.support.streams import ROCKSDB, new_topic, run_stream, servers, settings

pytestmark = pytest.mark.skipif(
    installed_version() < "4.2", reason="the native engine requires Spark 4.2"
)

HISTORY = random_history(31, changes=600)
HALF = len(HISTORY) // 2
NATIVE = ChangelogNormalize(engine="native")
METADATA = {"event_time": "ingestion-timestamp"}


def placed(history: list) -> list[ProducerRecord]:
    """Records of which each key has one partition."""
    return [
        ProducerRecord(key, value, int(re.sub(rb"\D", b"", key)) % 2)
        for key, value in records_of(history)
    ]


def read(
    spark, kafka, topic: str, stage: ChangelogNormalize, most: int | None = None, **arguments: Any
) -> DataFrame:
    options = servers(kafka) if most is None else servers(kafka, maxOffsetsPerTrigger=most)
    return from_kafka_changelog(
        spark, topic, **{**TABLE, **arguments}, options=options, normalize=stage, check=False
    )


def stored(spark, checkpoint: Path) -> dict:
    """Return the stored rows by key."""
    rows = read_state(spark, str(checkpoint)).drop("_key_group").collect()
    return {row.id: tuple(row) for row in rows}


@pytest.mark.cross_section
@pytest.mark.parametrize(
    ("conf", "metadata"),
    [({}, METADATA), (ROCKSDB, {})],
    ids=["default store, rows and metadata", "RocksDB, rows"],
)
def test_a_query_on_key_groups_continues_on_the_native_engine(
    spark, kafka, tmp_path, conf, metadata
):
    topic = new_topic(kafka, placed(HISTORY[:HALF]), partitions=2)
    old, new = tmp_path / "old", tmp_path / "new"
    with settings(spark, conf):
        first = run_stream(
            read(
                spark, kafka, topic, ChangelogNormalize(key_groups=4), most=250, metadata=metadata
            ),
            old,
        ).batches
        before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
        native = read(spark, kafka, topic, NATIVE, metadata=metadata)
        batch = carry_over(native, str(old), str(new), metadata=metadata)
        assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
        assert stored(spark, new) == stored(spark, old) == last_rows(HISTORY[:HALF])
        kafka.produce(topic, placed(HISTORY[HALF:]))
        if metadata:
            other_key = read(
                spark, kafka, topic, NATIVE, metadata=metadata, primary_key=["id", "qty"]
            )
            carry_over(other_key, str(old), str(tmp_path / "other"), metadata=metadata)
            with pytest.raises(StreamingQueryException) as failed:
                run_stream(other_key, tmp_path / "other", "update")
            assert explain_error(failed.value).startswith(
                "[STATE_VERSION] the primary key columns of this query and those of its checkpoint "
                "differ"
            )
        second = run_stream(native, new, "update").batches
        assert stored(spark, new) == last_rows(HISTORY)
    assert min(second) == batch == max(first) + 1 == 2
    assert (new / "metadata").read_bytes() == (old / "metadata").read_bytes()
    rows = [
        row for batches in (first, second) for number in sorted(batches) for row in batches[number]
    ]
    # A row that is emitted twice, or a retraction of another row, is an error of `table_of`.
    assert table_of([(kind, row[:3]) for kind, row in changes(rows)]) == last_rows(HISTORY)


def test_new_columns_and_shuffle_partitions_of_a_native_query(spark, kafka, tmp_path):
    """Spark fixes both for the life of a checkpoint."""
    topic = new_topic(kafka, placed(HISTORY[:HALF]), partitions=2)
    old, new = tmp_path / "old", tmp_path / "new"
    run_stream(read(spark, kafka, topic, NATIVE, schema="id INT, qty INT"), old, "update")
    changed = {"schema": "id BIGINT, name STRING, qty BIGINT"}
    kafka.produce(topic, placed(HISTORY[HALF:]))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        run_stream(read(spark, kafka, topic, NATIVE, **changed), old, "update")
    carry_over(
        read(spark, kafka, topic, NATIVE, **changed), str(old), str(new), shuffle_partitions=3
    )
    assert {path.name for path in (new / "state" / "0").iterdir()} == {"0", "1", "2", "_metadata"}
    assert stored(spark, new) == {
        key: (key, None, row[2]) for key, row in last_rows(HISTORY[:HALF]).items()
    }
    rows = run_stream(read(spark, kafka, topic, NATIVE, **changed), new, "update").rows
    changed_keys = {key for key, _ in HISTORY[HALF:]}
    expected = {
        key: row if key in changed_keys else (key, None, row[2])
        for key, row in last_rows(HISTORY).items()
    }
    assert stored(spark, new) == expected
    retracted = [row.id for row in rows if row.row_kind == "-U"]
    assert len(retracted) > 10
    with pytest.raises(
        StateVersionError, match="column qty is TINYINT, and the checkpoint has BIGINT"
    ):
        carry_over(
            read(spark, kafka, topic, NATIVE, schema="id BIGINT, qty TINYINT"),
            str(new),
            str(tmp_path / "narrow"),
        )
    assert not (tmp_path / "narrow").exists()


def test_what_cannot_be_carried_over_is_refused(spark, kafka, tmp_path):
    topic = new_topic(kafka, WITH_POSITIONS)
    old, native = str(tmp_path / "old"), read(spark, kafka, topic, NATIVE)
    by_groups = read(spark, kafka, topic, ChangelogNormalize(order="source", key_groups=2))
    run_stream(by_groups, tmp_path / "old")
    refused: list[tuple[tuple[DataFrame, str], dict[str, Any], str]] = [
        ((by_groups, old), {}, "requires a changelog on the native engine"),
        ((native, old), {}, "the state has positions"),
        ((native, old), {"metadata": METADATA}, "metadata has event_time"),
        ((native, str(tmp_path / "nothing")), {}, "is not a checkpoint"),
    ]
    for arguments, options, text in refused:
        with pytest.raises(ArgumentError, match=text):
            carry_over(*arguments, str(tmp_path / "new"), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
