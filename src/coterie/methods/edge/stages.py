"""The stages of a summary, how they chain, and how large each is: given, from an accuracy, or from a budget.

A pipeline is maps every site shares (random projections, distributed PCA), then at most one way to fewer points
(a site's own PCA and sample, a distributed sample, or its own centers), then perhaps one more projection of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import brentq

from coterie.errors import InputError
from coterie.maths.projections import FORMS

AFTER = 100
"""Added to a run's seed for the projection of a sample: before it there are far fewer."""
MOST_MAPS = 8
"""Random projections one after the other."""


@dataclass(frozen=True)
class JL:
    """A random projection onto ``n_columns``: a seed, nothing to upload."""

    n_columns: int | None = None
    form: str = "gaussian"


@dataclass(frozen=True)
class PCA:
    """Every site's own first ``n_components`` principal axes; its basis and Delta travel with its points."""

    n_components: int | None = None


@dataclass(frozen=True)
class Sample:
    """``n_points`` over all sites, evenly, each by its own sensitivity sampling, and each site's own k centers."""

    n_points: int | None = None


@dataclass(frozen=True)
class DisPCA:
    """Principal axes of all rows from every site's own: ``local_rank`` (t1) of each give ``n_components`` (t2)."""

    n_components: int | None = None
    local_rank: int | None = None


@dataclass(frozen=True)
class DisSS:
    """``n_points`` over all sites, shared out by the cost of each site's own solution, and each site's k centers."""

    n_points: int | None = None


@dataclass(frozen=True)
class Centers:
    """Every site's own ``n_centers`` k-means centers and their counts: averages, no rows."""

    n_centers: int | None = None


Stage: TypeAlias = JL | PCA | Sample | DisPCA | DisSS | Centers

_WORDS: dict[str, tuple[Stage, ...]] = {
    "nr": (),
    "jl": (JL(),),
    "pca": (PCA(),),
    "sample": (Sample(),),
    "fss": (PCA(), Sample()),
    "dispca": (DisPCA(),),
    "disss": (DisSS(),),
    "bklw": (DisPCA(), DisSS()),
    "centers": (Centers(),),
}
_NAMES = {JL: "jl", PCA: "pca", Sample: "sample", DisPCA: "dispca", DisSS: "disss", Centers: "centers"}


@dataclass(frozen=True)
class Pipeline:
    """Stages in an order that makes sense."""

    common: tuple[JL | DisPCA, ...]
    """Maps that are the same at every site."""
    pca: PCA | None = None
    points: Sample | DisSS | Centers | None = None
    after: JL | None = None
    """A projection of the points that are left."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All of them in order."""
        return (*self.common, *(stage for stage in (self.pca, self.points, self.after) if stage is not None))

    @property
    def name(self) -> str:
        """What the papers call it."""
        words = [_NAMES[type(stage)] for stage in self.stages]
        for pair, name in ((["dispca", "disss"], "bklw"), (["pca", "sample"], "fss")):
            for i in range(len(words) - 1):
                if words[i : i + 2] == pair:
                    words[i : i + 2] = [name]
        return "+".join(words) or "nr"

    @property
    def sends_rows(self) -> bool:
        """Whether rows leave, projected or not."""
        return not isinstance(self.points, Centers)


def _staged(given: Any) -> Any:
    """A stage as an order has it, ``["JL", 4, "sparse"]``; anything else as it is."""
    kind = next((kind for kind in _NAMES if isinstance(given, list) and given[:1] == [kind.__name__]), None)
    return given if kind is None else kind(*given[1:])


def read_pipeline(given: str | Sequence[Stage] | Pipeline) -> Pipeline:
    """Words joined by +, each perhaps with its size (``jl:32+fss``), or stages; a senseless order is an error."""
    if isinstance(given, Pipeline):
        return given
    if not isinstance(given, str | Sequence):
        raise InputError(f"pipeline={given!r} must be 'auto', words such as 'jl+fss', or a list of stages.")
    stages = _worded(given) if isinstance(given, str) else tuple(map(_staged, given))
    rest, common = list(stages), []
    while (shared := _taken(rest, JL, DisPCA)) is not None:
        common.append(shared)
    pca, points = _taken(rest, PCA), _taken(rest, Sample, DisSS, Centers)
    pipeline = Pipeline(tuple(common), pca, points, _taken(rest, JL) if isinstance(points, Sample) else None)
    if rest:
        raise InputError(_senseless(stages, rest[0]))
    if pipeline.pca is not None and isinstance(pipeline.points, DisSS | Centers):
        raise InputError(
            "a site's own PCA gives coordinates that no other site has; follow it by a sample, or use dispca."
        )
    for stage in stages:
        _check(stage)
    if sum(isinstance(stage, JL) for stage in pipeline.common) > MOST_MAPS:
        raise InputError(f"pipeline={pipeline.name}: at most {MOST_MAPS} projections in a row are possible.")
    return pipeline


