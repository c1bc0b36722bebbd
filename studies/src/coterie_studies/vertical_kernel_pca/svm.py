"""Table I of He et al. (2020): a linear SVM on components found by Algorithm 1, by kernel PCA and by PCA."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import linalg

from coterie.estimators import VerticalKernelPCA
from coterie_studies.vertical_kernel_pca.sets import AS_PRINTED, Sample, Split, Task, cut, gamma_of

__all__ = ["ROWS_OF", "STEPS", "WAYS", "classified", "classified_as_printed", "drawn"]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]
C = 5.0
"""The SVM's, as in the paper's code."""
STEPS: Mapping[str, int] = {"pca-code": 1000, "pca-code-fewer": 300, "pca-code-more": 10_000}
"""After so many the SVM stops on the features of the paper's PCA, which are so large that it would not soon end. How
many there were is not known: the first was chosen because it comes nearest to the paper's row."""
MANY_STEPS = 1_000_000
"""After so many it stops in any case: now and then, on features of PCA, it would not end at all."""
NONE = 1e-12
"""Eigenvalues below this share of the largest count as none."""

WAYS: Mapping[str, str] = {
    "alg": "Alg. 1",
    "kpca": "KPCA",
    "pca-code": "PCA as in the paper's code",
    "pca-unit": "the same, axes of unit length",
    "pca": "PCA",
    "alg-printed": "Alg. 1, kernel as printed",
    "alg-fitted": "Alg. 1, training rows as fitted",
    "alg-unit": "Alg. 1, axes of unit length",
    "kpca-printed": "KPCA, kernel as printed",
    "kpca-half": "KPCA, half of sigma",
    "pca-code-fewer": f"PCA as in the paper's code, {STEPS['pca-code-fewer']:,} steps",
    "pca-code-more": f"PCA as in the paper's code, {STEPS['pca-code-more']:,} steps",
}
ROWS_OF: Mapping[str, tuple[str, ...]] = {
    "alg": ("alg", "alg-printed", "alg-fitted", "alg-unit"),
    "kpca": ("kpca", "kpca-printed", "kpca-half"),
    "pca": ("pca-code", "pca-unit", "pca", "pca-code-fewer", "pca-code-more"),
}
"""Which row of the paper's table each is held against."""


