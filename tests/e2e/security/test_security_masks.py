"""Masked columns in a query on Kafka: their values are in nothing that the query writes or says."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, DeadLetter, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.checkpoint.read_state import read_state
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from tests.support.masks import KEY, KEY_ENV, hashed
from tests.support.streams import debezium, letters, new_topic, run_stream, servers

SECRET = "ann@example.org"
ROW = {"id": 1, "email": SECRET, "name": SECRET, "note": SECRET, "age": 7}
BAD = debezium("c", None, {**ROW, "age": SECRET})
RECORDS = [
    ProducerRecord(None, debezium("c", None, ROW), 0, 1_600_000_000_000),
    ProducerRecord(SECRET.encode(), BAD, 0, 1_600_000_000_001, (("oldkey", SECRET.encode()),)),
    ProducerRecord(None, debezium("u", ROW, {**ROW, "age": 8}), 0, 1_600_000_000_002),
]
OPTIONS = {
    "mask": {"Email": "hmac", "name": "redact", "note": "drop"},
    "mask_key_env": KEY_ENV,
}


def test_a_query_and_its_checkpoint_have_masks_and_no_values(
    spark: Any, kafka: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    topic, dead = new_topic(kafka, RECORDS), new_topic(kafka, [])

    def changes(**options: Any) -> Any:
        return from_kafka_changelog(
            spark,
            topic,
            format="debezium-json",
            format_options={**OPTIONS, **options},
            schema="id INT, email STRING, name STRING, note STRING, age INT",
            primary_key=["email"],
            normalize=ChangelogNormalize(key_groups=1),
            mode=DeadLetter(dead),
            options=servers(kafka),
        )

    df, checkpoint = changes(), tmp_path / "checkpoint"
    assert df.columns == ["row_kind", "id", "email", "name", "age"]
    email = hashed(SECRET)
    rows = run_stream(df, checkpoint).rows
    assert [tuple(row) for row in rows] == [
        ("+I", 1, email, "***", 7),
        ("-U", 1, email, "***", 7),
        ("+U", 1, email, "***", 8),
    ]
    (letter,) = letters(kafka, dead)
    assert (letter.key(), letter.value()) == (f"{topic}[0]@1".encode(), None)
    headers = dict(letter.headers())
    assert headers["__changelog.errors.key"] is None
    assert "oldkey" not in headers
    assert headers["__connect.errors.exception.message"].startswith(
        b"[TYPE_CONVERSION] expected `INT`"
    )
    (state,) = read_state(spark, str(checkpoint)).collect()
    assert (state["email"], state["name"], state["age"]) == (email, "***", 8)
    files = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    output = f"{letter.headers()} {state} {caplog.text} {df._jdf.queryExecution().toString()}"
    for secret in (SECRET, KEY):
        assert secret.encode() not in files
        assert secret not in output

    # The masked values of another key, or of no mask, are other values.
    kafka.produce(topic, [RECORDS[0]])
    monkeypatch.setenv("OTHER_KEY", KEY[::-1])
    with pytest.raises(StreamingQueryException) as failed:
        run_stream(changes(mask_key_env="OTHER_KEY"), checkpoint)
    assert explain_error(failed.value).startswith(
        "[STATE_VERSION] the mask of 'email' is 'hmac with"
    )
    assert len(run_stream(changes(), checkpoint).rows) == 2  # the age is 7 again
    with pytest.raises(ArgumentError, match="the format's option mask is for reading"):
        encode_changelog(df, format="debezium-json", format_options={"mask": {"id": "redact"}})
