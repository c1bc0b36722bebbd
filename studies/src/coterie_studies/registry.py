"""Every study by its name."""

from __future__ import annotations

from coterie_studies import (
    edge_kmeans,
    federated_kernel_kmeans,
    federated_kmeans,
    landmarks,
    natural_sites,
    privacy,
    vertical_kernel_pca,
)
from coterie_studies.study import Study

__all__ = ["STUDIES"]

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        federated_kmeans.STUDY,
        federated_kernel_kmeans.STUDY,
        landmarks.STUDY,
        edge_kmeans.STUDY,
        vertical_kernel_pca.STUDY,
        natural_sites.STUDY,
        privacy.STUDY,
    )
}
