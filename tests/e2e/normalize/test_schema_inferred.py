"""`from_kafka_changelog` without a schema, and the call that a profile suggests.

The schema is inferred from a sample and printed.
"""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from cdc_formats import columns
from cdc_formats.topics.kafka import profile_topic
from normalize import from_kafka_changelog
from tests.support.paths import RECORDS
from tests.support.streams import new_topic, servers


def block(**row: object) -> bytes:
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "field": "price",
            "parameters": PRICE,
        },
        {
            "type": "int64",
            "optional": True,
            "name": "io.debezium.time.MicroTimestamp",
            "field": "at",
        },
    ]
    image = {"type": "struct", "fields": fields, "optional": True}
    schema = {
        "type": "struct",
        "fields": [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {"type": "string", "field": "op"},
        ],
    }
    payload = {
        "before": None,
        "after": row,
        "op": "c",
        "source": {"connector": "postgresql", "db": "d", "table": "t"},
    }
    return json.dumps({"schema": schema, "payload": payload}).encode()


PRICE = {"scale": "2", "connect.decimal.precision": "8"}


def test_without_a_schema_it_is_inferred_and_printed(spark, kafka, capsys) -> None:
    records = [
        (json.dumps({"id": n}).encode(), block(id=n, price="A7Y=", at=1735787045123456))
        for n in range(3)
    ]
    topic = new_topic(kafka, records)
    changes = from_kafka_changelog(
        spark, topic, format="debezium-json", options=servers(kafka), bounded=True
    )
    assert (
        changes.schema.simpleString()
        == "struct<row_kind:string,id:int,price:decimal(8,2),at:timestamp_ntz>"
    )
    assert [tuple(row) for row in changes.orderBy("id").limit(1).collect()] == [
        ("+I", 0, Decimal("9.50"), datetime(2025, 1, 2, 3, 4, 5, 123456))
    ]
    output = capsys.readouterr().out
    assert output == (
        f"Inferred from 3 records of {topic}, 3 rows:\n"
        'schema="""\n    id INT NOT NULL,\n    price DECIMAL(8,2),\n    at TIMESTAMP_NTZ(6)\n"""\n'
        "primary_key=['id']  # the fields of the Kafka key, in 3 records\n"
        "format_options={'schema_include': True, 'decimal_handling_mode': 'precise'}\n"
        "# schema_include: all 3 messages have a schema block\n"
        "# decimal_handling_mode: the schema block has Connect's Decimal\n"
        "Pass these arguments to pin them: another sample may lead to other results.\n"
    )
    assert [str(column) for column in columns(output.split('"""')[1])] == [
        "id INT NOT NULL",
        "price DECIMAL(8,2)",
        "at TIMESTAMP_NTZ(6)",
    ]


def test_passed_arguments_take_precedence_over_inferred_ones(spark, kafka, capsys) -> None:
    topics = [
        new_topic(
            kafka,
            [
                (
                    b'{"id": 1}',
                    b'{"type": "insert", "database": "d", "table": "t", "data": {"id": 1, "n": %d}}'
                    % n,
                )
            ],
        )
        for n in (1, 2)
    ]
    changes = from_kafka_changelog(
        spark,
        topics,
        format="maxwell-json",
        primary_key=["n"],
        format_options={"table-include": "t"},
        options=servers(kafka),
        bounded=True,
    )
    assert sorted(tuple(row) for row in changes.collect()) == [("+I", 1, 1), ("+I", 1, 2)]
    output = capsys.readouterr().out
    assert "primary_key=['n']  # as given" in output
    assert "# id, n: guessed from its values" in output


# ------------------------------------------------------------------------------------------- the
# call that a profile suggests


@pytest.mark.parametrize(
    ("name", "table", "kinds"),
    [
        ("flink-upsert.tags", None, {"+I", "-U", "+U", "-D"}),
        ("dbz34-mariadb-json.inventory.order_lines", None, {"+I", "-U", "+U", "-D"}),
        ("dbz34-mariadb-upsert.inventory.dbz_signal", None, {"+I"}),
        ("maxwell-mariadb", "inventory.customers", {"+I", "-U", "+U", "-D"}),
    ],
)
def test_the_call_reads_the_topic(
    spark: Any, kafka: Any, name: str, table: str | None, kinds: set[str]
) -> None:
    topic = f"called-{name}"
    kafka.load_recording(RECORDS / f"{name}.jsonl.gz", topic)
    profile = profile_topic(kafka.bootstrap_servers, topic, sample=3000, progress=False)
    names: dict[str, Any] = {"spark": spark}
    exec(
        compile(f"{profile.call(table).removesuffix(')')}    bounded=True,\n)", "call", "exec"),
        names,
    )  # in one batch, for speed
    changes = names["changes"]
    rows = changes.collect()
    assert {row["row_kind"] for row in rows} == kinds
    declared = next(each for each in profile.tables if table in (None, each.name))
    assert declared.schema is not None
    assert changes.columns == ["row_kind", *(column.name for column in declared.schema.columns)]
    assert sum(row["row_kind"] == "+I" for row in rows) > 10
