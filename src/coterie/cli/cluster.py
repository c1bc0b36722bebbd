"""Clustering one's own files: ``cluster``, ``run``, ``assign``, ``site preview``, ``site tags``."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from coterie.cli import options as opt
from coterie.cli.jobs import Job, read_job
from coterie.cli.options import app, site
from coterie.cli.run_state import read_state
from coterie.cli.terminal import Interrupted, console, print_json, show_table, tell, watching
from coterie.errors import InputError
from coterie.messages import codec
from coterie.messages.chain import read_chain
from coterie.messages.schema import message_fields, reply_type, request_type


@app.command()
def cluster(
    data: Annotated[
        list[Path], typer.Argument(help="One file a site (Parquet, CSV, Arrow, npz), or one file with --site-column.")
    ],
    clusters: opt.Clusters,
    site_column: opt.SiteColumn = None,
    method: opt.Method = "federated-kmeans",
    settings: opt.Settings = None,
    scale: opt.Scale = "none",
    missing: opt.Missing = "refuse",
    columns: opt.Columns = None,
    ignore: opt.Ignore = None,
    categories: opt.Categories = None,
    key: opt.Key = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The sites' rules: strict, standard, research, a policy file, or simulation if all rows are yours "
            "(plain sums over rows). Default: standard; with --site-column, simulation.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The run's public seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the result; must not hold one already.")] = Path(
        "coterie-run"
    ),
    resume: opt.Resume = False,
    as_json: opt.AsJson = False,
) -> None:
    """Cluster files as if they were pooled, without pooling them.

    Each file is a site (or, with --site-column, each distinct value of a column). Sums over the sites are masked, and
    every site protects its rows as --policy says. The folder --out then holds
    result.json, centers.csv, labels/<site>.parquet, model.json, the ledger of every byte, events.jsonl (coterie watch
    shows it, also while the run is at work), a picture and report.html.

    Examples: coterie cluster north.csv south.csv west.csv -k 5 --scale standard --missing mean

    coterie cluster north.csv south.csv west.csv -k 2 --method landmarks --set gamma=4

    coterie cluster lab.csv imaging.csv -k 4 --method vertical-kernel-pca --key patient --policy site.toml
    """
    job = Job(
        [str(path) for path in data],
        str(out),
        clusters,
        method,
        site_column,
        scale=scale,
        missing=missing,
        seed=seed,
        policy=policy,
        settings=opt.settings_of(settings),
        **opt.chosen(columns, ignore, categories, key),
    )
    _run(job, resume, as_json)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; docs/tutorial.md shows one.")],
    engine: Annotated[
        str, typer.Option(help="inprocess: files of this machine; nvflare: sites of a federation (needs --kit).")
    ] = "inprocess",
    kit: Annotated[Path | None, typer.Option(help="An analyst's start-up kit, with --engine nvflare.")] = None,
    attempts: opt.Attempts = 5,
    patience: opt.Patience = 120.0,
    resume: opt.Resume = False,
    as_json: opt.AsJson = False,
) -> None:
    """Run a clustering described in a TOML file. Paths in it are meant from where the file lies.

    With --engine nvflare --kit KIT it runs over the sites of a federation: they bring their own data and policies,
    so the file's are not used; columns names what they are asked for. A site or server that is lost is waited for,
    and the run taken up again from its journal, --attempts times at most.
    """
    if engine == "inprocess":
        if kit is not None:
            raise InputError("--kit goes with --engine nvflare.")
        _run(read_job(config), resume, as_json)
        return
    if engine != "nvflare":
        raise InputError(f"--engine {engine}: there are inprocess and nvflare.")
    if kit is None:
        raise InputError("--engine nvflare takes --kit: the analyst's start-up kit, as `coterie provision` made it.")
    from coterie.cli.remote_jobs import run_remotely

    job = read_job(config, needs_data=False)
    result = run_remotely(job, kit, resume=resume, attempts=attempts, patience=patience, quiet=as_json)
    show_result(job, result, as_json)


def _run(job: Job, resume: bool, as_json: bool) -> None:
    try:
        with watching(read_state(Path(job.out)) if resume else None, quiet=as_json) as watch:
            result = job.run(resume=resume, watch=watch)
    except KeyboardInterrupt:
        kept = (Path(job.out) / "journal" / "header.json").exists()
        again = f"the journal in {job.out} is kept: run the same command with --resume to go on"
        raise Interrupted(again if kept else "nothing was sent or written") from None
    show_result(job, result, as_json)


def show_result(job: Job, result: dict[str, Any], as_json: bool) -> None:
    """What came of a job, for people or for programs."""
    if as_json:
        print_json(result)
        return
    rows = [
        [str(i), f"{count:,.0f}", *(f"{value:.4g}" for value in center)]
        for i, (center, count) in enumerate(zip(result["centers"], result["counts"], strict=True))
    ]
    show_table(result["title"], ["cluster", "rows", *result["columns"]], rows, needed=3)
    console.print(result["summary"], highlight=False)
    empty = sum(count == 0 for count in result["counts"])
    if empty:
        tell(f"{empty} of the clusters are empty: there may be fewer than you asked for.")
    console.print(f"Everything is in [bold]{job.out}/[/]; open [bold]{job.out}/report.html[/].", soft_wrap=True)


@app.command()
def assign(
    model: Annotated[Path, typer.Argument(help="model.json of a finished run.")],
    data: Annotated[Path, typer.Argument(help="Rows to be labelled, with the model's columns by name.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the labels; DATA.labels.parquet if not given.")
    ] = None,
    categories: opt.Categories = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Label rows at a site from a saved model. Nothing is sent anywhere."""
    from coterie.estimators.models import load_model
    from coterie.report.outputs import write_labels
    from coterie.sites.tables import open_table, scan_table

    fitted = load_model(model)
    if fitted.splits_columns:
        raise InputError(
            f"{model}: its columns are at several sites, so that no site can label rows by itself; in Python "
            "coterie.transform embeds the sites' new rows, and label_components labels them."
        )
    names = [str(name) for name in fitted.feature_names_in_]
    chosen = opt.categories_of(categories or ()) or _categories_in(names)
    columns = [(name.partition("=")[0], name) for name in names]
    raw = list(dict.fromkeys(column if column in chosen else name for column, name in columns))
    table = open_table(data, columns=raw, categories=chosen, name=data.name)
    own_columns = [column.name for column in table.columns]
    if own_columns != names:
        raise InputError(f"{data}: the model's columns are {', '.join(names)}; these are {', '.join(own_columns)}.")
    scan_table(table)
    target = out or data.with_name(data.name + ".labels.parquet")
    with _new_parquet(target, force, "labels") as path:
        n_rows, unlabelled = write_labels(fitted, table, path)
    if as_json:
        print_json({"rows": n_rows, "unlabelled": unlabelled, "labels": str(target)})
        return
    console.print(f"{n_rows - unlabelled:,} rows labelled in [bold]{target}[/].", soft_wrap=True)
    if unlabelled:
        tell(f"{unlabelled:,} rows miss values and got no label.")


