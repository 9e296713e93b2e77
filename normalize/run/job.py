"""A job file: the arguments of `sync_database`, and where the query runs.

The names and types are those of the Python functions, from which this module reads them: an option
that `sync_database`, `TableOptions` or a database gets is an option of the file, too.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    MissingDependencyError,
)
from cdc_formats.format import list_formats
from cdc_formats.topics.client import from_environment
from normalize.arguments import as_format, check_location
from normalize.decode.check import check_readable
from normalize.kafka.dead_letter import DeadLetter
from normalize.kafka.reader_options import reader_options
from normalize.tables.database_target import Database, DeltaDatabase, IcebergDatabase, JdbcDatabase
from normalize.tables.sync_database import check_arguments, sync_database
from normalize.tables.table_options import AS_IS, QUESTION, Maintenance, TableOptions
from normalize.verify.proof import Verify

_DATABASES = {"delta": DeltaDatabase, "iceberg": IcebergDatabase, "jdbc": JdbcDatabase}
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?")
_PART = r"\d+ +(?:week|day|hour|minute|second|millisecond|microsecond)s?"
_INTERVAL = re.compile(rf"(?:interval +)?{_PART}(?: +{_PART})*", re.IGNORECASE)
"""The intervals that Spark takes for a trigger: without signs, months and years."""
_PARAMETERS = re.compile(r"^((?:\w+, )*\w+)(?: : .*)?\n((?: {4}.*(?:\n|$))+)", re.MULTILINE)
"""The names and the description of parameters in a docstring."""
_MOST_SHOWN = 10
_ASKING = ("format_options", "tables", "target")
"""The parts of a file that can have questions."""
_MAINTAINED = ("tables[...]", "target.delta", "target.iceberg")
_VERIFIED = (*_MAINTAINED, "target.jdbc")
_DEFAULTS = {"on_question": "stop_table"}
"""Where they differ from those of the functions: a job goes on with its other tables."""
_OF_THE_CALL = ("spark", "topic", "format", "target", "tables", "mode")


class TopicPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Topics by a regular expression, which matches a whole name."""

    pattern: str


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When micro-batches start: at an interval, or until the topic's present end.

    Parameters
    ----------
    processing_time : str
        An interval, such as ``10 seconds``. Empty: when the one before has ended.
    available_now : bool
        Whether the job ends once it has read all records that the topics have at its start.
    """

    processing_time: str = ""
    available_now: bool = False

    def __post_init__(self) -> None:
        if self.processing_time and self.available_now:
            raise ValueError("processing_time and available_now cannot be combined: remove one")
        if self.processing_time and not _INTERVAL.fullmatch(self.processing_time):
            raise ValueError(
                f"processing_time is {self.processing_time!r}: write an interval, such as "
                "'10 seconds' or '1 minute'"
            )


class Restart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a failed query is started again: after pauses that double.

    Parameters
    ----------
    limit : int
        The most failures in a row. A micro-batch that is written begins a new row.
    first_pause, longest_pause : float
        Seconds.
    """

    limit: int = 10
    first_pause: float = 1.0
    longest_pause: float = 300.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}: write a number from 0 on")


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Prometheus reads the metrics of `MetricsListener`.

    Parameters
    ----------
    port : int
        The port, on the driver.
    address : str
        The address to listen on. By default, other machines can read the metrics, which have names
        of topics and tables.
    """

    port: int = 9108
    address: str = "0.0.0.0"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job file, checked.

    Parameters
    ----------
    arguments : mapping
        Of `sync_database`, without ``spark``.
    checkpoint_location : str
        The folder of the query's checkpoint.
    name : str
        The query's name, which Spark's user interface and progress show.
    trigger : Trigger
    restart : Restart
    metrics : Metrics or None
        None: none are served.
    packages : tuple of str
        Same as `local_session`; not used below ``spark-submit``.
    spark : mapping
        Settings of Spark.
    """

    arguments: Mapping[str, Any] = field(repr=False)  # with passwords
    checkpoint_location: str
    name: str
    trigger: Trigger
    restart: Restart
    metrics: Metrics | None
    packages: tuple[str, ...]
    spark: Mapping[str, str] = field(repr=False)

    def check_topics(self) -> None:
        """Check the broker, the login and the topics, which needs no Spark.

        Raises
        ------
        SampleError
        """
        if self.arguments["check"]:
            kafka = reader_options(self.arguments["topic"], self.arguments["options"])
            check_readable(kafka, lambda *record: None, fail=False)

    def writer(self, spark: SparkSession) -> DataStreamWriter:
        """Return the query's writer, ready to be started.

        Raises
        ------
        ChangelogError
            As `sync_database`.
        """
        writer = sync_database(spark, **self.arguments)
        writer = writer.option("checkpointLocation", self.checkpoint_location)
        if self.name:
            writer = writer.queryName(self.name)
        if self.trigger.available_now:
            return writer.trigger(availableNow=True)
        interval = self.trigger.processing_time
        return writer.trigger(processingTime=interval) if interval else writer


