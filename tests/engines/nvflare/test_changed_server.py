"""Keys of its own and chosen questions over separate processes: only the code of the server is changed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from coterie.engines.nvflare import processes
from tests.attacks.changed_server import checked

from .federations import Standing, dealt_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

CHANGED, ROOT = Path(__file__).parent / "changed", Path(__file__).parents[3]
BEGINNING_AND_SUMS = {
    "secure.AskHello",
    "secure.Compare",
    "secure.Introduce",
    "secure.ShareKey",
    "secure.Reveal",
    "secure.Conclude",
}


@pytest.fixture
def changed_server(standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The federation's server, started anew with changed code; and as it was when the test is over."""
    kit, report = standing.federation.kit("server"), tmp_path / "report.json"
    processes.stop([kit])
    with monkeypatch.context() as patch:
        path = os.pathsep.join(filter(None, [str(CHANGED), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYTHONPATH", path)
        patch.setenv("COTERIE_TEST_CHANGED_SERVER", str(report))
        standing.start("server")
    standing.await_all()
    yield report
    processes.stop([kit])
    standing.start("server")
    standing.await_all()


def _lines(standing: Standing, name: str) -> list[dict]:
    path = standing.federation.site(name).ledger_path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _log(standing: Standing, name: str) -> str:
    path = standing.federation.site(name).log_path
    return path.read_text() if path.exists() else ""


def test_sites_answer_a_changed_server_nothing_that_was_not_ordered(standing, changed_server):
    """Hundreds of questions and introductions of its own; the run that goes on around them ends as it should."""
    standing.hold(dealt_rows(standing.folder, n_rows=300))
    before = {name: len(_lines(standing, name)) for name in standing.names}
    logged = {name: len(_log(standing, name)) for name in standing.names}
    order = standing.order("lloyd", {"n_clusters": 3, "max_rounds": 3, "random_state": 1})
    done = standing.run(order, attempts=1)
    assert done.outcome["status"] == "done"
    found = json.loads(changed_server.read_text())
    checked(found, least=500)
    for what in ("a key by another authority", "a key by no one", "an invented site", "only sites of its own"):
        assert set(found["by_what"][what]) == {"UNTRUSTED"}, what
    for what in ("masked cells", "masked cells by name", "another preparation", "a sum with another bit"):
        assert set(found["by_what"][what]) <= {"NOT_ORDERED", "UNKNOWN_QUESTION", "IN_FULL"}, what
    kinds: set[str] = set()
    for name in standing.names:
        own = _lines(standing, name)[before[name] :]
        answers = Counter(line["asked"] for line in own if line["event"] == "answer")
        refusals = [line for line in own if line["event"] == "refusal"]
        assert answers["secure.Introduce"] == answers["secure.ShareKey"] == 1
        masked = [line for line in own if line["event"] == "answer" and line["seen"] == "masked"]
        assert len(masked) == answers["secure.Reveal"]  # each one of the run's own
        kinds |= set(answers) - {line["asked"] for line in masked}
        assert len(refusals) >= 100
        assert all(line["floats"] == 0 for line in refusals)
        assert "is not the next one of the ordered method" in _log(standing, name)[logged[name] :]
    assert kinds <= BEGINNING_AND_SUMS, kinds
