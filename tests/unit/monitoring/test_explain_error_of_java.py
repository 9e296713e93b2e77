"""The cause in Java of an error that py4j raised, from the text of Spark's exceptions."""

from normalize.monitoring.explain_error import explain_error

FAILED = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "apply.py", line 10, in __call__
  File "protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling o67.sql.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:3122)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 34 more

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\tat py4j.reflection.PythonProxyHandler.invoke(PythonProxyHandler.java:108)
"""


def test_the_first_cause_is_shown() -> None:
    assert explain_error(RuntimeError(FAILED)) == "java.io.IOException: No space left on device"


def test_a_message_of_several_lines_is_one_line() -> None:
    text = FAILED.replace(
        "java.io.IOException: No space left on device",
        "delta.Violation: [CHECK] violated by row with values:\n - qty : -5",
    )
    assert (
        explain_error(RuntimeError(text))
        == "delta.Violation: [CHECK] violated by row with values: - qty : -5"
    )


def test_a_cause_without_a_message_is_shown_with_the_last_that_has_one() -> None:
    text = FAILED.replace("java.io.IOException: No space left on device", "java.io.EOFException")
    first = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 "
        "failed 1 times"
    )
    assert explain_error(RuntimeError(text)) == f"{first} (java.io.EOFException)"


def test_an_error_that_python_raised_after_it_is_shown_instead() -> None:
    later = (
        "\nDuring handling of the above exception, another one occurred:\n\nTraceback (most recent "
        "call last):\nOSError: no such disk\n"
    )
    text = FAILED.replace("\n\n\tat py4j.Protocol", f"\n{later}\n\tat py4j.Protocol")
    assert explain_error(RuntimeError(text)) == "OSError: no such disk"


def test_the_error_of_this_package_comes_first() -> None:
    assert (
        explain_error(RuntimeError(f"{FAILED}\ncdc_formats.errors.SchemaError: [SCHEMA] no column"))
        == "[SCHEMA] no column"
    )


def test_a_checkpoint_of_another_engine_is_named() -> None:
    text = (
        "exception: [STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful "
        "operator name does not match"
    )
    assert "another engine of ChangelogNormalize" in explain_error(RuntimeError(text))


def test_records_that_retention_removed() -> None:
    gone = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: out of range for shop-0"
    text = explain_error(RuntimeError(f"the query failed\nCaused by: {gone}\n\tat a.B.c(B.java:1)"))
    assert text.startswith(f"{gone} - the topic no longer has records")
    assert "set the option failOnDataLoss to false for one start" in text
