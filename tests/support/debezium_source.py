"""Changes of real MariaDB tables, from the binlog, as Debezium's MySQL connector writes them.

The messages have schema blocks.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tests.support.databases import Message
from tests.support.servers.local_source import METADATA, LocalSource, Stream

from .json_bytes import json_bytes

_EPOCH = datetime(1970, 1, 1)
Change = Mapping[str, Any]


class DebeziumSource:
    """Reads tables from their beginning, and goes on from where it was.

    Parameters
    ----------
    server : LocalSource
    keys : mapping of str to str
        The primary key of each table.
    """

    def __init__(self, server: LocalSource, keys: Mapping[str, str]) -> None:
        self.keys = dict(keys)
        # Otherwise a stream waits before an ALTER TABLE that only changes of other tables precede.
        self.options = {
            table: server.options(table, **{"heartbeat.interval": "1 ms"}) for table in keys
        }
        self.streams = {table: Stream(options) for table, options in self.options.items()}

    def messages(self) -> dict[str, list[Message]]:
        """Return the new messages of each table."""
        return {
            table: self._messages(table, list(_new_changes(stream)))
            for table, stream in self.streams.items()
        }

    def restart(self) -> None:
        """Read the tables' columns again after a statement that altered one.

        All earlier messages must have been read.
        """
        self.streams = {
            table: Stream(self.options[table], stream.start)
            for table, stream in self.streams.items()
        }

    def _messages(self, table: str, changes: Sequence[Change]) -> list[Message]:
        schema = self.streams[table].reader.declared
        fields = [field for field in schema if field.name not in METADATA]
        row = [
            {
                "field": field.name,
                "optional": field.name != self.keys[table],
                **_connect(field.type),
            }
            for field in fields
        ]
        images = [
            {"type": "struct", "fields": row, "optional": True, "field": image}
            for image in ("before", "after")
        ]
        block = {
            "type": "struct",
            "fields": [*images, {"type": "string", "field": "op", "optional": False}],
            "optional": False,
        }
        key_block = {
            "type": "struct",
            "fields": [each for each in row if not each["optional"]],
            "optional": False,
        }

        def image(change: Change) -> dict[str, Any]:
            return {field.name: _value(field.type)(change[field.name]) for field in fields}

        messages = []
        for op, before, after in _events(changes, self.keys[table]):
            position = (after or before or {})["position"]
            source = {
                "connector": "mysql",
                "db": "test",
                "table": table,
                "file": position["file"],
                "pos": position["pos"],
                "ts_ms": 1,
            }
            payload = {
                "before": before and image(before),
                "after": after and image(after),
                "source": source,
                "op": op,
            }
            key = {self.keys[table]: (payload["after"] or payload["before"])[self.keys[table]]}
            messages.append(
                (
                    json_bytes({"schema": key_block, "payload": key}),
                    json_bytes({"schema": block, "payload": payload}),
                )
            )
        return messages


def _new_changes(stream: Stream) -> Iterator[Change]:
    """Yield changes up to the log's end; a batch ends at a table's alteration and may be empty."""
    start = None
    while start != stream.start:
        start = stream.start
        yield from stream.batch()


def _events(
    changes: Sequence[Change], key: str
) -> Iterator[tuple[str, Change | None, Change | None]]:
    """Yield operation, old and new row; a changed key is a delete and an insert, as in Debezium."""
    for change, following in pairwise([*changes, {}]):
        kind = change["row_kind"]
        if kind == "-U" and change[key] != following[key]:
            yield from (("d", change, None), ("c", None, following))
        elif kind == "-U":
            yield "u", change, following
        elif kind != "+U":
            yield (
                ("d", change, None)
                if kind == "-D"
                else ("r" if change["position"]["snapshot"] else "c", None, change)
            )


def _connect(kind: pa.DataType) -> dict[str, Any]:
    """Return Connect's type of a column."""
    if pa.types.is_decimal(kind):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": parameters,
        }
    if pa.types.is_timestamp(kind):
        return {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}
    if pa.types.is_date(kind):
        return {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    return {
        "type": {
            pa.int32(): "int32",
            pa.int64(): "int64",
            pa.float64(): "double",
            pa.string(): "string",
        }[kind]
    }


def _value(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the function from a column's values to Debezium's."""

    def decimal(value: Any) -> str:
        unscaled = int(value.scaleb(kind.scale))
        return base64.b64encode(
            unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        ).decode()

    def micros(value: datetime) -> int:
        return round((value.replace(tzinfo=None) - _EPOCH).total_seconds() * 1_000_000)

    def days(value: date) -> int:
        return (value - _EPOCH.date()).days

    by_kind = {pa.types.is_decimal: decimal, pa.types.is_timestamp: micros, pa.types.is_date: days}
    convert = next(
        (convert for matches, convert in by_kind.items() if matches(kind)), lambda value: value
    )
    return lambda value: None if value is None else convert(value)