@dataclass(frozen=True)
class Case:
    """A task's rows, some of them to train on."""

    sample: Sample
    train: npt.NDArray[np.intp]
    test: npt.NDArray[np.intp]

    def error(self, train: Floats, test: Floats, *, most_steps: int = MANY_STEPS) -> float:
        """Of the rest, the share a linear SVM trained on these features gets wrong."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import SVC

        truth = self.sample.is_first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            made = SVC(kernel="linear", C=C, max_iter=most_steps).fit(train, truth[self.train])
        return float(np.mean(made.predict(test) != truth[self.test]))


def drawn(sample: Sample, n_train: int, split: Split, seed: int) -> npt.NDArray[np.intp]:
    """Rows to train on, in their order; of groups, whole ones as they come, as long as they fit."""
    rng = np.random.default_rng(seed)
    if split == "rows":
        return np.sort(rng.permutation(len(sample.rows))[:n_train])
    names, which = np.unique(sample.group, return_inverse=True)
    sizes, taken, count = np.bincount(which), [], 0
    for i in rng.permutation(len(names)):
        if count + sizes[i] <= n_train:
            taken.append(i)
            count += sizes[i]
    return np.flatnonzero(np.isin(which, taken))


def classified(task: Task, split: Split, seed: int) -> Values:
    """Errors of every way but Algorithm 1 with the kernel as printed, by the number of features."""
    case = _case(task, split, seed)
    found = dict(
        _by_alg(task, case, 1.0, task.features, {"alg": "whole", "alg-fitted": "fitted", "alg-unit": "unit"})
    )
    settings = (
        ("kpca", task.sigma, 1.0),
        ("kpca-printed", task.sigma, AS_PRINTED),
        ("kpca-half", task.sigma / 2, 1.0),
    )
    for way, sigma, factor in settings:
        found |= _by_kpca(task, case, way, gamma_of(sigma, factor))
    return found | _by_pca(task, case)


def classified_as_printed(task: Task, seed: int) -> Values:
    """Errors of Algorithm 1 with the kernel of equation 6, where the paper has values."""
    case = _case(task, "rows", seed)
    return dict(_by_alg(task, case, AS_PRINTED, task.checked, {"alg-printed": "whole"}))


def _case(task: Task, split: Split, seed: int) -> Case:
    sample = _loaded(task.load)
    train = drawn(sample, task.n_train, split, seed)
    return Case(sample, train, np.setdiff1d(np.arange(len(sample.rows)), train))


def _by_alg(
    task: Task, case: Case, factor: float, features: Sequence[int], ways: Mapping[str, str]
) -> Iterator[tuple[str, float]]:
    """Rows to train on and to test are both projected by equation 10, whose axes have the lengths that eigenvectors
    of K_hat give them (``whole``); the former may be K_hat's own instead (``fitted``), axes of length 1 (``unit``).
    """
    rows, n = case.sample.rows, len(case.train)
    parts = cut(rows.shape[1], task.n_sites)
    for count in features:
        made = VerticalKernelPCA(
            min(count, n), gamma=gamma_of(task.sigma, factor), local_rank=min(count + task.spare, n), random_state=0
        ).fit(rows[case.train], columns=parts)
        unit, lengths = made.transform(rows), np.sqrt(np.maximum(made.eigenvalues_, 0.0))
        whole = unit * lengths
        pairs = {
            "whole": (whole[case.train], whole[case.test]),
            "fitted": (made.embedding_ * lengths, whole[case.test]),
            "unit": (unit[case.train], unit[case.test]),
        }
        for way, how in ways.items():
            yield f"{way}.{count}", case.error(*pairs[how])


def _by_kpca(task: Task, case: Case, way: str, gamma: float) -> Values:
    """Kernel PCA of pooled columns, projected in the same way."""
    values = np.exp(-gamma * _distances(task.load)[:, case.train])
    middle = values[case.train].mean(axis=0)
    centered = values - values.mean(axis=1, keepdims=True) - middle + middle.mean()
    vectors = _eigenpairs(centered[case.train])[1]
    return _errors(case, way, centered @ vectors, task.features)


def _by_pca(task: Task, case: Case) -> Values:
    """PCA as the paper's code has it: every row less its own mean, not the columns', the axes as long as for kernels;
    the same with axes of length 1; and with the columns' means taken off."""
    rows = case.sample.rows
    found: Values = {}
    own = rows - rows.mean(axis=1, keepdims=True)
    centered = rows - rows[case.train].mean(axis=0)
    for seen, way in ((own, "pca-unit"), (centered, "pca")):
        products = seen @ seen[case.train].T
        values, vectors = _eigenpairs(products[case.train])
        lengths = np.sqrt(np.where(values > NONE * values[0], values, np.inf))
        whole = products @ vectors
        for name, most in STEPS.items() if way == "pca-unit" else ():
            found |= _errors(case, name, whole, task.features, most)
        found |= _errors(case, way, whole / lengths, task.features)
    return found


def _errors(case: Case, way: str, made: Floats, features: Sequence[int], most_steps: int = MANY_STEPS) -> Values:
    """With more and more of these features of all rows."""
    return {
        f"{way}.{count}": case.error(made[case.train, :count], made[case.test, :count], most_steps=most_steps)
        for count in features
    }


def _eigenpairs(matrix: Floats) -> tuple[Floats, Floats]:
    values, vectors = linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1], vectors[:, ::-1]


@lru_cache(maxsize=2)
def _loaded(load: Callable[[], Sample]) -> Sample:
    return load()


@lru_cache(maxsize=2)
def _distances(load: Callable[[], Sample]) -> Floats:
    """Squared distances between all rows."""
    from sklearn.metrics.pairwise import euclidean_distances

    rows = _loaded(load).rows
    made: Floats = euclidean_distances(rows - rows.mean(axis=0), squared=True)
    return made
