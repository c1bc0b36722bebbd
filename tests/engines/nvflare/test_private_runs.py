"""Private runs over separate processes: the noise is the sites', and so is the budget."""

from __future__ import annotations

import signal
from importlib.resources import files

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from coterie import Privacy
from coterie.errors import QuorumLost
from coterie.maths.accounting import mu_of
from coterie.secure.certificates import CERTIFICATE, RunCertificate

from .federations import SITES, Finished, dealt_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

N_ROWS = 880
BUDGET, DELTA = 25.0, 1e-4
PARAMETERS = {"n_clusters": 10, "privacy": Privacy(20.0, DELTA, tolerated=1)}
UNIT = (np.zeros(64), np.ones(64))


def private_rules() -> str:
    """The rules as they ship for private runs, with a larger budget, and no data officer to wait for."""
    text = files("coterie.sites").joinpath("policies", "private.toml").read_text()
    changed = text.replace('approval = "first"', 'approval = "automatic"').replace(
        "epsilon = 4.0", f"epsilon = {BUDGET}"
    )
    return changed.replace("delta = 1e-6", f"delta = {DELTA}")


def certificate_of(found: Finished) -> RunCertificate:
    path = found.folder / CERTIFICATE
    return RunCertificate.read(path.read_bytes(), path)


@pytest.fixture
def private(standing):
    """The federation, whose sites answer private orders for rows of digits alone."""
    standing.hold(dealt_rows(standing.folder, n_rows=N_ROWS), text=private_rules())
    return standing


def order(standing):
    return standing.order("federated-kmeans", PARAMETERS, ranges=UNIT, quorum=0.8)


def test_a_private_run_takes_from_every_sites_budget_and_the_next_is_refused(private):
    found = private.run(order(private))
    assert found.outcome["status"] == "done"
    rows, result = load_digits().data[:N_ROWS] / 16, found.result
    centers = np.array(result["centers"])
    cost = ((rows[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()
    assert cost < 1.25 * KMeans(10, n_init=5, random_state=0).fit(rows).inertia_
    assert result["privacy"]["epsilon"] == 20.0
    assert result["privacy"]["bounds"] == "tables"
    assert result["privacy"]["sites"] == len(SITES)
    certificate = certificate_of(found)
    assert certificate.statements.keys() == set(SITES)
    for signed in certificate.statements.values():
        assert signed.statement.is_private
        assert 0.9 * 20.0 < signed.statement.epsilon <= 20.0 * (1 + 1e-9)
        assert signed.statement.bounds_table
    assert mu_of(BUDGET, DELTA) ** 2 < 2 * mu_of(20.0, DELTA) ** 2  # a second one is more than is left
    with pytest.raises(QuorumLost, match="less is left of the site's privacy budget than the order takes"):
        private.run(order(private))


def test_a_site_that_is_killed_leaves_a_private_sum_with_enough_noise(standing):
    """It comes back with what it was charged in its ledger, and the rest of the run does without it."""
    standing.hold(dealt_rows(standing.folder, n_rows=N_ROWS + 5), text=private_rules())
    rounds: list[int] = []

    def kill(event: dict) -> None:
        if event.get("event") == "exchange":
            rounds.append(1)
            if len(rounds) == 8:
                standing.signal("site-3", signal.SIGKILL)

    try:
        found = standing.run(order(standing), tell=kill)
    finally:
        standing.start("site-3")
        standing.await_all()
    assert found.outcome["status"] == "done", found.outcome
    assert found.result["privacy"]["tolerated"] == 1
    assert len(certificate_of(found).statements) == len(SITES) - 1
