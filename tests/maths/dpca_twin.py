"""DPCA of parts that are all here: what the protocol must come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.maths.dpca import orthonormal, ring, start_copy


class Descent(NamedTuple):
    """The copies by site after every outer step, and the components of the last ones."""

    history: list[list[Floats]]
    components: list[Floats]


def dpca(
    parts: Sequence[Floats],
    n_components: int,
    *,
    neighbours: int,
    n_iter: int,
    inner: int = 12,
    rho: float = 4.0,
    seed: int,
) -> Descent:
    """DPCA of parts that are all here, slowly and as it is written down."""
    near, identity = ring(len(parts), neighbours), np.eye(n_components)
    copies = [start_copy(len(part), n_components, seed) for part in parts]
    multipliers = [np.zeros_like(copy) for copy in copies]
    history = []
    for _ in range(n_iter):
        components = [part.T @ copy for part, copy in zip(parts, copies, strict=True)]
        for _ in range(inner):
            found = []
            for j, part in enumerate(parts):
                target = part @ components[j]
                for i in near[j]:
                    multipliers[j] = multipliers[j] + rho * (copies[j] - copies[i])
                    target = target + rho * (copies[j] + copies[i])
                curvature = components[j].T @ components[j] + 2 * rho * len(near[j]) * identity
                found.append((target - multipliers[j]) @ np.linalg.inv(curvature))
            copies = found
        copies = [orthonormal(copy) for copy in copies]
        history.append(copies)
    return Descent(history, [part.T @ copy for part, copy in zip(parts, copies, strict=True)])
