"""A method whose questions differ in their last bits from machine to machine, and a site's process that knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import ClusterSettings, Method, RunContext
from coterie.methods.registry import METHODS
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit, closed


def carelessly(values: Floats) -> Floats:
    """Numbers that many sums go into, by BLAS and by numpy's own functions: no two kernels round alike."""
    noise = np.random.default_rng(0).normal(size=20_000)
    grown = np.exp(np.sin(np.resize(values, 20_000) + noise)).reshape(100, 200)
    return np.resize(np.linalg.eigvalsh(grown @ grown.T)[::-1] * 1e-4, values.shape)


@dataclass(eq=False, repr=False)
class CarelessSettings(ClusterSettings):
    """Centers that follow from sums by arithmetic that is not exact."""

    method = "careless"
    result_type = KMeansFit

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """Three rounds."""
        centers = np.eye(self.n_clusters, context.n_columns)
        for _ in range(3):
            reply = yield from total(Assign(centers))
            centers = carelessly(reply.sums + np.arange(context.n_columns))
        return (yield from closed(centers, 3))


METHOD = Method("careless", "a trial", (Assign, Close), "k(d+1)", "sums", settings=(CarelessSettings,))


def serve(*arguments: Any) -> None:
    """A site of docs/adding-an-engine.md."""
    import pipes_engine

    METHODS["careless"] = METHOD
    pipes_engine.serve(*arguments)
