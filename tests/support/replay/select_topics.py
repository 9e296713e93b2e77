"""Make the small selection of recorded topics that the repository ships, from a folder of all of them.

::

    python -m tests.support.replay.select_topics FROM [TO]

Recordings of one table are copied; those in Avro only for a share of the keys, with their truth and schemas. Recordings of all tables
are reduced to some tables, plus every hundredth other record for a table filter to skip. Lines are copied unchanged; truths are packed.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import fastavro

NOISE = 100
"""One in this many records of other tables is selected."""

WHOLE = (
    "__debezium-heartbeat.dbz34-mysql-strings",
    "dbz19-postgres-json.inventory.all_types",
    "dbz34-mariadb-json",
    "dbz34-mariadb-json.inventory.customers",
    "dbz34-mariadb-json.inventory.order_lines",
    "dbz34-mariadb-upsert.inventory.dbz_signal",
    "dbz34-postgres-json.message",
    "dbz34b-mariadb-upsertplain.inventory.dbz_signal",
    "dbz34b-mariadb-upsertplain.inventory.all_types",
    "dbz34b-mariadb-upsertplain.inventory.no_pk",
    "flink-ogg.tags",
    "flink-upsert.tags",
    "maxwell-mariadb-ddl",
)
"""Recordings that are copied completely."""

PARTS = {
    "canal-mariadb-flat": ("customers", "truncated"),
    "maxwell-mariadb": ("customers", "truncated"),
}
"""Recordings of several tables, and the selected tables."""

SHARES = {
    "dbz34-mariadb-avro.inventory.evolving": 3,
}
"""Recordings in Avro, and the divisor that selects keys by number, with their truth rows and the schemas."""

TRUTHS = (
    "mariadb.customers",
    "mariadb.evolving",
    "mariadb.order_lines",
    "mariadb2.customers",
    "mariadb2.truncated",
    "mariadb3.all_types",
    "mysql.tags",
    "postgres19.all_types",
)


def main(arguments: list[str]) -> None:
    """Copy the selection."""
    source, target = Path(arguments[0]), Path(arguments[1] if len(arguments) > 1 else "demo/topics")
    for folder in ("records", "truth"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    numbers = {
        number
        for name, share in SHARES.items()
        for number in _copy_share(source / "records" / f"{name}.jsonl.gz", target / "records", share)
    }
    schemas = json.loads((source / "records" / "avro-schemas.json").read_text("utf-8"))
    kept = {number: {"schema": entry["schema"]} for number, entry in schemas.items() if int(number) in numbers}
    (target / "records" / "avro-schemas.json").write_text(json.dumps(kept, ensure_ascii=False) + "\n", "utf-8")
    for name in (*WHOLE, *PARTS):
        _copy_recording(source / "records" / f"{name}.jsonl.gz", target / "records", PARTS.get(name))
    for name in TRUTHS:
        _pack(target / "truth" / f"{name}.jsonl.gz", _rows(source / "truth" / f"{name}.jsonl"))
    for database in sorted({name.split(".")[0] for name in TRUTHS}):
        schema = json.loads((source / "truth" / f"{database}.schema.json").read_text("utf-8"))
        kept = {table: columns for table, columns in schema.items() if f"{database}.{table}" in TRUTHS}
        (target / "truth" / f"{database}.schema.json").write_text(json.dumps(kept, ensure_ascii=False) + "\n", "utf-8")


def _copy_recording(path: Path, target: Path, tables: tuple[str, ...] | None) -> None:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        taken = list(lines) if tables is None else list(_of_tables(lines, tables))
    _pack(target / path.name, "".join(taken).encode())


def _copy_share(path: Path, target: Path, share: int) -> set[int]:
    """Copy the records of some keys; return the ids of their schemas."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        taken = [line for line in lines if _number(json.loads(line)["key_base64"]) % share == 0]
    _pack(target / path.name, "".join(taken).encode())
    framed = [json.loads(line)[part] for line in taken for part in ("key_base64", "value_base64")]
    return {int.from_bytes(base64.b64decode(text)[1:5], "big") for text in framed if text is not None}


def _number(key: str) -> int:
    """Return the key of a row: an Avro long after a schema's id."""
    return int(fastavro.schemaless_reader(BytesIO(base64.b64decode(key)[5:]), "long", None))


def _rows(path: Path) -> bytes:
    """Return the rows of a table's truth, or the selected share."""
    share = next((share for name, share in SHARES.items() if name.endswith(f".{path.name.split('.')[1]}")), 1)
    lines = path.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if share == 1 or json.loads(line)["id"] % share == 0)


def _pack(path: Path, data: bytes) -> None:
    # Without a time and a name in the header, the same data give the same file.
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(data)


def _of_tables(lines: Iterator[str], tables: tuple[str, ...]) -> Iterator[str]:
    skipped = 0
    for line in lines:
        message = json.loads(base64.b64decode(json.loads(line)["value_base64"]))
        skipped += message["table"] not in tables
        if message["table"] in tables or skipped % NOISE == 0:
            yield line


if __name__ == "__main__":
    main(sys.argv[1:])
