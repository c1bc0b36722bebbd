"""Every question of private runs, recorded, and put again to tables of an attacker's choice with the noise off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from coterie.engines.inprocess import in_process
from coterie.estimators.registry import KINDS
from coterie.messages import codec
from coterie.messages.codec import Form
from coterie.messages.contributions import CONTRIBUTIONS, Contribution, PrivateRequest
from coterie.messages.schema import Request
from coterie.messages.site_api import KEEPERS, Column, Memory, Table
from coterie.methods.analysis.describe import DescribeSettings
from coterie.methods.method import ChoiceSettings, ClusterSettings, PrivateSettings
from coterie.methods.registry import METHODS
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import Privacy
from coterie.methods.shared.whole_rows import whole_rows
from coterie.runtime.run import run
from coterie.sites.views.noise import exact_sums
from tests.federations import Rows, Tampered, blobs, split_evenly

LOW, HIGH = -12.0, 12.0


def private_estimators(privacy: Privacy) -> Iterator[Any]:
    """One of every kind that can be fitted privately, with its defaults."""
    for method in METHODS.values():
        for kind in method.settings:
            if issubclass(kind, PrivateSettings):
                made = next(e for e in KINDS.values() if issubclass(e, kind))
                few = {"n_clusters": 3} if issubclass(kind, ClusterSettings) else {}
                few |= {"max_clusters": 3} if issubclass(kind, ChoiceSettings) else {}
                yield made(**few, **method.fixed, privacy=privacy)


def recorded_run(estimator: Any, rows: Rows, options: PreparationOptions) -> list[Request[Any]]:
    """What one site is asked, in order."""
    asked: list[Request[Any]] = []

    def hear(name: str, question: bytes, answer: bytes) -> bytes:
        decoded = codec.decode_question(question)
        if name == "site-0" and decoded.form is not Form.RECALL and decoded.request is not None:
            asked.append(decoded.request)
        return answer

    columns = tuple(Column(f"x{i}") for i in range(rows.shape[1] - len(options.besides)))
    with in_process(split_evenly(rows, 3)) as channel:
        whole = estimator.whole_protocol({"": columns}, options, 1)
        run(whole, Tampered(channel, hear), method=estimator.method)
    return asked


class Recorded(NamedTuple):
    """A run over so many columns."""

    name: str
    n_columns: int
    asked: tuple[Request[Any], ...]

    @property
    def kinds(self) -> set[type[Request[Any]]]:
        """What private questions it asked."""
        return {type(one) for one in self.asked if isinstance(one, PrivateRequest)}


@cache
def recorded_runs() -> tuple[Recorded, ...]:
    """Runs of all private methods over few and many columns, prepared in all ways."""
    ways: list[dict[str, Any]] = [
        {},
        {"scale": "standard", "missing": "mean"},
        {"scale": "minmax", "missing": "drop"},
        {"missing": "drop", "besides": (Column("x3"),)},
    ]
    found = []
    for n_columns, way in zip((4, 4, 15, 4), ways, strict=True):
        for estimator in private_estimators(Privacy(epsilon=50.0)):
            ranges = np.full(n_columns, LOW), np.full(n_columns, HIGH)
            is_profiled = isinstance(estimator, ClusterSettings)
            if way.get("besides") and not is_profiled:
                continue
            prepared = {} if isinstance(estimator, DescribeSettings) else way  # it is about rows as they are
            prepared = {**prepared, "profile": is_profiled}
            asked = recorded_run(estimator, blobs(300, n_columns), PreparationOptions(ranges=ranges, **prepared))
            name = f"{type(estimator).__name__} {estimator.method} {n_columns} {way.get('scale', 'none')}"
            name += " besides" if way.get("besides") else ""
            found.append(Recorded(name, n_columns, tuple(asked)))
    return tuple(found)


def questions(asked: Sequence[Request[Any]], table: Table) -> Iterator[tuple[Memory, PrivateRequest[Any]]]:
    """Every private question, once a site with this table has done what it was asked before."""
    memory = Memory()
    for request in asked:
        if request.remembered and type(request) in KEEPERS:
            KEEPERS[type(request)](memory.table or table, memory, request)
        elif isinstance(request, PrivateRequest):
            yield copy(memory), request  # as it is now


def sums_without_noise(asked: Sequence[Request[Any]], table: Table) -> list[list[Any]]:
    """The integers of every private answer, before noise."""
    return [exact_sums(memory, request) for memory, request in questions(asked, table)]


def contributions(memory: Memory, request: PrivateRequest[Any]) -> list[tuple[Contribution, ...]]:
    """What the rows of a site contribute to an answer, piece by piece."""
    with np.errstate(all="ignore"):
        return [CONTRIBUTIONS[type(request)](rows, memory, request) for rows in whole_rows(memory).pieces()]


def squared_length(request: PrivateRequest[Any], place: int, vector: Any) -> int:
    """Of integers that one array of an answer differs by; exact. Off the diagonal of a Gram each counts twice."""
    numbers = [int(number) ** 2 for number in np.ravel(vector)]
    if not request.layout.fields[place].spec.is_gram:
        return sum(numbers)
    size = int(np.sqrt(2 * len(numbers)))
    rows, columns = np.triu_indices(size)
    return sum(number * (1 if i == j else 2) for number, i, j in zip(numbers, rows, columns, strict=True))


def log_ratio_of(request: PrivateRequest[Any], reply: Any, without: Sequence[Any], with_: Sequence[Any]) -> float:
    """How much likelier one site's noisy answer is over the rows of ``with_`` than over those of ``without``."""
    ratio = 0.0
    for place, (seen, one, other) in enumerate(zip(reply.arrays(), without, with_, strict=True)):
        variance = np.full(seen.shape, float(request.share_variance(place)))
        if request.layout.fields[place].spec.is_gram:
            rows, columns = np.triu_indices(int(np.sqrt(2 * seen.size)))
            variance[rows != columns] = request.share_variance_of_pairs(place)
        ratio += float(((seen - (one + other) / 2.0) * (other - one) / variance).sum())
    return ratio
