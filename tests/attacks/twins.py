"""Two federations that show the same groups and share no row, and a record of everything that leaves a site.

Numbers lie on a grid of powers of two, and the rows of a group about its mean are made such that all sums are exact.
So the groups of both federations are the same to the last bit, and every answer has to be, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.codec import Envelope, Form
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.site_api import CARRIERS
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from coterie.sites.views import forming

__all__ = ["Answer", "Federation", "Recorder", "differences", "planted_groups", "twin_of"]

Rows = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Twin = Literal["reflected", "turned"]

UNITS = np.array([1.0, 2.0, 1.0, 64.0])
"""Of the columns: unlike, so that a site scales them by their deviations."""


class Federation(NamedTuple):
    """Rows by site, and the group of every row."""

    rows: dict[str, Rows]
    labels: dict[str, Labels]

    def tables(self) -> dict[str, ArrayTable]:
        """New tables of these rows."""
        return {name: ArrayTable(own, name=name) for name, own in self.rows.items()}

    @classmethod
    def drawn(cls, sizes: tuple[int, ...] = (200, 205, 210), *, missing: bool = False, seed: int = 0) -> Federation:
        """Sites of different sizes, rows in three clumps; where values are missing, some cells are thin."""
        rng = np.random.default_rng(seed)
        places = np.round(rng.normal(size=(3, len(UNITS))) * 6 * 64) / 64
        sites = [_site(rng, n, places, missing) for n in sizes]
        names = [f"site-{i}" for i in range(len(sizes))]
        return cls(
            {name: rows for name, (rows, _) in zip(names, sites, strict=True)},
            {name: labels for name, (_, labels) in zip(names, sites, strict=True)},
        )


def _site(rng: np.random.Generator, n: int, places: Rows, missing: bool) -> tuple[Rows, Labels]:
    """Rows of groups of 5 to 9, and their groups."""
    sizes: list[int] = []
    while n - sum(sizes) >= 15:
        sizes.append(int(rng.integers(5, 10)))
    left = n - sum(sizes)
    sizes += [left] if left < 10 else [5, left - 5]
    rows = [_group(rng, size, places[i % len(places)], missing and i % 2 == 1) for i, size in enumerate(sizes)]
    order = rng.permutation(n)
    return np.concatenate(rows)[order], np.repeat(np.arange(len(sizes)), sizes)[order]


def _group(rng: np.random.Generator, size: int, place: Rows, missing: bool) -> Rows:
    """Rows about a mean on the grid; where values are missing, the third column has three to seven."""
    middle = place + np.round(rng.normal(size=len(UNITS)) * 64) / 64
    away = np.round(rng.normal(size=(size, len(UNITS))) * 256) / 256
    away[-1] -= away.sum(axis=0)
    rows: Rows = (middle + away) * UNITS
    if missing:
        n_there = min(size, int(rng.integers(3, 8)))
        own = np.round(rng.normal(size=n_there) * 256) / 256
        own[-1] -= own.sum()
        rows[:, 2] = np.nan
        rows[:n_there, 2] = middle[2] + own
    return rows


def twin_of(federation: Federation, how: Twin, seed: int = 1) -> Federation:
    """Other rows, the same in all that groups of them show: means, counts, squares and products of columns.

    ``reflected``: every row on the other side of its group's mean. ``turned``: rows of a group mixed by reflections
    along (1, 1, -1, -1), so that their distances from the mean change, too; rows that lack a value are reflected.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, rows in federation.rows.items():
        made, labels = rows.copy(), federation.labels[name]
        for group in np.unique(labels):
            mine = np.flatnonzero(labels == group)
            made[mine] = _reflected(rows[mine]) if how == "reflected" else _turned(rows[mine], rng)
        assert (~np.isclose(made, rows, equal_nan=True)).any(axis=1).all()  # no row is the same
        found[name] = made
    return Federation(found, federation.labels)


def _reflected(rows: Rows) -> Rows:
    return 2 * np.nanmean(rows, axis=0) - rows


