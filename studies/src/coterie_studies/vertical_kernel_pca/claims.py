"""What He et al. (2020) say of their figures and Table I, and what is said here, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coterie_studies.study import Findings, Label
from coterie_studies.tables import Estimate, Row
from coterie_studies.vertical_kernel_pca.disclosure import KERNELS
from coterie_studies.vertical_kernel_pca.sets import PAPER, Curves, Disclosure, Plan, Rivals, Simulated, Split, Task
from coterie_studies.vertical_kernel_pca.svm import ROWS_OF, WAYS

__all__ = [
    "OURS",
    "PAPERS",
    "RULES",
    "claims",
    "errors_of",
    "is_within",
    "means",
    "misses",
    "paper_row",
    "slope",
    "steps_below",
    "there",
    "times",
]

PAPERS, OURS = "the paper", "here"
SIMILAR, LITTLE, TREND = 10.0, 2.0, 0.25
CUBIC = (2.5, 3.5)
EXACT = 1e-6
WITHIN = 2.0
NEAR = 0.01
TWICE = (1.5, 3.0)
FOUND = 0.01
HELD_AGAINST = ("alg", "kpca", "pca-code", "pca-code-fewer", "pca-code-more", "pca", "alg-printed", "kpca-printed")
"""Ways that are said to be the paper's, or might be."""
RULES = f"""
A claim is held where means over seeds keep to it. Errors are similar within a factor of {SIMILAR:g}, a time that
changes little does so by at most a factor of {LITTLE:g}; a trend is nearer to a root of T than to none, a slope of
more than {TREND:g} either way, log by log, and like T^3 is one of {CUBIC[0]:g} to {CUBIC[1]:g} over the upper half of
all T; exact, or the same, is an error of at most {EXACT:g}. A number of Table I is reproduced where the mean here is
within {WITHIN:g} of the paper's standard deviations of the paper's mean; a row of it, where all its numbers are.
Errors of two methods are near each other within {NEAR:g}; generally better is a smaller error for more than half of
all numbers of features; about twice as high is {TWICE[0]:g} to {TWICE[1]:g} times. Times are those of the center and
one site, all sites working at once, as in the paper's code; of times the median over seeds counts.
"""

Said = tuple[str, str, str, str, bool]
"""Who says it, of what, what, what was measured, and whether that holds."""


# ---------------------------------------------------------------- what was measured


def means(found: Findings, name: str, keys: Sequence[int], **labels: Label) -> list[float]:
    """The mean of ``name.key`` over seeds, for every key."""
    return [float(np.mean(found.values(f"{name}.{key}", **labels))) for key in keys]


def times(found: Findings, name: str, keys: Sequence[int], **labels: Label) -> list[float]:
    """The median of ``name.key``: whatever else the machine did now and then does not count."""
    return [float(np.median(found.values(f"{name}.{key}", **labels))) for key in keys]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the line through these points, both logarithmic."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-300)), 1)[0])


def errors_of(found: Findings, name: str, split: Split, way: str, features: Sequence[int]) -> list[Estimate]:
    """Of a way in Table I; where it was not run, estimates of nothing."""
    return [found.estimate(f"{way}.{count}", set=name, split=split) for count in features]


def paper_row(name: str, way: str) -> tuple[tuple[float, float], ...]:
    """The paper's means and standard deviations that a way is held against; none where it has no such task."""
    row = next(row for row, ways in ROWS_OF.items() if way in ways)
    return PAPER.get(name, {}).get(row, ())


def is_within(mean: float, paper: tuple[float, float]) -> bool:
    """Whether a mean is near enough to the paper's."""
    return abs(mean - paper[0]) <= WITHIN * paper[1]


def steps_below(errors: Sequence[float], level: float) -> int | None:
    """How many outer steps it takes to come below a level; None: more than there were."""
    below = [t for t, error in enumerate(errors, start=1) if error < level]
    return below[0] if below else None


