"""Two halves compared in a verified run: sites that drop out on the way, and a server that is restarted there."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans
from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.estimators.fitting import fit_over
from coterie.methods.shared.halves import drawn_halves
from coterie.methods.shared.preparation import PreparationOptions
from coterie.report.outputs import result_of
from coterie.runtime.journal import Journal
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs
from tests.runtime.test_journal import Killed, Killing

ROWS = blobs(240, 3, 3, seed=4)
NAMES = [f"s{i}" for i in range(6)]
TABLES = {name: ArrayTable(ROWS[i::6]) for i, name in enumerate(NAMES)}
COLUMNS = {name: table.columns for name, table in TABLES.items()}
FOREVER = 100


def kmeans():
    return FederatedKMeans(3, init=ROWS[:3], max_rounds=2, random_state=0)


def fitted(*, rosters="shrinking", **options):
    return coterie.fit(kmeans(), TABLES, policy=Policy(halves=True, rosters=rosters), halves=True, **options)


@pytest.fixture(scope="module")
def run():
    return fitted()


def rounds_of_halves(model):
    """The rounds in which the two halves are asked to send their sums."""
    return [e.round for e in model.ledger_.exchanges if e.asked.endswith("CompareHalf")]


def test_halves_add_up_and_every_site_checks_both_to_the_end(run):
    one, other = run.halves_.halves
    assert sorted(one.sites + other.sites) == NAMES
    np.testing.assert_allclose(one.counts + other.counts, run.counts_, atol=1e-6)
    verified = [signed.statement for signed in run.certificate_.statements.values()]
    assert len(verified) == len(NAMES)
    assert all(statement.is_whole for statement in verified)
    assert len({statement.verified for statement in verified}) == 1


@pytest.mark.parametrize("rosters", ["shrinking", "fixed"])
@pytest.mark.parametrize("quorum", [1.0, 0.5])
@pytest.mark.parametrize("half", [0, 1])
def test_a_site_that_drops_out_of_a_half_leaves_the_halves_uncompared(run, half, quorum, rosters):
    """Its rows are in the clusters already; the others sign that they ran the method to its end."""
    lost = run.halves_.halves[half].sites[0]
    dropout = Fault(lost, "drop", frozenset(range(rounds_of_halves(run)[half], FOREVER)))
    model = fitted(rosters=rosters, schedule=Schedule([dropout]), terms=Terms(deadline=5, quorum=quorum))
    assert (model.halves_.halves, model.halves_.why_not) == (None, "a site dropped out on the way")
    np.testing.assert_array_equal(model.cluster_centers_, run.cluster_centers_)
    assert "were not compared: a site dropped out" in result_of(model, list("abc"), {})["summary"]
    statements = model.certificate_.statements
    assert statements.keys() == {*NAMES} - {lost}
    assert all(signed.statement.is_whole for signed in statements.values())


def test_a_site_that_drops_out_before_the_halves_are_drawn_is_in_neither(run):
    """Between the last sum over all sites and the halves the others do without it: the half that it is in is gone."""
    lost = run.halves_.halves[1].sites[-1]
    before = rounds_of_halves(run)[0] - 2  # the last sum's upload: those left are asked again
    schedule = Schedule([Fault(lost, "drop", frozenset(range(before, FOREVER)))])
    policy = Policy(halves=True, min_roster=2)
    model = coterie.fit(
        kmeans(), TABLES, policy=policy, halves=True, schedule=schedule, terms=Terms(deadline=5, quorum=0.5)
    )
    one, other = model.halves_.halves
    assert sorted(one.sites + other.sites) == sorted({*NAMES} - {lost})
    assert all(signed.statement.is_whole for signed in model.certificate_.statements.values())


def killed(folder, at, *, after, **options):
    """A run that is killed at its n-th exchange; or its estimator."""
    with in_process(TABLES, policy=Policy(halves=True), folder=folder / "sites") as channel:
        return fit_over(
            Killing(channel, at, after),
            kmeans(),
            COLUMNS,
            PreparationOptions(halves=True),
            order=channel.analyst,
            journal=Journal(folder / "journal", **options),
        )


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_run_resumed_in_the_middle_of_the_halves_compares_the_same_halves(run, tmp_path, place, after):
    """Killed at the upload or the unmasking of the first half, or of the second, before sites answer or after."""
    with pytest.raises(Killed):
        killed(tmp_path, rounds_of_halves(run)[0] + place, after=after)
    model = killed(tmp_path, 10_000, after=False, resume=True)
    assert tuple(half.sites for half in model.halves_.halves) == drawn_halves(tuple(NAMES), model.public_seed_)
    total = sum(half.counts for half in model.halves_.halves)
    np.testing.assert_allclose(total, model.counts_, atol=1e-6)
    assert set(model.certificate_.statements) == set(NAMES)
    assert all(signed.statement.is_whole for signed in model.certificate_.statements.values())
