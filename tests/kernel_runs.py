"""Verified runs recorded under one kernel of BLAS and replayed under another; as a program, the process that does it.

A process has one kernel for its life, so every kernel gets a process, which records and replays as many runs as it is
asked to over its pipes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from sklearn.datasets import load_digits

from coterie import (
    DSPGDKernelKMeans,
    DSPGDKernelPCA,
    EdgeKMeans,
    FederatedKernelKMeans,
    FederatedKernelPCA,
    FederatedKMeans,
    FederatedPCA,
    NumberOfClusters,
    Privacy,
)
from coterie.engines.inprocess import in_process
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kmeans import LloydKMeans
from coterie.maths.arithmetic import fixed_threads
from coterie.messages import codec
from coterie.messages.verbs import Question
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.agreement import ColumnReport
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.secure.replay import ProvenSum, Replay, is_same
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable
from tests.blas_kernels import ROOT, environment
from tests.federations import Rows, blobs
from tests.kernel_sites import carelessly

OFF = {"NPY_DISABLE_CPU_FEATURES": " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name])}
"""numpy without its loops for newer CPUs."""
BUDGET = PrivacyRules(100.0, 0.01)
POLICIES = Policy(privacy=BUDGET), Policy(protection="none")


def _symmetric(rng: np.random.Generator) -> Rows:
    """Points with their mirror images in every column: eigenvalues occur several times, starts tie."""
    corner = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    around = np.concatenate([np.eye(3), -np.eye(3)]) * 0.25
    rows = (3 * corner[:, None] + around).reshape(-1, 3)
    return np.concatenate([rows] * 4)


def _digits(rng: np.random.Generator) -> Rows:
    rows = load_digits().data
    return rows[rng.choice(len(rows), 200, replace=False)]


def _deficient(rng: np.random.Generator) -> Rows:
    """Of rank two, one column constant and one twice."""
    rows = blobs(160, 2, 3, seed=int(rng.integers(1 << 30))) @ rng.normal(size=(2, 4))
    return np.column_stack([rows, np.full(len(rows), 7.5), rows[:, 0]])


DATA: tuple[Callable[[np.random.Generator], Rows], ...] = (
    lambda rng: blobs(200, 4, 3, seed=int(rng.integers(1 << 30))),
    lambda rng: blobs(160, 9, 5, seed=int(rng.integers(1 << 30)), spread=1.0),
    _digits,
    lambda rng: rng.integers(0, 3, size=(180, 3)).astype(float),  # ties
    lambda rng: np.repeat(blobs(40, 3, 3, seed=int(rng.integers(1 << 30))), 5, axis=0),
    _deficient,
    lambda rng: np.repeat(np.eye(4) * 8, 40, axis=0) + np.tile(rng.normal(size=(40, 4)), (4, 1)),  # equal sizes
    _symmetric,
    lambda rng: np.tile(np.concatenate([np.eye(6), -np.eye(6)]), (16, 1)),  # all eigenvalues equal
    lambda rng: 1e4 + 0.1 * blobs(160, 3, 3, seed=int(rng.integers(1 << 30))),  # far from zero
)
"""Rows of all kinds that make decisions close."""


METHODS: dict[str, Callable[[], FederatedEstimator]] = {
    "lloyd": lambda: LloydKMeans(3),
    "lloyd, cells": lambda: LloydKMeans(4, init="cells", tol=0.0),
    "federated-kmeans": lambda: FederatedKMeans(3),
    "federated-kmeans, batches and momentum": lambda: FederatedKMeans(
        3, epochs=2, batch_size=16, server_momentum=0.5, reassign=(0.1, 2), max_rounds=6
    ),
    "edge-kmeans": lambda: EdgeKMeans(3),
    "landmarks, clusters": lambda: FederatedKernelKMeans(3),
    "landmarks, clusters among components": lambda: FederatedKernelKMeans(3, n_components=4),
    "landmarks, polynomial": lambda: FederatedKernelKMeans(3, kernel="polynomial", gamma=0.05, degree=2),
    "landmarks, laplacian": lambda: FederatedKernelKMeans(3, kernel="laplacian", n_landmarks=20),
    "landmarks, components": lambda: FederatedKernelPCA(3),
    "dspgd, clusters by Gram": lambda: DSPGDKernelKMeans(3, n_iter=4, solver="gram"),
    "dspgd, clusters by Lanczos": lambda: DSPGDKernelKMeans(3, n_iter=3, solver="lanczos"),
    "dspgd, components by Gram": lambda: DSPGDKernelPCA(3, n_features=24, n_iter=4, solver="gram"),
    "dspgd, components by Lanczos": lambda: DSPGDKernelPCA(2, n_iter=3, solver="lanczos"),
    "federated-pca": lambda: FederatedPCA(2),
    "choose-k": lambda: NumberOfClusters(max_clusters=4),
    "federated-kmeans, privately": lambda: FederatedKMeans(3, privacy=Privacy(20.0)),
    "landmarks, clusters, privately": lambda: FederatedKernelKMeans(3, privacy=Privacy(20.0)),
    "landmarks, components, privately": lambda: FederatedKernelPCA(2, privacy=Privacy(20.0)),
    "federated-pca, privately": lambda: FederatedPCA(2, privacy=Privacy(20.0)),
}


class Recorded(msgspec.Struct):
    """A run: what it was of, its order, seed and reports, the sums, and the questions."""

    order: bytes
    seed: int
    reports: dict[str, list[tuple[bytes, str, list[int]]]]
    sums: list[bytes] = []
    told: list[list[bytes]] = []
    """Requests without an answer, before each sum and after the last."""
    bodies: list[bytes] = []


class Replayed(msgspec.Struct):
    """How a replay went."""

    n_questions: int
    n_exact: int = 0
    problem: str = ""


def _run(estimator: FederatedEstimator, rows: Rows, seed: int) -> tuple[Order, MaskedSums]:
    """A verified run in this process."""
    rng = np.random.default_rng(seed)
    owner, policy = np.arange(len(rows)) * 4 // len(rows), POLICIES[int(rng.integers(2))]
    owner = owner if rng.integers(2) else rng.permutation(owner)
    tables = {f"s{i}": ArrayTable(rows[owner == i]) for i in range(4)}
    scale = ("none", "standard")[int(rng.integers(2))]
    with in_process(tables, policy=policy, seed=seed) as channel:
        ranges = None if estimator.privacy is None else (rows.min(axis=0) - 1, rows.max(axis=0) + 1)
        columns = next(iter(tables.values())).columns
        order = Order.of(estimator, columns, PreparationOptions(scale, ranges=ranges))
        layer = MaskedSums()
        protocol = layer.ordered(SignedOrder.by(channel.analyst, order), 0)
        run(protocol, channel, method=estimator.method, layers=[layer], identity=order.identity)
    return order, layer


def record(name: str, number: int) -> Recorded:
    """The run of a method with this number."""
    rows = DATA[number % len(DATA)](np.random.default_rng([number, 17]))
    order, layer = _run(METHODS[name](), rows, number)
    replay = layer._replay
    assert replay is not None
    assert layer.public_seed is not None
    reports = {
        name: [(value.tobytes(), value.dtype.str, list(value.shape)) for value in report.arrays()]
        for name, report in replay._reports.items()
    }
    recorded = Recorded(order.to_bytes(), layer.public_seed, reports)
    with fixed_threads():
        _stepped(recorded, layer._sums)
    return recorded


def _stepped(recorded: Recorded, sums: list[ProvenSum]) -> None:
    """Write down the questions between the sums; they are those that the sites answered."""
    told: list[bytes] = []
    replay = Replay(Order.from_bytes(recorded.order), recorded.seed, _reports(recorded), _teller(told))
    for proven in sums:
        recorded.told.append(told[:])
        recorded.bodies.append(replay.body.data)
        recorded.sums.append(msgspec.msgpack.encode(proven))
        assert proven.digest == replay.ask(proven.roster).digest
        told.clear()
        replay.take(proven)
    assert replay.question is None
    recorded.told.append(told[:])


def _teller(told: list[bytes]) -> Callable[[Question], None]:
    return lambda question: told.append(codec.encode_body(question.request, {}).data)  # type: ignore[arg-type]


def _reports(recorded: Recorded) -> dict[str, ColumnReport]:
    return {
        name: ColumnReport(*(np.frombuffer(data, kind).reshape(shape) for data, kind, shape in arrays))
        for name, arrays in recorded.reports.items()
    }


def replay(recorded: Recorded) -> Replayed:
    """The run as a site of this process steps it: every question by ``adopt``, and what is not asked likewise."""
    told: list[bytes] = []
    done = Replayed(len(recorded.sums))
    try:
        with fixed_threads():
            again = Replay(Order.from_bytes(recorded.order), recorded.seed, _reports(recorded), _teller(told))
            for data, body, before in zip(recorded.sums, recorded.bodies, recorded.told[:-1], strict=True):
                _compare(told, before)
                done.n_exact += again.question is not None and again.body.data == body
                again.adopt(body)
                told.clear()
                again.take(msgspec.msgpack.decode(data, type=ProvenSum))
            _compare(told, recorded.told[-1])
            if again.question is not None:
                raise AssertionError(f"asks {again.request.kind} after the end")
    except Exception as problem:
        done.problem = f"{type(problem).__name__}: {problem}"
    return done


def _compare(own: list[bytes], expected: list[bytes]) -> None:
    """What a site's own protocol applies without being asked is what the server's would."""
    assert len(own) == len(expected), f"{len(own)} requests without an answer, not {len(expected)}"
    for one, other in zip(own, expected, strict=True):
        request, server = codec.decode_body(one)[0], codec.decode_body(other)[0]
        assert server is not None
        assert request is not None
        assert is_same(request, server), f"{server.kind}, which is not asked, differs"


def main() -> None:
    """Record or replay whatever arrives."""
    for words in _messages(sys.stdin.buffer):
        if words[0] == "record":
            _write(sys.stdout.buffer, record(*words[1:]))
        elif words[0] == "round":
            _write(sys.stdout.buffer, carelessly(np.arange(12.0)).tobytes())
        else:
            _write(sys.stdout.buffer, replay(msgspec.convert(words[1], Recorded)))


def _messages(source: BinaryIO) -> Iterator[Any]:
    while size := source.read(8):
        yield msgspec.msgpack.decode(source.read(int.from_bytes(size)))


def _write(to: BinaryIO, value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    to.write(len(data).to_bytes(8) + data)
    to.flush()


class Ends:
    """A process for every kernel that is used, started when it is."""

    def __init__(self, environments: list[tuple[str, bool]]) -> None:
        self.environments = environments
        """Kernels of BLAS, and whether numpy is without its loops for newer CPUs."""
        self._processes: dict[tuple[str, bool], subprocess.Popen[bytes]] = {}

    def record(self, where: tuple[str, bool], name: str, number: int) -> Recorded:
        return msgspec.convert(self._asked(where, ["record", name, number]), Recorded)

    def replay(self, where: tuple[str, bool], recorded: Recorded) -> Replayed:
        return msgspec.convert(self._asked(where, ["replay", recorded]), Replayed)

    def rounded(self, where: tuple[str, bool]) -> bytes:
        """Numbers with the last bits they have there."""
        return bytes(self._asked(where, ["round"]))

    def _asked(self, where: tuple[str, bool], words: list[Any]) -> Any:
        if where not in self._processes:
            kernel, is_off = where
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            with_kernel = environment(kernel, PYTHONPATH=path, **(OFF if is_off else {}))
            command = [sys.executable, "-m", "tests.kernel_runs"]
            self._processes[where] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=with_kernel, cwd=ROOT
            )
        process = self._processes[where]
        assert process.stdin is not None
        assert process.stdout is not None
        _write(process.stdin, words)  # type: ignore[arg-type]
        answer = next(_messages(process.stdout), None)  # type: ignore[arg-type]
        assert answer is not None, f"the process under {where} ended"
        return answer

    def close(self) -> None:
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def ends(environments: list[tuple[str, bool]]) -> Iterator[Ends]:
    """Processes under these kernels."""
    made = Ends(environments)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    main()
