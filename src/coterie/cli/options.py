"""The groups of commands, and what several commands take."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.plugins import Commands
from coterie.errors import InputError

app = typer.Typer(
    cls=Commands,
    help="Cluster and embed data that cannot be pooled, at a known cost in bytes and a known loss of privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 2 bad input, 3 a run stopped (too few sites), 4 a ledger is broken, 130 interrupted.",
)


def _group(name: str, about: str) -> typer.Typer:
    group = typer.Typer(help=about, no_args_is_help=True)
    app.add_typer(group, name=name)
    return group


site = _group("site", "What a site's owner wants to know before anything is sent.")
server = _group("server", "The center of a federation: carries questions and adds answers up.")
federation = _group("federation", "A federation of real processes on this machine, in one folder, to try it out.")
policy = _group("policy", "A site's rules: write, check and explain them.")
ledger = _group("ledger", "What left, and what the server saw of it.")

OwnFile = Annotated[Path, typer.Argument(help="This site's file.")]
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
Key = Annotated[
    str | None,
    typer.Option(help="The column that names each row, where files hold columns of the same rows."),
]
SitePolicy = Annotated[
    str | None,
    typer.Option("--policy", help="The site's rules: a policy file, or strict, standard (the default), research."),
]
Kit = Annotated[Path, typer.Option(help="The start-up kit's folder, as `coterie provision` made it.")]
Attempts = Annotated[
    int,
    typer.Option(min=1, help="Over a federation: how many jobs a run may take; after a loss it is taken up again."),
]
Patience = Annotated[
    float, typer.Option(min=0, help="Over a federation: seconds to wait for sites or the server to come back.")
]
Resume = Annotated[bool, typer.Option(help="Go on with a run that was interrupted.")]
Force = Annotated[bool, typer.Option(help="Overwrite a file that is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def names_of(text: str) -> list[str]:
    """``a, b`` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def categories_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """``sex=f,m`` as a dict."""
    categories = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not values:
            raise InputError(f"--categories {text!r}: column=first,second,... is needed.")
        categories[name.strip()] = [value.strip() for value in values.split(",")]
    return categories


def chosen(
    columns: str | None, ignore: str | None, categories: Sequence[str] | None, key: str | None
) -> dict[str, Any]:
    """What was said of a table's columns, under the names that jobs and sites' holdings have for it."""
    options: dict[str, Any] = {} if key is None else {"key": key}
    if columns is not None:
        options["columns"] = names_of(columns)
    if ignore is not None:
        options["ignore"] = names_of(ignore)
    if categories:
        options["categories"] = categories_of(categories)
    return options


def settings_of(given: Sequence[str] | None) -> dict[str, Any]:
    """Parameters as TOML has them; what is no TOML value is a word."""
    settings: dict[str, Any] = {}
    for setting in given or []:
        name, is_there, text = setting.partition("=")
        if not is_there or not name.strip():
            raise InputError(f"--set {setting}: write it as NAME=VALUE, for example gamma=4.")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name.strip()] = text.strip()
    return settings
