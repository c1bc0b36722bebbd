"""Orders over a real federation: signed, waiting for a data officer, approved while the site runs, declined."""

from __future__ import annotations

import json
import threading
import time

import pytest

from coterie.deployment import remote
from coterie.errors import RunError
from coterie.sites.approvals import Decision
from coterie.sites.installed import Holdings
from tests.orders import a_job

from .federations import dealt_rows, rules

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nvflare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that NVFlare leaves open
]


@pytest.fixture
def careful(standing, monkeypatch):
    """The second site's orders wait."""
    monkeypatch.setattr(remote, "DECIDING", 2.0)
    standing.hold(tables := dealt_rows(standing.folder))
    policy = standing.folder / "careful.toml"
    policy.write_text(rules("none", "", "").replace('approval = "automatic"', 'approval = "always"'))
    site, table = standing.federation.site("site-2"), tables["site-2"]
    site.tell(Holdings(str(table), str(policy), table_name=table.stem))
    return standing


def order(standing):
    return standing.order("lloyd", {"n_clusters": 3, "max_rounds": 2})


def test_an_order_waits_and_is_approved_while_everything_runs(careful):
    job, approvals = order(careful), careful.federation.site("site-2").approvals

    def approve():
        ends = time.monotonic() + 120
        while time.monotonic() < ends and not approvals.folder.glob(f"{job.read().run}.json"):
            time.sleep(0.2)
        while job.read().run not in {kept.order.run for kept in approvals.all()} and time.monotonic() < ends:
            time.sleep(0.2)
        approvals.decide(job.read().run, Decision.APPROVED)

    officer = threading.Thread(target=approve)
    officer.start()
    seen = []
    done = careful.run(job, attempts=1, patience=120.0, tell=seen.append)
    officer.join()
    assert done.outcome["status"] == "done"
    assert done.said[0] == "The order is waiting for the approval of a site."
    assert "site-2" not in " ".join(done.said)
    before = json.dumps([line for line in seen if line["event"] == "failed"])
    assert "site-2" not in before
    assert "WAITING" not in json.dumps(seen)
    assert len(done.result["centers"]) == 3


def test_a_declined_order_ends_and_names_nobody(careful):
    job, approvals = order(careful), careful.federation.site("site-2").approvals
    with pytest.raises(RunError, match=r"waiting for the approval of a site\. --resume goes on") as waiting:
        careful.run(job, attempts=1, patience=1.0)
    assert "site-2" not in str(waiting.value)
    out = max(careful.folder.glob("run-*"), key=lambda path: path.stat().st_mtime)
    approvals.decide(job.read().run, Decision.DECLINED)
    with pytest.raises(RunError, match=r"^The order is declined by a site\.$"):
        careful.run(job, attempts=1, resume=out)


def test_an_order_that_another_federation_s_analyst_signed_is_refused_by_every_site(standing):
    standing.hold(dealt_rows(standing.folder))
    columns = [name for name, _ in order(standing).read().columns]
    with pytest.raises(RunError, match="does not trust a key or signature"):
        standing.run(a_job("lloyd", {"n_clusters": 3}, columns, run=None, deadline=30.0), attempts=1)
