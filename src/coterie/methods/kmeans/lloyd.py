"""Lloyd's k-means under a name of its own: sums only, start by sums."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy.typing as npt

from coterie.methods.kmeans.start import KMeansSettings
from coterie.methods.method import Method
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.starts import Split, Summarise
from coterie.parameters import Allowed, parameter


@dataclass(eq=False, repr=False)
class LloydSettings(KMeansSettings):
    """Parameters of Lloyd's algorithm."""

    _: KW_ONLY
    init: str | npt.ArrayLike = parameter("var-part", "Where to start, as in :class:`FederatedKMeans`.")
    max_rounds: int = parameter(100, "The most rounds.", Allowed(whole=True, low=0))
    tol: float = parameter(1e-4, "When to stop, as in :class:`FederatedKMeans`.", Allowed(low=0))

    method = "lloyd"


METHOD = Method(
    "lloyd",
    "Lloyd's k-means over all rows, by sums",
    (Assign, Close, Split, Summarise),
    "k(d+1)+1 a round and k+1 to close; start by sums: cells(2d+1) a round; one-shot start: k(d+1)",
    "per cluster the sum and number of rows, over all sites; with a one-shot start each site's own centers",
    optional="only with a one-shot start",
    settings=(LloydSettings,),
)
