"""Differential privacy of a run: what was asked for, how it is divided among releases, and what was spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.extents import between
from coterie.maths.accounting import LARGEST_DELTA, LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, mu_of, variance_for
from coterie.maths.thresholds import may_tolerate, most_tolerated
from coterie.messages.contributions import Noisy, PrivateRequest
from coterie.messages.verbs import Protocol, total
from coterie.parameters import Allowed, check_parameters, parameter

N = TypeVar("N", bound=Noisy)

DELTA = 1e-6
"""Where nobody chose another one."""
ROW = "row"
"""The unit that is a row."""
MOST_ROWS = 1000
"""The most rows of a unit that may count."""
WIDE_RING = 64
SURE = 2.0
"""A cluster is hardly noise alone where it has so many deviations of its size's noise."""
HIDDEN = (
    "The noise is as large as the clusters: their centers tell little. "
    "Use fewer clusters, a larger epsilon, or more rows."
)
CERTAIN = 12.0
"""So many deviations of noise are never exceeded (with a probability below 1e-32)."""
UNCERTAIN = 8
"""By so many bits a ring may be larger or smaller than for rows of the same number that spread otherwise: noise makes
the number of rows at most four times as large, and rows spread by a tenth to all of their ranges or so."""


@dataclass(frozen=True)
class Privacy:
    """Differential privacy for a run: whatever anybody computes from all that leaves, adding or removing one unit
    changes the probability of any outcome by at most a factor of ``exp(epsilon)``, and ``delta``."""

    epsilon: float = parameter(
        1.0, "How much the releases may depend on one unit.", Allowed(low=LEAST_EPSILON, high=LARGEST_EPSILON)
    )
    delta: float | None = parameter(
        None,
        "The probability with which epsilon need not hold; 1e-6 if None.",
        Allowed(low=LEAST_DELTA, high=LARGEST_DELTA, none=True),
    )
    unit: str = parameter("row", "What is protected: a row, or all rows with the same value in the column named.")
    tolerated: int = parameter(
        0,
        "Sites that may drop out, or collude with the server, without weakening the promise: each adds more noise.",
        Allowed(whole=True, low=0),
    )
    rows_per_unit: int = parameter(
        1,
        "How many rows of each unit count; a site leaves out the others, and noise is made for so many.",
        Allowed(whole=True, low=1, high=MOST_ROWS),
    )

    @classmethod
    def of(cls, value: Any) -> Privacy | None:
        """What a parameter holds: this class, its values by name, or as an order lists them."""
        if value is None or isinstance(value, cls):
            found = value
        elif isinstance(value, Mapping):
            known = {item.name for item in fields(cls)}
            if not value.keys() <= known:
                raise InputError(f"privacy has no {min(value.keys() - known)!r}; it has {', '.join(sorted(known))}.")
            found = cls(**value)
        elif isinstance(value, Sequence) and len(value) == len(fields(cls)) + 1 and value[0] == cls.__name__:
            found = cls(*value[1:])
        else:
            raise InputError(f"privacy={value!r} is no Privacy; write Privacy(epsilon=1.0).")
        if found is not None:
            check_parameters(found)
            _check_unit(found)
        return found

    @property
    def mu_squared(self) -> float:
        """What all releases together may give away of one row; of a unit's rows together as much as epsilon says."""
        return (mu_of(self.epsilon, self.delta or DELTA) / self.rows_per_unit) ** 2

    @property
    def unit_column(self) -> str | None:
        """The column that says whose row it is."""
        return None if self.unit == ROW else self.unit


def unit_words(unit: str, rows_per_unit: int) -> str:
    """What is protected, in words."""
    if unit == ROW:
        return "one row"
    counted = "1 counts" if rows_per_unit == 1 else f"{rows_per_unit} count"
    return f"all rows with one value in {unit!r} (of which at most {counted})"


def _check_unit(privacy: Privacy) -> None:
    if not isinstance(privacy.unit, str) or not privacy.unit:
        raise InputError(f"unit={privacy.unit!r}; it is 'row', or the name of a column that says whose row it is.")
    if privacy.unit == ROW and privacy.rows_per_unit > 1:
        raise InputError(
            f"rows_per_unit={privacy.rows_per_unit} needs unit, the column that says whose row it is; "
            "without it, leave rows_per_unit out."
        )


@dataclass(frozen=True)
class Release:
    """Noisy sums that left: what they are, and their share of what the run gave away."""

    what: str
    share: float


