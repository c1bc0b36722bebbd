"""Pages on loopback for one person, who has the link.

A page of another origin, another user of the machine and a name that was made to point here get nothing:

- only 127.0.0.1 is listened on, and only requests for this address and port are answered (``Host``);
- a request that a browser says another origin made is refused (``Origin``, ``Sec-Fetch-Site``);
- the link holds a random token. It opens the page, which keeps it for its tab and sends it in a header with every
  request for facts and every decision: browsers send no header by themselves, and other ports cannot read it. A
  cookie, which other ports of 127.0.0.1 would see, opens the page's own files only, and holds another secret.

A response holds facts, or one sentence that says what is wrong; never the text of an exception.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from socketserver import ThreadingTCPServer
from threading import BoundedSemaphore
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from coterie.cli.console.blocks import Block, Page
from coterie.errors import InputError

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
MOST_BYTES = 4096
"""Of a decision."""
SECONDS = 10.0
"""Without a byte after which a connection is closed."""
TOKEN = "X-Coterie-Token"
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NO_TOKEN = "This page needs the link that the command printed, with its token; open that link."


class CannotDo(Exception):
    """What was asked for is not there or cannot be done; the sentence is fit for the page."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def nothing_there() -> CannotDo:
    """Where there is nothing of the name that was asked for."""
    return CannotDo(HTTPStatus.NOT_FOUND, "There is nothing of this name.")


class Pages(Protocol):
    """What is behind a page; every call may come from a thread of its own."""

    def page(self) -> Page:
        """The page as it is now."""
        ...

    def part(self, name: str) -> list[Block]:
        """Blocks that a page asks for later; ``CannotDo`` where there are none of that name."""
        ...

    def act(self, action: str, value: str) -> str:
        """Do what a button says, and say what was done; ``CannotDo`` where that cannot be."""
        ...


class LocalServer(ThreadingTCPServer):
    """Serves pages on 127.0.0.1 to whoever has :attr:`link`."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, pages: Pages, port: int = 0, report: Callable[[str], None] = print) -> None:
        """``report`` is told of errors: what it says stays on this machine's terminal."""
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(f"--port {port}: {reason}; choose another port, or none for any free one.") from None
        self.pages, self.report = pages, report
        self.token, self.cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._room = BoundedSemaphore(MOST_CONNECTIONS)

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self.server_address[1])

    @property
    def link(self) -> str:
        """What opens the page, for its person only."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there are not too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer in this thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone: nobody to answer."""


class _Handler(BaseHTTPRequestHandler):
    """One request: checked, answered, and the connection closed."""

    server: LocalServer
    timeout = SECONDS

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def version_string(self) -> str:
        return "coterie"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a link has a token in it."""

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """A request that is none, without what it said."""
        self._reply(code, {"error": f"This request cannot be answered: {HTTPStatus(code).phrase.lower()}."})

    def _answer(self, answer: Callable[[str], None]) -> None:
        try:
            self._check_origin()
            answer(urlsplit(self.path).path)
        except CannotDo as problem:
            self._reply(problem.status, {"error": problem.sentence})
        except (ConnectionError, TimeoutError):
            raise
        except Exception as problem:
            self.server.report(f"{type(problem).__name__}: {problem}")
            sentence = "This did not work; the terminal in which the command runs says why."
            self._reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": sentence})

    def _check_origin(self) -> None:
        """Refuse what is not addressed to this page, or comes from another one."""
        hosts = self.headers.get_all("Host", [])
        own = [f"{name}:{self.server.port}" for name in (LOOPBACK, "localhost")]
        if len(hosts) != 1 or hosts[0] not in own:
            raise _forbidden(f"This page answers at {own[0]} only.")
        is_post = self.command == "POST"
        origins = {f"http://{hosts[0]}"} if is_post else {f"http://{hosts[0]}", None}
        sites = {None, "same-origin"} if is_post else {None, "same-origin", "none"}
        if self.headers.get("Origin") not in origins or self.headers.get("Sec-Fetch-Site") not in sites:
            raise _forbidden("A page of another origin, or a link on one, is not answered; paste the link instead.")

    def _get(self, path: str) -> None:
        if path in _FILES:
            self._send_file(path)
            return
        self._check_token()
        if path == "/api/page":
            self._reply(HTTPStatus.OK, self.server.pages.page())
        elif path.startswith("/api/part/"):
            self._reply(HTTPStatus.OK, self.server.pages.part(path.removeprefix("/api/part/")))
        else:
            raise nothing_there()

    def _post(self, path: str) -> None:
        self._check_token()
        if path != "/api/act":
            raise nothing_there()
        asked = self._body()
        self._reply(HTTPStatus.OK, {"said": self.server.pages.act(asked.action, asked.value)})

    def _send_file(self, path: str) -> None:
        """A file of the page; with the token of the link comes the cookie for the others."""
        has_link = path == "/" and any(
            _same(given, self.server.token) for given in parse_qs(urlsplit(self.path).query).get("token", [])
        )
        if not has_link and not self._has_cookie():
            raise _forbidden(_NO_TOKEN)
        name, kind = _FILES[path]
        data = files("coterie.cli.console").joinpath(name).read_bytes()
        cookie = f"{self._cookie_name}={self.server.cookie}; Path=/; HttpOnly; SameSite=Strict"
        self._send(HTTPStatus.OK, data, kind, {"Set-Cookie": cookie} if has_link else {})

    @property
    def _cookie_name(self) -> str:
        """With the port: cookies of several pages at 127.0.0.1 stand side by side."""
        return f"coterie-{self.server.port}"

    def _has_cookie(self) -> bool:
        parts = ";".join(self.headers.get_all("Cookie", [])).split(";")
        pairs = (part.strip().partition("=") for part in parts)
        return any(name == self._cookie_name and _same(value, self.server.cookie) for name, _, value in pairs)

    def _check_token(self) -> None:
        if not _same(self.headers.get(TOKEN, ""), self.server.token):
            raise _forbidden(_NO_TOKEN)

    def _body(self) -> _Asked:
        """What a button asks for."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            raise CannotDo(HTTPStatus.LENGTH_REQUIRED, "A decision says its length.")
        if len(length) > 9 or int(length) > MOST_BYTES:
            raise CannotDo(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A decision has at most {MOST_BYTES:,} bytes.")
        with contextlib.suppress(ValueError):  # of msgspec, too
            return msgspec.json.decode(self.rfile.read(int(length)), type=_Asked)
        raise CannotDo(HTTPStatus.BAD_REQUEST, "This is no decision: it needs an action and a value.")

    def _reply(self, status: int, value: object) -> None:
        self._send(status, msgspec.json.encode(value), "application/json")

    def _send(self, status: int, data: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(data)), **_HEADERS}
        for name, value in {**headers, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What a button sends."""

    action: str
    value: str


def _forbidden(sentence: str) -> CannotDo:
    return CannotDo(HTTPStatus.FORBIDDEN, sentence)


def _same(given: str, secret: str) -> bool:
    """Compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())