def there(found: Findings, tasks: Sequence[str], split: Split) -> list[str]:
    """The tasks that were run."""
    return [name for name in tasks if found.select(set=name, split=split)]


# ---------------------------------------------------------------- the claims


def claims(found: Findings, plan: Plan) -> Iterator[Row]:
    """Everything that is said of what was run."""
    verdicts = [
        *_of_simulated(found, plan.simulated),
        *_of_curves(found, plan.curves),
        *_of_rivals(found, plan.rivals),
    ]
    for name in there(found, list(plan.tasks), "rows"):
        verdicts += [*_of_task(found, name, plan.tasks[name]), *_of_readings(found, name, plan.tasks[name])]
    if found.select(set="disclosure"):
        verdicts += _of_disclosure(found, plan.disclosure)
    for who, what, claim, here, held in verdicts:
        yield {"who": who, "of": what, "claim": claim, "measured": here, "verdict": _verdict(held)}


def _verdict(held: bool) -> str:
    return "held" if held else "did not hold"


def _similar(errors: Sequence[float]) -> tuple[str, bool]:
    least, most = min(errors), max(errors)
    return f"{least:.2g} to {most:.2g}", most <= SIMILAR * least


def _steady(took: Sequence[float]) -> tuple[str, bool]:
    ratio = max(took) / min(took)
    return f"the longest is {ratio:.1f} times the shortest", ratio <= LITTLE


def _of_simulated(found: Findings, one: Simulated) -> Iterator[Said]:
    for n_rows in one.sizes:
        if not found.select(set="figure-2a", T=n_rows):
            continue

        labels: dict[str, Label] = {"set": "figure-2a", "T": n_rows}
        what = f"Figure 2 (a), T = {n_rows}"
        yield _error_by_width(found, what, one.widths, one.n_components, labels)
        yield _time_by_width(found, what, one.widths, labels)
        exact = [width for width in one.widths if width <= one.n_components or width == one.n_columns]
        most = max(means(found, "error", exact, **labels))
        claim = "exact with one site, and where no site has more columns than it sends pairs"
        yield OURS, what, claim, f"{most:.1e}", most <= EXACT
    if found.select(set="figure-2b"):
        for name, how in (("anew", "all drawn anew"), ("first", f"the first of {max(one.lengths)} rows")):
            claim = f"the error decays as T grows ({how})"
            yield _trend(found, f"error.{name}", one.lengths, claim, "Figure 2 (b)", {"set": "figure-2b"})
        yield _cubic(found, one.lengths)
        kept = np.array([found.values(f"error.kept.{n}", set="figure-2b") for n in one.lengths])
        change = float(np.max(np.ptp(kept, axis=0) / kept.mean(axis=0)))
        claim = "the error does not depend on T, only on U: with the same U it is the same for every T"
        yield OURS, "Figure 2 (b)", claim, f"changes by {change:.0e} of it", change <= EXACT


def _error_by_width(found: Findings, what: str, widths: Sequence[int], least: int, labels: dict[str, Label]) -> Said:
    inner = [width for width in widths if least < width < widths[-1]]
    claim = "the error is similar for any number of sites but the fewest and the most"
    return PAPERS, what, claim, *_similar(means(found, "error", inner, **labels))


def _time_by_width(found: Findings, what: str, widths: Sequence[int], labels: dict[str, Label]) -> Said:
    """The paper says it of 100 columns of 1000 and more."""
    wide = [width for width in widths if width >= min(100, widths[-1] / 4)]
    claim = f"time changes little from {wide[0]} to {wide[-1]} columns a site"
    return PAPERS, what, claim, *_steady(times(found, "abreast", wide, **labels))


def _trend(
    found: Findings, name: str, lengths: Sequence[int], claim: str, what: str, labels: dict[str, Label]
) -> Said:
    errors = means(found, name, lengths, **labels)
    steep = slope(lengths, errors)
    here = f"{errors[0]:.2g} at T = {lengths[0]}, {errors[-1]:.2g} at {lengths[-1]}; slope {steep:.2f}"
    return PAPERS, what, claim, here, abs(steep) <= TREND if "little" in claim else steep < -TREND