def read_job(path: str | os.PathLike[str]) -> Job:
    """Return a job of a YAML or JSON file.

    A text ``env:NAME`` anywhere in the file is the value of the environment variable, so that
    passwords need not be in it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    Job

    Raises
    ------
    ArgumentError
        When the file cannot be read, or when a part of it is not valid; the error has its path.
    MissingDependencyError
        When PyYAML is not installed.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ArgumentError(f"the job file {path} cannot be read: {reason}") from None
    try:
        content = msgspec.yaml.decode(text)
    except ImportError:
        raise MissingDependencyError(
            "job files require PyYAML: pip install 'pyspark-kafka-changelog[run]'"
        ) from None
    except msgspec.DecodeError as error:
        raise ArgumentError(
            f"the job file {path} is not YAML: {' '.join(str(error).split())}"
        ) from None
    environment = dict[str, str]()
    try:
        _require_keys_once(text)
        return _job(_with_environment(content, environment))
    except msgspec.ValidationError as error:
        reason = _with_nearest(str(error))
    except RecursionError:
        reason = "a part of it contains itself (`&name` and `*name`): write it out"
    except ChangelogError as error:
        reason = error.args[0]
    for name, value in environment.items():  # a value may be a password
        reason = reason.replace(value, name) if value else reason
    raise ArgumentError(f"the job file {path}: {reason}")


def job_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file, for editors that complete, explain and check it.

    The descriptions are those of the parameters in the docstrings.
    """
    schema = msgspec.json.schema(_file())
    kinds = Trigger, Restart, Metrics, DeadLetter, TableOptions, Maintenance, Verify
    described = [
        ("JobFile", sync_database),
        ("JobFile", Job),
        *((each.__name__, each) for each in (*kinds, *_DATABASES.values())),
    ]
    for name, documented in described:
        options = schema["$defs"][name]["properties"]
        text = (inspect.getdoc(documented) or "").partition("Parameters\n")[2]
        for names, description in _PARAMETERS.findall(text):
            for option in options.keys() & {*names.split(", ")}:
                options[option]["description"] = " ".join(description.split())
    schema["$defs"]["JobFile"]["properties"]["format"]["examples"] = list_formats()
    return schema


