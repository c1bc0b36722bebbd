"""Scales of columns: numbers by themselves, the categories of a text column together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from coterie import FederatedKMeans, VerticalKernelPCA, fit, open_table
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


def test_an_unknown_scale_is_refused():
    with pytest.raises(InputError, match="scale='log'"):
        fitted("log")
