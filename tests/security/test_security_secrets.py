"""Secrets in options: every option gets a recognisable secret, and no visible output may contain it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from secured import Secured

from cdc_formats import get_format
from cdc_formats.errors import FormatOptionError, SchemaRegistryError
from normalize import ChangelogNormalize, explain_changelog
from normalize.client_options import librdkafka_options
from normalize.dead_letter import DeadLetters

HERE = Path(__file__).parent
OPTIONS = r"jaas[.]config|keystore[.]key|password"
REDACTION = {
    "spark.redaction.regex": rf"(?i)secret|token|access[.]?key|{OPTIONS}",
    "spark.sql.redaction.string.regex": rf"(?is)({OPTIONS}) -> .*?(?=, [\w.]+ -> |\)[,)])",
}
"""The redaction setting from the README: Spark's default words and Kafka's secret options; also applied to the plan of a stream, because
Spark 4.0 shows its options unredacted."""

PLANTED = {name: f"planted-{name}-7c61" for name in ("basic", "bearer", "key", "proxy", "producer", "wrong")}
REGISTRY = {
    "url": f"http://reader:{PLANTED['basic']}@127.0.0.1:9",
    "properties": {"proxy": f"http://reader:{PLANTED['proxy']}@127.0.0.1:9"},
    "retry_seconds": 0,
}
ALL = {**REGISTRY, "ssl_key_password": PLANTED["key"]}  # except that a client with this option needs a certificate
UPSERT = {"value_format": "avro-confluent", **{f"avro_confluent_{name}": value for name, value in ALL.items()}}


def leaks(text: str, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if secret in text]


# ------------------------------------------------------------------------------------------------------ what holds options


@pytest.mark.parametrize(("identifier", "options"), [("debezium-avro-confluent", ALL), ("upsert-kafka", UPSERT)])
def test_formats_show_no_secret_and_keep_it(identifier: str, options: dict) -> None:
    format = get_format(identifier, **options)
    texts = [repr(format), str(format), repr({"of": [format]}), explain_changelog("orders", format=format, primary_key=["id"])]
    assert not leaks("".join(texts), list(PLANTED.values()))
    for secret in ("basic", "key", "proxy"):
        assert PLANTED[secret].encode() in pickle.dumps(format)  # the workers need it


def test_objects_that_carry_options_to_the_workers_show_no_secrets() -> None:
    letters = DeadLetters("dead", "debezium-json", (("sasl.password", PLANTED["producer"]),))
    decoder = get_format("debezium-avro-confluent", **ALL).decoder("id INT")
    shown = [letters, decoder, decoder.format, ChangelogNormalize(primary_key=["id"])]
    assert not leaks("".join(f"{each!r}{each}" for each in shown), list(PLANTED.values()))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"url": f"ftp://reader:{PLANTED['basic']}@registry"}, id="no registry's URL"),
        pytest.param({**REGISTRY, "basic_auth_user_info": f"other:{PLANTED['key']}"}, id="two users"),
        pytest.param({**REGISTRY, "bearer_auth_token": PLANTED["bearer"]}, id="a user and a token"),
        pytest.param({"url": "http://registry", "basic_auth_user_info": PLANTED["basic"]}, id="no password"),
        pytest.param({**REGISTRY, "retry_seconds": -1}, id="another option is wrong"),
        pytest.param({**REGISTRY, "properties": PLANTED["proxy"]}, id="properties that are none"),
        pytest.param({**REGISTRY, "no_such_option": PLANTED["key"]}, id="an option that does not exist"),
    ],
)
def test_errors_of_refused_options_show_no_secrets(options: dict) -> None:
    with pytest.raises(FormatOptionError) as caught:
        get_format("debezium-avro-confluent", **options)
    assert not leaks(str(caught.value) + repr(caught.value), list(PLANTED.values()))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(REGISTRY, SchemaRegistryError, id="no answer"),
        pytest.param(ALL, FormatOptionError, id="no certificate for the key"),
        pytest.param({**REGISTRY, "properties": {"no.such": PLANTED["proxy"]}}, FormatOptionError, id="an unknown property"),
        pytest.param({**REGISTRY, "properties": {"timeout": PLANTED["proxy"]}}, SchemaRegistryError, id="a property of another type"),
    ],
)
def test_an_unreachable_registry_is_an_error_without_secrets(options: dict, error: type[Exception]) -> None:
    decoder = get_format("debezium-avro-confluent", **options).decoder("id INT")
    with pytest.raises(error) as caught:
        decoder.decode(None, b"\0\0\0\0\1avro")
    assert not leaks(str(caught.value) + repr(caught.value), list(PLANTED.values()))


# ------------------------------------------------------------------------------------------------------------- a whole job

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def inline_certificates(secured: Secured) -> dict[str, str]:
    """The client's key and certificates as inline options, without files."""
    return {
        **secured.no_certificate(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": secured.client.key_pem(),
        "kafka.ssl.keystore.certificate.chain": secured.client.certificate_pem(),
    }


def job_options(secured: Secured, redaction: dict[str, str]) -> dict:
    topics = [f"t-{uuid4().hex[:12]}" for _ in range(4)]
    for topic in topics:
        secured.kafka.create_topic(topic)
    records = [(None, b'{"op": "c", "after": {"id": 1, "name": "bike"}}'), (None, b'{"op": "c", "after": {"id": "x"}}')]
    secured.kafka.produce(topics[0], records)
    secured.kafka.produce(topics[3], [(None, b"\0\0\0\0\1avro")])
    wrong = secured.scram(PLANTED["wrong"])["kafka.sasl.jaas.config"]
    return {
        "redaction": redaction,
        "topics": topics[:3],
        "avro": topics[3],
        "login": secured.scram(),
        "mtls": inline_certificates(secured),
        "dead_letter": librdkafka_options(secured.plain()),
        "registry": REGISTRY,
        "wrong": wrong,
    }


def run_job(secured: Secured, home: Path, redaction: dict[str, str]) -> dict[str, str]:
    """Run `secrets_job.py` and return its output files by name."""
    folder = home / "shown"
    folder.mkdir()
    (home / "options.json").write_text(json.dumps(job_options(secured, redaction)))
    command = [sys.executable, str(HERE / "secrets_job.py"), str(folder), str(home / "options.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env={**os.environ, "SPARK_LOCAL_DIRS": str(home / "local")})
    assert done.returncode == 0, done.stderr[-5000:]
    files = [file for file in folder.rglob("*") if file.is_file()]
    found = {str(file.relative_to(folder)): file.read_bytes().decode("utf-8", "replace") for file in files}
    return {**found, "stdout": done.stdout, "stderr": done.stderr}


def key_lines(secured: Secured) -> list[str]:
    """The lines of the client's key without header and footer."""
    return [line for line in secured.client.key_pem().splitlines() if "-----" not in line]


@pytest.fixture(scope="module")
def shown(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_job(secured, tmp_path_factory.mktemp("job"), REDACTION)


def test_a_job_shows_no_secret_in_logs_plans_progress_events_pages_errors_and_checkpoints(shown: dict[str, str], secured: Secured) -> None:
    secrets = ["9f2c", *PLANTED.values(), *key_lines(secured)]
    assert {name: found for name, text in shown.items() if (found := leaks(text, secrets))} == {}


def test_the_job_used_its_secrets(shown: dict[str, str]) -> None:
    assert shown["rows"].startswith("[Row(row_kind='+I', id=1, name='bike')]")
    assert "DEAD_LETTERS" in shown["stream.progress"]
    assert "[SCHEMA_REGISTRY]" in shown["registry.error"]
    assert "Authentication" in shown["refused.error"]
    assert "kafka.sasl.mechanism -> SCRAM-SHA-256" in shown["stream.plan"]
    assert "kafka.sasl.*********(redacted)" in shown["stream.plan"]
    assert "MapInArrow" in shown["bounded.plan"]
    names = list(shown)
    assert [name for name in names if name.startswith("events")]
    assert [name for name in names if "checkpoint" in name and "/offsets/" in name]
    assert "DEBUG" in shown["stderr"]
    assert sum(name.endswith(".page") for name in names) == 5