def _taken(rest: list[Stage], *kinds: type[Stage]) -> Any:
    """The next stage where it is one of these, else None."""
    return rest.pop(0) if rest and isinstance(rest[0], kinds) else None


def _worded(text: str) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    parts = [part.strip() for part in text.lower().split("+")]
    if "nr" in parts and len(parts) > 1:
        raise InputError(f"pipeline={text!r}: 'nr' means no reduction, so it stands alone.")
    for part in parts:
        word, _, size = part.partition(":")
        if word not in _WORDS:
            raise InputError(f"pipeline={text!r}: there is no stage {word!r}; use {', '.join(_WORDS)} or 'auto'.")
        named = _WORDS[word]
        if size:
            if not (size.isascii() and size.isdigit()) or len(named) != 1:
                raise InputError(f"pipeline={text!r}: write sizes as jl:32+pca:10+sample:500, one for each stage.")
            named = (type(named[0])(int(size)),)
        stages.extend(named)
    return tuple(stages)


def _senseless(stages: Sequence[object], stage: object) -> str:
    names = "+".join(_NAMES.get(type(each), repr(each)) for each in stages)
    kind = type(stage)
    if kind not in _NAMES:
        return f"pipeline={names}: {stage!r} is not a stage; use JL, PCA, Sample, DisPCA, DisSS or Centers."
    if kind is JL:
        why = "only a sample can be projected once more; project the rows first"
    elif kind in (PCA, DisPCA):
        why = "axes are found once, after the maps that all sites share and before the sample"
    else:
        why = "rows are reduced to points only once"
    return f"pipeline={names}: {_NAMES[kind]} cannot follow here: {why}."


def _check(stage: Stage) -> None:
    if isinstance(stage, JL) and stage.form not in FORMS:
        raise InputError(f"form={stage.form!r} of a projection; use one of {', '.join(FORMS)}.")
    for name, value in vars(stage).items():
        if name != "form" and value is not None and (not is_whole(value) or value < 1):
            raise InputError(f"{type(stage).__name__}({name}={value!r}) must be a whole number, at least 1.")
    if isinstance(stage, DisPCA) and stage.local_rank is not None and stage.local_rank < (stage.n_components or 1):
        raise InputError(f"{stage}: local_rank, the axes each site sends, must be at least n_components.")


