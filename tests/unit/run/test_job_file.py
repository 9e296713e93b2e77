"""Job files: what is read, and the errors that name a place."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cdc_formats.errors import ArgumentError, KafkaUnavailableError
from normalize import DeadLetter, DeltaDatabase, JdbcDatabase, Verify
from normalize.monitoring.progress import TableProgress
from normalize.run import Event, Job, check_job, job_schema, maintain_job, read_job, run_job
from normalize.run.events import BatchReporter, micro_batch
from normalize.run.job import Restart, Trigger
from normalize.tables.table_options import TableOptions
from tests.support.pages import PAGES

SMALLEST: dict[str, Any] = {
    "topic": "shop",
    "format": "maxwell-json",
    "options": {"kafka.bootstrap.servers": "broker:9092"},
    "target": {"delta": {"name": "/lake/shop"}},
    "schema_location": "/lake/schemas",
    "checkpoint_location": "/lake/checkpoint",
}


@pytest.fixture
def read(tmp_path: Path):
    def read(**changes: Any) -> Job:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({**SMALLEST, **changes}))
        return read_job(path)

    return read


def test_the_smallest_job_has_the_defaults_of_sync_database(read) -> None:
    job = read()
    assert job.arguments == {
        "topic": "shop",
        "format": "maxwell-json",
        "options": {"kafka.bootstrap.servers": "broker:9092"},
        "target": DeltaDatabase("/lake/shop", on_question="stop_table"),
        "schema_location": "/lake/schemas",
        "format_options": None,
        "tables": {},
        "include": (),
        "exclude": (),
        "on_new_column": "add",
        "on_table_error": "fail",
        "on_truncate": "fail",
        "mode": "FAILFAST",
        "parallel": 4,
        "check": True,
    }
    assert (job.checkpoint_location, job.trigger, job.restart, job.packages) == (
        "/lake/checkpoint",
        Trigger(),
        Restart(),
        (),
    )


def test_tables_are_verified_by_a_source_whose_password_is_never_shown(read, monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "s3cret")
    verify = {"source": "jdbc:postgresql://db/shop", "password": "env:SOURCE_PASSWORD"}
    job = read(
        target={"delta": {"name": "/lake", "verify": {**verify, "every": "1 hour"}}},
        tables={"shop.orders": {"verify": {"source": "jdbc:mysql://db/shop", "at_most": "0.5 %"}}},
        packages=["delta"],
    )
    source = Verify(source=verify["source"], password="s3cret", every="1 hour")
    assert job.arguments["target"] == DeltaDatabase(
        "/lake", verify=source, on_question="stop_table"
    )
    assert "s3cret" not in repr(job.arguments)
    assert job.packages == ("delta", "postgresql")
    of_table = job.arguments["tables"]["shop.orders"].verify
    assert (of_table.share, of_table.of("shop.orders").table) == (0.005, "shop.orders")
    # Debezium's messages of PostgreSQL name the database, too.
    assert source.of("shop.public.orders").table == "public.orders"


def test_a_mode_has_any_case(read) -> None:
    assert read(mode="dropmalformed").arguments["mode"] == "DROPMALFORMED"


def test_all_parts_of_a_job(read, monkeypatch) -> None:
    monkeypatch.setenv("TARGET_PASSWORD", "s3cret")
    job = read(
        topic={"pattern": "shop[.].*"},
        target={
            "jdbc": {
                "url": "jdbc:postgresql://db/shop",
                "user": "cdc",
                "password": "env:TARGET_PASSWORD",
            }
        },
        tables={"shop.orders": {"primary_key": "id", "schema": "id INT, price DECIMAL(10,2)"}},
        mode={"topic": "dead", "options": {"acks": "all"}},
        trigger={"processing_time": "10 seconds"},
        restart={"limit": 3, "first_pause": 5},
        packages=["delta"],
        spark={"spark.sql.shuffle.partitions": 4, "spark.sql.ansi.enabled": True},
    )
    assert job.arguments["topic"] == re.compile("shop[.].*")
    assert job.arguments["target"] == JdbcDatabase(
        "jdbc:postgresql://db/shop", user="cdc", password="s3cret", on_question="stop_table"
    )
    assert job.arguments["tables"] == {
        "shop.orders": TableOptions(primary_key="id", schema="id INT, price DECIMAL(10,2)")
    }
    assert job.arguments["mode"] == DeadLetter("dead", {"acks": "all"})
    assert (job.restart, job.packages) == (Restart(limit=3, first_pause=5.0), ("delta",))
    assert job.spark == {"spark.sql.shuffle.partitions": "4", "spark.sql.ansi.enabled": "true"}
    assert "s3cret" not in repr(job)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topics": "shop"}, r"`topics` at `\$` is not an option: did you mean `topic`\?"),
        (
            {"target": {"delta": {"nam": "/lake"}}},
            r"`nam` at `\$\.target\.delta` is not an option: did you mean `name`\?",
        ),
        (
            {"columns": "a"},
            r"`columns` at `\$` is not an option there, but at `\$\.tables\.NAME`",
        ),
        (
            {"topic": {"pattern": "shop[.("}},
            r"'shop\[\.\(' is not a regular expression \(.*\) - at `\$\.topic\.pattern`",
        ),
        (
            {"restart": {"first_pause": -1}},
            r"first_pause is -1\.0: write a number from 0 on - at `\$\.restart`",
        ),
        ({"restart": {"longest_pause": float("nan")}}, "longest_pause is nan: write a number"),
        (
            {"trigger": {"processing_time": "1 second", "available_now": True}},
            r"processing_time and available_now cannot be combined: remove one - at `\$\.trigger`",
        ),
        (
            {"tables": {"a": {"primary-key": "id"}}},
            r"`primary-key` at `\$\.tables\[\.\.\.\]` .* did you mean `primary_key`\?",
        ),
        (
            {"target": {"delta": {"name": "/lake", "maintenance": {"expires": "1 day"}}}},
            r"`expires` at `\$\.target\.delta\.maintenance` .* did you mean `expire`\?",
        ),
        (
            {"tables": {"a": {"maintenance": {"every": "hourly"}}}},
            r"every is 'hourly': pass a number .* - at `\$\.tables\[\.\.\.\]\.maintenance`",
        ),
        (
            {"tables": {"a": {"verify": {"source": "jdbc:mysql://db", "at_most": "2"}}}},
            r"at_most is '2': pass a part of the time, as '2 %' - at `\$\.tables\[\.\.\.\]\.verify`",
        ),
        (
            {"target": {"delta": {"name": "/lake", "verify": {"url": "jdbc:mysql://db"}}}},
            r"`url` at `\$\.target\.delta\.verify` is not an option",
        ),
        ({"parallel": "4"}, r"Expected `int`, got `str` - at `\$\.parallel`"),
        ({"on_truncate": "stop"}, r"Invalid enum value 'stop' - at `\$\.on_truncate`"),
        (
            {"target": {"delta": {"name": "/lake", "on_question": "ask"}}},
            r"Invalid enum value 'ask' - at `\$\.target\.delta\.on_question`",
        ),
        ({"target": {}}, r"`\$\.target` has 0 databases: write one of delta, iceberg, jdbc"),
        ({"target": {"delta": {"name": "lake/shop"}}}, r"lake/shop.* - at `\$\.target\.delta`"),
        (
            {"tables": {"a": {"columns": "a", "exclude_columns": "b"}}},
            r"remove one of them - at `\$\.tables\.a`",
        ),
        (
            {"options": {"kafka.sasl.jaas.config": "env:NOT_SET"}},
            r"kafka\.sasl\.jaas\.config refers to .* NOT_SET, which is not set",
        ),
        ({"format": "maxwel-json"}, "maxwel-json"),
        ({"format_options": {"binlog_image": "FULL"}}, "binlog_image"),
        ({"options": {}}, r"options lack 'kafka\.bootstrap\.servers'"),
        (
            {"options": {"kafka.bootstrap.servers": "a:1", "startingOffsets": "soon"}},
            "the option startingOffsets is 'soon'",
        ),
        ({"topic": None}, "pass exactly one of topic and the options subscribe"),
        (
            {"trigger": {"processing_time": "soon"}},
            r"processing_time is 'soon': write an interval, such as '10 seconds' .* - at `\$\.trigger`",
        ),
        ({"trigger": {"processing_time": "1 month"}}, "processing_time is '1 month'"),
        ({"trigger": {"processing_time": "10"}}, "processing_time is '10'"),
        ({"schema_location": ""}, "schema_location is '': pass the path or the URL of a folder"),
        ({"checkpoint_location": " "}, "checkpoint_location is ' ': pass the path"),
        ({"parallel": 0}, "parallel is 0: pass a number of tables, at least 1"),
    ],
)
def test_an_error_names_the_file_and_the_place(read, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=rf"the job file .*job\.yaml: .*{text}"):
        read(**changes)


def test_the_broker_is_tried_before_spark_starts(read) -> None:
    # Spark would not start either.
    job = read(packages=["none"], options={"kafka.bootstrap.servers": "localhost:1"})
    with pytest.raises(KafkaUnavailableError, match="the connection was refused"):
        run_job(job)


YAML = yaml.safe_dump(SMALLEST)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (YAML + "topic: other\n", r"`topic` is written twice, in lines \d+ and \d+: remove one"),
        (
            YAML + "tables:\n  a: {columns: x, columns: y}\n",
            "`columns` is written twice, in lines",
        ),
        (YAML + "exclude: &a [*a]\n", "a part of it contains itself"),
        ("topic: [", "is not YAML: "),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_does_not_exist_or_is_not_the_yaml_of_a_job(
    tmp_path: Path, content: str | None, text: str
) -> None:
    if content is not None:
        (tmp_path / "job.yaml").write_text(content)
    with pytest.raises(ArgumentError, match=rf"job\.yaml:? {text}"):
        read_job(tmp_path / "job.yaml")


@pytest.mark.parametrize(
    ("option", "text"),
    [("on_truncate", "Invalid enum value 'env:SECRET'"), ("format", "env:SECRET")],
)
def test_an_error_does_not_show_the_value_of_an_environment_variable(
    read, monkeypatch, option: str, text: str
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    with pytest.raises(ArgumentError, match=text) as refused:
        read(**{option: "env:SECRET"})
    assert "s3cret" not in str(refused.value)


def test_the_schema_accepts_and_refuses_what_the_reader_does() -> None:
    validator = jsonschema.Draft202012Validator(job_schema())
    wrong = ({"topics": "a"}, {"parallel": "4"}, {"target": {"delta": {"nam": ""}}})
    found = [validator.is_valid(SMALLEST | each) for each in ({}, *wrong)]
    assert found == [True, False, False, False]
    parts = validator.schema["$defs"]
    unexplained = [
        f"{name}.{option}"
        for name, part in parts.items()
        for option, each in part.get("properties", {}).items()
        if not each.get("description") and name not in ("Target", "TopicPattern")
    ]
    assert unexplained == ["JobFile.trigger", "JobFile.restart"]
    assert "maxwell-json" in parts["JobFile"]["properties"]["format"]["examples"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"jdbc": {"url": "jdbc:postgresql://db/shop"}}, "which maintains its tables itself"),
        ({"delta": {"name": "/lake", "only_writer": True}}, "stop the query and pass --stopped"),
    ],
)
def test_tables_that_another_process_does_not_maintain(read, target: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        maintain_job(read(target=target), print, stopped=False)


JOBS = {
    f"{page} {number}": text
    for page, content in PAGES.items()
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", content, re.M | re.S), 1)
    if "\nschema_location:" in text
}


@pytest.mark.parametrize("job", JOBS)
def test_the_job_files_of_the_pages_are_read(job: str, tmp_path: Path, monkeypatch: Any) -> None:
    for name in re.findall(r"env:(\w+)", JOBS[job]):
        monkeypatch.setenv(name, "value")
    path = tmp_path / "job.yaml"
    path.write_text(JOBS[job])
    assert read_job(path).arguments["schema_location"].startswith("/lake/_schemas/")


# --------------------------------------------------------------------------------------------------
# What a job reports of its micro-batches, and the checks of a file without Spark
def progress(batch: int, end: int, latest: int) -> dict[str, Any]:
    source = {
        "description": "KafkaV2",
        "endOffset": {"t": {"0": end}},
        "latestOffset": {"t": {"0": latest}},
    }
    return {
        "id": "q",
        "batchId": batch,
        "timestamp": "2026-11-24T01:00:00.000Z",
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 1500},
        "sources": [source],
    }


def test_caught_up_is_reported_when_the_query_was_behind() -> None:
    events = list[Event]()
    reporter = BatchReporter(events.append)
    for batch, (end, latest) in enumerate([(5, 20), (20, 20), (21, 21), (22, 30), (30, 30)]):
        reporter.take(progress(batch, end, latest))
    kinds = [each.kind for each in events]
    assert (kinds.count("caught up"), kinds[:3]) == (2, ["micro-batch", "micro-batch", "caught up"])
    assert events[0].text == "micro-batch 0, 5 records, 1.5 s, 15 offsets left"


def test_a_line_of_a_micro_batch_names_the_largest_tables() -> None:
    tables = {
        name: TableProgress(
            query="q",
            batch=1,
            table=name,
            records=9,
            rows=rows,
            lag={"newest": lag},
            writer=writer,
            reason=writer and "so",
        )
        for name, rows, lag, writer in (
            ("b", 2, 0.5, "spark"),
            ("a", 1234, 2.0, "delta-rs"),
            ("c", 0, 1.0, ""),
        )
    } | {"d": TableProgress(query="q", table="d", missed=3, stopped=True)}
    tables |= {name: TableProgress(query="q", table=name) for name in "ef"}
    event = micro_batch(7, 12345, 2.54, 0, tables)
    assert event.text == (
        "micro-batch 7, 12,345 records, 2.5 s, a 1,234 rows by delta-rs, b 2 rows by Spark, "
        "c 0 rows, "
        "d 0 rows (stopped), e 0 rows, 1 more tables, lag 2.0 s"
    )
    line = json.loads(event.to_json())
    assert (line["event"], line["batch"], line["offsets_left"]) == ("micro-batch", 7, 0)
    of_tables = [
        [line["tables"][each].get(name) for each in "abcd"]
        for name in ("writer", "reason", "missed")
    ]
    assert of_tables == [["delta-rs", "spark", "", ""], ["so", "so", "", ""], [0, 0, 0, 3]]


def test_a_check_ends_at_the_first_part_that_cannot_work(read, tmp_path: Path) -> None:
    local = {"schema_location": str(tmp_path / "schemas"), "checkpoint_location": str(tmp_path)}
    local |= {"target": {"delta": {"name": str(tmp_path / "lake")}}}
    local |= {"options": {"kafka.bootstrap.servers": "127.0.0.1:1"}}
    with pytest.raises(KafkaUnavailableError):
        list(check_job(read(**local)))
    at = {"shop.a": {"types": {"at": "TIMESTAMP_NTZ"}}}
    of_debezium = {
        "format": "debezium-json",
        "format_options": {"time_precision_mode": "adaptive_time_microseconds"},
    }
    with pytest.raises(ArgumentError, match=r"tables\.shop\.a: debezium-json .* at TIMESTAMP_NTZ"):
        list(check_job(read(**local, **of_debezium, tables=at)))
