"""`decode_changelog` without Kafka: bronze Delta tables, text files, and frames without offsets."""

import json
import random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_formats.errors import ChangelogError
from normalize import ChangelogNormalize, DeadLetter, DeltaTarget, apply_changes, decode_changelog
from normalize.checkpoint.read_state import read_state
from normalize.dataframe import ChangeOrderError
from tests.support.events import A0, A1, HISTORY, event, row
from tests.support.frames import (
    A0_MESSAGE,
    BAD,
    BEGIN,
    RECORD,
    frame,
    kafka_records,
    messages,
    values_of,
)
from tests.support.histories import random_history, rows_by_key
from tests.support.strategies import by_key, fold_history, last_rows
from tests.support.streams import debezium, run_stream, settings, spell

TABLE: dict[str, Any] = {
    "format": "debezium-json",
    "schema": "id INT, name STRING, qty INT",
    "primary_key": ["id"],
}


@pytest.fixture(scope="module")
def bronze(spark, tmp_path_factory):
    """Return a history and a Delta table of its records.

    The records are in no order, and each file holds several partitions with gaps.
    """
    history = random_history(11)
    records = kafka_records(history)
    random.Random(3).shuffle(records)
    path = str(tmp_path_factory.mktemp("bronze") / "orders")
    spark.createDataFrame(records, RECORD).repartition(5).write.format("delta").save(path)
    return history, path


# -------------------------------------------------------------------------------------------------
# records with offsets


def test_a_shuffled_bronze_table_gives_the_rows_of_the_fold(spark, bronze):
    history, path = bronze
    table = {**TABLE, "schema": StructType.fromDDL(TABLE["schema"])}
    bounded = decode_changelog(spark.read.format("delta").load(path), **table)
    assert rows_by_key(bounded.collect()) == by_key(fold_history(history))


def test_a_bronze_table_that_grows_is_read_in_micro_batches(spark, tmp_path):
    normalize = ChangelogNormalize(key_groups=4, where="qty < 9")  # true for all rows
    history, path = random_history(5, changes=600), str(tmp_path / "bronze")
    records = kafka_records(history)
    seen: list = []
    for part in (records[:400], records[400:]):
        random.Random(len(part)).shuffle(part)
        spark.createDataFrame(part, RECORD).repartition(3).write.format("delta").mode(
            "append"
        ).save(path)
        stream = decode_changelog(
            spark.readStream.format("delta").load(path), **TABLE, normalize=normalize
        )
        seen += run_stream(stream, tmp_path / "c").rows
    assert rows_by_key(seen) == by_key(fold_history(history))


def test_a_bronze_table_is_kept_equal_to_the_source_in_a_silver_table(spark, tmp_path, bronze):
    history, path = bronze
    stream, silver = spark.readStream.format("delta").load(path), str(tmp_path / "silver")
    writer = apply_changes(decode_changelog(stream, **TABLE), DeltaTarget(silver), keys="id")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert {
        row.id: tuple(row) for row in spark.read.format("delta").load(silver).collect()
    } == last_rows(history)
    with pytest.raises(
        ChangelogError,
        match=r"add metadata=\['topic'\] .*, or drop the column topic if there is only one",
    ):
        decode_changelog(stream, **TABLE, normalize=False)
    # Without the stage, the order of the rows is that of the files.
    with pytest.raises(ChangeOrderError, match="does not keep the order"):
        apply_changes(
            decode_changelog(stream.drop("topic"), **TABLE, normalize=False),
            DeltaTarget(silver),
            keys="id",
        )


# ----------------------------------------------------------------------------------------------
# records without offsets


def test_files_with_text_are_read_in_the_order_of_their_lines(spark, tmp_path):
    files, history = tmp_path / "files", random_history(8, changes=300)
    files.mkdir()
    lines = [value.decode() for _, value in messages(history)]
    seen: list = []
    for number, part in enumerate((lines[:150], lines[150:])):
        (files / f"{number}.json").write_text("\n".join(part))
        stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(files))
        seen += run_stream(decode_changelog(stream, **TABLE), tmp_path / "c").rows
    assert rows_by_key(seen) == by_key(fold_history(history))


