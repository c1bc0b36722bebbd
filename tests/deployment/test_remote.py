"""What an analyst's process does about a job that another one left behind."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from coterie.deployment import remote
from coterie.deployment.job import EVENT_LINES, OUTCOME
from coterie.deployment.remote import Remote
from coterie.report.outputs import RESULT_FILES
from tests.federations import blobs
from tests.orders import a_job
from tests.report.runs import run, written

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


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The files of a run as a server sends them, with a page that the server wrote."""
    folder = tmp_path_factory.mktemp("run")
    out = run(folder, written(folder, blobs(60, 2, 2, seed=1), "ab"), clusters=2)
    files = {name: (out / name).read_bytes() for name in RESULT_FILES if (out / name).exists()}
    return {**files, "report.html": b"<script>the server's</script>"}


def test_the_page_of_a_run_is_made_here(resumed, tmp_path, honest):
    resumed(Strange(**honest))
    page = (tmp_path / "report.html").read_text()
    assert "the server's" not in page
    assert "What was disclosed" in page


FREE = ("title", "summary", "coterie", "method", "columns", "inputs", "column", "distinguishing", "asked", "answer")
"""Fields of a result that hold texts of any kind."""


def test_texts_of_a_server_are_no_markup_of_a_page(resumed, tmp_path, honest):
    def spoiled(value, name=""):
        if isinstance(value, dict):
            return {f"<i>{key}" if name == "sites" else key: spoiled(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [spoiled(one, name) for one in value]
        return f"<i>{value}" if isinstance(value, str) and name in FREE else value

    changed = {
        name: json.dumps(spoiled(json.loads(honest[name]))).encode() for name in ("result.json", "ledger.json")
    }
    resumed(Strange(**{**honest, **changed}))
    page = (tmp_path / "report.html").read_text()
    assert page.count("&lt;i&gt;") > 20
    assert "<i>" not in page


@pytest.mark.parametrize("name", ["ledger.json", "certificate.json", "result.json"])
def test_a_run_whose_page_cannot_be_made_is_kept_without_one(resumed, tmp_path, honest, name):
    damaged = RESULT if name == "result.json" else b"[[1]]"
    assert resumed(Strange(**{**honest, name: damaged}))["status"] == "done"
    assert (tmp_path / name).read_bytes() == damaged
    assert not (tmp_path / "report.html").exists()


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
