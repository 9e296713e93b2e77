"""Avro changelogs written and read through Kafka, Spark and a schema registry."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from pyspark.errors import PythonException

from cdc_formats.avro.schema_registry import framed
from normalize import from_kafka_changelog
from tests.support.servers.registry_front import RegistryFront
from tests.support.streams import new_topic, servers, spell, write_changelog

SCHEMA = "id INT, item STRING, price DECIMAL(10,2), at TIMESTAMP_NTZ"
AT = datetime(2024, 2, 29, 12, 0, 0, 123456)
ROWS = [
    ("+I", 1, "fork", Decimal("5.00"), AT),
    ("+I", 2, "knife", None, None),
    ("-U", 1, "fork", Decimal("5.00"), AT),
    ("+U", 1, "fork", Decimal("9.99"), AT),
    ("-D", 2, "knife", None, None),
]


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("debezium-avro-confluent", {}),
        ("upsert-kafka", {"key_format": "avro-confluent", "value_format": "avro-confluent"}),
    ],
)
def test_written_records_are_read_back_and_one_with_an_unknown_schema_is_a_bad_record(spark, kafka, format, options) -> None:
    topic = new_topic(kafka, [])
    rows = spark.createDataFrame(ROWS, f"row_kind STRING, {SCHEMA}").coalesce(1)
    with RegistryFront() as registry:
        url = {"url" if format.startswith("debezium") else "avro_confluent_url": registry.url}
        written = {"format": format, "format_options": {**options, **url}, "primary_key": ["id"]}
        write_changelog(kafka, rows, topic, **written)
        kafka.produce(topic, [(framed(999_999, b"\0"), framed(999_999, b"\0"))])
        again = from_kafka_changelog(
            spark, topic, **written, schema=SCHEMA, options=servers(kafka), bounded=True, mode="PERMISSIVE"
        ).collect()
    assert sorted(spell(row) for row in again if row.row_kind) == sorted(map(spell, rows.collect()))
    (error,) = (row["_corrupt_record"]["error"] for row in again if row.row_kind is None)
    assert "[WRITER_SCHEMA]" in error
    assert "has no schema 999999" in error


def test_a_registry_that_does_not_answer_drops_no_record(spark, kafka) -> None:
    topic = new_topic(kafka, [(None, framed(1, b"\0"))])
    options = {"url": "http://127.0.0.1:9", "retry_seconds": 0}
    rows = from_kafka_changelog(
        spark, topic, format="debezium-avro-confluent", format_options=options, schema=SCHEMA, normalize=False,
        mode="PERMISSIVE", options=servers(kafka), bounded=True, check=False,
    )  # fmt: skip
    with pytest.raises(PythonException, match=r"\[SCHEMA_REGISTRY\] the schema registry at http://127.0.0.1:9 does not answer"):
        rows.collect()
