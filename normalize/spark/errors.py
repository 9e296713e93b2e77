"""The errors of Spark's JVM in Python, and their causes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from .sessions import running_gateway


@cache
def java_error_types(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the types of an error of Java that PySpark does not convert, and more ones.

    The client of Spark Connect may have no py4j.
    """
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return more
    return (*more, Py4JError)


def spark_error_types(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the types of an error of Spark or its JVM, and more ones."""
    from pyspark.errors import PySparkException

    return (*more, PySparkException, *java_error_types())


def java_causes(error: Any) -> Iterator[Any]:
    """Yield the exception of Java that an error of py4j or Spark has, and its causes."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield java
        java = java.getCause()


def root_cause(error: Any) -> Any:
    """Return the first cause in Java of an error of py4j; None for another error."""
    return [*java_causes(error)][-1] if hasattr(error, "java_exception") else None


def is_java(value: Any, class_name: str) -> bool:
    """Return whether a Java object is one of a class."""
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(running_gateway(), value, class_name))


def java_text(error: Any) -> str:
    """Return the message of an error, without Java's stack trace."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error).split("\n\nJVM stacktrace:")[0]
