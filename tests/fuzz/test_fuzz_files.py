"""Many nearly valid files, orders and certificates: each is read, or is one clear error, soon and in little memory."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from .files import TARGETS, fuzz, inputs
from .test_fuzz import COUNTS, RUNS

QUICK = 200
SLOW = {
    "order": 40_000,
    "certificate": 40_000,
    "card": 40_000,
    "revocations": 40_000,
    "ledger": 20_000,
    "header": 20_000,
    "records": 20_000,
    "policy": 10_000,
    "job": 20_000,
    "model": 10_000,
    "npz": 10_000,
    "parquet": 10_000,
    "arrow": 10_000,
    "csv": 5_000,
    "csv.gz": 5_000,
}


@pytest.fixture
def small_machine() -> Iterator[None]:
    """One thread and a gigabyte more, so that what takes more ends by itself."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with threadpool_limits(1):
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)


CASES = [
    *[(name, QUICK) for name in TARGETS],
    *[pytest.param(name, count, marks=pytest.mark.slow) for name, count in SLOW.items()],
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "count"), CASES)
def test_anything_is_read_or_is_one_clear_error(small_machine, tmp_path, name, count):
    logging.getLogger("coterie").setLevel(logging.ERROR)
    n_read = fuzz(TARGETS[name], count, seed=count, folder=tmp_path)
    assert n_read >= len(TARGETS[name].corpus()) - 2  # of the valid ones, a job and a policy have a flaw
    assert n_read < count


def test_the_same_seed_gives_the_same_files():
    assert list(inputs(TARGETS["npz"], 60, seed=1)) == list(inputs(TARGETS["npz"], 60, seed=1))
    assert list(inputs(TARGETS["order"], 60, seed=1)) != list(inputs(TARGETS["order"], 60, seed=2))


def test_all_targets_together_get_a_million_inputs():
    codec_and_site = sum(2 * case.values[0] for case in COUNTS[1:]) + sum(case.values[0] for case in RUNS[1:])
    assert SLOW.keys() == TARGETS.keys()
    assert codec_and_site + sum(SLOW.values()) >= 1_000_000
