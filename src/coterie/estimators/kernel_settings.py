"""What the estimators of kernels have in common: which kernel, by which method, with which settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.protocols.baselines import Embeds
from coterie.protocols.dspgd import DSPGDSettings, Embedding
from coterie.protocols.dspgd_sites import embedded
from coterie.protocols.kernel_kmeans import KernelProblem
from coterie.protocols.landmarks import LandmarkSettings
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[np.floating[Any]]
DSPGD = ("dspgd", "dspgd-dense")


def embedded_rows(embedding: Embedding | Embeds, rows: Rows) -> Rows:
    """Rows in the embedding a run found."""
    if not isinstance(embedding, Embedding):
        return embedding.embed(rows)
    found: Rows = embedded(ArrayTable(rows), embedding.transcript).rows
    return found


def method_name_of(estimator: Any) -> str:
    """The method as sites know it: DSPGD without its mechanism is one of its own."""
    return "dspgd-dense" if estimator.method == "dspgd" and not estimator.cem else estimator.method


def dspgd_problem(estimator: Any) -> KernelProblem:
    """The kernel, once the method is found to be DSPGD."""
    if estimator.method not in DSPGD:
        raise InputError(f"method={estimator.method!r} is not known; there is {', '.join(estimator.methods)}.")
    return kernel_problem(estimator)


def kernel_problem(estimator: Any) -> KernelProblem:
    """The kernel an estimator asks for."""
    return KernelProblem(estimator.kernel, estimator.gamma, estimator.degree, estimator.coef0)


def landmark_settings(estimator: Any) -> LandmarkSettings:
    """How landmarks are found."""
    given = estimator.landmarks
    named = given if isinstance(given, str) else "auto"
    return LandmarkSettings(
        named,
        None if isinstance(given, str) else np.asarray(given, np.float64),
        None if estimator.n_landmarks is None else int(estimator.n_landmarks),
        int(estimator.landmark_bits),
        value_range=estimator.value_range,
    )


def dspgd_settings(estimator: Any, n_components: int, rank: int, center: bool) -> DSPGDSettings:
    """The knobs of DSPGD."""
    n_features = max(40, 2 * rank) if estimator.n_features is None else int(estimator.n_features)
    return DSPGDSettings(
        n_components,
        n_features,
        int(estimator.n_iter),
        estimator.threshold,
        int(rank),
        estimator.step,
        estimator.solver,
        center,
        method_name_of(estimator) != "dspgd-dense",
        estimator.features,
        estimator.precision,
    )
