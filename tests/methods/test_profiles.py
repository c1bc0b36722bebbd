"""Profiles of clusters equal those of the pooled rows with the same labels, in original units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.estimators.registry import make_estimator
from coterie.maths.quantiles import CLOSE, QUARTILES
from coterie.messages.schema import Floats
from coterie.messages.verbs import total
from coterie.methods.shared.agreement import UseColumns
from coterie.methods.shared.cluster_profiles import PHASE, ByCenters, profiled
from coterie.methods.shared.lloyd import Close
from coterie.methods.shared.profiles import MOST_COUNTED, count_units
from coterie.report.profiles import profile_facts
from coterie.runtime.run import run
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable

ROWS = Policy(protection="none")
METHODS = {
    "lloyd": {},
    "federated-kmeans": {},
    "landmarks": {"n_landmarks": 12},
    "dspgd": {"n_features": 8, "n_iter": 2},
    "edge-kmeans": {},
}


def patients(n: int = 400, seed: int = 0, *, missing: float = 0.0) -> pd.DataFrame:
    """Columns in very different units: one far from zero, one of 0 and 1, one with a long tail."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "temperature": rng.normal(kind * 4, 1),
            "pressure": rng.normal(100 + kind * 30, 10),
            "time": 1.7e9 + rng.normal(kind * 100, 30),
            "smokes": (rng.random(n) < 0.2 + 0.3 * kind).astype(float),
            "stay": rng.exponential(1 + kind),
            "age": np.round(rng.normal(50 + 8 * kind, 12)),
        }
    )
    return frame.mask(rng.random(frame.shape) < missing)


def shared_out(frame: pd.DataFrame, n_sites: int = 4) -> dict[str, pd.DataFrame]:
    return {f"site-{i}": frame[i::n_sites] for i in range(n_sites)}


def start_of(frame: pd.DataFrame) -> dict[str, list[list[float]]]:
    """Three rows, as they are scaled, to start from."""
    return {"init": ((frame[:3] - frame.mean()) / frame.std(ddof=0)).to_numpy().tolist()}


def fitted(frame, method="lloyd", *, policy=ROWS, n_sites=4, options=None, **how):
    how = {"scale": "standard", "profile": True, **how}
    estimator = make_estimator(method, {"n_clusters": 3, "random_state": 1, **(options or {})})
    return coterie.fit(estimator, shared_out(frame, n_sites), policy=policy, **how)


def pooled(frame: pd.DataFrame, labels) -> dict[str, Floats]:
    """The profile of rows in one place; a tail of exactly rounded sums, because of columns far from zero."""
    parts = [frame[labels == i] for i in range(3)]
    middle = frame.mean()
    return {
        "present": np.array([part.count() for part in parts], float),
        "means": np.array([(part - middle).mean() + middle for part in parts]),
        "deviations": np.array([(part - middle).std(ddof=0) for part in parts]),
        "quartiles": np.array([[part[c].quantile(QUARTILES) for c in part] for part in parts]),
    }


def summed(protocol, tables):
    """What a protocol comes to over plain sums."""
    with in_process(tables) as channel:
        return run(protocol, channel, method="lloyd")


def assert_is_profile(profile, frame, labels):
    """Means, shares, deviations and counts to 1e-9, quartiles within a tenth of a deviation."""
    truth, unit = pooled(frame, labels), frame.std(ddof=0).to_numpy()
    assert np.array_equal(profile.present.round(6), truth["present"])
    assert (np.abs(profile.means - truth["means"]) <= 1e-9 * unit + 4 * np.spacing(np.abs(truth["means"]))).all()
    assert np.allclose(profile.deviations, truth["deviations"], rtol=1e-7, atol=1e-12)
    away = np.abs(profile.quartiles - truth["quartiles"]) / truth["deviations"][..., None]
    assert (away[:, ~profile.is_share] <= CLOSE * (1 + 1e-6)).all()
    assert np.isnan(profile.quartiles[:, profile.is_share]).all()
    assert np.allclose(profile.whole_means, frame.mean(), rtol=1e-12)
    assert np.allclose(profile.whole_deviations, frame.std(ddof=0), rtol=1e-7)
    between = (truth["present"] * (truth["means"] - frame.mean().to_numpy()) ** 2).sum(axis=0)
    assert np.allclose(profile.shares_between, between / (truth["present"].sum(axis=0) * unit**2), rtol=1e-6)


