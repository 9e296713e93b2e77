"""``cdc init --source``: types and primary keys of a job file are those of the source's tables."""

from __future__ import annotations

import pytest
import yaml

from cdc_cli.job_text import JobTarget, TargetKind, job_text
from cdc_cli.source import with_source
from cdc_formats.topics.profile import profile_records
from cdc_formats.topics.sampler import SampledRecord
from normalize import TableOptions
from tests.support.databases import debezium
from tests.support.sinking import table_name
from tests.support.verifying import Database

ROW = {
    "id": 1001,
    "price": "A7Y=",
    "small": 7,
    "at": 1795274035392069,
    "day": 20455,
    "code": "0123",
    "flag": True,
    "none": None,
    "other": "AQ==",
}
COLUMNS = {
    "mariadb": "price DECIMAL(10,2), small SMALLINT, at DATETIME(6), day DATE, code VARCHAR(9) CHARACTER "
    "SET utf8mb4, flag BOOLEAN, none DECIMAL(12,4), other BIT(8)",
    "postgresql": "price NUMERIC(10,2), small SMALLINT, at TIMESTAMP, day DATE, code VARCHAR(9), flag "
    "BOOLEAN, none NUMERIC(12,4), other BIT(8)",
}
SCHEMAS = {"mariadb": "test", "postgresql": "public"}


@pytest.mark.mariadb
@pytest.mark.postgres
def test_the_source_answers_the_questions_of_a_job_file(database: Database) -> None:
    name, keyless, unknown = (table_name() for _ in range(3))
    for table, key in ((name, ", PRIMARY KEY (id)"), (keyless, ", PRIMARY KEY (small, id)")):
        database.run(f"CREATE TABLE {table} (id INT, {COLUMNS[database.kind]}{key})")
    messages = [debezium(name, "c", None, ROW), (None, debezium(keyless, "c", None, ROW)[1])]
    messages.append(debezium(unknown, "c", None, {"id": 7, "at": 20455}))
    schema = SCHEMAS[database.kind]
    records = [
        SampledRecord("t", 0, offset, 0, key, value.replace(b'"shop"', f'"{schema}"'.encode()), ())
        for offset, (key, value) in enumerate(messages)
        if value is not None
    ]
    profile = profile_records(
        records, topic="t", servers="localhost:9092", decimal_handling_mode="precise"
    )
    source = database.source("unused")
    profiles = with_source([profile], source.url, source.user, source.password)
    text = job_text(profiles, [], JobTarget(TargetKind.DELTA, "/lake"))
    assert str(source.password) not in text
    content = yaml.safe_load(text)
    types = {
        "id": "INT",
        "price": "DECIMAL(10,2)",
        "small": "SMALLINT",
        "at": "TIMESTAMP_NTZ(6)",
        "day": "DATE",
        "none": "DECIMAL(12,4)",
        "other": "?",
    }
    assert content["tables"] == {
        f"{schema}.{name}": {"types": types},
        f"{schema}.{keyless}": {"primary_key": ["small", "id"], "types": types},
        f"{schema}.{unknown}": {"types": {"at": "?"}},
    }
    TableOptions(types={column: kind for column, kind in types.items() if kind != "?"})
    asked = {"time_precision_mode", "bigint_unsigned_handling_mode"}
    options = content["format_options"]
    assert {option for option, value in options.items() if value == "?"} == asked
