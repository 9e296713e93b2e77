"""TLS and SASL with a real broker: everything that reads or writes Kafka, and refused clients."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from secured import BROKER_KEY_PASSWORD, KEY_PASSWORD, PASSWORD, SECRETS, Secured

from cdc_formats.errors import ArgumentError, SampleError
from cdc_formats.kafka import infer_topic, profile_topic, sample_topic
from normalize import LocalKafka, from_kafka_changelog, to_kafka_changelog
from normalize.client_options import librdkafka_options

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

CLIENTS = ["scram", "plain", "mtls_pem", "mtls_pkcs12"]
BAD = b'{"op": "c", "after": {"id": "no number"}}'
PATIENCE = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}
WRONG = "guessed-51ff"


def message(op: str, key: int, name: str) -> tuple[bytes, bytes]:
    return b"%d" % key, json.dumps({"op": op, "before": None, "after": {"id": key, "name": name}}).encode()


def new_topic(secured: Secured, records: list[tuple[bytes | None, bytes]]) -> str:
    topic = f"t-{uuid4().hex[:12]}"
    secured.kafka.create_topic(topic)
    secured.kafka.produce(topic, records)
    return topic


def connection(options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A client's options for `sample_topic`: the servers and the other options."""
    config = librdkafka_options(options)
    return config.pop("bootstrap.servers"), config


