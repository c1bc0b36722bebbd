"""What a run would take and disclose, before anything is sent: ``plan``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.describing import DescribeJob
from coterie.cli.jobs import Job, read_job
from coterie.cli.options import app
from coterie.cli.plan_tables import show_plan
from coterie.cli.shared_options import asked_of_data, asked_of_method, taking, without_data
from coterie.cli.terminal import print_json
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.messages.site_api import Table
    from coterie.planning.planner import Ask

Sites = Annotated[int | None, typer.Option(min=1, help="Without files: how many sites there are.")]
RowsBySite = Annotated[
    str | None,
    typer.Option("--rows", help="Without files: the rows of each site, 4000, or of one after the other, 4000,900."),
]
Methods = Annotated[
    str | None, typer.Option(help="Plan several methods, and recommend one: federated-kmeans,landmarks.")
]


@app.command()
@taking(without_data(asked_of_data), asked_of_method)
def plan(
    asked: dict[str, Any],
    context: typer.Context,
    clusters: opt.Clusters = "8",
    methods: Methods = None,
    sites: Sites = None,
    rows: RowsBySite = None,
    halves: opt.Halves = False,
    profile: opt.Profile = None,
    no_profile: opt.NoProfile = False,
    as_json: opt.AsJson = False,
) -> None:
    """Plan a run: bytes, rounds, seconds, memory, what the server would see, what it takes of each budget.

    Nothing is sent, and nothing is written: the run is rehearsed over made-up rows of the same shapes. Bytes and
    rounds are exact where rows decide nothing of them, and else a range with an estimate. With --methods several
    methods are planned, and one is recommended. Without files give --sites, --rows and --columns (a number, or
    names).

    Examples: coterie plan north.csv south.csv west.csv -k 5 --scale standard

    coterie plan job.toml --methods federated-kmeans,landmarks,dspgd

    coterie plan --sites 5 --rows 4000 --columns 24 -k 5
    """
    from coterie.planning.planner import plan_each

    data = asked["data"]
    if len(data) == 1 and data[0].endswith(".toml"):
        _refuse_others(context)
        job = read_job(Path(data[0]), needs_data=False)
    else:
        profiled = opt.profile_of(profile, no_profile)
        judged = clusters if clusters == "auto" else opt.clusters_of(clusters)
        job = Job(**asked, clusters=judged, halves=halves, profile=profiled)
    if not job.data and (rows is None or (sites is None and not job.sites)):
        raise InputError("there is no data; give one file per site, or --sites 5 --rows 4000 --columns 24.")
    made = plan_each(dict(_asks(job, methods, _shapes(job, sites, rows))))
    if as_json:
        print_json(made.to_dict())
        return
    show_plan(made)


def _refuse_others(context: typer.Context) -> None:
    """Raise ``InputError`` for options that a job file has in it."""
    own = {"data", "methods", "sites", "rows", "as_json", "context"}
    given = [name for name in context.params if name not in own and _is_given(context, name)]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{names}: a job file says this itself; change the file, or leave it out.")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _shapes(job: Job, sites: int | None, rows: str | None) -> dict[str, Any] | None:
    """What was typed of the sites' tables; None where there are files."""
    if job.data:
        if sites is not None or rows is not None:
            raise InputError("--sites and --rows are for a plan without files; leave them out.")
        return None
    names = job.sites or [f"site{i}" for i in range(1, (sites or 0) + 1)]
    if sites is not None and len(names) != sites:
        raise InputError(f"--sites {sites}: the job file names {len(names)} sites; leave --sites out.")
    try:
        counts = [int(count.replace("_", "")) for count in (rows or "").split(",")]
    except ValueError:
        raise InputError(f"--rows {rows}; give the rows of each site, such as 4000, or 4000,900,2100.") from None
    if len(counts) not in (1, len(names)):
        raise InputError(f"--rows has {len(counts)} numbers for {len(names)} sites; give one, or one for each site.")
    columns = _columns(job)
    return {name: (counts[i % len(counts)], columns) for i, name in enumerate(names)}


def _columns(job: Job) -> int | list[str]:
    """How many columns, or which."""
    if not job.columns:
        raise InputError("give --columns: how many there are, such as 24, or their names.")
    if len(job.columns) == 1 and job.columns[0].isdigit():
        return int(job.columns[0])
    from coterie.cli.remote_jobs import columns_of

    return columns_of(job, [*job.columns, *(name for name in job.described if name not in job.columns)])


def _asks(job: Job, methods: str | None, shapes: dict[str, Any] | None) -> Iterator[tuple[str, Callable[[], Ask]]]:
    """By method what is to be planned."""
    names = [job.method] if methods is None else opt.names_of(methods)
    known: dict[bool, Mapping[str, Table]] = {}

    def ask(own: Job) -> Ask:
        from coterie.planning.made_up import tables_of
        from coterie.planning.planner import Ask

        estimator = own.estimator()
        own.check_key(estimator)
        is_split = bool(estimator.splits_columns)
        if is_split not in known:
            if shapes is not None:
                known[is_split] = tables_of(shapes)
            else:
                known[is_split] = {name: table for name, (table, _) in own.scanned_tables().items()}
        tables = known[is_split]
        return Ask(estimator, tables, own.asked(estimator, tables, own.policies(tables)))

    for name in names:
        yield name, partial(ask, _job_of(job, name))


def _job_of(job: Job, method: str) -> Job:
    """The same job with another method; its parameters are then the default ones."""
    if method == "describe":
        facts = {item.name: getattr(job, item.name) for item in fields(job)}
        return DescribeJob(**{**facts, "method": method, "settings": {}, "profile": False, "scale": "none"})
    return job if method == job.method else replace(job, method=method, settings={})
