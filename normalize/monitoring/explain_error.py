"""`explain_error`: the one sentence of a failed query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ChangelogError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Spark's own conditions have classes of Java or of pyspark.
_OURS = re.compile(
    r"^\s*(?!org\.apache|java\.|py4j\.|pyspark\.)[\w.]+: (\[[A-Z][A-Z_]*\] .*\S)\s*$", re.MULTILINE
)
_RAISED_BY_SQL = re.compile(
    r"\[USER_RAISED_EXCEPTION\] (\[[A-Z][A-Z_]*\] .*?)(?: SQLSTATE: \w+)?\s*$", re.MULTILINE
)
"""An error of the native engine, which is SQL."""
_PYTHON = re.compile(
    (
        r"^\s*((?!org\.apache|java\.|scala\.)[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)(?:: "
        r".*\S)?)\s*$"
    ),
    re.MULTILINE,
)
_JAVA = re.compile(r"^Caused by: (\S.*\S)\s*$", re.MULTILINE)
_PY4J = "An error occurred while calling "
"""In the line of py4j's exception, above Java's own."""
_JAVA_IN_PY4J = re.compile(
    r"^(?:Caused by)?: (\S[^\0]*?)(?=^\s*(?:at |\.\.\. \d+ more|Caused by: )|\Z)", re.MULTILINE
)
_OTHER_OPERATOR = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
_OTHER_ENGINE = (
    "the checkpoint's state is that of another engine of ChangelogNormalize, or of other stateful "
    "operators: set the engine and the query back, or start from a new checkpoint"
)
_LOST_RECORDS = (
    " - the topic no longer has records that the query had not read, by its retention. To go on "
    "without them, set the option failOnDataLoss to false for one start, and verify the tables"
)
_LONGEST = 500  # characters of a Java exception's message, which may have a query's plan


def explain_error(failed: BaseException | StreamingQuery) -> str:
    """Return the sentence that says why a query failed, without tracebacks and query plans.

    Spark reports an error of a Python worker as hundreds of lines of traceback text. This function
    finds the error's own text in it.

    Parameters
    ----------
    failed : exception or StreamingQuery
        The exception of an action, of ``awaitTermination`` or of ``query.exception()``; or a query
        that failed.

    Returns
    -------
    str
        ``[CONDITION] ...`` for an error of this package; otherwise the most specific line of the
        error, of Python or Java. Empty for a query that did not fail.

    Examples
    --------
    >>> from cdc_formats import get_format
    >>> try:
    ...     get_format("debezium")
    ... except Exception as error:
    ...     print(explain_error(error).partition("?")[0])
    [UNKNOWN_FORMAT] no format 'debezium'; did you mean 'debezium-json'
    """
    error = failed if isinstance(failed, BaseException) else failed.exception()
    if error is None:
        return ""
    if isinstance(error, ChangelogError):
        return str(error)
    text = "\n".join(map(str, _chain(error)))
    if _OTHER_OPERATOR in text:
        return f"[{_OTHER_OPERATOR}] {_OTHER_ENGINE}"
    for find in (_OURS.findall, _RAISED_BY_SQL.findall, _in_py4j, _PYTHON.findall, _JAVA.findall):
        if sentences := find(text):
            lost = _LOST_RECORDS if "OffsetOutOfRangeException" in sentences[-1] else ""
            return f"{sentences[-1]}{lost}"
    return str(error).partition("\n")[0]


def _in_py4j(text: str) -> list[str]:
    """Return the Java exceptions that py4j raised in Python, the first cause last.

    The result is empty if Python raised another exception after them.
    """
    java = text.rpartition(_PY4J)[2] if _PY4J in text else ""
    # The rest is the trace of the streaming query, which received the error from Python.
    java = java.partition("\tat py4j.Protocol.getReturnValue")[0]
    if "Traceback (most recent call last)" in java:
        return []
    causes = [" ".join(each.split())[:_LONGEST] for each in _JAVA_IN_PY4J.findall(java)]
    with_message = [cause for cause in causes if ": " in cause]
    # Some exceptions of Java have no message, such as that of a file that is cut.
    return (
        [f"{with_message[-1]} ({causes[-1]})"]
        if with_message and with_message[-1] != causes[-1]
        else causes[-1:]
    )


def _chain(error: Any) -> Iterator[Any]:
    """Return an exception and its causes, also those that Spark converted from Java."""
    chain: list[Any] = []
    while error is not None and error not in chain:
        chain.append(error)
        yield error
        error = getattr(error, "_cause", None) or getattr(error, "__cause__", None)
