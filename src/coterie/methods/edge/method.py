"""k-means from small summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from coterie.errors import InputError
from coterie.messages.verbs import Protocol
from coterie.methods.edge.auto import auto_kmeans
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.sites import SendCenters, SendSubspace, SendSummary, SumByCell, SumReducedCost
from coterie.methods.edge.stages import Pipeline, Stage, read_pipeline
from coterie.methods.method import ClusterSettings, Method, RunContext
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit
from coterie.methods.shared.starts import Split, Summarise
from coterie.parameters import parameter

NAMED = ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw")
"""Pipelines that are methods of their own in policies, audits and on the command line."""


@dataclass(eq=False, repr=False)
class EdgeKMeansSettings(ClusterSettings):
    """A pipeline, and what follows it."""

    _: KW_ONLY
    pipeline: str | Sequence[Stage] = parameter(
        "auto",
        "``auto``: every site's own centers where sites let averages be seen, cells by sums where they do not, then "
        "steps of Lloyd by sums while they pay and the budget lasts; no row leaves. Else words joined by ``+``: "
        "``jl`` (random projection), ``pca`` (a site's own), ``sample``, ``fss`` (these two), ``dispca``, "
        "``disss``, ``bklw`` (these two), ``centers`` (a site's own, averages), each with a size where wanted, "
        "``jl:64+pca:10+sample:500``; ``nr``: all rows. Or a list of stages of "
        ":mod:`coterie.methods.edge.stages`.",
    )
    refine: int = parameter(
        0,
        "Steps of Lloyd over the sites afterwards, by sums. The paper has none, and its lift is biased; one step "
        "mends most of it. With ``auto`` the most steps; 0 leaves their number to what they gain.",
    )
    budget: int | None = parameter(
        None,
        "Numbers all sites may send together: sizes that are not given are the largest that fit (own centers stay "
        "``n_clusters`` a site). Agreement on columns, scaling and the limits that masked sums need come on top.",
    )
    accuracy: float | None = parameter(
        None, "Sizes for which the paper's theorems promise a cost of at most ``1 + accuracy`` times the best."
    )
    lift: str = parameter(
        "inverse",
        "Back from a random projection by its pseudo-inverse (``inverse``: Algorithms 2, 4, 5, 6), or by the "
        "``means`` of the rows nearest to each center (Algorithm 1, by one more sum) or of the points (Algorithm "
        "3).",
    )
    center: bool = parameter(
        True, "Subtract the mean first, by a sum: the paper takes it for granted. Only where rows are projected."
    )

    result_type: ClassVar[type[Any]] = KMeansFit

    @property
    def method(self) -> str:
        """The paper's name of the pipeline, or ``edge-kmeans``."""
        if self.is_auto:
            return "edge-kmeans"
        name = read_pipeline(self.pipeline).name
        return name if name in NAMED else "edge-kmeans"

    @property
    def sends_rows(self) -> bool:
        """All but ``"auto"`` and local centers."""
        return not self.is_auto and read_pipeline(self.pipeline).sends_rows

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """The pipeline, and steps of Lloyd."""
        settings = self.edge_settings(context.n_columns)
        if settings is not None:
            return edge_kmeans(settings, self.n_clusters, context.n_columns, seed=context.seed)
        return auto_kmeans(
            self.n_clusters, context.n_columns, seed=context.seed, refine=self.refine, budget=self.budget,
            known=context.spread, averages=context.averages,
        )  # fmt: skip

    def check(self, n_columns: int) -> None:
        """What cannot work is said before anyone is asked."""
        self.edge_settings(n_columns)

    def edge_settings(self, n_columns: int) -> EdgeSettings | None:
        """What the parameters ask for, checked; None for ``"auto"``."""
        super().check(n_columns)
        pipeline = Pipeline(()) if self.is_auto else read_pipeline(self.pipeline)
        if self.is_auto and self.accuracy is not None:
            raise InputError("accuracy is for pipelines the theorems are about, such as 'jl+fss'; 'auto' has none.")
        settings = EdgeSettings(pipeline, self.refine, self.lift, self.center, self.budget, self.accuracy)
        return None if self.is_auto else settings

    @property
    def is_auto(self) -> bool:
        """Whether no pipeline is named."""
        return isinstance(self.pipeline, str) and self.pipeline.strip().lower() == "auto"


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
        "k-means with few numbers: each site's own centers, or sums, and a few steps of Lloyd; or one's own stages",
        (Summarise, SendCenters, Split, Assign, Close, SumByCell, CountRows, PoolRows, *_SUMMARIES),
        "k(d+1), k(d+1)+1 a step, k+1 to close; by sums cells(2d+1) a round in place of the first; stages as named",
        "each site's own centers, or sums alone; with stages of one's own what these disclose",
        optional="where every site allows averages; only pipelines of one's own ask for rows",
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
