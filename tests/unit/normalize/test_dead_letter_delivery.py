"""Dead letters whose brokers do not answer: a warning soon, and an error in time."""

import logging
import socket
import time

import pytest

from cdc_formats.errors import DeadLetterError, MalformedMessageError
from normalize import DeadLetter
from normalize.core.output import Letter
from normalize.core.records import KafkaRecord
from normalize.kafka.dead_letter import destination_of, send


def test_brokers_that_are_down_are_a_warning_soon_and_then_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as probe:  # bound, and not listening
        probe.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{probe.getsockname()[1]}"
        options = {"bootstrap.servers": servers, "message.timeout.ms": 1500, "log_level": 0}
        destination = destination_of(DeadLetter("orders.dead", options), "canal-json", {})
        record = KafkaRecord("orders", 3, 7, None, None, b"{")
        letters = [Letter(MalformedMessageError("no JSON"), record)]
        begun = time.monotonic()
        with (
            caplog.at_level(logging.WARNING, "normalize"),
            pytest.raises(DeadLetterError) as failed,
        ):
            send(destination, letters, patience=0.5)
    assert 1.5 <= time.monotonic() - begun < 10
    (warning,) = caplog.messages
    assert warning.startswith("1 dead letters wait for the brokers of 'orders.dead' (brokers: ")
    assert warning.endswith(
        "): this task fails unless they are confirmed within 1500 ms (message.timeout.ms)"
    )
    assert "the first is orders[3]@7: Local: Message timed out (brokers: " in str(failed.value)
