"""Impossible samples: an unreachable broker, invalid options, and sources without named topics."""

import socket

import pytest

from cdc_formats.errors import ArgumentError, KafkaUnavailableError
from cdc_formats.topics.kafka import sample_topic
from normalize import from_kafka_changelog
from tests.support.error_texts import error_test


def test_an_unreachable_broker_is_an_error_without_secrets() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "lovelace",
    }
    with pytest.raises(KafkaUnavailableError, match="no Kafka broker answered") as caught:
        sample_topic(f"127.0.0.1:{port}", "orders", config=config, timeout_seconds=0.5)
    assert "lovelace" not in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [{"no.such": "lovelace"}, {"security.protocol": "lovelace"}, {"enable.auto.commit": True}],
)
def test_an_invalid_option_is_named_without_its_value(config: dict) -> None:
    with pytest.raises(ArgumentError) as caught:
        sample_topic("localhost:1", "orders", config=config)
    (name,) = config
    assert name in str(caught.value)
    assert "lovelace" not in str(caught.value)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a source that cannot be sampled needs a schema, {number}": lambda more=more: (
                from_kafka_changelog(
                    None,
                    format="canal-json",
                    options={"kafka.bootstrap.servers": "localhost:1", **more},
                )
            )
            for number, more in enumerate(
                [
                    {"subscribePattern": "a.*"},
                    {"assign": "{"},
                    {
                        "subscribe": "a",
                        "kafka.sasl.mechanism": "GSSAPI",
                        "kafka.security.protocol": "SASL_SSL",
                    },
                ],
                1,
            )
        },
    },
)
