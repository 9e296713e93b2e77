"""A broker with TLS and SASL: sampling, refused clients, and ``cdc``.

``cdc`` takes secrets from a file or the environment.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError, SampleError
from cdc_formats.topics.kafka import infer_topic, profile_topic, sample_topic
from normalize import DeadLetter, from_kafka_changelog
from normalize.kafka.client_options import librdkafka_options
from tests.support.secured_topics import (
    REFUSED,
    STRANGERS,
    WRONG,
    connection,
    holds_no_secret,
    message,
    strangers,
)
from tests.support.servers.secured import (
    BROKER_KEY_PASSWORD,
    KEY_PASSWORD,
    PASSWORD,
    SECRETS,
    Secured,
)
from tests.support.streams import new_topic


@pytest.mark.parametrize("client", ["scram", "plain", "mtls_pem", "mtls_pkcs12"])
def test_a_topic_is_sampled(secured: Secured, client: str) -> None:
    topic = new_topic(secured.kafka, [message("c", 1, "bike")])
    servers, config = connection(getattr(secured, client)())
    assert [record.key for record in sample_topic(servers, topic, config=config)] == [b"1"]
    assert (
        infer_topic(servers, topic, format="debezium-json", config=config).ddl
        == "id BIGINT, name STRING"
    )
    profile = profile_topic(servers, topic, config=config, progress=False)
    assert profile.format == "debezium-json"
    shown = [str(profile), repr(profile), profile._repr_html_(), json.dumps(profile.to_dict())]
    assert holds_no_secret("".join(shown))


@pytest.mark.parametrize("stranger", STRANGERS)
def test_unauthorised_sampling_is_a_typed_error_without_secrets(
    secured: Secured, stranger: str, capfd: Any
) -> None:
    servers, config = connection(strangers(secured)[stranger])
    started = time.monotonic()
    with pytest.raises(SampleError) as caught:
        sample_topic(
            servers, "orders", config=config, timeout_seconds=60 if stranger in REFUSED else 1
        )
    assert time.monotonic() - started < 30
    if stranger in REFUSED:
        assert str(caught.value).startswith(REFUSED[stranger])
    assert holds_no_secret(str(caught.value) + repr(caught.value) + "".join(capfd.readouterr()))


def test_a_keystore_that_does_not_open_is_refused_at_the_call_without_its_password(
    secured: Secured,
) -> None:
    options = {**secured.mtls_pkcs12(), "kafka.ssl.keystore.password": WRONG}
    servers, config = connection(options)
    with pytest.raises(ArgumentError) as sampled:
        sample_topic(servers, "orders", config=config)
    with pytest.raises(ArgumentError) as dead:
        from_kafka_changelog(
            None,
            "orders",
            format="debezium-json",
            schema="id INT",
            primary_key="id",
            options=options,
            mode=DeadLetter("dead"),
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


# --------------------------------------------------------------------------------------------------
# commands

TAIL = ("-f", "debezium-json", "--no-follow", "--json")
ROWS = [("+I", 1), ("+I", 2)]


def cdc(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``cdc`` and check that it shows no secret."""
    command = [sys.executable, "-m", "cdc_cli", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60, check=False
    )
    assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr]
    return done


def rows(done: subprocess.CompletedProcess[str]) -> list[tuple[str, int]]:
    assert done.returncode == 0, done.stderr
    return [(line["op"], line["data"]["id"]) for line in map(json.loads, done.stdout.splitlines())]


def in_a_file(folder: Path, config: dict[str, str]) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return path


@pytest.fixture(scope="module")
def topic(secured: Secured) -> str:
    messages = [
        (b"%d" % id, json.dumps({"op": "c", "before": None, "after": {"id": id}}).encode())
        for id in (1, 2)
    ]
    return new_topic(secured.kafka, messages)


def test_a_topic_is_followed_with_a_file_of_properties(
    secured: Secured, topic: str, tmp_path: Path
) -> None:
    config = librdkafka_options(secured.mtls_pkcs12())
    assert rows(cdc("tail", topic, *TAIL, "-v", "--config", in_a_file(tmp_path, config))) == ROWS


def test_a_password_comes_from_the_environment(secured: Secured, topic: str) -> None:
    config: dict[str, Any] = librdkafka_options(secured.scram())
    password = config.pop("sasl.password")
    options = [part for name, value in config.items() for part in ("-X", f"{name}={value}")]
    run = ("tail", topic, *TAIL, "-v", *options, "-X", "sasl.password=env:ORDERS_PASSWORD")
    done = cdc(*run, ORDERS_PASSWORD=password)
    assert rows(done) == ROWS
    assert "sasl.password=***" in done.stderr


def test_a_topic_is_profiled(secured: Secured, topic: str, tmp_path: Path) -> None:
    done = cdc(
        "profile", topic, "-F", in_a_file(tmp_path, librdkafka_options(secured.scram())), "--json"
    )
    assert (json.loads(done.stdout)["format"], json.loads(done.stdout)["records"]) == (
        "debezium-json",
        2,
    )


@pytest.mark.parametrize("command", ["tail", "profile"])
def test_a_refused_login_is_one_line_and_v_adds_the_reason(
    secured: Secured, topic: str, command: str, tmp_path: Path
) -> None:
    file = in_a_file(tmp_path, librdkafka_options(secured.scram(password="guessed-51ff")))
    done = cdc(command, topic, *(TAIL if command == "tail" else ()), "-F", file, "-v")
    assert done.returncode == 1
    assert "Authentication failed" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: [LOGIN_REFUSED] Kafka refused the login (_AUTHENTICATION): check security.protocol "
        "and sasl.*"
    )
    assert "guessed-51ff" not in done.stderr
