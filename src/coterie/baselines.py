"""What coterie's methods are compared with: they pool rows, or send features of rows as they are.

No policy but ``simulation`` allows them, unless a data officer says otherwise.
"""

from coterie.estimators.baselines import (
    CEPCAKernelKMeans,
    NystroemKernelKMeans,
    PooledKernelKMeans,
    RandomFeatureKernelKMeans,
)
from coterie.methods.vertical.dpca import dpca

__all__ = ["CEPCAKernelKMeans", "NystroemKernelKMeans", "PooledKernelKMeans", "RandomFeatureKernelKMeans", "dpca"]
