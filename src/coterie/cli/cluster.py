"""Clustering one's own files: ``cluster``, ``run``, ``assign``, ``site preview``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.jobs import Job, read_job
from coterie.cli.terminal import Interrupted, console, print_json, show_table, watching
from coterie.errors import InputError

site = typer.Typer(help="What a site's owner wants to know before anything is sent.", no_args_is_help=True)

Data = Annotated[
    list[Path], typer.Argument(help="One file a site (Parquet, CSV, Arrow, npz), or one file with --site-column.")
]
SiteColumn = Annotated[str | None, typer.Option(help="The column that names each row's site, in one file.")]
Clusters = Annotated[int, typer.Option("--clusters", "-k", min=1, help="How many clusters.")]
Method = Annotated[
    str, typer.Option(help="federated-kmeans, lloyd, one-shot, landmarks (kernel k-means); `coterie methods`.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A parameter of the method: gamma=4, max_rounds=10 (may be repeated)."),
]
Scale = Annotated[
    str, typer.Option(help="none; standard: mean 0 and variance 1 over all sites, by sums; minmax: in job files.")
]
Missing = Annotated[str, typer.Option(help="Missing values: refuse, mean (fill with the mean over all sites), drop.")]
Columns = Annotated[str | None, typer.Option(help="Use these columns only, in this order: a,b,c.")]
Ignore = Annotated[str | None, typer.Option(help="Leave these columns out: id,name.")]
Categories = Annotated[
    list[str] | None, typer.Option(help="One-hot a text column over declared categories: sex=f,m (may be repeated).")
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        help="The sites' rules: strict, standard, research, a policy file, or simulation if all rows are yours "
        "(plain sums over rows). Default: standard; with --site-column, simulation.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="The column that names each row, where files hold columns of the same rows."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The run's public seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Resume = Annotated[bool, typer.Option(help="Go on with a run that was interrupted.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("cluster")(cluster)
    app.command("run")(run)
    app.command("assign")(assign)
    site.command("preview")(preview)
    site.command("tags")(tags)
    app.add_typer(site, name="site")


def cluster(
    data: Data,
    clusters: Clusters,
    site_column: SiteColumn = None,
    method: Method = "federated-kmeans",
    settings: Settings = None,
    scale: Scale = "none",
    missing: Missing = "refuse",
    columns: Columns = None,
    ignore: Ignore = None,
    categories: Categories = None,
    key: Key = None,
    policy: PolicyName = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the result; must not hold one already.")] = Path(
        "coterie-run"
    ),
    resume: Resume = False,
    as_json: AsJson = False,
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
        names_of(columns),
        names_of(ignore) or [],
        categories_of(categories),
        scale,
        missing,
        seed=seed,
        policy=policy,
        settings=_settings(settings),
        key=key,
    )
    _run(job, resume, as_json)


def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; docs/tutorial.md shows one.")],
    engine: Annotated[
        str, typer.Option(help="inprocess: files of this machine; nvflare: sites of a federation (needs --kit).")
    ] = "inprocess",
    kit: Annotated[Path | None, typer.Option(help="An analyst's start-up kit, with --engine nvflare.")] = None,
    attempts: Annotated[int, typer.Option(min=1, help="nvflare: how many jobs the run may take.")] = 5,
    patience: Annotated[float, typer.Option(min=0, help="nvflare: seconds to wait for who was lost.")] = 120.0,
    resume: Resume = False,
    as_json: AsJson = False,
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
    print_json(result) if as_json else show_result(job, result)


def _settings(given: list[str] | None) -> dict[str, Any]:
    """Parameters as TOML has them; what is no TOML value is a word."""
    found: dict[str, Any] = {}
    for one in given or []:
        name, is_there, text = one.partition("=")
        if not is_there or not name.strip():
            raise InputError(f"--set {one}: write it as NAME=VALUE, for example gamma=4.")
        try:
            found[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = text.strip()
    return found


def _run(job: Job, resume: bool, as_json: bool) -> None:
    try:
        with watching(quiet=as_json) as watch:
            result = job.run(resume=resume, watch=watch)
    except KeyboardInterrupt:
        kept = (Path(job.out) / "journal" / "header.json").exists()
        again = f"the journal in {job.out} is kept: run the same command with --resume to go on"
        raise Interrupted(again if kept else "nothing was sent or written") from None
    if as_json:
        print_json(result)
        return
    show_result(job, result)


def show_result(job: Job, result: dict[str, Any]) -> None:
    rows = [
        [str(i), f"{count:,.0f}", *(f"{value:.4g}" for value in center)]
        for i, (center, count) in enumerate(zip(result["centers"], result["counts"], strict=True))
    ]
    show_table(result["title"], ["cluster", "rows", *result["columns"]], rows, needed=3)
    console.print(result["summary"], highlight=False)
    empty = sum(count == 0 for count in result["counts"])
    if empty:
        console.print(f"{empty} of the clusters are empty: there may be fewer than you asked for.", highlight=False)
    console.print(f"Everything is in [bold]{job.out}/[/]; open [bold]{job.out}/report.html[/].", soft_wrap=True)


def assign(
    model: Annotated[Path, typer.Argument(help="model.json of a finished run.")],
    data: Annotated[Path, typer.Argument(help="Rows to be labelled, with the model's columns by name.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the labels; DATA.labels.parquet if not given.")
    ] = None,
    categories: Categories = None,
    force: Annotated[bool, typer.Option(help="Overwrite labels that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Label rows at a site from a saved model. Nothing is sent anywhere."""
    from coterie.estimators.models import load_model
    from coterie.report.outputs import write_labels
    from coterie.sites.tables import look_through, open_table

    fitted = load_model(model)
    if fitted.splits_columns:
        raise InputError(
            f"{model}: its columns are at several sites, so that no site can label rows by itself; in Python "
            "coterie.transform embeds the sites' new rows, and label_components labels them."
        )
    names = [str(name) for name in fitted.feature_names_in_]
    chosen = categories_of(categories) or _categories_in(names)
    raw = list(dict.fromkeys(_raw_column(name, chosen) for name in names))
    table = open_table(data, columns=raw, categories=chosen, name=data.name)
    found = [column.name for column in table.columns]
    if found != names:
        raise InputError(f"{data}: the model's columns are {', '.join(names)}; these are {', '.join(found)}.")
    look_through(table)
    target = out or data.with_name(data.name + ".labels.parquet")
    if target.suffix != ".parquet":
        raise InputError(f"{target}: labels are written as Parquet; give a name that ends in .parquet.")
    if target.exists() and not force:
        raise InputError(f"{target} is already there; pass --force to overwrite it.")
    temporary = target.with_name(target.name + ".partial")
    try:
        n_rows, unlabelled = write_labels(fitted, table, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if as_json:
        print_json({"rows": n_rows, "unlabelled": unlabelled, "labels": str(target)})
        return
    console.print(f"{n_rows - unlabelled:,} rows labelled in [bold]{target}[/].", soft_wrap=True)
    if unlabelled:
        console.print(f"{unlabelled:,} rows miss values and got no label.", highlight=False)


def preview(
    data: Annotated[Path, typer.Argument(help="This site's file.")],
    clusters: Clusters,
    method: Method = "federated-kmeans",
    settings: Settings = None,
    scale: Scale = "none",
    missing: Missing = "refuse",
    columns: Columns = None,
    ignore: Ignore = None,
    categories: Categories = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """What would I send? Plays a run with this one site, here, and shows every answer it would give.

    Nothing leaves this machine. In a real run the questions (centers, say) differ with the other sites' rows, the
    kinds of the answers do not; how many rounds there are may, and how much of a sample or budget is this site's.
    """
    from coterie.cli.previews import played

    job = Job(
        [str(data)],
        "",
        clusters,
        method,
        None,
        names_of(columns),
        names_of(ignore) or [],
        categories_of(categories),
        scale,
        missing,
        settings=_settings(settings),
        key=key,
    )
    answers = played(job)
    if as_json:
        print_json(answers)
        return
    heads = ["question", "answer", "content", "times", "numbers", "bytes", "for example"]
    rows = [
        [
            a["asked"].rpartition(".")[2],
            a["answer"],
            a["content"],
            str(a["times"]),
            str(a["numbers"]),
            str(a["bytes"]),
            a["example"],
        ]
        for a in answers
    ]
    show_table(f"What {data.name} would send", heads, rows)
    console.print("Numbers and bytes are totals over all times. Nothing was sent.", highlight=False)


def tags(
    data: Annotated[Path, typer.Argument(help="This site's file.")],
    key: Annotated[str, typer.Option(help="The column that names each row.")],
    policy: Annotated[str, typer.Option("--policy", help="The site's policy file, with its alignment_key.")],
    out: Annotated[Path, typer.Option(help="Where to write keys and tags, as Parquet.")],
    force: Annotated[bool, typer.Option(help="Overwrite a file that is there.")] = False,
) -> None:
    """The tag of every row, to find rows in what the center tells of them by tag.

    Nothing is sent; tags name rows only to who knows the sites' secret.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from coterie.protocols.alignment import row_tags
    from coterie.sites.policy_files import find_policy
    from coterie.sites.tables import read_keys

    secret = find_policy(policy).alignment_key
    if secret is None:
        raise InputError(f"{policy}: there is no alignment_key in it; `coterie policy secret` prints a new one.")
    if out.suffix != ".parquet":
        raise InputError(f"{out}: tags are written as Parquet; give a name that ends in .parquet.")
    if out.exists() and not force:
        raise InputError(f"{out} is already there; pass --force to overwrite it.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out.parent}: there is no such folder.")
    keys = read_keys(data, key)
    temporary = out.with_name(out.name + ".partial")
    named = key if key != "tag" else "key"
    pq.write_table(pa.table({named: list(keys), "tag": pa.array(row_tags(keys, secret), pa.uint64())}), temporary)
    temporary.replace(out)
    console.print(f"{len(keys):,} tags in [bold]{out}[/].", soft_wrap=True)


def names_of(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def categories_of(texts: list[str] | None) -> dict[str, list[str]]:
    found = {}
    for text in texts or []:
        name, sign, values = text.partition("=")
        if not sign or not values:
            raise InputError(f"--categories {text!r}: column=first,second,... is needed.")
        found[name.strip()] = [value.strip() for value in values.split(",")]
    return found


def _categories_in(names: list[str]) -> dict[str, list[str]]:
    """Categories as a model's one-hot columns spell them: ``sex=f``, ``sex=m``."""
    found: dict[str, list[str]] = {}
    for name in names:
        column, sign, value = name.partition("=")
        if sign:
            found.setdefault(column, []).append(value)
    return found


def _raw_column(name: str, categories: dict[str, list[str]]) -> str:
    column, sign, _ = name.partition("=")
    return column if sign and column in categories else name
