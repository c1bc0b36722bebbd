"""Small federations for tests, and ends that lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import InProcess, in_process
from coterie.messages.site_api import Block
from coterie.runtime.channel import Outcome
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[Any]


def blobs(n: int = 300, d: int = 4, k: int = 3, *, seed: int = 0, spread: float = 6.0) -> Rows:
    """Rows in k clumps."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + spread * rng.normal(size=(k, d))[rng.integers(0, k, n)]


def tables_of(rows: Rows, owners: npt.ArrayLike, n_sites: int, **options: Any) -> dict[str, ArrayTable]:
    """One table a site; row i belongs to site ``owners[i]``, and a site may have none."""
    owner = np.asarray(owners)
    return {f"site-{m}": ArrayTable(rows[owner == m], name=f"site-{m}", **options) for m in range(n_sites)}


def split_evenly(rows: Rows, n_sites: int, **options: Any) -> dict[str, ArrayTable]:
    """Sites of nearly the same size, rows in order."""
    return tables_of(rows, np.arange(len(rows)) * n_sites // max(1, len(rows)), n_sites, **options)


class Cut(ArrayTable):
    """Blocks of seven rows: an ArrayTable's hold 256 at least."""

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, seven at a time."""
        for block in super().raw_blocks():
            yield from (Block(block.rows[i : i + 7]) for i in range(0, len(block.rows), 7))


def federation(rows: Rows, n_sites: int = 3, **options: Any) -> InProcess:
    """Sites in this process that share out the rows evenly."""
    return in_process(split_evenly(rows, n_sites), **options)


class Tampered:
    """A channel on which someone changes what comes back."""

    def __init__(self, inner: InProcess, change: Callable[[str, bytes, bytes], bytes | Outcome]) -> None:
        self.inner, self._change = inner, change

    def sites(self) -> Sequence[str]:
        return self.inner.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        found = {}
        for name, outcome in self.inner.exchange(payloads, timeout).items():
            changed = self._change(name, payloads[name], outcome.payload)
            found[name] = changed if isinstance(changed, Outcome) else Outcome("answered", changed)
        return found


def central_lloyd(rows: Rows, centers: Rows, max_rounds: int, tol: float) -> tuple[Rows, float, int]:
    """Lloyd's algorithm as a textbook has it: one row, one distance at a time."""
    centers = np.array(centers, float)
    rounds = 0
    for _ in range(max_rounds):
        rounds += 1
        groups: list[list[Rows]] = [[] for _ in centers]
        for row in rows:
            groups[int(np.argmin([((row - c) ** 2).sum() for c in centers]))].append(row)
        moved = np.array([np.mean(g, axis=0) if g else c for g, c in zip(groups, centers, strict=True)])
        shift = ((moved - centers) ** 2).sum()
        centers = moved
        if shift <= tol:
            break
    cost = sum(min(((row - c) ** 2).sum() for c in centers) for row in rows)
    return centers, float(cost), rounds
