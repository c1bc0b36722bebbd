"""Names for kinds of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