@pytest.mark.parametrize("sums", ["plain", "masked"])
@pytest.mark.parametrize("method", METHODS)
def test_profiles_equal_those_of_the_pooled_rows(method, sums):
    """Masked sums are verified, too: sites come to the bins themselves."""
    frame = patients()
    policy = Policy.simulation() if sums == "plain" else ROWS
    model = fitted(frame, method, options=METHODS[method], sums=sums, policy=policy)
    assert_is_profile(model.profiles_, frame, model.predict(frame))
    assert list(model.profiles_.is_share) == [name == "smokes" for name in frame]
    assert model.profiles_.columns == tuple(frame)
    assert not model.profiles_.over_groups


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_missing_values_are_counted_and_left_out(missing):
    frame = patients(missing=0.05)
    model = fitted(frame, missing=missing)
    used = frame if missing == "mean" else frame.dropna()
    labels = model.predict(used)
    assert_is_profile(model.profiles_, used, labels)
    lacking = [used[labels == i].isna().sum() for i in range(3)]
    assert np.array_equal(model.profiles_.missing.round(6), lacking)


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_columns_that_clusters_are_not_made_of(missing):
    """Sites hold them in another order, and lack values of them: no row is left out for that."""
    frame = patients(missing=0.05)
    frame = frame[["age", *frame.columns.drop("age")]]
    model = fitted(frame, missing=missing, profile=["age", "stay"])
    used = [name for name in frame if name not in ("age", "stay")]
    assert list(model.feature_names_in_) == used
    rows = frame if missing == "mean" else frame[frame[used].notna().all(axis=1)]
    assert_is_profile(model.profiles_, rows[[*used, "age", "stay"]], model.predict(rows[used]))


def test_named_columns_may_be_described_by_others():
    frame = patients()
    model = fitted(frame, columns=["pressure", "temperature"], profile=["smokes", "pressure"])
    assert model.profiles_.columns == ("pressure", "temperature", "smokes")
    labels = model.predict(frame[["pressure", "temperature"]])
    assert_is_profile(model.profiles_, frame[list(model.profiles_.columns)], labels)


def test_ranges_hold_for_profiles_as_well():
    """No site can move a mean by more than the range allows, whatever it holds."""
    frame = patients()
    low, high = frame.quantile(0.1).to_numpy(), frame.quantile(0.9).to_numpy()
    model = fitted(frame, ranges=(low, high))
    assert_is_profile(model.profiles_, frame.clip(low, high, axis=1), model.predict(frame))
    asked = [one.asked.rpartition(".")[2] for one in model.ledger_.exchanges if one.phase == PHASE]
    assert asked == ["SumByCluster", "CountByCluster"]


@pytest.mark.parametrize("method", ["ck", "sk", "rfk", "ce-pca", "fss"])
def test_the_same_for_methods_that_see_rows(method):
    """Also where only the server can label rows, and sites hold columns in another order."""
    frame = patients(120)
    tables = {
        name: part[part.columns[::-1]] if name == "site-1" else part for name, part in shared_out(frame).items()
    }
    estimator = make_estimator(method, {"n_clusters": 3, "random_state": 1})
    model = coterie.fit(estimator, tables, policy=Policy.simulation(), sums="plain", scale="standard", profile=True)
    assert_is_profile(model.profiles_, frame, model.predict(frame))


@pytest.mark.parametrize("keyed", [False, True])
def test_where_sites_hold_columns_of_the_same_rows(keyed):
    """Each site sums up its own columns by the labels that it is sent, in its own order of rows."""
    frame = patients(90)
    frame["name"] = [f"p{i}" for i in range(90)]
    parts = {"imaging": ["pressure", "time", "stay", "age"], "lab": ["temperature", "smokes"]}
    turned = {site: frame.sample(frac=1, random_state=i) if keyed else frame for i, site in enumerate(parts)}
    tables = {site: turned[site][[*names, *["name"] * keyed]] for site, names in parts.items()}
    model = coterie.fit(
        coterie.VerticalKernelKMeans(n_clusters=3, random_state=1),
        tables,
        policy=Policy.simulation(),
        scale="standard",
        key="name" if keyed else None,
        profile=True,
    )
    labels = model.labels_
    if keyed:
        tags = coterie.row_tags(list(frame["name"]), Policy.simulation().alignment_key)
        labels = labels[np.searchsorted(model.tags_, tags)]
    used = frame[[name for names in parts.values() for name in names]]
    assert model.profiles_.columns == tuple(f"{site}.{name}" for site, names in parts.items() for name in names)
    assert_is_profile(model.profiles_, used, labels)


