"""``cdc init --connector``: the modes of a Debezium connector, from Kafka Connect's REST interface."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cdc_cli.source import connector_modes
from cdc_formats.errors import ArgumentError
from cdc_formats.topics.inference.source_types import catalog_type

# As Kafka Connect 4.1 answers, with the password in clear text.
POSTGRES = {
    "name": "shop",
    "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.user": "postgres",
        "database.password": "s3cret",
        "decimal.handling.mode": "STRING",
        "binary.handling.mode": "hex",
        "name": "shop",
    },
    "tasks": [{"connector": "shop", "task": 0}],
    "type": "source",
}
MARIADB = {"config": {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}}


@contextmanager
def connect(answer: object, login: str = "") -> Iterator[str]:
    """Start a server with one connector; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = base64.b64encode(login.encode()).decode()
            refused = login and self.headers["Authorization"] != f"Basic {token}"
            known = self.path == "/connectors/shop"
            self.send_response(401 if refused else 200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}/connectors/shop"
    finally:
        server.shutdown()
        server.server_close()


def test_the_modes_of_a_connector_are_options_and_nothing_else_is_kept() -> None:
    with connect(POSTGRES) as address:
        assert connector_modes(f"http://{address}", 5) == {
            "decimal_handling_mode": "string",
            "time_precision_mode": "adaptive",
            "binary_handling_mode": "hex",
        }
    with connect(MARIADB) as address:
        assert connector_modes(f"http://{address}", 5) == {
            "decimal_handling_mode": "precise",
            "time_precision_mode": "adaptive_time_microseconds",
            "binary_handling_mode": "bytes",
            "bigint_unsigned_handling_mode": "long",
        }


def test_a_login_in_the_address_is_sent_and_not_shown() -> None:
    with connect(POSTGRES, "reader:p@ss") as address:
        assert (
            connector_modes(f"http://reader:p%40ss@{address}", 5)["binary_handling_mode"] == "hex"
        )
        with pytest.raises(ArgumentError, match=r"answers 401 at http://127[^@]*shop: ") as refused:
            connector_modes(f"http://reader:wrong@{address}", 5)
        assert "wrong" not in str(refused.value)
        with pytest.raises(ArgumentError, match=r"answers 404 at .*check the name"):
            connector_modes(f"http://reader:p%40ss@{address}x", 5)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "http://a:s3cret@127.0.0.1:1/connectors/shop",
            "does not answer at http://127.0.0.1:1/con",
        ),
        ("http://a:s3cret@localhost:8083", "is 'http://localhost:8083': pass the address of a"),
        ("file:///connectors/shop", "pass the address of a connector"),
    ],
)
def test_an_address_that_is_not_one_of_a_connector(address: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason) as refused:
        connector_modes(address, 5)
    assert "s3cret" not in str(refused.value)


def test_a_connector_of_another_tool_is_refused() -> None:
    answer = {"config": {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector"}}
    with connect(answer) as address, pytest.raises(ArgumentError, match="JdbcSourceConnector'"):
        connector_modes(f"http://{address}", 5)


@pytest.mark.parametrize(
    ("kind", "full", "expected"),
    [
        ("integer", "integer", "INT"),
        ("numeric", "numeric(10,2)", "DECIMAL(10,2)"),
        ("numeric", "numeric", "None"),  # each value has a scale of its own
        ("numeric", "numeric(2,4)", "None"),
        ("decimal", "decimal(65,30)", "None"),
        ("decimal", "decimal(5,1) unsigned", "DECIMAL(5,1)"),
        ("bigint", "bigint(20) unsigned", "DECIMAL(20,0)"),
        ("int", "int(10) unsigned zerofill", "BIGINT"),
        ("bit", "bit(1)", "BOOLEAN"),
        ("bit", "bit(8)", "None"),
        ("boolean", "boolean", "BOOLEAN"),
        ("datetime", "datetime", "TIMESTAMP_NTZ(3)"),
        ("datetime", "datetime(6)", "TIMESTAMP_NTZ(6)"),
        ("timestamp without time zone", "timestamp(3) without time zone", "TIMESTAMP_NTZ(3)"),
        ("timestamp without time zone", "timestamp without time zone", "TIMESTAMP_NTZ(6)"),
        ("timestamp with time zone", "timestamp with time zone", "TIMESTAMP"),
        ("timestamp", "timestamp(3)", "TIMESTAMP"),
        ("time without time zone", "time without time zone", "TIME(6)"),
        ("time", "time", "INTERVAL DAY TO SECOND"),
        ("time with time zone", "time with time zone", "STRING"),
        ("character varying", "character varying(10)", "STRING"),
        ("bytea", "bytea", "BINARY"),
        ("interval", "interval", "None"),
        ("integer[]", "integer[]", "None"),
        ("enum", "enum('a(1,2)','b')", "None"),
    ],
)
def test_the_types_of_databases(kind: str, full: str, expected: str) -> None:
    assert str(catalog_type(kind, full)) == expected
