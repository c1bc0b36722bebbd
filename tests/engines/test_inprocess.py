"""The in-process engine: the same bytes as anywhere else."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from coterie.engines.inprocess import Fault, InProcess, Schedule, in_process
from coterie.protocols.lloyd import lloyd
from coterie.runtime.run import run
from tests.federations import blobs, split_evenly


def test_threads_change_nothing_but_the_time():
    rows = blobs(3000, 20, 4, seed=1)
    found = []
    for threads, pays in ((1, 1.0), (4, 0.0)):
        with in_process(split_evenly(rows, 5), threads=threads) as channel:
            channel._seconds_an_answer = 1.0 if pays == 0.0 else 0.0
            found.append(run(lloyd(rows[:4], max_rounds=5, tol=0), channel, method="lloyd"))
    np.testing.assert_array_equal(found[0].centers, found[1].centers)
    assert found[0].cost == found[1].cost


def test_numerical_libraries_run_one_thread_while_several_sites_work_and_get_theirs_back():
    before = [pool["num_threads"] for pool in threadpool_info()]
    with in_process(split_evenly(blobs(20), 2)):
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert [pool["num_threads"] for pool in threadpool_info()] == before


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
