"""What the estimators of kernels have in common: which kernel, by which method, with which settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.protocols.baselines import Embeds
from coterie.protocols.dspgd import DSPGDSettings, Embedding
from coterie.protocols.dspgd_sites import embedded
from coterie.protocols.kernel_kmeans import KernelFit, KernelProblem
from coterie.protocols.landmarks import LandmarkSettings
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[np.floating[Any]]
DSPGD = ("dspgd", "dspgd-dense")


@dataclass(eq=False, repr=False, kw_only=True)
class KernelParameters:
    """Parameters that kernel k-means and kernel PCA have in common, and what methods make of them."""

    kernel: str = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    method: str = "landmarks"
    landmarks: Any = "auto"
    n_landmarks: int | None = None
    landmark_bits: int = 4
    value_range: tuple[float, float] | None = None
    n_features: int | None = 40
    n_iter: int = 20
    threshold: float | None = None
    step: Any = "1/t"
    solver: Any = "auto"
    cem: bool = True
    features: str = "phase"
    precision: str = "float64"
    random_state: Any = None

    methods: ClassVar[tuple[str, ...]] = ("landmarks", *DSPGD)
    result_type: ClassVar[type[Any]] = KernelFit

    @property
    def method_name(self) -> str:
        """The method as sites know it: DSPGD without its mechanism (``cem=False``) is one of its own."""
        return "dspgd-dense" if self.method == "dspgd" and not self.cem else self.method

    def kernel_problem(self) -> KernelProblem:
        """The kernel that is asked for."""
        if self.method not in self.methods:
            raise InputError(f"method={self.method!r} is not known; there is {', '.join(self.methods)}.")
        return KernelProblem(self.kernel, self.gamma, self.degree, self.coef0)

    def landmark_settings(self) -> LandmarkSettings:
        """How landmarks are found."""
        given = self.landmarks
        return LandmarkSettings(
            given if isinstance(given, str) else "auto",
            None if isinstance(given, str) else np.asarray(given, np.float64),
            None if self.n_landmarks is None else int(self.n_landmarks),
            int(self.landmark_bits),
            value_range=self.value_range,
        )

    def dspgd_settings(self, n_components: int, rank: int, *, center: bool) -> DSPGDSettings:
        """The knobs of DSPGD."""
        return DSPGDSettings(
            n_components,
            max(40, 2 * rank) if self.n_features is None else int(self.n_features),
            int(self.n_iter),
            self.threshold,
            int(rank),
            self.step,
            self.solver,
            center,
            self.method_name != "dspgd-dense",
            self.features,
            self.precision,
        )


def embedded_rows(embedding: Embedding | Embeds, rows: Rows) -> Rows:
    """Rows in the embedding a run found."""
    if not isinstance(embedding, Embedding):
        return embedding.embed(rows)
    found: Rows = embedded(ArrayTable(rows), embedding.transcript).rows
    return found