def spelled(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((row["row_kind"], row["id"], row["name"]) for row in rows)


def drain(df: Any, checkpoint: Path) -> list[Any]:
    """Run a stream until it has read all records."""
    rows: list[Any] = []
    writer = df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows


# ------------------------------------------------------------------------------------------------------ who may come in


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_is_sampled(secured: Secured, client: str) -> None:
    topic = new_topic(secured, [message("c", 1, "bike")])
    servers, config = connection(getattr(secured, client)())
    assert [record.key for record in sample_topic(servers, topic, config=config)] == [b"1"]
    assert infer_topic(servers, topic, format="debezium-json", config=config).ddl == "id BIGINT, name STRING"
    profile = profile_topic(servers, topic, config=config, progress=False)
    assert profile.format == "debezium-json"
    shown = [str(profile), repr(profile), profile._repr_html_(), json.dumps(profile.to_dict())]
    assert holds_no_secret("".join(shown))


@pytest.mark.parametrize("client", ["scram", "mtls_pem", "mtls_pkcs12"])
def test_a_bounded_read_infers_its_schema_sends_dead_letters_and_is_written_back(spark: Any, secured: Secured, client: str) -> None:
    options = getattr(secured, client)()
    topic = new_topic(secured, [message("c", 1, "bike"), message("c", 2, "car"), (None, BAD)])
    dead, copy = new_topic(secured, []), new_topic(secured, [])
    read = {"format": "debezium-json", "primary_key": ["id"], "options": options, "bounded": True}
    df = from_kafka_changelog(spark, topic, **read, schema="id INT, name STRING", dead_letter=dead)
    assert spelled(df.collect()) == [("+I", 1, "bike"), ("+I", 2, "car")]
    assert [letter.value for letter in sample_topic(secured.kafka.bootstrap_servers, dead)] == [BAD]
    to_kafka_changelog(df, copy, format="debezium-json", primary_key="id", options=options)
    assert spelled(from_kafka_changelog(spark, copy, **read).collect()) == [("+I", 1, "bike"), ("+I", 2, "car")]


def test_a_stream_is_read_and_written(spark: Any, secured: Secured, tmp_path: Path) -> None:
    options = secured.plain()
    topic, copy = new_topic(secured, [message("c", 1, "bike"), message("u", 1, "car")]), new_topic(secured, [])
    dead = new_topic(secured, [])
    read = {"format": "debezium-json", "schema": "id INT, name STRING", "primary_key": ["id"], "options": options}
    df = from_kafka_changelog(spark, topic, **read, dead_letter=dead)
    writer = to_kafka_changelog(df, copy, format="debezium-json", primary_key="id", options=options)
    writer.option("checkpointLocation", str(tmp_path / "written")).trigger(availableNow=True).start().awaitTermination()
    rows = drain(from_kafka_changelog(spark, copy, **read), tmp_path / "read")
    assert spelled(rows) == [("+I", 1, "bike"), ("+U", 1, "car"), ("-U", 1, "bike")]


# -------------------------------------------------------------------------------------------------------- who may not


def strangers(secured: Secured) -> dict[str, dict[str, str]]:
    """Clients that the broker refuses, or that refuse the broker."""
    return {
        "wrong password, SCRAM": secured.scram(WRONG),
        "wrong password, PLAIN": secured.plain(WRONG),
        "another authority": secured.scram(ca="stranger.pem"),
        "no certificate": secured.no_certificate(),
        "no TLS": {**secured.scram(), "kafka.security.protocol": "SASL_PLAINTEXT"},
        "nothing at all": {"kafka.bootstrap.servers": secured.kafka.listener("SCRAM")},
    }


REFUSED = {"wrong password, SCRAM": "_AUTHENTICATION", "wrong password, PLAIN": "_AUTHENTICATION", "another authority": "_SSL"}
"""Refusals that the client gets an error for; in the other cases the connection just ends."""
STRANGERS = ["wrong password, SCRAM", "wrong password, PLAIN", "another authority", "no certificate", "no TLS", "nothing at all"]


def holds_no_secret(text: str) -> bool:
    return not [secret for secret in (*SECRETS, WRONG, "PRIVATE KEY") if secret in text]


@pytest.mark.parametrize("stranger", STRANGERS)
def test_unauthorised_sampling_is_a_typed_error_without_secrets(secured: Secured, stranger: str, capfd: Any) -> None:
    servers, config = connection(strangers(secured)[stranger])
    started = time.monotonic()
    with pytest.raises(SampleError) as caught:
        sample_topic(servers, "orders", config=config, timeout_seconds=60 if stranger in REFUSED else 2)
    assert time.monotonic() - started < 30
    if stranger in REFUSED:
        assert f"Kafka refuses the connection ({REFUSED[stranger]}): check security.protocol and" in str(caught.value)
    assert holds_no_secret(str(caught.value) + repr(caught.value) + "".join(capfd.readouterr()))


def test_a_keystore_that_does_not_open_is_refused_at_the_call_without_its_password(secured: Secured) -> None:
    options = {**secured.mtls_pkcs12(), "kafka.ssl.keystore.password": WRONG}
    servers, config = connection(options)
    with pytest.raises(ArgumentError) as sampled:
        sample_topic(servers, "orders", config=config)
    with pytest.raises(ArgumentError) as dead:
        from_kafka_changelog(None, "orders", format="debezium-json", schema="id INT", primary_key="id", options=options, dead_letter="dead")  # type: ignore[arg-type]
    assert holds_no_secret(str(sampled.value) + str(dead.value))


@pytest.mark.parametrize("stranger", ["wrong password, SCRAM", "another authority", "no certificate", "nothing at all"])
def test_unauthorised_reading_is_kafkas_error_without_secrets(
    spark: Any, secured: Secured, stranger: str, tmp_path: Path, capfd: Any
) -> None:
    options = {**strangers(secured)[stranger], **PATIENCE}
    df = from_kafka_changelog(spark, "orders", format="debezium-json", schema="id INT, name STRING", primary_key=["id"], options=options)
    started = time.monotonic()
    with pytest.raises(StreamingQueryException) as caught:
        drain(df, tmp_path / "c")
    assert time.monotonic() - started < 20
    assert any(what in str(caught.value) for what in ("Authentication", "SSL", "Timed out", "Timeout"))
    assert holds_no_secret(str(caught.value) + "".join(capfd.readouterr()))


def test_dead_letters_whose_login_is_refused_fail_the_query_without_secrets(spark: Any, secured: Secured, tmp_path: Path) -> None:
    topic, dead = new_topic(secured, [(None, BAD)]), new_topic(secured, [])
    theirs = librdkafka_options(secured.plain(WRONG))
    df = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        schema="id INT, name STRING",
        primary_key=["id"],
        options=secured.plain(),
        dead_letter=dead,
        dead_letter_options={**theirs, "message.timeout.ms": 2000},
    )
    with pytest.raises(StreamingQueryException, match=r"\[DEAD_LETTER\] .*were not written") as caught:
        drain(df, tmp_path / "c")
    assert "SASL authentication error" in str(caught.value)
    assert holds_no_secret(str(caught.value))


def test_the_checked_secrets_are_the_configured_ones(secured: Secured) -> None:
    config = librdkafka_options(secured.scram())
    assert config["sasl.password"] == PASSWORD
    assert not holds_no_secret(str(secured.scram()))
    assert not holds_no_secret(secured.mtls_pkcs12()["kafka.ssl.keystore.password"])
    assert KEY_PASSWORD in SECRETS


def test_a_local_broker_reports_its_own_listener() -> None:
    with pytest.raises(ValueError, match="properties has listeners, which LocalKafka sets itself"):
        LocalKafka(properties={"listeners": "SSL://0.0.0.0:9093"})


def test_the_brokers_settings_are_readable_only_by_its_user(secured: Secured) -> None:
    file = secured.kafka._home / "server.properties"
    assert BROKER_KEY_PASSWORD in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
