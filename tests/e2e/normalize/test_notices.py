"""Notices in the log of a job: undeclared columns, and a topic whose records were all refused."""

import re
from base64 import b64encode
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import Observation

from cdc_formats import columns
from cdc_formats.topics.kafka import profile_topic
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.monitoring.explain_error import explain_error
from tests.support import databases
from tests.support.paths import RECORDS
from tests.support.streams import debezium, new_topic, run_stream, servers

ROWS = [
    (None, debezium("c", None, {"id": i, "wieght": i, "colour\x1b[31m": "red"})) for i in range(40)
]
BAD = [(None, b'{"after": {"id": %d}, "op": "no such"}' % i) for i in range(39)] + [
    (None, b"no JSON")
]


def read(
    spark, kafka, records, bounded: bool, checkpoint, **options
) -> tuple[str, int, list[dict]]:
    """Read a new topic, as a stream in two micro-batches.

    Return its name, the number of rows, and the counts of each batch.
    """
    topic = new_topic(kafka, records)
    arguments = {"format": "debezium-json", "primary_key": "id", "check": False, **options}
    if bounded:
        observed = Observation()
        changes = from_kafka_changelog(
            spark, topic, bounded=True, observation=observed, options=servers(kafka), **arguments
        )
        return topic, changes.count(), [observed.get]
    run = run_stream(
        from_kafka_changelog(
            spark, topic, options=servers(kafka, maxOffsetsPerTrigger=20), **arguments
        ),
        checkpoint,
    )
    return (
        topic,
        len(run.rows),
        [batch["observedMetrics"]["changelog_decode"] for batch in run.progress],
    )


@pytest.mark.parametrize("bounded", [True, False])
def test_undeclared_columns_are_logged_once(spark, kafka, tmp_path, caplog, bounded):
    topic, rows, counts = read(
        spark, kafka, ROWS, bounded, tmp_path, schema="id BIGINT, weight BIGINT"
    )
    absent, unknown = caplog.messages
    sampled = 5  # a small micro-batch
    assert (
        f"declared but missing from {sampled} of {sampled} sampled records (first: {topic}[0]@0): "
        "`weight`. "
    ) in absent
    assert (
        f"in {sampled} of {sampled} sampled records (first: {topic}[0]@0) but not declared: "
        "`wieght`, `colour\\x1b[31m`. "
    ) in unknown
    assert rows == 40
    assert len(counts) == (1 if bounded else 2)
    assert {(each["ABSENT_COLUMNS"], each["UNKNOWN_COLUMNS"]) for each in counts} == {
        (sampled, sampled)
    }


@pytest.mark.parametrize("bounded", [True, False])
def test_a_job_without_readable_records_logs_it_once(spark, kafka, tmp_path, caplog, bounded):
    topic, rows, _ = read(
        spark, kafka, BAD, bounded, tmp_path, schema="id BIGINT", mode="DROPMALFORMED"
    )
    (notice,) = caplog.messages
    refused = (
        "40 of 40: UNKNOWN_OPERATION 39, MALFORMED_MESSAGE 1"
        if bounded
        else "20 of 20: UNKNOWN_OPERATION 20"
    )
    assert f"every record that a task read is bad ({refused})" in notice
    assert (
        "The first error: [UNKNOWN_OPERATION] op 'no such' is none of c, d, r, u, t, m - at "
        f"`$.op` of the value in {topic}[0]@0"
    ) in notice
    assert rows == 0


