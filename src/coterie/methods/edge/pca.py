"""Principal axes of all sites' rows (disPCA of Balcan et al. 2014; step by step in section IV-A of Lu et al. 2020).

Each site sends the first t1 rows of Sigma V' of its own rows, and the server takes the first t2 axes of the stack.
Where per-site results may not be seen, or it is less to send, products of columns are summed over the sites instead.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InputError
from coterie.maths.projections import LinearMap, Projection, product
from coterie.maths.spectra import Ritz, eigenpairs_above, full_matrix
from coterie.messages.codec import MAX_FRAME_BYTES
from coterie.messages.schema import Floats, Integers
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.edge.private import private_components
from coterie.methods.edge.sites import SendScatter, SendSubspace
from coterie.methods.method import COUNT_OR_NONE, ComponentSettings, Method, PrivateSettings, RunContext
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.private_subspace import Box
from coterie.methods.shared.private_sums import PRIVATE
from coterie.parameters import Allowed, parameter

HALF_A_ROW = 0.5
"""A masked count is not quite whole."""


@dataclass(frozen=True)
class View:
    """How sites are asked to see their rows: less a mean, through maps."""

    d: int
    seed: int
    shift: Floats | None = None
    maps: tuple[LinearMap, ...] = ()

    @property
    def width(self) -> int:
        """Columns of a row as seen."""
        return self.maps[-1].p if self.maps else self.d

    def then(self, next_map: LinearMap) -> View:
        return replace(self, maps=(*self.maps, next_map))

    def projected(self, p: int, form: str) -> View:
        """One more random projection."""
        return self.then(Projection(form, self.width, p, self.seed + len(self.maps)))

    @property
    def reach(self) -> float:
        """How much larger than a row's numbers those of the row as seen can be."""
        shifted = 1.0 if self.shift is None else 2.0
        if not self.maps:
            return shifted
        turned = [np.linalg.norm(product(self.maps[: i + 1]), 2) for i in range(len(self.maps))]
        return shifted * float(np.sqrt(self.d)) * max(1.0, *map(float, turned))

    def fields(self) -> tuple[int, tuple[str, ...], Integers, Floats, Floats]:
        """What a request says of it: seeds as far as they go, then the product of what follows."""
        seeds = []
        for place, linear_map in enumerate(self.maps):
            if not (isinstance(linear_map, Projection) and linear_map.seed == self.seed + place):
                break
            seeds.append(linear_map)
        rest = self.maps[len(seeds) :]
        onto = product(rest) if rest else np.zeros((0, 0))
        shift = np.zeros(0) if self.shift is None else self.shift
        return self.seed, tuple(s.form for s in seeds), np.array([s.p for s in seeds], np.int64), shift, onto


def mean_of_all(n_columns: int) -> Protocol[tuple[float, Floats]]:
    """How many rows there are, and their mean: d + 2 numbers by a sum."""
    moments = yield from total(Assign(np.zeros((1, n_columns))))
    rows = float(moments.counts[0])
    check_rows(rows)
    return rows, np.asarray(moments.sums[0] / rows)


def dis_pca(view: View, n_components: int, local_rank: int) -> Protocol[tuple[Ritz, float]]:
    """The leading axes of all rows as seen, and the squares of all their numbers. Per-site results are seen."""
    replies = yield from each(subspace_request(view, local_rank))
    stack = np.concatenate([reply.rows_of_axes for reply in replies.values()]).astype(np.float64)
    squares = float(sum(float(reply.squares) for reply in replies.values()))
    _, sizes, axes = np.linalg.svd(stack, full_matrices=False)
    kept = min(n_components, len(axes))
    return Ritz(sizes[:kept] ** 2, axes[:kept].T).signed(), squares


def _by_sums(view: View, n_components: int) -> Protocol[tuple[Ritz, float, bool]]:
    """The same from the products of all pairs of columns, over all sites; and whether they are those of all rows."""
    scatter, d = (yield from total(scatter_request(view))), view.width
    gram, is_exact = full_matrix(np.asarray(scatter.packed, np.float64), d), float(scatter.inexact) < HALF_A_ROW
    return eigenpairs_above(gram).top(n_components).signed(), float(np.trace(gram)), is_exact


