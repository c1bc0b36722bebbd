"""Orders that wait for this site's data officer: ``site pending``, ``show``, ``approve``, ``refuse``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from coterie.cli import options as opt
from coterie.cli.budgets import date_text, taken_facts, taken_sentence
from coterie.cli.options import site
from coterie.cli.previews import played, show_answers
from coterie.cli.terminal import print_json, say, show_table, tell
from coterie.engines.nvflare.kits import kit_of
from coterie.errors import CoterieError
from coterie.messages.refusals import Refusal
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.methods.order import Order
    from coterie.sites.approvals import Decision, Kept
    from coterie.sites.budget import Account
    from coterie.sites.installed import Holdings, InstalledSite
    from coterie.sites.policy import Policy

Id = Annotated[str, typer.Argument(metavar="ID", help="The first letters of the order's ID.")]
ShownId = Annotated[
    str,
    typer.Argument(metavar="[ID]", help="The first letters of the order's ID (default: the only one that waits)."),
]
All = Annotated[bool, typer.Option("--all", help="Also list orders that were approved or declined.")]


def _installed(kit: Path) -> InstalledSite:
    from coterie.sites.installed import InstalledSite

    return InstalledSite(kit_of(kit, "site").folder)


@site.command("pending")
def site_pending(kit: opt.Kit, everything: All = False, as_json: opt.AsJson = False) -> None:
    """List the orders that wait for the data officer's approval."""
    from coterie.sites.approvals import Decision

    installed = _installed(kit)
    orders = [kept for kept in installed.approvals.all() if everything or kept.decision is Decision.WAITING]
    are_private = any(kept.order.privacy is not None for kept in orders)
    rules, account = (installed.holdings().rules(), installed.account()) if are_private else (None, None)
    budgets = [order_budget(kept, rules, account) for kept in orders]
    if as_json:
        print_json([{**order_facts(kept), "budget": budget} for kept, budget in zip(orders, budgets, strict=True)])
        return
    if not orders:
        tell("No order waits.")
        return
    names, heads = ("id", "analyst", "method", "came", "decision"), ["ID", "analyst", "method", "came", "decision"]
    rows = [[facts[name] for name in names] for facts in map(order_facts, orders)]
    if any(budgets):
        heads += ["takes of the budget", "left after it"]
        rows = [[*row, *_cells(budget)] for row, budget in zip(rows, budgets, strict=True)]
    show_table("Orders", heads, rows)
    tell(f"`coterie site show ID --kit {kit}` shows what an order asks for and what would leave.")


@site.command("show")
def site_show(kit: opt.Kit, order: ShownId = "", as_json: opt.AsJson = False) -> None:
    """Show what an order asks for, what would leave this site, and what the server would see of it.

    The method runs here, on this site's data alone and under its policy. Nothing is sent.
    """
    installed = _installed(kit)
    kept = installed.approvals.find(order) if order else installed.approvals.only_waiting()
    held, lines = installed.holdings(), installed.lines()
    rules = held.rules()
    taken, budget = runs_sentence(kept, held, lines), order_budget(kept, rules, installed.account())
    shown = previewed(held, kept.order, rules)
    if as_json:
        facts = {**order_facts(kept), **asked_facts(kept.order), "runs": taken, "budget": budget}
        print_json({**facts, "answers": shown.answers, "problem": shown.mismatch or shown.problem})
        return
    show_table(f"Order {kept.order.run[:8]}", ["", "value"], asked_rows(kept))
    say(taken)
    if budget is not None:
        say(taken_sentence(budget))
    if refused := refusal_sentence(installed.refusal_of(kept, rules, lines), kept):
        say(refused)
    if shown.mismatch or shown.problem:
        say(f"What would leave cannot be shown: {shown.mismatch or shown.problem}")
    else:
        show_answers("What this site would send", shown.answers)


@site.command("approve")
def site_approve(order: Id, kit: opt.Kit) -> None:
    """Approve an order. A running site notices this; a decision cannot be changed."""
    from coterie.sites.approvals import Decision

    _decide(kit, order, Decision.APPROVED)


@site.command("refuse")
def site_refuse(order: Id, kit: opt.Kit) -> None:
    """Decline an order: this site will not answer it. A decision cannot be changed."""
    from coterie.sites.approvals import Decision

    _decide(kit, order, Decision.DECLINED)


