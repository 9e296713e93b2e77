"""The cause in Java of an error that py4j raised, from the text of Spark's exceptions."""

import re

import pytest

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


NO_SPACE = "java.io.IOException: No space left on device"
JOB_ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed "
    "1 times"
)
LATER = (
    "\nDuring handling of the above exception, another one occurred:\n\nTraceback (most recent "
    "call last):\nOSError: no such disk\n"
)
GONE = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: out of range for shop-0"
EXPLAINED = {
    "the first cause": (FAILED, NO_SPACE),
    "a message of several lines is one line": (
        FAILED.replace(
            NO_SPACE, "delta.Violation: [CHECK] violated by row with values:\n - qty : -5"
        ),
        "delta.Violation: [CHECK] violated by row with values: - qty : -5",
    ),
    "a cause without a message, with the last that has one": (
        FAILED.replace(NO_SPACE, "java.io.EOFException"),
        f"{JOB_ABORTED} (java.io.EOFException)",
    ),
    "an error that Python raised after it": (
        FAILED.replace("\n\n\tat py4j.Protocol", f"\n{LATER}\n\tat py4j.Protocol"),
        "OSError: no such disk",
    ),
    "the error of this package comes first": (
        f"{FAILED}\ncdc_formats.errors.SchemaError: [SCHEMA] no column",
        "[SCHEMA] no column",
    ),
    "a checkpoint of another engine": (
        "exception: [STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful "
        "operator name does not match",
        "...another engine of ChangelogNormalize...",
    ),
    "records that retention removed": (
        f"the query failed\nCaused by: {GONE}\n\tat a.B.c(B.java:1)",
        f"{GONE} - the topic no longer has records...set the option failOnDataLoss to false for "
        "one start...",
    ),
}
"""Texts of errors, and what is shown of them; ... is any text."""


@pytest.mark.parametrize(("text", "shown"), EXPLAINED.values(), ids=EXPLAINED)
def test_the_cause_in_java_is_shown(text: str, shown: str) -> None:
    pattern = ".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(pattern, explain_error(RuntimeError(text)), re.DOTALL)
