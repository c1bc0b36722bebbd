"""What differential privacy costs in CPU: noise beside the sums it is added to, and private k-means beside plain."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.lloyd import _mnist
from benchmarks.measure import Line, Result, alternating
from coterie import FederatedKMeans, Privacy
from coterie.engines.inprocess import InProcess, in_process
from coterie.estimators.fitting import fit_over
from coterie.maths.arithmetic import fixed_threads
from coterie.messages import codec
from coterie.messages.contributions import Gram, PrivateRequest
from coterie.messages.site_api import Memory
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.private_sums import SumProducts
from coterie.methods.shared.whole_rows import ROWS, ShowWhole, WholeRows
from coterie.runtime.channel import Outcome
from coterie.secure.masked_sums import AskMasked
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable
from coterie.sites.views.noise import noisy_answer

SITES, CLUSTERS, REPEATS = 5, 10, 3
COLUMNS, FEW_ROWS = 784, 1_000
"""Of the Gram; a site with few rows, whose product is soon done."""
VARIANCES = (1e4, 1e9, 1e15)
MOST_NOISE, MOST_CPU = 20.0, 1.5


def noise() -> Result:
    """The noise for a Gram beside the product of a site's own rows."""
    rows = np.random.default_rng(0).integers(-40, 41, size=(FEW_ROWS, COLUMNS)).astype(np.float64)
    size = COLUMNS * (COLUMNS + 1) // 2
    result = Result(f"Noise for a Gram of {COLUMNS} columns, over the product of {FEW_ROWS:,} rows")
    for variance in VARIANCES:
        ask: Any = SumProducts(SITES, 0, 64, np.array([variance]), size, 1024, 1024.0, np.zeros(COLUMNS))
        memory = _without_rows()
        with fixed_threads():
            noisy_answer(memory, ask, bytes(32))  # tables are made once
            ratio = alternating(lambda: noisy_answer(memory, ask, bytes(32)), lambda: Gram(rows).added_up((size,)))  # noqa: B023
        result.lines.append(Line(f"variance {variance:.0e}", ratio, "x", MOST_NOISE))
    return result


def _without_rows() -> Memory:
    """What a site remembers that has no rows: all of its answer is noise."""
    memory = Memory()
    nowhere = np.zeros(0), np.zeros((0, 0))
    show = ShowWhole(1.0, 1.0, np.zeros(COLUMNS), *nowhere)
    memory[ROWS] = WholeRows(ArrayTable(np.zeros((0, COLUMNS))), show)
    return memory


@dataclass
class _Clocked:
    """A channel that keeps the sites' CPU seconds of every exchange, and whether a private question was asked."""

    inner: InProcess
    spent: list[tuple[float, bool]] = field(default_factory=list)

    def sites(self) -> Sequence[str]:
        """The names of the sites."""
        return self.inner.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """Carry the questions."""
        request = codec.decode_question(next(iter(payloads.values()))).request if payloads else None
        is_private = isinstance(request, AskMasked) and issubclass(request.subject, PrivateRequest)
        began = time.process_time()
        found = self.inner.exchange(payloads, timeout)
        self.spent.append((time.process_time() - began, is_private))
        return found


def private_kmeans() -> Result:
    """k-means of MNIST with epsilon 1 beside the same estimator over rows, both masked."""
    rows, name = _mnist()
    tables = {f"site-{i}": ArrayTable(np.ascontiguousarray(rows[i::SITES])) for i in range(SITES)}
    ranges = (np.zeros(rows.shape[1]), np.full(rows.shape[1], float(rows.max())))
    private, plain = Policy(protection="noise", privacy=PrivacyRules(1.0), verification="off"), Policy.simulation()
    later, whole = [], []
    for seed in range(REPEATS):
        estimator = FederatedKMeans(CLUSTERS, random_state=seed)
        known = sum(seconds for seconds, _ in _spent(estimator, tables, plain, ranges))
        estimator = FederatedKMeans(CLUSTERS, privacy=Privacy(1.0), random_state=seed)
        spent = _spent(estimator, tables, private, ranges)
        first = next(place for place, (_, is_private) in enumerate(spent) if is_private)
        later.append(sum(seconds for seconds, _ in spent[first + 1 :]) / known)
        whole.append(sum(seconds for seconds, _ in spent) / known)
    lines = [
        Line("CPU of sites after the first pass", statistics.median(later), "x", MOST_CPU),
        Line("CPU of sites in all", statistics.median(whole), "x"),
    ]
    return Result(f"Private k-means of {name}, over plain k-means", lines, "The first pass makes rows whole numbers.")


def _spent(
    estimator: FederatedKMeans,
    tables: Mapping[str, ArrayTable],
    policy: Policy,
    ranges: tuple[np.ndarray, np.ndarray],
) -> list[tuple[float, bool]]:
    columns = {name: tuple(table.columns) for name, table in tables.items()}
    with in_process(tables, policy=policy, threads=1) as inner:
        channel = _Clocked(inner)
        fit_over(channel, estimator, columns, PreparationOptions(ranges=ranges), order=inner.analyst)
    return channel.spent


BENCHMARKS = {"noise": noise, "private-kmeans": private_kmeans}
