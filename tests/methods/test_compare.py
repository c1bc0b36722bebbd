"""Two models labelling the same rows at their sites: the sums are those of pooled labels."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans
from coterie.errors import InputError
from coterie.estimators.comparing import matched_centers, rule_of, same_units
from coterie.methods.analysis.compare import ClusterRule, CompareSettings
from coterie.sites.policy import Policy
from tests.federations import blobs

ROWS = blobs(240, 4, 4, seed=3, spread=4.0) * [1, 5, 20, 0.1] + 3
HOLES = np.where(np.random.default_rng(0).random(ROWS.shape) < 0.05, np.nan, ROWS)
PLAIN = {"sums": "plain", "policy": "simulation"}


def frames(rows, names="abcd"):
    return [pd.DataFrame(part, columns=list(names)) for part in np.array_split(rows, 4)]


def model(rows, k, names="abcd", kind=FederatedKMeans, **options):
    more = {"gamma": 0.1} if kind is FederatedKernelKMeans else {}
    tables = [part[list(names)] for part in frames(rows)]
    return coterie.fit(kind(k, **more, random_state=k), tables, scale="standard", **options)


def true_cost(fitted, rows):
    prepared = fitted.prepared_rows(rows)
    return float(((prepared[:, None] - fitted._prepared_centers) ** 2).sum(-1).min(1).sum())


@pytest.mark.parametrize("sums", ["plain", "masked"])
@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_over_rows_it_is_exactly_the_pooled_labels(sums, missing):
    rows = ROWS if missing == "refuse" else HOLES
    first, second = model(rows, 4, missing=missing), model(rows, 3, "dba", missing=missing)
    made = coterie.compare(first, second, frames(rows), policy="simulation", sums=sums)
    own, other = first.labels_, second.labels_
    np.testing.assert_allclose(made.table, contingency_matrix(own, other), atol=1e-6)
    assert made.ari == pytest.approx(adjusted_rand_score(own, other), abs=1e-9)
    assert made.costs[0] == pytest.approx(true_cost(first, rows), rel=1e-6)
    assert made.costs[1] == pytest.approx(true_cost(second, rows[:, [3, 1, 0]]), rel=1e-6)
    assert (made.counts_are, made.cost_is, made.unlabelled) == ("rows", "exact", pytest.approx(0, abs=1e-6))


def test_over_groups_sizes_add_up_and_costs_are_bounds():
    first, second = model(ROWS, 4), model(ROWS, 5)
    made = coterie.compare(first, second, frames(ROWS))
    assert made.table.sum() == 240
    assert (made.counts_are, made.cost_is) == ("whole_groups", "at_most")
    for fitted, cost in zip((first, second), made.costs, strict=True):
        assert true_cost(fitted, ROWS) <= cost <= 1.3 * true_cost(fitted, ROWS)
    assert {one.seen for one in made.ledger.exchanges if one.phase == "algorithm"} <= {"masked", "single"}


def test_rows_that_a_model_leaves_out_count_as_unlabelled():
    first, second = model(HOLES, 4, missing="drop"), model(HOLES, 3, missing="mean")
    made = coterie.compare(first, second, frames(HOLES), **PLAIN)
    whole = first.labels_ >= 0
    assert made.unlabelled == (~whole).sum() > 0
    np.testing.assert_array_equal(made.table, contingency_matrix(first.labels_[whole], second.labels_[whole]))
    costs = [true_cost(fitted, HOLES[whole]) for fitted in (first, second)]
    assert made.costs == pytest.approx(costs, rel=1e-9)  # of the same rows


def test_kernel_models_agree_by_their_labels_without_a_cost():
    first, second = model(ROWS, 4), model(ROWS, 4, kind=FederatedKernelKMeans)
    made = coterie.compare(first, second, frames(ROWS), **PLAIN)
    assert made.ari == pytest.approx(adjusted_rand_score(first.labels_, second.labels_))
    assert made.costs[1] is None
    assert made.centers is None
    assert not made.same_units


def test_a_model_compared_with_itself_agrees_wholly():
    first = model(ROWS, 4)
    made = coterie.compare(first, first, frames(ROWS))
    assert made.ari == 1
    assert made.costs[0] == made.costs[1]
    assert made.same_units
    assert [i for i, j in made.centers.pairs if i != j] == []


def test_centers_are_matched_as_the_best_of_all_permutations():
    first, second = model(ROWS, 3), model(ROWS, 4, "cabd")
    made = matched_centers(first, second)
    other = second.cluster_centers_[:, [1, 2, 0, 3]]
    squared = np.sqrt((((first.cluster_centers_[:, None] - other) / first.preparation_.scale) ** 2).sum(-1))
    best = min(sum(squared[i, j] for i, j in enumerate(chosen)) for chosen in permutations(range(4), 3))
    assert sum(made.distances) == pytest.approx(best)
    assert made.unmatched[0] == []
    assert len(made.unmatched[1]) == 1
    assert matched_centers(first, model(ROWS, 3, "abc")) is None


def test_costs_are_comparable_only_in_the_same_units():
    first = model(ROWS, 3)
    assert same_units(first, model(ROWS, 4, "dcba"))
    assert not same_units(first, model(ROWS * 2, 3))
    assert not same_units(first, model(ROWS, 3, "abc"))


def test_what_cannot_be_compared_is_refused():
    first = model(ROWS, 3)
    with pytest.raises(InputError, match="FederatedPCA is no fitted model of clusters"):
        coterie.compare(first, coterie.FederatedPCA().fit(ROWS), frames(ROWS))
    dspgd = coterie.DSPGDKernelKMeans(2, n_features=8, n_iter=2, gamma=0.1).fit(ROWS)
    with pytest.raises(InputError, match="DSPGDKernelKMeans embeds rows by more than a few landmarks"):
        coterie.compare(first, dspgd, frames(ROWS))
    with pytest.raises(InputError, match="there is no column 'd'"):
        coterie.compare(first, first, [part[["a", "b", "c"]] for part in frames(ROWS)])
    with pytest.raises(InputError, match="compare cannot be run privately"):
        coterie.compare(first, first, frames(ROWS), policy="private")


@pytest.mark.parametrize("change", [
    {"columns": ["a", "b", "c"]},
    {"columns": ["a", "a", "b", "c"]},
    {"centers": [[1.0, 2.0]]},
    {"centers": []},
    {"centers": [[1.0, 2.0, 3.0, float("nan")]]},
    {"preparation": {"missing": "mean"}},
    {"preparation": {"missing": "drop", "fill": [0.0] * 4, "shift": [0.0] * 4, "scale": [1.0, 1, 1, 0]}},
    {"embedding": "identity"},
])  # fmt: skip
def test_a_site_takes_no_nonsense_for_a_model(change):
    raw = rule_of(model(ROWS, 3))
    assert ClusterRule.of(raw).is_sound
    with pytest.raises(InputError, match="no model of clusters"):
        ClusterRule.of(raw | change)
    with pytest.raises(InputError, match="no model of clusters"):
        CompareSettings(first=raw, second=raw | change).check(4)


def test_policies_that_let_orders_choose_no_points_refuse_it():
    first = model(ROWS, 3)
    with pytest.raises(Exception, match=r"points|choose"):
        coterie.compare(first, first, frames(ROWS), policy=Policy(orders_may_choose=frozenset()))
