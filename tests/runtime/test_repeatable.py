"""A run computes on a fixed number of threads, here and at its sites; it is resumed bit for bit, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from coterie.engines.inprocess import in_process
from coterie.errors import JournalMismatch
from coterie.maths.arithmetic import THREADS
from coterie.messages import codec
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import answers
from coterie.messages.verbs import each
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.lloyd import lloyd
from coterie.runtime.journal import Journal
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from tests.blas_kernels import ROOT, environment, kernels
from tests.federations import blobs, split_evenly

ROWS = blobs(40, seed=3)


class Threads(Reply):
    number: Floats = array("n", bound="n * box")


class CountThreads(Request[Threads]):
    n: int


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


COUNTED: list[set[int]] = []


@answers(CountThreads)
def local_threads(table, memory, ask):
    COUNTED.append(threads())
    return Threads(np.zeros(ask.n))


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    COUNTED.clear()
    monkeypatch.setitem(METHODS, "trial", Method("trial", "a trial", (CountThreads,), "n", "nothing"))


@pytest.mark.parametrize("n_sites", [1, 3])
@pytest.mark.parametrize("deadline", [None, 600.0])
def test_the_server_and_the_sites_compute_on_the_threads_the_run_decided(n_sites, deadline):
    def protocol():
        before = threads()
        yield from each(CountThreads(1))
        return before, threads()

    with threadpool_limits(2):
        with in_process(split_evenly(ROWS, n_sites)) as channel:
            found = run(protocol(), channel, method="trial", terms=Terms(deadline=deadline))
        assert [*found, *COUNTED] == [{THREADS}] * (2 + n_sites)
        assert threads() == {2}


def test_a_site_does_so_where_no_run_is_in_its_process():
    def protocol():
        return (yield from each(CountThreads(1)))

    class Elsewhere:
        """Keeps the question and answers nothing."""

        def sites(self):
            return ("site-0",)

        def exchange(self, payloads, timeout):
            self.question = payloads["site-0"]
            raise KeyboardInterrupt

    elsewhere = Elsewhere()
    with pytest.raises(KeyboardInterrupt):
        run(protocol(), elsewhere, method="trial")
    with threadpool_limits(2), in_process(split_evenly(ROWS, 1)) as channel:
        answer = channel.exchange({"site-0": elsewhere.question}, None)["site-0"].payload
        assert codec.read_envelope(answer)[0] is codec.Form.ANSWER
        assert all(counted == {THREADS} for counted in COUNTED)
        assert threads() == {2}


def live(folder: Path, *, resume: bool):
    with in_process(split_evenly(ROWS, 2), folder=folder / "sites") as channel:
        return run(lloyd(ROWS[:3]), channel, method="lloyd", journal=Journal(folder / "journal", resume=resume))


def change_header(folder: Path, change) -> None:
    path = folder / "journal" / "header.json"
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))


def test_the_order_in_which_libraries_are_listed_does_not_matter(tmp_path):
    def turn(header):
        blas = header["arithmetic"]["blas"]
        assert blas
        header["arithmetic"]["blas"] = dict(reversed(blas.items()))

    first = live(tmp_path, resume=False)
    change_header(tmp_path, turn)
    np.testing.assert_array_equal(live(tmp_path, resume=True).centers, first.centers)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            ["arithmetic", "threads"],
            2,
            "arithmetic.threads: it was 2 and is now 1; resume it where it began, or begin it anew",
        ),
        (["arithmetic", "machine"], "PDP-11", "arithmetic.machine: it was 'PDP-11' and is now "),
        (["arithmetic", "numpy"], "MMX", "arithmetic.numpy: it was 'MMX' and is now "),
        (["arithmetic", "blas"], {}, "arithmetic.blas."),
        (["versions", "scipy"], "0.1", "versions.scipy: it was '0.1' and is now "),
    ],
)
def test_what_would_change_the_last_bits_is_refused_and_named(tmp_path, place, value, words):
    live(tmp_path, resume=False)
    change_header(tmp_path, lambda header: header[place[0]].update({place[1]: value}))
    with pytest.raises(JournalMismatch) as refused:
        live(tmp_path, resume=True)
    assert f"{tmp_path / 'journal'}: the run being resumed differs in {words}" in str(refused.value)
    assert str(refused.value).endswith(", or begin it anew")


LIFE = """
import hashlib, sys
from pathlib import Path
import coterie
from coterie.engines.inprocess import Fault, Schedule
from coterie.errors import JournalMismatch, QuorumLost
from coterie.estimators import FederatedKernelKMeans
from coterie.sites.policy import Policy
from tests.federations import blobs, split_evenly

folder, life = Path(sys.argv[1]), sys.argv[2]
model = FederatedKernelKMeans(3, landmarks="local", n_landmarks=150, max_rounds=3, random_state=0)
tables = split_evenly(blobs(1800, 20, seed=5, spread=0.5), 3)
lost = Schedule([Fault("site-2", "drop", frozenset({5}))] if life == "cut" else [])
try:
    fitted = coterie.fit(
        model,
        tables,
        policy=Policy.simulation(),
        sums="plain",
        journal=folder,
        schedule=lost,
        resume=life == "resumed",
    )
except (JournalMismatch, QuorumLost) as problem:
    print(type(problem).__name__, problem)
else:
    found = fitted.result_.clusters.centers.tobytes() + fitted.eigenvalues_.tobytes()
    print("centers", hashlib.sha256(found).hexdigest())
"""


def outcome(kernel: str, folder: Path, life: str, n_threads: int) -> str:
    """What one process' life prints, under a kernel and a number of threads."""
    words = [sys.executable, "-c", LIFE, str(folder), life]
    env = environment(kernel, OPENBLAS_NUM_THREADS=str(n_threads), OMP_NUM_THREADS=str(n_threads))
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_resume_is_bit_identical_under_the_same_kernel_and_refused_under_another(tmp_path):
    one, *other = [*islice(kernels(), 2)] or [""]
    whole = outcome(one, tmp_path / "whole", "whole", 1)
    assert whole.startswith("centers")
    assert outcome(one, tmp_path / "cut", "cut", 2).startswith("QuorumLost")
    if other:
        refused = outcome(other[0], tmp_path / "cut", "resumed", 2)
        assert refused.startswith(
            f"JournalMismatch {tmp_path / 'cut'}: the run being resumed differs in arithmetic.blas."
        )
        assert (
            f".kernel: it was '{one}' and is now '{other[0]}'; resume it where it began, set OPENBLAS_CORETYPE={one}"
            in refused
        )
        assert len(refused.splitlines()) == 1
    assert outcome(one, tmp_path / "cut", "resumed", 2) == whole
    if not other:
        pytest.skip("there is one kernel only: a resume under another one was not tried")
    again = outcome(other[0], tmp_path / "again", "whole", 2)
    assert again.startswith("centers")
    assert outcome(other[0], tmp_path / "cut again", "cut", 1).startswith("QuorumLost")
    assert outcome(other[0], tmp_path / "cut again", "resumed", 1) == again
