"""k-means from every site's own centers, in one round."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.methods.kmeans.lloyd import KMeansSettings
from coterie.methods.method import Method
from coterie.methods.shared.lloyd import Close
from coterie.methods.shared.starts import Summarise


@dataclass(eq=False, repr=False)
class OneShotSettings(KMeansSettings):
    """Every site's own centers, clustered: one round, and one to close."""

    method = "one-shot"


METHOD = Method(
    "one-shot",
    "k-means from every site's own centers, in one round",
    (Summarise, Close),
    "k(d+1), and k+1 to close",
    "each site's own cluster centers and their sizes",
    visibility="averages",
    settings=(OneShotSettings,),
)
