"""`checkpoint_status`: what a query has processed, from the files of its checkpoint, without Spark.

==============================  ===========================================================
``metadata``                    the query's id
``offsets/N``                   micro-batch N was planned: ``v1``, a line with its time and
                                settings, a line for each source
``commits/N``                   micro-batch N is done
``state/ID/_metadata/metadata``  a stateful operator: its name and number of partitions
``changelog/decoders/*.json``   of this library: what decodes a table's messages
``changelog/writers/*.json``    of this library: what writes a Delta table, and why
``changelog/verified/*.json``   of this library: how a table was compared with its source
``changelog/resync/*.json``     of this library: how far a table is that is read again
==============================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize.monitoring.progress import DECODERS, PROOFS, RESYNCS, WRITERS

T = TypeVar("T")
_VERSION = "v1"
_NONE = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful operator of a query.

    Attributes
    ----------
    operator_id : int
    name : str
        Spark's name, such as ``applyInPandasWithState``.
    partitions : int
    """

    operator_id: int
    name: str
    partitions: int


@dataclass(frozen=True)
class TableWriter:
    """What merged the last changes of a query into a Delta table.

    Attributes
    ----------
    table : str
    writer : str
        ``delta-rs`` or ``spark``.
    reason : str
    """

    table: str
    writer: str
    reason: str


@dataclass(frozen=True)
class TableDecoder:
    """What decodes the messages of a table.

    Attributes
    ----------
    table : str
        The source table.
    decoder : str
        Its name, and why it is not the native one.
    """

    table: str
    decoder: str


@dataclass(frozen=True)
class TableResync:
    """A table of a query that is read again, or was.

    Attributes
    ----------
    table : str
        The source table.
    phase : str
        Same as in `normalize.tables.resync_state`.
    progress : str
        How far it is, as text.
    """

    table: str
    phase: str
    progress: str


@dataclass(frozen=True)
class TableProof:
    """A table of a query that is compared with its source while the query runs.

    Attributes
    ----------
    table : str
        The source table.
    progress : str
        What was found, and how far it is, as text.
    """

    table: str
    progress: str


@dataclass(frozen=True)
class CheckpointStatus:
    """What a query has processed.

    Attributes
    ----------
    checkpoint : str
    query_id : str
    planned_batch : int or None
        The newest micro-batch that the query began; None if there is none.
    planned_at : datetime or None
        When it was planned, in UTC.
    committed_batch : int or None
        The newest micro-batch that is done. Its state has the version `state_version`.
    committed_planned_at : datetime or None
        When that micro-batch was planned.
    offsets : mapping of str to (mapping of int to int)
        For each topic and partition, the offset of the next record after `committed_batch`.
    other_sources : tuple of str
        The committed offsets of sources other than Kafka, as JSON.
    operators : tuple of StatefulOperator
    settings : mapping
        The settings of Spark that the checkpoint fixes.
    writers : tuple of TableWriter
        The Delta tables of the query.
    resyncs : tuple of TableResync
        The tables that are read again, or were.
    decoders : tuple of TableDecoder
        The source tables of the query.
    proofs : tuple of TableProof
        The tables that are compared with their sources.
    """

    checkpoint: str
    query_id: str
    planned_batch: int | None
    planned_at: datetime | None
    committed_batch: int | None
    committed_planned_at: datetime | None
    offsets: Mapping[str, Mapping[int, int]]
    other_sources: tuple[str, ...]
    operators: tuple[StatefulOperator, ...]
    settings: Mapping[str, str]
    writers: tuple[TableWriter, ...] = ()
    resyncs: tuple[TableResync, ...] = ()
    decoders: tuple[TableDecoder, ...] = ()
    proofs: tuple[TableProof, ...] = ()

    @property
    def state_version(self) -> int | None:
        """The state store version after the committed micro-batch; None if no state or commits."""
        return (
            self.committed_batch + 1
            if self.operators and self.committed_batch is not None
            else None
        )

    @property
    def is_running_or_failed(self) -> bool:
        """Whether a begun micro-batch is not done: it is running, or the query ended in it."""
        return self.planned_batch != self.committed_batch


def checkpoint_status(checkpoint: str) -> CheckpointStatus:
    """Return what a query has processed. The query may be running.

    Parameters
    ----------
    checkpoint : str
        The query's ``checkpointLocation``: a path, or a URI that Arrow's file systems read
        (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``).

    Raises
    ------
    ArgumentError
        When it is not a checkpoint, or cannot be read.
    """
    files = _Files(checkpoint)
    metadata = files.read("metadata")
    if metadata is None:
        raise ArgumentError(
            f"{checkpoint} is not a checkpoint: pass the query's checkpointLocation"
        )
    planned, committed = files.newest("offsets"), files.newest("commits")
    planned_log = _log(files.read(f"offsets/{planned}"), checkpoint)
    planned_at, planned_settings, _ = planned_log
    # Spark removes old files of both folders together, so that the committed micro-batch has its
    # offsets.
    committed_planned_at, settings, sources = (
        planned_log
        if planned == committed
        else _log(files.read(f"offsets/{committed}") if committed > _NONE else None, checkpoint)
    )
    offsets: dict[str, dict[int, int]] = {}
    other_sources = []
    for line in sources:
        if (topics := _kafka_offsets(line)) is None:
            other_sources.append(line)
        else:
            offsets |= topics
    return CheckpointStatus(
        checkpoint=checkpoint,
        query_id=str(msgspec.json.decode(metadata)["id"]),
        planned_batch=None if planned == _NONE else planned,
        planned_at=planned_at,
        committed_batch=None if committed == _NONE else committed,
        committed_planned_at=committed_planned_at,
        offsets=offsets,
        other_sources=tuple(other_sources),
        operators=files.operators(),
        settings=settings or planned_settings,
        writers=files.of_tables(WRITERS, TableWriter),
        resyncs=files.of_tables(RESYNCS, TableResync),
        decoders=files.of_tables(DECODERS, TableDecoder),
        proofs=files.of_tables(PROOFS, TableProof),
    )


