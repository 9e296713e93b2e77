"""`read_state`: the stored rows of a query, read from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql.streaming.state import GroupStateTimeout
from streams import debezium, new_topic, run_stream, servers
from test_from_kafka_changelog import TABLE, last_rows, random_history, records_of

from cdc_formats import columns
from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, from_kafka_changelog, read_state
from normalize.order import Epoch
from normalize.packing import key_group_of, pack
from normalize.rescale import rescale
from normalize.state import KeyGroup, Layout

pytestmark = pytest.mark.spark

LAYOUT = Layout(2, columns("id INT, name STRING"), ("id",))
NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
NOON_MS = int(NOON.timestamp()) * 1000


def stored_by_hand(spark, groups: dict[int, bytes], checkpoint: Path) -> None:
    """Make a checkpoint whose state has these key groups."""

    def put(key, frames, state):
        for frame in frames:
            state.update((bytes(frame["state"][0]),))
        yield from ()

    folder, ddl = f"{checkpoint}-groups", "key_group INT, state BINARY"
    spark.createDataFrame([(number, bytearray(data)) for number, data in groups.items()], ddl).write.parquet(folder)
    grouped = spark.readStream.schema(ddl).parquet(folder).groupBy("key_group")
    query = grouped.applyInPandasWithState(put, "told BINARY", "state BINARY", "append", GroupStateTimeout.NoTimeout)
    run_stream(query, checkpoint)


def group_of(layout: Layout, *columns_of_rows: Sequence, epochs: Sequence[Epoch] = ()) -> bytes:
    arrays = [pa.array(values, field.type) for values, field in zip(columns_of_rows, layout.schema, strict=True)]
    return layout.encode(KeyGroup(pa.RecordBatch.from_arrays(arrays, schema=layout.schema), list(epochs)))


def rows_of(df, *names: str) -> list[tuple]:
    return sorted((tuple(row[name] for name in names or df.columns) for row in df.collect()), key=repr)


@pytest.mark.kafka
def test_the_rows_of_a_query(spark, kafka, tmp_path):
    history = random_history(29, changes=400)
    stream = from_kafka_changelog(
        spark, new_topic(kafka, records_of(history)), **TABLE, options=servers(kafka, maxOffsetsPerTrigger=250), key_groups=5
    )
    last = run_stream(stream, tmp_path / "checkpoint").progress[-1]["batchId"]
    state = read_state(spark, str(tmp_path / "checkpoint"))
    assert state.dtypes == [("id", "int"), ("name", "string"), ("qty", "int"), ("_key_group", "int")]
    rows = state.collect()
    assert {row.id: tuple(row)[:3] for row in rows} == last_rows(history)
    assert len(rows) == len(last_rows(history))
    assert all(row._key_group == key_group_of(pack((row.id,)), 5) for row in rows)
    earlier = read_state(spark, str(tmp_path / "checkpoint"), batch_id=0).collect()
    assert {row.id: tuple(row)[:3] for row in earlier} == last_rows(history[:250]) != last_rows(history)
    assert last > 0


@pytest.mark.kafka
def test_rocksdb_and_a_ttl(spark, kafka, tmp_path):
    provider = "spark.sql.streaming.stateStore.providerClass"
    topic = new_topic(kafka, [(None, debezium("c", None, {"id": 1, "price": "1.50", "tags": ["a", None]}))])
    stream = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        format_options={"decimal_handling_mode": "string"},
        schema="id INT, price DECIMAL(10,2), tags ARRAY<STRING>",
        primary_key="id",
        options=servers(kafka),
        state_ttl=timedelta(days=1),
    )
    begin = datetime.now()
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        run_stream(stream, tmp_path / "checkpoint")
    finally:
        spark.conf.unset(provider)
    state = read_state(spark, str(tmp_path / "checkpoint"))
    assert state.select("id", "price", "tags").dtypes == stream.select("id", "price", "tags").dtypes
    (row,) = state.collect()
    assert tuple(row)[:3] == (1, Decimal("1.50"), ["a", None])
    assert begin - timedelta(seconds=1) < row._written < datetime.now()


def test_groups_from_before_and_after_a_schema_change(spark, tmp_path):
    then = Layout(2, columns("id INT, name STRING, old DATE"), ("id",))
    now = Layout(2, columns("id BIGINT, name STRING, price DECIMAL(10,2)"), ("id",), with_ttl=True)
    groups = {
        0: group_of(then, [pack((1,))], [1], ["a"], [20_000], [0]),
        1: group_of(now, [pack((2,))], [2], ["b"], [Decimal("1.50")], [NOON_MS], [0]),
    }
    stored_by_hand(spark, groups, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    types = {"id": "bigint", "name": "string", "old": "date", "price": "decimal(10,2)", "_key_group": "int", "_written": "timestamp"}
    assert dict(state.dtypes) == types
    seconds = state.selectExpr("id", "name", "cast(old AS STRING)", "price", "unix_millis(_written)")
    assert rows_of(seconds) == [(1, "a", "2024-10-04", None, None), (2, "b", None, Decimal("1.50"), NOON_MS)]


def test_positions_and_remembered_deletes(spark, tmp_path):
    layout = Layout(2, columns("name STRING, id INT, day DATE"), ("id", "day"), with_positions=True)
    keys = [pack((number, 20_000)) for number in (1, 2, 3)]
    most = 2**64 - 1
    group = group_of(
        layout, keys, ["a", None, "c"], [1, None, 3], [20_000, None, 20_000], [1, 2, 0], [5, most, 0], [6, 7, 0], [0, NOON_MS, 0]
    )
    stored_by_hand(spark, {1: group}, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    plain = state.selectExpr("id", "name", "cast(day AS STRING)", "_key_group", "unix_millis(_deleted_at)", "_epoch", "_high", "_low")
    assert rows_of(plain) == [
        (1, "a", "2024-10-04", 1, None, 1, Decimal(5), Decimal(6)),
        (2, None, "2024-10-04", 1, NOON_MS, 2, Decimal(most), Decimal(7)),
        (3, "c", "2024-10-04", 1, None, None, None, None),
    ]


def test_the_compact_layout_has_hashes(spark, tmp_path):
    layout = Layout(2, columns("id INT, name STRING"), ("id",), compact=True, with_positions=True)
    key, row = 2**64 - 1, 2**63 + 2**16
    stored_by_hand(spark, {0: group_of(layout, [key], [row], [3], [4], [5], [0])}, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    expected = (Decimal(key), Decimal(row), 0, None, 3, Decimal(4), Decimal(5))
    assert [tuple(row) for row in state.collect()] == [expected]
    assert state.columns == ["_key_hash", "_row_hash", "_key_group", "_deleted_at", "_epoch", "_high", "_low"]


def test_other_stateful_operators_are_distinguished(spark, tmp_path):
    ddl = "row_kind STRING, id INT, name STRING"
    spark.createDataFrame([("+I", 1, "a"), ("+I", 2, "b")], ddl).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(ddl).parquet(str(tmp_path / "rows")).dropDuplicates(["id"])
    run_stream(stream.transform(ChangelogNormalize("id", key_groups=2)), tmp_path / "checkpoint")
    assert rows_of(read_state(spark, str(tmp_path / "checkpoint")), "id", "name") == [(1, "a"), (2, "b")]
    with pytest.raises(ArgumentError, match=r"operator 1 is not a ChangelogNormalize.* 0 \(applyInPandasWithState\), 1 \(dedupe\)"):
        read_state(spark, str(tmp_path / "checkpoint"), operator_id=1)
    with pytest.raises(ArgumentError, match="several stateful operators"):
        rescale(spark, str(tmp_path / "checkpoint"), str(tmp_path / "new"), 4)


@pytest.mark.kafka
def test_one_of_several_stages_is_selected_by_name(spark, kafka, tmp_path):
    def table(row: dict, observation: str):
        topic = new_topic(kafka, [(None, debezium("c", None, row))])
        return from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), key_groups=2, observation=observation)

    rows = {"id": 1, "name": "a", "qty": 2}, {"id": 2, "name": "b", "qty": 3}
    check = "spark.sql.streaming.unsupportedOperationCheck"
    # Spark accepts only one stage in a query unless its check is off.
    spark.conf.set(check, "false")
    try:
        run_stream(table(rows[0], "left").union(table(rows[1], "right")), tmp_path / "checkpoint")
    finally:
        spark.conf.unset(check)
    with pytest.raises(ArgumentError, match=r"0 \(applyInPandasWithState\), 1 \(applyInPandasWithState\): pass operator_id"):
        read_state(spark, str(tmp_path / "checkpoint"))
    found = [read_state(spark, str(tmp_path / "checkpoint"), operator_id=number).drop("_key_group").collect() for number in (0, 1)]
    assert sorted([row.asDict() for (row,) in found], key=repr) == list(rows)


def test_a_folder_without_state_is_an_error_and_is_not_changed(spark, tmp_path):
    with pytest.raises(ArgumentError, match="is not a checkpoint"):
        read_state(spark, str(tmp_path))
    assert not list(tmp_path.iterdir())
    spark.createDataFrame([(1,)], "id INT").write.parquet(str(tmp_path / "rows"))
    run_stream(spark.readStream.schema("id INT").parquet(str(tmp_path / "rows")), tmp_path / "checkpoint")
    with pytest.raises(ArgumentError, match="has no state"):
        read_state(spark, str(tmp_path / "checkpoint"))


def test_a_state_without_rows_has_no_columns(spark, tmp_path):
    ddl = "row_kind STRING, id INT"
    spark.createDataFrame([("+I", 1), ("-D", 1)], ddl).coalesce(1).write.parquet(str(tmp_path / "rows"))
    run_stream(spark.readStream.schema(ddl).parquet(str(tmp_path / "rows")).transform(ChangelogNormalize("id")), tmp_path / "checkpoint")
    with pytest.raises(ArgumentError, match="has no rows after batch 0"):
        read_state(spark, str(tmp_path / "checkpoint"))


def test_a_version_that_this_release_does_not_read_is_an_error(spark, tmp_path):
    stored_by_hand(spark, {0: b"\x99\x7f"}, tmp_path / "checkpoint")
    with pytest.raises(PythonException, match=r"\[STATE_VERSION\].*version 127"):
        read_state(spark, str(tmp_path / "checkpoint"))