def test_how_rows_are_split_does_not_matter():
    frame = patients()
    profiles = [fitted(frame, options=start_of(frame), n_sites=n_sites).profiles_ for n_sites in (3, 4, 7)]
    for other in profiles[1:]:
        assert np.allclose(other.means, profiles[0].means, rtol=1e-12)
        assert np.allclose(other.deviations, profiles[0].deviations, rtol=1e-7)
        assert np.allclose(other.quartiles, profiles[0].quartiles, rtol=1e-7, equal_nan=True)


def test_weights_are_repeated_rows():
    frame = patients(90).to_numpy()
    weights = np.random.default_rng(1).integers(1, 4, 90)
    tables = {f"site-{i}": ArrayTable(frame[i::3], weights=weights[i::3]) for i in range(3)}
    repeated = {f"site-{i}": ArrayTable(np.repeat(frame[i::3], weights[i::3], axis=0)) for i in range(3)}
    estimator = make_estimator("lloyd", {"n_clusters": 3, "init": frame[:3].tolist()})
    one, other = (
        coterie.fit(estimator, both, policy=Policy.simulation(), sums="plain", profile=True).profiles_
        for both in (tables, repeated)
    )
    for name in ("rows", "present", "means", "deviations"):
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-9)
    assert np.allclose(one.quartiles, other.quartiles, rtol=1e-9, equal_nan=True)


def test_masked_profiles_are_the_plain_ones():
    frame = patients()
    start = start_of(frame)
    masked = fitted(frame, options=start).profiles_
    plain = fitted(frame, options=start, sums="plain", policy=Policy.simulation()).profiles_
    assert np.allclose(masked.means, plain.means, rtol=1e-12)
    assert np.allclose(masked.quartiles, plain.quartiles, rtol=1e-9, equal_nan=True)


def test_over_groups_totals_are_exact_and_the_rest_says_that_it_is_estimated():
    frame = patients(2000)
    profile = fitted(frame, policy=Policy(), n_sites=3).profiles_
    assert profile.over_groups
    assert np.allclose(profile.whole_means, frame.mean(), rtol=1e-9)
    assert np.allclose(profile.whole_deviations, frame.std(ddof=0), rtol=1e-6)
    assert profile.rows.sum() == pytest.approx(2000)
    assert profile_facts(profile)["counts_and_means_are"] == "whole_groups"
    assert profile_facts(fitted(frame).profiles_)["counts_and_means_are"] == "exact"


def test_over_groups_profiles_are_near_those_of_the_rows():
    """Three clusters, well apart, so that groups lie in one: means to .05, deviations and quartiles nearly so."""
    frame = patients(2000)[["temperature", "pressure", "time"]]
    model = fitted(frame, policy=Policy(), n_sites=3, method="federated-kmeans")
    profile, truth = model.profiles_, pooled(frame, model.predict(frame))
    unit = truth["deviations"]
    assert np.abs((profile.means - truth["means"]) / frame.std().to_numpy()).max() < 0.05
    assert np.abs(profile.deviations / unit - 1).max() < 0.1
    assert np.abs((profile.quartiles - truth["quartiles"]) / unit[..., None]).max() < 0.15


@pytest.mark.parametrize("policy", [ROWS, "standard"])
def test_a_column_of_one_value_distinguishes_nothing(policy):
    frame = patients()[["pressure"]].assign(unit=0.1, version=123456.789)
    profile = fitted(frame, policy=policy).profiles_
    assert not profile.shares_between[1:].any()
    assert not profile.differences[:, 1:].any()
    assert not profile.deviations[:, 1:].any()
    assert not profile.whole_deviations[1:].any()
    assert all(profile.distinguishing(i) == [0] for i in range(3))


