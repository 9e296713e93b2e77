"""VARIANT columns on Spark: parsed after the last pass, and written as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import VariantType

from cdc_formats.errors import SchemaError
from normalize import ChangelogNormalize, DeltaTarget, apply_changes, decode_changelog
from normalize.api import encode_changelog
from normalize.sinks.apply import apply_batch
from normalize.spark_versions import installed_version
from tests.support.frames import frame
from tests.support.streams import debezium, run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    without_stage = decode_changelog(df, **TABLE | {"primary_key": ()}, mode="DROPMALFORMED")
    assert without_stage.schema["doc"].dataType == VariantType()
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
    text = spark.createDataFrame([("+I", 5, "{}")], "row_kind STRING, id INT, doc STRING")
    with pytest.raises(SchemaError, match="has the column `doc` as VARIANT, which cuts values of"):
        apply_batch(text.coalesce(1), lake, keys="id")


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
