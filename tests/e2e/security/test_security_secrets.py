"""Recognisable secrets in every option, none of which any visible output may contain."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from normalize.kafka.client_options import librdkafka_options
from tests.support.planted import PLANTED, REGISTRY, leaks
from tests.support.servers.secured import Secured

OPTIONS = r"jaas[.]config|keystore[.]key|password"
REDACTION = {
    "spark.redaction.regex": rf"(?i)secret|token|access[.]?key|{OPTIONS}",
    "spark.sql.redaction.string.regex": rf"(?is)({OPTIONS}) -> .*?(?=, [\w.]+ -> |\)[,)])",
}
"""The redaction setting from the README: Spark's default words and Kafka's secret options; also
applied to the plan of a stream, because Spark 4.0 and 4.1 show its options unredacted."""


# --------------------------------------------------------------------------------------------------
# a whole job

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
    records = [
        (None, b'{"op": "c", "after": {"id": 1, "name": "bike"}}'),
        (None, b'{"op": "c", "after": {"id": "x"}}'),
    ]
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
    command = [
        sys.executable,
        "-m",
        "tests.support.jobs.secrets_job",
        str(folder),
        str(home / "options.json"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "SPARK_LOCAL_DIRS": str(home / "local")},
    )
    assert done.returncode == 0, done.stderr[-5000:]
    files = [file for file in folder.rglob("*") if file.is_file()]
    outputs = {
        str(file.relative_to(folder)): file.read_bytes().decode("utf-8", "replace")
        for file in files
    }
    return {**outputs, "stdout": done.stdout, "stderr": done.stderr}


def test_a_job_shows_no_secret_in_logs_plans_progress_events_pages_errors_and_checkpoints(
    secured: Secured, tmp_path: Path
) -> None:
    shown = run_job(secured, tmp_path, REDACTION)
    secrets = [
        "9f2c",
        *PLANTED.values(),
        *(line for line in secured.client.key_pem().splitlines() if "-----" not in line),
    ]
    assert {name: leak for name, text in shown.items() if (leak := leaks(text, secrets))} == {}
    # The job used its secrets.
    assert shown["rows"].startswith("[Row(row_kind='+I', id=1, name='bike')]")
    assert "DEAD_LETTERS" in shown["stream.progress"]
    assert "[SCHEMA_REGISTRY]" in shown["registry.error"]
    assert "Authentication" in shown["refused.error"]
    # Spark 4.2 writes "name=value" and redacts the value; before, the plan has "name -> value", and
    # the regex above removes both.
    assert re.search(r"kafka\.sasl\.mechanism(=| -> )SCRAM-SHA-256", shown["stream.plan"])
    assert re.search(r"kafka\.sasl\.(jaas\.config=)?\*{9}\(redacted\)", shown["stream.plan"])
    assert "MapInArrow" in shown["bounded.plan"]
    names = list(shown)
    assert [name for name in names if name.startswith("events")]
    assert [name for name in names if "checkpoint" in name and "/offsets/" in name]
    assert "DEBUG" in shown["stderr"]
    assert sum(name.endswith(".page") for name in names) == 5
