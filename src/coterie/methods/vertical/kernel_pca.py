"""Kernel principal components of a table whose columns are at several sites, in one shot (He et al. 2020).

Every site sends the leading eigenpairs of the kernel matrix of its own columns (Algorithm 1); the server joins them:
their sum for a linear kernel (eq. 5), their product entry by entry for rbf (eq. 8). Neither a site nor the server
forms a T x T matrix where T is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import InputError, Unaligned
from coterie.extents import between
from coterie.maths.factors import JOINS, Joined, found_for
from coterie.maths.spectra import Ritz
from coterie.messages.schema import Floats, Request
from coterie.messages.verbs import Protocol, each, present, total
from coterie.methods.method import COUNT, COUNT_OR_NONE
from coterie.methods.shared.alignment import Alignment, Tags, align
from coterie.methods.vertical.sites import Decompose, FindRank, MeasureSpread, SumDistances, SumProducts, Treat
from coterie.parameters import Allowed, check_parameters, checked, parameter
from coterie.text import count_of

NONE = 1e-12
"""Eigenvalues below this share of the largest count as none."""
AT_ONCE = 1 << 20
"""Numbers of new rows a site sends at a time."""


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalOptions:
    """The kernel, and what sites send."""

    kernel: str = parameter("rbf", "``rbf``: ``exp(-gamma |x - y|^2)``, or ``linear``: ``x'y``.", Allowed(*JOINS))
    gamma: float | None = parameter(
        None,
        "Of rbf, 1 / (2 sigma^2) in the paper's letters; None takes the inverse of twice the mean squared distance, "
        "from the variances of the sites' columns.",
        Allowed(above=0, none=True),
    )
    local_rank: int | None = parameter(
        None,
        "D: how many eigenpairs a site sends, D (T + 1) numbers; None is as many as components (for clusters ten "
        "more). With a tolerance the most it may send.",
        COUNT_OR_NONE,
    )
    tolerance: float | None = parameter(
        None,
        "Lets each site send as few eigenpairs as keep the kernel matrix of all columns within this share of its "
        "trace (Frobenius norm; Lemma 2): first the ranks, then the pairs.",
        Allowed(above=0, below=1, none=True),
    )
    precision: str = parameter(
        "float64",
        "Of eigenvectors and distances on the wire, ``float64`` or ``float32``.",
        Allowed("float64", "float32"),
    )


@dataclass
class VerticalSettings(VerticalOptions):
    """What Algorithm 1 runs with."""

    n_components: int = checked(COUNT)
    center: bool = True
    missing: str = "refuse"
    scale: str = "none"
    least_rows: int = 2
    """How many rows there must be."""

    def __post_init__(self) -> None:
        check_parameters(self)
        if not isinstance(self.center, bool | np.bool_):
            raise InputError(f"center={self.center!r} must be True or False.")
        if self.missing not in ("refuse", "mean"):
            raise InputError(
                f"missing={self.missing!r}; where columns are split between sites use 'refuse' or 'mean', because a "
                "row dropped at one site would have to be dropped at all."
            )
        if self.scale not in ("none", "standard"):
            raise InputError(
                f"scale={self.scale!r}; where columns are split between sites use 'none' or 'standard', which every "
                "site does for itself."
            )

    @property
    def treatment(self) -> Treat | None:
        """What sites are asked to do with their columns first, if anything.

        The features of a linear kernel are the columns, so that each site takes off its own means: no digits are lost
        far from zero, and no eigenpair is spent on them.
        """
        scale = "center" if (self.scale, self.kernel, self.center) == ("none", "linear", True) else self.scale
        return None if (self.missing, scale) == ("refuse", "none") else Treat(self.missing, scale)

    @property
    def needs_spread(self) -> bool:
        """Whether sites are asked how far their rows spread: for gamma, or for the trace of K."""
        return self.gamma is None if self.kernel == "rbf" else self.tolerance is not None


@dataclass(frozen=True)
class VerticalFit:
    """Components of the joined table."""

    settings: VerticalSettings
    alignment: Alignment
    gamma: float
    pairs: Ritz
    """Eigenpairs of K_hat, or of K_hat with the features' mean taken off."""
    means: Floats
    """The mean of every row of K_hat; zeros where nothing is taken off."""
    ranks: dict[str, int]
    """How many eigenpairs each site sent."""
    error_bound: float
    """K_hat is no farther than this from K, in Frobenius norm."""
    trace: float
    seed: int = 0
    centers: Floats | None = None
    """Centers among the components, where rows are clustered."""

    def __post_init__(self) -> None:
        values, vectors = self.pairs
        n_rows, tags = len(self.means), self.alignment.tags
        if vectors.shape != (n_rows, len(values)) or (tags is not None and tags.shape != (n_rows,)):
            raise ValueError(f"components of shape {vectors.shape} for {n_rows} rows")
        if self.centers is not None and self.centers.shape[1:] != values.shape:
            raise ValueError(f"centers of shape {self.centers.shape} for {len(values)} components")

    @property
    def embedding(self) -> Floats:
        """The rows' components, as K_hat has them."""
        return np.asarray(self.pairs.vectors * np.sqrt(np.maximum(self.pairs.values, 0.0)))

    @property
    def weights(self) -> Floats:
        """What makes components of kernel values: eigenvectors over the roots of their values; none where there is
        no value."""
        values = self.pairs.values
        is_there = values > NONE * max(float(values[0]), 1e-300)
        return np.asarray(self.pairs.vectors * np.where(is_there, 1 / np.sqrt(np.where(is_there, values, 1.0)), 0.0))