def test_one_cluster_holds_all_rows():
    """Also where values are missing, and rows cannot be put to centers."""
    frame = patients(missing=0.2)
    tables = {name: ArrayTable(part.to_numpy()) for name, part in shared_out(frame).items()}
    names = [f"x{i}" for i in range(frame.shape[1])]
    profile = summed(profiled(ByCenters(tuple(names), None, np.zeros((1, 0)), False), names), tables)
    truth = pd.concat([frame.mean(), frame.std(ddof=0)], axis=1).to_numpy()
    assert np.allclose(profile.means[0], truth[:, 0], rtol=1e-12)
    assert np.allclose(profile.deviations[0], truth[:, 1], rtol=1e-6)
    assert np.array_equal(profile.present[0], frame.count())


def test_a_cluster_without_rows_and_a_column_without_values():
    rows = np.array([[0.0, 1.0, np.nan], [1.0, 1.0, np.nan], [5.0, 1.0, np.nan]])
    centers = np.array([[0.0], [100.0]])
    model = summed(_two_clusters(centers), {"one": ArrayTable(rows)})
    assert list(model.rows) == [3, 0]
    assert np.isnan(model.means[1]).all()
    assert np.isnan(model.quartiles[:, 2]).all()
    assert model.is_share[1]
    assert [record["mean"] for record in model.records() if record["cluster"] == 1] == [None] * 3
    assert model.shares_between[0] == 0


def _two_clusters(centers):
    yield from total(UseColumns(("x0",)))
    names = ("x0", "x1", "x2")
    return (yield from profiled(ByCenters(names, None, centers, False), names))


def test_what_distinguishes_clusters_comes_first():
    frame = patients()
    profile = fitted(frame, "federated-kmeans").profiles_
    by_share = list(np.argsort(-profile.shares_between, kind="stable"))
    assert profile.order() == by_share
    table = profile.to_frame()
    assert list(table["column"][: frame.shape[1]]) == [profile.columns[place] for place in by_share]
    assert list(table["cluster"].unique()) == ["all", 0, 1, 2]
    for cluster in range(3):
        size = np.abs(profile.differences[cluster])
        assert profile.distinguishing(cluster, 2) == list(np.argsort(-size)[:2])


def test_the_ledger_shows_profiles_in_a_phase_of_their_own():
    frame = patients()
    start = start_of(frame)
    with_, without = (fitted(frame, options=start, profile=profile).ledger_ for profile in (True, False))
    phases = [one.phase for one in with_.exchanges]
    assert phases.count(PHASE) == 3
    assert with_.total("rounds") == without.total("rounds") + 3
    assert Close.kind in [one.asked for one in with_.exchanges if one.phase == "algorithm"]


def test_profiles_are_asked_for():
    assert fitted(patients(), profile=False).profiles_ is None


def test_columns_that_no_table_has_are_named():
    with pytest.raises(InputError, match="profile names 'weight', which the first table does not have"):
        fitted(patients(), profile=["weight"])
    with pytest.raises(InputError, match=r"give a list of columns, \['age'\]"):
        fitted(patients(), profile="age")


def test_components_have_no_profile():
    with pytest.raises(InputError, match="profile is about clusters"):
        coterie.fit(coterie.FederatedPCA(2), shared_out(patients()), profile=True)


@pytest.mark.parametrize("n_rows", [1, 2, 920, MOST_COUNTED, MOST_COUNTED + 1, 10**9])
def test_counts_fit_into_two_bytes_and_small_ones_stay_whole(n_rows):
    (unit,) = count_units(np.array([float(n_rows)]))
    assert n_rows / unit <= MOST_COUNTED
    assert n_rows / unit > MOST_COUNTED / 2 - 1
    assert unit > 1 or (1 / unit).is_integer()


def test_small_clusters_beside_a_large_one_are_counted_to_the_row():
    """Of 70,000 rows at many sites, ten a site: rounded to units of all rows, single rows would be lost."""
    rng = np.random.default_rng(0)
    few, many = rng.normal(100, 1, (120, 1)), rng.normal(0, 1, (70_000, 1))
    tables = {f"site-{i}": ArrayTable(np.concatenate([few[i::12], many[i::12]])) for i in range(12)}
    names, centers = ("x0",), np.array([[100.0], [0.0]])
    profile = summed(profiled(ByCenters(names, None, centers, False), names), tables)
    for cluster, values in enumerate((few, many)):
        away = np.abs(profile.quartiles[cluster, 0] - np.quantile(values, QUARTILES)) / values.std()
        assert away.max() <= CLOSE
