"""One private run: over sites in one process, sums masked, every site under a budget of just what the run asks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from coterie.errors import NoiseWarning, RowsHidden
from coterie.estimators import FederatedKernelKMeans, FederatedKMeans, FederatedPCA, Privacy, fit
from coterie.sites.policy import Policy, PrivacyRules
from coterie_studies.privacy.sets import (
    PrivateSet,
    Values,
    by_site,
    captured,
    complete,
    judged,
    judged_in_kernel,
    loaded,
)

__all__ = ["RUNS", "Setting", "clustered", "clustered_in_kernel", "component_variance", "measured"]

E = TypeVar("E", FederatedKMeans, FederatedKernelKMeans, FederatedPCA)

COMPONENTS = 5


@dataclass(frozen=True)
class Setting:
    """How a run is made; without an ``epsilon`` it is one over rows, without noise."""

    epsilon: float | None = 1.0
    n_sites: int = 5
    tolerated: int = 0
    delta: float | None = None
    """None: the number of rows to the power of -1.1."""
    widening: float = 1.0
    """Ranges are stated so many times as wide as they are."""

    def privacy(self, n_rows: int) -> Privacy | None:
        """As estimators take it."""
        if self.epsilon is None:
            return None
        return Privacy(self.epsilon, delta=self.delta or n_rows**-1.1, tolerated=self.tolerated)


def clustered(one: PrivateSet, setting: Setting, seed: int) -> Values:
    """k-means: its cost on all rows over that of the pooled reference, and NMI."""
    made = FederatedKMeans(one.n_clusters, privacy=_privacy(one, setting), random_state=seed)
    return judged(one, _fitted(made, one, setting).cluster_centers_)


def clustered_in_kernel(one: PrivateSet, setting: Setting, seed: int) -> Values:
    """Kernel k-means: its f_K over that of the pooled reference, and NMI."""
    privacy = _privacy(one, setting)
    made = FederatedKernelKMeans(one.n_clusters, gamma=one.gamma, privacy=privacy, random_state=seed)
    return judged_in_kernel(one, _fitted(made, one, setting).label_rows(complete(one)))


def component_variance(one: PrivateSet, setting: Setting, seed: int) -> Values:
    """PCA: the variance of all rows along its axes over that along the best."""
    made = FederatedPCA(COMPONENTS, privacy=_privacy(one, setting), random_state=seed)
    return {"captured": captured(one, _fitted(made, one, setting).components_)}


Run = Callable[[PrivateSet, Setting, int], Values]
RUNS: dict[str, Run] = {"kmeans": clustered, "kernel": clustered_in_kernel, "pca": component_variance}


def measured(run: Run, one: PrivateSet, setting: Setting, seed: int) -> Values:
    """What a run finds; nothing is defined where it stops since noise hides the rows."""
    try:
        return run(one, setting, seed)
    except RowsHidden:
        return dict.fromkeys(("ratio", "nmi", "captured"), math.nan)


def _privacy(one: PrivateSet, setting: Setting) -> Privacy | None:
    return setting.privacy(len(loaded(one).rows))


def _fitted(made: E, one: PrivateSet, setting: Setting) -> E:
    data, beyond, policy = loaded(one), (setting.widening - 1) / 2, Policy(protection="none")
    if made.privacy is not None and made.privacy.delta is not None:
        policy = Policy(protection="noise", privacy=PrivacyRules(made.privacy.epsilon, made.privacy.delta))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)  # what noise does is what is measured
        return fit(
            made,
            by_site(one, setting.n_sites),
            missing="refuse" if data.is_whole else "mean",
            ranges=(data.low - beyond, data.high + beyond),
            policy=policy,
        )
