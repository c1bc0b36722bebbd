"""Clustering and embedding data that cannot be pooled."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

logging.getLogger("coterie").addHandler(logging.NullHandler())  # silent unless whoever uses it listens
__all__ = [
    "DSPGDKernelKMeans",
    "DSPGDKernelPCA",
    "EdgeKMeans",
    "FederatedKMeans",
    "FederatedKernelKMeans",
    "FederatedKernelPCA",
    "FederatedPCA",
    "VerticalKernelKMeans",
    "VerticalKernelPCA",
    "__version__",
    "fit",
    "load_model",
    "open_table",
    "row_tags",
    "save_model",
    "transform",
]

if TYPE_CHECKING:
    from coterie.estimators import (
        DSPGDKernelKMeans,
        DSPGDKernelPCA,
        EdgeKMeans,
        FederatedKernelKMeans,
        FederatedKernelPCA,
        FederatedKMeans,
        FederatedPCA,
        VerticalKernelKMeans,
        VerticalKernelPCA,
        fit,
        transform,
    )
    from coterie.estimators.models import load_model, save_model
    from coterie.protocols.alignment import row_tags
    from coterie.sites.tables import open_table

_HOMES = {
    "DSPGDKernelKMeans": "coterie.estimators",
    "DSPGDKernelPCA": "coterie.estimators",
    "EdgeKMeans": "coterie.estimators",
    "FederatedPCA": "coterie.estimators",
    "FederatedKMeans": "coterie.estimators",
    "FederatedKernelKMeans": "coterie.estimators",
    "FederatedKernelPCA": "coterie.estimators",
    "VerticalKernelKMeans": "coterie.estimators",
    "VerticalKernelPCA": "coterie.estimators",
    "fit": "coterie.estimators",
    "transform": "coterie.estimators",
    "row_tags": "coterie.protocols.alignment",
    "load_model": "coterie.estimators.models",
    "save_model": "coterie.estimators.models",
    "open_table": "coterie.sites.tables",
}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: the command line answers faster without scikit-learn."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")
