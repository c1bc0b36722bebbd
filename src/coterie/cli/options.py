"""The command groups, and the options that several commands share."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from coterie.cli.commands import Commands, ShowByDefault
from coterie.errors import InputError
from coterie.files import MEGABYTE, read_bounded

app = typer.Typer(
    cls=Commands,
    help="Cluster and embed data that cannot be pooled, and account for every byte that leaves a site.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 success, 1 a certificate that does not fit, 2 bad input, 3 a failed run (too few sites), "
    "4 a broken ledger, 130 interrupted.",
)


def _group(name: str, description: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    group = typer.Typer(cls=cls, help=description, no_args_is_help=True)
    app.add_typer(group, name=name)
    return group


site = _group(
    "site", "For data officers: what a site holds, would send and has sent; orders that wait; starting a site."
)
server = _group("server", "The server of a federation: it sends questions to sites and sums their answers.")
federation = _group("federation", "Try a federation of real processes on this machine, in one folder.")
policy = _group("policy", "Write, check and explain a site's policy.")
ledger = _group("ledger", "What left each site, and what the server saw of it.")
certificate = _group(
    "certificate",
    "Show what the sites of a run signed when it ended (coterie certificate RUN), and verify it.",
    ShowByDefault,
)

OwnFile = Annotated[Path, typer.Argument(help="This site's file.")]
SiteColumn = Annotated[str | None, typer.Option(help="Split one file into sites by this column.")]
Clusters = Annotated[
    str,
    typer.Option(
        "--clusters", "-k", help="Number of clusters; auto: the one that the rows support (federated-kmeans)."
    ),
]
ClusterRange = Annotated[str, typer.Option("--clusters", "-k", help="The numbers of clusters to judge: 2-15.")]
Method = Annotated[
    str, typer.Option(help="The method, such as federated-kmeans or landmarks; `coterie methods` lists all.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the method, such as gamma=4 (may be repeated).")
]
Scale = Annotated[
    str,
    typer.Option(
        help="none, standard (mean 0 and variance 1 over all sites; the categories of a text column together), "
        "columns (each category by itself, too), robust (by median and quartiles), or minmax (0 to 1, with --ranges)."
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        help="Missing values: refuse, mean (fill in the mean over all sites), or drop (leave their rows out)."
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        help="The plausible range of a column, for each of them: age=0,120 (may be repeated), or a TOML file with "
        "lines such as age = [0, 120]. Values outside are clipped at the sites, or refused with --scale minmax."
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Differential privacy: how much the result may depend on one row; the smaller, the more noise."
    ),
]
Delta = Annotated[
    float | None, typer.Option(help="With --epsilon: the probability with which it need not hold (default: 1e-6).")
]
Tolerated = Annotated[
    int | None,
    typer.Option(help="With --epsilon: sites that may drop out or collude without weakening it (default: 0)."),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="With --epsilon: row (the default), or the column that says whose row it is, to protect persons."
    ),
]
MaxShare = Annotated[
    float | None, typer.Option(help="The largest share of all rows that one site may hold to take part, such as 0.5.")
]
Halves = Annotated[
    bool, typer.Option("--halves", help="Compare the clusters of two halves of the sites, where policies allow it.")
]
Profile = Annotated[
    str | None,
    typer.Option(
        help="Describe the clusters by these columns, too, which they are not made of: age,sex. With --epsilon they "
        "are described only if this is given; all: by the columns that they are made of."
    ),
]
NoProfile = Annotated[
    bool, typer.Option("--no-profile", help="Do not ask the sites what is in the clusters: no profiles.csv.")
]
ShowRows = Annotated[
    bool,
    typer.Option(
        "--show-rows", help="Show a sample of rows on the map of report.html; only where all data is yours."
    ),
]
Columns = Annotated[str | None, typer.Option(help="Use only these columns, in this order: a,b,c.")]
Ignore = Annotated[str | None, typer.Option(help="Leave these columns out: id,name.")]
Categories = Annotated[
    list[str] | None,
    typer.Option(
        help="One-hot encode a column by these categories: sex=f,m (may be repeated). Text columns need none: sites "
        "agree on the values that enough rows hold. A name alone, such as ward, does so with a column of numbers."
    ),
]
Na = Annotated[
    list[str] | None,
    typer.Option(
        help="A value that stands for a missing one: chol=0 in one column, ? in all of them (may be repeated)."
    ),
]
Transform = Annotated[
    list[str] | None,
    typer.Option(help="Use the log, log1p or sqrt of a column, at each site: pm25=log (may be repeated)."),
]
NormaliseRows = Annotated[
    str | None, typer.Option(help="Divide the numbers of each row by their mean, or by their norm l1 or l2.")
]
CsvSeparator = Annotated[
    str | None, typer.Option(help="What separates the cells of CSV files (default: as found in each file).")
]
CsvDecimal = Annotated[
    str | None, typer.Option(help="The decimal sign of CSV files, . or , (default: as found in each file).")
]
CsvEncoding = Annotated[
    str | None, typer.Option(help="The encoding of CSV files, such as latin-1 (default: as found in each file).")
]
Key = Annotated[
    str | None, typer.Option(help="The column that identifies a row, where sites hold columns of the same rows.")
]
SitePolicy = Annotated[
    str | None,
    typer.Option("--policy", help="The site's policy: a file, private, strict, standard (default) or research."),
]
Kit = Annotated[Path, typer.Option(help="The start-up kit: a folder of `coterie enroll` or `coterie provision`.")]
Attempts = Annotated[
    int, typer.Option(min=1, help="Over a federation: how many jobs a run may take; it resumes after a dropout.")
]
Patience = Annotated[
    float, typer.Option(min=0, help="Over a federation: seconds to wait for sites or the server to come back.")
]
Resume = Annotated[bool, typer.Option(help="Resume an interrupted run.")]
Force = Annotated[bool, typer.Option(help="Overwrite an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

RowsPerUnit = Annotated[
    int | None, typer.Option(help="With --unit: how many rows of each person count, at most (default: 1).")
]


def check_new(path: Path, force: bool) -> None:
    """Refuse to overwrite a file without --force."""
    if path.exists() and not force:
        raise InputError(f"{path} already exists; pass --force to overwrite it.")


def clusters_of(text: str) -> int | str:
    """``"5"`` as 5; ``"auto"`` and ``"2-15"`` stay."""
    return int(text) if text.isdecimal() else text


def range_of(text: str) -> tuple[int, int]:
    """``"2-15"`` as (2, 15)."""
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal()):
        raise InputError(
            f"clusters={text!r}; it is a whole number of at least 1, auto, or numbers to judge, such as 2-15."
        )
    if int(low) > int(high):
        raise InputError(f"clusters={text!r}; the smallest number comes first: {high}-{low}.")
    return int(low), int(high)


def names_of(text: str) -> list[str]:
    """``"a, b"`` as ``["a", "b"]``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def categories_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """``["sex=f,m", "ward"]`` as ``{"sex": ["f", "m"], "ward": []}``: without values, sites agree on them."""
    categories: dict[str, list[str]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if bool(sign) != bool(values) or not name.strip():
            raise InputError(
                f"--categories {text!r} is not of the form COLUMN=VALUE,VALUE, such as sex=f,m, or a COLUMN alone."
            )
        categories |= {name.strip(): names_of(values)} if sign else {column: [] for column in names_of(name)}
    return categories


def ranges_of(texts: Sequence[str] | None) -> dict[str, list[float]] | None:
    """``["age=0,120"]`` as ``{"age": [0.0, 120.0]}``; a text without ``=`` is a TOML file of ranges."""
    ranges = {}
    for text in texts or ():
        name, sign, ends = text.rpartition("=")
        if not sign or (text.endswith(".toml") and Path(text).is_file()):
            ranges.update(read_ranges(Path(text)))
            continue
        try:
            ranges[name.strip()] = [float(end) for end in ends.split(",")]
        except ValueError:
            ranges[name.strip()] = []
        if not name or len(ranges[name.strip()]) != 2:
            raise InputError(f"--ranges {text!r} is not of the form COLUMN=LOW,HIGH, such as age=0,120.")
    return ranges or None


def read_ranges(path: Path) -> dict[str, Any]:
    """The ranges of columns in a TOML file."""
    try:
        return tomllib.loads(read_bounded(path, MEGABYTE).decode())
    except FileNotFoundError:
        raise InputError(
            f"ranges {str(path)!r}: there is no such file; give COLUMN=LOW,HIGH, such as age=0,120, or a TOML file "
            "with lines such as age = [0, 120]."
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{path}: this is not a TOML file of ranges such as age = [0, 120] ({problem}).") from None


def privacy_of(**given: Any) -> dict[str, Any] | None:
    """The options that were given for differential privacy, by the names of :class:`~coterie.Privacy`; or None."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen and "epsilon" not in chosen:
        option = min(chosen).replace("_", "-")
        raise InputError(f"--{option} goes with --epsilon; add --epsilon 1, or leave it out.")
    return chosen or None


def reads_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for reading files; it gets those that were given as ``**reading``, by the field
    names of ``Job`` and ``Holdings``."""
    own = inspect.signature(command, eval_str=True)
    options = list(inspect.signature(chosen, eval_str=True).parameters.values())
    parameters = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD] + options

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        reading = chosen(**{one.name: given.pop(one.name) for one in options})
        return command(**given, **reading)

    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def chosen(
    columns: Columns = None,
    ignore: Ignore = None,
    categories: Categories = None,
    key: Key = None,
    na: Na = None,
    transform: Transform = None,
    normalise_rows: NormaliseRows = None,
    csv_separator: CsvSeparator = None,
    csv_decimal: CsvDecimal = None,
    csv_encoding: CsvEncoding = None,
) -> dict[str, Any]:
    """The options that were given for reading a table, by the field names of ``Job`` and ``Holdings``."""
    options = {
        "columns": None if columns is None else names_of(columns),
        "ignore": None if ignore is None else names_of(ignore),
        "categories": categories_of(categories) if categories else None,
        "na": na_of(na) if na else None,
        "transforms": transforms_of(transform) if transform else None,
        "normalise_rows": normalise_rows,
        "csv_separator": "\t" if csv_separator in ("\\t", "tab") else csv_separator,
        "csv_decimal": csv_decimal,
        "csv_encoding": csv_encoding,
        "key": key,
    }
    return {name: value for name, value in options.items() if value is not None}


def na_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """``["chol=0", "?"]`` as ``{"chol": ["0"], "*": ["?"]}``."""
    codes: dict[str, list[str]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        codes.setdefault(name.strip() if sign else "*", []).extend(names_of(values if sign else text))
    return codes


def transforms_of(texts: Sequence[str]) -> dict[str, str]:
    """``["pm25=log"]`` as ``{"pm25": "log"}``."""
    transforms = {}
    for text in texts:
        name, sign, transform = text.rpartition("=")
        if not sign or not name:
            raise InputError(f"--transform {text!r} is not of the form COLUMN=TRANSFORM, such as pm25=log.")
        transforms[name.strip()] = transform.strip()
    return transforms


def profile_of(profile: str | None, no_profile: bool) -> bool | list[str] | None:
    """What was said of profiles, for ``Job.profile``."""
    if profile is not None and no_profile:
        raise InputError(f"--profile {profile} and --no-profile; use one of them.")
    if profile == "all":
        return True
    return False if no_profile else None if profile is None else names_of(profile)


def settings_of(given: Sequence[str] | None) -> dict[str, Any]:
    """Parameters by name; values are read as TOML, and as plain text where they are not TOML."""
    settings: dict[str, Any] = {}
    for setting in given or []:
        name, is_there, text = setting.partition("=")
        if not is_there or not name.strip():
            raise InputError(f"--set {setting!r} is not of the form NAME=VALUE, such as gamma=4.")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name.strip()] = text.strip()
    return settings
