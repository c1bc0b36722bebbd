"""Masked sums: what a site and the server compute and send for one, beside the plain sum of the same vector."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.measure import Grid, Line, Result
from coterie.engines.inprocess import InProcess, in_process
from coterie.messages.codec import answer_header_bytes
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.runtime.channel import Outcome
from coterie.runtime.layers import Layer, PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import SEALED_BYTES
from coterie.sites.tables import ArrayTable

METHOD = "masking-benchmark"
NUMBERS, SITES, RINGS = (200, 1_000, 20_100), (5, 20, 100), (64, 32)
REPEATS, PAIRS = 3, 3
SETTING_UP = 2
"""Exchanges before the first upload: keys, introductions."""


class Vector(Reply):
    """Numbers that cost a site nothing to compute."""

    values: Floats = array("n", bound="1000")


class AskVector(Request[Vector]):
    """A vector of ``n`` numbers."""

    n: int


@answers(AskVector)
def local_vector(table: Table, memory: Memory, ask: AskVector) -> Vector:  # noqa: ARG001
    """The same numbers every time, made beforehand."""
    return Vector(_numbers(ask.n))


@cache
def _numbers(n: int) -> Floats:
    return np.random.default_rng(0).uniform(-1000, 1000, n)


@dataclass
class Clocked:
    """A channel to sites in this process that keeps the CPU seconds of every answer, an exchange at a time."""

    inner: InProcess
    spent: list[dict[str, float]] = field(default_factory=list)

    def sites(self) -> Sequence[str]:
        """The names of the sites."""
        return self.inner.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> dict[str, Outcome]:  # noqa: ARG002
        """Let one site after the other answer."""
        found, spent = {}, {}
        for name, payload in payloads.items():
            site = self.inner.members[name]
            began = time.thread_time()
            frame = site.answer(payload)
            spent[name] = time.thread_time() - began
            found[name] = Outcome("answered", frame)
        self.spent.append(spent)
        return found


class Cost(NamedTuple):
    """One sum: milliseconds of CPU and bytes."""

    site_ms: float
    """At a site, on average over the sites."""
    server_ms: float
    once_ms: float
    """At a site, once a run: keys, introductions, a common secret with every other site."""
    bytes_up: float
    """From a site: upload and unmasking, envelopes and shares included."""
    upload_bytes: float


@contextmanager
def _method() -> Iterator[None]:
    """Let sites answer the benchmark's own request, for as long as it runs."""
    METHODS[METHOD] = Method(METHOD, "", (AskVector,), "", "")
    try:
        yield
    finally:
        del METHODS[METHOD]


def _sums(ask: AskVector, times: int, elapsed: list[float]) -> Protocol[None]:
    for _ in range(times):
        began = time.thread_time()
        yield from total(ask)
        elapsed.append(time.thread_time() - began)


def cost_of(layer: Layer, n_numbers: int, n_sites: int, *, set_up: int, repeats: int) -> Cost:
    """What one sum costs: the median over ``repeats`` after a first one that also sets everything up."""
    tables = {f"site-{m:03d}": ArrayTable(np.zeros((10, 1))) for m in range(n_sites)}
    elapsed: list[float] = []
    ledger, ask = Ledger(), AskVector(n_numbers)
    _numbers(n_numbers)
    with _method(), in_process(tables, threads=1) as inner:
        clocked = Clocked(inner)
        run(_sums(ask, repeats + 1, elapsed), clocked, method=METHOD, layers=[layer], ledger=ledger)
    at_sites = [sum(spent.values()) for spent in clocked.spent]
    each = (len(at_sites) - set_up) // (repeats + 1)
    first, starts = set_up + each, range(set_up + each, len(at_sites), each)
    later = [sum(at_sites[i : i + each]) for i in starts]
    server = [whole - inside for whole, inside in zip(elapsed[1:], later, strict=True)]
    one = statistics.median(later)
    sent = [sum(count.bytes_up for count in exchange.sites.values()) for exchange in ledger.exchanges]
    return Cost(
        one / n_sites * 1e3,
        statistics.median(server) * 1e3,
        max(0.0, sum(at_sites[:first]) - one) / n_sites * 1e3,
        sum(sent[-each:]) / n_sites,
        sent[-each] / n_sites,
    )


def masked_sums() -> Result:
    """Every size of vector with every number of sites, in both rings."""
    work = Grid(
        "One masked sum, upload and unmasking: CPU of one thread, ms",
        ("ring", "sites", "numbers", "a site", "x plain", "a site, once", "server", "x plain"),
        "x plain: to the plain sum of the same vector as float64. "
        "Once: keys, introductions and common secrets, which serve a whole run.",
    )
    sent = Grid(
        "The same: bytes up a site, and as a ratio to floats as wide as the ring",
        ("ring", "sites", "numbers", "bytes", "numbers alone", "upload", "all"),
        "Upload: with its envelope and a sealed share for every site. All: with what unmasks, too.",
    )
    aims: list[Line] = []
    _both(RINGS[0], NUMBERS[0], SITES[0])  # once to warm up
    for bits, n_sites, n_numbers in itertools.product(RINGS, SITES, NUMBERS):
        plain, masked = _both(bits, n_numbers, n_sites)
        where = (f"{bits}", f"{n_sites}", f"{n_numbers:,}")
        work.rows.append((*where, *_work(masked, plain)))
        sent.rows.append((*where, *_sent(masked, bits, n_numbers, n_sites)))
        aims += _aims(masked, bits, n_numbers, n_sites)
    return Result("Masked sums of 20,100 numbers", aims, grids=[work, sent])


def _both(bits: int, n_numbers: int, n_sites: int) -> tuple[Cost, Cost]:
    """The plain sum and the masked one, back to back a few times, so that a noisy machine disturbs both alike."""
    repeats = max(REPEATS, 60 // n_sites)
    plain, masked = [], []
    for _ in range(PAIRS):
        plain.append(cost_of(PlainSums(), n_numbers, n_sites, set_up=0, repeats=repeats))
        masked.append(cost_of(MaskedSums(bits), n_numbers, n_sites, set_up=SETTING_UP, repeats=repeats))
    return _median(plain), _median(masked)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def _work(masked: Cost, plain: Cost) -> tuple[str, ...]:
    return (
        f"{masked.site_ms:.2f}",
        f"{masked.site_ms / plain.site_ms:.1f}",
        f"{masked.once_ms:.2f}",
        f"{masked.server_ms:.2f}",
        f"{masked.server_ms / plain.server_ms:.1f}",
    )


def _sent(masked: Cost, bits: int, n_numbers: int, n_sites: int) -> tuple[str, ...]:
    floats = n_numbers * bits // 8
    alone = masked.upload_bytes - answer_header_bytes(METHOD) - n_sites * SEALED_BYTES
    parts = (alone, masked.upload_bytes, masked.bytes_up)
    return (f"{masked.bytes_up:,.0f}", *(f"{part / floats:.3f}" for part in parts))


def _aims(masked: Cost, bits: int, n_numbers: int, n_sites: int) -> list[Line]:
    if n_numbers != max(NUMBERS):
        return []
    where, lines = f"{bits}-bit ring, {n_sites} sites", []
    if n_sites == 20:
        lines.append(Line(f"{where}: CPU", masked.site_ms, "ms a site", 10, is_aim=True))
    if bits == 32:
        ratio = masked.bytes_up / (n_numbers * 4)
        lines.append(Line(f"{where}: bytes to float32's", ratio, "x", 1.05, is_aim=n_sites > 20))
    return lines


BENCHMARKS = {"masking": masked_sums}
