"""TLS and SASL with a real broker: everything that reads or writes Kafka, and refused clients."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from cdc_formats.errors import SampleError
from cdc_formats.topics.kafka import sample_topic
from normalize import DeadLetter, from_kafka_changelog, to_kafka_changelog
from normalize.api import encode_changelog
from normalize.kafka.client_options import librdkafka_options
from tests.support.secured_topics import (
    BAD,
    PATIENCE,
    REFUSED,
    TLS,
    WRONG,
    holds_no_secret,
    message,
    strangers,
)
from tests.support.servers.secured import Secured
from tests.support.streams import new_topic, run_stream


def spelled(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((row["row_kind"], row["id"], row["name"]) for row in rows)


# --------------------------------------------------------------------------------------------------
# who may come in


@pytest.mark.parametrize("client", ["scram", "mtls_pem", "mtls_pkcs12"])
def test_a_bounded_read_infers_its_schema_sends_dead_letters_and_is_written_back(
    spark: Any, secured: Secured, client: str
) -> None:
    options = getattr(secured, client)()
    topic = new_topic(secured.kafka, [message("c", 1, "bike"), message("c", 2, "car"), (None, BAD)])
    dead, copy = new_topic(secured.kafka, []), new_topic(secured.kafka, [])
    read = {"format": "debezium-json", "primary_key": ["id"], "options": options, "bounded": True}
    df = from_kafka_changelog(
        spark, topic, **read, schema="id INT, name STRING", mode=DeadLetter(dead)
    )
    assert spelled(df.collect()) == [("+I", 1, "bike"), ("+I", 2, "car")]
    assert [letter.value for letter in sample_topic(secured.kafka.bootstrap_servers, dead)] == [BAD]
    encode_changelog(df, format="debezium-json", primary_key="id").write.format("kafka").options(
        **options, topic=copy
    ).save()
    assert spelled(from_kafka_changelog(spark, copy, **read).collect()) == [
        ("+I", 1, "bike"),
        ("+I", 2, "car"),
    ]


def test_a_stream_is_read_and_written(spark: Any, secured: Secured, tmp_path: Path) -> None:
    options = secured.plain()
    topic, copy = (
        new_topic(secured.kafka, [message("c", 1, "bike"), message("u", 1, "car")]),
        new_topic(secured.kafka, []),
    )
    dead = new_topic(secured.kafka, [])
    read = {
        "format": "debezium-json",
        "schema": "id INT, name STRING",
        "primary_key": ["id"],
        "options": options,
    }
    df = from_kafka_changelog(spark, topic, **read, mode=DeadLetter(dead))
    writer = to_kafka_changelog(df, copy, format="debezium-json", primary_key="id", options=options)
    writer.option("checkpointLocation", str(tmp_path / "written")).trigger(
        availableNow=True
    ).start().awaitTermination()
    rows = run_stream(from_kafka_changelog(spark, copy, **read), tmp_path / "read").rows
    assert spelled(rows) == [("+I", 1, "bike"), ("+U", 1, "car"), ("-U", 1, "bike")]


# --------------------------------------------------------------------------------------------------
# who may not


@pytest.mark.parametrize(
    "stranger",
    [
        "wrong password, SCRAM",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("another authority", "nothing at all")
        ),
        "no certificate",
    ],
)
def test_unauthorised_reading_is_kafkas_error_without_secrets(
    spark: Any, secured: Secured, stranger: str, tmp_path: Path, capfd: Any
) -> None:
    options = {**strangers(secured)[stranger], **PATIENCE}
    read = {
        "format": "debezium-json",
        "schema": "id INT, name STRING",
        "primary_key": ["id"],
        "options": options,
    }
    begin = time.monotonic()
    with pytest.raises(SampleError) as checked:
        from_kafka_changelog(spark, "orders", **read)
    assert time.monotonic() - begin < 12
    assert str(checked.value).startswith(
        REFUSED.get(stranger, "[KAFKA_UNAVAILABLE] no Kafka broker answered (_TRANSPORT")
    )
    assert holds_no_secret(str(checked.value) + repr(checked.value))
    df = from_kafka_changelog(spark, "orders", **read, check=False)
    started = time.monotonic()
    with pytest.raises(StreamingQueryException) as caught:
        run_stream(df, tmp_path / "c")
    assert time.monotonic() - started < 20
    assert any(
        what in str(caught.value) for what in ("Authentication", "SSL", "Timed out", "Timeout")
    )
    assert holds_no_secret(str(caught.value) + "".join(capfd.readouterr()))


def test_a_certificate_that_only_java_may_trust_skips_the_check(
    spark: Any, secured: Secured, caplog: Any
) -> None:
    options = {name: value for name, value in secured.scram().items() if "truststore" not in name}
    from_kafka_changelog(
        spark,
        "orders",
        format="debezium-json",
        schema="id INT",
        primary_key="id",
        options=options,
        bounded=True,
    )
    (warning,) = [record.getMessage() for record in caplog.records]
    assert (
        warning
        == f"broker, login, topic and records are not checked before the query starts: {TLS}"
    )


def test_dead_letters_whose_login_is_refused_fail_the_query_without_secrets(
    spark: Any, secured: Secured, tmp_path: Path
) -> None:
    topic, dead = new_topic(secured.kafka, [(None, BAD)]), new_topic(secured.kafka, [])
    theirs = librdkafka_options(secured.plain(WRONG))
    df = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        schema="id INT, name STRING",
        primary_key=["id"],
        options=secured.plain(),
        mode=DeadLetter(dead, {**theirs, "message.timeout.ms": 2000}),
    )
    with pytest.raises(
        StreamingQueryException, match=r"\[DEAD_LETTER\] .*were not written"
    ) as caught:
        run_stream(df, tmp_path / "c")
    assert "SASL authentication error" in str(caught.value)
    assert holds_no_secret(str(caught.value))
