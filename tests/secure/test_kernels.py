"""A run that one machine recorded is replayed on another whose arithmetic rounds differently."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from coterie import DSPGDKernelKMeans, FederatedKernelKMeans
from coterie.messages.identity import Authority, Identity
from coterie.methods.order import Order, SignedOrder
from coterie.methods.registry import METHODS as REGISTERED
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.run import Run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.blas_kernels import ROOT, environment, kernel_of, kernels
from tests.federations import blobs
from tests.kernel_runs import METHODS, OFF, ends
from tests.kernel_sites import METHOD, CarelessSettings

OLDEST = next(filter(kernel_of, ("Nehalem", "armv8")), "")
"""A kernel without this CPU's newer instructions; none where numpy and scipy bring another BLAS."""
HERE, ELSEWHERE = ("", False), (OLDEST, True)
CLOSE_CASES = (3, 7)
"""Rows that tie, and rows whose eigenvalues are equal."""
pytestmark = pytest.mark.xdist_group("kernels")


@pytest.fixture(scope="module")
def two():
    with ends([HERE, ELSEWHERE]) as made:
        yield made


def test_the_two_machines_round_differently(two):
    is_one_kernel = kernel_of("") in ("", OLDEST)
    if is_one_kernel and not any(OFF.values()):
        pytest.skip("this machine has one kernel of BLAS, and numpy one set of loops: nothing is tried here")
    assert two.rounded(HERE) != two.rounded(ELSEWHERE)
    if is_one_kernel:
        pytest.skip("this machine has one kernel of BLAS: runs are replayed with other loops of numpy alone")


@pytest.mark.parametrize("name", METHODS)
def test_a_run_is_replayed_bit_for_bit_under_another_kernel(name, two):
    for number in CLOSE_CASES:
        there, back = (HERE, ELSEWHERE) if number % 2 else (ELSEWHERE, HERE)
        done = two.replay(back, two.record(there, name, number))
        assert not done.problem, f"run {number}: {done.problem}"
        assert done.n_exact == done.n_questions > 2, number


@pytest.mark.slow
def test_fifty_runs_of_every_method_are_replayed_under_kernels_drawn_at_random():
    machines = [(kernel, is_off) for kernel in kernels() or [""] for is_off in (False, True)]
    rng, wrong = np.random.default_rng(0), []
    with ends(machines) as made:
        for name in METHODS:
            for number in range(50):
                first, *others = (machines[i] for i in rng.permutation(len(machines))[:3])
                recorded = made.record(first, name, number)
                for other in others:
                    done = made.replay(other, recorded)
                    if done.problem or done.n_exact < done.n_questions:
                        wrong.append((name, number, first, other, done))
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


# ---------------------------------------------------------------- a run among sites that round differently


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The engine of docs/adding-an-engine.md, where processes that are spawned find it."""
    page = (Path(ROOT) / "docs" / "adding-an-engine.md").read_text()
    (tmp_path / "pipes_engine.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("pipes_engine", tmp_path / "pipes_engine.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pipes_engine", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(REGISTERED, "careless", METHOD)
    return module


MACHINES = {"east": HERE, "north": ELSEWHERE, "south": (OLDEST, False)}
"""A kernel, and whether numpy is without its newer loops, for every site."""


@contextmanager
def sites(engine, folder, monkeypatch):
    """A process for every site, each with arithmetic of its own."""
    from tests import kernel_sites

    rows, authority = blobs(240, 4, 3, seed=5), Authority()
    context, connections, processes = multiprocessing.get_context("spawn"), {}, []
    for place, (name, (kernel, is_off)) in enumerate(MACHINES.items()):
        path = folder / f"{name}.csv"
        np.savetxt(path, rows[place::3], delimiter=",", header="a,b,c,d", comments="")
        connections[name], other = context.Pipe()
        identity = Identity.certified_by(authority, name, os.urandom(32))
        arguments = (other, name, str(path), Policy(), identity)
        with monkeypatch.context() as patch:
            for key, value in {**environment(kernel), **(OFF if is_off else {})}.items():
                patch.setenv(key, value)
            process = context.Process(target=kernel_sites.serve, args=arguments, daemon=True)
            process.start()
        other.close()
        processes.append(process)
    try:
        yield engine.Pipes(connections, Identity.certified_by(authority, "owner", os.urandom(32), "analyst"))
    finally:
        for connection, process in zip(connections.values(), processes, strict=True):
            connection.close()
            process.join(20)


def test_sites_that_round_differently_ask_for_whole_questions_and_the_run_goes_on(engine, tmp_path, monkeypatch):
    columns = ArrayTable(np.zeros((1, 4)), columns=["a", "b", "c", "d"]).columns
    with sites(engine, tmp_path, monkeypatch) as channel:
        for asked in (
            CarelessSettings(3),
            FederatedKernelKMeans(3),
            DSPGDKernelKMeans(3, n_iter=2, solver="lanczos"),
        ):
            order, layer = Order.of(asked, columns, PreparationOptions("standard")), MaskedSums()
            signed = SignedOrder.by(channel.analyst, order)
            verified = Run(channel, asked.method, layers=(layer,), identity=order.identity)
            result = verified.drive(layer.ordered(signed, 0)).result
            if asked.method == "careless":
                assert verified.in_full, "no site rounds differently"
                assert verified.in_full <= {name for name, machine in MACHINES.items() if machine != HERE}
            else:
                assert not verified.in_full
            fit = result if asked.method == "careless" else result.clusters
            assert fit.counts.sum() == pytest.approx(240, rel=1e-6)
            sums = [line.sites for line in verified.ledger.exchanges if line.seen == "masked"]
            assert sums
            assert all(count.outcome.is_good for counts in sums for count in counts.values())
