"""The reference cases are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.cases import CASES, pooled_reference, prepared, true_cost
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

SHAPES = {
    "heart": (920, 13, 4),
    "heart-text": (920, 22, 4),
    "heart-mixed": (920, 22, 4),
    "digits": (1797, 64, 5),
    "wisdm": (5418, 43, 36),
    "mushrooms": (8124, 112, 5),
    "pjm": (43_800, 24, 11),
    "air": (420_768, 11, 12),
    "air-quick": (70_128, 11, 12),
    "penguins": (342, 4, 3),
    "covtype": (60_000, 10, 5),
    "mnist": (60_000, 784, 5),
}


LARGE = ("air", "mnist")


@pytest.mark.data
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in CASES])
def test_rows_columns_and_sites_are_all_there(data_folder, name):
    known = prepared(CASES[name])
    assert (*known.rows.shape, len(known.tables)) == SHAPES[name]
    assert len(known.columns) == known.rows.shape[1]
    assert np.isfinite(known.rows).all()
    assert set(CASES[name].bars) <= set(CASES[name].ks)


@pytest.mark.data
@pytest.mark.parametrize("name", ["heart", "wisdm", "air-quick"])
def test_standard_columns_are_scikit_learns(data_folder, name):
    raw = np.concatenate([table.rows for table in CASES[name].load().values()])
    expected = StandardScaler().fit_transform(SimpleImputer().fit_transform(raw))
    np.testing.assert_allclose(prepared(CASES[name]).rows, expected, atol=1e-6)


@pytest.mark.data
def test_words_become_columns_of_zeros_and_ones(data_folder):
    plain, text = prepared(CASES["heart"]), prepared(CASES["heart-text"])
    raw = text.rows * text.scale + text.shift
    no_pain = raw[:, text.columns.index("cp=no pain")]
    cp = plain.rows[:, plain.columns.index("cp")] * plain.scale[2] + plain.shift[2]
    np.testing.assert_allclose(no_pain, np.isclose(cp, 4.0), atol=1e-9)
    thal = raw[:, [i for i, name in enumerate(text.columns) if name.startswith("thal=")]]
    np.testing.assert_allclose(thal.sum(axis=1), 1.0, atol=1e-9)  # a missing value is the shares of all
    assert len(np.unique(thal.round(6), axis=0)) == 4


@pytest.mark.data
def test_every_text_column_weighs_as_much_as_a_number(data_folder):
    known = prepared(CASES["heart-mixed"])
    for block in ("cp", "restecg", "slope", "thal"):
        own = [i for i, name in enumerate(known.columns) if name.startswith(f"{block}=")]
        assert known.rows[:, own].var(axis=0).sum() == pytest.approx(1.0)
        assert len(set(known.scale[own])) == 1


@pytest.mark.data
def test_columns_of_stated_ranges_lie_within_them(data_folder):
    rows = prepared(CASES["covtype"]).rows
    assert rows.min() >= 0.0
    assert rows.max() <= 1.0


def test_the_cost_is_the_same_in_raw_units_and_least_for_the_reference():
    case = CASES["penguins"]
    known, reference = prepared(case), pooled_reference(case, 3)
    centers = reference.centers * known.scale + known.shift
    assert true_cost(case, centers, units="raw") == pytest.approx(reference.cost)
    assert reference.cost == pytest.approx(379.39, abs=0.01)
    assert true_cost(case, reference.centers + 0.05) > reference.cost
