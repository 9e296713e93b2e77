"""The rows of a small Delta table, read from its files.

A query of Spark would take a second, which is longer than many of the micro-batches that write the
table.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row

_READ = {
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
}
"""The types of columns that are read here, together with decimals and structures."""


def delta_rows(folder: Path) -> list[dict[str, Any]] | None:
    """Return the rows with the values that Spark would return.

    None without a table, and if some part of it is not read here: partitions, deletion vectors,
    renamed columns, other types, or a log that was cleaned up.
    """
    if not (folder / "_delta_log" / f"{0:020}.json").exists():
        return None
    columns: list[dict[str, Any]] = []
    files = set[str]()
    for action in _actions(folder / "_delta_log"):
        if "metaData" in action:
            columns = json.loads(action["metaData"]["schemaString"])["fields"]
            options = action["metaData"]["configuration"]
            if (
                action["metaData"]["partitionColumns"]
                or options.get("delta.columnMapping.mode", "none") != "none"
                or not all(_is_read(column["type"]) for column in columns)
            ):
                return None
        elif "add" in action:
            if action["add"].get("deletionVector"):
                return None
            files.add(action["add"]["path"])
        elif "remove" in action:
            files.discard(action["remove"]["path"])
    if not columns:
        return None
    return [
        {column["name"]: _value(row.get(column["name"])) for column in columns}
        for file in sorted(files)
        for row in _rows(folder / unquote(file))
    ]


def _actions(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the actions of all commits, none of which is old enough to be cleaned up."""
    for commit in sorted(log.glob("*.json")):
        yield from map(json.loads, commit.read_text("utf-8").splitlines())


def _is_read(kind: Any) -> bool:
    if isinstance(kind, dict):
        return kind["type"] == "struct" and all(_is_read(each["type"]) for each in kind["fields"])
    return kind in _READ or kind.startswith("decimal")


def _rows(file: Path) -> list[dict[str, Any]]:
    table = pq.read_table(file, coerce_int96_timestamp_unit="us", partitioning=None)
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(_MICROS))
    return table.to_pylist()


_MICROS = pa.timestamp("us")


def _value(value: Any) -> Any:
    return (
        Row(**{name: _value(each) for name, each in value.items()})
        if isinstance(value, dict)
        else value
    )
