"""``coterie.describe``: equal to numpy over rows, near it over groups, the same however sums are taken."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.errors import InputError, RunError
from coterie.estimators.describing import TableDescriber
from coterie.estimators.findings import Finding
from coterie.methods.analysis.describe import QUANTILES
from coterie.methods.shared.private_profiles import BINS, nearest_counts
from coterie.sites.policy import Policy, PrivacyRules

OPEN = Policy.simulation()
NAMES = [f"{level:.0%}" for level in QUANTILES]
HEAD = ("age", "chol", "flag", "kind", "id")


def frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.normal(50, 9, n).round(),
            "chol": np.exp(rng.normal(5, 0.8, n)),
            "flag": rng.integers(0, 2, n).astype(float),
            "kind": rng.choice(["a", "b", "c"], n, p=[0.7, 0.295, 0.005]),
            "id": [f"p{i}" for i in range(n)],
        }
    )
    for column in ("age", "chol", "kind"):
        made.loc[rng.random(n) < 0.1, column] = np.nan if column != "kind" else None
    return made


def by_site(whole, n_sites=3):
    return {f"s{i}": whole.iloc[i::n_sites] for i in range(n_sites)}


@pytest.mark.parametrize("sums", ["plain", "masked"])
def test_over_rows_it_is_what_numpy_says(sums):
    whole = frame()
    policy = OPEN if sums == "plain" else Policy(protection="none")  # the second one verifies the run
    made = coterie.describe(by_site(whole), policy=policy, sums=sums)
    assert (made.rows, made.sites, made.min_group) == (600, 3, 0)
    assert [column.name for column in made.columns] == list(HEAD)
    for name in ("age", "chol", "flag"):
        values, column = whole[name].dropna(), made[name]
        assert (column.present, column.missing) == (len(values), 600 - len(values))
        assert column.mean == pytest.approx(values.mean(), rel=1e-7)
        assert column.deviation == pytest.approx(values.std(ddof=0), rel=1e-7)
    for name in ("age", "chol"):
        true = whole[name].quantile(list(QUANTILES))
        assert list(made[name].quantiles) == NAMES
        found = np.array(list(made[name].quantiles.values()))
        assert (np.abs(found - true) <= 0.05 * made[name].deviation).all()
    assert made["flag"].kind == "yes or no"
    assert made["flag"].quantiles is None
    shares = whole["kind"].value_counts(normalize=True)
    assert made["kind"].shares == pytest.approx(dict(shares), rel=1e-7)
    assert made["kind"].missing == whole["kind"].isna().sum()
    assert made["id"].shares == {"other": 1.0}


def test_over_groups_it_is_near():
    whole = frame()
    made = coterie.describe(by_site(whole))
    assert (made.rows, made.min_group) == (600, 5)
    for name in ("age", "chol"):
        values, column = whole[name].dropna(), made[name]
        assert column.mean == pytest.approx(values.mean(), abs=0.02 * values.std())
        assert column.deviation == pytest.approx(values.std(ddof=0), rel=0.02)
        away = np.abs(np.array(list(column.quantiles.values())) - values.quantile(list(QUANTILES)))
        assert (away < np.array([0.35, 0.15, 0.15, 0.15, 0.35]) * values.std()).all()
    assert set(made["kind"].shares) == {"a", "b"}  # no site has five rows of c
    shares = whole["kind"].value_counts(normalize=True)
    assert made["kind"].shares == pytest.approx({name: shares[name] for name in "ab"}, abs=0.02)


def test_how_rows_are_split_does_not_matter():
    whole = frame()
    made = [
        coterie.describe(by_site(whole.sample(frac=1, random_state=n), n), policy=OPEN, sums="plain").to_json()
        for n in (1, 3, 7)
    ]
    for other in made[1:]:
        for one, same in zip(made[0]["columns"], other["columns"], strict=True):
            assert one["present"] == same["present"]
            assert one["mean"] == pytest.approx(same["mean"], rel=1e-9)
            assert one["quantiles"] == pytest.approx(same["quantiles"], rel=1e-6, abs=1e-6)
            assert one["shares"] == pytest.approx(same["shares"])
    assert [note["finding"] for note in made[0]["notes"]] == [note["finding"] for note in made[1]["notes"]]


def test_a_verified_run_is_the_plain_one():
    tables = by_site(frame())
    plain = coterie.describe(tables, policy=Policy(per_site_results="averages"), sums="plain", random_state=1)
    verified = coterie.describe(tables, random_state=1)
    assert verified.certificate is not None
    for one, same in zip(plain.columns, verified.columns, strict=True):
        assert one.present == same.present
        assert one.mean == pytest.approx(same.mean, rel=1e-6)
        assert one.quantiles == pytest.approx(same.quantiles, rel=1e-6)
        assert one.shares == pytest.approx(same.shares, rel=1e-6)


def test_a_site_without_values_and_a_column_far_from_zero():
    """Digits would be lost about zero: then sums are taken about the mean."""
    far = np.random.default_rng(0).normal(1e9, 1.0, 300)
    tables = {"a": pd.DataFrame({"x": far[:200], "y": 1.0}), "b": pd.DataFrame({"x": far[200:], "y": np.nan})}
    made = coterie.describe(tables, policy=OPEN, sums="plain")
    assert made["x"].deviation == pytest.approx(far.std(), rel=1e-4)
    assert (made["y"].present, made["y"].missing) == (200, 100)


def notes(made):
    return {note.finding: note.columns for note in made.notes}


def test_it_says_what_to_watch_out_for():
    rng, n = np.random.default_rng(0), 900
    whole = pd.DataFrame(
        {
            "plain": rng.normal(0, 1, n),
            "large": rng.normal(0, 5000, n),
            "skewed": np.exp(rng.normal(2, 1.2, n)),
            "same": 3.0,
            "nearly": np.where(np.arange(n) % 300 == 7, 90.0, 1.0),
            "rarely": (np.arange(n) % 200 == 7).astype(float),
            "empty": np.where(rng.random(n) < 0.8, np.nan, rng.normal(size=n)),
            "number": np.arange(n) + 1.0,
            "patient_id": rng.normal(size=n),
            "ward": np.where(np.arange(n) % 180 == 7, "rare", "usual"),
        }
    )
    made = coterie.describe(by_site(whole), policy=OPEN, sums="plain")
    said = notes(made)
    assert said[Finding.SCALES_DIFFER][0] == "large"
    assert said[Finding.SKEWED] == ("skewed",)
    assert said[Finding.CONSTANT] == ("same",)
    assert said[Finding.NEARLY_CONSTANT] == ("nearly", "rarely", "ward")
    assert said[Finding.MOSTLY_MISSING] == ("empty",)
    assert said[Finding.LIKE_AN_ID] == ("number", "patient_id")
    assert said[Finding.RARE_CATEGORIES] == ("ward=rare",)
    assert made.scale == "standard"
    for note in made.notes:
        assert all(name in note.sentence for name in note.columns)


def test_columns_of_one_unit_need_no_scaling_and_no_note():
    rows = np.random.default_rng(0).normal(size=(400, 4))
    made = coterie.describe({f"s{i}": rows[i::4] for i in range(4)}, policy=OPEN, sums="plain")
    assert (made.scale, made.notes) == ("none", ())


def test_columns_of_outliers_suggest_quantiles():
    rows = np.random.default_rng(0).standard_t(1.2, size=(900, 3))
    made = coterie.describe({"a": rows[:450], "b": rows[450:]}, policy=OPEN, sums="plain")
    assert made.scale == "robust"
    assert Finding.OUTLIERS in notes(made)


def test_it_is_plain_values_and_a_frame():
    made = coterie.describe(by_site(frame()), policy=OPEN, sums="plain")
    assert json.loads(json.dumps(made.to_json()))["columns"][0]["name"] == "age"
    about = made.to_frame()
    assert about.loc["kind=a", "mean"] == made["kind"].shares["a"]
    assert about.loc["kind=a", "present"] == pytest.approx((frame()["kind"] == "a").sum())
    assert list(about.columns[-5:]) == NAMES


# ---------------------------------------------------------------- privately


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=7), st.integers(1, 60))
def test_counts_are_the_nearest_ones_that_can_be(counts, total):
    """Compared with every way to put back what was cut off too much: a constant less, found by trying."""
    found = nearest_counts(np.array([counts]), np.array([float(total)]))[0]
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    tried = [np.maximum(np.array(counts) - less, 0) for less in np.linspace(min(counts) - total, max(counts), 20001)]
    slow = min(tried, key=lambda one: abs(one.sum() - total))
    np.testing.assert_allclose(found, slow, atol=0.1)


RANGES = {"age": (0, 120), "chol": (0, 2000), "flag": (0, 1)}
PRIVATE = Policy(protection="noise", privacy=PrivacyRules(100.0))


def private_tables(n=6000):
    whole = frame(n).drop(columns="id")
    tables = {
        name: coterie.open_table(part, categories={"kind": ["a", "b", "c"]}, name=name)
        for name, part in by_site(whole).items()
    }
    return whole, tables


def test_privately_it_is_near_and_says_how_near():
    whole, tables = private_tables()
    made = coterie.describe(tables, policy=PRIVATE, privacy=coterie.Privacy(epsilon=8.0), ranges=RANGES)
    assert made.privacy.epsilon == 8.0
    assert [release.what for release in made.privacy.releases] == [
        "missing values",
        "means and deviations of columns",
        "counts of values",
    ]
    assert sum(release.share for release in made.privacy.releases) == pytest.approx(1)
    assert made.noise > 0
    assert abs(made.rows - 6000) < 6 * made.noise
    for name in ("age", "chol"):
        values, column, width = whole[name].dropna(), made[name], np.ptp(RANGES[name])
        assert abs(column.missing - whole[name].isna().sum()) < 150
        assert abs(column.mean - values.mean()) < 6 * column.noise + 0.01 * width
        assert abs(column.deviation - values.std()) < 0.05 * width
        away = np.abs(np.array(list(column.quantiles.values())) - values.quantile(list(QUANTILES)))
        assert (away < 1.5 * width / BINS).all()
    shares = whole["kind"].value_counts(normalize=True)
    assert made["kind"].shares == pytest.approx(dict(shares), abs=0.03)


def test_less_epsilon_is_more_noise():
    _, tables = private_tables()
    noise = [
        coterie.describe(tables, policy=PRIVATE, privacy=coterie.Privacy(epsilon=e), ranges=RANGES)["age"].noise
        for e in (0.5, 4.0)
    ]
    assert noise[0] > 5 * noise[1]


def test_a_private_description_needs_ranges_of_all_columns_and_says_so_at_once():
    _, tables = private_tables(300)
    with pytest.raises(InputError, match=r"missing for chol, flag; ranges names weight, which is none"):
        coterie.describe(
            tables, policy=PRIVATE, privacy=coterie.Privacy(), ranges={"age": (0, 120), "weight": (0, 1)}
        )
    with pytest.raises(InputError, match="answers only differentially private orders"):
        coterie.describe(tables, policy=PRIVATE)


def test_text_must_be_declared_where_a_budget_bounds_what_leaves():
    whole = frame(300).drop(columns="id")
    with pytest.raises(InputError, match="declare its values in 'categories'"):
        coterie.describe(by_site(whole), policy=PRIVATE, privacy=coterie.Privacy(), ranges=RANGES)


@pytest.mark.parametrize(
    "options", [{"scale": "standard"}, {"missing": "mean"}, {"max_share": 0.5}, {"ranges": ([0.0], [1.0])}], ids=str
)
def test_what_it_does_not_use_is_refused(options):
    (name,) = options
    rows = np.random.default_rng(0).random((60, 1))
    tables = {f"s{i}": rows[i::3] for i in range(3)}
    with pytest.raises(InputError, match=f"does not use {name}"):
        coterie.fit(TableDescriber(), tables, policy=OPEN, sums="plain", **options)


def test_a_description_is_no_model(tmp_path):
    made = TableDescriber().fit(np.random.default_rng(0).random((60, 2)), sites=np.arange(60) % 3)
    assert made.description_.rows == 60
    with pytest.raises(InputError, match="TableDescriber is not a fitted model"):
        coterie.save_model(made, tmp_path / "model.json")


def test_a_site_may_allow_it_alone():
    tables = by_site(frame())
    with pytest.raises(RunError):
        coterie.describe(tables, policy=Policy(methods=frozenset({"lloyd"})))
    assert coterie.describe(tables, policy=Policy(methods=frozenset({"describe"}))).rows == 600
