"""The study of Triebe & Rajagopal, and how good our default is on its data."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.methods.kmeans.federated import FederatedSettings
from coterie_studies import federated_kmeans
from coterie_studies.datasets import gaussian_sites
from coterie_studies.federated_kmeans import Grid, make_study
from coterie_studies.registry import STUDIES
from coterie_studies.study import run_study

SMALL = make_study(quick=Grid((0.1, 1.0), (1,), (1.0,), rounds=4))


def test_the_papers_data_is_as_described():
    data = gaussian_sites(3)
    assert data.rows.shape == (500, 1)
    assert {len(rows) for rows in data.by_site().values()} == {10}
    means = data.truth.astype(float)
    assert all(len(set(means[data.site == site])) == 1 for site in np.unique(data.site))
    assert (data.rows[:, 0] - means).std() == pytest.approx(0.2, rel=0.1)


def test_a_small_study_resumed_gives_the_tables_and_figures_of_one_in_one_go(tmp_path):
    def stop(done, total, key):
        if done == 5:
            raise KeyboardInterrupt

    run_study(SMALL, tmp_path / "whole", quick=True, seeds=1)
    with pytest.raises(KeyboardInterrupt):
        run_study(SMALL, tmp_path / "halves", quick=True, seeds=1, watch=stop)
    run_study(SMALL, tmp_path / "halves", resume=True)
    for name in ("tables/settings.csv", "tables/baselines.md", "README.md"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "halves" / name).read_bytes()
    drawn = {path.stem for path in (tmp_path / "whole" / "figures").iterdir()}
    assert drawn == {f"figure-{n}" for n in "167"}
    assert "Only in the full scope: figure 2, 3, 4, 5." in (tmp_path / "whole" / "README.md").read_text()


def test_every_setting_of_the_papers_figures_is_in_the_full_scope():
    study = STUDIES["federated-kmeans"]
    keys = {trial.key for trial in study.trials(study.scope(False))}
    assert len([key for key in keys if key.startswith("federated/")]) == 5 * 3 * 3 * 10
    assert {"federated/C=0.02/E=5/beta=0.2/seed=9", "central/seed=9", "progress/7b"} <= keys


def test_all_sites_one_epoch_without_momentum_is_the_central_run():
    data = gaussian_sites(1)
    settings = FederatedSettings(max_rounds=30)
    split = federated_kmeans._run(data.by_site(), settings, 1, federated_kmeans.Ledger())
    pooled = federated_kmeans._run({"all": data.rows}, settings, 1, federated_kmeans.Ledger())
    np.testing.assert_allclose(split, pooled, atol=1e-12)


def test_our_default_is_within_a_thousandth_of_the_best_of_ten_central_starts():
    ratios = [federated_kmeans._default(seed, 10)["ratio"] for seed in range(10)]
    assert max(ratios) <= 1.001


def test_so_it_is_with_fifty_rows_a_site():
    ratios = [federated_kmeans._default(seed, 50)["ratio"] for seed in range(10)]
    assert sum(ratio <= 1.001 for ratio in ratios) >= 9
