"""The command that installs an optional package which is missing."""

from __future__ import annotations

from .errors import MissingDependencyError

_EXTRAS = {
    "spark": ("pandas", "py4j", "pyarrow", "pyspark"),
    "kafka": ("confluent_kafka",),
    "cli": ("rich", "typer"),
    "run": ("yaml",),
    "capture": ("connectorx", "pymysql", "pymysqlreplication"),
    "avro": ("fastavro", "polars"),
    "metrics": ("prometheus_client",),
}
"""The extras of the distribution, with the modules that they install."""
_EXTRA_OF = {module: extra for extra, modules in _EXTRAS.items() for module in modules}


def missing_dependency(error: ImportError, extras: str = "") -> ImportError:
    """Return an import error as the sentence that says what to install.

    Parameters
    ----------
    error : ImportError
    extras : str
        The extras of what the user does, such as ``cli,run``; empty: the one of the package.

    Returns
    -------
    ImportError
        The same error if it is of no optional package.

    Examples
    --------
    >>> print(missing_dependency(ModuleNotFoundError(name="pyarrow.compute")))
    [MISSING_DEPENDENCY] pyarrow is not installed: pip install 'pyspark-kafka-changelog[spark]'
    """
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA_OF:
        return error
    made = MissingDependencyError(
        f"{module} is not installed: pip install "
        f"'pyspark-kafka-changelog[{extras or _EXTRA_OF[module]}]'"
    )
    made.name = module  # a caller may know the extras better
    return made
