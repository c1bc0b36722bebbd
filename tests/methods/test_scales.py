"""Scales of columns: numbers by themselves, the categories of a text column together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from coterie import FederatedKMeans, Privacy, VerticalKernelPCA, fit, open_table
from coterie.errors import InputError
from coterie.methods.shared.scales import category_blocks, divisors, scale_for
from coterie.sites.policy import Policy

OPEN = {"policy": Policy.simulation(), "sums": "plain"}


def frames(n=400, seed=0):
    rng = np.random.default_rng(seed)
    whole = pd.DataFrame({"age": rng.normal(50, 9, n), "sex": rng.choice(["f", "m"], n, p=[0.9, 0.1])})
    whole["ward"] = rng.choice(list("abcd"), n, p=[0.7, 0.2, 0.06, 0.04])
    return whole, {site: whole[i::3].reset_index(drop=True) for i, site in enumerate(("north", "south", "west"))}


CATEGORIES = {"ward": list("abcd"), "sex": ["f", "m"]}


def encoded(frame):
    return np.concatenate([block.rows for block in open_table(frame, categories=CATEGORIES).raw_blocks()])


def fitted(scale, columns=None, **options):
    _, parts = frames()
    tables = {site: open_table(part, categories=CATEGORIES) for site, part in parts.items()}
    return fit(FederatedKMeans(2, random_state=0), tables, scale=scale, columns=columns, **OPEN, **options)


def test_numbers_have_variance_one_and_so_has_every_text_column_as_a_whole():
    model, rows = fitted("standard"), encoded(frames()[0])
    prepared = model.prepared_rows(rows)
    variance = prepared.var(axis=0)
    np.testing.assert_allclose([variance[0], variance[1:3].sum(), variance[3:].sum()], 1, rtol=1e-12)
    np.testing.assert_allclose(prepared.mean(axis=0), 0, atol=1e-12)
    total = rows[:, 3:].var(axis=0).sum()
    np.testing.assert_allclose(model.preparation_.scale[3:], np.sqrt(total), rtol=1e-12)
    np.testing.assert_allclose(model.preparation_.spread.deviation, prepared.std(axis=0), rtol=1e-10)


def test_every_category_by_itself_where_that_is_asked_for():
    model, rows = fitted("columns"), encoded(frames()[0])
    np.testing.assert_allclose(model.preparation_.scale, rows.std(axis=0), rtol=1e-12)


def test_categories_alone_stay_0_and_1():
    model = fitted("standard", columns=["sex=f", "sex=m", "ward=a", "ward=b", "ward=c", "ward=d"])
    rows = encoded(frames()[0])[:, 1:]
    np.testing.assert_array_equal(model.prepared_rows(rows), rows)


def test_over_groups_and_masked_it_is_the_same_up_to_what_groups_hide():
    _, parts = frames()
    tables = {site: open_table(part, categories=CATEGORIES) for site, part in parts.items()}
    model = fit(FederatedKMeans(2, random_state=0), tables, scale="standard")
    np.testing.assert_allclose(model.preparation_.scale, fitted("standard").preparation_.scale, rtol=0.02)


def test_a_site_that_has_its_own_columns_scales_them_so():
    _, parts = frames()
    rows = parts["north"]
    tables = {
        "lab": open_table(rows[["age", "ward"]], categories={"ward": list("abcd")}),
        "desk": open_table(rows[["sex"]], categories={"sex": ["f", "m"]}),
    }
    model = fit(VerticalKernelPCA(2, kernel="linear", random_state=0, local_rank=7), tables, scale="standard", **OPEN)
    whole = encoded(rows)
    parts = [whole[:, :1] / whole[:, :1].std(), whole[:, 3:] / np.sqrt(whole[:, 3:].var(axis=0).sum()), whole[:, 1:3]]
    expected = np.concatenate(parts, axis=1)
    values = np.linalg.svd(expected - expected.mean(axis=0), compute_uv=False)[:2] ** 2
    np.testing.assert_allclose(np.sort((model.embedding_**2).sum(axis=0))[::-1], values, rtol=1e-8)


def test_blocks_are_columns_of_one_text_column_wherever_they_are():
    names = ["a", "s=f", "b", "t=x", "s=m", "=c"]
    assert category_blocks(names) == [[1, 4], [3], [5]]
    np.testing.assert_array_equal(divisors(np.array([2.0, 3, 0, 1, 4, 0]), "standard", names), [2, 5, 1, 1, 5, 1])
    np.testing.assert_array_equal(divisors(np.array([2.0, 3, 0, 1, 4, 0]), "columns", names), [2, 3, 1, 1, 4, 1])
    assert scale_for("standard", names) == "standard"
    assert scale_for("standard", names[3:]) == "none"
    assert scale_for("columns", names[3:]) == "columns"
    assert scale_for("standard", None) == "standard"


def quartiles_of(values):
    return np.nanquantile(values, [0.25, 0.5, 0.75])


@pytest.mark.parametrize("missing", ["refuse", "mean", "drop"])
def test_robust_scaling_is_by_median_and_quartiles_of_all_rows(missing):
    rng = np.random.default_rng(1)
    rows = np.c_[rng.lognormal(3, 1, 3000), 1e6 + rng.normal(size=3000), rng.random(3000) < 0.3, np.full(3000, 2.0)]
    rows = np.c_[rows, np.where(rng.random(3000) < 0.8, 0.0, rng.normal(5, 1, 3000))]
    if missing != "refuse":
        rows[rng.random(rows.shape) < 0.1] = np.nan
    tables = {f"s{i}": rows[i::3] for i in range(3)}
    model = fit(FederatedKMeans(2, random_state=0), tables, scale="robust", missing=missing, **OPEN)
    used, deviations = model.preparation_, np.nanstd(rows, axis=0)
    for place in (0, 1):
        first, median, third = quartiles_of(rows[:, place])
        assert abs(used.shift[place] - median) < 0.05 * deviations[place]
        assert abs(used.scale[place] - (third - first)) < 0.1 * deviations[place]
    for place in (2, 4):  # half of the values are the same: mean and deviation
        np.testing.assert_allclose(used.shift[place], np.nanmean(rows[:, place]), rtol=1e-9)
        np.testing.assert_allclose(used.scale[place], deviations[place], rtol=1e-9)
    np.testing.assert_allclose([used.shift[3], used.scale[3]], [2, 1])
    np.testing.assert_allclose(used.fill, np.nanmean(rows, axis=0), rtol=1e-9)
    if missing == "mean":
        prepared = model.prepared_rows(rows)
        np.testing.assert_allclose(used.spread.mean, prepared.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(used.spread.deviation, prepared.std(axis=0), atol=1e-6)


def test_values_far_away_do_not_decide_a_robust_scale():
    rng = np.random.default_rng(2)
    rows = rng.normal([10, -3], [2, 0.1], size=(3000, 2))
    rows[:5, 0], rows[5:9, 1] = 1e6, -99999
    model = fit(FederatedKMeans(2, random_state=0), {f"s{i}": rows[i::3] for i in range(3)}, scale="robust", **OPEN)
    first, median, third = quartiles_of(rows[:, 0])
    assert abs(model.preparation_.shift[0] - median) < 0.1 * (third - first)
    assert abs(model.preparation_.scale[0] / (third - first) - 1) < 0.3
    first, median, third = quartiles_of(rows[:, 1])
    assert abs(model.preparation_.shift[1] - median) < 0.2 * (third - first)
    assert abs(model.preparation_.scale[1] / (third - first) - 1) < 0.5


def test_robust_scaling_leaves_categories_to_their_variance_and_works_in_verified_runs():
    whole, parts = frames()
    plain = fitted("robust")
    np.testing.assert_allclose(plain.preparation_.scale[1:], fitted("standard").preparation_.scale[1:], rtol=1e-12)
    tables = {site: open_table(part, categories=CATEGORIES) for site, part in parts.items()}
    verified = fit(FederatedKMeans(2, random_state=0), tables, scale="robust")
    first, median, third = quartiles_of(whole.age)
    assert abs(verified.preparation_.shift[0] - median) < 0.15 * whole.age.std()
    assert abs(verified.preparation_.scale[0] / (third - first) - 1) < 0.25


@pytest.mark.parametrize("options", [OPEN, {"policy": "standard"}])
def test_a_column_of_one_value_has_no_robust_scale(options):
    """Over groups its means differ in their last digits, which must not become distances."""
    parts = {site: part[["age"]].assign(unit=123456.789) for site, part in frames()[1].items()}
    model = fit(FederatedKMeans(2, random_state=0), parts, scale="robust", **options)
    assert model.preparation_.scale[1] == 1
    assert model.preparation_.spread.deviation[1] == 0


def test_robust_scaling_is_not_private():
    _, parts = frames()
    tables = {site: part[["age"]] for site, part in parts.items()}
    with pytest.raises(InputError, match="cannot scale by quartiles"):
        model = FederatedKMeans(2, random_state=0, privacy=Privacy(epsilon=4.0))
        fit(model, tables, scale="robust", ranges=([0], [120]), policy="private")


def test_an_unknown_scale_is_refused():
    with pytest.raises(InputError, match="scale='log'"):
        fitted("log")