@contextlib.contextmanager
def _new_parquet(path: Path, force: bool, what: str) -> Iterator[Path]:
    """A file to write to that takes its place at the end; nothing is overwritten unasked."""
    if path.suffix != ".parquet":
        raise InputError(f"{path}: {what} are written as Parquet; give a name that ends in .parquet.")
    if path.exists() and not force:
        raise InputError(f"{path} is already there; pass --force to overwrite it.")
    temporary = path.with_name(path.name + ".partial")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@site.command()
def preview(
    data: opt.OwnFile,
    clusters: opt.Clusters,
    method: opt.Method = "federated-kmeans",
    settings: opt.Settings = None,
    scale: opt.Scale = "none",
    missing: opt.Missing = "refuse",
    columns: opt.Columns = None,
    ignore: opt.Ignore = None,
    categories: opt.Categories = None,
    key: opt.Key = None,
    as_json: opt.AsJson = False,
) -> None:
    """What would I send? Plays a run with this one site, here, and shows every answer it would give.

    Nothing leaves this machine. In a real run the questions (centers, say) differ with the other sites' rows, the
    kinds of the answers do not; how many rounds there are may, and how much of a sample or budget is this site's.
    """
    job = Job(
        [str(data)],
        "",
        clusters,
        method,
        scale=scale,
        missing=missing,
        settings=opt.settings_of(settings),
        **opt.chosen(columns, ignore, categories, key),
    )
    answers = _played(job)
    if as_json:
        print_json(answers)
        return
    heads = ["question", "answer", "content", "times", "numbers", "bytes", "for example"]
    names = ("answer", "content", "times", "numbers", "bytes", "example")
    rows = [[a["asked"].rpartition(".")[2], *(str(a[name]) for name in names)] for a in answers]
    show_table(f"What {data.name} would send", heads, rows)
    tell("Numbers and bytes are totals over all times. Nothing was sent.")


