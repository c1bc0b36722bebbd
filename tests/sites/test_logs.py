"""The site's own log: every answer and refusal with its run and round, and only there what went wrong."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.site_api import ANSWERS
from coterie.messages.verbs import Seen
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.runtime.layers import PlainSums
from coterie.runtime.run import run
from coterie.sites import logs, site
from coterie.sites.logs import LOGGER, SiteLogs, log_to
from tests.declared import Declared
from tests.federations import blobs, federation

ROWS = blobs(90, 3, 3, seed=2)
SECRET = 31415.9265358979


def asked(channel, events=None):
    return run(
        lloyd(ROWS[:3], max_rounds=3, tol=0.0),
        channel,
        method="lloyd",
        layers=[Declared({"rows": 1000, "box": 1e3}), PlainSums()],
        events=events,
    )


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def logged(tmp_path):
    """Logs of sites 0 and 1, taken away afterwards."""
    log = logging.getLogger(LOGGER)
    level = log.level
    handlers = [log_to(tmp_path / "logs" / f"{name}.log", name) for name in ("site-0", "site-1")]
    yield tmp_path / "logs"
    for handler in handlers:
        log.removeHandler(handler)
        handler.close()
    log.setLevel(level)


def test_both_ends_tell_the_same_of_every_answer(logged):
    events: list[dict] = []
    with federation(ROWS) as channel:
        asked(channel, events.append)
    exchanges = [line for line in events if line["event"] == "exchange"]
    for name in ("site-0", "site-1"):
        lines = read(logged / f"{name}.log")
        assert {line["site"] for line in lines} == {name}
        assert {line["level"] for line in lines} == {"INFO"}
        assert {line["event"] for line in lines} == {"answer"}
        assert [(one["run"], one["round"], one["attempt"], one["asked"], one["bytes"]) for one in lines] == [
            (one["run"], one["round"], one["attempt"], one["asked"], one["sites"][name]["bytes_up"])
            for one in exchanges
        ]
        assert all(one["method"] == "lloyd" and one["seconds"] > 0 for one in lines)
        assert lines[0]["message"] == f"{name}, round 0: answer: shared.Assign, {lines[0]['bytes']} bytes"
    assert not (logged / "site-2.log").exists()


def frame_for(name, request, round_=0, method="lloyd"):
    body = codec.encode_body(request, {"rows": 1000, "box": 1e5})
    envelope = Envelope(
        codec.FORMAT_VERSION,
        b"r" * 16,
        round_,
        0,
        codec.roster_digest([name]),
        codec.site_tag(name),
        body.digest,
        method,
    )
    return codec.encode_question(envelope, body, codec.NO_TRANSCRIPT, Seen.SINGLE)


def test_a_question_asked_again_is_logged_as_what_it_is(logged):
    with federation(ROWS) as channel:
        frame = frame_for("site-0", Assign(ROWS[:2]))
        for _ in range(2):
            channel.members["site-0"].answer(frame)
    assert [line["event"] for line in read(logged / "site-0.log")] == ["answer", "resend"]


def test_refusals_are_warnings_with_their_code_and_run(logged):
    with federation(ROWS) as channel:
        one = channel.members["site-1"]
        one.answer(frame_for("site-1", Assign(ROWS[:2]), round_=7, method="one-shot"))
        one.answer(b"rubbish")
    foreign, rubbish = read(logged / "site-1.log")
    assert (foreign["level"], foreign["event"], foreign["code"]) == ("WARNING", "refused", "UNKNOWN_QUESTION")
    assert (foreign["run"], foreign["round"], foreign["method"]) == ((b"r" * 16).hex(), 7, "one-shot")
    assert foreign["message"].startswith("site-1, round 7: refused: ")
    assert "trace" not in foreign
    assert (rubbish["level"], rubbish["event"], rubbish["code"]) == ("WARNING", "failed", "MALFORMED")
    assert "MalformedMessage" in rubbish["trace"]


def test_what_went_wrong_is_in_the_log_and_nowhere_else(logged, monkeypatch):
    def fails(table, memory, ask):
        raise RuntimeError(f"a row holds {SECRET}\nand more")

    monkeypatch.setitem(ANSWERS, Assign, fails)
    with federation(ROWS) as channel:
        frame = channel.members["site-0"].answer(frame_for("site-0", Assign(ROWS[:2])))
    assert b"31415" not in frame
    (line,) = read(logged / "site-0.log")
    assert (line["event"], line["code"]) == ("failed", "FAILED")
    assert str(SECRET) in line["message"]
    assert "RuntimeError" in line["trace"]


def test_a_log_is_its_owners_and_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 2000)
    log = logging.getLogger("tests.one_site")
    log.propagate = False
    handler = log_to(tmp_path / "site.log", "here", log=log)
    for i in range(200):
        log.info("line %d", i, extra={"site": "here", "round": i})
    log.removeHandler(handler)
    handler.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + logs.KEPT
    assert all(path.stat().st_size <= 2000 for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert read(tmp_path / "site.log")[-1]["round"] == 199


def test_nothing_is_made_where_nobody_listens(monkeypatch, caplog):
    made: list[str] = []
    monkeypatch.setattr(site, "about", lambda name, *_, **__: made.append(name) or {})
    with federation(ROWS) as channel, caplog.at_level(logging.WARNING, LOGGER):
        asked(channel)
        assert made == []
        channel.members["site-0"].answer(b"rubbish")
    assert made == ["site-0"]


def test_a_log_that_fails_does_not_hold_an_answer_back(logged, monkeypatch):
    def fails(*args, **facts):
        raise OSError("the disk is full")

    monkeypatch.setattr(site, "about", fails)
    with federation(ROWS) as channel:
        assert np.isfinite(asked(channel).cost)


def test_all_sites_of_a_process_log_into_one_folder_while_entered(tmp_path):
    log = logging.getLogger(LOGGER)
    before = log.level, list(log.handlers)
    with federation(ROWS) as channel:
        with SiteLogs(tmp_path):
            asked(channel)
        asked(channel)
    assert (log.level, list(log.handlers)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site-0.log", "site-1.log", "site-2.log"]
    assert all(len({line["run"] for line in read(path)}) == 1 for path in tmp_path.iterdir())
