"""Federations: ``server``, ``site start|status|acknowledge|regroup``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.budgets import budget_facts, budget_sentences
from coterie.cli.options import server, site
from coterie.cli.remote_jobs import check_installed
from coterie.cli.site_ledgers import groups_sentences
from coterie.cli.terminal import grouping_bar, print_json, show_table, tell
from coterie.engines.nvflare.kits import Kit, kit_of
from coterie.engines.nvflare.processes import find_running, run_here
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.sites.installed import InstalledSite


@server.command("start")
def server_start(kit: opt.Kit) -> None:
    """Start the server in the foreground; Ctrl-C stops it. docs/operations.md has a systemd unit."""
    check_installed()
    run_here(kit_of(kit, "server"))


@server.command("status")
def server_status(kit: opt.Kit, as_json: opt.AsJson = False) -> None:
    """Show whether the server runs on this machine, and which runs can be resumed."""
    check_installed()
    own_kit = kit_of(kit, "server")
    running = find_running(own_kit)
    runs = own_kit.folder / "coterie" / "runs"
    kept = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    facts = {
        "listens": f"{own_kit.host}:{own_kit.port}",
        "certificate_until": f"{own_kit.valid_until():%Y-%m-%d}",
        "process": running.pid if running else None,
        "jobs": len(running.jobs) if running else 0,
        "unfinished_runs": kept,
    }
    if as_json:
        print_json(facts)
        return
    tell(f"{'up, process ' + str(running.pid) if running else 'down'}; listens on {facts['listens']}")
    tell(f"{facts['jobs']} jobs, {count_of(len(kept), 'unfinished run')}")
    tell(f"certificate until {facts['certificate_until']}")


@site.command("start")
@opt.reads_tables
def site_start(
    kit: opt.Kit,
    data: Annotated[Path | None, typer.Option(help="This site's file (default: the one of the last start).")] = None,
    policy: opt.SitePolicy = None,
    check: Annotated[bool, typer.Option("--check", help="Check kit, data and policy, and exit.")] = False,
    **reading: Any,
) -> None:
    """Start this site in the foreground. It answers only questions its policy allows, from its own file.

    The path of the data and the policy are stored at the site (KIT/local/coterie.json); no job can change them.
    Without --data, options that are not given keep their stored values.

    Example: coterie site start --kit north --data patients.parquet --policy site.toml --ignore id,name
    """
    check_installed()
    from coterie.sites.installed import Holdings, InstalledSite

    own_kit = kit_of(kit, "site")
    own_kit.check()
    installed = InstalledSite(own_kit.folder)
    installed.identity(own_kit.name)
    installed.breaks()
    given = reading | ({} if policy is None else {"policy": policy})
    held = replace(Holdings(str(data)) if data is not None else installed.holdings(), **given)
    table = installed.tell(held)
    tell(
        f"{own_kit.name}: {table.n_rows:,} rows of {len(table.columns)} columns, policy {held.policy}; "
        f"server {own_kit.host}:{own_kit.port}, certificate until {own_kit.valid_until():%Y-%m-%d}"
    )
    rules = held.rules()
    installed.check_protection(own_kit.name)
    if rules.privacy is not None:
        (spent, *_) = budget_sentences(budget_facts(rules.privacy, installed.account()))
        tell(spent)
    if form := getattr(table, "form", ""):
        tell(f"{held.data} is read with {form}.")
    if rules.protection == "noise" and (problem := held.unreadable()):
        tell(f"Under noise, values that cannot be read count as missing. {problem}")
    if table.n_rows < rules.min_rows and rules.protection != "noise":
        tell(f"This is fewer than {rules.min_rows} rows (min_rows of its policy): it will refuse to answer.")
    if rules.protection == "groups":
        _describe_groups(installed, table)
    if not check:
        run_here(own_kit)


def _describe_groups(installed: Any, table: Any) -> None:
    """Form or update the groups now, not at the first question, and describe them."""
    from coterie.sites.views import FEW_GROUPS

    with grouping_bar() as progress:
        view = installed.grouped(progress)
    if not view.n_rows:
        tell(f"{count_of(table.n_rows, 'row')} cannot form a group of {view.min_group}: it will refuse to answer.")
        return
    tell(
        f"Everything that leaves is a function of {view.n_rows:,} groups of at least {view.min_group} rows "
        f"({view.n_grouped:,} of {table.n_rows:,} rows are in a group)."
    )
    if view.n_grouped < FEW_GROUPS * view.min_group:
        tell(
            f"With fewer than {FEW_GROUPS * view.min_group} rows a site has few groups of dissimilar rows: "
            "its results will be coarse."
        )


@site.command("status")
def site_status(kit: opt.Kit, as_json: opt.AsJson = False) -> None:
    """Show what this site holds, whether it runs, what it has sent, and the runs each analyst has begun."""
    from coterie.sites.installed import InstalledSite

    own_kit = kit_of(kit, "site")
    installed = InstalledSite(own_kit.folder)
    lines = installed.lines()
    facts = status_facts(own_kit, installed, lines)
    if as_json:
        print_json(facts)
        return
    show_table(f"Site {own_kit.name}", ["", "value"], status_rows(facts))
    if facts["is_contradicted"]:
        tell(f"{CONTRADICTED} No run is answered until `coterie site acknowledge --kit {kit}`.")
    for sentence in (*facts["groups"], f"For details, run coterie ledger show {installed.ledger_path}"):
        tell(sentence)


CONTRADICTED = (
    "Another site holds a head that this site signed and its ledger does not hold: the ledger was cut, rewritten, "
    "deleted or replaced."
)


def status_facts(own_kit: Kit, installed: InstalledSite, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A site's state, by its files, its process and the lines of its ledger."""
    from coterie.sites.approvals import Decision
    from coterie.sites.budget import Account
    from coterie.sites.orders import runs_by_analyst

    held, running = installed.holdings(), find_running(own_kit)
    breaks, contradicted = installed.breaks()
    answers = [line for line in lines if line["event"] == "answer"]
    began, rules = runs_by_analyst(lines), held.rules()
    return {
        "site": own_kit.name,
        "server": f"{own_kit.host}:{own_kit.port}",
        "certificate_until": f"{own_kit.valid_until():%Y-%m-%d}",
        "process": running.pid if running else None,
        "in_a_job": bool(running and running.jobs),
        "data": held.data,
        "policy": held.policy,
        "runs": len({line["run"] for line in answers}),
        "answers": len(answers),
        "refusals": sum(line["event"] == "refusal" for line in lines),
        "bytes_up": sum(line["bytes"] for line in lines),
        "last_answer": answers[-1]["time"] if answers else None,
        "last_method": answers[-1]["method"] if answers else None,
        "acknowledged_breaks": breaks,
        "is_contradicted": contradicted,
        "runs_by_analyst": {analyst: n for (analyst, table), n in began.items() if table == held.table_name},
        "max_runs": rules.max_runs,
        "waiting": sum(kept.decision is Decision.WAITING for kept in installed.approvals.all()),
        "groups": list(groups_sentences(lines)),
        "budget": None if rules.privacy is None else budget_facts(rules.privacy, Account.of(lines, held.table_name)),
    }