def _log(
    text: str | None, checkpoint: str
) -> tuple[datetime | None, dict[str, str], tuple[str, ...]]:
    """Return the contents of a file of ``offsets``: its time, settings, and a text for each source."""
    if text is None:
        return None, {}, ()
    version, *lines = text.splitlines()
    if version != _VERSION or not lines:
        raise ArgumentError(
            f"{checkpoint} has an offset log of version {version[:20]!r}, and only {_VERSION} is "
            "supported: upgrade this package"
        )
    about = msgspec.json.decode(lines[0]) if lines[0] != "-" else {}
    time_ms = about.get("batchTimestampMs")
    at = None if not time_ms else _EPOCH + timedelta(milliseconds=time_ms)
    settings = {name: str(value) for name, value in about.get("conf", {}).items()}
    return at, settings, tuple(line for line in lines[1:] if line != "-")


def _kafka_offsets(line: str) -> dict[str, dict[int, int]] | None:
    """Return a source's offsets by topic and partition; None if it is not Kafka."""
    try:
        return msgspec.json.decode(line, type=dict[str, dict[int, int]])
    except msgspec.MsgspecError:
        return None


class _Folder:
    """A folder of this machine."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)

    def content(self, name: str) -> bytes:
        """Return a file's content."""
        return (self._root / name).read_bytes()

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if it is missing."""
        folder = self._root / name
        return [each.name for each in folder.iterdir()] if folder.is_dir() else []


class _Url:
    """A folder of another file system."""

    def __init__(self, url: str) -> None:
        try:
            from pyarrow import ArrowException
            from pyarrow.fs import FileSystem
        except ImportError:
            raise MissingDependencyError(
                f"{url} is read with pyarrow, which is not installed: pip install pyarrow"
            ) from None
        try:
            self._system, self._root = FileSystem.from_uri(url)
        except (ArrowException, OSError) as error:
            raise ArgumentError(f"{url} cannot be read: {str(error)[:200]}") from None

    def content(self, name: str) -> bytes:
        """Return a file's content."""
        with self._system.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if it is missing."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(f"{self._root}/{name}", allow_not_found=True)
        return [each.base_name for each in self._system.get_file_info(selector)]


class _Files:
    """A checkpoint's files."""

    def __init__(self, checkpoint: str) -> None:
        is_url = "://" in checkpoint or checkpoint.startswith("file:")
        self._folder: _Folder | _Url = _Url(checkpoint) if is_url else _Folder(checkpoint)
        self._names = self._folder.names

    def read(self, name: str) -> str | None:
        """Return a file's text, or None if it is missing."""
        try:
            return self._folder.content(name).decode()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def newest(self, folder: str) -> int:
        """Return the largest number that is a file's name."""
        numbers = [int(name) for name in self._names(folder) if name.isdigit()]
        return max(numbers, default=_NONE)

    def operators(self) -> tuple[StatefulOperator, ...]:
        """Return the stateful operators."""
        stateful = []
        for number in sorted(int(name) for name in self._names("state") if name.isdigit()):
            if (text := self._operator(number)) is not None:
                about = msgspec.json.decode(text.partition("\n")[2])
                stores = about["stateStoreInfo"]
                name = str(about["operatorInfo"]["operatorName"])
                stateful.append(
                    StatefulOperator(
                        number, name, max((store["numPartitions"] for store in stores), default=0)
                    )
                )
        return tuple(stateful)

    def of_tables(self, folder: str, kind: type[T]) -> tuple[T, ...]:
        """Return the content of the files in a folder that has one for each table."""
        contents: list[Any] = []
        for name in self._names(folder):
            # A query may be replacing the file. Hadoop has checksums of files beside them.
            with suppress(msgspec.MsgspecError):
                if name.endswith(".json") and (text := self.read(f"{folder}/{name}")):
                    contents.append(msgspec.json.decode(text, type=kind))
        return tuple(sorted(contents, key=lambda each: each.table))

    def _operator(self, number: int) -> str | None:
        folder = f"state/{number}/_metadata"
        newest = self.newest(f"{folder}/v2")
        return (
            self.read(f"{folder}/metadata")
            if newest == _NONE
            else self.read(f"{folder}/v2/{newest}")
        )