def _decide(kit: Path, order: str, decision: Decision) -> None:
    kept = _installed(kit).decide(order, decision)
    tell(f"{decision.capitalize()}: order {kept.order.run[:8]} of {kept.signed.analyst}, {kept.order.method}.")


def order_budget(kept: Kept, rules: Policy | None, account: Account | None) -> dict[str, Any] | None:
    """What a private order that waits would take of the site's budget, where it has one."""
    from coterie.sites.approvals import Decision

    privacy = kept.order.privacy
    if privacy is None or rules is None or kept.decision is not Decision.WAITING:
        return None
    return taken_facts(privacy, rules, account)


def _cells(budget: dict[str, Any] | None) -> list[str]:
    if budget is None:
        return ["nothing", ""]
    after = budget["left_after"]
    return [f"epsilon {budget['takes']:.3g}", "too little is left" if after is None else f"epsilon {after:.3g}"]


def order_facts(kept: Kept) -> dict[str, str]:
    """An order in a list."""
    return {
        "id": kept.order.run[:8],
        "analyst": kept.signed.analyst,
        "method": kept.order.method,
        "came": date_text(kept.came),
        "decision": kept.decision,
    }


def asked_facts(order: Order) -> dict[str, Any]:
    """What an order asks for."""
    from coterie.methods.shared.privacy import DELTA
    from coterie.parameters import changed

    privacy = order.privacy
    parameters = {**order.parameters, **({} if privacy is None else {"privacy": None})}
    return {
        "parameters": changed(order.kind, parameters),
        "privacy": None if privacy is None else {**asdict(privacy), "delta": privacy.delta or DELTA},
        "chooses": order.chosen(),
        "columns": [name for name, _ in order.columns] or "each site's own",
        "describes clusters": "yes" if order.profile else "no",
        "by further columns": [name for name, _ in order.besides],
        "scale": order.scale,
        "missing": order.missing,
        "ranges": order.ranges,
    }


def asked_rows(kept: Kept) -> list[list[str]]:
    """An order and what it asks for, as a person reads it."""
    asked = {name: _words(value) for name, value in asked_facts(kept.order).items()}
    return [[name, value] for name, value in {**order_facts(kept), **asked}.items()]


def _words(value: Any) -> str:
    """A value of an order as a person reads it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={given}" for name, given in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


class Preview(NamedTuple):
    """What would leave for an order, or why it cannot be shown."""

    answers: list[dict[str, Any]]
    mismatch: str = ""
    """Which columns the order is for, and which others this site holds."""
    problem: str = ""
    """The text of an error, which may quote the table: for a terminal of the data officer only."""


def previewed(held: Holdings, order: Order, rules: Policy) -> Preview:
    """What would leave of the table that a site holds, under its rules."""
    from coterie.estimators.registry import estimator_of

    table = held.table()
    columns, wanted = [(column.name, column.kind) for column in table.columns], [*order.columns, *order.besides]
    if not set(wanted) <= set(columns):
        mismatch = f"the order is for the columns {_names(wanted)}; this site holds {_names(columns)}."
        return Preview([], mismatch)
    try:
        chosen = [name for name, _ in order.columns] or None
        return Preview(played(estimator_of(order, 0), {"site": table}, order.options(), rules, chosen))
    except (CoterieError, TypeError, ValueError) as problem:
        return Preview([], problem=str(problem))


def _names(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in columns)


def runs_sentence(kept: Kept, held: Holdings, lines: Iterable[Mapping[str, Any]]) -> str:
    """What an order takes of the runs of its analyst, by the lines of the site's ledger."""
    from coterie.sites.orders import runs_by_analyst

    began, allowed = runs_by_analyst(lines)[kept.signed.analyst, held.table_name], held.rules().max_runs
    most = "there is no limit" if allowed is None else f"{allowed} are allowed (max_runs)"
    return (
        f"{kept.signed.analyst} has begun {count_of(began, 'run')} over this table; {most}. This order is one more."
    )


def refusal_sentence(refusal: Refusal | None, kept: Kept) -> str:
    """Why the site would refuse an order today, approved or not; empty where it would not."""
    if refusal is None:
        return ""
    if refusal is Refusal.UNTRUSTED:
        return (
            f"The order has expired: the certificate of {kept.signed.analyst} has ended or was revoked. It cannot be "
            "approved any more."
        )
    return f"Even approved, this site would refuse the order today: {refusal.sentence}."
