"""What sites allow of small summaries, and what is done where they do not allow rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.messages.schema import reply_type
from coterie.methods.edge.auto import auto_kmeans
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.sites import SendSummary
from coterie.methods.edge.stages import Centers, read_pipeline
from coterie.methods.method import RunContext
from coterie.methods.registry import METHODS
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly
from tests.invariants.test_every_protocol import floats_of_algorithm
from tests.methods.edge_runs import ROWS, cost, summarised

# ---------------------------------------------------------------- what sites allow


def test_every_pipeline_that_sends_rows_is_refused_by_default_and_says_so():
    assert reply_type(SendSummary).content == "rows"
    for name in ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"):
        assert "row" in METHODS[name].discloses
        assert "rows" in METHODS[name].per_site_results
        for policy in (Policy(min_roster=1, verification="off"), Policy(per_site_results="averages", min_roster=1)):
            with pytest.raises(QuorumLost), in_process(split_evenly(ROWS, 3), policy=policy) as channel:
                run(edge_kmeans(EdgeSettings(pipeline=read_pipeline(name)), 4, 6, seed=0), channel, method=name)


@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_takes_what_sites_allow_and_sees_no_more(allowed):
    policy, ledger = Policy(per_site_results=allowed, verification="off"), Ledger()
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        made = run(
            auto_kmeans(EdgeSettings(), 4, RunContext(6, averages=allowed == "averages")), channel,
            method="edge-kmeans", layers=[MaskedSums()], ledger=ledger,
        )  # fmt: skip
    best = KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_
    assert cost(ROWS, made.centers) <= 1.02 * best
    singles = {e.asked for e in ledger.exchanges if e.seen == "single" and e.phase == "algorithm"}
    assert singles == ({"shared.Summarise"} if allowed == "averages" else set())  # nobody is asked to refuse
    assert (floats_of_algorithm(ledger) > 4 * 4 * 7 + 2 * 4 * 29) == (allowed == "none")


@pytest.mark.parametrize("budget", [200, 400, 2_000, 5_000])
@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_keeps_to_its_budget(budget, allowed):
    policy, ledger = Policy(per_site_results=allowed, verification="off", min_roster=1, protection="none"), Ledger()
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        steps = auto_kmeans(EdgeSettings(budget=budget), 4, RunContext(6, averages=allowed == "averages"))
        try:
            run(steps, channel, method="edge-kmeans", ledger=ledger, layers=[MaskedSums()])
        except InputError:
            assert allowed == "none"
            assert budget <= 400
    assert floats_of_algorithm(ledger) <= budget


def test_auto_keeps_to_its_budget_where_a_start_was_tried_in_vain():
    """Too few own centers; averages that may not be seen; cells that do not double."""
    rows = blobs(48, 5, 4)
    few = {f"s{i}": ArrayTable(rows[i::4]) for i in range(4)}
    for budget in (600, 728, 1000, 1500, 2200):
        ledger = Ledger()
        with in_process(few) as channel:
            try:
                run(
                    auto_kmeans(EdgeSettings(budget=budget), 26, RunContext(5)),
                    channel,
                    method="edge-kmeans",
                    ledger=ledger,
                )
            except InputError as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    powers = {f"s{i}": ArrayTable(4.0 ** np.arange(i, 48, 4)[:, None] * [1.0, 0.5]) for i in range(4)}
    for budget in (300, 500, 616, 900):
        ledger = Ledger()
        with in_process(powers) as channel:
            try:
                steps = auto_kmeans(EdgeSettings(budget=budget), 4, RunContext(2, averages=False))
                run(steps, channel, method="edge-kmeans", ledger=ledger)
            except InputError as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    assert told


def test_a_site_that_drops_out_in_mid_run_is_left_out():
    tables = split_evenly(ROWS, 4)
    for when in range(6):
        schedule = Schedule([Fault("site-3", "drop", frozenset(range(when, 20)))])
        with in_process(tables, schedule=schedule) as channel:
            made = run(
                edge_kmeans(EdgeSettings(pipeline=read_pipeline("jl:3+bklw"), refine=2), 4, 6, seed=0),
                channel, method="jl+bklw", terms=Terms(quorum=0.5, resends=0),
            )  # fmt: skip
        assert made.counts.sum() == 180


def test_own_centers_stand_for_all_rows():
    policy = Policy(per_site_results="averages", min_roster=1, protection="none")
    made = summarised("jl:3+centers", split_evenly(ROWS, 3), policy=policy)
    assert made.summary.weights.sum() == pytest.approx(len(ROWS))
    assert made.pipeline.points == Centers(4)
