"""What an analyst's process does about a job that another one left behind."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from coterie.deployment import remote
from coterie.deployment.job import EVENT_LINES, OUTCOME
from coterie.deployment.remote import Remote
from tests.orders import a_job

RESULT = b'{"title": "2 clusters", "summary": "", "columns": ["a"], "centers": [[1], [NaN]], "counts": [5, 0.0]}'
ORDER = a_job("lloyd", {"n_clusters": 3})


class Ending:
    """A server whose job answers no more, and is over after a few looks (or never is)."""

    def __init__(self, looks: float) -> None:
        self.looks, self.submitted = looks, 0

    def status(self, job):
        self.looks -= 1
        return "FINISHED:COMPLETED" if self.looks < 0 else "RUNNING"

    def command(self, job, topic, arguments):
        return {}

    def fetch(self, job, target):
        (target / OUTCOME).write_text(json.dumps({"status": "done"}))
        (target / EVENT_LINES).write_text("[]")
        (target / "result.json").write_bytes(RESULT)

    def delete(self, job):
        pass

    def sites(self):
        self.submitted += 1
        raise SystemExit("a job would be submitted now")


@pytest.fixture
def resumed(tmp_path, monkeypatch):
    """Resume a run whose last job the server speaks of so."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(remote.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))

    def resume(session, tell=lambda line: None):
        analyst = Remote(session, tmp_path, 3, 10.0, lambda line: None, tell)
        state = analyst._begin(ORDER, resume=False)
        analyst._keep({**state, "jobs": ["job-1"]})
        return analyst.run(ORDER, resume=True)

    return resume


def test_a_job_that_is_about_to_end_is_waited_for_and_not_run_again(resumed):
    session = Ending(looks=3)
    assert resumed(session)["status"] == "done"
    assert session.submitted == 0


def test_a_job_that_neither_answers_nor_ends_is_followed_by_another(resumed):
    with pytest.raises(SystemExit, match="would be submitted"):
        resumed(Ending(looks=float("inf")))


class Strange(Ending):
    """A server that sends files of its own making."""

    def __init__(self, **files):
        super().__init__(looks=0)
        self.files = {OUTCOME: b'{"status": "done"}', EVENT_LINES: b"[]", "result.json": RESULT, **files}

    def fetch(self, job, target):
        for name, raw in self.files.items():
            (target / name).write_bytes(raw)

    def problems(self, job):
        return ["it did so"]


def test_of_a_server_s_files_only_those_of_a_result_are_kept(resumed, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    found = resumed(Strange(**{"notes.txt": b"theirs", "job.toml": b"x", "remote.json": b"x"}))
    assert found["status"] == "done"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "remote.json", "result.json"}
    assert b"job-1" in (tmp_path / "remote.json").read_bytes()


NONSENSE = {
    "deep": b"[" * 100_000,
    "no object": b"[1]",
    "no status": b"{}",
    "another status": b'{"status": "fine"}',
    "no text": b'{"status": "done\xff"}',
    "large": b" " * (2 << 20) + b'{"status": "done"}',
}


@pytest.mark.parametrize("raw", NONSENSE.values(), ids=NONSENSE)
def test_an_outcome_of_nonsense_is_a_job_that_was_lost(resumed, tmp_path, raw):
    with pytest.raises(SystemExit, match="would be submitted"):
        resumed(Strange(**{OUTCOME: raw}))
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("raw", [b"{}", b"[1]", b'[{"time": "x"}]', b"[{}]", b"[" * 100_000, b'[{"time": 9e99}]'])
def test_events_of_nonsense_are_a_job_that_was_lost(resumed, raw):
    with pytest.raises(SystemExit, match="would be submitted"):
        resumed(Strange(**{EVENT_LINES: raw}), tell=lambda line: line["event"])


@pytest.mark.parametrize("raw", [b"{}", b"[" * 100_000, b"", RESULT.replace(b"[1]", b'["1"]')])
def test_a_result_of_nonsense_is_a_job_that_was_lost(resumed, tmp_path, raw):
    with pytest.raises(SystemExit, match="would be submitted"):
        resumed(Strange(**{"result.json": raw}))
    assert not (tmp_path / "result.json").exists()
