"""Which orders a site accepts; without one an installed site answers nothing of a run."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from coterie.errors import NotOrdered
from coterie.messages.codec import Envelope
from coterie.messages.contributions import PrivateRequest
from coterie.messages.identity import Trust
from coterie.messages.refusals import Refusal
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.privacy import Privacy
from coterie.sites.approvals import Approvals, Decision
from coterie.sites.budget import Budget
from coterie.sites.ledger import MAX_RUNS, SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.refused import Refused
from coterie.sites.views.units import UnitRule, unit_rule


class Orders:
    """The orders of a site's runs, kept in its ledger.

    With ``approvals`` a run needs an order, and a data officer decides about those that the policy says.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: SiteLedger,
        table: str,
        approvals: Approvals | None,
        unit_column: str | None = None,
    ) -> None:
        """``unit_column`` says whose row each row of the table is, where the table was opened with one."""
        self._policy, self._ledger, self._table, self._approvals = policy, ledger, table, approvals
        self._unit_column = unit_column
        self._accepted: OrderedDict[bytes, tuple[str, Privacy | None]] = OrderedDict()
        """The method that was ordered, and with what differential privacy, by run."""
        self.budget = Budget(policy.privacy, ledger, table)

    @property
    def are_needed(self) -> bool:
        """Whether a run without an order is answered nothing."""
        return self._approvals is not None

    def method_of(self, run: bytes) -> str | None:
        """The method of the order that was accepted for a run."""
        return self._of(run)[0]

    def is_private(self, run: bytes) -> bool:
        """Whether the order that was accepted for a run is a differentially private one."""
        return self._of(run)[1] is not None

    def unit_rule(self, run: bytes) -> UnitRule | None:
        """How many rows of each unit count in a private run; None in others."""
        privacy = self._of(run)[1]
        return None if privacy is None else unit_rule(privacy, self._policy.privacy)

    def charge(self, run: bytes, request: PrivateRequest[Any]) -> None:
        """Take what a private question costs from the budget, once; a run takes no more than its order asks for."""
        privacy = self._of(run)[1]
        assert privacy is not None
        if request.tolerated != privacy.tolerated:
            raise NotOrdered(f"noise for {request.tolerated} sites missing, and the order says {privacy.tolerated}")
        rows = unit_rule(privacy, self._policy.privacy).charged ** 2
        cost, most = request.mu_squared * rows, privacy.mu_squared * rows
        self.budget.charge(run, request.identity, cost, request.layout.numbers, most=most)

    def _of(self, run: bytes) -> tuple[str | None, Privacy | None]:
        if run not in self._accepted:
            kept = self._ledger.notes(run, "order")
            if not kept:
                return None, None
            order = SignedOrder.from_bytes(kept[0]).read()
            self._accepted[run] = order.method, order.privacy
            if len(self._accepted) > MAX_RUNS:
                self._accepted.popitem(last=False)
        return self._accepted[run]

    def accept(
        self,
        envelope: Envelope,
        raw: bytes,
        trust: Trust,
        check_table: Callable[[bool], None],
        identifying: Callable[[Collection[str]], Collection[str]],
    ) -> Order:
        """The order of a run: one for it, signed by a certified analyst, within the site's rules.

        ``check_table`` is told whether the order is a private one. ``identifying`` says which of some columns
        identify rows: an order to describe clusters by them is refused."""
        signed = SignedOrder.from_bytes(raw)
        order = signed.checked(trust)
        if (order.identity, order.method) != (envelope.run, envelope.method):
            raise NotOrdered(f"the order is for {order.method} in another run, or for another method")
        before = self._ledger.notes(envelope.run, "order")
        if before and before[0] != raw:
            raise NotOrdered("the run was ordered to do something else before")
        if not before:
            self._approve(signed, order)
        check_table(order.privacy is not None)
        if order.besides and not before and self._policy.protection_of(order.method) != "noise":
            described = identifying([name for name, _ in order.besides])
            if described:
                raise Refused(Refusal.IDENTIFIES, f"{', '.join(sorted(described))}: each row has a number of its own")
        if not before:
            self._ledger.begin(envelope.run, raw, signed.analyst, self._table)
        return order

    def _approve(self, signed: SignedOrder, order: Order) -> None:
        """Refuse an order that the rules forbid, or that a data officer has not approved."""
        begun, charged = self._ledger.n_runs(signed.analyst, self._table), self._ledger.charged(self._table)
        check_rules(order, self._policy, begun=begun, charged=charged, unit_column=self._unit_column)
        if self._approvals is None:  # one owner plays all sites, and gave the order
            return
        decision = self._approvals.decision(signed, order, self._policy.approval)
        if decision is not Decision.APPROVED:
            is_named, waits = self._policy.name_decisions, decision is Decision.WAITING
            codes = (Refusal.WAITING, Refusal.WAITING_HERE) if waits else (Refusal.DECLINED, Refusal.DECLINED_HERE)
            raise Refused(codes[is_named], f"the order {order.run[:8]} of {signed.analyst}: {decision}")


def check_rules(order: Order, policy: Policy, *, begun: int, charged: float, unit_column: str | None) -> None:
    """Refuse an order that the rules forbid, whatever a data officer decides.

    ``begun`` is how many runs its analyst has begun over the table, ``charged`` what the table's budget has given,
    and ``unit_column`` the column with which the table was opened that says whose row each is."""
    wrong = order.unsupported()
    if wrong:
        raise Refused(Refusal.OTHER_VERSIONS, "; ".join(wrong))
    _check_privacy(order, policy, charged, unit_column)
    forbidden = policy.forbidden(order)
    if forbidden:
        raise Refused(Refusal.CHOICE_FORBIDDEN, f"orders_may_choose does not allow {', '.join(forbidden)}")
    if policy.max_runs is not None and begun >= policy.max_runs:
        raise Refused(Refusal.TOO_MANY_QUESTIONS, f"its analyst had {policy.max_runs} runs (max_runs)")


def _check_privacy(order: Order, policy: Policy, charged: float, unit_column: str | None) -> None:
    """Refuse an order that noise cannot protect where it must, or for which too little of the budget is left."""
    protection, privacy = policy.protection_of(order.method), order.privacy
    rule = None if privacy is None else unit_rule(privacy, policy.privacy)
    if rule is not None and rule.column not in (None, unit_column):
        raise Refused(Refusal.NO_UNIT, f"the table was opened without the unit's column {rule.column!r}")
    if protection == "none" or (privacy is None and protection == "groups"):
        return
    if privacy is None or rule is None:
        raise Refused(Refusal.NOT_PRIVATE, "only differentially private orders are answered here")
    if policy.privacy is None:
        raise Refused(Refusal.NO_BUDGET, "the site's policy has no [privacy] section")
    if not policy.privacy.affords(charged + privacy.mu_squared * rule.charged**2):
        raise Refused(Refusal.BUDGET_SPENT, f"epsilon = {privacy.epsilon:g} is more than is left")


def runs_by_analyst(lines: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many runs each analyst began over each table, as a site's ledger has it."""
    orders = (line for line in lines if line["event"] == "note" and line["what"] == "order" and "analyst" in line)
    return Counter((line["analyst"], line["table"]) for line in orders)
