"""A clustering job: checked before anything is written, run, and written when it has succeeded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import msgspec
import numpy as np

from coterie.cli.run_lock import Claimed, SiteWords, check_fingerprints
from coterie.errors import CoterieError, InputError, MissingValues, RunError
from coterie.messages.site_api import Table, keys_of
from coterie.runtime.events import EVENTS, EventFile, Write
from coterie.runtime.terms import Terms
from coterie.sites.logs import SiteLogs
from coterie.sites.toml_files import read_toml
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.sites.policy import Policy

SCALES = ("none", "standard", "minmax")
MISSING = ("refuse", "mean", "drop")
_ALIASES = {"n_clusters": "clusters", "random_state": "seed"}


@dataclass
class Job:
    """Everything that decides a clustering: what `coterie run` reads from a file, `cluster` from its options."""

    data: list[str] | dict[str, str] = field(default_factory=list)
    out: str = "coterie-run"
    clusters: int = 8
    method: str = "federated-kmeans"
    site_column: str | None = None
    columns: list[str] | None = None
    ignore: list[str] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    scale: str = "none"
    missing: str = "refuse"
    ranges: dict[str, Any] | None = None
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    policy: str | dict[str, str] | None = None
    """A name or a file, for all sites or by site; by default standard, and simulation with a site column."""
    quorum: float = 1.0
    deadline: float | None = None
    key: str | None = None
    """The column that names each row, where sites hold columns of the same rows."""
    sums: str | None = None
    """``masked`` or ``plain``; by default as the policies have it, over a federation masked."""
    sites: list[str] = field(default_factory=list)
    """Who must be connected before a run over a federation begins; without any, whoever is."""

    def __post_init__(self) -> None:
        for name, value, allowed in (("scale", self.scale, SCALES), ("missing", self.missing, MISSING)):
            if value not in allowed:
                raise InputError(f"{name}={value!r}; it is one of {', '.join(allowed)}.")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed={self.seed}; it is a whole number from 0 to {2**32 - 1}.")
        for name in _ALIASES:
            if name in self.settings:
                raise InputError(f"settings has {name!r}; say it as {_ALIASES[name]!r} outside of settings.")
        if self.clusters < 1:
            raise InputError(f"clusters={self.clusters!r}; a whole number, at least 1, is needed.")
        if self.sums not in (None, "masked", "plain"):
            raise InputError(f"sums={self.sums!r} is neither 'masked' nor 'plain'.")

    def tables(self) -> dict[str, Table]:
        """Every site's table, opened and looked through once: what cannot be clustered is said here."""
        return {name: table for name, (table, _) in self._looked_at().items()}

    def _looked_at(self) -> dict[str, tuple[Table, str]]:
        """Every site's table and the fingerprint of its rows."""
        from coterie.sites.tables import open_table, split_by_site

        if not self.data:
            raise InputError("no data; name one file a site, or one file and its site column.")
        options = self._chosen()
        named = self.data if isinstance(self.data, dict) else named_files(self.data)
        if self.site_column is not None:
            if len(named) != 1:
                raise InputError(f"a site column goes with one file, not {len(named)}.")
            (path,) = named.values()
            tables: dict[str, Table] = dict(split_by_site(path, self.site_column, **options))
        else:
            by_site = self._chosen_by_site(named) if self._splits_columns else dict.fromkeys(named, options)
            tables = {
                name: open_table(path, name=Path(path).name, key=self.key, **by_site[name])
                for name, path in named.items()
            }
        return {name: (table, self._look_through(table)) for name, table in tables.items()}

    @property
    def _splits_columns(self) -> bool:
        return bool(self.estimator().splits_columns)

    def _chosen(self) -> dict[str, Any]:
        return {"columns": self.columns, "ignore": self.ignore, "categories": self.categories}

    def _chosen_by_site(self, named: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Where every file has columns of its own: what is said of a column holds where it is."""
        from coterie.sites.tables import read_columns

        there = {site: {column.name for column in read_columns(path)} for site, path in named.items()}
        for name in (*(self.columns or ()), *self.ignore, *self.categories):
            if not any(name in own for own in there.values()):
                raise InputError(f"there is no column {name!r} in any of the files.")
        return {
            site: {
                "columns": None if self.columns is None else [name for name in self.columns if name in own],
                "ignore": [name for name in self.ignore if name in own],
                "categories": {name: values for name, values in self.categories.items() if name in own},
            }
            for site, own in there.items()
        }

    def _look_through(self, table: Table) -> str:
        """One pass over the rows, so that what cannot be used is named before anything is sent; their fingerprint."""
        from coterie.sites.tables import scan_table

        missing, seen = scan_table(table)
        if self.missing == "refuse" and missing.any():
            place, name = int(np.argmax(missing > 0)), getattr(table, "name", "table")
            values = count_of(int(missing[place]), "missing value")
            raise MissingValues(
                f"{name}: column {table.columns[place].name!r} holds {values}; "
                "pass --missing mean to fill them"
                f"{'' if self._splits_columns else ', or --missing drop to leave their rows out'}."
            )
        keys = keys_of(table)
        return seen if keys is None else f"{seen}-{hashlib.blake2b(repr(keys).encode(), digest_size=8).hexdigest()}"

    def policies(self, sites: Iterable[str]) -> dict[str, Policy]:
        """Every site's rules."""
        from coterie.sites.policy_files import find_policy

        given = self.policy or ("standard" if self.site_column is None else "simulation")
        if isinstance(given, str):
            return dict.fromkeys(sites, find_policy(given))
        for name in given.keys() - set(sites):
            raise InputError(f"policy names a site {name!r}; there are {', '.join(sites)}.")
        return {name: find_policy(given.get(name, "standard")) for name in sites}

    def estimator(self) -> Any:
        from coterie.estimators.registry import make_estimator

        return make_estimator(self.method, {"n_clusters": self.clusters, "random_state": self.seed, **self.settings})

    def declared(self) -> dict[str, Any]:
        """The job as plain values, for the result file."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def run(self, *, resume: bool, watch: Write) -> dict[str, Any]:
        """Fit and write everything; on bad input nothing stays behind, on a stop or a kill the journal does."""
        from coterie.estimators.fitting import fit
        from coterie.report.outputs import write_run
        from coterie.report.vertical import write_vertical_run

        out = Path(self.out)
        self.check_folder(out, resume)
        estimator = self.estimator()
        self.check_key(estimator)
        looked_at = self._looked_at()
        tables = {name: table for name, (table, _) in looked_at.items()}
        if estimator.splits_columns and self.scale == "minmax":
            raise InputError("scale 'minmax' takes ranges in common; each site scales its own columns by 'standard'.")
        names = [column.name for column in next(iter(tables.values())).columns]
        ranges, terms = self.ranges_of(names), Terms(deadline=self.deadline, quorum=self.quorum)
        policies = self.policies(tables)
        sums: Any = self.sums or ("masked" if estimator.splits_columns else _sums(policies))
        with Claimed(out) as claim, SiteWords() as words:
            self.check_folder(out, resume)
            seen = {name: fingerprint + _mark(policies[name]) for name, (_, fingerprint) in looked_at.items()}
            check_fingerprints(out / "journal", seen, resume=resume)
            with EventFile(out / EVENTS, watch) as events, SiteLogs(out / "journal" / "sites"):
                try:
                    fitted = fit(
                        estimator,
                        tables,
                        journal=out / "journal",
                        resume=resume,
                        policy=policies,
                        sums=sums,
                        scale=self.scale,  # type: ignore[arg-type]
                        missing=self.missing,  # type: ignore[arg-type]
                        ranges=ranges,
                        key=self.key,
                        terms=terms,
                        events=events,
                    )
                except RunError as problem:
                    raise type(problem)(f"{problem} {words.said()}".strip(), problem.outcomes) from None
                except (CoterieError, TypeError, ValueError) as problem:
                    claim.give_back()
                    if isinstance(problem, CoterieError):
                        raise
                    raise InputError(f"the settings cannot be used: {problem}") from None
            if estimator.splits_columns:
                return write_vertical_run(out, fitted, tables, policies, self.declared())
            return write_run(out, fitted, tables, self.declared())

    def check_folder(self, out: Path, resume: bool, kept: str = "journal") -> None:
        """Say what keeps the folder from holding this run; ``kept`` is what an unfinished one leaves there."""
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: this is a file; --out names a folder.")
        if (out / "result.json").exists():
            raise InputError(f"{out} already holds a finished run; choose another folder for this one.")
        if (out / kept).exists() and not resume:
            raise InputError(f"{out} holds a run that was not finished; pass --resume, or choose another folder.")
        if resume and not (out / kept).exists():
            raise InputError(f"{out} holds no run to resume; leave --resume out.")

    def check_key(self, estimator: Any) -> None:
        """Say what does not go with columns of the same rows, or only with these."""
        if self.key is not None and not estimator.splits_columns:
            raise InputError(f"{self.method} matches no rows by key; leave {self.key!r} out with --ignore instead.")
        if estimator.splits_columns and self.site_column is not None:
            raise InputError(
                f"{self.method} takes one file a site, each with columns of its own, and no site column."
            )

    def ranges_of(self, names: Iterable[str]) -> tuple[list[float], list[float]] | None:
        """The declared ranges of these columns, where rows are scaled by them."""
        names = list(names)
        if self.scale != "minmax":
            return None
        for name in names:
            declared = (self.ranges or {}).get(name)
            if declared is None:
                raise InputError(
                    f"scale 'minmax' needs a declared range for every column; there is none for {name!r} "
                    "(ranges = { column = [low, high] } in a job file)."
                )
            numbers = isinstance(declared, list) and all(isinstance(v, int | float) for v in declared)
            if not numbers or len(declared) != 2 or not declared[0] <= declared[1]:
                raise InputError(f"the range of {name!r} is {declared!r}; [low, high] is needed, low <= high.")
        assert self.ranges is not None
        return [self.ranges[name][0] for name in names], [self.ranges[name][1] for name in names]


def _sums(policies: Mapping[str, Policy]) -> Literal["masked", "plain"]:
    """Plain sums where every site is played by one owner; masked ones, and enough sites for them, otherwise."""
    from coterie.sites.policy import Policy

    if all(policy == Policy.simulation() for policy in policies.values()):
        return "plain"
    smallest = max(policy.min_roster for policy in policies.values())
    if len(policies) < smallest:
        raise InputError(
            f"{count_of(len(policies), 'site')}: by their policy no sum is over fewer than {smallest}, since it "
            "would tell too much of each. If all files are yours, pass --policy simulation "
            "(in a job file: policy = 'simulation')."
        )
    return "masked"


def _mark(policy: Policy) -> str:
    """Tells one alignment_key from another; none is nothing."""
    secret = policy.alignment_key
    return "" if secret is None else "-" + hashlib.blake2b(secret, digest_size=8, person=b"alignment").hexdigest()


def named_files(paths: list[str]) -> dict[str, str]:
    """Files by the names their sites go by: the file's name without its ending."""
    named: dict[str, str] = {}
    for path in paths:
        name = Path(path).name.split(".")[0]
        if name in named:
            raise InputError(f"{named[name]} and {path} would both be site {name!r}; give the files different names.")
        named[name] = path
    return named


def read_job(path: Path, *, needs_data: bool = True) -> Job:
    """A job from a TOML file; an unknown key is an error that names the nearest valid one. Over a federation it needs
    no data: sites bring their own."""
    kinds = get_type_hints(Job)
    raw = read_toml(path, kinds)
    if isinstance(raw.get("data"), str):
        raw["data"] = [raw["data"]]
    for key, value in raw.items():
        try:
            msgspec.convert(value, kinds[key])
        except msgspec.ValidationError as problem:
            words = str(problem).replace(" | null", "").replace("object", "table")  # as TOML has it
            raise InputError(f"{path}: {key} = {value!r}: {words}.") from None
    if "clusters" not in raw:
        raise InputError(f"{path}: clusters is missing; clusters = 5, say")
    if "data" not in raw and needs_data:
        raise InputError(f"{path}: data is missing; data = ['a.csv', 'b.csv'], or a table of site = 'file'")
    for key in ("data", "out", "policy"):
        if key in raw:
            raw[key] = _placed(raw[key], path.parent, is_policy=key == "policy")
    return Job(**raw)


def _placed(given: Any, folder: Path, *, is_policy: bool) -> Any:
    """Paths in a job file are meant from where the file lies; a policy by name stays a name."""
    if isinstance(given, dict):
        return {site: _placed(text, folder, is_policy=is_policy) for site, text in given.items()}
    if isinstance(given, list):
        return [_placed(text, folder, is_policy=is_policy) for text in given]
    return given if is_policy and not (folder / given).is_file() else str(folder / given)
