"""What a run takes of what sites' policies allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coterie.maths.accounting import epsilon_of
from coterie.methods.method import Settings
from coterie.methods.shared.privacy import Privacy
from coterie.planning.amounts import Amount
from coterie.sites.policy import Policy
from coterie.sites.views.units import taken


@dataclass(frozen=True)
class BudgetUse:
    """What one site's policy allows, and what of it the run takes; what earlier runs took only the site knows."""

    site: str
    of: Literal["epsilon", "runs", "questions"]
    takes: float
    """At most; privacy at the budget's delta."""
    allowed: float
    delta: float | None = None

    @property
    def is_enough(self) -> bool:
        """Whether the whole budget is as much."""
        return self.takes <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "is_enough": self.is_enough}


def budget_uses(asked: Settings, rules: Mapping[str, Policy], questions: Mapping[str, Amount]) -> Iterator[BudgetUse]:
    """By site and budget; nothing where a policy has none."""
    privacy = Privacy.of(asked.privacy)
    for site, policy in rules.items():
        if policy.max_runs is not None:
            yield BudgetUse(site, "runs", 1, policy.max_runs)
        if policy.max_questions is not None:
            own = questions[site]
            most = own.estimate if own.most is None else own.most
            yield BudgetUse(site, "questions", most, policy.max_questions)
        budget = policy.privacy
        if privacy is not None and budget is not None and policy.protection_of(asked.method) != "none":
            takes = epsilon_of(taken(privacy, budget) ** 0.5, budget.delta)
            yield BudgetUse(site, "epsilon", takes, budget.epsilon, budget.delta)