def _cubic(found: Findings, lengths: Sequence[int]) -> Said:
    upper = [n for n in lengths if 2 * n >= max(lengths)]
    steep = slope(upper, times(found, "abreast.anew", upper, set="figure-2b"))
    return PAPERS, "Figure 2 (b)", "time grows like T^3", f"like T^{steep:.1f}", CUBIC[0] <= steep <= CUBIC[1]


def _of_curves(found: Findings, one: Curves) -> Iterator[Said]:
    for i, variant in enumerate(one.variants):
        by_width: dict[str, Label] = {"set": "figure-3a", "variant": i}
        by_length: dict[str, Label] = {"set": "figure-3b", "variant": i}
        if not found.select(**by_width) or not found.select(**by_length):
            continue
        what = f"Figure 3 (a), {variant.title}"
        yield _error_by_width(found, what, one.widths, one.n_components, by_width)
        if i == 0:
            yield _time_by_width(found, what, one.widths, by_width)
        alone = means(found, "error", one.widths[-1:], **by_width)[0]
        yield PAPERS, what, "with one site it is the same as pooled", f"{alone:.2g}", alone <= EXACT
        claim = "the error shows little trend as T grows"
        yield _trend(found, "error", one.lengths, claim, f"Figure 3 (b), {variant.title}", by_length)


def _of_rivals(found: Findings, one: Rivals) -> Iterator[Said]:
    if not found.select(set="figure-4"):
        return
    steps = range(1, one.n_iter + 1)
    gaps: list[dict[str, Label]] = [{"set": "figure-4", "beta": beta} for beta in one.betas]
    alg = [found.estimate("alg", **labels).mean for labels in gaps]
    claim = "Alg. 1 does better with the larger eigengap"
    yield PAPERS, "Figure 4", claim, f"{alg[0]:.1e} and {alg[1]:.1e}", alg[0] < alg[1]
    for n in one.neighbours:
        errors = [means(found, f"dpca-{n}", steps, **labels) for labels in gaps]
        last = [some[-1] for some in errors]
        claim = f"DPCA{n}: how accurate it is changes little with the eigengap"
        yield PAPERS, "Figure 4", claim, f"{last[0]:.1e} and {last[1]:.1e} at the end", _similar(last)[1]
        level = 1e-3
        took = [steps_below(some, level) for some in errors]
        claim = f"DPCA{n}: the eigengap decides how fast it converges"
        here = f"below {level:g} after {' and '.join(_steps(some, one.n_iter) for some in took)}"
        yield PAPERS, "Figure 4", claim, here, (took[0] or one.n_iter + 1) < (took[1] or one.n_iter + 1)
    for beta, level, labels in zip(one.betas, alg, gaps, strict=True):
        yield _economy(found, one, beta, level, labels)


def _economy(found: Findings, one: Rivals, beta: int, level: float, labels: dict[str, Label]) -> Said:
    """Whether DPCA sends more until it is as good as Algorithm 1."""
    own, ratios, clauses = found.estimate("alg.sent", **labels).mean, [], []
    for n in one.neighbours:
        took = steps_below(means(found, f"dpca-{n}", range(1, one.n_iter + 1), **labels), level)
        share = (took or one.n_iter) / one.n_iter
        ratios.append(share * found.estimate(f"dpca-{n}.sent", **labels).mean / own)
        clauses.append(f"DPCA{n} {'over ' if took is None else ''}{ratios[-1]:.0f} times")
    claim = "Alg. 1 sends less than DPCA until that is as good"
    return PAPERS, f"Figure 4, beta = {beta}", claim, f"{own:,.0f} numbers; {', '.join(clauses)}", min(ratios) > 1


def _steps(count: int | None, most: int) -> str:
    return f"more than {most} steps" if count is None else f"{count}"


