"""``cdc`` with a broker that requires TLS and a login: secrets come from a file or the environment and are never shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from normalize.kafka.client_options import librdkafka_options
from tests.support.servers.secured import SECRETS, Secured
from tests.support.streams import new_topic

TAIL = ("-f", "debezium-json", "--no-follow", "--json")
ROWS = [("+I", 1), ("+I", 2)]


def cdc(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``cdc`` and check that it shows no secret."""
    command = [sys.executable, "-m", "cdc_cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60, check=False)
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
    messages = [(b"%d" % id, json.dumps({"op": "c", "before": None, "after": {"id": id}}).encode()) for id in (1, 2)]
    return new_topic(secured.kafka, messages)


def test_a_topic_is_followed_with_a_file_of_properties(secured: Secured, topic: str, tmp_path: Path) -> None:
    config = librdkafka_options(secured.mtls_pkcs12())
    assert rows(cdc("tail", topic, *TAIL, "-v", "--config", in_a_file(tmp_path, config))) == ROWS


def test_a_password_comes_from_the_environment(secured: Secured, topic: str) -> None:
    config: dict[str, Any] = librdkafka_options(secured.scram())
    password = config.pop("sasl.password")
    given = [part for name, value in config.items() for part in ("-X", f"{name}={value}")]
    run = ("tail", topic, *TAIL, "-v", *given, "-X", "sasl.password=env:ORDERS_PASSWORD")
    done = cdc(*run, ORDERS_PASSWORD=password)
    assert rows(done) == ROWS
    assert "sasl.password=***" in done.stderr


def test_a_topic_is_profiled(secured: Secured, topic: str, tmp_path: Path) -> None:
    done = cdc("profile", topic, "-F", in_a_file(tmp_path, librdkafka_options(secured.scram())), "--json")
    assert (json.loads(done.stdout)["format"], json.loads(done.stdout)["records"]) == ("debezium-json", 2)


@pytest.mark.parametrize("command", ["tail", "profile"])
def test_a_refused_login_is_one_line_and_v_adds_the_reason(secured: Secured, topic: str, command: str, tmp_path: Path) -> None:
    file = in_a_file(tmp_path, librdkafka_options(secured.scram(password="guessed-51ff")))
    done = cdc(command, topic, *(TAIL if command == "tail" else ()), "-F", file, "-v")
    assert done.returncode == 1
    assert "Authentication failed" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: [LOGIN_REFUSED] Kafka refused the login (_AUTHENTICATION): check security.protocol and sasl.*"
    )
    assert "guessed-51ff" not in done.stderr
