"""Models as scikit-learn's own, names of what transform gives, and the ledger as a data frame."""

from __future__ import annotations

import builtins
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline

import coterie
from coterie.errors import InputError
from coterie.estimators.registry import KINDS
from tests.federations import blobs

ROWS = blobs(200, 3, 3, seed=6) * [1, 10, 100] + 5
HOLES = np.where(np.random.default_rng(0).random(ROWS.shape) < 0.05, np.nan, ROWS)
PLAIN = {"sums": "plain", "policy": "simulation"}
RANGES = (ROWS.min(0) + 0.5, ROWS.max(0) - 0.5)


def frames(rows):
    return [pd.DataFrame(part, columns=["a", "b", "c"]) for part in np.array_split(rows, 4)]


@pytest.mark.parametrize("options", [
    {},
    {"scale": "standard"},
    {"missing": "mean"},
    {"scale": "standard", "missing": "mean"},
    {"scale": "standard", "missing": "mean", "ranges": RANGES},
    {"scale": "minmax", "missing": "mean", "ranges": (ROWS.min(0), ROWS.max(0))},
    {"scale": "standard", "missing": "drop"},
])  # fmt: skip
def test_scikit_learns_own_predicts_the_same(options):
    rows = HOLES if "missing" in options else ROWS
    model = coterie.fit(coterie.FederatedKMeans(4, random_state=0), frames(rows), **options)
    theirs = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert isinstance(theirs, Pipeline if options else KMeans)
    new = pd.DataFrame(np.concatenate([ROWS, HOLES]), columns=["a", "b", "c"])
    if options.get("missing") != "mean":  # it cannot leave rows out, and refuses them as it always does
        new = new.dropna()
    np.testing.assert_array_equal(theirs.predict(new), model.predict(new))
    np.testing.assert_allclose(theirs.transform(new), model.transform(new), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="feature names"):
        theirs.predict(new[["b", "a", "c"]])


@pytest.mark.parametrize("options", [{}, {"scale": "standard", "missing": "mean"}])
def test_a_kernel_model_becomes_a_pipeline_with_its_embedding(options):
    model = coterie.fit(
        coterie.FederatedKernelKMeans(3, gamma=0.1, random_state=0),
        frames(HOLES if options else ROWS / 50),
        **options,
    )
    theirs = pickle.loads(pickle.dumps(model.to_sklearn()))
    new = pd.DataFrame(HOLES if options else ROWS / 50, columns=["a", "b", "c"])
    np.testing.assert_array_equal(theirs.predict(new), model.predict(new))


def test_empty_and_equal_centers_are_no_problem():
    rows = np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)
    model = coterie.FederatedKMeans(2, init=[[0.0, 0.0], [0.0, 0.0]], max_rounds=0).fit(rows)
    np.testing.assert_array_equal(model.to_sklearn().predict(rows), model.predict(rows))


TRANSFORMING = sorted(name for name, kind in KINDS.items() if hasattr(kind, "transform"))


@pytest.mark.parametrize("name", TRANSFORMING)
def test_every_transform_has_names_and_gives_data_frames(name):
    kind = KINDS[name]
    size = {"n_clusters": 3} if hasattr(kind, "n_clusters") else {"n_components": 2}
    more = {"gamma": 0.1} if hasattr(kind, "gamma") else {}
    rows = pd.DataFrame(blobs(60, 3, 3, seed=1), columns=["a", "b", "c"])
    model = kind(**size, **more, random_state=0).fit(rows)
    plain = model.transform(rows)
    names = model.get_feature_names_out()
    assert len(names) == plain.shape[1] == len(set(names))
    assert all(column.startswith(name.lower()) for column in names)
    framed = model.set_output(transform="pandas").transform(rows)
    assert list(framed.columns) == list(names)
    np.testing.assert_allclose(framed.to_numpy(), plain, rtol=1e-9)


def test_names_and_frames_hold_for_a_model_of_tables_too(tmp_path):
    model = coterie.fit(coterie.FederatedKMeans(3, random_state=0), frames(ROWS), scale="standard")
    loaded = coterie.load_model(coterie.save_model(model, tmp_path / "model.json"))
    new = frames(ROWS)[0]
    for each in (model, loaded):
        framed = each.set_output(transform="pandas").transform(new[["c", "a", "b"]])
        assert list(framed.columns) == [f"federatedkmeans{i}" for i in range(3)]
        assert len(framed) == len(new)


def test_the_ledger_is_a_data_frame():
    model = coterie.fit(coterie.FederatedKMeans(3, random_state=0), frames(ROWS))
    frame = model.ledger_.to_frame()
    assert set(frame["site"]) == {"site1", "site2", "site3", "site4"}
    for what in ("floats_up", "bytes_up", "bytes_down"):
        assert frame[what].sum() == model.ledger_.total(what)
        assert frame.groupby("site")[what].sum()["site2"] == model.ledger_.total(what, site="site2")
    rounds = frame[frame["phase"] == "algorithm"].drop_duplicates(["round", "attempt"])
    assert len(rounds) == model.ledger_.total("rounds")
    assert set(frame["outcome"]) == {"answered"}
    assert (frame["reason"] == "").all()


def test_without_pandas_one_error_says_so(monkeypatch):
    real = builtins.__import__

    def refusing(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    model = coterie.FederatedKMeans(2, random_state=0).fit(ROWS)
    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(InputError, match="to_frame needs pandas, which is not installed"):
        model.ledger_.to_frame()
