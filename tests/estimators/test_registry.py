"""Every estimator there is keeps scikit-learn's contract; those not named in the tests of their family are here."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from coterie import NumberOfClusters, NumberOfKernelClusters
from coterie.baselines import CEPCAKernelKMeans, NystroemKernelKMeans, PooledKernelKMeans, RandomFeatureKernelKMeans
from coterie.estimators.kmeans import LloydKMeans, OneShotKMeans
from coterie.estimators.registry import KINDS

HERE = [
    LloydKMeans(3),
    OneShotKMeans(3),
    RandomFeatureKernelKMeans(3),
    PooledKernelKMeans(3),
    NystroemKernelKMeans(3),
    CEPCAKernelKMeans(3),
    NumberOfClusters(max_clusters=3),
    NumberOfKernelClusters(max_clusters=3),
]
ELSEWHERE = {
    *("FederatedKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "FederatedPCA", "EdgeKMeans"),
    *("DSPGDKernelKMeans", "DSPGDKernelPCA", "VerticalKernelKMeans", "VerticalKernelPCA"),
    *("TableDescriber", "ModelComparison"),  # what columns hold, and how far two models agree: no models themselves
}


def test_no_estimator_is_left_out():
    own = {name for name, kind in KINDS.items() if kind.__module__.startswith("coterie.")}
    assert {type(estimator).__name__ for estimator in HERE} | ELSEWHERE == own


@parametrize_with_checks(HERE)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)
