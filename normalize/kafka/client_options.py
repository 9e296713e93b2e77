"""Translate connection options of Java's Kafka clients (Spark's ``kafka.*``) to librdkafka's names.

The connection options are servers, encryption and authentication.

=========================================================  ==================================
Java                                                       librdkafka
=========================================================  ==================================
bootstrap.servers, security.protocol, sasl.mechanism       the same
sasl.jaas.config (PlainLoginModule, ScramLoginModule)      sasl.username, sasl.password
ssl.truststore.location of type PEM                        ssl.ca.location
ssl.truststore.certificates                                ssl.ca.pem
ssl.keystore.location of type PEM                          ssl.certificate.location and
                                                           ssl.key.location
ssl.keystore.location of type PKCS12                       the same
ssl.keystore.certificate.chain, ssl.keystore.key           ssl.certificate.pem, ssl.key.pem
ssl.keystore.password, ssl.key.password                    the same
ssl.endpoint.identification.algorithm                      the same; an empty one is ``none``
=========================================================  ==================================

Without a truststore Java trusts the authorities of its JVM, and librdkafka those of the operating
system.

Source: Kafka's client configs (PEM: KIP-651), librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_formats.errors import ArgumentError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_VALUE = r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.$-]+"""
_JAAS = re.compile(rf"\s*(?:[\w$]+\.)*(\w+)\s+\w+((?:\s+\w+\s*=\s*(?:{_VALUE}))*)\s*;\s*")
_JAAS_OPTION = re.compile(rf"(\w+)\s*=\s*({_VALUE})")
_STORES = {
    ("ssl.truststore.location", "PEM"): ("ssl.ca.location",),
    ("ssl.keystore.location", "PEM"): ("ssl.certificate.location", "ssl.key.location"),
    ("ssl.keystore.location", "PKCS12"): ("ssl.keystore.location",),
}
_SSL = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}


def librdkafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's connection options for those of Spark.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source; options other than connection options are ignored.

    Raises
    ------
    ArgumentError
        When a connection option has no counterpart. The text contains no option values except names
        of mechanisms and types.

    Examples
    --------
    >>> librdkafka_options({"kafka.bootstrap.servers": "localhost:9092", "kafka.max.poll.records": "20000"})
    {'bootstrap.servers': 'localhost:9092', 'security.protocol': 'PLAINTEXT'}
    """
    java = {
        name.lower()[len("kafka.") :]: value
        for name, value in sorted(options.items())
        if name.lower().startswith("kafka.")
    }
    protocol = java.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _untranslatable(f"kafka.security.protocol={protocol}")
    ours = {"bootstrap.servers": java["bootstrap.servers"], "security.protocol": protocol}
    if protocol.startswith("SASL"):
        ours.update(_sasl(java))
    if protocol.endswith("SSL"):
        ours.update(_ssl(java))
    return ours


def _untranslatable(what: str) -> ArgumentError:
    return ArgumentError(f"{what} has no counterpart in librdkafka")


def _sasl(java: Mapping[str, str]) -> dict[str, str]:
    for name in java:
        if name.startswith("sasl.") and name not in ("sasl.mechanism", "sasl.jaas.config"):
            raise _untranslatable(f"kafka.{name}")
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _LOGIN_MODULES:
        raise _untranslatable(
            f"kafka.sasl.mechanism={mechanism}"
            if "sasl.mechanism" in java
            else "Kafka's default mechanism GSSAPI"
        )
    return {"sasl.mechanism": mechanism, **_login(java, mechanism)}


def _login(java: Mapping[str, str], mechanism: str) -> dict[str, str]:
    login = _JAAS.fullmatch(java.get("sasl.jaas.config", ""))
    if login is None or login[1] != _LOGIN_MODULES[mechanism]:
        raise _untranslatable(
            f"kafka.sasl.jaas.config, which is not the single {_LOGIN_MODULES[mechanism]} that "
            f"{mechanism} requires,"
        )
    credentials = {name: _jaas_text(value) for name, value in _JAAS_OPTION.findall(login[2])}
    if set(credentials) != {"username", "password"}:
        raise _untranslatable(
            f"kafka.sasl.jaas.config with the options {', '.join(sorted(credentials)) or 'none'} "
            "(not username and password)"
        )
    return {"sasl.username": credentials["username"], "sasl.password": credentials["password"]}


def _jaas_text(value: str) -> str:
    def unescaped(escape: re.Match[str]) -> str:
        if escape[1] in "abfnrtv01234567":
            raise _untranslatable("kafka.sasl.jaas.config with an escape of a control character")
        return escape[1]

    return re.sub(r"\\(.)", unescaped, value[1:-1]) if value[0] in "\"'" else value


def _ssl(java: Mapping[str, str]) -> dict[str, str]:
    ours = {}
    for name, value in java.items():
        if name.startswith("ssl.") and not name.endswith("store.type"):
            ours.update(dict.fromkeys(_ssl_names(name, java), value))
    if ours.get("ssl.endpoint.identification.algorithm") == "":
        ours["ssl.endpoint.identification.algorithm"] = "none"
    return ours


def _ssl_names(name: str, java: Mapping[str, str]) -> tuple[str, ...]:
    if name.endswith("store.location"):
        kind = java.get(name.replace(".location", ".type"), "JKS").upper()
        if (name, kind) not in _STORES:
            raise _untranslatable(f"kafka.{name} of type {kind}")
        return _STORES[name, kind]
    if name not in _SSL:
        raise _untranslatable(f"kafka.{name}")
    return (_SSL[name],)
