"""Results that must be repeatable are computed on a fixed number of threads, whoever else computes at the time."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sklearn.cluster  # noqa: F401  (so that OpenMP is loaded)
from threadpoolctl import threadpool_info, threadpool_limits

from coterie.maths.arithmetic import THREADS, described, fixed_threads


def threads(kind: str) -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == kind}


@pytest.fixture(autouse=True)
def _two_threads():
    """Otherwise nothing would be seen on a machine with one core, or with OPENBLAS_NUM_THREADS=1."""
    with threadpool_limits(2):
        yield


def test_within_there_are_as_many_threads_as_decided_and_afterwards_as_many_as_before():
    assert threads("blas") == threads("openmp") == {2}
    with fixed_threads():
        with fixed_threads():
            assert threads("blas") == threads("openmp") == {THREADS}
        assert threads("blas") == threads("openmp") == {THREADS}
    assert threads("blas") == threads("openmp") == {2}


def test_they_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), fixed_threads():
        1 / 0  # noqa: B018
    assert threads("blas") == threads("openmp") == {2}


def test_whoever_leaves_first_changes_nothing_for_those_still_within():
    with ThreadPoolExecutor(1) as pool:
        is_inside, may_leave = threading.Event(), threading.Event()

        def other() -> set[int]:
            with fixed_threads():
                is_inside.set()
                assert may_leave.wait(60)
                return threads("blas") | threads("openmp")

        with fixed_threads():
            found = pool.submit(other)
            assert is_inside.wait(60)
        assert threads("blas") == {THREADS}
        may_leave.set()
        assert found.result() == {THREADS}
    assert threads("blas") == {2}


def test_openmp_which_counts_for_every_thread_apart_is_limited_in_each():
    def found() -> set[int]:
        with fixed_threads():
            return threads("openmp")

    with fixed_threads(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(found).result() == {THREADS}


def test_a_library_loaded_within_is_limited_from_the_next_time_on():
    program = """
from threadpoolctl import threadpool_info
from coterie.maths.arithmetic import fixed_threads
def pools():
    return sorted({(pool["user_api"], pool["num_threads"]) for pool in threadpool_info()})
with fixed_threads():
    before = pools()
    import sklearn.cluster
    with fixed_threads():
        print(before, pools())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('blas', 1)] [('blas', 1), ('openmp', 1)]"


def test_every_blas_is_described_whatever_their_order():
    found = described()
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert found["threads"] == THREADS
    assert len(found["blas"]) == len(pools)
    for pool in pools:
        library = found["blas"][pool["filepath"].rpartition("/")[2]]
        assert library["version"].endswith(pool["version"])
        assert library["kernel"] == pool.get("architecture", "")


def test_the_instructions_of_numpy_are_described():
    """Its exponential of one CPU is not that of another, with the same BLAS."""
    program = "from coterie.maths.arithmetic import described; print(described()['numpy'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == described()["numpy"]
    targets = described()["numpy"].split()
    optional = [target for target in targets if "baseline" not in target]
    if not optional:
        pytest.skip("numpy has no optional instructions on this CPU")
    env_program = f"import os; os.environ['NPY_DISABLE_CPU_FEATURES'] = {' '.join(optional)!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", env_program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() not in ("", " ".join(targets))
