"""An HTTP server in front of a schema registry, with TLS, users and failures, or its own schemas.

::

    with RegistryFront(registry.url, basic="user:password") as front: ...
    with RegistryFront(schemas={8: '{"type": "record", ...}'}) as front: ...
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

_NUMBERS = count(1)
TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryFront:
    """A server on a free port of 127.0.0.1.

    Parameters
    ----------
    behind : str
        The URL of a registry that requests are forwarded to; empty: none.
    schemas : mapping
        The texts of schemas by id, without a registry behind; a registered schema is added.
    basic, bearer : str or None
        The user and password, or the token, that a request must contain.
    answers : sequence of (int, bytes)
        Status and body of the first answers, for any request.
    certificate : Path or None
        The folder with ``server.pem``, a certificate and its key, and ``authority.pem``, which
        signs clients; enables TLS.
    client_certificate : bool
        Whether to require a client certificate.
    schema_type : str
        The type of all `schemas`, ``JSON`` or ``PROTOBUF``; empty: Avro.
    pause : float
        Seconds before each byte of a body.
    """

    def __init__(
        self,
        behind: str = "",
        *,
        schemas: Mapping[int, str] | None = None,
        basic: str | None = None,
        bearer: str | None = None,
        answers: tuple[tuple[int, bytes], ...] = (),
        certificate: Path | None = None,
        client_certificate: bool = False,
        schema_type: str = "",
        pause: float = 0,
    ) -> None:
        self.behind, self.schemas, self.answers = behind, dict(schemas or {}), list(answers)
        self.authorization = (
            None if basic is None else "Basic " + base64.b64encode(basic.encode()).decode()
        )
        self.authorization = self.authorization if bearer is None else f"Bearer {bearer}"
        self.certificate, self.client_certificate = certificate, client_certificate
        self.schema_type = {"schemaType": schema_type} if schema_type else {}
        self.requests, self.pause = 0, pause

    def __enter__(self) -> RegistryFront:
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(None)

            def do_POST(self) -> None:
                self.reply(self.rfile.read(int(self.headers["Content-Length"])))

            def reply(self, body: bytes | None) -> None:
                status, answer = front.answer(
                    self.path.removeprefix(front.root), body, self.headers.get("Authorization")
                )
                self.send_response(status)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                for part in [answer] if not front.pause else map(bytes, zip(answer, strict=True)):
                    time.sleep(front.pause)
                    self.wfile.write(part)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate / "server.pem")
            if self.client_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.certificate / "authority.pem")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        # A client caches schemas by the address, and a port is used again.
        self.root = f"/{next(_NUMBERS)}"
        self.url = f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.server.server_address[1]}{self.root}"
        # The server notices its shutdown after an interval, which is half a second by default.
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, path: str, body: bytes | None, authorization: str | None) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a request."""
        self.requests += 1
        if self.authorization is not None and authorization != self.authorization:
            return 401, b'{"error_code": 40101, "message": "Unauthorized"}'
        if self.answers:
            return self.answers.pop(0)
        if self.behind:
            return _handed_on(self.behind + path, body)
        if body is not None:
            schema = json.loads(body)["schema"]
            number = next(
                (number for number, text in self.schemas.items() if text == schema),
                len(self.schemas) + 1,
            )
            self.schemas[number] = schema
            return 200, json.dumps({"id": number}).encode()
        requested = path.partition("?")[0].rpartition("/")[2]
        if path.startswith("/schemas/ids/") and int(requested) in self.schemas:
            return 200, json.dumps(
                {"schema": self.schemas[int(requested)], **self.schema_type}
            ).encode()
        return 404, b'{"error_code": 40403, "message": "Schema not found"}'


def _handed_on(url: str, body: bytes | None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"Content-Type": TYPE} if body else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
