"""Reads and writes records in files, one line each: the value only, or an object with key, value and headers.

=============  ====================================================================================================
lines          meaning of a line
=============  ====================================================================================================
``values``     the value, byte for byte; there is no key
``records``    ``{"key": ..., "value": ..., "headers": [[name, base64], ...]}``. An object is kept as JSON text, byte for byte;
               a string is its UTF-8 bytes; null is null; ``key_base64`` and ``value_base64`` hold any bytes. ``partition``
               and ``offset`` are optional, as in recorded topics; other fields are ignored
=============  ====================================================================================================

A file whose name ends in ``.gz`` is compressed. ``-`` is standard input or output.
"""

from __future__ import annotations

import gzip
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import IO, Any

import msgspec

from cdc_formats.format import Format

from .errors import FileError, LineError
from .records import Record
from .terminal import interactive_json

STANDARD, STANDARD_OUTPUT = "-", "standard output"
_BATCH = 1000


class Lines(str, Enum):
    """The form of a file's lines."""

    VALUES = "values"
    RECORDS = "records"


def lines_of(format: Format) -> Lines:
    """Return the form that can hold a format's records; a line with only a value has no key and no null value."""
    return Lines.RECORDS if format.reads_key or format.reads_tombstones else Lines.VALUES


class _Line(msgspec.Struct, gc=False):
    key: msgspec.Raw = msgspec.Raw(b"null")
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | None = None
    value_base64: str | msgspec.UnsetType | None = msgspec.UNSET
    headers: list[tuple[str, str | None]] | None = None
    partition: int = 0
    offset: int | None = None


_decode_line = msgspec.json.Decoder(_Line).decode


@contextmanager
def open_file(path: str, mode: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input or output, which are not closed at the end.

    Raises
    ------
    FileError
    """
    if path == STANDARD:
        yield sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
        return
    try:
        file: Any = gzip.open(path, mode) if path.endswith(".gz") else open(path, mode)  # noqa: SIM115 - closed below
    except OSError as error:
        raise FileError(f"{path} cannot be {'read' if mode == 'rb' else 'written'}: {error.strerror}") from None
    with file:
        yield file


def read_records(file: Iterable[bytes], name: str, lines: Lines) -> Iterator[Record]:
    """Return the records of a file; empty lines are skipped.

    Raises
    ------
    LineError
        When a line is not a record.
    """
    if lines is Lines.VALUES:
        for number, line in enumerate(file, 1):
            if value := line.rstrip(b"\r\n"):
                yield Record(name, 0, number, None, value, (), number)
        return
    for number, line in enumerate(file, 1):
        if line.strip():
            yield _record(line, name, number)


def _record(line: bytes, name: str, number: int) -> Record:
    try:
        read = _decode_line(line)
        if read.value is msgspec.UNSET and read.value_base64 is msgspec.UNSET:
            raise ValueError("it has neither value nor value_base64")
        value = None if read.value is msgspec.UNSET else read.value
        value64 = None if read.value_base64 is msgspec.UNSET else read.value_base64
        headers = tuple([(header, None if text is None else _binary(text)) for header, text in read.headers or ()])
        offset = number if read.offset is None else read.offset
        return Record(name, read.partition, offset, _bytes(read.key, read.key_base64), _bytes(value, value64), headers, number)
    except (msgspec.DecodeError, ValueError) as error:
        raise LineError(
            f'{name}:{number} is not a record ({error}): a line is {{"key": ..., "value": ...}}. For lines of values: --from-lines values'
        ) from None


def _bytes(raw: msgspec.Raw | None, base64: str | None) -> bytes | None:
    if base64 is not None:
        return _binary(base64)
    text = b"null" if raw is None else bytes(raw)  # not parsed and encoded again, which would change the digits of numbers
    if text == b"null":
        return None
    return msgspec.json.decode(text, type=str).encode() if text.startswith(b'"') else text


def _binary(text: str) -> bytes:
    return b64decode(text, validate=True)


def batched(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Return records in batches."""
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


class FileSink:
    """Writes records to a file.

    Parameters
    ----------
    path : str
    lines : Lines
    """

    def __init__(self, path: str, lines: Lines) -> None:
        self.path, self.lines = path, lines
        self.written = 0
        self._opened: AbstractContextManager[IO[bytes]] = open_file(path, "wb")
        self._encode = _value_line if lines is Lines.VALUES else _record_line

    def __enter__(self) -> FileSink:
        self._file = self._opened.__enter__()
        self._for_eyes = self.path == STANDARD and sys.stdout.isatty()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._opened.__exit__(*exc_info)

    def write(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        """Write a record.

        Raises
        ------
        LineError
            When a line of this form cannot hold the record.
        """
        line = self._encode(key, value)
        self._file.write((interactive_json(line) if self._for_eyes else line) + b"\n")
        self.written += 1

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def __str__(self) -> str:
        return STANDARD_OUTPUT if self.path == STANDARD else self.path


def _value_line(key: bytes | None, value: bytes | None) -> bytes:
    if value is None:
        raise LineError("a null value (a delete by key) cannot be written as a line of values: pass --to-lines records")
    if b"\n" in value or not value:
        raise LineError("a value that is empty or contains a line break cannot be written as a line of values: pass --to-lines records")
    return value


def _record_line(key: bytes | None, value: bytes | None) -> bytes:
    return b"{" + _field(b"key", key) + b", " + _field(b"value", value) + b"}"


def _field(name: bytes, data: bytes | None) -> bytes:
    if data is None:
        return b'"%b": null' % name
    if data.startswith(b"{") and b"\n" not in data and _is_json(data):
        return b'"%b": %b' % (name, data)
    try:
        return b'"%b": %b' % (name, msgspec.json.encode(data.decode()))
    except UnicodeDecodeError:
        return b'"%b_base64": "%b"' % (name, b64encode(data))


_raw = msgspec.json.Decoder(msgspec.Raw)


def _is_json(data: bytes) -> bool:
    try:
        _raw.decode(data)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