def _played(job: Job) -> list[dict[str, Any]]:
    """Every kind of answer the job's one site gives, with its size and an example of its numbers."""
    from coterie.estimators.fitting import fit
    from coterie.methods.registry import METHODS
    from coterie.sites.policy import Policy, Protection

    estimator = job.estimator()
    job.check_key(estimator)
    shown: Protection = "none" if METHODS[estimator.method_name].needs_rows else "groups"
    with tempfile.TemporaryDirectory() as folder:
        fit(
            estimator,
            job.tables(),
            journal=Path(folder) / "journal",
            policy=replace(Policy.simulation(), protection=shown),
            sums="plain",
            scale=job.scale,  # type: ignore[arg-type]
            missing=job.missing,  # type: ignore[arg-type]
        )
        (book,) = (Path(folder) / "journal" / "sites").glob("*.jsonl")
        lines = [line for line in read_chain(book) if line["event"] == "answer"]
    kinds = []
    for (asked, answer), group in groupby(lines, lambda line: (line["asked"], line["answer"])):
        same = list(group)
        first = same[0]
        kinds.append(
            {
                "asked": asked,
                "answer": answer,
                "content": first["content"],
                "times": len(same),
                "numbers": sum(line["floats"] for line in same),
                "bytes": sum(line["bytes"] for line in same),
                "example": _example(first),
            }
        )
    return kinds


def _example(line: Mapping[str, Any]) -> str:
    """The first few numbers of an answer, read as float64 where that is what they are."""
    frame = base64.b64decode(line["frame"])
    start = codec.read_envelope(frame)[2] + 4
    payload = frame[start:-4]
    kind = request_type(line["asked"])
    are_floats = kind and all(
        item.array and item.array.dtype == "float64" for item in message_fields(reply_type(kind))
    )
    if not payload or not are_floats or len(payload) != 8 * line["floats"]:
        return f"{len(payload)} bytes" if payload else "nothing"
    numbers = np.frombuffer(payload, "<f8")
    return ", ".join(f"{value:.4g}" for value in numbers[:4]) + (", ..." if len(numbers) > 4 else "")


@site.command()
def tags(
    data: opt.OwnFile,
    key: Annotated[str, typer.Option(help="The column that names each row.")],
    policy: Annotated[str, typer.Option(help="The site's policy file, with its alignment_key.")],
    out: Annotated[Path, typer.Option(help="Where to write keys and tags, as Parquet.")],
    force: opt.Force = False,
) -> None:
    """The tag of every row, to find rows in what the center tells of them by tag.

    Nothing is sent; tags name rows only to who knows the sites' secret.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from coterie.methods.shared.alignment import row_tags
    from coterie.sites.policy_files import find_policy
    from coterie.sites.tables import read_keys

    secret = find_policy(policy).alignment_key
    if secret is None:
        raise InputError(f"{policy}: there is no alignment_key in it; `coterie policy secret` prints a new one.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out.parent}: there is no such folder.")
    with _new_parquet(out, force, "tags") as path:
        keys = read_keys(data, key)
        named = key if key != "tag" else "key"
        pq.write_table(pa.table({named: list(keys), "tag": pa.array(row_tags(keys, secret), pa.uint64())}), path)
    console.print(f"{len(keys):,} tags in [bold]{out}[/].", soft_wrap=True)


def _categories_in(names: list[str]) -> dict[str, list[str]]:
    """Categories as a model's one-hot columns spell them: ``sex=f``, ``sex=m``."""
    categories: dict[str, list[str]] = {}
    for name in names:
        column, sign, value = name.partition("=")
        if sign:
            categories.setdefault(column, []).append(value)
    return categories
