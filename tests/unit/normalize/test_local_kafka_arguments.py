"""Arguments of `LocalKafka` and `ProducerRecord`, before a broker starts."""

import pytest

from normalize.local_kafka import LocalKafka, LocalKafkaError, ProducerRecord


def test_a_local_broker_reports_its_own_listener() -> None:
    with pytest.raises(ValueError, match="properties has listeners, which LocalKafka sets itself"):
        LocalKafka(properties={"listeners": "SSL://0.0.0.0:9093"})


def test_record_with_timestamp_zero_is_refused():
    with pytest.raises(ValueError, match="timestamp must be greater than 0, got 0"):
        ProducerRecord(b"k", b"v", timestamp=0)


def test_stop_before_start_does_nothing():
    kafka = LocalKafka()
    kafka.stop()
    with pytest.raises(LocalKafkaError, match="Kafka does not run"):
        _ = kafka.bootstrap_servers