@dataclass(frozen=True)
class PrivacySpent:
    """What a run promised, and how it was divided."""

    epsilon: float
    delta: float
    unit: str
    tolerated: int
    sites: int
    releases: tuple[Release, ...]
    rows_per_unit: int = 1
    mean_size: float | None = None
    """Of the clusters, with noise; None where there are none."""
    size_deviation: float | None = None
    """Of the noise in each size of a cluster."""
    cost_deviation: float | None = None
    """Of the noise in the cost."""

    @property
    def hides_clusters(self) -> bool:
        """Whether noise is as large as the clusters, so that their centers tell little."""
        return None not in (self.mean_size, self.size_deviation) and self.mean_size < SURE * self.size_deviation  # type: ignore[operator]


@dataclass(frozen=True)
class Released:
    """An answer and, by array, the standard deviation of its noise."""

    reply: Any
    deviations: tuple[float, ...]


class Releases:
    """Divides what a run may give away among its releases."""

    def __init__(self, privacy: Privacy, n_sites: int) -> None:
        if privacy.tolerated >= n_sites:
            raise InputError(
                f"tolerated={privacy.tolerated} of {n_sites} sites; at least one must be left whose noise counts."
            )
        if not may_tolerate(n_sites, privacy.tolerated):
            raise InputError(
                f"tolerated={privacy.tolerated} of {n_sites} sites: two sums with the same noise could be unmasked. "
                f"Use at most {most_tolerated(n_sites)}, or {n_sites - 1}, with which each site's noise is enough."
            )
        self.privacy, self.n_sites = privacy, n_sites
        self._mu2 = privacy.mu_squared
        self._made: list[Release] = []
        self._asked: set[bytes] = set()
        self._scale = 1.0
        self.mean_size: float | None = None
        self.size_deviation: float | None = None
        self.cost_deviation: float | None = None
        self.most_rows = math.inf
        """More rows than there are, once that was released."""
        self.centers: Floats | None = None
        """Of the final clusters, in the whole numbers in which private questions see rows from then on."""

    @property
    def spent(self) -> PrivacySpent:
        """What was promised and how it was divided."""
        p = self.privacy
        made = self.n_sites, tuple(self._made)
        noise = self.mean_size, self.size_deviation, self.cost_deviation
        return PrivacySpent(p.epsilon, p.delta or DELTA, p.unit, p.tolerated, *made, p.rows_per_unit, *noise)

    def divide(self, share: float) -> None:
        """What follows divides this share of the run."""
        self._scale = share

    def keep(self, share: float) -> None:
        """What follows divides this share of what it otherwise would."""
        self._scale *= share

    def mu_squared(self, share: float) -> float:
        """What a share of the run may give away of one row."""
        return self._mu2 * share * self._scale

    def ask(
        self, kind: type[PrivateRequest[N]], what: str, share: float, parts: Sequence[float], *values: Any
    ) -> Protocol[Released]:
        """Ask for noisy sums with a share of the run, of which each array of the answer has a part."""
        blank = kind(self.n_sites, self.privacy.tolerated, WIDE_RING, np.full(len(parts), 64.0), *values)
        given = [self.mu_squared(share) * part for part in parts]
        variances = np.array([variance_for(norm, mu2) for norm, mu2 in zip(blank.norms, given, strict=True)])
        request = self._unlike_others(replace(blank, variances=variances, bits=self._bits(blank.norms, variances)))
        reply = yield from total(request)
        made = [request.share_variance(place) * self.n_sites for place in range(len(parts))]
        self._made.append(Release(what, share * self._scale))
        return Released(reply, tuple(map(math.sqrt, made)))

    def _unlike_others(self, request: PrivateRequest[N]) -> PrivateRequest[N]:
        """The request, with a little more noise where the run asked the same before: noise is bound to its bytes."""
        while request.identity in self._asked:
            request = replace(request, variances=np.nextafter(request.variances, np.inf))
        self._asked.add(request.identity)
        return request

    def _bits(self, norms: Sequence[float], variances: Floats) -> int:
        """Of a ring in which sums of all rows, with noise, do not wrap."""
        if not math.isfinite(self.most_rows):
            return WIDE_RING
        spread = 1 + self.n_sites / (self.n_sites - self.privacy.tolerated)
        largest = max(
            norm * self.most_rows + 2 * CERTAIN * math.sqrt(variance * spread)
            for norm, variance in zip(norms, variances, strict=True)
        )
        bits = min(WIDE_RING, max(16, math.ceil(math.log2(largest + 64)) + 2))
        return between(bits, max(16, bits - UNCERTAIN), min(WIDE_RING, bits + UNCERTAIN))