def test_an_unknown_order_is_an_error(spark, tmp_path):
    # `test_stage` has the records of a bounded frame.
    for number, value in enumerate(values_of([event("c", 1, None, A0), event("u", 2, A0, A1)])):
        (tmp_path / f"{number}.json").write_bytes(value)
    with settings(spark, {"spark.sql.files.openCostInBytes": 1 << 30}):  # a task for each file
        stream = spark.readStream.format("text").load(str(tmp_path / "*.json"))
        with pytest.raises(
            StreamingQueryException,
            match=r"\[ROW_ORDER\] two records of one key have the same timestamp, or none",
        ):
            run_stream(decode_changelog(stream, **TABLE), tmp_path / "c")


def test_rows_without_the_stage_keep_the_order_of_the_frame(spark):
    df = frame(spark, values_of(HISTORY), "value, partition, offset").orderBy(
        F.col("offset").desc()
    )
    rows = decode_changelog(df, **TABLE, normalize=False).collect()
    assert [spell(row) for row in rows] == [
        "-U(1,a,1)", "+U(1,a,2)", "-D(2,b,0)", "+I(2,b,0)", "-U(1,a,0)", "+U(1,a,1)", "+I(1,a,0)",
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------
# bad records


def test_an_error_names_the_row_of_a_frame_without_offsets(spark):
    with pytest.raises(Exception, match=r"\[MALFORMED_MESSAGE\].* in DataFrame\[0\]@1"):
        decode_changelog(frame(spark, BAD, "value, timestamp"), **TABLE).collect()
    with pytest.raises(Exception, match=r"\[MALFORMED_MESSAGE\].* in partition\[0\]@1"):
        decode_changelog(frame(spark, BAD, "value, partition, offset"), **TABLE).collect()
    named = frame(spark, BAD, "value, partition, offset").withColumn("topic", F.lit("orders"))
    with pytest.raises(Exception, match=r"\[MALFORMED_MESSAGE\].* in orders\[0\]@1"):
        decode_changelog(named, **TABLE).collect()


def test_a_corrupt_record_has_only_the_places_that_are_known(spark):
    kept = (
        decode_changelog(frame(spark, BAD, "value, timestamp"), **TABLE, mode="PERMISSIVE")
        .where("row_kind IS NULL")
        .first()
    )
    assert kept._corrupt_record[1:] == (None, None, None, None, b"no json")
    kept = (
        decode_changelog(frame(spark, BAD, "value, partition, offset"), **TABLE, mode="PERMISSIVE")
        .where("row_kind IS NULL")
        .first()
    )
    assert kept._corrupt_record[1:] == (None, 0, 1, None, b"no json")
    truncate = frame(spark, [debezium("t")], "value")
    mark = (
        decode_changelog(truncate, **TABLE, normalize=False, control_events="TRUNCATE")
        .first()
        ._control_event
    )
    assert (mark.type, mark.topic, mark.partition, mark.offset, mark.timestamp) == (
        "TRUNCATE",
        None,
        None,
        None,
        None,
    )


def test_a_record_without_a_place_is_an_error(spark):
    df = frame(spark, [A0_MESSAGE], "value, partition, offset").withColumn(
        "offset", F.lit(None).cast("bigint")
    )
    with pytest.raises(Exception, match="the column offset of a record is NULL"):
        decode_changelog(df, **TABLE).collect()


# --------------------------------------------------------------------------------------------------
# metadata


def test_renamed_metadata_is_part_of_the_key_and_of_the_state(spark, tmp_path):
    table = {**TABLE, "metadata": {"from": "topic", "at": "offset"}, "primary_key": ["from", "id"]}
    records = [(None, A0_MESSAGE, name, 0, 0, BEGIN) for name in ("one", "two")]
    spark.createDataFrame(records, RECORD).coalesce(1).write.parquet(str(tmp_path / "bronze"))
    stream = spark.readStream.schema(RECORD).parquet(str(tmp_path / "bronze"))
    changes = decode_changelog(stream, **table)
    rows = run_stream(changes, tmp_path / "c").rows
    assert sorted((row.row_kind, row.id, row["from"], row.at) for row in rows) == [
        ("+I", 1, "one", 0),
        ("+I", 1, "two", 0),
    ]
    assert read_state(spark, str(tmp_path / "c")).count() == 2
    renamed = {**table, "metadata": {"where": "topic"}, "primary_key": ["where", "id"]}
    other = decode_changelog(stream, **renamed)
    spark.createDataFrame(records[:1], RECORD).coalesce(1).write.mode("append").parquet(
        str(tmp_path / "bronze")
    )
    with pytest.raises(
        StreamingQueryException, match=r"\[STATE_VERSION\].*has the primary key \(id, from\)"
    ):
        run_stream(other, tmp_path / "c")


def test_topics_of_one_frame_are_compared_as_kafkas(spark):
    mixed = [
        (None, json.dumps({"op": "c", "after": row(1, "a", 0)}).encode(), name, 0, 0, BEGIN)
        for name in ("one", "two")
    ]
    df = spark.createDataFrame(mixed, RECORD)
    with pytest.raises(
        Exception, match=r"\[SEVERAL_TABLES\] the records come from the topics one and two"
    ):
        decode_changelog(df, **TABLE).collect()


# --------------------------------------------------------------------------------------------------
# arguments


@pytest.mark.parametrize(
    ("columns", "change", "text"),
    [
        pytest.param("offset", {}, "no column value: rename", id="no value"),
        pytest.param(
            "value",
            {},
            "rows of a bounded DataFrame have no order.*partition and offset, or timestamp",
            id="no order",
        ),
        pytest.param(
            "value, offset",
            {},
            "only offset of the columns partition and offset",
            id="offset without partition",
        ),
        pytest.param(
            "value, timestamp",
            {"normalize": ChangelogNormalize(order="source")},
            "requires the columns partition and offset",
            id="source",
        ),
        pytest.param(
            "value, timestamp",
            {"format": "upsert-kafka"},
            "upsert-kafka reads the record's key: add the column key",
            id="key",
        ),
        pytest.param(
            "value, timestamp",
            {"metadata": ["topic"]},
            "requires the column topic in the DataFrame",
            id="metadata",
        ),
        pytest.param(
            "value, timestamp",
            {"metadata": {"h": "header-list"}},
            "requires the column headers",
            id="headers",
        ),
        pytest.param(
            "value, timestamp",
            {"metadata": {"a": "timestamp", "b": "timestamp"}},
            "'timestamp' in two columns",
            id="twice",
        ),
        pytest.param(
            "value, timestamp",
            {"metadata": {"qty": "timestamp"}},
            "qty would be in the result twice",
            id="a column's name",
        ),
        pytest.param(
            "value, timestamp",
            {"mode": DeadLetter("dead")},
            r"DeadLetter\(..., options=\{'bootstrap.servers'",
            id="no servers",
        ),
        pytest.param(
            "value, timestamp",
            {"normalize": True},
            r"normalize is True: use None, False or ChangelogNormalize",
            id="True",
        ),
        pytest.param(
            "value, timestamp",
            {"normalize": ChangelogNormalize("name")},
            "primary_key is .*'id'.*Normalize has .*'name'",
            id="keys",
        ),
        pytest.param(
            "value, timestamp",
            {"normalize": ChangelogNormalize(metadata=["name"])},
            "remove metadata from ChangelogNormalize",
            id="names",
        ),
        pytest.param(
            "value, timestamp",
            {
                "normalize": False,
                "metadata": ["source.table"],
                "primary_key": ["source.table", "id"],
            },
            "primary_key has the metadata column .*normalize=False excludes it. Remove",
            id="a key without the stage",
        ),
        pytest.param(
            "value, timestamp",
            {"normalize": False, "format": "upsert-kafka"},
            (
                "changelog_mode='all' requires ChangelogNormalize.*remove normalize=False, or pass "
                "changelog_mode='upsert'"
            ),
            id="-U without the stage",
        ),
    ],
)
def test_missing_columns_and_unsuitable_arguments_are_refused_at_the_call(
    spark, columns, change, text
):
    with pytest.raises(ChangelogError, match=text):
        decode_changelog(frame(spark, [A0_MESSAGE], columns), **{**TABLE, **change})


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("'x' AS partition", "column partition has the type string: cast it to an integer type"),
        ("1 AS timestamp", "column timestamp has the type int: cast it to TIMESTAMP"),
        (
            "array('x') AS headers",
            "column headers has the type array<string>: cast it to array<struct",
        ),
        ("1 AS key", "column key has the type int: cast it to BINARY or STRING"),
    ],
)
def test_a_column_of_another_type_is_refused(spark, column, text):
    with pytest.raises(ChangelogError, match=text):
        decode_changelog(frame(spark, [A0_MESSAGE], "value").selectExpr("value", column), **TABLE)
