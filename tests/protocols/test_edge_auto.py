"""What sites allow of small summaries, and what is done where they do not allow rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.messages.schema import reply_type
from coterie.protocols.edge_auto import auto_kmeans
from coterie.protocols.edge_kmeans import edge_kmeans
from coterie.protocols.edge_questions import EdgeSettings
from coterie.protocols.edge_sites import SendSummary
from coterie.protocols.edge_stages import Centers, read_pipeline
from coterie.protocols.limits import within
from coterie.protocols.methods import METHODS
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly
from tests.protocols.edge_runs import ROWS, SIMULATED, cost, summarised

# ---------------------------------------------------------------- what sites allow


def test_every_pipeline_that_sends_rows_is_refused_by_default_and_says_so():
    assert reply_type(SendSummary).content == "rows"
    for name in ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"):
        assert "row" in METHODS[name].discloses
        assert "rows" in METHODS[name].single_answers
        for policy in (Policy(min_roster=1), Policy(single_answers="averages", min_roster=1, gram_rows=0)):
            with pytest.raises(QuorumLost), in_process(split_evenly(ROWS, 3), policy=policy) as channel:
                run(edge_kmeans(EdgeSettings(read_pipeline(name)), 4, 6, seed=0), channel, method=name)


@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_takes_what_sites_allow_and_sees_no_more(allowed):
    policy, ledger = Policy(single_answers=allowed), Ledger()
    limits = {"rows": 256.0, "box": 64.0}
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        made = run(
            within(limits, auto_kmeans(4, 6, seed=0)), channel, method="edge-kmeans", layers=[MaskedSums()],
            ledger=ledger,
        )  # fmt: skip
    best = KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_
    assert cost(ROWS, made.centers) <= 1.02 * best
    singles = {e.asked for e in ledger.exchanges if e.seen == "single" and e.phase == "algorithm"}
    assert singles == {"seeding.Summarise"}  # asked in both cases, and refused in one
    assert (ledger.total("floats_up") > 4 * 4 * 7 + 2 * 4 * 29) == (allowed == "none")


@pytest.mark.parametrize("budget", [200, 400, 2_000, 5_000])
@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_keeps_to_its_budget(budget, allowed):
    policy, ledger = Policy(single_answers=allowed, min_roster=1, min_count=1), Ledger()
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        protocol = within({"rows": 256.0, "box": 64.0}, auto_kmeans(4, 6, seed=0, budget=budget))
        try:
            run(protocol, channel, method="edge-kmeans", ledger=ledger, layers=[MaskedSums()])
        except (InputError, QuorumLost):
            assert allowed == "none"
            assert budget <= 400
    assert ledger.total("floats_up") <= budget


def test_auto_keeps_to_its_budget_where_a_start_was_tried_in_vain():
    """Too few own centers; one site of four that does not let its averages be seen; cells that do not double."""
    rows = blobs(48, 5, 4)
    few = {f"s{i}": ArrayTable(rows[i::4]) for i in range(4)}
    for budget in (600, 728, 1000, 1500, 2200):
        ledger = Ledger()
        with in_process(few) as channel:
            try:
                run(
                    auto_kmeans(6, 5, seed=0, budget=budget, min_count=5),
                    channel,
                    method="edge-kmeans",
                    ledger=ledger,
                )
            except InputError as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    powers = {f"s{i}": ArrayTable(4.0 ** np.arange(i, 48, 4)[:, None] * [1.0, 0.5]) for i in range(4)}
    closed = {"s0": Policy(min_roster=1, min_count=1), **dict.fromkeys(["s1", "s2", "s3"], SIMULATED)}
    for budget in (300, 500, 616, 900):
        ledger = Ledger()
        with in_process(powers, policy=closed) as channel:
            try:
                run(auto_kmeans(4, 2, seed=0, budget=budget), channel, method="edge-kmeans", ledger=ledger)
            except (InputError, QuorumLost) as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    assert told


def test_a_site_that_drops_out_in_mid_run_is_left_out():
    tables = split_evenly(ROWS, 4)
    for when in range(6):
        schedule = Schedule([Fault("site-3", "drop", frozenset(range(when, 20)))])
        with in_process(tables, schedule=schedule) as channel:
            made = run(
                edge_kmeans(EdgeSettings(read_pipeline("jl:3+bklw"), refine=2), 4, 6, seed=0),
                channel, method="jl+bklw", terms=Terms(quorum=0.5, resends=0),
            )  # fmt: skip
        assert made.counts.sum() == 180


def test_own_centers_hold_no_row_and_stand_for_enough():
    policy = Policy(single_answers="averages", min_roster=1)
    made = summarised("jl:3+centers", split_evenly(ROWS, 3), policy=policy)
    assert made.summary.weights.min() >= 5
    assert made.pipeline.points == Centers(4)
