"""What fit takes as tables and policies, and the labels of their rows."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans, load_model, open_table, save_model
from coterie.errors import InputError, UnknownParameter
from coterie.sites.policy import Policy
from tests.federations import blobs

ROWS = blobs(160, 3, 3, seed=6) * [1, 10, 100] + 5
FRAME = pd.DataFrame(ROWS, columns=["a", "b", "c"])
PARTS = [FRAME.iloc[i::4].reset_index(drop=True) for i in range(4)]
TEXT = FRAME.assign(sex=np.where(np.arange(160) % 3, "f", "m"), place=np.array(list("wxyz"))[np.arange(160) % 4])
ENCODED = {"ignore": ["id"], "categories": {"sex": ["f", "m"]}}
MIXED = TEXT.assign(id=[f"p{i}" for i in range(160)])


def fitted(tables, estimator=None, **options):
    return coterie.fit(estimator or FederatedKMeans(3, random_state=0), tables, scale="standard", **options)


def test_a_list_is_a_mapping_with_names():
    model, named = fitted(PARTS), fitted({f"site{i}": part for i, part in enumerate(PARTS, 1)})
    assert model.ledger_.sites() == ("site1", "site2", "site3", "site4")
    np.testing.assert_array_equal(model.cluster_centers_, named.cluster_centers_)
    arrays = fitted(tuple(part.to_numpy() for part in PARTS))
    np.testing.assert_array_equal(arrays.cluster_centers_, named.cluster_centers_)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "parquet", "csv"])
def test_one_table_is_split_by_its_site_column(kind, tmp_path):
    source = {
        "pandas": lambda: MIXED,
        "arrow": lambda: pa.Table.from_pandas(MIXED),
        "parquet": lambda: MIXED.to_parquet(tmp_path / "all.parquet") or tmp_path / "all.parquet",
        "csv": lambda: MIXED.to_csv(tmp_path / "all.csv", index=False) or str(tmp_path / "all.csv"),
    }[kind]()
    model = fitted(source, site_column="place", **ENCODED)
    assert model.ledger_.sites() == ("w", "x", "y", "z")
    apart = {name: own.drop(columns=["place"]) for name, own in MIXED.groupby("place")}
    separate = fitted(apart, **ENCODED)
    np.testing.assert_array_equal(model.cluster_centers_, separate.cluster_centers_)
    for name, own in MIXED.groupby("place"):
        np.testing.assert_array_equal(model.labels_by_site_[name], model.labels_[own.index])
    np.testing.assert_array_equal(model.labels_, model.predict(MIXED))


def test_labels_are_predictions_of_the_pooled_rows_in_the_order_of_sites():
    for estimator in (FederatedKMeans(3, random_state=0), FederatedKernelKMeans(3, gamma=0.1, random_state=0)):
        model = fitted(PARTS, estimator)
        np.testing.assert_array_equal(model.labels_, model.predict(pd.concat(PARTS)))
        assert model.labels_.dtype == np.int32
        assert list(model.labels_by_site_) == ["site1", "site2", "site3", "site4"]
        np.testing.assert_array_equal(np.concatenate(list(model.labels_by_site_.values())), model.labels_)


def test_no_row_is_read_for_labels_before_they_are_asked_for():
    class Counting:
        def __init__(self, table):
            self.table, self.columns, self.n_rows, self.passes = table, table.columns, table.n_rows, 0

        def raw_blocks(self):
            self.passes += 1
            yield from self.table.raw_blocks()

        blocks = raw_blocks

    tables = [Counting(open_table(part)) for part in PARTS]
    model = fitted(tables)
    before = [table.passes for table in tables]
    pickle.dumps(model)
    assert [table.passes for table in tables] == before
    _ = model.labels_, model.labels_, model.labels_by_site_
    assert [table.passes for table in tables] == [n + 1 for n in before]


def test_rows_without_a_label_are_predicted_so():
    holes = FRAME.mask(np.random.default_rng(0).random(FRAME.shape) < 0.05)
    parts = [holes.iloc[i::4] for i in range(4)]
    dropped = fitted(parts, missing="drop")
    whole = pd.concat(parts)
    np.testing.assert_array_equal(dropped.labels_ < 0, whole.isna().any(axis=1))
    np.testing.assert_array_equal(dropped.labels_, dropped.predict(whole))
    filled = fitted(parts, missing="mean")
    assert (filled.labels_ >= 0).all()
    np.testing.assert_array_equal(filled.labels_, filled.predict(whole))


def test_a_model_travels_without_the_rows(tmp_path):
    model = fitted(PARTS)
    with pytest.raises(AttributeError, match="not at hand here; call predict"):
        _ = pickle.loads(pickle.dumps(model)).labels_
    labels = model.labels_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).labels_, labels)
    loaded = load_model(save_model(model, tmp_path / "model.json"))
    assert not hasattr(loaded, "labels_")
    with pytest.raises(NotFittedError, match="not fitted yet"):
        _ = FederatedKMeans(3).labels_
    model.fit(ROWS[:20])
    assert len(model.labels_) == 20
    with pytest.raises(AttributeError, match="no labels_by_site_"):
        _ = model.labels_by_site_


@pytest.mark.parametrize("kind", ["fitted", "loaded"])
def test_raw_frames_are_encoded_by_the_models_columns_in_any_order(kind, tmp_path):
    model = fitted(MIXED, site_column="place", missing="mean", **ENCODED)
    assert [str(name) for name in model.feature_names_in_] == ["a", "b", "c", "sex=f", "sex=m"]
    if kind == "loaded":
        model = load_model(save_model(model, tmp_path / "model.json"))
    is_f = (MIXED["sex"] == "f").to_numpy(float)
    rows = np.column_stack([ROWS, is_f, 1 - is_f])
    plain = pd.DataFrame(rows, columns=model.feature_names_in_)
    labels = model.predict(plain)
    for frame in (MIXED, MIXED[["sex", "c", "id", "b", "a"]], plain[["sex=m", "c", "b", "a", "sex=f"]]):
        np.testing.assert_array_equal(model.predict(frame), labels)
        np.testing.assert_allclose(model.transform(frame), model.transform(plain), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(pa.Table.from_pandas(MIXED)), labels)
    unknown = MIXED.assign(sex=MIXED["sex"].where(MIXED.index != 5))
    gap = plain.copy()
    gap.loc[5, ["sex=f", "sex=m"]] = np.nan
    np.testing.assert_array_equal(model.predict(unknown), model.predict(gap))
    with pytest.raises(InputError, match="X: there is no column 'b'"):
        model.predict(MIXED.drop(columns=["b"]))
    with pytest.raises(InputError, match="outside its declared categories in 160 rows"):  # as when it was fitted
        model.predict(MIXED.assign(sex="x"))


def test_levels_that_sites_agreed_on_label_the_rows_they_came_from():
    rare = MIXED["sex"].where(MIXED.index % 53 != 1, "x")
    model = fitted(MIXED.assign(sex=rare), site_column="place", ignore=["id"], missing="mean")
    assert [str(name) for name in model.feature_names_in_[3:]] == ["sex=f", "sex=m"]
    np.testing.assert_array_equal(model.labels_, model.predict(MIXED.assign(sex=rare)))
    common = MIXED["sex"].where(MIXED.index % 5 != 1, pd.Series([f"x{i}" for i in range(160)]))
    model = fitted(MIXED.assign(sex=common), site_column="place", ignore=["id"], missing="mean")
    assert [str(name) for name in model.feature_names_in_[3:]] == ["sex=f", "sex=m", "sex=other"]
    np.testing.assert_array_equal(model.labels_, model.predict(MIXED.assign(sex=common)))
    for name, own in MIXED.groupby("place"):
        np.testing.assert_array_equal(model.labels_by_site_[name], model.labels_[own.index])


def test_policies_have_names_and_files(tmp_path):
    (tmp_path / "own.toml").write_text("min_group = 7\n")
    assert fitted(PARTS, policy="standard").min_group_ == 5
    assert fitted(PARTS, policy=str(tmp_path / "own.toml")).min_group_ == 7
    assert fitted(PARTS, policy=tmp_path / "own.toml").min_group_ == 7
    assert fitted(PARTS, policy={"site1": Policy(min_group=6), "site2": "standard"}).min_group_ == 5
    assert fitted(PARTS, policy="simulation", sums="plain").cost_is_ == "exact"
    with pytest.raises(InputError, match="no policy and no file called 'standart'; did you mean 'standard'"):
        fitted(PARTS, policy="standart")
    with pytest.raises(InputError, match="policy names north; the sites are site1, site2, site3, site4"):
        fitted(PARTS, policy={"north": "standard"})


@pytest.mark.parametrize(("tables", "options", "words"), [
    (FRAME, {}, "tables is one DataFrame; give one table for each site"),
    (ROWS, {}, "tables is one ndarray"),
    ("all.csv", {}, "tables is one str"),
    ([], {}, "tables is empty"),
    (PARTS, {"site_column": "place"}, "site_column='place' splits one table, and there are 4"),
    (open_table(FRAME), {"site_column": "a"}, "an opened table cannot be split"),
    ([open_table(part) for part in PARTS], {"ignore": ["a"]}, "ignore: a table is opened already"),
    (TEXT, {"site_column": "plase"}, "there is no column 'plase'; there are 'place'"),
])  # fmt: skip
def test_what_cannot_be_tables_is_said(tables, options, words):
    with pytest.raises(InputError, match=words):
        fitted(tables, **options)


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(UnknownParameter, match="no option 'ignored'; did you mean 'ignore'"):
        fitted(PARTS, ignored=["a"])


def test_labels_of_a_file_that_was_split_are_those_of_rows_read_as_they_were(tmp_path):
    """Nothing in it says whether its commas are decimal ones."""
    rng = np.random.default_rng(0)
    lines = [f"{'abc'[i % 3]};{value:.3f}".replace(".", ",") for i, value in enumerate(1 + 8 * rng.random(60))]
    path = tmp_path / "all.csv"
    path.write_text("\n".join(["hospital;dose", *lines]))
    model = coterie.fit(
        coterie.FederatedKMeans(2, random_state=0), path, site_column="hospital", csv_decimal=",", policy="simulation"
    )
    assert sorted(np.bincount(model.labels_)) == sorted(model.counts_)
    assert pickle.loads(pickle.dumps(model)).labels_.tolist() == model.labels_.tolist()
