"""Data by site: what a paper draws, and what lies in the data folder where there is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.examples.datasets import SiteData, shared_out

__all__ = [
    "DataMissing",
    "covtype",
    "data_folder",
    "gaussian_sites",
    "gse2187",
    "heart_disease",
    "mnist",
    "mnist_small",
    "mushrooms",
    "pjm_load_shapes",
    "wisdm",
]


class DataMissing(InputError):
    """A data set is not in the data folder, or there is no such folder."""


def gaussian_sites(seed: int, *, n_sites: int = 50, rows_a_site: int = 10) -> SiteData:
    """The data of Triebe & Rajagopal (2019): each site draws from one of five Gaussians on a line.

    Means 1 to 5, deviation 0.2; which Gaussian is a site's is drawn for each on its own.
    """
    rng = np.random.default_rng(seed)
    means = np.repeat(rng.integers(1, 6, n_sites), rows_a_site)
    rows = means + 0.2 * rng.standard_normal(len(means))
    sites = np.repeat([f"site-{i:02d}" for i in range(n_sites)], rows_a_site)
    return SiteData(rows[:, None], ("x",), sites, means.astype(str))


def data_folder() -> Path | None:
    """The folder of data sets: ``COTERIE_DATA``, else ``../shared/data`` beside the repository or from here."""
    told = os.environ.get("COTERIE_DATA")
    if told:
        return Path(told)
    for above in (Path(__file__).parents[3], Path.cwd()):
        folder = above.parent / "shared" / "data"
        if folder.is_dir():
            return folder
    return None


def stored(name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one file of the data folder."""
    folder = data_folder()
    if folder is None:
        raise DataMissing(f"{name}.npz: there is no data folder; set COTERIE_DATA to one that holds it.")
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise DataMissing(f"{path}: there is no such file; set COTERIE_DATA to a folder that holds it.")
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def wisdm() -> SiteData:
    """Accelerometer features of 36 phone users, 6 activities (Kwapisz, Weiss, Moore 2010); some values missing."""
    z = stored("wisdm")
    users = np.array([f"user-{u:02d}" for u in z["client"]])
    return SiteData(z["X"].astype(float), tuple(map(str, z["feature_names"])), users, z["class_names"][z["y"]])


def pjm_load_shapes() -> SiteData:
    """Days of 24 hourly electricity loads of 11 zones of PJM (CC0), each day divided by its own mean; no classes."""
    z = stored("pjm_load")
    loads = z["X"].astype(float)
    hours = tuple(f"hour {h:02d}" for h in range(loads.shape[1]))
    return SiteData(loads / loads.mean(axis=1, keepdims=True), hours, z["site_names"][z["site"]], np.array([], str))


def heart_disease() -> SiteData:
    """Patients of four hospitals (Janosi et al. 1988), with or without heart disease; many values missing.

    ``slope``, ``ca`` and ``thal`` are left out: outside Cleveland they are mostly missing. A cholesterol or blood
    pressure of 0 stands for missing. How grave a disease is (1 to 4) is not told apart: one hospital has not.
    """
    z = stored("heart_disease")
    names, rows = [str(name) for name in z["feature_names"]], z["X"].astype(float)
    for name in ("chol", "trestbps"):
        column = rows[:, names.index(name)]
        column[column == 0] = np.nan
    kept = [i for i, name in enumerate(names) if name not in ("slope", "ca", "thal")]
    truth = np.where(z["y"] > 0, "disease", "none")
    return SiteData(rows[:, kept], tuple(names[i] for i in kept), z["site_names"][z["site"]], truth)


def mushrooms() -> SiteData:
    """8,124 mushrooms, poisonous or edible (Schlimmer 1987), 112 columns of 0 and 1, shared out among five sites."""
    z = stored("mushrooms")
    return shared_out(z["X"].astype(float), tuple(map(str, z["feature_names"])), z["y"])


def mnist() -> SiteData:
    """60,000 images of handwritten digits (LeCun et al. 1998), from 0 to 1, shared out among five sites."""
    z = stored("mnist")
    return shared_out(z["X"] / 255, tuple(f"pixel {i}" for i in range(784)), z["y"])


def mnist_small() -> SiteData:
    """20,000 of them, drawn at random."""
    whole = mnist()
    drawn = np.random.default_rng(0).permutation(len(whole.rows))[:20000]
    return SiteData(whole.rows[drawn], whole.columns, whole.site[drawn], whole.truth[drawn])


def covtype() -> SiteData:
    """581,012 patches of forest by their cover (Blackard & Dean 1999), every column from 0 to 1, five sites."""
    z = stored("covtype")
    low, high = z["X"].min(axis=0), z["X"].max(axis=0)
    rows = (z["X"] - low.astype(float)) / np.maximum(high.astype(float) - low, 1.0)
    return shared_out(np.ascontiguousarray(rows), tuple(f"column {i}" for i in range(rows.shape[1])), z["y"])


def gse2187() -> SiteData:
    """8,565 genes of 537 rats' livers after fibrates, statins, azoles or toxicants (Natsoulis et al. 2005).

    It is columns that sites share here, so ``site`` is a row's treatment: two or three rats had the same. Values are
    logarithms; some are missing.
    """
    z = stored("gse2187")
    return SiteData(z["X"].astype(float), tuple(map(str, z["probe_id"])), z["treatment"], z["class_names"][z["y"]])
