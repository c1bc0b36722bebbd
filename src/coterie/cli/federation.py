"""A federation of real processes on this machine: ``federation up|run|status|down``."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.jobs import named_files
from coterie.cli.options import federation
from coterie.cli.remote_jobs import check_installed, run_remotely
from coterie.cli.terminal import console, print_json, show_table
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deployment.federation import Federation
    from coterie.sites.installed import Holdings

Folder = Annotated[Path, typer.Option(help="The federation's folder.")]
HERE = Path("coterie-federation")


def _in(folder: Path) -> Federation:
    check_installed()
    from coterie.deployment.federation import Federation

    return Federation(folder)


@federation.command()
@opt.reads_tables
def up(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="One file per site (may be repeated), or one file split by --sites or --site-column."),
    ] = None,
    sites: Annotated[int | None, typer.Option(min=1, max=64, help="Split one file into so many sites.")] = None,
    site_column: opt.SiteColumn = None,
    policy: opt.SitePolicy = None,
    folder: Folder = HERE,
    **reading: Any,
) -> None:
    """Start a server and sites as separate processes that communicate over TLS.

    Examples: coterie federation up --sites 5 --data rows.csv

    coterie federation up --data north.csv --data south.csv --data west.csv --policy site.toml

    Then coterie federation run job.toml, and coterie federation down. Without --data, start a stopped federation
    again.
    """
    network = _in(folder)
    from coterie.sites.installed import Holdings

    if data is None:
        held = {name: network.site(name).holdings() for name in network.names()}
    elif network.is_there:
        raise InputError(f"{folder} already holds a federation; omit --data, or choose another --folder.")
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds other files; choose another --folder.")
    else:
        how = Holdings("", policy or "standard", **reading)
        held = _held(data, sites, site_column, how, folder)
    try:
        network.up(held, say=lambda line: console.print(line, highlight=False))
    except BaseException:
        if data is not None and not network.is_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    console.print(
        f"{len(held)} sites are up. Next: [bold]coterie federation run JOB --folder {folder}[/]", soft_wrap=True
    )


def _held(
    data: list[Path], sites: int | None, site_column: str | None, how: Holdings, folder: Path
) -> dict[str, Holdings]:
    """The holdings of each site: its file, or its part of one file, which is written to the federation's folder."""
    from coterie.deployment.federation import DATA, deal_out
    from coterie.sites.installed import Holdings
    from coterie.sites.tables import open_table, reading_of, split_by_site

    if len(data) > 1 or (sites is None and site_column is None):
        if sites not in (None, len(data)):
            raise InputError(
                f"--sites {sites} and {len(data)} files do not match; give one file per site, or one file."
            )
        return {name: replace(how, data=path) for name, path in named_files([str(path) for path in data]).items()}
    options, parts = asdict(reading_of(how)), folder / DATA
    if how.key is not None:
        raise InputError("--key needs one file per site, each with columns of the same rows.")
    plain = Holdings("", how.policy)
    if site_column is not None:
        tables = split_by_site(data[0], site_column, **options)
        paths = {name: deal_out(table, [name], parts)[name] for name, table in tables.items()}
    else:
        assert sites is not None
        paths = deal_out(open_table(data[0], **options), [f"site-{i + 1}" for i in range(sites)], parts)
    return {name: replace(plain, data=str(path)) for name, path in paths.items()}


@federation.command()
def run(
    config: Annotated[Path, typer.Argument(help="A job file in TOML; its data and policy are not used.")],
    folder: Folder = HERE,
    resume: opt.Resume = False,
    attempts: opt.Attempts = 5,
    patience: opt.Patience = 120.0,
    as_json: opt.AsJson = False,
) -> None:
    """Run a job over the federation, as `coterie run CONFIG --engine nvflare --kit ...` does elsewhere."""
    network = _in(folder)
    network.names()
    if "server" not in network.running():
        raise InputError(f"the federation is down; start it with `coterie federation up --folder {folder}`.")
    kit = network.analyst().folder
    run_remotely(config, kit, resume=resume, attempts=attempts, patience=patience, as_json=as_json)


@federation.command()
def status(folder: Folder = HERE, as_json: opt.AsJson = False) -> None:
    """Show which processes of the federation are up."""
    network = _in(folder)
    running = network.running()
    rows: list[dict[str, Any]] = []
    for name in ("server", *network.names()):
        process = running.get(name)
        ledger = network.site(name).ledger_path
        rows.append(
            {
                "name": name,
                "process": process.pid if process else None,
                "in_a_job": bool(process and process.jobs),
                "ledger_bytes": ledger.stat().st_size if name != "server" and ledger.exists() else 0,
            }
        )
    if as_json:
        print_json(rows)
        return
    cells = [[str(r["name"]), str(r["process"] or "down"), "in a job" if r["in_a_job"] else ""] for r in rows]
    show_table(f"Federation in {folder}", ["", "process", ""], cells)


@federation.command()
def down(
    folder: Folder = HERE,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove the folder with its kits and ledgers.")] = False,
) -> None:
    """Stop every process of the federation."""
    network = _in(folder)
    count = network.down()
    console.print(f"Stopped {count} processes." if count else "No process was running.")
    if purge:
        shutil.rmtree(network.folder)
        console.print(f"Removed {folder}.")
