"""Many nearly valid files, orders and certificates: read, or one clear error, soon and in little memory."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from .files import TARGETS, fuzz, inputs
from .test_fuzz import COUNTS, RUNS

QUICK = 200
SLOW = {
    **dict.fromkeys(("certificate", "card", "revocations", "ledger", "header", "records", "policy", "job"), 20_000),
    **dict.fromkeys(("model", "npz", "parquet", "arrow", "csv", "csv.gz"), 20_000),
    "order": 40_000,
    "run certificate": 20_000,
}


@pytest.fixture
def small_machine() -> Iterator[None]:
    """One thread and 4 GB of addresses more (Arrow reserves one), so that what takes more ends by itself."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with threadpool_limits(1):
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


CASES = [
    *[(name, QUICK) for name in TARGETS],
    *[pytest.param(name, count, marks=pytest.mark.slow) for name, count in SLOW.items()],
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "count"), CASES)
def test_anything_is_read_or_is_one_clear_error(small_machine, fast_folder, name, count):
    n_read = fuzz(TARGETS[name], count, seed=count, folder=fast_folder)
    assert n_read >= len(TARGETS[name].corpus()) - 2  # of the valid ones, a job and a policy have a flaw
    assert n_read < count


def test_the_same_seed_gives_the_same_files():
    assert list(inputs(TARGETS["npz"], 60, seed=1)) == list(inputs(TARGETS["npz"], 60, seed=1))
    assert list(inputs(TARGETS["order"], 60, seed=1)) != list(inputs(TARGETS["order"], 60, seed=2))


def test_all_targets_together_get_a_million_inputs():
    codec_and_site = sum(2 * case.values[0] for case in COUNTS[1:]) + sum(case.values[0] for case in RUNS[1:])
    assert SLOW.keys() == TARGETS.keys()
    assert codec_and_site + sum(SLOW.values()) >= 1_000_000
