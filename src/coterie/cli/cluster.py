"""Clustering: ``demo``, ``cluster``, ``run``, ``site tags``."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.jobs import Job, read_job
from coterie.cli.labels import new_file
from coterie.cli.options import app, site
from coterie.cli.run_state import read_state
from coterie.cli.shared_options import asked_of_data, asked_of_method, taking
from coterie.cli.terminal import Interrupted, console, say, show_result, show_table, tell, watching
from coterie.errors import InputError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the files behind it.")] = Path("coterie-demo"),
    clusters: Annotated[int, typer.Option("--clusters", "-k", min=1, max=50, help="Number of clusters.")] = 3,
    show_rows: opt.ShowRows = False,
) -> None:
    """Cluster the penguins of three islands without pooling them; compare with pooled data and each island alone."""
    from coterie.examples.demo import demo as run_demo
    from coterie.examples.demo import write_demo
    from coterie.report.sections.quality import comparison_table

    _check_demo_folder(out)
    shutil.rmtree(out / "journal", ignore_errors=True)  # of an earlier demonstration
    with watching() as watch:
        results = run_demo(clusters, journal=out / "journal", events=watch)
    page = write_demo(results, out, show_rows=show_rows)
    heads, rows = comparison_table([asdict(comparison) for comparison in results.comparisons])
    show_table("Penguins of three islands, not pooled", heads, rows, bold_first=True)
    say(
        "ARI, NMI and the cost, relative to the pooled optimum, are exact, over all birds without missing "
        "measurements. Values and bytes are those sent by all islands."
    )
    console.print(
        f"The server's ledger is [bold]{out}/ledger.jsonl[/]; each island's own ledger is in {out}/journal/sites/.",
        soft_wrap=True,
    )
    console.print(f"Open [bold]{page}[/] to see the clusters.", soft_wrap=True)


def _check_demo_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier demonstration, which is overwritten."""
    result = out / "result.json"
    if out.is_dir() and any(out.iterdir()):
        settings = json.loads(result.read_text()).get("settings", {}) if result.exists() else {}
        if settings.get("data") != "penguins":
            raise InputError(f"{out} holds files that are not from a demonstration; choose another --out.")


@app.command()
@taking(asked_of_data, asked_of_method)
def cluster(
    asked: dict[str, Any],
    clusters: opt.Clusters,
    halves: opt.Halves = False,
    profile: opt.Profile = None,
    no_profile: opt.NoProfile = False,
    show_rows: opt.ShowRows = False,
    out: Annotated[Path, typer.Option(help="Folder for the results; it must hold none yet.")] = Path("coterie-run"),
    resume: opt.Resume = False,
    as_json: opt.AsJson = False,
) -> None:
    """Cluster files as if they were pooled, without pooling them.

    Each file is a site (with --site-column: each value of that column). Sums over the sites are masked, and every
    site protects its rows by --policy. The folder --out then holds result.json, centers.csv, profiles.csv (what
    distinguishes the clusters, in original units), labels/<site>.parquet, model.json, the
    ledger of all bytes sent, events.jsonl (for coterie watch) and report.html, which shows no row.

    Examples: coterie cluster north.csv south.csv west.csv -k 5 --scale standard --missing mean

    coterie cluster north.csv south.csv west.csv -k auto --scale standard

    coterie cluster north.csv south.csv west.csv -k 2 --method landmarks --set gamma=4

    coterie cluster north.csv south.csv west.csv -k 5 --epsilon 1 --ranges ranges.toml

    coterie cluster lab.csv imaging.csv -k 4 --method vertical-kernel-pca --key patient --policy site.toml
    """
    profiled = opt.profile_of(profile, no_profile)
    job = Job(
        **asked,
        clusters=opt.clusters_of(clusters),
        out=str(out),
        halves=halves,
        profile=profiled,
        show_rows=show_rows,
    )
    if job.judged:
        raise InputError(
            f"-k {clusters} names several numbers; `coterie choose-k` judges them, -k auto takes the best."
        )
    run_job(job, resume, as_json)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A job file in TOML; docs/tutorial.md has an example.")],
    engine: Annotated[
        str, typer.Option(help="inprocess: files on this machine; nvflare: a federation (needs --kit).")
    ] = "inprocess",
    kit: Annotated[Path | None, typer.Option(help="The analyst's start-up kit, for --engine nvflare.")] = None,
    attempts: opt.Attempts = 5,
    patience: opt.Patience = 120.0,
    resume: opt.Resume = False,
    as_json: opt.AsJson = False,
) -> None:
    """Run a job from a TOML file. Paths in it are relative to the file.

    With --engine nvflare --kit KIT the job runs over a federation. Sites then use their own data and policies, and
    the file's columns name what they are asked for. If a site or the server drops out, the run waits for it and
    resumes from its journal, at most --attempts times.
    """
    if engine == "inprocess":
        if kit is not None:
            raise InputError("--kit is only used with --engine nvflare.")
        run_job(read_job(config), resume, as_json)
        return
    if engine != "nvflare":
        raise InputError(f"--engine {engine} is unknown; use inprocess or nvflare.")
    if kit is None:
        raise InputError("--engine nvflare needs --kit, the analyst's start-up kit from `coterie provision`.")
    from coterie.cli.remote_jobs import run_remotely

    run_remotely(config, kit, resume=resume, attempts=attempts, patience=patience, as_json=as_json)


def run_job(job: Job, resume: bool, as_json: bool) -> None:
    """Run a job, show its progress and its result."""
    from coterie.methods.shared.choosing import NoneSupported, verdict

    try:
        with watching(read_state(Path(job.out)) if resume else None, quiet=as_json) as watch:
            result = job.run(resume=resume, watch=watch)
    except KeyboardInterrupt:
        kept = (Path(job.out) / "journal" / "header.json").exists()
        again = f"run the same command with --resume to continue from the journal in {job.out}"
        raise Interrupted(again if kept else "nothing was sent or written") from None
    except NoneSupported as problem:
        raise InputError(
            f"{verdict(problem.choice)} Choose a number yourself, -k K; `coterie choose-k` shows all of them."
        ) from None
    show_result(job.out, result, as_json)
    for site_name, form in {} if as_json else result["settings"].get("csv_forms", {}).items():
        tell(f"{site_name} was read with {form}.")


@site.command()
def tags(
    data: opt.OwnFile,
    key: Annotated[str, typer.Option(help="The column that identifies each row.")],
    policy: Annotated[str, typer.Option(help="The site's policy file, with its alignment_key.")],
    out: Annotated[Path, typer.Option(help="Where to write keys and tags, as Parquet.")],
    force: opt.Force = False,
) -> None:
    """Write the tag of every row, to look rows up in results that are listed by tag.

    Nothing is sent. Tags identify rows only to those who know the sites' alignment_key.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from coterie.methods.shared.alignment import row_tags
    from coterie.sites.policy_files import find_policy
    from coterie.sites.tables import read_keys

    secret = find_policy(policy).alignment_key
    if secret is None:
        raise InputError(f"{policy} has no alignment_key; `coterie policy secret` prints a new one.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out.parent}: there is no such folder.")
    with new_file(out, force, "tags") as path:
        keys = read_keys(data, key)
        named = key if key != "tag" else "key"
        pq.write_table(pa.table({named: list(keys), "tag": pa.array(row_tags(keys, secret), pa.uint64())}), path)
    console.print(f"{len(keys):,} tags in [bold]{out}[/].", soft_wrap=True)