def test_large_state_is_reported_once_before_memory_ends_and_with_few_changes_the_other_engine(
    spark, kafka, tmp_path, caplog
):
    random = Random(0)  # the state is compressed, and these texts cannot be
    rows = [{"id": i, "doc": b64encode(random.randbytes(75_000)).decode()} for i in range(340)]
    topic = new_topic(kafka, [(None, debezium("c", None, row)) for row in rows])
    read = {
        "format": "debezium-json",
        "schema": "id BIGINT, doc STRING",
        "primary_key": "id",
        "options": servers(kafka),
    }
    stream = from_kafka_changelog(
        spark, topic, normalize=ChangelogNormalize(key_groups=1), **read
    ).drop("doc")
    assert len(run_stream(stream, tmp_path / "checkpoint").rows) == 340
    (large_group,) = caplog.messages  # no more, since every row is new
    assert large_group.startswith("the state of one key group has 32 MB. ")
    assert "use more than 1 key groups" in large_group
    for row in rows[:2]:
        kafka.produce(topic, [(None, debezium("u", row, row | {"doc": row["doc"][::-1]}))])
        assert len(run_stream(stream, tmp_path / "checkpoint").rows) == 2
    notice = caplog.messages[-1]
    assert caplog.messages == [large_group, notice]
    pattern = (
        r"the state of the query has about 32 MB in 1 key groups, .* all 340 keys of one group for "
        r"1 changes"
    )
    assert re.match(pattern, notice)
    assert "ChangelogNormalize(engine='native')" in notice


# --------------------------------------------------------------------------------------------------
# `explain_error` returns the one sentence of failed queries
@pytest.fixture(scope="module")
def read_of_explain_error(spark: Any, kafka: Any) -> Any:
    topic = new_topic(kafka, [(None, b'{"op": "c", "after": {"id": "x1"}}')])

    def read_of_explain_error(**arguments: Any) -> Any:
        more = {"options": servers(kafka), "check": False, **arguments}
        return from_kafka_changelog(
            spark, topic, format="debezium-json", schema="id INT", primary_key="id", **more
        )

    return topic, read_of_explain_error


def test_a_stream_its_query_and_a_bounded_read(read_of_explain_error, tmp_path):
    topic, read_of_explain_error = read_of_explain_error
    query = (
        read_of_explain_error()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    assert len(str(caught.value).splitlines()) > 30  # a traceback and a plan
    sentence = (
        "[TYPE_CONVERSION] expected `INT`, got `str` 'x1' - at `$.after.id` of the value in "
        f'{topic}[0]@0; it begins b\'{{"op": "c", "after": {{"id": "x1"}}}}\''
    )
    assert (
        explain_error(caught.value)
        == explain_error(query)
        == explain_error(query.exception())
        == sentence
    )
    with pytest.raises(PythonException) as bounded:
        read_of_explain_error(bounded=True).collect()
    assert explain_error(bounded.value) == sentence


def test_an_error_of_your_own_code_is_its_last_line_and_one_of_spark_its_first(
    spark, read_of_explain_error, tmp_path
):
    def fail(batch: Any, number: int) -> None:
        raise OSError("the disk is full")

    _, read_of_explain_error = read_of_explain_error
    stream = (
        read_of_explain_error(mode="PERMISSIVE")
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path))
    )
    with pytest.raises(StreamingQueryException) as caught:
        stream.trigger(availableNow=True).start().awaitTermination()
    assert explain_error(caught.value) == "OSError: the disk is full"
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND") as missing:
        spark.table("no_such_table")
    assert explain_error(missing.value).startswith(
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `no_such_table` cannot be found."
    )


# --------------------------------------------------------------------------------------------------
# `from_kafka_changelog` without a schema, and the call that a profile suggests
PRICE = {"scale": "2", "connect.decimal.precision": "8"}
TYPES: dict[str, Any] = {
    "id": "int32",
    "price": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": PRICE,
    },
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}


def test_without_a_schema_it_is_inferred_and_printed(spark, kafka, capsys) -> None:
    rows = [{"id": n, "price": "A7Y=", "at": 1735787045123456} for n in range(3)]
    records = [databases.debezium("t", "c", None, row, TYPES) for row in rows]
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
    assert changes.columns == ["row_kind", *(column.name for column in declared.schema.columns)]
    assert sum(row["row_kind"] == "+I" for row in rows) > 10
