"""A broker with TLS and SASL, and its clients' options for Spark and librdkafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.servers.authorities import Identity, authority, signed

LISTENERS = {"SCRAM": "SASL_SSL", "LOGIN": "SASL_SSL", "MTLS": "SSL"}
USER = "orders-reader"
PASSWORD = 'kept-"quiet"\\9f2c'  # a quote and a backslash, to test all escaping
KEY_PASSWORD = "kept-locked-71d0"
BROKER_KEY_PASSWORD = "kept-inside-04aa"
SECRETS = ("9f2c", KEY_PASSWORD, BROKER_KEY_PASSWORD)
"""Secrets that may never appear; for the password the part that escaping does not change."""

_MODULES = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """The broker, and the files of its clients.

    Attributes
    ----------
    folder : Path
        ``ca.pem``; ``client.pem``, and ``client.p12`` with `KEY_PASSWORD`; ``broker.p12``;
        ``stranger.pem``, an authority that signed no certificate here; ``broker``, the folder of
        the broker.
    trusted, client : Identity
    kafka : LocalKafka
    """

    folder: Path
    trusted: Identity
    client: Identity
    kafka: Any = None

    @classmethod
    def certificates(cls, folder: Path) -> Secured:
        trusted = authority("orders authority")
        client = signed(trusted, "orders client")
        client.write_pem(folder / "client.pem")
        client.write_pkcs12(folder / "client.p12", KEY_PASSWORD, trusted)
        server = signed(trusted, "orders broker")
        server.write_pkcs12(folder / "broker.p12", BROKER_KEY_PASSWORD, trusted)
        (folder / "ca.pem").write_text(trusted.certificate_pem())
        (folder / "stranger.pem").write_text(authority("stranger").certificate_pem())
        return cls(folder, trusted, client)

    def trust(self, ca: str = "ca.pem") -> dict[str, str]:
        return {
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / ca),
        }

    def scram(self, password: str = PASSWORD, ca: str = "ca.pem") -> dict[str, str]:
        """Spark's options for the listener with SCRAM-SHA-256."""
        return self._sasl("SCRAM", "SCRAM-SHA-256", "scram.ScramLoginModule", password, ca)

    def plain(self, password: str = PASSWORD, ca: str = "ca.pem") -> dict[str, str]:
        """Spark's options for the listener with PLAIN."""
        return self._sasl("LOGIN", "PLAIN", "plain.PlainLoginModule", password, ca)

    def mtls_pem(self) -> dict[str, str]:
        """Spark's options for the listener that requires a certificate, with a PEM file."""
        return self._mtls("PEM", "client.pem")

    def mtls_pkcs12(self) -> dict[str, str]:
        """The same with a PKCS 12 file."""
        return self._mtls("PKCS12", "client.p12") | {"kafka.ssl.keystore.password": KEY_PASSWORD}

    def no_certificate(self) -> dict[str, str]:
        """Spark's options of a client without a certificate, for the listener that requires one."""
        servers = {
            "kafka.bootstrap.servers": self.kafka.listener("MTLS"),
            "kafka.security.protocol": "SSL",
        }
        return {**servers, **self.trust()}

    def _mtls(self, kind: str, file: str) -> dict[str, str]:
        store = {
            "kafka.ssl.keystore.type": kind,
            "kafka.ssl.keystore.location": str(self.folder / file),
        }
        return {**self.no_certificate(), **store}

    def _sasl(
        self, listener: str, mechanism: str, module: str, password: str, ca: str
    ) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.listener(listener),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{_MODULES}.{module} required username="{USER}" password="{_quoted(password)}";',
            **self.trust(ca),
        }


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def broker_properties(made: Secured) -> dict[str, str]:
    """The broker's settings for its listeners."""
    tls = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(made.folder / "broker.p12"),
        "ssl.keystore.password": BROKER_KEY_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": made.trusted.certificate_pem(),
    }
    users = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{_quoted(PASSWORD)}";'
    return {
        **tls,
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": users,
    }


def make_users(kafka: Any) -> None:
    """Set the SCRAM password of `USER`, which the broker stores itself."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.alter_user_scram_credentials([change])[USER].result(timeout=30)
