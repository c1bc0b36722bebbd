"""A data officer decides about orders that wait."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.methods.order import SignedOrder
from coterie.sites.approvals import Decision
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.installed import InstalledSite
from tests.orders import ANA, an_order, signed

pytest.importorskip("nvflare")
KIT = ("--kit", "kits/sites/north")


@pytest.fixture
def site(tmp_path, cli):
    """A site whose orders wait."""
    np.savetxt("north.csv", np.random.default_rng(0).normal(size=(40, 2)), delimiter=",", header="a,b", comments="")
    assert cli("provision", "--sites", "north", "--analyst", ANA, "--out", "kits")[0] == 0
    assert cli("policy", "init", "north.toml")[0] == 0
    text = (tmp_path / "north.toml").read_text().replace('approval = "automatic"', 'approval = "always"')
    (tmp_path / "north.toml").write_text(text)
    assert cli("site", "start", *KIT, "--data", "north.csv", "--policy", "north.toml", "--check")[0] == 0
    return InstalledSite(tmp_path / "kits" / "sites" / "north")


def wait(site: InstalledSite, **options) -> SignedOrder:
    """An order that waits at a site, by the analyst of its federation."""
    analyst = IdentityFiles(site.folder.parents[1] / "analysts" / ANA).read("analyst", ANA)
    order = signed(an_order(run=None, **options), analyst)
    assert site.approvals.decision(order, order.read(), "always") is Decision.WAITING
    return order


def test_what_waits_is_listed_shown_and_decided(site, cli):
    assert "No order waits" in cli("site", "pending", *KIT)[1]
    order = wait(site, parameters={"max_rounds": 3, "tol": 0.5})
    run = order.read().run
    (listed,) = json.loads(cli("site", "pending", *KIT, "--json")[1])
    assert (listed["id"], listed["analyst"], listed["method"]) == (run[:8], ANA, "lloyd")
    shown = json.loads(cli("site", "show", run[:5], *KIT, "--json")[1])
    assert shown["parameters"] == {"n_clusters": 2, "max_rounds": 3, "tol": 0.5}
    assert shown["chooses"] == {"tol": "parameters"}
    assert shown["columns"] == ["a", "b"]
    assert "has begun 0 runs over this table; 100 are allowed (max_runs). This order is one more." in shown["runs"]
    seen = {answer["answer"]: answer["seen"] for answer in shown["answers"]}
    assert seen["Moments"] == "a sum over 3 sites or more"
    told = " ".join(cli("site", "show", *KIT)[1].split())  # the only one that waits
    assert "Nothing was sent" in told
    assert ANA in told
    assert "n_clusters=2, max_rounds=3, tol=0.5" in told
    assert "Approved" in cli("site", "approve", run[:5], *KIT)[1]
    assert "a decision cannot be changed" in cli("site", "refuse", run[:5], *KIT)[2]
    assert "No order waits" in cli("site", "pending", *KIT)[1]
    assert "approved" in cli("site", "pending", *KIT, "--all")[1]
    assert site.approvals.decision(order, order.read(), "always") is Decision.APPROVED


def test_a_refused_order_stays_refused_and_files_are_private(site, cli):
    order = wait(site)
    assert "Declined" in cli("site", "refuse", order.read().run, *KIT)[1]
    assert site.approvals.decision(order, order.read(), "automatic") is Decision.DECLINED
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.approvals.folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(site.approvals.folder.stat().st_mode) == 0o700


def test_a_decision_said_again_stays_as_it_is(site, cli):
    run = wait(site).read().run
    assert "Approved" in cli("site", "approve", run, *KIT)[1]
    decided = site.approvals.find(run).decided
    assert "Approved" in cli("site", "approve", run, *KIT)[1]
    assert site.approvals.find(run).decided == decided


def expire(cli) -> None:
    """Let the authority revoke the analyst's certificate, and the site know of it."""
    assert cli("provision", "--revoke", ANA, "--out", "kits")[0] == 0
    assert cli("site", "revoked", "kits/revoked", *KIT)[0] == 0


def test_an_expired_order_is_not_approved(site, cli):
    run = wait(site).read().run
    assert "expired" not in cli("site", "show", *KIT)[1]
    expire(cli)
    assert "The order has expired: the certificate of" in " ".join(cli("site", "show", *KIT)[1].split())
    code, _, err = cli("site", "approve", run, *KIT)
    assert (code, "cannot be approved any more: the certificate of" in err) == (2, True)
    assert site.approvals.find(run).decision is Decision.WAITING
    assert "Declined" in cli("site", "refuse", run, *KIT)[1]


def test_what_the_rules_would_refuse_is_said_before_it_is_approved(site, cli):
    kept = site.approvals.find(wait(site, parameters={"tol": 0.5}).read().run)
    rules = site.holdings().rules()
    begun = {"event": "note", "what": "order", "analyst": ANA, "table": "table", "run": "00" * 16}
    once = dataclasses.replace(rules, max_runs=1)
    assert site.refusal_of(kept, once, []) is None
    assert site.refusal_of(kept, once, [begun]) is Refusal.TOO_MANY_QUESTIONS
    assert "would refuse" not in cli("site", "show", *KIT)[1]
    path = Path("north.toml")
    path.write_text(path.read_text().replace('["points", "ranges", "parameters"]', "[]"))
    shown = " ".join(cli("site", "show", *KIT)[1].split())
    assert f"Even approved, this site would refuse the order today: {Refusal.CHOICE_FORBIDDEN.sentence}." in shown


def test_what_cannot_be_shown_says_why(site, cli):
    order = wait(site, columns=("a", "c"))
    told = " ".join(cli("site", "show", order.read().run, *KIT)[1].split())
    assert "the order is for the columns a, c; this site holds a, b" in told
    assert "no order begins with 'zz'" in cli("site", "show", "zz", *KIT)[2]
    wait(site)
    assert "2 orders wait; give the ID of one" in cli("site", "show", *KIT)[2]


def test_a_preview_says_what_the_policy_refuses(site, cli):
    order = wait(site, method="one-shot")
    shown = json.loads(cli("site", "show", order.read().run, *KIT, "--json")[1])
    by_answer = {answer["answer"]: answer for answer in shown["answers"]}
    assert by_answer["LocalCenters"]["seen"] == "refused"
    assert "does not allow this per-site result" in by_answer["LocalCenters"]["refused"]


def test_status_shows_what_analysts_have_begun(site, cli):
    from coterie.sites.ledger import SiteLedger

    ledger = SiteLedger(site.ledger_path)
    for run in (b"1" * 16, b"2" * 16):
        ledger.begin(run, b"order", ANA, "table")
    ledger.begin(b"3" * 16, b"order", ANA, "another table")
    ledger.close()
    wait(site)
    status = json.loads(cli("site", "status", *KIT, "--json")[1])
    assert (status["runs_by_analyst"], status["max_runs"], status["waiting"]) == ({ANA: 2}, 100, 1)
    assert f"runs of {ANA}" in " ".join(cli("site", "status", *KIT)[1].split())
