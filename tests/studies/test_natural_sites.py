"""Data that really lies at different sites."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie_studies.datasets import DataMissing, heart_disease, pjm_load_shapes, wisdm
from coterie_studies.natural_sites import SETS, STUDY, measure
from coterie_studies.study import run_study


def test_penguins_together_are_as_good_as_pooled_and_better_than_any_island_alone():
    found = measure("penguins", 0)
    alone = [value for name, value in found.items() if name.startswith("alone:") and name.endswith(".ratio")]
    assert found["together.ratio"] <= 1.01
    assert len(alone) == 3
    assert min(alone) > 1.2
    assert found["together.bytes_up"] >= found["together.bytes_up_a_site"] > 0


def test_without_a_data_folder_penguins_run_and_the_rest_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataMissing, match=r"nowhere.*wisdm.npz"):
        wisdm()
    found = run_study(STUDY, tmp_path / "run", quick=True, seeds=1)
    assert set(found.skipped()) == {"wisdm/seed=0", "pjm/seed=0", "heart/seed=0"}
    summary = (tmp_path / "run" / "README.md").read_text()
    assert "- `heart/seed=0`: " in summary
    assert "Penguins, 3 islands" in summary
    assert (tmp_path / "run" / "figures" / "ratios.png").stat().st_size > 10_000


@pytest.mark.data
def test_the_stored_sets_have_their_sites(data_folder, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    assert [len(load().by_site()) for load in (wisdm, pjm_load_shapes, heart_disease)] == [36, 11, 4]
    np.testing.assert_allclose(pjm_load_shapes().rows.mean(axis=1), 1)
    heart = heart_disease()
    assert {"slope", "ca", "thal"}.isdisjoint(heart.columns)
    assert np.isnan(heart.rows[heart.site == "switzerland", heart.columns.index("chol")]).all()


@pytest.mark.data
def test_hospitals_together_are_as_good_as_pooled(data_folder, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    found = measure("heart", 0)
    assert found["together.ratio"] <= 1.005
    assert found["sums.ratio"] <= 1.005


@pytest.mark.data
@pytest.mark.parametrize(("name", "step"), [("wisdm", 6), ("pjm", 20)])
def test_phones_and_zones_together_are_nearly_as_good_as_pooled(data_folder, monkeypatch, name, step):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    thin = SETS[name]
    monkeypatch.setitem(SETS, name, dataclasses.replace(thin, load=lambda: thinned(thin.load(), step)))
    found = measure(name, 0)
    assert found["together.ratio"] <= 1.02
    alone = [value for key, value in found.items() if key.startswith("alone:") and key.endswith(".ratio")]
    assert np.mean(alone) > 1.1 * found["together.ratio"]


def thinned(data, step):
    """Every so-manieth row of a data set."""
    truth = data.truth[::step] if data.has_truth else data.truth
    return dataclasses.replace(data, rows=data.rows[::step], site=data.site[::step], truth=truth)
