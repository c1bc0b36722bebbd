"""A federation of real processes on this machine: ``federation up|run|status|down``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.cluster import (
    AsJson,
    Categories,
    Columns,
    Ignore,
    Key,
    Resume,
    SiteColumn,
    categories_of,
    names_of,
    show_result,
)
from coterie.cli.deployment import SitePolicy
from coterie.cli.jobs import read_job
from coterie.cli.remote_jobs import check_installed, run_remotely
from coterie.cli.terminal import console, print_json, show_table
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.sites.installed import Holdings

federation = typer.Typer(
    help="A federation of real processes on this machine, in one folder, to try it out.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Option(help="The federation's folder.")]
Attempts = Annotated[
    int, typer.Option(min=1, help="How many jobs a run may take: after a loss it is taken up again.")
]
Patience = Annotated[float, typer.Option(min=0, help="Seconds to wait for sites or the server to come back.")]
HERE = Path("coterie-federation")


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    federation.command("up")(up)
    federation.command("run")(run)
    federation.command("status")(status)
    federation.command("down")(down)
    app.add_typer(federation, name="federation")


def up(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="One file a site (repeat it), or one file dealt out to --sites or by --site-column."),
    ] = None,
    sites: Annotated[int | None, typer.Option(min=1, max=64, help="How many sites one file is dealt out to.")] = None,
    site_column: SiteColumn = None,
    policy: SitePolicy = "standard",
    columns: Columns = None,
    ignore: Ignore = None,
    categories: Categories = None,
    key: Key = None,
    folder: Folder = HERE,
) -> None:
    """Start a server and sites as separate processes that speak TLS with each other.

    Examples: coterie federation up --sites 5 --data rows.csv

    coterie federation up --data north.csv --data south.csv --data west.csv --policy site.toml

    Then coterie federation run job.toml, and coterie federation down. Without --data a federation that is
    down is started again.
    """
    check_installed()
    from coterie.deployment.federation import Federation
    from coterie.sites.installed import Holdings

    made = Federation(folder)
    if data is None:
        held = {name: made.site(name).holdings() for name in made.names()}
    elif made.is_there:
        raise InputError(
            f"{folder} holds a federation already: leave --data out to start it, or choose another folder."
        )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds something else; choose another folder with --folder.")
    else:
        chosen = (names_of(columns), names_of(ignore) or [], categories_of(categories))
        held = _held(data, sites, site_column, Holdings("", policy, *chosen, key), folder)
    try:
        made.up(held, say=lambda words: console.print(words, highlight=False))
    except BaseException:
        if data is not None and not made.is_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    console.print(
        f"{len(held)} sites are up. Next: [bold]coterie federation run JOB.toml --folder {folder}[/]", soft_wrap=True
    )


def _held(
    data: list[Path], sites: int | None, site_column: str | None, how: Holdings, folder: Path
) -> dict[str, Holdings]:
    """What each site holds: a file each, or parts of one file, written into the federation's folder."""
    from dataclasses import replace

    from coterie.cli.jobs import named_files
    from coterie.deployment.federation import DATA, deal_out
    from coterie.sites.tables import open_table, split_by_site

    if len(data) > 1 or (sites is None and site_column is None):
        if sites not in (None, len(data)):
            raise InputError(f"--sites {sites} and {len(data)} files: one file a site, or one file for all of them.")
        return {name: replace(how, data=path) for name, path in named_files([str(path) for path in data]).items()}
    options: dict[str, Any] = {"columns": how.columns, "ignore": how.ignore, "categories": how.categories}
    parts = folder / DATA
    if parts.exists():
        raise InputError(f"{folder} holds something already; choose another folder with --folder.")
    if how.key is not None:
        raise InputError("--key goes with one file a site: each holds columns of the same rows.")
    plain = replace(how, columns=None, ignore=[], categories={})
    if site_column is not None:
        found = split_by_site(data[0], site_column, **options)
        paths = {name: deal_out(table, [name], parts)[name] for name, table in found.items()}
    else:
        assert sites is not None
        paths = deal_out(open_table(data[0], **options), [f"site-{i + 1}" for i in range(sites)], parts)
    return {name: replace(plain, data=str(path)) for name, path in paths.items()}


def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; data and policy in it are not used.")],
    folder: Folder = HERE,
    resume: Resume = False,
    attempts: Attempts = 5,
    patience: Patience = 120.0,
    as_json: AsJson = False,
) -> None:
    """Run a job over the federation, as `coterie run CONFIG --engine nvflare --kit ...` does elsewhere."""
    check_installed()
    from coterie.deployment.federation import Federation

    made = Federation(folder)
    made.names()
    if "server" not in made.running():
        raise InputError(f"{folder}: the federation is down; `coterie federation up --folder {folder}` starts it.")
    job = read_job(config, needs_data=False)
    result = run_remotely(
        job, made.analyst().folder, resume=resume, attempts=attempts, patience=patience, quiet=as_json
    )
    print_json(result) if as_json else show_result(job, result)


def status(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Which processes of the federation are up, and what left each site."""
    check_installed()
    from coterie.deployment.federation import Federation

    made = Federation(folder)
    running = made.running()
    rows: list[dict[str, Any]] = []
    for name in ("server", *made.names()):
        found = running.get(name)
        book = made.site(name).ledger_path
        rows.append(
            {
                "name": name,
                "process": found.pid if found else None,
                "in_a_job": bool(found and found.jobs),
                "ledger_bytes": book.stat().st_size if name != "server" and book.exists() else 0,
            }
        )
    if as_json:
        print_json(rows)
        return
    told = [[str(r["name"]), str(r["process"] or "down"), "in a job" if r["in_a_job"] else ""] for r in rows]
    show_table(f"Federation in {folder}", ["", "process", ""], told)


def down(
    folder: Folder = HERE,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the folder, its kits and books, too.")] = False,
) -> None:
    """End every process of the federation."""
    check_installed()
    from coterie.deployment.federation import Federation

    made = Federation(folder)
    count = made.down()
    console.print(f"{count} processes were ended; none is left." if count else "Nothing was running.")
    if purge:
        shutil.rmtree(made.folder)
        console.print(f"{folder} was removed.")