def status_rows(facts: dict[str, Any]) -> list[list[str]]:
    """A site's state as a person reads it."""
    last, spent, budget = facts["last_answer"], facts["runs_by_analyst"], facts["budget"]
    when = f"{datetime.fromtimestamp(last):%Y-%m-%d %H:%M:%S} ({facts['last_method']})" if last else "never"
    state = f"up, process {facts['process']}" if facts["process"] else "down"
    of_budget = budget and [["privacy budget", f"epsilon {budget['spent']:.3g} of {budget['epsilon']:g} spent"]]
    return [
        ["process", f"{state}, in a job" if facts["in_a_job"] else state],
        ["server", facts["server"]],
        ["certificate until", facts["certificate_until"]],
        ["data", facts["data"]],
        ["policy", facts["policy"]],
        ["runs", str(facts["runs"])],
        *[["runs of " + name, f"{n} of {facts['max_runs'] or 'any number'}"] for name, n in spent.items()],
        *(of_budget or []),
        ["orders that wait", str(facts["waiting"])],
        ["answers", f"{facts['answers']:,}, and {facts['refusals']:,} refusals"],
        ["bytes sent", f"{facts['bytes_up']:,}"],
        ["last answer", when],
        ["acknowledged breaks of the ledger", str(facts["acknowledged_breaks"])],
    ]


@site.command("acknowledge")
def site_acknowledge(
    kit: opt.Kit,
    protection: Annotated[
        bool, typer.Option("--protection", help="Accept that the policy now protects rows in another way; no more.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Continue with a ledger that was cut, rewritten, deleted or replaced. This is the data officer's decision.

    Limits such as max_runs count what the ledger holds. The ledger, every later certificate and every other site
    will show that a break was acknowledged. A ledger that cannot be verified is kept under another name.

    With --protection: continue after the policy's protection of rows has changed, from groups to noise, say. The
    ledger records it.
    """
    from coterie.sites.installed import InstalledSite

    own_kit = kit_of(kit, "site")
    if protection:
        if not yes:
            typer.confirm(
                "Answers under the old and the new protection together may tell more of a row than either does. "
                "Continue with the policy as it is?",
                abort=True,
            )
        now = InstalledSite(own_kit.folder).check_protection(own_kit.name, is_meant=True)
        tell(f"From now on the table is protected by {now}; the ledger records it.")
        return
    if not yes:
        typer.confirm(
            "Lines of this site's ledger are missing, and limits such as max_runs do not count them. "
            "Continue with the ledger as it is?",
            abort=True,
        )
    breaks = InstalledSite(own_kit.folder).acknowledge(own_kit.name)
    tell(f"Acknowledged; the ledger and every certificate from now on say: {count_of(breaks, 'break')}.")


@site.command("regroup")
def site_regroup(
    kit: opt.Kit, yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False
) -> None:
    """Form this site's groups again from its current rows. This is the data officer's decision.

    Earlier answers were computed from the old groups, later ones from the new groups. Whoever sees both may learn
    about the few rows in which an old and a new group differ. The ledger records the change.
    """
    from coterie.sites.installed import InstalledSite

    own_kit = kit_of(kit, "site")
    installed = InstalledSite(own_kit.folder)
    if not yes:
        typer.confirm(
            "Old and new groups together may disclose the few rows in which they differ. Form all groups again?",
            abort=True,
        )
    with grouping_bar() as progress:
        view = installed.grouped(progress, anew=True)
    tell(f"Formed {view.n_rows:,} groups of at least {view.min_group} rows; the ledger records it.")
