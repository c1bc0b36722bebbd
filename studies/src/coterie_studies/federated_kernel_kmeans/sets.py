"""The data sets of "A communication efficient federated kernel k-means" and its settings for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from coterie.examples.datasets import SiteData, circles, digits
from coterie_studies.datasets import covtype, mnist, mnist_small, mushrooms

__all__ = ["FULL", "QUICK", "KernelSet", "Sets"]


@dataclass(frozen=True)
class KernelSet:
    """A data set and what is run on it (section 6.1 and appendix G of the paper)."""

    title: str
    load: Callable[[], SiteData]
    n_clusters: int
    n_features: int
    """D, of DSPGD."""
    n_components: int
    """s."""
    n_points: int = 1000
    """C, of FK and CE PCA."""
    rfk_features: int = 200
    """D, of RFK."""
    rfk_points: tuple[int, ...] = ()
    """C, of RFK."""
    ce_pca_features: tuple[int, ...] = (20, 50, 100, 200)
    """D, of CE PCA."""
    pooled: Literal["ck", "sk"] = "sk"
    """The level to reach."""
    n_iter: int = 50
    n_iter_dense: int = 50
    """T with and without CEM."""
    turns: tuple[int, ...] = (10, 20, 30, 40, 50)
    """The T at which rows are clustered; without any, figure 1 is all the set is for."""
    bound: float | None = None
    """Figure 1's curve is this over t; None leaves the set out of it."""
    gamma: float | None = None
    """None takes the average distance."""
    has_highest: bool = False
    """Whether the text says that FK has the highest NMI for any cost."""
    saves_on: str = ""
    """The way on which the text says FK saves 60 % at the highest NMI."""


Sets = Mapping[str, KernelSet]

FULL: Sets = {
    "mushrooms": KernelSet(
        "Mushrooms", mushrooms, 2, 20, 6, rfk_points=(100, 300, 500, 700), pooled="ck", bound=0.4, has_highest=True
    ),
    "mnist-small": KernelSet("MNIST-small", mnist_small, 10, 40, 20, turns=(), bound=0.03),
    "mnist": KernelSet(
        "MNIST",
        mnist,
        10,
        40,
        20,
        rfk_features=800,
        rfk_points=(100, 300, 500, 700, 900),
        has_highest=True,
        saves_on="rfk",
    ),
    "covtype": KernelSet(
        "Covtype",
        covtype,
        7,
        40,
        14,
        n_points=4000,
        rfk_features=100,
        rfk_points=(1000, 2000, 3000, 4000, 5000),
        n_iter_dense=10,
        saves_on="ce-pca",
    ),
}
QUICK: Sets = {
    "digits": KernelSet(
        "Digits",
        digits,
        10,
        40,
        20,
        n_points=300,
        rfk_points=(100, 300, 700),
        ce_pca_features=(20, 100),
        pooled="ck",
        n_iter_dense=20,
        bound=0.03,
        has_highest=True,
        saves_on="rfk",
    ),
    "circles": KernelSet(
        "Circles",
        circles,
        2,
        20,
        6,
        n_points=100,
        rfk_points=(50, 100, 200),
        ce_pca_features=(20, 100),
        pooled="ck",
        n_iter_dense=20,
        bound=0.4,
        gamma=4.0,
        has_highest=True,
        saves_on="ce-pca",
    ),
}