def subspace_request(view: View, local_rank: int) -> SendSubspace:
    return SendSubspace(*view.fields(), local_rank, view.width, view.reach)


def scatter_request(view: View) -> SendScatter:
    return SendScatter(*view.fields(), view.width * (view.width + 1) // 2, view.width, view.reach)


@dataclass(frozen=True)
class PCAFit:
    """The mean, the leading axes as columns and the squares of their singular values, all squares, and all rows."""

    mean: Floats
    axes: Ritz
    squares: float
    n_rows: float
    solver: str
    is_exact: bool
    """Whether these are the components of the pooled rows: by sums, where every site shows its products."""


@dataclass(eq=False, repr=False)
class PCASettings(PrivateSettings, ComponentSettings):
    """Of the principal components of all rows."""

    _: KW_ONLY
    solver: str = parameter(
        "sums",
        "``sums``: products of all pairs of columns, ``d (d + 1) / 2 + 1`` numbers a site; ``local``: disPCA, "
        "``local_rank * d + 1`` numbers; ``auto``: whichever is less, and sums where not every site lets its "
        "averages be seen.",
        Allowed("sums", "local", "auto"),
    )
    local_rank: int | None = parameter(
        None, "t1, the axes each site sends where local; None is twice ``n_components``.", COUNT_OR_NONE
    )
    center: bool = parameter(True, "Subtract the mean of all rows first, found by a sum.")

    method = "federated-pca"
    result_type: ClassVar[type[Any]] = PCAFit
    used_privately = ("n_components", "center")

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if self.n_components > n_columns:
            raise InputError(
                f"n_components={self.n_components} of {n_columns} columns; 1 to {n_columns} are possible."
            )
        if self.solver == "sums" and 4 * n_columns * (n_columns + 1) > MAX_FRAME_BYTES:
            raise InputError(
                f"solver='sums' sends the products of all pairs of {n_columns:,} columns, more than a message may "
                "hold; use solver='local' or 'auto'."
            )
        if self._rank(n_columns) < self.n_components:
            raise InputError(f"local_rank={self.local_rank} must be at least n_components={self.n_components}.")

    def _rank(self, n_columns: int) -> int:
        """t1, the axes each site sends where local."""
        return min(n_columns, int(2 * self.n_components if self.local_rank is None else self.local_rank))

    def protocol(self, context: RunContext) -> Protocol[PCAFit]:
        """The mean, then disPCA or sums; with differential privacy, noisy sums."""
        d, n_components = context.n_columns, int(self.n_components)
        self.check(d)
        if context.releases is not None and context.preparation is not None:
            box = Box(*context.preparation.box)
            found = yield from private_components(n_components, box, context.releases, center=self.center)
            return PCAFit(*found, "sums", False)
        rank = self._rank(d)
        n_rows, mean = yield from mean_of_all(d)
        view = View(d, context.seed, mean if self.center else None)
        shift = mean if self.center else np.zeros(d)
        if self.solver == "local" or (self.solver == "auto" and context.averages and 2 * rank < d + 1):
            axes, squares = yield from dis_pca(view, n_components, rank)
            return PCAFit(shift, axes, squares, n_rows, "local", False)
        axes, squares, is_exact = yield from _by_sums(view, n_components)
        return PCAFit(shift, axes, squares, n_rows, "sums", is_exact)


METHOD = Method(
    "federated-pca",
    "Principal components of all rows: from each site's own axes (disPCA), or from products of columns by sums",
    (Assign, SendSubspace, SendScatter, *PRIVATE),
    "d+2 for the mean, then t d + 1 (local) or d(d+1)/2 + 1 (sums)",
    "local: each site's principal axes; sums: products of all pairs of columns over all sites",
    optional="only with local axes (where every site allows averages)",
    settings=(PCASettings,),
    use="for principal components",
)
