"""Many nearly valid files, orders and certificates: read, or one clear error, soon and in little memory."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bounds import small_machine
from .files import TARGETS, Target, fuzz, inputs
from .test_fuzz import SLOW as QUESTIONS

QUICK = 200
SLOW = {
    **dict.fromkeys(("order", "signed order", "certificate", "card", "revocations"), 90_000),
    **dict.fromkeys(("remote job", "policy", "job", "npz", "ledger", "header", "records"), 40_000),
    **dict.fromkeys(("model", "parquet", "arrow", "csv", "csv.gz", "run certificate"), 20_000),
}
"""More inputs where one takes less."""


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
def test_anything_is_read_or_is_one_clear_error(fast_folder, name, count):
    with small_machine(4 << 30):  # Arrow reserves one
        n_read = fuzz(TARGETS[name], count, seed=count, folder=fast_folder)
    assert n_read >= len(TARGETS[name].corpus()) - 2  # of the valid ones, a job and a policy have a flaw
    assert n_read < count


def _busy(data: bytes, _: Path) -> None:
    until = time.process_time() + 1.1
    while time.process_time() < until:
        pass


def _endless(data: bytes, _: Path) -> None:
    while True:
        with contextlib.suppress(Exception):  # a reader may catch much
            time.sleep(10)


def _greedy(data: bytes, _: Path) -> None:
    assert len(b"x" * 320_000_000)


def _unclear(data: bytes, _: Path) -> None:
    raise KeyError(data)


FLAWS = [
    (_busy, AssertionError, r"^1\.\d s for"),
    (_endless, AssertionError, "an input does not end"),
    (_greedy, AssertionError, "bytes for"),
    (_unclear, KeyError, "an input"),
]


@pytest.mark.parametrize(("read", "error", "message"), FLAWS)
def test_a_reader_s_flaw_is_found(tmp_path, monkeypatch, read, error, message):
    """The control: readers that take long, never end, take much, or raise something else."""
    if read is _endless:
        monkeypatch.setattr("tests.fuzz.bounds.PATIENCE", 0.5)
    with pytest.raises(error, match=message):
        fuzz(Target(lambda: [b"an input"], read), 3, seed=1, folder=tmp_path)


def test_the_same_seed_gives_the_same_files():
    assert list(inputs(TARGETS["npz"], 60, seed=1)) == list(inputs(TARGETS["npz"], 60, seed=1))
    assert list(inputs(TARGETS["order"], 60, seed=1)) != list(inputs(TARGETS["order"], 60, seed=2))


def test_all_targets_together_get_a_million_inputs():
    assert SLOW.keys() == TARGETS.keys()
    assert sum(QUESTIONS.values()) + sum(SLOW.values()) >= 1_000_000
