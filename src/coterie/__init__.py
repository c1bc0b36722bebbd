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
    "NumberOfClusters",
    "NumberOfKernelClusters",
    "Privacy",
    "TableDescription",
    "VerticalKernelKMeans",
    "VerticalKernelPCA",
    "__version__",
    "baselines",
    "choose_k",
    "compare",
    "describe",
    "fit",
    "load_model",
    "open_table",
    "plan",
    "row_tags",
    "save_model",
    "transform",
]

if TYPE_CHECKING:
    from coterie import baselines
    from coterie.planning.planner import plan  # isort: skip  (mypy takes choose_k below for its module otherwise)
    from coterie.estimators import (
        DSPGDKernelKMeans,
        DSPGDKernelPCA,
        EdgeKMeans,
        FederatedKernelKMeans,
        FederatedKernelPCA,
        FederatedKMeans,
        FederatedPCA,
        NumberOfClusters,
        NumberOfKernelClusters,
        Privacy,
        TableDescription,
        VerticalKernelKMeans,
        VerticalKernelPCA,
        choose_k,
        compare,
        describe,
        fit,
        load_model,
        open_table,
        row_tags,
        save_model,
        transform,
    )


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: the command line answers faster without scikit-learn."""
    if name == "baselines":
        return import_module("coterie.baselines")
    if name == "plan":
        return import_module("coterie.planning.planner").plan
    if name in __all__:
        return getattr(import_module("coterie.estimators"), name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")
