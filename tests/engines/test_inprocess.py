"""The in-process engine: the same bytes as anywhere else."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.cluster  # noqa: F401  (so that OpenMP is there from the start, with threads of its own in each thread)

from coterie.engines import inprocess
from coterie.engines.inprocess import Fault, InProcess, Schedule, in_process
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.starts import one_shot
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from tests.federations import blobs, split_evenly


def local_centers_and_sums(rows):
    """Sums of rows by BLAS, and each site's own k-means by OpenMP."""
    start = yield from one_shot(4, rows.shape[1], seed=1)
    fit = yield from lloyd(start, max_rounds=5, tol=0)
    return start, fit.centers, fit.cost


@pytest.mark.parametrize("deadline", [None, 600.0])
def test_threads_change_nothing_but_the_time(deadline, monkeypatch):
    monkeypatch.setattr(inprocess, "PAYS", 0.0)
    rows = blobs(6000, 20, 4, seed=1, spread=0.3)
    found = []
    for threads, terms in ((1, Terms()), (4, Terms(deadline=deadline))):
        with in_process(split_evenly(rows, 5), threads=threads) as channel:
            channel._seconds_an_answer = 1.0
            found.append(run(local_centers_and_sums(rows), channel, method="lloyd", terms=terms))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_site_nobody_knows_is_lost():
    with InProcess([]) as channel:
        assert channel.exchange({"x": b""}, None)["x"].status == "lost"


def test_a_schedule_is_a_function_of_its_seed():
    data = bytes(range(100))
    assert Schedule(seed=1).spoil(data, 3) == Schedule(seed=1).spoil(data, 3)
    assert Schedule(seed=1).spoil(data, 3) != Schedule(seed=2).spoil(data, 3)
    assert Schedule(seed=1).spoil(data, 3) != data


@pytest.mark.parametrize("times", [1, 2])
def test_a_fault_happens_as_often_as_it_says(times):
    schedule = Schedule([Fault("a", "drop", frozenset({4}), times=times)])
    assert [bool(schedule.now("a", 4)) for _ in range(3)] == [i < times for i in range(3)]
    assert not schedule.now("a", 5)
    assert not schedule.now("b", 4)
