"""What a request states of random features."""

from __future__ import annotations

import numpy as np

from coterie.errors import MalformedMessage
from coterie.maths.features import FeatureMap, draw_features
from coterie.maths.kernels import Kernel
from coterie.messages.schema import Floats
from coterie.messages.site_api import Rows
from coterie.methods.shared.embedded import OfKernel, stated_kernel


class Drawn(OfKernel):
    """What a request states about random features: the kernel, how many, of which form, the seed they come from."""

    n_features: int
    form: str
    seed: int

    @staticmethod
    def stated(kernel: Kernel, n_features: int, form: str, seed: int) -> tuple[str, float, int, float, int, str, int]:
        return (*stated_kernel(kernel), int(n_features), form, seed)

    def draw(self, n_columns: int, step: int, dtype: str = "float64") -> FeatureMap:
        """The map of one step, the same at every site."""
        if not 1 <= self.n_features <= MOST_FEATURES or self.seed < 0 or dtype not in ("float64", "float32"):
            raise MalformedMessage(
                f"{self.n_features} features of {dtype} from seed {self.seed}: there are none such"
            )
        kernel = self.the_kernel()
        return draw_features(kernel, self.n_features, n_columns, self.seed, step, form=self.form, dtype=dtype)

    def embed(self, rows: Rows) -> Floats:
        """Rows as one draw of features, scaled so that inner products are kernel values on average."""
        features: Floats = self.draw(rows.shape[1], 0)(rows) / np.sqrt(self.n_features)
        return features


MOST_FEATURES = 1 << 14
"""The most features a site makes of its rows at once."""
