"""The server of local pages: no request without its token, no other origin, no other interface, no text of errors."""

from __future__ import annotations

import json
import re
import socket
import threading
from importlib.resources import files

import pytest

from coterie.cli.console import server as served
from coterie.cli.console.blocks import Page, Text
from coterie.cli.console.server import MOST_BYTES, MOST_CONNECTIONS, LocalServer, nothing_there
from coterie.errors import InputError

SECRET = "row 17 of /srv/patients.csv holds 4711"


class Told:
    """Pages that remember what they were asked."""

    def __init__(self):
        self.calls = []

    def page(self):
        self.calls.append("page")
        return Page("A page", "", [])

    def part(self, name):
        self.calls.append(("part", name))
        if name == "none":
            raise nothing_there()
        if name == "broken":
            raise ValueError(SECRET)
        return [Text(["some text"])]

    def act(self, action, value):
        self.calls.append((action, value))
        return "It is done."


@pytest.fixture
def local():
    reports = []
    with LocalServer(Told(), report=reports.append) as server:
        server.reports = reports
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def raw(server, data):
    """The bytes that come back for these bytes."""
    with socket.create_connection((served.LOOPBACK, server.port), timeout=10) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while part := line.recv(65536):
                received += part
        except ConnectionResetError:  # it did not read all that was sent
            pass
    return received


def ask(server, start, body=b"", **headers):
    """Status, headers and body of the answer to a request with these headers (``_`` is ``-``; None: left out)."""
    given = {"Host": f"127.0.0.1:{server.port}", "X-Coterie-Token": server.token}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name, one) for name, value in given.items() for one in (value if isinstance(value, list) else [value])]
    lines = [f"{name}: {value}" for name, value in pairs if value is not None]
    answer = raw(server, "\r\n".join([f"{start} HTTP/1.1", *lines, "", ""]).encode() + body)
    head, _, content = answer.partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in rest), content


def act(server, body=b'{"action": "approve", "value": "x"}', **headers):
    given = {"Origin": f"http://127.0.0.1:{server.port}", "Content_Length": str(len(body))}
    return ask(server, "POST /api/act", body, **{**given, **headers})


REFUSED = {
    "no token": {"X_Coterie_Token": None},
    "an empty token": {"X_Coterie_Token": ""},
    "a wrong token": {"X_Coterie_Token": "x" * 43},
    "a token that is no ASCII": {"X_Coterie_Token": "ä" * 43},
    "another host": {"Host": "evil.example"},
    "another host with this port": {"Host": "evil.example:{port}"},
    "this host with another port": {"Host": "127.0.0.1:1"},
    "this host without a port": {"Host": "127.0.0.1"},
    "no host": {"Host": None},
    "two hosts": {"Host": ["127.0.0.1:{port}", "evil.example"]},
    "another origin": {"Origin": "http://evil.example"},
    "another port's origin": {"Origin": "http://127.0.0.1:1"},
    "the other name of this origin": {"Origin": "http://localhost:{port}"},
    "an origin without a name": {"Origin": "null"},
    "another site, says the browser": {"Sec_Fetch_Site": "cross-site"},
    "another port, says the browser": {"Sec_Fetch_Site": "same-site"},
}


def filled(server, headers):
    def fill(value):
        return value.format(port=server.port) if isinstance(value, str) else value

    return {name: list(map(fill, v)) if isinstance(v, list) else fill(v) for name, v in headers.items()}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("start", ["GET /api/page", "GET /api/part/x", "GET /api/none", "POST /api/act"])
def test_what_is_refused_reaches_no_page(local, start, case):
    headers = filled(local, REFUSED[case])
    status, said, body = act(local, **headers) if start.startswith("POST") else ask(local, start, **headers)
    assert status == 403
    assert json.loads(body).keys() == {"error"}
    assert local.pages.calls == []
    assert not [name for name in said if name.lower().startswith("access-control")]


@pytest.mark.parametrize("headers", [{"Origin": None}, {"Sec_Fetch_Site": "none"}])
def test_a_decision_comes_from_the_page_itself(local, headers):
    assert act(local, **headers)[0] == 403
    assert local.pages.calls == []
    assert act(local, Sec_Fetch_Site="same-origin")[0] == 200
    assert local.pages.calls == [("approve", "x")]


@pytest.mark.parametrize("path", ["/", "/?token=x", "/?token=", "/page.js", "/page.css"])
def test_no_file_without_link_or_cookie(local, path):
    for cookie in (None, f"coterie-{local.port}=", f"coterie-{local.port}={local.token}", f"coterie={local.cookie}"):
        status, headers, body = ask(local, f"GET {path}", Cookie=cookie)
        assert (status, json.loads(body).keys()) == (403, {"error"})
        assert "Set-Cookie" not in headers


