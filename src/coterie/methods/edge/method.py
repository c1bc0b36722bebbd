"""k-means from small summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.messages.verbs import Protocol
from coterie.methods.edge.auto import auto_kmeans
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.sites import SendCenters, SendSubspace, SendSummary, SumByCell, SumReducedCost
from coterie.methods.edge.stages import read_pipeline
from coterie.methods.method import ClusterSettings, Method, RunContext
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit
from coterie.methods.shared.starts import Split, Summarise

NAMED = ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw")
"""Pipelines that are methods of their own in policies, audits and on the command line."""


@dataclass(eq=False, repr=False)
class EdgeKMeansSettings(EdgeSettings, ClusterSettings):
    """A pipeline, and what follows it."""

    result_type: ClassVar[type[Any]] = KMeansFit

    @property
    def method(self) -> str:
        """The paper's name of the pipeline, or ``edge-kmeans``."""
        name = "auto" if self.is_auto else read_pipeline(self.pipeline).name
        return name if name in NAMED else "edge-kmeans"

    @property
    def sends_rows(self) -> bool:
        """All but ``"auto"`` and local centers."""
        return not self.is_auto and read_pipeline(self.pipeline).sends_rows

    def check(self, n_columns: int) -> None:
        """Raise an error if parameters are wrong, alone or together."""
        super().check(n_columns)
        self.checked_pipeline()

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """The pipeline, and steps of Lloyd."""
        self.check(context.n_columns)
        if self.is_auto:
            return auto_kmeans(self, self.n_clusters, context)
        return edge_kmeans(self, self.n_clusters, context.n_columns, seed=context.seed)


_PROJECTED = "single rows, projected, with weights"
_STEPS = "k(d+1)+1 a step of Lloyd, k+1 to close"
_ENDING = (SumByCell, Assign, Close)
_SUMMARIES = (SendSubspace, SumReducedCost, SendSummary)


def _pipeline(name: str, title: str, requests: tuple[type[Any], ...], cost: str, discloses: str) -> Method:
    return Method(
        name,
        f"k-means from small summaries: {title}",
        (CountRows, *requests, *_ENDING),
        f"d+2 for the mean, {cost}; {_STEPS}",
        discloses,
        visibility="rows",
        settings=(EdgeKMeansSettings,),
        fixed={"pipeline": name},
    )


METHODS = (
    Method(
        "edge-kmeans",
        "k-means with few numbers: each site's own centers, or sums, then steps of Lloyd; or stages of your choice",
        (Summarise, SendCenters, Split, Assign, Close, SumByCell, CountRows, PoolRows, *_SUMMARIES),
        "k(d+1), k(d+1)+1 a step, k+1 to close; by sums cells(2d+1) a round in place of the first; stages as named",
        "each site's own centers, or sums alone; with stages of your choice, what these disclose",
        optional="where every site allows averages; only stages of your choice ask for rows",
        settings=(EdgeKMeansSettings,),
        use="for k-means clusters where sites should send as little as possible",
    ),
    *(
        _pipeline(name, title, (SendSummary,), f"{numbers} + 1 for C points of t axes", _PROJECTED)
        for name, title, numbers in (
            ("fss", "PCA, then a sample (Feldman, Schmidt & Sohler)", "(C+k)(t+1) + t d"),
            ("jl+fss", "a random projection, PCA, then a sample (Lu et al. 2020, Algorithm 2)", "(C+k)(t+1) + t d'"),
            ("fss+jl", "PCA, a sample, then a random projection of it (Algorithm 4)", "(C+k)(d'+1)"),
            ("jl+fss+jl", "a random projection before and after PCA and a sample (Algorithm 6)", "(C+k)(d''+1)"),
        )
    ),
    *(
        _pipeline(
            name, title, _SUMMARIES, f"t {d} + 1 for axes, 1, then (C_m+k)(t+1) + 1 for C points",
            f"each site's principal axes; {_PROJECTED}",
        )
        for name, title, d in (
            ("bklw", "distributed PCA, then a distributed sample (Balcan et al. 2014)", "d"),
            ("jl+bklw", "a random projection, then distributed PCA and sample (Lu et al. 2020, Algorithm 5)", "d'"),
        )
    ),
    Method(
        "nr",
        "k-means of pooled rows, none of them reduced: a baseline",
        (CountRows, PoolRows, SendSummary, Assign, Close),
        "all rows, 2 before and k+1 to close",
        "every row",
        visibility="rows",
        settings=(EdgeKMeansSettings,),
        fixed={"pipeline": "nr"},
        needs_rows=True,
        is_baseline=True,
    ),
)  # fmt: skip
