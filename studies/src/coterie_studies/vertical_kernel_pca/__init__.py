"""The study of He et al. (2020), "A communication-efficient distributed algorithm for kernel PCA".

Figures 2 to 4 and Table I: how far the components of Algorithm 1 are from those of pooled columns, how long it takes,
how DPCA compares, and what a linear SVM makes of them on GSE2187; Table I once more with no treatment on both sides;
and what the eigenpairs a site sends tell of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
from scipy import linalg

from coterie.engines.inprocess import in_process
from coterie.estimators import VerticalKernelPCA
from coterie.maths.dpca import loadings
from coterie.maths.kernels import Kernel
from coterie.methods.vertical.dpca import dpca
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.folder import Scope
from coterie_studies.study import Label, Study, Trial
from coterie_studies.vertical_kernel_pca.disclosure import disclosed_by_pairs
from coterie_studies.vertical_kernel_pca.figures import write_findings
from coterie_studies.vertical_kernel_pca.sets import (
    FULL,
    QUICK,
    SPLITS,
    Curves,
    Plan,
    Rivals,
    Sample,
    Simulated,
    Variant,
    cut,
    gamma_of,
    with_spectrum,
)
from coterie_studies.vertical_kernel_pca.svm import classified, classified_as_printed

__all__ = ["STUDY", "make_study"]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]


def make_study(quick: Plan, full: Plan) -> Study:
    """The study of these plans."""
    return Study(
        "vertical-kernel-pca",
        "Kernel PCA over split features (He et al. 2020): figures 2 to 4, Table I",
        partial(_trials, quick, full),
        partial(write_findings, quick, full),
        full_seeds=50,
    )


def _trials(quick: Plan, full: Plan, scope: Scope) -> list[Trial]:
    plan = quick if scope.quick else full
    found = [*_of_figures(plan, scope.seeds)]
    for name, task in plan.tasks.items():
        for split, most in zip(SPLITS, task.most_seeds[:2], strict=True):
            measure = partial(classified, task, split)
            found += _by_seed(f"table-1/{name}/{split}", measure, scope.seeds, most, set=name, split=split)
        measure_printed = partial(classified_as_printed, task)
        most = task.most_seeds[2]
        found += _by_seed(f"table-1/{name}/as-printed", measure_printed, scope.seeds, most, set=name, split="rows")
    measure_disclosure = partial(disclosed_by_pairs, plan.disclosure)
    return [
        *found,
        *_by_seed("disclosure", measure_disclosure, scope.seeds, plan.disclosure.most_seeds, set="disclosure"),
    ]


def _of_figures(plan: Plan, seeds: int) -> Iterator[Trial]:
    drawn, curves, rivals = plan.simulated, plan.curves, plan.rivals
    for n_rows in drawn.sizes:
        measure = partial(_by_width, drawn, n_rows)
        yield from _by_seed(f"figure-2a/T={n_rows}", measure, seeds, drawn.most_seeds, set="figure-2a", T=n_rows)
    yield from _by_seed("figure-2b", partial(_by_length, drawn), seeds, drawn.most_seeds, set="figure-2b")
    for figure, measured, most in zip("ab", (_curves_by_width, _curves_by_length), curves.most_seeds, strict=True):
        for i, variant in enumerate(curves.variants):
            name, one = f"figure-3{figure}", partial(measured, curves, variant)
            yield from _by_seed(f"{name}/variant-{i}", one, seeds, most, set=name, variant=i)
    for beta in rivals.betas:
        one = partial(_beside_dpca, rivals, beta)
        yield from _by_seed(f"figure-4/beta={beta}", one, seeds, rivals.most_seeds, set="figure-4", beta=beta)


def _by_seed(key: str, measure: Callable[[int], Values], seeds: int, most: int, **labels: Label) -> Iterator[Trial]:
    for seed in range(min(seeds, most)):
        yield Trial(f"{key}/seed={seed}", partial(measure, seed), {**labels, "seed": seed})


# ---------------------------------------------------------------- figures 2 and 3


def _by_width(one: Simulated, n_rows: int, seed: int) -> Values:
    """Figure 2 (a): a table, its columns shared out among ever fewer sites."""
    rows, _ = with_spectrum(one.spectrum, n_rows, one.n_columns, [seed, n_rows])
    best = _leading(rows @ rows.T, one.n_components)
    found: Values = {}
    for width in one.widths:
        parts = cut(one.n_columns, one.n_columns // width)
        found |= _compared(_linear(one.n_components), rows, parts, best, str(width))
    return found


def _by_length(one: Simulated, seed: int) -> Values:
    """Figure 2 (b): more and more rows, all drawn anew, or the first of the most there are; D = 1.

    ``kept`` are errors where only the rows' own part, V, is drawn anew.
    """
    parts = cut(one.n_columns, one.n_sites)
    found: Values = {}
    whole, _ = with_spectrum(one.spectrum, max(one.lengths), one.n_columns, [seed, 0])
    for n_rows in one.lengths:
        anew, _ = with_spectrum(one.spectrum, n_rows, one.n_columns, [seed, n_rows])
        kept, _ = with_spectrum(one.spectrum, n_rows, one.n_columns, [seed, 0])
        for name, rows in (("anew", anew), ("first", whole[:n_rows]), ("kept", kept)):
            found |= _compared(_linear(1), rows, parts, _leading(rows @ rows.T, 1), f"{name}.{n_rows}")
    return found


def _curves_by_width(one: Curves, variant: Variant, seed: int) -> Values:
    """Figure 3 (a): columns in their order for the first seed, else in any."""
    rows = _loaded(one.load).rows
    m = rows.shape[1]
    found: Values = {}
    order = np.arange(m) if seed == 0 else np.random.default_rng(seed).permutation(m)
    best = _pooled(one, variant, rows)
    for width in one.widths:
        parts = [[int(order[i]) for i in part] for part in cut(m, max(1, m // width))]
        found |= _compared(_rbf(one, variant, m), rows, parts, best, str(width))
    return found


def _curves_by_length(one: Curves, variant: Variant, seed: int) -> Values:
    """Figure 3 (b): rows drawn at random."""
    rows = _loaded(one.load).rows
    found: Values = {}
    order = np.random.default_rng(seed).permutation(len(rows))
    for n_rows in one.lengths:
        some, m = rows[order[:n_rows]], rows.shape[1]
        best = _pooled(one, variant, some)
        found |= _compared(_rbf(one, variant, m), some, cut(m, one.n_sites), best, str(n_rows))
    return found


def _linear(n_components: int) -> VerticalKernelPCA:
    return VerticalKernelPCA(n_components, kernel="linear", center=False, random_state=0)


def _rbf(one: Curves, variant: Variant, n_columns: int) -> VerticalKernelPCA:
    return VerticalKernelPCA(
        one.n_components, gamma=_gamma(one, variant, n_columns), local_rank=one.n_components + variant.spare,
        center=variant.center, random_state=0,
    )  # fmt: skip


def _gamma(one: Curves, variant: Variant, n_columns: int) -> float:
    return gamma_of(one.sigma or np.sqrt(n_columns) / 3, variant.factor)


def _pooled(one: Curves, variant: Variant, rows: Floats) -> Floats:
    """Eigenvectors of the kernel matrix of all columns."""
    matrix = Kernel("rbf", _gamma(one, variant, rows.shape[1])).between(rows, rows)
    if variant.center:
        matrix = matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, None] + matrix.mean()
    return _leading(matrix, one.n_components)


def _leading(matrix: Floats, count: int) -> Floats:
    n = len(matrix)
    vectors: Floats = linalg.eigh(matrix, subset_by_index=[n - count, n - 1])[1]
    return vectors[:, ::-1]


def _compared(
    made: VerticalKernelPCA, rows: Floats, parts: Sequence[Sequence[int]], best: Floats, name: str
) -> Values:
    seconds, abreast = timed_fit(made, rows, parts)
    return {f"error.{name}": made.sin_theta(best), f"seconds.{name}": seconds, f"abreast.{name}": abreast}


def timed_fit(made: VerticalKernelPCA, rows: Floats, parts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Fit as ``fit`` does. Seconds of all sites and the center, one after the other, of which this process had the
    machine; and the same with all sites at once: the center's and a site's own on average, as the paper's code has
    it."""
    made.begin()
    ledger = Ledger()
    tables = {f"site-{i}": ArrayTable(rows[:, own], name=f"site-{i}") for i, own in enumerate(parts)}
    with in_process(tables, threads=1) as channel:
        had, began = time.process_time(), time.perf_counter()
        result = run(made.protocol(made.context(rows.shape[1])), channel, method=made.method, ledger=ledger)
        seconds, passed = time.process_time() - had, time.perf_counter() - began
        at_sites = sum(site.compute_seconds for site in channel.members.values()) * min(1.0, seconds / passed)
    made.set_result(result, None, ledger)
    return seconds, seconds - at_sites + at_sites / len(parts)


