"""A site's privacy budget: ``site budget``, ``site budget reset``; and what an order would take of it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.commands import ShowByDefault
from coterie.cli.options import site
from coterie.cli.terminal import print_json, say, show_table, tell
from coterie.engines.nvflare.kits import kit_of
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.methods.shared.privacy import Privacy
    from coterie.sites.budget import Account
    from coterie.sites.installed import InstalledSite
    from coterie.sites.policy import Policy, PrivacyRules

budget = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="What is spent and left of this site's privacy budget (coterie site budget --kit KIT), and begin it anew.",
)
site.add_typer(budget, name="budget")


@budget.command("show")
def budget_show(kit: opt.Kit, as_json: opt.AsJson = False) -> None:
    """Show the budget of the site's policy, what each run spent of it, and what is left.

    Example: coterie site budget --kit north
    """
    installed, rules = _site_with_budget(kit)
    facts = budget_facts(rules, installed.account())
    if as_json:
        print_json(facts)
        return
    rows = [[run["analyst"], run["run"], date_text(run["at"]), f"{run['epsilon']:.3g}"] for run in facts["runs"]]
    if rows:
        show_table("Spent of the privacy budget", ["analyst", "run", "date", "epsilon"], rows)
    for sentence in budget_sentences(facts):
        say(sentence)


@budget.command("reset")
def budget_reset(
    kit: opt.Kit,
    why: Annotated[str, typer.Option(help="Why, for the ledger: such as 'a new intake of patients since May'.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Begin the budget anew, as if nothing had been spent. This is the data officer's decision.

    What was released stays known. Together with later runs it tells more of a row than epsilon says. The ledger keeps
    the reason, and every later certificate says how often the budget was begun anew.

    Example: coterie site budget reset --kit north --why "the table holds other patients now"
    """
    installed, rules = _site_with_budget(kit)
    if not why.strip():
        raise InputError("--why is empty; say why the budget begins anew, for the ledger.")
    facts = budget_facts(rules, installed.account())
    if not yes:
        typer.confirm(
            f"Epsilon = {facts['spent']:.3g} of {rules.epsilon:g} is spent. What was released stays known, and adds "
            "up with what later runs release. Begin the budget anew?",
            abort=True,
        )
    installed.reset_budget(kit_of(kit, "site").name, why.strip())
    times = len(facts["resets"]) + 1
    tell(
        f"Epsilon = {rules.epsilon:g} is left. The ledger keeps why, and certificates from now on say that the "
        f"budget was begun anew ({times} so far)."
    )


def _site_with_budget(kit: Path) -> tuple[InstalledSite, PrivacyRules]:
    from coterie.sites.installed import InstalledSite

    installed = InstalledSite(kit_of(kit, "site").folder)
    held = installed.holdings()
    rules = held.rules().privacy
    if rules is None:
        raise InputError(
            f"the policy {held.policy} has no privacy budget; a section [privacy] with epsilon = 4.0, say, gives it "
            "one."
        )
    return installed, rules


def budget_facts(rules: PrivacyRules, account: Account) -> dict[str, Any]:
    """A budget as plain values."""
    from coterie.maths.accounting import epsilon_of
    from coterie.sites.budget import Standing

    def epsilon(mu_squared: float) -> float:
        return epsilon_of(mu_squared**0.5, rules.delta)

    standing = Standing.of(rules, account.mu_squared)
    runs = [
        {"analyst": run.analyst, "run": run.run[:8], "at": run.at, "epsilon": epsilon(run.mu_squared)}
        for run in account.runs.values()
    ]
    resets = [{"at": reset.at, "why": reset.why, "spent": epsilon(reset.mu_squared)} for reset in account.resets]
    return {**asdict(rules), "spent": standing.spent, "left": standing.left, "runs": runs, "resets": resets}


def budget_sentences(facts: dict[str, Any]) -> list[str]:
    """What is spent and left."""
    from coterie.methods.shared.privacy import unit_words

    unit = unit_words(facts["unit"], facts["rows_per_unit"])
    sentences = [
        f"The budget is epsilon = {facts['epsilon']:g} at delta = {facts['delta']:g} for {unit}, over all runs "
        f"and analysts. Spent: {facts['spent']:.3g}. The largest run that is left: {facts['left']:.3g}."
    ]
    if len(facts["runs"]) > 1:
        sentences.append(
            "Epsilons do not add up one by one: the noise of several runs together hides more than the sum of their "
            "epsilons says."
        )
    sentences += [
        f"{date_text(reset['at'])}: the data officer began the budget anew, of which {reset['spent']:.3g} was spent: "
        f"{reset['why']}"
        for reset in facts["resets"]
    ]
    return sentences


def taken_facts(privacy: Privacy | None, policy: Policy, account: Account | None = None) -> dict[str, Any] | None:
    """What a private order would take of a budget and what is left before and after it; None without either."""
    from coterie.maths.accounting import epsilon_of
    from coterie.sites.budget import Standing
    from coterie.sites.views.units import taken

    rules = policy.privacy
    if privacy is None or rules is None:
        return None
    takes = taken(privacy, rules)
    standing = Standing.of(rules, 0.0 if account is None else account.mu_squared, takes)
    facts = {"epsilon": rules.epsilon, "delta": rules.delta, "takes": epsilon_of(takes**0.5, rules.delta)}
    return {**facts, "left": standing.left, "left_after": standing.after}


def taken_sentence(facts: dict[str, Any], *, is_fresh: bool = False) -> str:
    """What a private order would take of a budget, in words."""
    budget = f"{facts['epsilon']:g} (delta = {facts['delta']:g})"
    start = f"It would take epsilon = {facts['takes']:.3g} of a budget of {budget}"
    left = "of which nothing is taken yet" if is_fresh else f"of which {facts['left']:.3g} is left"
    if facts["left_after"] is None:
        return f"{start}, {left}: it would be refused."
    return f"{start}, {left}; after it, {facts['left_after']:.3g} would be left."


def date_text(at: float) -> str:
    """A time in seconds since 1970 as a person reads it."""
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"
