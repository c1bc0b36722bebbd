"""What a site's table has given away under differential privacy, and what is left of its budget."""

from __future__ import annotations

from typing import NamedTuple

from coterie.errors import NotOrdered
from coterie.maths.accounting import ROUNDING, epsilon_of, mu_of
from coterie.messages.refusals import Refusal
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import PrivacyRules
from coterie.sites.refused import Refused


class Standing(NamedTuple):
    """What of a budget is spent and left, as parameters of one Gaussian release and as epsilons."""

    epsilon: float
    delta: float
    spent: float
    """Epsilon of all that was charged, at the budget's delta."""
    left: float
    """The largest epsilon that one more run can have at the budget's delta."""
    mu_squared: float
    """What was charged."""


class Budget:
    """The budget of a table, by its configured name, over all runs and analysts of the site's ledger."""

    def __init__(self, rules: PrivacyRules | None, ledger: SiteLedger, table: str) -> None:
        self._rules, self._ledger, self._table = rules, ledger, table
        self._most = 0.0 if rules is None else mu_of(rules.epsilon, rules.delta) ** 2

    @property
    def is_there(self) -> bool:
        """Whether the site has a budget at all."""
        return self._rules is not None

    def allows(self, mu_squared: float) -> bool:
        """Whether so much is left."""
        return self._ledger.charged(self._table) + mu_squared <= self._most * (1 + ROUNDING)

    def charge(self, run: bytes, question: bytes, mu_squared: float, numbers: int, *, most: float) -> None:
        """Take what a question costs, once, before its answer leaves; ``Refused`` where it is not left.

        ``most`` is what the run's order asks for; a run takes no more, whatever is left."""
        if self._ledger.was_charged(run, question):
            return
        if self._ledger.charged_to(run) + mu_squared > most * (1 + ROUNDING):
            raise NotOrdered(f"{mu_squared:.6g} is more than is left of what the run's order asks for, {most:.6g}")
        if not self.allows(mu_squared):
            raise Refused(Refusal.BUDGET_SPENT, f"{mu_squared:.6g} is more than is left of the budget")
        self._ledger.charge(run, question, self._table, mu_squared, numbers)

    def spent_by(self, run: bytes) -> tuple[float, int]:
        """Epsilon of what a run was charged, at the budget's delta; and how often the budget was reset before."""
        if self._rules is None:
            return 0.0, 0
        mu_squared = self._ledger.charged_to(run)
        return epsilon_of(mu_squared**0.5, self._rules.delta), self._ledger.resets(self._table)

    def standing(self) -> Standing:
        """What is spent and left."""
        assert self._rules is not None
        spent = self._ledger.charged(self._table)
        rest = max(0.0, self._most - spent)
        epsilon, delta = self._rules.epsilon, self._rules.delta
        return Standing(epsilon, delta, epsilon_of(spent**0.5, delta), epsilon_of(rest**0.5, delta), spent)