def _with_environment(value: Any, used: dict[str, str], name: str = "") -> Any:
    """Return the file's content with the values of environment variables, which are added to `used`."""
    if isinstance(value, dict):
        return {key: _with_environment(each, used, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_environment(each, used, name) for each in value]
    if not isinstance(value, str):
        return value
    replaced = from_environment(name, value)
    if replaced != value:
        used[value] = replaced
    return replaced


def _require_keys_once(text: str) -> None:
    """Raise an error if a mapping has a key twice, of which YAML's reader keeps the last."""
    import yaml

    nodes, seen = [yaml.compose(text, Loader=yaml.SafeLoader)], set[int]()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            lines = dict[str, int]()
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.value in lines and isinstance(key.value, str):
                    raise ArgumentError(
                        f"`{key.value}` is written twice, in lines {lines[key.value]} and {line}: "
                        "remove one"
                    )
                lines[str(key.value)] = line
                nodes.append(value)


def _with_nearest(text: str) -> str:
    """Return an error of msgspec, with the nearest name for one that does not exist."""
    unknown = _UNKNOWN.fullmatch(text)
    if unknown is None:
        return text
    name, path = unknown[1], unknown[2] or "$"
    parts = _parts()
    own = parts.get(path)
    near = get_close_matches(name, () if own is None else own.__struct_fields__, 1)
    other_paths = [other for other, kind in parts.items() if name in kind.__struct_fields__]
    hint = f": did you mean `{near[0]}`?" if near else ""
    if other_paths:
        hint = f" there, but at `{other_paths[0].replace('[...]', '.NAME')}`"
    return f"`{name}` at `{path}` is not an option{hint}"


@cache
def _parts() -> dict[str, type[msgspec.Struct]]:
    """Return the parts of a file by path, as msgspec writes it."""
    return {
        "$": _file(),
        "$.tables[...]": _table(),
        "$.target": _target(),
        **{f"$.target.{name}": kind for name, kind in _targets().items()},
        **{f"$.{path}.maintenance": Maintenance for path in _MAINTAINED},
        **{f"$.{path}.verify": Verify for path in _VERIFIED},
        "$.trigger": Trigger,
        "$.restart": Restart,
        "$.metrics": Metrics,
        "$.topic": TopicPattern,
    }


@cache
def _table() -> type[msgspec.Struct]:
    return _struct_of(TableOptions, StructType=str)


@cache
def _targets() -> dict[str, type[msgspec.Struct]]:
    return {name: _struct_of(kind) for name, kind in _DATABASES.items()}


@cache
def _target() -> type[msgspec.Struct]:
    parts: list[Any] = [(name, kind | None, None) for name, kind in _targets().items()]
    return msgspec.defstruct("Target", parts, forbid_unknown_fields=True)


def _struct_of(kind: type[Any], **names: Any) -> type[msgspec.Struct]:
    """Return a dataclass as a struct, which refuses unknown fields."""
    hints = get_type_hints(kind, localns={"Verify": Verify, **names})
    parts = [
        (each.name, hints[each.name], _DEFAULTS.get(each.name) or _field(each))
        for each in fields(kind)
        if each.init
    ]
    return msgspec.defstruct(kind.__name__, parts, kw_only=True, forbid_unknown_fields=True)


def _field(of: Field[Any]) -> Any:
    """Return a field with the default of a dataclass's; it is required without one."""
    defaults: dict[str, Any] = {"default": of.default, "default_factory": of.default_factory}
    return msgspec.field(
        **{name: default for name, default in defaults.items() if default is not MISSING}
    )


@cache
def _file() -> type[msgspec.Struct]:
    """Return the struct of a job file."""
    hints = get_type_hints(sync_database, localns={"SparkSession": Any, "DataStreamWriter": Any})
    parts: list[Any] = [
        ("topic", str | list[str] | TopicPattern | None, None),
        ("format", str),
        ("target", _target()),
        ("tables", dict.__class_getitem__((str, _table())), msgspec.field(default_factory=dict)),
        ("mode", hints["mode"], "FAILFAST"),
    ]
    parts += [
        (name, hints[name], *(() if each.default is each.empty else (each.default,)))
        for name, each in inspect.signature(sync_database).parameters.items()
        if name not in _OF_THE_CALL
    ]
    parts += [
        ("checkpoint_location", str),
        ("name", str, ""),
        ("trigger", Trigger, Trigger()),
        ("restart", Restart, Restart()),
        ("metrics", Metrics | None, None),
        ("packages", tuple[str, ...], ()),
        ("spark", dict[str, Any], msgspec.field(default_factory=dict)),
    ]
    return msgspec.defstruct("JobFile", parts, kw_only=True, forbid_unknown_fields=True)


def open_questions(content: Any, path: str = "") -> list[str]:
    """Return the paths of the answers that a job file lacks: the values ``?``.

    Examples
    --------
    >>> open_questions({"tables": {"shop.orders": {"primary_key": "id", "types": {"at": "?"}}}})
    ['tables.shop.orders.types.at']
    """
    if isinstance(content, dict):
        parts = [
            open_questions(each, f"{path}.{name}" if path else str(name))
            for name, each in content.items()
        ]
        return [each for part in parts for each in part]
    return [path] if content == QUESTION else []


def _require_answers(content: Any) -> None:
    """Raise an error if a part of a job file that can have questions has one without an answer."""
    parts = content.items() if isinstance(content, dict) else ()
    if questions := open_questions({name: part for name, part in parts if name in _ASKING}):
        more = f" and {len(questions) - _MOST_SHOWN} more" if len(questions) > _MOST_SHOWN else ""
        raise ArgumentError(
            f"{len(questions)} of its questions have no answer, {', '.join(questions[:_MOST_SHOWN])}"
            f'{more}: replace each "{QUESTION}" by a type, by the value of an option, or by {AS_IS}'
        )


def _job(content: Any) -> Job:
    """Return the job of a file's content, whose arguments can be used."""
    _require_answers(content)
    if isinstance(content, dict) and isinstance(content.get("mode"), str):
        content["mode"] = content["mode"].upper()
    file: Any = msgspec.convert(content, _file())
    own = {each.name: getattr(file, each.name) for each in fields(Job) if each.name != "arguments"}
    arguments = _arguments(file, set(file.__struct_fields__) - own.keys())
    own["packages"] = _with_driver_of_sources(own["packages"], arguments)
    # Spark takes seconds to start: what it is not needed for is checked before.
    names = "target", "tables", "on_new_column", "on_table_error", "parallel"
    check_arguments(*map(arguments.__getitem__, names))
    for name in ("schema_location", "checkpoint_location"):
        check_location(name, getattr(file, name))
    as_format(arguments["format"], arguments["format_options"])
    reader_options(arguments["topic"], arguments["options"])
    settings = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in own.pop("spark").items()
    }
    return Job(arguments=arguments, spark=settings, **own)


