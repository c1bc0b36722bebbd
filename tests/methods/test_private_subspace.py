"""Moments of rows from noisy sums that no rows could have."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.methods.shared.privacy import Privacy, Releases
from coterie.methods.shared.private_subspace import Box, Moments, private_moments
from coterie.methods.shared.private_sums import NoisyMoments

GRID = 1 / 512


def moments_of(squares: float, width: float = 1.0) -> Moments:
    """Of a thousand rows about the middle, whose squares are noise."""
    releases = Releases(Privacy(1.0), 5)
    steps = private_moments(Box(np.zeros(3), np.full(3, width)), releases, 0.06, GRID)
    next(steps)
    reply = NoisyMoments(np.array(1000), np.zeros(3, np.int64), np.array(round(squares / GRID**2)))
    with pytest.raises(StopIteration) as done:
        steps.send(reply)
    found: Moments = done.value.value
    return found


def test_squares_that_vanish_in_noise_are_not_taken_for_rows_in_one_place():
    """However wide the ranges: half the noise of squares is the least, so that no radius is far too small."""
    assert moments_of(-1e9).spread == moments_of(0.0).spread
    ratio = moments_of(-1e9, 8.0).spread / moments_of(-1e9).spread
    assert ratio == pytest.approx(8.0, rel=0.01)
    assert moments_of(-1e9).spread ** 2 > 0.01
    assert moments_of(200.0).spread == pytest.approx(np.sqrt(0.2))