def _turned(rows: Rows, rng: np.random.Generator) -> Rows:
    if np.isnan(rows).any():
        return _reflected(rows)
    made, order, middle = rows.copy(), rng.permutation(len(rows)), len(rows) // 2
    signs = np.array([1.0, 1.0, -1.0, -1.0])
    for four in (order[:4], order[-4:], order[middle - 2 : middle + 2]):
        made[four] -= np.outer(signs, signs @ made[four]) / 2
    return made


@contextmanager
def planted_groups(federation: Federation) -> Iterator[None]:
    """Form the federation's groups in place of those that a site would find by distances."""
    by_size = {len(labels): labels for labels in federation.labels.values()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forming, "group_rows", lambda rows, *_: by_size[len(rows)].copy())
        yield


# ---------------------------------------------------------------- everything that leaves


@dataclass(frozen=True)
class Answer:
    """What left a site, or was masked and then left: numbers, or why there are none."""

    asked: str
    is_masked: bool
    numbers: tuple[npt.NDArray[Any], ...] = ()
    refusal: Refusal | None = None


@dataclass
class Recorder:
    """By site, in order, what :meth:`Site.answer` gave; of masked answers, what they were before masking."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)

    @contextmanager
    def listening(self) -> Iterator[Recorder]:
        """Listen at every site of this process."""
        answer, evaluate = Site.answer, Site.evaluate

        def heard(site: Site, frame: bytes) -> bytes:
            given = answer(site, frame)
            self._note(site.name, codec.decode_question(frame), given)
            return given

        def heard_within(site: Site, envelope: Envelope, request: Request[Any] | None, limits: Limits) -> Reply:
            found = evaluate(site, envelope, request, limits)
            assert request is not None
            self._add(site.name, Answer(request.kind, True, _numbers(found)))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Site, "answer", heard)
            patch.setattr(Site, "evaluate", heard_within)
            yield self

    def _note(self, name: str, asked: codec.Decoded, frame: bytes) -> None:
        if asked.form is Form.RECALL:
            return
        request = asked.request
        assert request is not None
        found = codec.decode_answer(frame, asked.envelope, request.layout, request.layout.bounds(asked.limits))
        if isinstance(found, Refusal):
            self._add(name, Answer(request.kind, False, refusal=found))
        elif type(request) not in CARRIERS:  # keys, masks and shares are drawn anew in every run
            self._add(name, Answer(request.kind, False, _numbers(found)))

    def _add(self, name: str, answer: Answer) -> None:
        self.answers.setdefault(name, []).append(answer)

    @property
    def kinds(self) -> set[str]:
        """What was asked and answered."""
        return {one.asked for given in self.answers.values() for one in given if one.refusal is None}


def _numbers(reply: Reply) -> tuple[npt.NDArray[Any], ...]:
    return tuple(np.array(value) for value in reply.arrays())


def differences(one: Recorder, other: Recorder, tolerance: float = 0.0) -> list[str]:
    """Where two records differ by more than ``tolerance`` of an array's largest number."""
    if one.answers.keys() != other.answers.keys():
        return ["other sites answered"]
    found = []
    for name, given in one.answers.items():
        if len(given) != len(other.answers[name]):
            found.append(f"{name}: {len(given)} answers, and {len(other.answers[name])}")
        for place, (first, second) in enumerate(zip(given, other.answers[name], strict=False)):
            if not _are_same(first, second, tolerance):
                found.append(f"{name}, answer {place}: {first.asked}")
                break  # what follows a difference differs
    return found


def _are_same(one: Answer, other: Answer, tolerance: float) -> bool:
    if (one.asked, one.is_masked, one.refusal) != (other.asked, other.is_masked, other.refusal):
        return False
    for a, b in zip(one.numbers, other.numbers, strict=True):
        if a.shape != b.shape:
            return False
        largest = np.abs(a.astype(np.float64)).max(initial=0.0)
        if not np.allclose(a, b, rtol=0.0, atol=tolerance * largest, equal_nan=True):
            return False
    return True
