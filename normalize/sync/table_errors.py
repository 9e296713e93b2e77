"""Recognizes errors of Spark that a table's rows or definition cause, by their SQLSTATE.

For example a CHECK, NOT NULL, the length of a VARCHAR, or a table that only takes new rows.
"""

from __future__ import annotations

from typing import Any

_OF_TABLE = ("22", "23", "42", "54")
"""Classes of SQLSTATE: data, constraints, definitions and access, limits."""
_NOT_ALLOWED = "42501"
_MOST_TEXT = 300


def violation(error: Any) -> str:
    """Return which rule of a table its rows violate, which no restart changes; else an empty text.

    Parameters
    ----------
    error : Exception
        Of py4j or of Spark.
    """
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    text, java = "", getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        state = java.getSqlState() if is_instance_of(SparkContext._gateway, java, "org.apache.spark.SparkThrowable") else None
        if state == _NOT_ALLOWED:
            return ""
        if state and state.startswith(_OF_TABLE):
            text = " ".join(str(java.getMessage()).split())[:_MOST_TEXT]
        java = java.getCause()
    return text
