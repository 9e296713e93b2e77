"""Checks of a job file that need no Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.format import Format
from normalize.arguments import as_format, names_of
from normalize.decode.check import check_readable
from normalize.kafka.reader_options import reader_options
from normalize.tables.database_target import JdbcDatabase
from normalize.tables.route import Router
from normalize.tables.table_options import Selection

from .job import Job

_LOCAL = re.compile(r"(?:file:/*)?(/.*)")


@dataclass(frozen=True)
class Finding:
    """A result of a check.

    Attributes
    ----------
    is_checked : bool
        Whether the check was possible.
    text : str
    """

    is_checked: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok' if self.is_checked else 'not checked'}: {self.text}"


def check_job(job: Job) -> Iterator[Finding]:
    """Check a job that `read_job` has read: its format, broker, topics and folders.

    Parameters
    ----------
    job : Job

    Yields
    ------
    Finding

    Raises
    ------
    ChangelogError
        At the first part that cannot work.
    """
    arguments = job.arguments
    yield Finding(True, "the file, whose questions have answers")
    format = as_format(arguments["format"], arguments["format_options"])
    _check_tables(job, format)
    tables = arguments["tables"]
    yield Finding(True, f"the format {format.identifier}, and the types of {len(tables)} tables")
    yield from _kafka(job, format)
    yield from _target(arguments["target"])
    for name, location in (
        ("schema_location", arguments["schema_location"]),
        ("checkpoint_location", job.checkpoint_location),
    ):
        yield _folder(name, location)
    yield Finding(
        False, "what Spark reads: packages, settings, conditions (where), existing tables and files"
    )


def _check_tables(job: Job, format: Format) -> None:
    for name, options in job.arguments["tables"].items():
        try:
            options.check_types(format)
        except (ArgumentError, SchemaError) as error:
            raise ArgumentError(f"tables.{name}: {error.args[0]}") from None


def _kafka(job: Job, format: Format) -> Iterator[Finding]:
    arguments = job.arguments
    options = reader_options(arguments["topic"], arguments["options"])
    selection = Selection.of(
        names_of(arguments["include"]), names_of(arguments["exclude"]), arguments["tables"]
    )
    sampled = check_readable(
        options,
        Router(format, selection).route,
        fail=arguments["mode"] == "FAILFAST",
        error_excerpt=format.error_excerpt,
    )
    if sampled is None:
        yield Finding(False, "the broker, the login and the topics: see the warning")
    else:
        topics = ", ".join(sampled.topics) or "no topic matches the pattern yet"
        records = len(sampled.oldest) + len(sampled.newest)
        yield Finding(True, f"the broker and the login; topics: {topics}; {records} records read")


def _target(target: Any) -> Iterator[Finding]:
    if isinstance(target, JdbcDatabase):
        yield Finding(False, f"the target {target.url}, to which only Spark's driver connects")
    else:
        yield _folder("the target", target.name)


def _folder(name: str, location: str) -> Finding:
    """Check that a local folder, or the nearest one that exists above it, can be written."""
    local = _LOCAL.fullmatch(location)
    if local is None:
        return Finding(False, f"{name} {location}, which is not a folder of this machine")
    path = Path(local[1])
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ArgumentError(f"{name} {location}: {existing} is not a folder that can be written")
    return Finding(True, f"{name} {location}")