def test_the_link_opens_the_page_and_its_cookie_the_files_only(local):
    path = "/?" + local.link.partition("?")[2]
    status, headers, body = ask(local, f"GET {path}", X_Coterie_Token=None, Sec_Fetch_Site="none")
    assert (status, b"<script src" in body) == (200, True)
    cookie = headers["Set-Cookie"]
    assert cookie == f"coterie-{local.port}={local.cookie}; Path=/; HttpOnly; SameSite=Strict"
    kept = cookie.partition(";")[0]
    for name in ("/", "/page.js", "/page.css"):
        status, headers, body = ask(local, f"GET {name}", X_Coterie_Token=None, Cookie=f"other=1; {kept}")
        assert status == 200
        assert not {local.token, local.cookie} & set(re.findall(r"[\w-]{43}", body.decode()))
    assert ask(local, "GET /api/page", X_Coterie_Token=None, Cookie=kept)[0] == 403
    assert ask(local, "GET /api/page", X_Coterie_Token=local.cookie, Cookie=kept)[0] == 403
    assert ask(local, f"GET {path}", X_Coterie_Token=None, Sec_Fetch_Site="cross-site")[0] == 403
    assert local.pages.calls == []


def test_with_its_token_everything_is_answered_and_nothing_kept(local):
    status, headers, body = ask(local, "GET /api/page")
    assert (status, json.loads(body)["title"]) == (200, "A page")
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"] == "coterie"
    assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert json.loads(ask(local, "GET /api/part/a/b")[2]) == [
        {"type": "text", "sentences": ["some text"], "tone": ""}
    ]
    assert json.loads(act(local)[2]) == {"said": "It is done."}
    assert ask(local, "GET /api/page", Host=f"localhost:{local.port}")[0] == 200
    assert local.pages.calls == ["page", ("part", "a/b"), ("approve", "x"), "page"]


@pytest.mark.parametrize(
    "path", ["/api/none", "/api/part/none", "/page.html", "/server.py", "/../server.py", "/api", "/page.js/"]
)
def test_there_is_nothing_else(local, path):
    status, _, body = ask(local, f"GET {path}", Cookie=f"coterie-{local.port}={local.cookie}")
    assert (status, json.loads(body)) == (404, {"error": "There is nothing of this name."})


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 400),
        (b"no json", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[" * 4000, {}, 400),
        (b'{"action": "approve", "value": 3}', {}, 400),
        (b'{"action": "approve", "value": "x", "more": 1}', {}, 400),
        (b"x" * (MOST_BYTES + 1), {}, 413),
        (b"", {"Content_Length": "9" * 5000}, 413),
        (b"", {"Content_Length": None}, 411),
        (b"", {"Content_Length": "-1"}, 411),
        (b"{}", {"Transfer_Encoding": "chunked"}, 411),
    ],
)
def test_what_is_no_decision_is_one_clear_error(local, body, headers, status):
    found, _, answer = act(local, body, **headers)
    assert (found, json.loads(answer).keys()) == (status, {"error"})
    assert local.pages.calls == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "HEAD", "PATCH"])
def test_other_methods_are_not_answered(local, method):
    status, headers, body = ask(local, f"{method} /api/page")
    assert (status, "Access-Control-Allow-Origin" in headers) == (501, False)
    assert json.loads(body)["error"] == "This request cannot be answered: not implemented."


@pytest.mark.parametrize(
    "data", [b"\0\1\2\r\n\r\n", b"GET " + b"x" * 70_000, b"GET /api/page HTTP/9.9\r\n\r\n", b"GET /<b>\r\n"]
)
def test_what_is_no_request_gets_none_of_its_words_back(local, data):
    answer = raw(local, data)
    assert b"<b>" not in answer
    assert b"xxx" not in answer
    assert local.pages.calls == []


def test_the_text_of_an_error_stays_on_the_terminal(local):
    status, headers, body = ask(local, "GET /api/part/broken")
    assert status == 500
    assert "terminal" in json.loads(body)["error"]
    assert "4711" not in body.decode() + str(headers)
    assert local.reports == [f"ValueError: {SECRET}"]


def test_no_other_interface_is_listened_on(local):
    assert local.server_address[0] == "127.0.0.1"
    others = ["127.0.0.2"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(("192.0.2.1", 9))  # sends nothing: only finds this machine's address
            others.append(line.getsockname()[0])
        except OSError:
            pass
    for address in others:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, local.port), timeout=5)


def test_more_connections_than_one_person_needs_are_closed(local):
    lines = [socket.create_connection((served.LOOPBACK, local.port), timeout=10) for _ in range(MOST_CONNECTIONS)]
    with socket.create_connection((served.LOOPBACK, local.port), timeout=10) as line:
        assert line.recv(1) == b""
    for line in lines:
        line.close()


def test_a_silent_connection_is_closed(local, monkeypatch):
    monkeypatch.setattr(served._Handler, "timeout", 0.1)
    with socket.create_connection((served.LOOPBACK, local.port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        assert line.recv(1) == b""


def test_tokens_are_never_the_same(local):
    with LocalServer(Told()) as other:
        assert len({local.token, local.cookie, other.token, other.cookie}) == 4
        assert len(local.token) == 43  # 32 random bytes


def test_a_port_that_is_taken_is_said(local):
    with pytest.raises(InputError, match=f"--port {local.port}: .*choose another port"):
        LocalServer(Told(), local.port)


def test_the_page_runs_its_own_files_only_and_sets_text_as_text():
    folder = files("coterie.cli.console")
    html, script, style = (folder.joinpath(f"page.{end}").read_text() for end in ("html", "js", "css"))
    assert not re.search(r"<style|style=|\son\w+=|<script(?! src=\"/page.js\")", html)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write|https?://(?!www\.w3\.org/2000/svg)", script
    )
    assert not re.search(r"https?://|@import|url\(", style + html)
