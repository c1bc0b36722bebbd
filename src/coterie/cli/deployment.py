"""Real sites: ``provision``, ``server``, ``site start|status|regroup``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.cluster import AsJson, Categories, Columns, Ignore, Key, categories_of, names_of, site
from coterie.cli.ledgers import groups_sentences
from coterie.cli.remote_jobs import check_installed
from coterie.cli.terminal import console, grouping_bar, print_json, show_table
from coterie.errors import InputError

server = typer.Typer(help="The center of a federation: carries questions and adds answers up.", no_args_is_help=True)
Kit = Annotated[Path, typer.Option(help="The start-up kit's folder, as `coterie provision` made it.")]
Folder = Annotated[Path, typer.Option(help="The federation's folder.")]
Attempts = Annotated[
    int, typer.Option(min=1, help="How many jobs a run may take: after a loss it is taken up again.")
]
Patience = Annotated[float, typer.Option(min=0, help="Seconds to wait for sites or the server to come back.")]
SitePolicy = Annotated[
    str, typer.Option("--policy", help="The site's rules: a policy file, or strict, standard, research.")
]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("provision")(provision)
    server.command("start")(server_start)
    server.command("status")(server_status)
    app.add_typer(server, name="server")
    site.command("start")(site_start)
    site.command("status")(site_status)
    site.command("regroup")(site_regroup)


def provision(
    sites: Annotated[str, typer.Option(help="The sites' names: north,south,west.")],
    out: Annotated[Path, typer.Option(help="Folder for the kits; where it holds some, sites are added.")],
    server: Annotated[str, typer.Option(help="The server's host name, as sites look it up.")] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port the server listens on.")] = 8002,
    analyst: Annotated[
        list[str] | None, typer.Option(help="Who may run methods, as by e-mail (may be repeated).")
    ] = None,
) -> None:
    """Make start-up kits: one for the server, one for each site, one for each analyst.

    A kit holds its owner's private key and certificate: hand it over on a way only its owner sees. The key that signs
    them stays in OUT/authority. No kit lets anyone bring code: a job carries a configuration, sites run what they
    installed.

    Example: coterie provision --sites north,south,west --server center.example.org --out kits
    """
    check_installed()
    from coterie.engines.nvflare.kits import provision as make

    before = {
        path.absolute() for path in (out / "server", *out.glob("sites/*"), *out.glob("analysts/*")) if path.exists()
    }
    kits = make(out, names_of(sites) or [], server=server, port=port, analysts=analyst)
    rows = [
        [
            kit.kind,
            kit.name,
            str(kit.folder.relative_to(out.absolute())),
            "" if kit.folder not in before else "was there",
        ]
        for kit in kits.values()
    ]
    show_table(f"Kits in {out}", ["for", "name", "folder", ""], rows)
    console.print("Keep OUT/authority to yourself: it signs kits. The server starts with `coterie server start`,")
    console.print("a site with `coterie site start --kit ... --data FILE --policy POLICY`.", highlight=False)


# ---------------------------------------------------------------- server and sites


def server_start(kit: Kit) -> None:
    """Start the server in the foreground; Ctrl-C ends it. docs/operations.md has a systemd unit."""
    check_installed()
    from coterie.engines.nvflare.processes import run_here

    run_here(_kit(kit, "server"))


def server_status(kit: Kit, as_json: AsJson = False) -> None:
    """Whether the server runs on this machine, and which runs wait to be resumed."""
    check_installed()
    from coterie.engines.nvflare.processes import find_running

    found = _kit(kit, "server")
    running = find_running(found)
    runs = found.folder / "coterie" / "runs"
    kept = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    facts = {
        "listens": f"{found.host}:{found.port}",
        "certificate_until": f"{found.valid_until():%Y-%m-%d}",
        "process": running.pid if running else None,
        "jobs": len(running.jobs) if running else 0,
        "unfinished_runs": kept,
    }
    if as_json:
        print_json(facts)
        return
    console.print(f"{'up, process ' + str(running.pid) if running else 'down'}; listens on {facts['listens']}")
    console.print(f"{facts['jobs']} jobs, {len(kept)} runs that were not finished", highlight=False)
    console.print(f"certificate until {facts['certificate_until']}", highlight=False)


def site_start(
    kit: Kit,
    data: Annotated[Path | None, typer.Option(help="This site's file; as before, if not given.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help="The site's rules: a policy file, or strict, standard (the default), research."
        ),
    ] = None,
    columns: Columns = None,
    ignore: Ignore = None,
    categories: Categories = None,
    key: Key = None,
    check: Annotated[bool, typer.Option("--check", help="Look at everything, start nothing.")] = False,
) -> None:
    """Start this site in the foreground: it answers what its policy allows, from its own file, and nothing else.

    The data's path and the policy are kept at the site (KIT/local/coterie.json); no job can change them. Without
    --data everything is as it was said before, but for what is said now.

    Example: coterie site start --kit north --data patients.parquet --policy site.toml --ignore id,name
    """
    check_installed()
    from coterie.engines.nvflare.processes import run_here
    from coterie.sites.installed import Holdings, InstalledSite

    found = _kit(kit, "site")
    found.check()
    installed = InstalledSite(found.folder)
    said: dict[str, Any] = {
        "policy": policy,
        "columns": names_of(columns),
        "ignore": names_of(ignore),
        "categories": categories_of(categories) if categories else None,
        "key": key,
    }
    before = Holdings(str(data)) if data is not None else installed.holdings()
    held = replace(before, **{name: value for name, value in said.items() if value is not None})
    table = installed.tell(held)
    console.print(
        f"{found.name}: {table.n_rows:,} rows of {len(table.columns)} columns, policy {held.policy}; "
        f"server {found.host}:{found.port}, certificate until {found.valid_until():%Y-%m-%d}",
        highlight=False,
        soft_wrap=True,
    )
    rules = held.rules()
    if table.n_rows < rules.min_rows:
        console.print(
            f"Its policy takes no part with fewer than {rules.min_rows} rows: it will refuse.", highlight=False
        )
    if rules.protection == "groups":
        _say_groups(installed, table)
    if not check:
        run_here(found)


def _say_groups(installed: Any, table: Any) -> None:
    """Form or update the groups now, rather than at the first question, and say what they are."""
    from coterie.sites.views import FEW_GROUPS

    with grouping_bar() as progress:
        view = installed.grouped(progress)
    if not view.n_rows:
        console.print(
            f"{table.n_rows:,} rows are fewer than one group of {view.min_group}: it will refuse.", highlight=False
        )
        return
    console.print(
        f"Everything that leaves is a function of {view.n_rows:,} groups of at least {view.min_group} rows "
        f"({view.n_grouped:,} of its {table.n_rows:,} rows stand in one).",
        highlight=False,
        soft_wrap=True,
    )
    if view.n_grouped < FEW_GROUPS * view.min_group:
        console.print(
            f"With fewer than {FEW_GROUPS * view.min_group} rows its groups are few, and of unlike rows: results of "
            "this site will be coarse.",
            highlight=False,
            soft_wrap=True,
        )


def site_regroup(
    kit: Kit,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Form this site's groups anew, from the rows as they are now. The data officer's decision.

    What left before is a function of the groups so far, what leaves from now on of the new ones; who has seen both
    may learn of the few rows in which an old and a new group differ. The ledger records it.
    """
    from coterie.sites.installed import InstalledSite

    found = _kit(kit, "site")
    installed = InstalledSite(found.folder)
    if not yes:
        typer.confirm(
            "Old and new groups together may tell of the few rows they differ in. Form all groups anew?", abort=True
        )
    with grouping_bar() as progress:
        view = installed.regrouped(progress)
    console.print(
        f"{view.n_rows:,} groups of at least {view.min_group} rows, formed anew; the ledger says so.",
        highlight=False,
        soft_wrap=True,
    )


