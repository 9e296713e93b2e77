"""CLI ``cdc``: inspect CDC topics, follow them as changelogs, check copied tables and checkpoints.

======================  ===========================================================
command                 module
======================  ===========================================================
``cdc formats``         `cdc_cli.formats`
``cdc topics``          `cdc_cli.topics`
``cdc profile``         `cdc_cli.topics`
``cdc tail``            `cdc_cli.tail`
``cdc verify``          `cdc_cli.verify`
``cdc status``          `cdc_cli.job`
======================  ===========================================================

Topics are read by assignment: no consumer group is joined and no offset is committed. Data goes to
standard output, messages go to standard error. Exit codes: 0; 1 for a failure, with a short error;
2 for wrong usage; 130 after Ctrl-C; 141 (128 + SIGPIPE) when the reader of a pipe has closed it.
``cdc verify`` differs as ``cmp`` does: 1 if the tables are not equal, 2 for a failure.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution


def main() -> None:
    """Run the command in ``sys.argv``; the entry point ``cdc``."""
    if problem := name_conflict():
        raise SystemExit(f"error: {problem}")
    try:
        from .app import app
    except ImportError as error:
        raise SystemExit(
            f"error: the command line requires {error.name}: pip install "
            "'pyspark-kafka-changelog[cli]'"
        ) from None
    app(prog_name="cdc")


def name_conflict() -> str:
    """Return what to do about PyPI's package ``normalize``; empty if it is absent.

    The files of that package take the place of this distribution's.
    """
    try:
        version = distribution("normalize").version
    except PackageNotFoundError:
        return ""
    return (
        f"the package normalize {version} of PyPI is installed, and overwrites the folder "
        "normalize of pyspark-kafka-changelog: pip uninstall normalize, then pip install "
        "--force-reinstall --no-deps pyspark-kafka-changelog"
    )
