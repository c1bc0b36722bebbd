"""k-means from small summaries and federated PCA as scikit-learn estimators."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as PooledPCA
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie
from coterie import EdgeKMeans, FederatedPCA, load_model, save_model
from coterie.errors import InputError
from coterie.methods.edge.stages import JL, DisPCA, DisSS, Sample
from coterie.sites.policy import Policy
from tests.federations import blobs, split_evenly

ROWS = blobs(240, 5, 3, seed=9)
SITES = np.arange(240) % 4
DIGITS = load_digits().data
OPEN = Policy(per_site_results="rows", method_protection={"nr": "none"})


@parametrize_with_checks([EdgeKMeans(3, random_state=0), FederatedPCA(1, random_state=0)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_the_default_finds_the_clusters_with_few_numbers():
    made = EdgeKMeans(3, random_state=0).fit(ROWS, sites=SITES)
    best = KMeans(3, n_init=10, random_state=0).fit(ROWS).inertia_
    assert made.inertia_ <= 1.002 * best
    assert made.ledger_.total("floats_up") <= 4 * (3 * 6 + 2 * 19 + 4)
    assert made.pipeline_ is None
    assert made.summary_ is None
    np.testing.assert_array_equal(made.labels_, made.predict(ROWS))
    with pytest.raises(InputError, match="no summary"):
        made.reduce(ROWS)


def test_stages_are_parameters_that_can_be_copied_and_are_sized_by_the_fit():
    made = EdgeKMeans(3, pipeline=[JL(4, "sparse"), DisPCA(), DisSS(60)], refine=1, random_state=0)
    again = clone(made).fit(ROWS, sites=SITES)
    assert again.pipeline_ == (JL(4, "sparse"), DisPCA(4, 4), DisSS(60))
    assert again.method == "jl+bklw"
    assert again.summary_.n_rows == pytest.approx(240)
    assert again.estimate_cost(again.cluster_centers_) == pytest.approx(again.inertia_, rel=0.5)
    assert EdgeKMeans(pipeline="jl+fss").method == "jl+fss"
    assert EdgeKMeans(pipeline=[Sample(9)]).method == "edge-kmeans"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pipeline": "jll"}, "there is no stage"),
        ({"refine": -1, "pipeline": "fss"}, "refine=-1 must be a whole number, at least 0"),
        ({"refine": 0.5, "pipeline": "fss"}, "whole number"),
        ({"budget": "abc", "pipeline": "fss"}, "budget='abc' must be a whole number, at least 1"),
        ({"budget": 2000.9}, "budget=2000.9 must be a whole number"),
        ({"accuracy": "x", "pipeline": "fss"}, "above 0"),
        ({"accuracy": 0.5, "pipeline": "jl:2+fss"}, "decides the sizes"),
        ({"center": "no", "pipeline": "fss"}, "True or False"),
        ({"pipeline": "+".join(["jl"] * 9)}, "at most 8"),
        ({"pipeline": "nr+fss"}, "stands alone"),
        ({"pipeline": "jl:²"}, "write sizes"),
        ({"pipeline": [JL(True)]}, "whole number"),
        ({"pipeline": [DisPCA(3, 2), DisSS()]}, "at least n_components"),
        ({"lift": "up", "pipeline": "fss"}, "'inverse'"),
        ({"accuracy": 0.5}, "not for 'auto'"),
        ({"budget": 0, "pipeline": "fss"}, "at least 1"),
        ({"n_clusters": 0}, "at least 1"),
        ({"pipeline": 3}, "a list of stages"),
    ],
)
def test_bad_parameters_are_said_before_anyone_is_asked(options, told):
    with pytest.raises(InputError, match=told):
        EdgeKMeans(**options).fit(ROWS)


@pytest.mark.parametrize("method", ["fss", "jl+fss", "jl+bklw", "nr"])
def test_rows_leave_only_where_every_site_allows_it(method):
    tables = split_evenly(ROWS, 4)
    with pytest.raises(
        InputError, match=f"{re.escape(method)} sends rows, projected or not, which the policy of site-0"
    ):
        coterie.fit(EdgeKMeans(3, pipeline=method, random_state=0), tables)
    made = coterie.fit(EdgeKMeans(3, pipeline=method, refine=2, random_state=0), tables, policy=OPEN)
    assert made.inertia_ <= 1.2 * KMeans(3, n_init=10, random_state=0).fit(ROWS).inertia_
    assert {e.seen for e in made.ledger_.exchanges if e.asked == "shared.Assign"} == {"masked"}


def test_the_default_works_under_the_default_policy_and_with_scaling(tmp_path):
    wild = ROWS * [1, 100, 0.01, 1, 5] + 7
    frames = {f"s{m}": pd.DataFrame(wild[m == SITES], columns=list("abcde")) for m in range(4)}
    made = coterie.fit(EdgeKMeans(3, random_state=0), frames, scale="standard")
    scaled = (wild - wild.mean(0)) / wild.std(0)
    centers = (made.cluster_centers_ - wild.mean(0)) / wild.std(0)
    found = ((scaled[:, None] - centers) ** 2).sum(-1).min(1).sum()
    assert found <= 1.02 * KMeans(3, n_init=10, random_state=0).fit(scaled).inertia_
    again = load_model(save_model(made, tmp_path / "model.json"))
    frame = pd.DataFrame(wild, columns=list("abcde"))
    np.testing.assert_array_equal(made.predict(frame), again.predict(frame))


def test_a_killed_run_with_stages_resumes_to_the_same_centers(tmp_path):
    tables, options = split_evenly(ROWS, 4), {"policy": OPEN, "journal": tmp_path / "journal"}
    stages = [JL(4), Sample(40)]
    first = coterie.fit(EdgeKMeans(3, pipeline=stages, random_state=0), tables, **options)
    again = coterie.fit(EdgeKMeans(3, pipeline=stages, random_state=0), tables, resume=True, **options)
    assert first.cluster_centers_.tobytes() == again.cluster_centers_.tobytes()


# ---------------------------------------------------------------- federated PCA


def same_axes(a, b, atol=1e-8):
    np.testing.assert_allclose(a.T @ a, b.T @ b, atol=atol)


@pytest.mark.parametrize("solver", ["local", "sums"])
@pytest.mark.parametrize("center", [True, False])
def test_components_are_those_of_the_pooled_rows(solver, center):
    shifted = DIGITS if center else DIGITS - DIGITS.mean(0) + 1e-9
    made = FederatedPCA(7, solver=solver, local_rank=64, center=center, random_state=0)
    made.fit(shifted, sites=np.arange(len(DIGITS)) % 6)
    pooled = PooledPCA(7).fit(DIGITS)
    same_axes(made.components_, pooled.components_)
    np.testing.assert_allclose(made.explained_variance_, pooled.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(made.explained_variance_ratio_, pooled.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(made.singular_values_, pooled.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(made.transform(shifted)), np.abs(pooled.transform(DIGITS)), atol=1e-7)
    back = made.inverse_transform(made.transform(shifted))
    expected = pooled.inverse_transform(pooled.transform(DIGITS))
    np.testing.assert_allclose(back - shifted.mean(0), expected - DIGITS.mean(0), atol=1e-7)
    assert made.solver_ == solver
    assert (made.components_[np.arange(7), np.abs(made.components_).argmax(1)] > 0).all()


def test_few_local_axes_are_nearly_as_good():
    made = FederatedPCA(5, solver="local", local_rank=10, random_state=0).fit(
        DIGITS, sites=np.arange(len(DIGITS)) % 6
    )
    pooled = PooledPCA(5).fit(DIGITS)
    captured = ((DIGITS - DIGITS.mean(0)) @ made.components_.T).var(axis=0).sum()
    assert captured >= 0.998 * pooled.explained_variance_.sum() * (len(DIGITS) - 1) / len(DIGITS)
    assert made.ledger_.total("floats_up") == 6 * (66 + 10 * 64 + 1)


def test_it_takes_what_is_less_and_what_sites_allow():
    tables = split_evenly(DIGITS, 4)
    few = FederatedPCA(2, solver="auto", random_state=0)
    assert coterie.fit(clone(few), tables).solver_ == "sums"  # per-site results are not seen by default
    averages = coterie.fit(clone(few), tables, policy=Policy(per_site_results="averages"))
    assert averages.solver_ == "local"
    many = coterie.fit(FederatedPCA(40, solver="auto", random_state=0), tables, policy=Policy.simulation())
    assert many.solver_ == "sums"
    assert coterie.fit(FederatedPCA(2), tables, policy=Policy.simulation()).exact_  # by default
    assert not coterie.fit(clone(few), tables).exact_  # fewer than 16 rows a column at every site


def test_components_over_groups_are_exact_where_sites_hold_many_rows_a_column():
    many = blobs(1000, 5, 3, seed=9)
    made = coterie.fit(FederatedPCA(3, random_state=0), split_evenly(many, 4))
    assert made.exact_
    same_axes(made.components_, PooledPCA(3).fit(many).components_, 1e-6)
    few = coterie.fit(FederatedPCA(3, random_state=0), split_evenly(ROWS[:200], 4))  # 50 rows of 5 columns a site
    assert not few.exact_
    shown = few.explained_variance_.sum() / PooledPCA(3).fit(ROWS[:200]).explained_variance_.sum()
    assert 0.95 < shown <= 1 + 1e-9


def test_prepared_rows_come_back_in_their_own_units(tmp_path):
    wild = ROWS * [1, 100, 0.01, 1, 5] + 7
    frames = {f"s{m}": pd.DataFrame(wild[m == SITES], columns=list("abcde")) for m in range(4)}
    made = coterie.fit(FederatedPCA(5, random_state=0), frames, scale="standard")
    frame = pd.DataFrame(wild, columns=list("abcde"))
    np.testing.assert_allclose(made.inverse_transform(made.transform(frame)), wild, rtol=1e-6, atol=1e-6)
    again = load_model(save_model(made, tmp_path / "axes.json"))
    np.testing.assert_array_equal(made.transform(frame), again.transform(frame))
    assert list(made.get_feature_names_out()) == [f"federatedpca{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_components": 6}, "1 to 5 are possible"),
        ({"n_components": 0}, "at least 1"),
        ({"n_components": None}, "at least 1"),
        ({"solver": "svd"}, "'sums', 'local' or 'auto'"),
        ({"n_components": 3, "local_rank": 2}, "must be at least n_components=3"),
    ],
)
def test_bad_parameters_of_pca_are_said(options, told):
    with pytest.raises(InputError, match=told):
        FederatedPCA(**options).fit(ROWS)


def test_clusters_may_be_counted_by_numpy():
    made = EdgeKMeans(np.int64(3), pipeline=[JL(np.int64(4)), Sample(np.int64(60))], random_state=0).fit(
        ROWS, sites=SITES
    )
    assert made.pipeline_ == (JL(4), Sample(60))
    assert EdgeKMeans(np.int64(3), pipeline=" Auto ", random_state=0).fit(ROWS).pipeline_ is None


@pytest.mark.parametrize("pipeline", ["fss", "dispca:3+disss:60", "disss:60", "pca:3+sample:60", "nr"])
def test_the_cost_of_any_centers_is_estimated_from_the_summary(pipeline):
    made = EdgeKMeans(3, pipeline=pipeline, random_state=0).fit(ROWS, sites=SITES)
    for seed in range(5):
        centers = np.random.default_rng(seed).normal(ROWS.mean(0), 2 * ROWS.std(0), (3, 5))
        true = ((ROWS[:, None] - centers) ** 2).sum(-1).min(1).sum()
        assert made.estimate_cost(centers) == pytest.approx(true, rel=0.15)


@pytest.mark.parametrize("pipeline", ["centers", "dispca:4+jl:3+sample:60"])
def test_where_no_cost_can_be_known_it_is_said(pipeline):
    made = EdgeKMeans(3, pipeline=pipeline, random_state=0).fit(ROWS, sites=SITES)
    with pytest.raises(InputError, match="no cost"):
        made.estimate_cost(made.cluster_centers_)


def test_more_clusters_than_rows_are_refused_over_tables_too():
    tables = split_evenly(ROWS[:40], 4)
    for pipeline in ("fss", "nr", "jl+bklw"):
        with pytest.raises(InputError, match="40 rows in all"):
            coterie.fit(EdgeKMeans(41, pipeline=pipeline, random_state=0), tables, policy=OPEN)
    with pytest.raises(InputError, match="40 rows in all"):
        coterie.fit(EdgeKMeans(41, random_state=0), tables, policy=Policy(protection="none"))


def test_axes_found_by_masked_sums_keep_their_digits_far_from_zero():
    rows = blobs(1000, 5, 3, seed=9)
    made = coterie.fit(FederatedPCA(3, solver="sums", random_state=0), split_evenly(rows + 1e6, 4))
    np.testing.assert_allclose(made.explained_variance_, PooledPCA(3).fit(rows).explained_variance_, rtol=1e-6)


def test_coarse_numbers_far_from_zero_are_centered_exactly():
    far = (ROWS + 1e5).astype(np.float32)
    made = EdgeKMeans(3, pipeline="fss", random_state=0).fit(far, sites=SITES)
    whole = EdgeKMeans(3, pipeline="nr", random_state=0).fit(far, sites=SITES)
    assert made.inertia_ <= 1.1 * whole.inertia_


def test_missing_values_are_filled_before_they_are_turned():
    holes = ROWS.copy()
    holes[::7, 2] = np.nan
    frames = {f"s{m}": pd.DataFrame(holes[m == SITES], columns=list("abcde")) for m in range(4)}
    made = coterie.fit(FederatedPCA(2, random_state=0), frames, missing="mean")
    assert np.isfinite(made.transform(pd.DataFrame(holes, columns=list("abcde")))).all()
