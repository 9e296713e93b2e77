"""The files of `SchemaStore` are whole, whenever the query is killed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import columns
from normalize.tables.facts import QueryFacts
from normalize.tables.resync import cancel_resync, resync_table, wait_while
from normalize.tables.resync_state import Resync
from normalize.tables.schema import TableSchema
from normalize.tables.schema_store import SchemaStore
from normalize.tables.table_options import SyncError

TABLE = "shop.orders"
OLD = TableSchema(TABLE, columns("id INT, name STRING"), ("id",))
FACTS = QueryFacts("q1", {"t": "A"})
NEW = structs.replace(OLD, columns=columns("id INT, name STRING, price DOUBLE"))


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
    # The file of the query, too.
    store.write_query(FACTS)
    query = Path(store.query_file).rename(f"{store.query_file}.new")
    text = query.read_text("utf-8")
    query.write_text(text[:length], "utf-8")
    assert store.read_query() == (FACTS if length >= len(text) else QueryFacts())


def test_tables_with_a_file(store: SchemaStore, tmp_path: Path) -> None:
    assert store.tables() == []
    names = ["../../x", "shop.`a.b`", "shop.orders"]
    for name in names:
        store.write(TableSchema(name))
    store.write_query(FACTS)
    (tmp_path / "shop.unfinished.json.new").write_text("{")
    assert store.tables() == [*names, "shop.unfinished"]


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
    file, texts = tmp_path / f"{TABLE}.json", set()

    def write() -> None:
        for number in range(200):
            store.write((OLD, NEW)[number % 2])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            with suppress(FileNotFoundError):
                texts.add(file.read_text())
        writing.result()
    assert texts == {OLD.to_json(), NEW.to_json()}


def test_a_file_that_a_user_damaged_is_an_error(store: SchemaStore, tmp_path: Path) -> None:
    (tmp_path / f"{TABLE}.json").write_text('{"table": ')
    with pytest.raises(
        SyncError,
        match=r"shop\.orders\.json is not the file of a table \(.*\): correct it, or delete it",
    ):
        store.read(TABLE)
    store.write_query(FACTS)
    Path(store.query_file).write_text("{")
    with pytest.raises(SyncError, match="is not the file of a query"):
        store.read_query()


# --------------------------------------------------------------------------------------------------
# requests to read a table again


@pytest.fixture
def ask(spark: SparkSession, store: SchemaStore, tmp_path: Path) -> Callable[..., Resync]:
    """A request to read a table that has a file."""
    store.write(OLD)
    return partial(resync_table, spark, TABLE, schema_location=str(tmp_path))


def test_a_damaged_request_has_failed_and_can_be_made_again(
    ask: Callable[..., Resync],
    store: SchemaStore,
    tmp_path: Path,
) -> None:
    file = tmp_path / "query" / "resync" / f"{TABLE}.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"table": "shop.o')
    (read,) = store.resyncs()
    assert (read, read.table, read.phase) == (store.read_resync(TABLE), TABLE, "failed")
    assert f"{file} is not the file of a table that is read again" in read.reason
    request = ask()
    assert store.resyncs() == [request]


def test_of_requests_at_one_moment_one_is_accepted(
    ask: Callable[..., Resync], store: SchemaStore, tmp_path: Path
) -> None:
    begin = threading.Barrier(4)

    def request(_: int) -> Resync | str:
        begin.wait()
        try:
            return ask()
        except ArgumentError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(request, range(4)))
    (accepted,) = (each for each in answers if isinstance(each, Resync))
    refused = [each for each in answers if isinstance(each, str)]
    assert len(refused) == 3
    assert all("shop.orders is being read again (requested: " in each for each in refused)
    assert store.resyncs() == [accepted]
    assert [file.name for file in (tmp_path / "query" / "resync").iterdir()] == [f"{TABLE}.json"]


def test_a_request_that_the_query_has_not_begun_is_replaced_or_cancelled(
    spark: SparkSession,
    ask: Callable[..., Resync],
    store: SchemaStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancel = partial(cancel_resync, spark, TABLE, schema_location=str(tmp_path))
    with pytest.raises(ArgumentError, match="has no request that the query has not begun"):
        cancel()
    first, looks = ask(dry_run=True), iter([True, True, True, False])
    wait_while(store, first, lambda each: next(looks), lambda each: None, patience=2)
    (warning,) = caplog.messages
    assert warning.startswith("shop.orders: the query had no micro-batch for 2 s")
    with pytest.raises(ArgumentError, match=r"wait for its end, cancel it, or pass again to"):
        ask()
    second = ask(again=True)
    assert second.abandoned == (first.id,)
    assert cancel() == structs.replace(second, phase="failed", reason="it was cancelled")
    third = ask()
    store.read_resync(TABLE)
    store.write_resync(structs.replace(third, phase="reading"))
    with pytest.raises(ArgumentError, match="has no request that the query has not begun"):
        cancel()
    with pytest.raises(ArgumentError, match=r"again \(reading, 0 records.*\): wait for its end$"):
        ask(again=True)
