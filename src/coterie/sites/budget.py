"""What a site's table has given away under differential privacy, and what is left of its budget."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coterie.errors import NotOrdered
from coterie.maths.accounting import ROUNDING, epsilon_of
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
    after: float | None = None
    """What is left after another run; None where it takes too much, or where there is none."""

    @classmethod
    def of(cls, rules: PrivacyRules, spent: float, takes: float | None = None) -> Standing:
        """Of what was charged, and perhaps of what another run takes."""
        most, delta = rules.mu_squared, rules.delta
        left = epsilon_of(max(0.0, most - spent) ** 0.5, delta)
        after = None
        if takes is not None and spent + takes <= most * (1 + ROUNDING):
            after = epsilon_of(max(0.0, most - spent - takes) ** 0.5, delta)
        return cls(rules.epsilon, delta, epsilon_of(spent**0.5, delta), left, spent, after)


class Charged(NamedTuple):
    """What one run was charged."""

    run: str
    analyst: str
    at: float
    """When it was charged first, in seconds since 1970."""
    mu_squared: float


class Reset(NamedTuple):
    """A budget that the data officer began anew."""

    at: float
    why: str
    mu_squared: float
    """What had been charged."""


@dataclass
class Account:
    """What a ledger says of a table's budget: runs since it last began anew, and how often that was."""

    runs: dict[str, Charged] = field(default_factory=dict)
    resets: list[Reset] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]], table: str) -> Account:
        """From the lines of a site's ledger."""
        account = cls()
        for line in lines:
            if line["event"] == "charge" and line["table"] == table:
                before = account.runs.get(line["run"], Charged(line["run"], line["analyst"], line["time"], 0.0))
                charged = before._replace(mu_squared=before.mu_squared + line["mu_squared"])
                account.runs[line["run"]] = charged
            elif line["event"] == "budget" and line["table"] == table:
                account.resets.append(Reset(line["time"], line["why"], line["spent"]))
                account.runs.clear()
        return account

    @property
    def mu_squared(self) -> float:
        """What was charged since."""
        return sum(run.mu_squared for run in self.runs.values())


def charges_in(path: Path) -> dict[str, float]:
    """What was charged by table, in the lines of a broken ledger that can still be read; no reset is believed."""
    charged: dict[str, float] = {}
    for text in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(msgspec.DecodeError):
            line = _CHARGE.decode(text)
            charged[line.table] = charged.get(line.table, 0.0) + max(line.mu_squared, 0.0)
    return charged


class _Charge(msgspec.Struct, tag_field="event", tag="charge"):
    table: str
    mu_squared: float


_CHARGE = msgspec.json.Decoder(_Charge)


class Budget:
    """The budget of a table, by its configured name, over all runs and analysts of the site's ledger."""

    def __init__(self, rules: PrivacyRules | None, ledger: SiteLedger, table: str) -> None:
        self._rules, self._ledger, self._table = rules, ledger, table
        self._most = 0.0 if rules is None else rules.mu_squared

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

    def spent_by(self, run: bytes) -> tuple[float, float, int]:
        """Epsilon of what a run was charged, and the budget's delta; how often the budget was begun anew before."""
        if self._rules is None:
            return 0.0, 0.0, 0
        delta = self._rules.delta
        return epsilon_of(self._ledger.charged_to(run) ** 0.5, delta), delta, self._ledger.resets(self._table)

    def standing(self) -> Standing:
        """What is spent and left."""
        assert self._rules is not None
        return Standing.of(self._rules, self._ledger.charged(self._table))
