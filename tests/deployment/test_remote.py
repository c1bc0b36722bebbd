"""What an analyst's process does about a job that another one left behind."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from coterie.deployment import remote
from coterie.deployment.job import EVENT_LINES, OUTCOME
from coterie.deployment.remote import Remote
from tests.orders import a_job

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

    def resume(session):
        analyst = Remote(session, tmp_path, 3, 10.0, lambda line: None, lambda line: None)
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
