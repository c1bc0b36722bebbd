"""What a plan says: of each method, and which one it recommends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coterie.planning.amounts import Amount
from coterie.planning.budgets import BudgetUse
from coterie.planning.speeds import Estimates


@dataclass(frozen=True)
class SeenByServer:
    """One kind of answer, and what the server sees of it."""

    asked: str
    """The kind of question."""
    doing: str
    content: str
    seen: Literal["single", "summed", "masked"]
    """``masked``: only the sum over sites."""


@dataclass(frozen=True)
class SitePlan:
    """What a run takes at one site."""

    bytes_up: Amount
    bytes_down: Amount
    questions: Amount


@dataclass(frozen=True)
class MethodPlan:
    """What a run of one method would take and disclose."""

    method: str
    title: str
    estimator: str
    bytes_up: Amount
    bytes_down: Amount
    values_up: Amount
    rounds: Amount
    """Of the algorithm."""
    rounds_masking: Amount
    """Besides, for keys and masks, and for the sites' statements at the end."""
    exchanges: Amount
    """Rounds of both kinds."""
    sites: Mapping[str, SitePlan]
    is_masked: bool
    is_verified: bool
    """Whether sites check every question against the order."""
    is_private: bool
    """Whether it is differentially private."""
    seen: tuple[SeenByServer, ...]
    """Every kind of answer computed from rows that the run may ask for."""
    discloses: str
    """The same in words, for the method."""
    budgets: tuple[BudgetUse, ...]
    estimates: Mapping[str, Estimates]
    """Seconds and memory, by engine."""
    largest_message: Amount

    @property
    def is_exact(self) -> bool:
        """Whether rows decide nothing of it."""
        return all(amount.is_exact for amount in (self.bytes_up, self.bytes_down, self.rounds, self.rounds_masking))

    @property
    def shows_sites(self) -> bool:
        """Whether the server sees what single sites answer, beyond what their columns are called."""
        return any(seen.seen != "masked" for seen in self.seen)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        amounts = ("bytes_up", "bytes_down", "values_up", "rounds", "rounds_masking", "exchanges", "largest_message")
        facts = (
            "method",
            "title",
            "estimator",
            "is_masked",
            "is_verified",
            "is_private",
            "is_exact",
            "shows_sites",
            "discloses",
        )
        return {
            **{name: getattr(self, name) for name in facts},
            **{name: getattr(self, name).to_dict() for name in amounts},
            "sites": {
                name: {of: amount.to_dict() for of, amount in vars(site).items()} for name, site in self.sites.items()
            },
            "seen": [vars(seen) for seen in self.seen],
            "budgets": [use.to_dict() for use in self.budgets],
            "estimates": {engine: estimates.to_dict() for engine, estimates in self.estimates.items()},
        }


@dataclass(frozen=True)
class NotPlanned:
    """A method that cannot be run so, and why."""

    method: str
    why: str


@dataclass(frozen=True)
class Recommendation:
    """Which of several methods, and what speaks for it."""

    method: str
    hides_sites: bool
    """Whether the server sees nothing but sums over sites, where another method shows it more."""
    use: str
    """When to choose it, where the list of methods recommends it."""
    is_smallest: bool
    """Whether it is likely to send the fewest bytes of all that were planned."""


@dataclass(frozen=True)
class Plan:
    """What runs of one or several methods would take and disclose."""

    rows: Mapping[str, int]
    """By site."""
    columns: Mapping[str, int]
    """By site."""
    methods: tuple[MethodPlan, ...]
    not_planned: tuple[NotPlanned, ...]
    recommendation: Recommendation | None
    """None where nothing can be planned."""
    machine: str
    """That constants of time and memory were measured on."""

    @property
    def bytes_of_rows(self) -> int:
        """What sending all rows would take: eight bytes a value."""
        return sum(8 * self.rows[site] * self.columns[site] for site in self.rows)

    def __getitem__(self, method: str) -> MethodPlan:
        return {plan.method: plan for plan in self.methods}[method]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sites": {site: {"rows": self.rows[site], "columns": self.columns[site]} for site in self.rows},
            "bytes_of_rows": self.bytes_of_rows,
            "methods": [plan.to_dict() for plan in self.methods],
            "not_planned": [vars(refused) for refused in self.not_planned],
            "recommendation": None if self.recommendation is None else vars(self.recommendation),
            "machine": self.machine,
        }


def recommended(plans: tuple[MethodPlan, ...], uses: Mapping[str, str]) -> Recommendation | None:
    """The method that shows the server least, then one that is recommended in general, then one of few bytes."""
    if not plans:
        return None

    def rank(plan: MethodPlan) -> tuple[bool, bool, bool, int]:
        enough = all(use.is_enough for use in plan.budgets)
        return not enough, plan.shows_sites, not uses.get(plan.method), plan.bytes_up.estimate

    best = min(plans, key=rank)
    return Recommendation(
        best.method,
        not best.shows_sites and any(plan.shows_sites for plan in plans),
        uses.get(best.method, ""),
        best.bytes_up.estimate == min(plan.bytes_up.estimate for plan in plans),
    )
