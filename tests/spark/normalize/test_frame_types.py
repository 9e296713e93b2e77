"""VARIANT and TIME columns on Spark: typed after the last pass, and written as text."""

import json
from datetime import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import VariantType

from cdc_formats.errors import ArgumentError, MissingDependencyError, SchemaError
from normalize import ChangelogNormalize, DeltaTarget, apply_changes, decode_changelog
from normalize.api import encode_changelog
from normalize.spark_versions import installed_version
from normalize.tables.apply import apply_batch
from tests.support.frames import frame
from tests.support.sinking import changelog
from tests.support.streams import debezium, run_stream, settings

TABLE: dict[str, Any] = {
    "format": "debezium-json",
    "schema": "id INT, doc VARIANT",
    "primary_key": ["id"],
}
STORY = [
    debezium("c", None, {"id": 1, "doc": '{"b": 1.50, "a": []}'}),
    debezium("c", None, {"id": 1, "doc": '{"b": 1.50, "a": []}'}),  # a redelivery
    debezium("u", None, {"id": 1, "doc": '"text"'}),
    debezium("c", None, {"id": 2, "doc": "null"}),
    debezium("c", None, {"id": 3, "doc": None}),
    debezium("d", {"id": 2, "doc": "null"}, None),
]
CHANGES = [
    ("+I", 1, '{"a":[],"b":1.5}'),
    ("-U", 1, '{"a":[],"b":1.5}'),
    ("+U", 1, '"text"'),
    ("+I", 2, "null"),
    ("-D", 2, "null"),
    ("+I", 3, None),
]


def stream_of(spark: SparkSession, values: list[bytes], folder: Path) -> DataFrame:
    frame(spark, values, "value, partition, offset, timestamp").write.mode("append").parquet(
        str(folder)
    )
    schema = "value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"
    return spark.readStream.schema(schema).parquet(str(folder))


def as_text(changes: DataFrame) -> list[tuple[Any, ...]]:
    assert changes.schema["doc"].dataType == VariantType()
    return sorted(map(tuple, changes.select("row_kind", "id", F.to_json("doc")).collect()))


@pytest.mark.cross_section
def test_json_text_becomes_a_variant_and_is_written_as_text(spark: SparkSession) -> None:
    bad = debezium("c", None, {"id": 9, "doc": '{"a":1,"a":2}'})
    df = frame(spark, [*STORY, bad], "value, partition, offset, timestamp")
    changes = decode_changelog(df, **TABLE, mode="PERMISSIVE")
    assert as_text(changes.where("row_kind IS NOT NULL")) == sorted(CHANGES)
    (error,) = changes.where("row_kind IS NULL").select("_corrupt_record.error").first()
    assert "an object of the JSON has 'a' twice: declare STRING" in error
    records = encode_changelog(
        changes.where("id = 1").drop("_corrupt_record"), format="debezium-json", primary_key="id"
    )
    written = [json.loads(row.value)["after"]["doc"] for row in records.collect()]
    assert written == ['{"a":[],"b":1.5}', '"text"']
    # Also without the stage.
    inserts = frame(spark, STORY[:2], "value, partition, offset, timestamp")
    rows = decode_changelog(inserts, **{**TABLE, "primary_key": ()}, normalize=False)
    assert as_text(rows) == [CHANGES[0], CHANGES[0]]
    # Where a changelog is normalized again, the user says what is compared.
    with pytest.raises(SchemaError, match=r"column doc is a VARIANT, which Spark does not compare"):
        changes.transform(ChangelogNormalize("id"))


@pytest.mark.cross_section
def test_a_stream_adds_a_variant_to_a_delta_table_and_merges_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = DeltaTarget(str(tmp_path / "lake"))
    spark.sql(f"CREATE TABLE {lake.sql_name} (id INT) USING delta")
    changes = decode_changelog(stream_of(spark, STORY, tmp_path / "records"), **TABLE)
    writer = apply_changes(changes, lake, keys="id", on_new_column="add")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    rows = spark.table(lake.sql_name).select("id", F.to_json("doc"))
    assert sorted(map(tuple, rows.collect())) == [(1, '"text"'), (3, None)]
    # Spark would store the text as a string of JSON.
    text = changelog(spark, "id INT, doc STRING", [("+I", 5, "{}")])
    with pytest.raises(SchemaError, match="has the column `doc` as VARIANT, which cuts values of"):
        apply_batch(text, lake, keys="id")


@pytest.mark.skipif(installed_version() < "4.2", reason="Spark 4.2 has the native engine")
def test_the_native_engine_compares_the_text(spark: SparkSession, tmp_path: Path) -> None:
    changes = decode_changelog(
        stream_of(spark, STORY, tmp_path / "records"),
        **TABLE,
        normalize=ChangelogNormalize(engine="native"),
    )
    assert changes.schema["doc"].dataType == VariantType()
    texts = changes.select("row_kind", "id", F.to_json("doc").alias("doc"))
    first = run_stream(texts, tmp_path / "c", "update").rows
    assert sorted(map(tuple, first)) == [("+I", 1, '"text"'), ("+I", 3, None)]


TIMES: dict[str, Any] = {
    "format": "debezium-json",
    "format_options": {"time_precision_mode": "isostring"},
    "schema": "id INT, at TIME(3) WITHOUT TIME ZONE",
    "primary_key": ["id"],
}


@pytest.mark.cross_section
@pytest.mark.skipif(installed_version() >= "4.1", reason="Spark 4.1 has TIME")
def test_time_is_refused_on_an_older_version(spark: SparkSession) -> None:
    df = frame(spark, [], "value, partition, offset, timestamp")
    with pytest.raises(MissingDependencyError, match=r"requires Spark 4\.1, .*: declare TIME\(3\)"):
        decode_changelog(df, **TIMES)


@pytest.mark.cross_section
@pytest.mark.skipif(installed_version() < "4.1", reason="Spark 4.0 has no TIME")
def test_time_is_sparks_time_where_the_session_has_it(spark: SparkSession) -> None:
    at = ["00:00:00Z", "23:59:59.999Z", None]
    values = [debezium("c", None, {"id": key, "at": text}) for key, text in enumerate(at)]
    df = frame(spark, values, "value, partition, offset, timestamp")
    enabled = "spark.sql.timeType.enabled"
    with settings(spark, {enabled: "false"}), pytest.raises(ArgumentError, match=f"{enabled}=true"):
        decode_changelog(df, **TIMES)
    with settings(spark, {enabled: "true"}):
        changes = decode_changelog(df, **TIMES)
        assert changes.schema["at"].dataType.simpleString() == "time(3)"
        rows = sorted((row.id, row["at"]) for row in changes.collect())
        assert rows == [(0, time(0)), (1, time(23, 59, 59, 999_000)), (2, None)]
        again = changes.transform(ChangelogNormalize("id"))
        records = encode_changelog(again, format="changelog-json")
        written = [json.loads(row.value)["data"] for row in records.collect()]
    assert sorted(each["at"] or "" for each in written) == ["", "00:00:00", "23:59:59.999"]
