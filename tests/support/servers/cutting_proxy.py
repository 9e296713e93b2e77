"""A TCP proxy that breaks a connection within what a client sends, unnoticed by the server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """A proxy on a free port of 127.0.0.1, which closes one connection of a client.

    The server's side of it stays open, as if the network between them had failed.

    Parameters
    ----------
    port : int
        The port of the server behind it.
    after : int
        How many bytes a client sends before its connection breaks; later ones do not.
    """

    def __init__(self, port: int, after: int) -> None:
        self.behind, self.after, self.cuts = port, after, 0
        self.kept: list[socket.socket] = []

    def __enter__(self) -> CuttingProxy:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each in (self.listener, *self.kept):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.behind))
                for pair in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._forward, args=(*pair, pair[0] is client), daemon=True
                    ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        size = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                size += len(data)
                if is_client and size > self.after and not self.cuts:
                    self.cuts += 1
                    self.kept.append(sink)
                    break
                sink.sendall(data)
        for each in {source, sink}.difference(self.kept):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
