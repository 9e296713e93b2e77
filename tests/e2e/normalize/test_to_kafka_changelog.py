"""Writing changelogs to Kafka, as JSON and Avro, and reading them back."""

from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from cdc_formats import columns
from cdc_formats.avro.schema_registry import framed
from cdc_formats.errors import ArgumentError, FormatOptionError, SchemaError
from normalize import ChangelogNormalize, from_kafka_changelog, to_kafka_changelog
from normalize.api import encode_changelog
from normalize.core.arrow import spark_ddl
from tests.support.servers.registry_front import RegistryFront
from tests.support.streams import (
    debezium,
    letters,
    new_topic,
    run_stream,
    servers,
    spell,
    write_changelog,
)

ORDERS = {"schema": "id INT, item STRING, price DECIMAL(10,2)", "primary_key": ["id"]}


def order_messages() -> list[tuple[None, bytes]]:
    """Orders 1000 to 1010 are inserted, 1005 is updated, 1000 is deleted."""
    rows = {
        number: {"id": number, "item": f"item {number}", "price": 5.0}
        for number in range(1000, 1011)
    }
    dearer = {**rows[1005], "price": 9.99}
    return [
        *((None, debezium("c", None, row)) for row in rows.values()),
        (None, debezium("u", rows[1005], dearer)),
        (None, debezium("d", rows[1000])),
    ]


