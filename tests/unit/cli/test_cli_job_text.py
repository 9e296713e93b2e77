"""A job file that ``cdc init`` writes: what the messages do not say is a question in it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_cli.job_text import JobTarget, TargetKind, job_text
from cdc_formats import get_format
from cdc_formats.errors import ArgumentError
from cdc_formats.topics.profile import TopicProfile, profile_records
from cdc_formats.topics.sampler import SampledRecord
from normalize import IcebergDatabase, JdbcDatabase
from normalize.run import Job, read_job
from normalize.tables.schema import decide
from normalize.tables.table_options import TableOptions
from tests.support.databases import Message, debezium, maxwell

LAKE = JobTarget(TargetKind.DELTA, "/lake")
ROW = {"id": 1001, "name": "ann", "balance": "Pc6+GzfufIc=", "updated": 1795274035392069}
MESSAGE = debezium("accounts", "c", None, ROW)
ANSWERS = {
    "id": "as_is",
    "updated": "TIMESTAMP",
    "balance": "DECIMAL(38,10)",
    "time_precision_mode": "adaptive_time_microseconds",
    "decimal_handling_mode": "precise",
    "bigint_unsigned_handling_mode": "as_is",
}


def profile(*messages: Message, **options: Any) -> TopicProfile:
    records = [
        SampledRecord("accounts", 0, offset, 0, key, value, ())
        for offset, (key, value) in enumerate(messages)
    ]
    return profile_records(records, topic="accounts", servers="localhost:9092", **options)


def read(text: str, folder: Path) -> Job:
    (folder / "job.yaml").write_text(text)
    return read_job(folder / "job.yaml")


def test_a_job_is_refused_until_its_questions_are_answered(tmp_path: Path) -> None:
    text = job_text([profile(MESSAGE)], [], LAKE)
    with pytest.raises(ArgumentError) as refused:
        read(text, tmp_path)
    assert str(refused.value).endswith(
        "6 of its questions have no answer, format_options.time_precision_mode, "
        "format_options.decimal_handling_mode, format_options.bigint_unsigned_handling_mode, "
        "tables.shop.accounts.types.id, tables.shop.accounts.types.balance, "
        'tables.shop.accounts.types.updated: replace each "?" by a type, by the value of an '
        "option, or by as_is"
    )
    for name, answer in ANSWERS.items():
        for line in (f'{name}: "?"', f'"{name}": "?"'):
            text = text.replace(line, f"{name}: {answer}")
    arguments = read(text, tmp_path).arguments
    assert arguments["format_options"] == {
        name: ANSWERS[name] for name in ("time_precision_mode", "decimal_handling_mode")
    }
    types = {name: ANSWERS[name] for name in ("id", "updated", "balance")}
    assert arguments["tables"] == {"shop.accounts": TableOptions(types=types)}


def test_a_question_of_many_tables_is_written_once() -> None:
    messages = [debezium(f"accounts{number}", "c", None, ROW) for number in range(50)]
    text = job_text([profile(*messages)], [], LAKE)
    assert text.count("Debezium writes DATE, TIME and TIMESTAMP as integers") == 1
    assert text.count('"id": "?"  # BIGINT: question 1\n') == 50
    tables = text[text.index("tables:") :]
    assert len(tables.splitlines()) == 1 + 50 * 5  # the name, `types:` and three columns


def test_the_questions_are_those_of_which_a_query_warns() -> None:
    content = yaml.safe_load(job_text([profile(MESSAGE)], [], LAKE))
    asked = {"id", "balance", "updated"}
    assert content["tables"]["shop.accounts"]["types"].keys() == asked
    decided = decide(
        "shop.accounts",
        [(*MESSAGE, [])],
        format=get_format("debezium-json"),
        passed_options=(),
        options=TableOptions(),
    )
    assert decided.questions.keys() == asked


def test_an_option_that_is_passed_is_not_asked_for() -> None:
    made = profile(MESSAGE, time_precision_mode="isostring", decimal_handling_mode="precise")
    content = yaml.safe_load(job_text([made], [], LAKE))
    assert content["format_options"] == {
        "time_precision_mode": "isostring",
        "decimal_handling_mode": "precise",
        "bigint_unsigned_handling_mode": "?",
    }
    # No integer is a time, but the decimal's scale is still unknown.
    assert content["tables"]["shop.accounts"]["types"] == {"balance": "?"}


def test_a_primary_key_that_is_not_known_is_a_question(tmp_path: Path) -> None:
    event = {"database": "shop", "table": "events", "type": "insert", "ts": 1, "data": {"at": 1}}
    text = job_text([profile((None, json.dumps(event).encode()))], [], LAKE)
    with pytest.raises(
        ArgumentError, match=r"1 of its questions .* tables\.shop\.events\.primary_key:"
    ):
        read(text, tmp_path)
    answered = read(text.replace('"?"', "at"), tmp_path).arguments["tables"]
    assert answered == {"shop.events": TableOptions(primary_key="at")}


def test_a_job_without_questions(tmp_path: Path) -> None:
    # Maxwell writes numbers as numbers: digits are text.
    text = job_text([profile(maxwell("accounts", "insert", {"id": 1, "phone": "0123"}))], [], LAKE)
    assert '"?"' not in text
    assert read(text, tmp_path).arguments["tables"] == {}


def test_a_job_for_iceberg_has_the_settings_of_a_catalog(tmp_path: Path) -> None:
    iceberg = JobTarget(TargetKind.ICEBERG, "/lake")
    job = read(job_text([profile(maxwell("accounts", "insert", {"id": 1}))], [], iceberg), tmp_path)
    assert job.arguments["target"] == IcebergDatabase("lake.shop", on_question="stop_table")
    assert job.packages == ("iceberg",)
    assert job.spark["spark.sql.catalog.lake.warehouse"] == "/lake"
    assert job.arguments["schema_location"] == "/lake/_schemas"


def test_a_job_for_a_database_asks_for_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARGET_PASSWORD", "s3cret")
    database = JobTarget(TargetKind.JDBC, "/lake", "jdbc:postgresql://db/shop")
    text = job_text([profile(maxwell("accounts", "insert", {"id": 1}))], [], database)
    with pytest.raises(
        ArgumentError, match=r"1 of its questions have no answer, target\.jdbc\.user:"
    ):
        read(text, tmp_path)
    job = read(text.replace('"?"', "cdc"), tmp_path)
    assert job.arguments["target"] == JdbcDatabase(
        "jdbc:postgresql://db/shop", user="cdc", password="s3cret", on_question="stop_table"
    )
    assert job.packages == ("postgresql",)
    with pytest.raises(ArgumentError, match="--target jdbc requires --url"):
        JobTarget(TargetKind.JDBC, "/lake")