def site_status(kit: Kit, as_json: AsJson = False) -> None:
    """What this site holds, whether it runs, and what left it so far."""
    from coterie.engines.nvflare.processes import find_running
    from coterie.messages.chain import read_open_chain
    from coterie.sites.installed import InstalledSite

    found = _kit(kit, "site")
    installed = InstalledSite(found.folder)
    held, running = installed.holdings(), find_running(found)
    lines = read_open_chain(installed.ledger_path) if installed.ledger_path.exists() else []
    answers = [line for line in lines if line["event"] == "answer"]
    runs = list(dict.fromkeys(line["run"] for line in answers))
    facts: dict[str, Any] = {
        "site": found.name,
        "server": f"{found.host}:{found.port}",
        "certificate_until": f"{found.valid_until():%Y-%m-%d}",
        "process": running.pid if running else None,
        "in_a_job": bool(running and running.jobs),
        "data": held.data,
        "policy": held.policy,
        "runs": len(runs),
        "answers": len(answers),
        "refusals": sum(line["event"] == "refusal" for line in lines),
        "bytes_up": sum(line["bytes"] for line in lines),
        "last_answer": answers[-1]["time"] if answers else None,
        "last_method": answers[-1]["method"] if answers else None,
    }
    grouped = list(groups_sentences(lines))
    if as_json:
        print_json({**facts, "groups": grouped})
        return
    last = facts["last_answer"]
    when = "never" if last is None else f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(last))}"
    state = "down" if running is None else f"up, process {running.pid}" + (", in a job" if running.jobs else "")
    show_table(
        f"Site {found.name}",
        ["", "what"],
        [
            ["process", state],
            ["server", facts["server"]],
            ["certificate until", facts["certificate_until"]],
            ["data", held.data],
            ["policy", held.policy],
            ["runs taken part in", str(len(runs))],
            ["answers", f"{len(answers):,}, and {facts['refusals']:,} refusals"],
            ["bytes that left", f"{facts['bytes_up']:,}"],
            ["last answer", f"{when}" + (f" ({facts['last_method']})" if last else "")],
        ],
    )
    for sentence in grouped:
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print(f"Every byte: coterie ledger show {installed.ledger_path}", highlight=False, soft_wrap=True)


def _kit(path: Path, kind: str) -> Any:
    from coterie.engines.nvflare.kits import read_kit

    found = read_kit(path)
    if found.kind != kind:
        raise InputError(f"{path}: this is the kit of {found.kind} {found.name}; a {kind}'s is needed.")
    return found
