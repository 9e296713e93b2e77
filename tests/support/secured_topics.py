"""Topics of the secured broker, and clients that it refuses."""

import json

from normalize.kafka.client_options import librdkafka_options
from tests.support.servers.secured import SECRETS, Secured

BAD = b'{"op": "c", "after": {"id": "no number"}}'

PATIENCE = {
    "kafka.default.api.timeout.ms": "1500",
    "kafka.request.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
}
"""Options with which Spark tries only once, and not for long."""

WRONG = "guessed-51ff"
LOGIN = (
    "[LOGIN_REFUSED] Kafka refused the login (_AUTHENTICATION): check security.protocol and sasl.*"
)
TLS = "[TLS] Kafka refuses the connection (_SSL): check security.protocol and ssl.*"


def message(op: str, key: int, name: str) -> tuple[bytes, bytes]:
    return b"%d" % key, json.dumps(
        {"op": op, "before": None, "after": {"id": key, "name": name}}
    ).encode()


def connection(options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A client's options for `sample_topic`: the servers and the other options."""
    config = librdkafka_options(options)
    return config.pop("bootstrap.servers"), config


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


REFUSED = {"wrong password, SCRAM": LOGIN, "wrong password, PLAIN": LOGIN, "another authority": TLS}
"""Refusals that the client gets an error for; in the other cases the connection just ends."""

STRANGERS = [
    "wrong password, SCRAM",
    "wrong password, PLAIN",
    "another authority",
    "no certificate",
    "no TLS",
    "nothing at all",
]


def holds_no_secret(text: str) -> bool:
    return not [secret for secret in (*SECRETS, WRONG, "PRIVATE KEY") if secret in text]
