"""A plan says what the ledger says afterwards: exactly where rows decide nothing, between two ends elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.engines.inprocess import in_process
from coterie.estimators.registry import KINDS
from coterie.extents import Extent
from coterie.planning.amounts import Rehearsals, bytes_down, bytes_up
from coterie.planning.made_up import Rules, made_up
from coterie.planning.rehearsal import rehearsed
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from tests.federations import blobs
from tests.invariants.cases import CASES
from tests.invariants.test_every_protocol import ROWS

FIXED = {"nr", "ck", "fss+jl", "federated-pca", "compare", "one-shot", "dpca", "federated-kmeans", "jl+fss+jl"}
"""Methods of which a case has nothing that rows decide."""


def rehearsal(case, tables, is_masked, extent):
    """A rehearsal of a case over made-up tables."""
    return rehearsed(
        lambda _: case.protocol(ROWS),
        lambda: {name: made_up(table, Rules(each=True), i) for i, (name, table) in enumerate(tables.items())},
        dict.fromkeys(tables, Policy.simulation()),
        case.method,
        extent,
        is_masked=is_masked,
    )


def rehearsals(case, tables, is_masked):
    """What a plan rehearses."""
    likely = rehearsal(case, tables, is_masked, Extent.AS_MADE_UP)
    if not likely.is_open:
        return Rehearsals(likely, likely, likely)
    ends = (rehearsal(case, tables, is_masked, extent) for extent in (Extent.LEAST, Extent.MOST))
    return Rehearsals(*ends, likely)


def amounts(made, sites):
    """Every amount of a plan, and how a ledger measures it."""
    measures = {
        what: (made.amount(measure), measure)
        for what, measure in {
            "floats_up": lambda ledger: ledger.total("floats_up"),
            "rounds": lambda ledger: ledger.total("rounds"),
            "rounds_masking": lambda ledger: ledger.total("rounds_masking"),
            "exchanges": lambda ledger: len(ledger.exchanges),
        }.items()
    }
    for site in (None, *sites):
        measures[f"bytes up {site}"] = bytes_up(made, site), lambda ledger, site=site: ledger.total("bytes_up", site)
        measures[f"bytes down {site}"] = (
            bytes_down(made, site),
            lambda ledger, site=site: ledger.total("bytes_down", site),
        )
    return measures


@pytest.mark.parametrize("is_masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_is_what_the_ledger_says(case, is_masked):
    tables, ledger = case.split(ROWS, 4), Ledger()
    layers = [MaskedSums()] if is_masked else [PlainSums()]
    with in_process(tables) as channel:
        run(case.protocol(ROWS), channel, method=case.method, layers=layers, ledger=ledger)
    made = rehearsals(case, tables, is_masked)
    for what, (amount, measure) in amounts(made, tables).items():
        assert measure(ledger) in amount, what
        assert amount.is_exact or made.likely.is_open, what
        assert amount.most is not None, what
        assert amount.least <= amount.likely <= amount.most, what


def test_many_methods_are_planned_exactly():
    """Nothing is open that rows do not decide: the bracket is no excuse."""
    made = [(case.method, rehearsal(case, case.split(ROWS, 4), False, Extent.AS_MADE_UP)) for case in CASES]
    assert {method for method, likely in made if not likely.is_open} >= FIXED


WHOLE = {name: blobs(rows, 5, 3, seed=seed) for name, rows, seed in (("n", 400, 1), ("south", 90, 2), ("w", 210, 3))}
RANGES = np.full(5, -20.0), np.full(5, 20.0)
RUNS = {
    "plain": {"sums": "plain", "policy": "simulation"},
    "masked": {"policy": "research"},
    "verified": {"scale": "standard"},
    "private": {"policy": "private", "ranges": RANGES, "scale": "standard"},
}


def small(name):
    """An estimator of the class with this name, which soon ends."""
    kind = KINDS[name]
    given = {"n_clusters": 3, "n_components": 2, "n_iter": 3, "max_clusters": 4, "random_state": 0}
    left_out = {"n_components"} if hasattr(kind, "n_clusters") else set()
    return kind(**{key: value for key, value in given.items() if hasattr(kind, key) and key not in left_out})


def assert_within(planned, ledger):
    for what in ("bytes_up", "bytes_down", "rounds", "rounds_masking"):
        assert ledger.total(what) in getattr(planned, what), what
    assert ledger.total("floats_up") in planned.values_up
    assert len(ledger.exchanges) in planned.exchanges
    for site, own in planned.sites.items():
        assert ledger.total("bytes_up", site) in own.bytes_up
        assert ledger.total("bytes_down", site) in own.bytes_down
        assert ledger.total("rounds", site) + ledger.total("rounds_masking", site) in own.questions


BY_SUMS = [
    "FederatedKMeans", "LloydKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "FederatedPCA",
    "DSPGDKernelKMeans", "DSPGDKernelPCA", "EdgeKMeans", "NumberOfClusters", "NumberOfKernelClusters",
]  # fmt: skip
PRIVATELY = ["FederatedKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "FederatedPCA", "NumberOfClusters"]


@pytest.mark.filterwarnings("ignore::coterie.errors.NoiseWarning")
@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in BY_SUMS for how in ("plain", "masked", "verified")]
    + [(name, "private") for name in PRIVATELY],
)
def test_a_whole_run_is_what_its_plan_says(name, how):
    estimator, options = small(name), dict(RUNS[how])
    if how == "private":
        estimator.set_params(privacy=coterie.Privacy(epsilon=4.0))
    elif name.endswith("KMeans"):
        options["profile"] = True
    (planned,) = coterie.plan(estimator, WHOLE, **options).methods
    assert (planned.is_verified, planned.is_masked) == (how in ("verified", "private"), how != "plain")
    assert_within(planned, coterie.fit(estimator, WHOLE, **options).ledger_)


@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_a_run_over_columns_is_what_its_plan_says(tolerance):
    rows = blobs(60, 6, 3, seed=4)
    tables = {"lab": rows[:, :2], "imaging": rows[:, 2:]}
    estimator = coterie.VerticalKernelKMeans(3, gamma=0.1, tolerance=tolerance, random_state=0)
    (planned,) = coterie.plan(estimator, tables, policy="simulation", profile=True).methods
    assert_within(planned, coterie.fit(estimator, tables, policy="simulation", profile=True).ledger_)


def unlike(kind):
    """Rows that are not like made-up ones."""
    rng = np.random.default_rng(7)
    rows = {
        "noise": rng.uniform(size=(700, 5)),
        "few values": np.array([0, 5, 0, 0, 0]) + rng.integers(0, 2, (700, 5)),
        "far out": np.exp(3 * rng.normal(size=(700, 5))),
        "far from 0": 1e5 + rng.normal(size=(700, 5)),
        "a constant": np.column_stack([rng.normal(size=(700, 4)), np.full(700, 3.0)]),
    }[kind]
    return dict(zip(("n", "south", "w"), np.split(rows, [400, 490]), strict=True))


@pytest.mark.parametrize("kind", ["noise", "few values", "far out", "far from 0", "a constant"])
@pytest.mark.parametrize(
    ("name", "how", "more"),
    [
        ("FederatedKMeans", "verified", {"scale": "robust", "profile": True}),
        ("FederatedKMeans", "plain", {"n_clusters": 8, "max_rounds": 0}),  # so that only the start is open
        ("LloydKMeans", "plain", {"n_clusters": 8, "init": "random", "n_init": 8, "max_rounds": 0}),
        ("FederatedKernelKMeans", "verified", {}),
        ("TableDescriber", "verified", {}),
    ],
    ids=["k-means, robust", "a start", "random starts", "kernel k-means", "description"],
)
def test_the_ends_hold_for_rows_unlike_made_up_ones(kind, how, name, more):
    estimator, tables = small(name), unlike(kind)
    options = {key: RUNS[how][key] for key in RUNS[how] if name != "TableDescriber"}
    for key, value in more.items():
        if hasattr(estimator, key):
            estimator.set_params(**{key: value})
        else:
            options[key] = value
    (planned,) = coterie.plan(estimator, tables, **options).methods
    assert_within(planned, coterie.fit(estimator, tables, **options).ledger_)