def vertical_kernel_pca(settings: VerticalSettings, *, seed: int) -> Protocol[VerticalFit]:
    """Algorithm 1: rows aligned, columns treated by their sites, one round of eigenpairs.

    A round before finds gamma where none is given, and one finds the sites' ranks where a tolerance is.
    """
    aligned = yield from align()
    if aligned.n_rows < settings.least_rows:
        raise InputError(
            f"the sites hold {count_of(aligned.n_rows, 'row')}; at least {settings.least_rows} are needed."
        )
    if settings.treatment is not None:
        yield from each(settings.treatment, complete=True)
    gamma, trace = yield from _scale_of(settings, aligned.n_rows)
    ranks, computed, promised = yield from _ranks(settings, aligned.n_rows, gamma, trace, seed)
    questions = {
        name: Decompose(settings.kernel, gamma, seed, aligned.n_rows, rank, computed[name], settings.precision)
        for name, rank in ranks.items()
    }
    sent = yield from each(questions, complete=True)
    parts = tuple(Ritz(reply.values, reply.vectors) for reply in sent.values())
    joined = Joined(settings.kernel, parts)
    count = min(settings.n_components, aligned.n_rows)
    pairs = joined.leading(count, center=settings.center, seed=seed)
    means = joined.means if settings.center else np.zeros(aligned.n_rows)
    bound = min(promised, joined.error_bound())
    return VerticalFit(settings, aligned, gamma, pairs, means, ranks, bound, trace, seed)


def _scale_of(settings: VerticalSettings, n_rows: int) -> Protocol[tuple[float, float]]:
    """gamma, and the trace of K (not a number where it is not needed)."""
    is_rbf = settings.kernel == "rbf"
    if not settings.needs_spread:
        return (float(settings.gamma or 1.0), float(n_rows)) if is_rbf else (1.0, float("nan"))
    spreads = yield from each(MeasureSpread(), complete=True)
    if not is_rbf:
        return 1.0, sum(float(reply.squares) for reply in spreads.values())
    variance = sum(float(reply.variance) for reply in spreads.values())
    if not variance > 0:
        raise InputError("all rows are equal, so no gamma can be found from their distances; give one.")
    if not np.isfinite(1 / (4 * variance)) or not 1 / (4 * variance) > 0:
        raise InputError("values are too small or too large for a gamma; use other units (scale='standard').")
    return 1 / (4 * variance), float(n_rows)


def _ranks(
    settings: VerticalSettings, n_rows: int, gamma: float, trace: float, seed: int
) -> Protocol[tuple[dict[str, int], dict[str, int], float]]:
    """How many pairs each site sends, of how many it finds, and what all leave out at most, as far as they said."""
    names = yield from present()
    if settings.tolerance is None:
        rank = min(settings.local_rank or settings.n_components, n_rows)
        return dict.fromkeys(names, rank), dict.fromkeys(names, rank), np.inf
    most = min(settings.local_rank or n_rows, n_rows)
    share = settings.tolerance * trace / len(names)
    if not share > 0:
        raise InputError("all values are zero, so there are no components.")
    asked = yield from each(FindRank(settings.kernel, gamma, seed, n_rows, most, share), complete=True)
    ranks = {name: between(int(reply.rank), 1, most) for name, reply in asked.items()}
    left = sum(float(reply.left) for reply in asked.values())
    return ranks, {name: found_for(n_rows, rank) for name, rank in ranks.items()}, left


def project(fit: VerticalFit) -> Protocol[tuple[Floats, Tags | None]]:
    """The components of the sites' new rows, and their tags: by summed distances (eq. 10) or products (eq. 9).

    Kernel values of new rows are exact, those of the fit K_hat's; new rows are centered with K_hat's means.
    """
    again = yield from align()
    _check_same(fit.alignment, again)
    new = yield from align(new=True)
    if fit.settings.treatment is not None:
        yield from each(fit.settings.treatment, complete=True)
    components = []
    for ask in new_row_questions(fit, new.n_rows):
        values = (yield from total(ask, complete=True)).values
        is_rbf = isinstance(ask, SumDistances)
        components.append(np.exp(-values.astype(np.float64)) @ fit.weights if is_rbf else values.T)
    return np.concatenate(components) - fit.means @ fit.weights, new.tags


def new_row_questions(fit: VerticalFit, n_new: int) -> Iterator[Request[Any]]:
    """Some new rows at a time."""
    is_rbf, n_rows = fit.settings.kernel == "rbf", fit.alignment.n_rows
    step = max(1, AT_ONCE // (n_rows if is_rbf else fit.weights.shape[1]))
    for first in range(0, n_new, step):
        count = min(step, n_new - first)
        if is_rbf:
            yield SumDistances(fit.gamma, first, count, n_rows, fit.settings.precision)
        else:
            yield SumProducts(first, count, fit.weights)


def _check_same(fitted: Alignment, now: Alignment) -> None:
    then_tags, now_tags = fitted.tags, now.tags
    if (then_tags is None) != (now_tags is None):
        raise Unaligned("rows must be matched in the same way as in the fit: by key, or by position.")
    apart = abs(fitted.n_rows - now.n_rows)
    if then_tags is not None and now_tags is not None:
        apart = len(np.setxor1d(then_tags, now_tags))
    if apart:
        raise Unaligned(
            f"the sites no longer hold the {fitted.n_rows} rows of the fit: they hold {now.n_rows} rows, and {apart} "
            "are in one of the two only."
        )
