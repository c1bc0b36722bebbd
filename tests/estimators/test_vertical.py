"""The estimators over columns split between sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine, make_circles
from sklearn.decomposition import KernelPCA
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie
from coterie import VerticalKernelKMeans, VerticalKernelPCA, load_model, row_tags, save_model
from coterie.errors import InputError, Unaligned
from coterie.sites.policy import Policy

WINE = load_wine(as_frame=True)
ROWS = ((WINE.data - WINE.data.mean()) / WINE.data.std()).reset_index(drop=True)
SPLIT = {"lab": list(ROWS.columns[:5]), "imaging": list(ROWS.columns[5:9]), "ward": list(ROWS.columns[9:])}
SECRET = bytes(range(32))
EXEMPT = {"vertical-kernel-pca": "none"}
OPEN = Policy(per_site_results="rows", alignment_key=SECRET, method_protection=EXEMPT)


@parametrize_with_checks(
    [VerticalKernelPCA(), VerticalKernelPCA(kernel="linear", tolerance=0.1), VerticalKernelKMeans(3)]
)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)


def frames(rows=ROWS, seed=0, first=0):
    """One data frame a site, rows in an order of its own."""
    found = {}
    for i, (site, columns) in enumerate(SPLIT.items()):
        order = np.random.default_rng([seed, i]).permutation(len(rows))
        frame = rows[columns].iloc[order].copy()
        frame.insert(1, "patient", order + first)
        found[site] = frame
    return found


def in_tag_order(n, first=0):
    return np.argsort(row_tags(range(first, first + n), SECRET))


# ---------------------------------------------------------------- one owner


@pytest.mark.parametrize(
    "columns", [SPLIT, [list(range(5)), [5, 6, 7, 8], range(9, 13)], [[-1, 0], list(range(1, 12))]]
)
def test_columns_are_named_or_numbered(columns):
    model = VerticalKernelPCA(3, gamma=0.05, local_rank=178).fit(ROWS, columns=columns)
    reference = KernelPCA(3, kernel="rbf", gamma=0.05).fit(ROWS)
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-9)
    assert model.sin_theta(reference) < 1e-9
    assert model.sin_theta(reference.eigenvectors_) < 1e-9
    np.testing.assert_allclose(np.abs(model.transform(ROWS[:9])), np.abs(reference.transform(ROWS[:9])), atol=1e-9)
    assert model.n_features_in_ == 13


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([[0, 1], [1, *range(2, 13)]], "malic_acid is named twice"),
        ([[0, 1], list(range(2, 12))], r"proline is at no site \(1 in all\)"),
        ([list(range(13)), []], "gives a site no columns"),
        ([], "gives a site no columns"),
        ([[13]], "column 13, but there are 13"),
        ([["alcool"]], "'alcool'; there is no such column"),
        (5, "columns=5; it must be a list of columns for every site"),
        ([0, 1], "columns holds 0 instead of a list"),
        ("alcohol", "columns='alcohol'"),
    ],
)
def test_columns_that_are_no_partition_are_errors(columns, told):
    with pytest.raises(InputError, match=told):
        VerticalKernelPCA().fit(ROWS, columns=columns)


def test_fit_transform_is_fit_then_transform():
    model = VerticalKernelPCA(2, gamma=0.05, random_state=0)
    both = model.fit_transform(ROWS, columns=SPLIT)
    np.testing.assert_allclose(both, model.transform(ROWS), atol=1e-12)
    assert np.abs(both - model.embedding_).max() > 1e-3


def test_transforming_is_counted():
    model = VerticalKernelPCA(2, gamma=0.05, local_rank=4).fit(ROWS, columns=SPLIT)
    before = model.ledger_.total("floats_up")
    assert before == 3 * 4 * (178 + 1) + 3 * 3
    model.transform(ROWS[:10])
    assert model.ledger_.total("floats_up") - before == 3 * 10 * 178 + 3 * 6


def test_a_better_rank_is_a_better_embedding():
    reference = KernelPCA(3, kernel="rbf", gamma=0.05).fit(ROWS)
    errors = []
    for rank in (3, 10, 30, 100):
        model = VerticalKernelPCA(3, gamma=0.05, local_rank=rank).fit(ROWS, columns=SPLIT)
        errors.append(model.sin_theta(reference))
        away = model.eigenvectors_ * model.eigenvalues_ @ model.eigenvectors_.T
        assert np.isfinite(away).all()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3


# ---------------------------------------------------------------- clusters


def test_clusters_of_columns_are_those_of_the_whole():
    model = VerticalKernelKMeans(3, random_state=0).fit(ROWS, columns=SPLIT)
    assert adjusted_rand_score(WINE.target, model.labels_) > 0.85
    assert adjusted_rand_score(model.predict(ROWS), model.labels_) > 0.98
    np.testing.assert_array_equal(model.counts_, np.bincount(model.labels_))
    away = ((model.embedding_ - model.cluster_centers_[model.labels_]) ** 2).sum()
    np.testing.assert_allclose(model.inertia_, away)


def test_circles_whose_two_columns_are_at_two_sites_are_told_apart():
    """Neither site sees more than a line of points."""
    rows, truth = make_circles(300, factor=0.3, noise=0.04, random_state=0)
    model = VerticalKernelKMeans(2, n_components=3, gamma=2.0, local_rank=40, random_state=0)
    model.fit(rows, columns=[[0], [1]])
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    alone = VerticalKernelKMeans(2, n_components=3, gamma=2.0, local_rank=40, random_state=0).fit(rows[:, :1])
    assert adjusted_rand_score(truth, alone.labels_) < 0.5


def test_more_clusters_than_rows_is_an_error():
    with pytest.raises(InputError, match="hold 3 rows; at least 4 are needed"):
        VerticalKernelKMeans(4, gamma=1.0).fit(ROWS[:3], columns=SPLIT)
    with pytest.raises(InputError, match="n_clusters=0"):
        VerticalKernelKMeans(0).fit(ROWS)


# ---------------------------------------------------------------- tables that stay where they are


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("sums", ["masked", "plain"])
def test_sites_with_keys_find_what_one_owner_would(kernel, sums):
    new = ROWS[:20] + 0.1
    options = {"kernel": kernel, "gamma": 0.05, "local_rank": 12, "random_state": 0}
    whole = VerticalKernelPCA(3, **options).fit(ROWS, columns=SPLIT)
    tables = frames()
    model = coterie.fit(VerticalKernelPCA(3, **options), tables, policy=OPEN, key="patient", sums=sums)
    order = in_tag_order(178)
    np.testing.assert_allclose(np.abs(model.embedding_), np.abs(whole.embedding_[order]), atol=1e-8)
    np.testing.assert_array_equal(model.tags_, row_tags(range(178), SECRET)[order])
    found = coterie.transform(model, tables, frames(new, 3, 1000), policy=OPEN, key="patient", sums=sums)
    turned = in_tag_order(20, 1000)
    np.testing.assert_array_equal(found.tags, row_tags(range(1000, 1020), SECRET)[turned])
    np.testing.assert_allclose(np.abs(found.components), np.abs(whole.transform(new)[turned]), atol=1e-7)
    asked = {exchange.asked.rpartition(".")[2] for exchange in model.ledger_.exchanges}
    assert "SumDistances" in asked or "SumProducts" in asked
    with pytest.raises(InputError, match=r"coterie\.transform\(estimator, tables, new\)"):
        model.transform(ROWS)


def test_columns_are_prepared_by_their_sites():
    raw = WINE.data.copy()
    raw.iloc[::30, 4] = np.nan
    tables = {site: raw[columns] for site, columns in SPLIT.items()}
    model = coterie.fit(
        VerticalKernelPCA(2, gamma=0.05, local_rank=178), tables, policy=OPEN, scale="standard", missing="mean"
    )
    filled = raw.fillna(raw.mean())
    expected = KernelPCA(2, kernel="rbf", gamma=0.05).fit((filled - filled.mean()) / filled.std(ddof=0))
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    for options, told in (
        ({"missing": "drop"}, "dropped at all"),
        ({"scale": "minmax"}, "every site does for itself"),
        ({"scale": "standard", "ranges": ([0], [1])}, "each site scales its own"),
    ):
        with pytest.raises(InputError, match=told):
            coterie.fit(VerticalKernelPCA(2), tables, policy=OPEN, **options)


def test_what_a_policy_forbids_is_said_before_anything_is_sent():
    tables = frames()
    with pytest.raises(InputError, match=r"policy of lab, imaging, ward does not allow. Set per_site_results"):
        coterie.fit(VerticalKernelPCA(), tables, key="patient")
    with pytest.raises(InputError, match="policy of lab has no alignment_key"):
        coterie.fit(
            VerticalKernelPCA(),
            tables,
            key="patient",
            policy=Policy(per_site_results="rows", method_protection=EXEMPT),
        )
    with pytest.raises(InputError, match="FederatedKMeans does not match rows"):
        coterie.fit(coterie.FederatedKMeans(2), tables, key="patient", policy=OPEN)


def test_two_sites_are_enough_to_fit_and_too_few_for_masked_sums():
    tables = {site: frame for site, frame in frames().items() if site != "ward"}
    model = coterie.fit(VerticalKernelPCA(2, gamma=0.1), tables, key="patient", policy=OPEN)
    with pytest.raises(InputError, match="no sum over fewer than 3"):
        coterie.transform(model, tables, tables, key="patient", policy=OPEN)
    found = coterie.transform(model, tables, tables, key="patient", policy=OPEN, sums="plain")
    np.testing.assert_array_equal(found.tags, model.tags_)


def test_a_row_missing_at_one_site_is_counted_not_named():
    tables = frames()
    tables["lab"] = tables["lab"].iloc[2:]
    with pytest.raises(Unaligned, match="2 of 178 at imaging, 0 of 176 at lab"):
        coterie.fit(VerticalKernelPCA(), dict(sorted(tables.items())), key="patient", policy=OPEN)


def test_transform_needs_every_site_and_an_estimator_of_columns():
    tables = frames()
    model = coterie.fit(VerticalKernelPCA(2, gamma=0.1), tables, key="patient", policy=OPEN)
    with pytest.raises(InputError, match="for every site: imaging, lab, ward"):
        coterie.transform(model, tables, {"lab": tables["lab"]}, key="patient", policy=OPEN)
    other = {site: frame.drop(columns=frame.columns[0]) for site, frame in tables.items()}
    with pytest.raises(InputError, match="do not have the 13 columns the components were found from"):
        coterie.transform(model, other, other, key="patient", policy=OPEN)
    with pytest.raises(InputError, match="embeds rows itself"):
        coterie.transform(coterie.FederatedPCA(2), tables, tables)
    with pytest.raises(InputError, match="neither 'masked' nor 'plain'"):
        coterie.transform(model, tables, tables, sums="secret", policy=OPEN)


# ---------------------------------------------------------------- models, journals


@pytest.mark.parametrize(
    "made", [VerticalKernelPCA(3, gamma=0.05, random_state=0), VerticalKernelKMeans(3, random_state=0)]
)
@pytest.mark.parametrize("key", ["patient", None])
def test_a_saved_model_goes_on(tmp_path, made, key):
    tables = frames() if key else {site: ROWS[columns] for site, columns in SPLIT.items()}
    model = coterie.fit(made, tables, key=key, policy=OPEN, scale="standard")
    again = load_model(save_model(model, tmp_path / "model.json"))
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    if key:
        np.testing.assert_array_equal(again.tags_, model.tags_)
    one = coterie.transform(model, tables, tables, key=key, policy=OPEN).components
    two = coterie.transform(again, tables, tables, key=key, policy=OPEN).components
    np.testing.assert_allclose(one, two, atol=1e-12)
    if isinstance(model, VerticalKernelKMeans):
        np.testing.assert_array_equal(again.labels_, model.labels_)
        np.testing.assert_array_equal(again.label_components(one), model.label_components(one))


def test_a_damaged_model_is_an_error(tmp_path):
    import json

    model = coterie.fit(VerticalKernelKMeans(3, random_state=0), frames(), key="patient", policy=OPEN)
    whole = json.loads(save_model(model, tmp_path / "model.json").read_text())
    found = whole["result"]
    for change in (
        {"result": None},
        {"result": {**found, "centers": None}},
        {"result": {**found, "means": [0.0]}},
        {"result": {**found, "alignment": {**found["alignment"], "tags": [1, 2]}}},
        {"result": {**found, "settings": {**found["settings"], "kernel": "laplacian"}}},
        {"result": {**found, "centers": [[0.0]]}},
        {"result": {**found, "alignment": {**found["alignment"], "tags": [2**70] * 178}}},
        {"result": {**found, "alignment": {**found["alignment"], "tags": [-1] * 178}}},
        {"result": {**found, "pairs": [[float("nan")] * 3, found["pairs"][1]]}},
        {"parameters": {"n_clusters": 3, "n_rounds": 4}},
    ):
        (tmp_path / "bad.json").write_text(json.dumps({**whole, **change}))
        with pytest.raises(InputError, match="damaged"):
            load_model(tmp_path / "bad.json")


def test_a_run_is_resumed_from_its_journal(tmp_path):
    options = {"policy": OPEN, "key": "patient", "journal": tmp_path / "run"}
    model = coterie.fit(VerticalKernelPCA(3, tolerance=0.01, random_state=0), frames(), **options)
    again = coterie.fit(VerticalKernelPCA(3, tolerance=0.01, random_state=0), frames(), **options, resume=True)
    np.testing.assert_array_equal(again.embedding_, model.embedding_)


def test_a_data_frame_with_text_beside_the_key_is_refused():
    tables = frames()
    tables["lab"] = pd.DataFrame({**tables["lab"], "note": "x"})
    with pytest.raises(InputError, match="'note' holds text"):
        coterie.fit(VerticalKernelPCA(), tables, key="patient", policy=OPEN)


def test_a_key_is_not_ignored_for_tables_that_were_opened_without():
    tables = {site: coterie.open_table(frame, ignore=["patient"]) for site, frame in frames().items()}
    with pytest.raises(InputError, match="the table of lab was opened without a key"):
        coterie.fit(VerticalKernelPCA(), tables, key="patient", policy=OPEN)
    opened = {site: coterie.open_table(frame, key="patient") for site, frame in frames().items()}
    model = coterie.fit(VerticalKernelPCA(2, gamma=0.05), opened, policy=OPEN)
    assert len(model.tags_) == 178


@pytest.mark.parametrize("name", ["n_components", "local_rank"])
def test_whole_numbers_are_whole(name):
    with pytest.raises(InputError, match=f"{name}=2.5 must be a whole number"):
        VerticalKernelPCA(**{name: 2.5}).fit(ROWS)
    VerticalKernelPCA(**{name: np.int64(2)}).fit(ROWS)