# ---------------------------------------------------------------- figure 4


def _beside_dpca(one: Rivals, beta: int, seed: int) -> Values:
    """Errors of the first component by Algorithm 1, and by DPCA after every outer step; values sent by each."""
    rows, axes = with_spectrum(one.spectrum(beta), one.n_rows, one.n_columns, [seed, beta])
    best, parts = axes[:, :1], cut(one.n_columns, one.n_sites)
    made = _linear(1).fit(rows, columns=parts)
    found = {"alg": _off(rows.T @ made.eigenvectors_, best), "alg.sent": made.ledger_.total("floats_up")}
    tables = {f"site-{i:02d}": ArrayTable(rows[:, own]) for i, own in enumerate(parts)}
    for neighbours in one.neighbours:
        ledger = Ledger()
        steps = dpca(1, n_rows=one.n_rows, neighbours=neighbours, n_iter=one.n_iter, seed=seed)
        with in_process(tables, threads=1) as channel:
            history = run(steps, channel, method="dpca", ledger=ledger).history
        for t, copies in enumerate(history, start=1):
            turned = [loadings(rows[:, own], copy) for own, copy in zip(parts, copies.values(), strict=True)]
            found[f"dpca-{neighbours}.{t}"] = _off(np.concatenate(turned), best)
        found[f"dpca-{neighbours}.sent"] = ledger.total("floats_up")
    return found


def _off(components: Floats, best: Floats) -> float:
    """Section V.B: the squared distance between the projections onto what both span."""
    basis = linalg.qr(components, mode="economic")[0]
    return float(2 * np.linalg.norm(basis - best @ (best.T @ basis)) ** 2)


@lru_cache(maxsize=1)
def _loaded(load: Callable[[], Sample]) -> Sample:
    return load()


STUDY = make_study(QUICK, FULL)
