"""Every study by its name."""

from __future__ import annotations

from coterie.studies import federated_kmeans, natural_sites
from coterie.studies.study import Study

__all__ = ["STUDIES"]

STUDIES: dict[str, Study] = {study.name: study for study in (federated_kmeans.STUDY, natural_sites.STUDY)}
