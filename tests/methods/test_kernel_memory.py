"""What a site needs beside its table and what it keeps, however many rows it has."""

from __future__ import annotations

import tracemalloc

import numpy as np

from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import LandmarkMap, feature_root
from coterie.messages.site_api import Memory
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    SendGram,
    keep_advance,
    keep_kernel,
    local_triangle,
)
from coterie.methods.kernel.landmarks.sites import (
    MeanByCell,
    SendLandmarks,
    UseLandmarks,
    keep_landmarks,
    local_landmarks,
    local_means,
)
from coterie.sites.tables import ArrayTable

N, D, RANK = 60_000, 300, 10
TABLE = ArrayTable(np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32))


def peak_of(work):
    """Megabytes at most, besides what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_an_iteration_of_dspgd_needs_100_mb_beside_the_table_and_b():
    """All features at once would be 144 MB."""
    memory = Memory()
    keep_kernel(TABLE, memory, BeginKernel("rbf", 0.1, 3, 1.0, D, "phase", 0, "float64"))
    n, means = D + RANK, np.zeros(D)
    memory["dspgd"].b = np.zeros((N, RANK))
    gram = peak_of(lambda: local_triangle(TABLE, memory, SendGram(1, 2.0, n * (n + 1) // 2, n, 0.5, means)))
    ask = Advance(1, 0.5, False, means, np.zeros((n, RANK)), np.ones(RANK))
    advance = peak_of(lambda: keep_advance(TABLE, memory, ask))
    assert gram < 100
    assert advance - N * RANK * 8 / 1e6 < 100  # the new B itself


def test_landmarks_need_100_mb_beside_the_table():
    """All features at once would be 192 MB."""
    memory, kernel, points = Memory(), Kernel("rbf", 0.1), np.random.default_rng(1).normal(size=(400, 8))
    sent = peak_of(lambda: local_landmarks(TABLE, memory, SendLandmarks(10, 8, 8, 4, 2000, 0)))
    map_ = LandmarkMap.of(kernel, points, feature_root(kernel, points, row_bytes=4))
    keep_landmarks(TABLE, memory, UseLandmarks(*UseLandmarks.stated(map_, "float32")))
    centers = np.zeros((10, map_.projection.shape[1]))
    means = peak_of(lambda: local_means(memory.table, memory, MeanByCell("float16", centers)))
    assert sent < 100
    assert means < 100