def is_whole(value: object) -> bool:
    """Whether it is a whole number, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def sized(pipeline: Pipeline, k: int, d: int, n_points: int | None = None, *, roomy: bool = True) -> Pipeline:
    """Every size that was not given, from the number of points: t = 2 sqrt(s) axes, at least k + 1, and twice as many
    columns of a projection, at least 32 where there is room; never more columns than there are."""
    s = max(200, 50 * k) if n_points is None else n_points
    t = max(k + 1, round(2 * sqrt(s)))
    columns = max(32 if roomy else 1, 2 * t)
    return _filled(pipeline, k, d, columns, t, s, columns)


def _filled(
    pipeline: Pipeline, k: int, d: int, columns: int, axes: int, n_points: int, columns_after: int
) -> Pipeline:
    common: list[JL | DisPCA] = []
    for stage in pipeline.common:
        if isinstance(stage, JL):
            projection = _projected(stage, columns, d)
            common.append(projection)
            d = projection.n_columns or d
        else:
            t2 = _most(stage.n_components, axes, d, "components")
            common.append(DisPCA(t2, _most(stage.local_rank, t2, d, "local axes")))
            d = t2
    pca, points, after = pipeline.pca, pipeline.points, pipeline.after
    if pca is not None:
        pca = PCA(_most(pca.n_components, axes, d, "components"))
    if isinstance(points, Centers):
        points = Centers(points.n_centers or k)
    elif points is not None:
        points = replace(points, n_points=points.n_points or n_points)
    if after is not None:
        after = _projected(after, columns_after, d)
    return Pipeline(tuple(common), pca, points, after)


def _projected(stage: JL, columns: int, d: int) -> JL:
    """A projection with its size; with all columns it only turns rows: a square Gaussian matrix distorts them."""
    if stage.n_columns is None and columns >= d:
        return JL(d, "orthogonal")
    return replace(stage, n_columns=_most(stage.n_columns, columns, d, "columns"))


def _most(given: int | None, default: int, d: int, what: str) -> int:
    if given is not None and given > d:
        raise InputError(f"{given} {what} of {d} columns; at most {d} are possible.")
    return min(default, d) if given is None else int(given)


_SLACK: dict[str, Callable[[float], float]] = {
    "fss": lambda e: (1 + e) / (1 - e),
    "jl+fss": lambda e: (1 + e) ** 5 / (1 - e),
    "fss+jl": lambda e: (1 + e) ** 5 / (1 - e),
    "jl+fss+jl": lambda e: (1 + e) ** 9 / (1 - e),
    "bklw": lambda e: (1 + e) ** 2 / (1 - e) ** 2,
    "jl+bklw": lambda e: (1 + e) ** 6 / (1 - e) ** 2,
}
"""How far off the best cost a pipeline of stages of accuracy e can be (section IV-C)."""
FINEST = 1e-6
"""No stage is asked to be more accurate: all rows and columns are long wanted by then."""
DELTA = 0.1
"""The chance that a stage is less accurate than it should be."""


def accurate(pipeline: Pipeline, k: int, d: int, n_rows: float, n_sites: int, accuracy: float) -> Pipeline:
    """Sizes with which the theorems promise a cost of at most 1 + ``accuracy`` times the best one.

    Stages get the e of section IV-C; then t = k + ceil(4k/e^2) - 1 axes (Theorem IV.1), log(nk/delta)/e^2 columns
    (Lemmas III.2, III.3) with the constant of Dasgupta & Gupta (2003), k^3 log^2(k) log(1/delta)/e^4 points a site
    (Theorem II.2) or (k^2/e^2 + log(1/delta))/e^4 + M k log(M k/delta) in all (Theorem IV.3), both with constant 1,
    the paper having none. Where that is all columns or all rows, nothing is lost there.
    """
    e = _stage_accuracy(pipeline, accuracy)
    axes = k + ceil(4 * k / e**2 - 1e-6) - 1  # e is a root found to 1e-12
    if isinstance(pipeline.points, DisSS):
        points = (k**2 / e**2 + log(1 / DELTA)) / e**4 + n_sites * k * log(n_sites * k / DELTA)
    else:
        points = n_sites * k**3 * max(log(k), 1.0) ** 2 * log(1 / DELTA) / e**4
    most = n_rows if isinstance(pipeline.points, DisSS) else n_sites * n_rows
    s = ceil(min(points, max(most, 1.0)))
    return _filled(pipeline, k, d, _columns(n_rows, k, e), axes, s, _columns(s + n_sites * k, k, e))


def check_accuracy(pipeline: Pipeline, accuracy: float) -> None:
    """Raise where no theorem says how large the stages must be."""
    if any(value is not None for stage in pipeline.stages for name, value in vars(stage).items() if name != "form"):
        raise InputError(f"accuracy={accuracy} decides the sizes; give none for the stages of {pipeline.name}.")
    if pipeline.name not in _SLACK:
        raise InputError(
            f"accuracy={accuracy}: theorems cover {', '.join(_SLACK)}, not {pipeline.name}; give sizes or a budget."
        )


def _stage_accuracy(pipeline: Pipeline, accuracy: float) -> float:
    slack = _SLACK[pipeline.name]
    most = 1 / 3 if "bklw" in pipeline.name else 0.99
    if slack(FINEST) >= 1 + accuracy:
        return FINEST
    if slack(most) <= 1 + accuracy:
        return most
    return float(brentq(lambda e: min(slack(e), 1e9) - 1 - accuracy, FINEST, most))


def _columns(n: float, k: int, e: float) -> int:
    return ceil(4 * log(max(n, 2.0) * k / DELTA) / (e**2 / 2 - e**3 / 3))