# ---------------------------------------------------------------- Table I


def _of_task(found: Findings, name: str, task: Task) -> Iterator[Said]:
    what = f"Table I, {task.title}"
    alg, kpca, code, right = (
        np.array([some.mean for some in errors_of(found, name, "rows", way, task.features)])
        for way in ("alg", "kpca", "pca-code", "pca")
    )
    for way in HELD_AGAINST:
        row = _reproduced(found, name, task, way)
        if row is not None:
            yield PAPERS, what, f"{WAYS[way]}: {_listed(task.checked)} features as printed", *row
    apart = float(np.abs(alg - kpca).max())
    yield PAPERS, what, "Alg. 1 comes near KPCA", f"apart by at most {apart:.4f}", apart <= NEAR
    for pca, way in ((code, "pca-code"), (right, "pca")):
        better = int((alg < pca).sum())
        here = f"for {better} of {len(alg)} numbers of features; at {task.features[-1]} {alg[-1]:.4f}, {pca[-1]:.4f}"
        yield PAPERS, what, f"Alg. 1 is generally better than {WAYS[way]}", here, 2 * better > len(alg)
    if found.select(set=name, split="groups"):
        most = task.checked[-1]
        for way in ("alg", "pca"):
            rows, groups = (errors_of(found, name, split, way, [most])[0].mean for split in ("rows", "groups"))
            claim = f"{WAYS[way]}: errors are about twice as high with no treatment on both sides"
            here = f"{groups:.4f} for {rows:.4f} at {most} features"
            here += f": {groups / rows:.2f} times" if rows else ""
            yield OURS, what, claim, here, TWICE[0] * rows <= groups <= TWICE[1] * rows


def _reproduced(found: Findings, name: str, task: Task, way: str) -> tuple[str, bool] | None:
    """How many of the paper's numbers a way has."""
    paper, here = paper_row(name, way), errors_of(found, name, "rows", way, task.checked)
    if not paper or not all(some.n for some in here):
        return None
    off = [abs(some.mean - mean) / spread for some, (mean, spread) in zip(here, paper, strict=True)]
    count = sum(is_within(some.mean, value) for some, value in zip(here, paper, strict=True))
    return f"{count} of {len(here)}; at most {max(off):.1f} deviations off", count == len(here)


def misses(found: Findings, name: str, task: Task) -> dict[str, float]:
    """How far each reading of KPCA is from the paper's numbers, on average; none of a task that it does not have."""
    paper, off = paper_row(name, "kpca"), {}
    for way in ROWS_OF["kpca"] if paper else ():
        here = errors_of(found, name, "rows", way, task.checked)
        off[way] = float(np.mean([abs(some.mean - value[0]) for some, value in zip(here, paper, strict=True)]))
    return off


def _of_readings(found: Findings, name: str, task: Task) -> Iterator[Said]:
    off = misses(found, name, task)
    if off:
        here = f"off by {off['kpca']:.4f} on average without, by {off['kpca-printed']:.4f} with it"
        claim = "the kernel of the table has no 2, whatever equation 6 says"
        yield OURS, f"Table I, {task.title}", claim, here, off["kpca"] < off["kpca-printed"]


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts[:-1])) + f" and {counts[-1]}"


# ---------------------------------------------------------------- eigenpairs


def _of_disclosure(found: Findings, one: Disclosure) -> Iterator[Said]:
    for kernel, times in zip(KERNELS, (1, 2), strict=True):
        for width in one.widths:
            rank = min([rank for rank in one.ranks if rank >= times * width], default=one.ranks[-1])
            error = found.estimate(f"{kernel}.{width}.{rank}.few", set="disclosure").mean
            claim = f"{width + 1} known rows of a site with {width} columns, and {rank} pairs, give all others"
            yield OURS, f"eigenpairs, {kernel}", claim, f"off by {error:.1e} of their spread", error <= FOUND
