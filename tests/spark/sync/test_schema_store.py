"""The files of `SchemaStore` are whole, whenever the query is killed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_formats.values.schema import columns
from normalize.tables.resync_state import Resync
from normalize.tables.schema import TableSchema
from normalize.tables.schema_store import SchemaStore
from normalize.tables.table_options import SyncError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "shop.orders"
OLD = TableSchema(TABLE, columns("id INT, name STRING"), ("id",))
NEW = replace(OLD, columns=columns("id INT, name STRING, price DOUBLE"))


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> SchemaStore:
    return SchemaStore(spark, str(tmp_path))


def test_a_written_schema_is_read(store: SchemaStore, tmp_path: Path) -> None:
    assert store.read(TABLE) is None
    for schema in (OLD, NEW):
        store.write(schema)
        assert store.read(TABLE) == schema
    assert [file.name for file in tmp_path.iterdir()] == [f"{TABLE}.json"]


@pytest.mark.parametrize(
    "length", [0, 1, 40, 10_000], ids=lambda length: f"{length} characters written"
)
def test_a_write_that_was_killed_leaves_a_whole_schema(
    store: SchemaStore, tmp_path: Path, length: int
) -> None:
    text = NEW.to_json()
    unfinished = tmp_path / f"{TABLE}.json.new"
    unfinished.write_text(text[:length])
    assert store.read(TABLE) == (NEW if length >= len(text) else None)
    store.write(OLD)
    unfinished.write_text(text[:length])
    assert store.read(TABLE) == OLD
    assert not unfinished.exists()


def test_a_command_that_reads_a_request_leaves_what_the_query_writes_meanwhile(
    store: SchemaStore, tmp_path: Path
) -> None:
    store.write_resync(Resync(TABLE, "id", "2026-11-28"))
    (file,) = (tmp_path / "query" / "resync").iterdir()
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.write_text("{")
    assert store.read_resync(TABLE) == Resync(TABLE, "id", "2026-11-28")
    assert [each.table for each in store.resyncs()] == [TABLE]
    assert unfinished.exists()


def test_a_reader_sees_a_whole_file_or_none_while_it_is_replaced(
    store: SchemaStore, tmp_path: Path
) -> None:
    done, file = threading.Event(), tmp_path / f"{TABLE}.json"

    def write() -> None:
        for number in range(200):
            store.write((OLD, NEW)[number % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    texts = set()
    while not done.is_set():
        if file.exists():
            try:
                texts.add(file.read_text())
            except FileNotFoundError:
                continue
    writer.join()
    assert texts == {OLD.to_json(), NEW.to_json()}


def test_a_file_that_a_user_damaged_is_an_error(store: SchemaStore, tmp_path: Path) -> None:
    (tmp_path / f"{TABLE}.json").write_text('{"table": ')
    with pytest.raises(
        SyncError,
        match=r"shop\.orders\.json is not the file of a table \(.*\): correct it, or delete it",
    ):
        store.read(TABLE)