def records_of(kafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All records of a topic with one partition."""
    return [(message.key(), message.value()) for message in letters(kafka, topic)]


EXPECTED = [
    *(f"+I({number},item {number},5.00)" for number in range(1000, 1011)),
    "-U(1005,item 1005,5.00)",
    "+U(1005,item 1005,9.99)",
    "-D(1000,item 1000,5.00)",
]


@pytest.mark.cross_section
def test_demo_orders_rewritten_in_another_format_read_back(spark, kafka, tmp_path):
    identifier = "debezium-json"
    source, written = new_topic(kafka, order_messages()), new_topic(kafka, [])
    orders = from_kafka_changelog(
        spark,
        source,
        format="debezium-json",
        **ORDERS,
        options=servers(kafka),
        normalize=ChangelogNormalize(key_groups=2),
    )
    writer = to_kafka_changelog(
        orders, written, format=identifier, primary_key=["id"], options=servers(kafka)
    )
    writer.option("checkpointLocation", str(tmp_path / "write")).trigger(
        availableNow=True
    ).start().awaitTermination()
    again = from_kafka_changelog(
        spark,
        written,
        format=identifier,
        **ORDERS,
        options=servers(kafka),
        normalize=ChangelogNormalize(key_groups=2),
    )
    assert sorted(run_stream(again, tmp_path / "read").changelog) == sorted(EXPECTED)
    straight = from_kafka_changelog(
        spark,
        written,
        format=identifier,
        **ORDERS,
        options=servers(kafka),
        normalize=False,
        bounded=True,
    )
    assert sorted(spell(row) for row in straight.collect()) == sorted(EXPECTED)
    assert len(records_of(kafka, written)) == 13, "an update is one record"


WIDE = (
    "id BIGINT, name STRING, price DECIMAL(20,4), day DATE, at TIMESTAMP(6), local "
    "TIMESTAMP_NTZ(3), t TIME(6), data BINARY, flag BOOLEAN, share DOUBLE, tags ARRAY<DECIMAL(5,"
    "2)>, more STRUCT<a: INT, b: MAP<STRING, DATE>>"
)
FULL = (
    7, "naïve", Decimal("100.0000"), date(1969, 12, 31), datetime(2026, 3, 29, 1, 30, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 999000),
    "12:34:56.000001", bytearray(b"\x00\xff"), True, 0.1, [Decimal("-0.05"), None], Row(a=1, b={"x": date(2000, 1, 1)}),
)  # fmt: skip
EMPTY = (7, *[None] * 11)
CHANGELOG = [
    ("+I", *FULL),
    ("-U", *FULL),
    ("+U", *EMPTY),
    ("-U", *EMPTY),
    ("+U", *FULL),
    ("-D", *FULL),
]


@pytest.mark.parametrize(
    ("identifier", "options"),
    [
        (
            "debezium-json",
            {
                "decimal_handling_mode": "precise",
                "time_precision_mode": "adaptive",
                "schema_include": False,
            },
        ),
        ("canal-json", {}),
    ],
)
def test_rows_of_every_type_are_read_back_unchanged(spark, kafka, identifier, options):
    topic = new_topic(kafka, [])
    ddl = f"row_kind STRING, {spark_ddl(columns(WIDE))}, metadata STRING"
    df = spark.createDataFrame([(*row, "x") for row in CHANGELOG], ddl).coalesce(1)
    write_changelog(
        kafka, df, topic, format=identifier, format_options=options, schema=WIDE, primary_key="id"
    )
    again = from_kafka_changelog(
        spark,
        topic,
        format=identifier,
        format_options=options,
        schema=WIDE,
        options=servers(kafka),
        normalize=False,
        bounded=True,
    )
    assert [tuple(row) for row in again.collect()] == CHANGELOG
    records = records_of(kafka, topic)
    assert len(records) == 4, "two of six rows are the halves of updates"
    assert len({key for key, _ in records}) == 1


def test_rows_that_cannot_be_written_are_refused_at_the_call(spark, kafka):
    df = spark.createDataFrame([Row(row_kind="+I", id=1)])
    for rows, arguments, error, text in (
        (
            df,
            {"format": "canal-json", "format_options": {"table_include": "t"}},
            FormatOptionError,
            "rows do not contain their table's name",
        ),
        (
            df,
            {"schema": "id DECIMAL(3,1)"},
            SchemaError,
            r"schema has id DECIMAL\(3,1\), but the DataFrame has BIGINT",
        ),
        (
            df,
            {"schema": "id BIGINT, name STRING"},
            SchemaError,
            "schema has name STRING, but the DataFrame has no such column",
        ),
        (df.drop("row_kind"), {}, ArgumentError, "no column row_kind"),
    ):
        with pytest.raises(error, match=text):
            encode_changelog(rows, **arguments)
    with pytest.raises(
        ArgumentError, match=r"is bounded.*encode_changelog\(df, \.\.\.\)\.write\.format\('kafka'\)"
    ):
        to_kafka_changelog(df, "t", options=servers(kafka))
    with pytest.raises(ArgumentError, match=r"kafka\.bootstrap\.servers"):
        to_kafka_changelog(spark.readStream.format("rate").load(), "t", options={})


# --------------------------------------------------------------------------------------------------
# Avro

AVRO = "id INT, item STRING, price DECIMAL(10,2), at TIMESTAMP_NTZ"
AT = datetime(2024, 2, 29, 12, 0, 0, 123456)
AVRO_ROWS = [
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
def test_written_records_are_read_back_and_one_with_an_unknown_schema_is_a_bad_record(
    spark, kafka, format, options
) -> None:
    topic = new_topic(kafka, [])
    rows = spark.createDataFrame(AVRO_ROWS, f"row_kind STRING, {AVRO}").coalesce(1)
    with RegistryFront() as registry:
        url = {"url" if format.startswith("debezium") else "avro_confluent_url": registry.url}
        written = {"format": format, "format_options": {**options, **url}, "primary_key": ["id"]}
        write_changelog(kafka, rows, topic, **written)
        kafka.produce(topic, [(framed(999_999, b"\0"), framed(999_999, b"\0"))])
        again = from_kafka_changelog(
            spark,
            topic,
            **written,
            schema=AVRO,
            options=servers(kafka),
            bounded=True,
            mode="PERMISSIVE",
        ).collect()
    assert sorted(spell(row) for row in again if row.row_kind) == sorted(map(spell, rows.collect()))
    (error,) = (row["_corrupt_record"]["error"] for row in again if row.row_kind is None)
    assert "[WRITER_SCHEMA]" in error
    assert "has no schema 999999" in error