def _arguments(file: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the arguments of `sync_database` that a file has."""
    made = {
        "topic": _compiled(file.topic) if isinstance(file.topic, TopicPattern) else file.topic,
        "target": _database(file.target),
        "format_options": file.format_options
        and {name: value for name, value in file.format_options.items() if value != AS_IS},
        "tables": {
            name: _made(TableOptions, each, f"tables.{name}") for name, each in file.tables.items()
        },
    }
    return {name: getattr(file, name) for name in names} | made


def _with_driver_of_sources(
    packages: tuple[str, ...], arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return packages of Spark, with the driver of a source that tables are compared with."""
    options = (arguments["target"].table_options, *arguments["tables"].values())
    sources = [each.verify.source for each in options if isinstance(each.verify, Verify)]
    if any(each.startswith("jdbc:postgresql:") for each in sources):
        return tuple(dict.fromkeys([*packages, "postgresql"]))
    return packages


def _compiled(topic: TopicPattern) -> re.Pattern[str]:
    try:
        return re.compile(topic.pattern)
    except re.error as error:
        raise ArgumentError(
            f"{topic.pattern!r} is not a regular expression ({error}) - at `$.topic.pattern`"
        ) from None


def _database(target: Any) -> Database:
    chosen = [name for name in _DATABASES if getattr(target, name) is not None]
    if len(chosen) != 1:
        raise ArgumentError(
            f"`$.target` has {len(chosen)} databases: write one of {', '.join(_DATABASES)}"
        )
    made: Database = _made(_DATABASES[chosen[0]], getattr(target, chosen[0]), f"target.{chosen[0]}")
    return made


def _made(kind: Callable[..., Any], options: msgspec.Struct, path: str) -> Any:
    try:
        return kind(**{name: getattr(options, name) for name in options.__struct_fields__})
    except ChangelogError as error:
        raise ArgumentError(f"{error.args[0]} - at `$.{path}`") from None
