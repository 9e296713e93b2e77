"""`read_state`: the stored rows of a query, read from its checkpoint."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.checkpoint.read_state import read_state
from tests.support.histories import TABLE
from tests.support.streams import ROCKSDB, debezium, new_topic, run_stream, servers, settings


@pytest.mark.cross_section
def test_rocksdb_and_a_ttl(spark, kafka, tmp_path):
    topic = new_topic(
        kafka, [(None, debezium("c", None, {"id": 1, "price": "1.50", "tags": ["a", None]}))]
    )
    stream = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        format_options={"decimal_handling_mode": "string"},
        schema="id INT, price DECIMAL(10,2), tags ARRAY<STRING>",
        primary_key="id",
        options=servers(kafka),
        normalize=ChangelogNormalize(state_ttl=timedelta(days=1)),
    )
    begin = datetime.now()
    with settings(spark, ROCKSDB):
        run_stream(stream, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    assert state.select("id", "price", "tags").dtypes == stream.select("id", "price", "tags").dtypes
    (row,) = state.collect()
    assert tuple(row)[:3] == (1, Decimal("1.50"), ["a", None])
    assert begin - timedelta(seconds=1) < row._written < datetime.now()


def test_one_of_several_stages_is_selected_by_name(spark, kafka, tmp_path):
    def table(row: dict, observation: str):
        topic = new_topic(kafka, [(None, debezium("c", None, row))])
        return from_kafka_changelog(
            spark,
            topic,
            **TABLE,
            options=servers(kafka),
            normalize=ChangelogNormalize(key_groups=2),
            observation=observation,
        )

    rows = {"id": 1, "name": "a", "qty": 2}, {"id": 2, "name": "b", "qty": 3}
    # Spark accepts only one stage in a query unless its check is off.
    with settings(spark, {"spark.sql.streaming.unsupportedOperationCheck": "false"}):
        run_stream(table(rows[0], "left").union(table(rows[1], "right")), tmp_path / "checkpoint")
    with pytest.raises(
        ArgumentError,
        match=r"0 \(applyInPandasWithState\), 1 \(applyInPandasWithState\): pass operator_id",
    ):
        read_state(spark, str(tmp_path / "checkpoint"))
    states = [
        read_state(spark, str(tmp_path / "checkpoint"), operator_id=number)
        .drop("_key_group")
        .collect()
        for number in (0, 1)
    ]
    assert sorted([row.asDict() for (row,) in states], key=repr) == list(rows)
