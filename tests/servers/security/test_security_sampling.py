"""Sampling a topic of a broker with TLS and SASL, and refused clients."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError, SampleError
from cdc_formats.topics.kafka import infer_topic, profile_topic, sample_topic
from normalize import DeadLetter, from_kafka_changelog
from normalize.kafka.client_options import librdkafka_options
from tests.support.secured_topics import REFUSED, STRANGERS, WRONG, connection, holds_no_secret, message, strangers
from tests.support.servers.secured import BROKER_KEY_PASSWORD, KEY_PASSWORD, PASSWORD, SECRETS, Secured
from tests.support.streams import new_topic


@pytest.mark.parametrize("client", ["scram", "plain", "mtls_pem", "mtls_pkcs12"])
def test_a_topic_is_sampled(secured: Secured, client: str) -> None:
    topic = new_topic(secured.kafka, [message("c", 1, "bike")])
    servers, config = connection(getattr(secured, client)())
    assert [record.key for record in sample_topic(servers, topic, config=config)] == [b"1"]
    assert infer_topic(servers, topic, format="debezium-json", config=config).ddl == "id BIGINT, name STRING"
    profile = profile_topic(servers, topic, config=config, progress=False)
    assert profile.format == "debezium-json"
    shown = [str(profile), repr(profile), profile._repr_html_(), json.dumps(profile.to_dict())]
    assert holds_no_secret("".join(shown))


@pytest.mark.parametrize("stranger", STRANGERS)
def test_unauthorised_sampling_is_a_typed_error_without_secrets(secured: Secured, stranger: str, capfd: Any) -> None:
    servers, config = connection(strangers(secured)[stranger])
    started = time.monotonic()
    with pytest.raises(SampleError) as caught:
        sample_topic(servers, "orders", config=config, timeout_seconds=60 if stranger in REFUSED else 1)
    assert time.monotonic() - started < 30
    if stranger in REFUSED:
        assert str(caught.value).startswith(REFUSED[stranger])
    assert holds_no_secret(str(caught.value) + repr(caught.value) + "".join(capfd.readouterr()))


def test_a_keystore_that_does_not_open_is_refused_at_the_call_without_its_password(secured: Secured) -> None:
    options = {**secured.mtls_pkcs12(), "kafka.ssl.keystore.password": WRONG}
    servers, config = connection(options)
    with pytest.raises(ArgumentError) as sampled:
        sample_topic(servers, "orders", config=config)
    with pytest.raises(ArgumentError) as dead:
        from_kafka_changelog(
            None, "orders", format="debezium-json", schema="id INT", primary_key="id", options=options, mode=DeadLetter("dead")
        )  # type: ignore[arg-type]
    assert holds_no_secret(str(sampled.value) + str(dead.value))


def test_the_checked_secrets_are_the_configured_ones(secured: Secured) -> None:
    config = librdkafka_options(secured.scram())
    assert config["sasl.password"] == PASSWORD
    assert not holds_no_secret(str(secured.scram()))
    assert not holds_no_secret(secured.mtls_pkcs12()["kafka.ssl.keystore.password"])
    assert KEY_PASSWORD in SECRETS


def test_the_brokers_settings_are_readable_only_by_its_user(secured: Secured) -> None:
    file = secured.folder / "broker" / "server.properties"
    assert BROKER_KEY_PASSWORD in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
