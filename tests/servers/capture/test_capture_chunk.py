"""A chunk is as of the requested position, whenever it is selected: the example in `capture.chunk`."""

from __future__ import annotations

from capture.binlog import LogReader
from capture.chunk import read_chunks
from capture.chunks import Chunk
from capture.keys import KeyRange
from capture.options import read_options
from capture.select import rows_of
from capture.server import LogPosition, Server, connect
from capture.tables import read_tables
from tests.support.servers.local_source import LocalSource

WHOLE = KeyRange(None, None)


def test_chunk_changed_before_and_after_its_select_is_as_of_the_position(source: LocalSource) -> None:
    source.run(
        "CREATE TABLE k (id VARCHAR(5) PRIMARY KEY, v VARCHAR(5))",
        "INSERT INTO k VALUES ('k1', 'a'), ('k2', 'b'), ('k3', 'c'), ('k4', 'd'), ('k5', 'e'), ('k6', 'f')",
    )

    class Between(Server):
        """Lets another client write between the SELECT and the HIGH position."""

        def written(self) -> LogPosition:
            source.run("UPDATE k SET v = 'E' WHERE id = 'k5'", "UPDATE k SET v = 'A!' WHERE id = 'k1'")
            return super().written()

    options = read_options(source.options("k"))
    with connect(options) as server:
        as_of, (table,) = server.settled(), read_tables(server, options)
        source.run("UPDATE k SET v = 'A' WHERE id = 'k1'", "DELETE FROM k WHERE id = 'k3'", "INSERT INTO k VALUES ('k7', 'g')")
        between = Between(server.connection, options)
        ((_, chunk),) = read_chunks(between, LogReader(server, [table], 71), [Chunk(table, WHOLE)], as_of)
        ((_, chunk_again),) = read_chunks(server, LogReader(server, [table], 71), [Chunk(table, WHOLE)], as_of)
    rows, again = rows_of(chunk, [0, 1]), rows_of(chunk_again, [0, 1])
    assert sorted(rows) == [("k1", "a"), ("k2", "b"), ("k3", "c"), ("k4", "d"), ("k5", "e"), ("k6", "f")]
    assert sorted(again) == sorted(rows)
