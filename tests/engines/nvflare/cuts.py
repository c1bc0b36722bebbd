"""A relay between one site and the server: it can be cut, so that nothing passes and nobody is told, or be slow."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class Relay:
    """Listens on a port of this machine and passes everything on to the server, until it is cut."""

    def __init__(self, server_port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._server_port = server_port
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._closed = False
        self.rate: float | None = None
        """Bytes that pass from the site to the server in a second; None: as many as come."""
        self.passed_up = 0
        """Bytes that came from the site."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on bytes are swallowed, as by a cable that is pulled out."""
        self._whole.clear()

    def mend(self) -> None:
        """New connections pass again; the old ones, with bytes missing, are closed."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.close()
        self._sockets.clear()
        self._whole.set()

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._listening.close()
        self.mend()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(near)
            if self._whole.is_set():
                try:
                    far = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:  # the server is down
                    near.close()
                    continue
                self._sockets.append(far)
                threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_up: bool) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(16384):
                if self._whole.is_set():
                    sink.sendall(data)
                if is_up:
                    self.passed_up += len(data)
                    time.sleep(0.0 if self.rate is None else len(data) / self.rate)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the other direction, too
            one.close()


@contextlib.contextmanager
def led_through(relay: Relay, kit: Path) -> Iterator[None]:
    """Let a site's kit find its server through a relay."""
    path = kit / "startup" / "fed_client.json"
    before = path.read_text()
    told = json.loads(before)
    told["servers"][0]["service"]["target"] = f"localhost:{relay.port}"
    path.write_text(json.dumps(told, indent=2))
    try:
        yield
    finally:
        path.write_text(before)
