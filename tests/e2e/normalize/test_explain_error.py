"""`explain_error` returns the one sentence of failed queries."""

from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from normalize import from_kafka_changelog
from normalize.monitoring.explain_error import explain_error
from tests.support.streams import new_topic, servers


@pytest.fixture(scope="module")
def read(spark: Any, kafka: Any) -> Any:
    topic = new_topic(kafka, [(None, b'{"op": "c", "after": {"id": "x1"}}')])

    def read(**arguments: Any) -> Any:
        more = {"options": servers(kafka), "check": False, **arguments}
        return from_kafka_changelog(
            spark, topic, format="debezium-json", schema="id INT", primary_key="id", **more
        )

    return topic, read


def test_a_stream_its_query_and_a_bounded_read(read, tmp_path):
    topic, read = read
    query = (
        read()
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
        read(bounded=True).collect()
    assert explain_error(bounded.value) == sentence


def test_an_error_of_your_own_code_is_its_last_line_and_one_of_spark_its_first(
    spark, read, tmp_path
):
    def fail(batch: Any, number: int) -> None:
        raise OSError("the disk is full")

    _, read = read
    stream = (
        read(mode="PERMISSIVE")
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


def test_a_query_without_an_error_has_no_sentence(read, tmp_path):
    _, read = read
    writer = (
        read(mode="DROPMALFORMED")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert explain_error(query) == ""
