"""A clustering job: it is checked before anything is written, and its results are written when it has succeeded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

import msgspec
import numpy as np

from coterie.cli.options import range_of, read_ranges
from coterie.cli.problems import CommandLine, JobFile
from coterie.cli.run_state import Claimed, check_fingerprints
from coterie.errors import CoterieError, InputError, RunError
from coterie.messages.site_api import Table
from coterie.methods.shared.privacy import Privacy
from coterie.methods.shared.scales import SCALES
from coterie.runtime.events import EVENTS, EventFile, Write
from coterie.runtime.terms import Terms
from coterie.sites.logs import SiteLogs
from coterie.sites.tables.reading import Reading, category_of, raw_name, reading_of, transform_of
from coterie.sites.toml_files import read_toml
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.sites.policy import Policy

MISSING = ("refuse", "mean", "drop")
_ALIASES = {"n_clusters": "clusters", "random_state": "seed"}


@dataclass(frozen=True)
class Job(Reading):
    """The settings of a clustering: read from a file by `coterie run`, from options by `coterie cluster`."""

    words: ClassVar[CommandLine] = CommandLine()
    """How the interface in use names its options."""
    keeps_unlike: ClassVar[bool] = False
    """Whether a text column of which no value is a category is kept, to be described."""

    data: list[str] | dict[str, str] = field(default_factory=list)
    out: str = "coterie-run"
    clusters: int | str = 8
    """How many; ``auto``: the number that the rows support; ``2-15``: judge these numbers instead of clustering."""
    method: str = "federated-kmeans"
    site_column: str | None = None
    reading: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site what differs of how its file is read: ``na``, ``csv_separator``, ``csv_decimal``, ``csv_encoding``."""
    scale: str = "none"
    missing: str = "refuse"
    ranges: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None
    """Differential privacy: epsilon, and delta, tolerated and unit where they are not the default."""
    max_share: float | None = None
    halves: bool = False
    profile: bool | list[str] | None = None
    """Columns to describe clusters by that they are not made of, false for no profiles; default: none such, and no
    profiles in a private run, or where numbers of clusters are judged."""
    show_rows: bool = False
    """Whether the report shows a sample of rows: only under the policy simulation, where one owner holds all data."""
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    policy: str | dict[str, str] | None = None
    """A name or a file, for all sites or by site; default: standard, a private run's private, or simulation with a
    site column."""
    quorum: float = 1.0
    deadline: float | None = None
    key: str | None = None
    """The column that identifies each row, where sites hold columns of the same rows."""
    sums: str | None = None
    """``masked`` or ``plain``; by default masked, unless every policy is simulation."""
    sites: list[str] = field(default_factory=list)
    """The sites that must be connected before a run over a federation begins; default: those that are."""

    def __post_init__(self) -> None:
        for name, value, allowed in (("scale", self.scale, SCALES), ("missing", self.missing, MISSING)):
            if value not in allowed:
                raise InputError(f"{name}={value!r} is unknown; use {', '.join(allowed[:-1])} or {allowed[-1]}.")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed={self.seed} is out of range; use 0 to {2**32 - 1}.")
        for name in _ALIASES:
            if name in self.settings:
                raise InputError(f"settings has {name!r}; set {_ALIASES[name]!r} outside of settings instead.")
        if self.judged is None and self.clusters != "auto" and int(self.clusters) < 1:
            raise InputError(f"clusters={self.clusters!r}; use a whole number of at least 1.")
        if "privacy" in self.settings:
            raise InputError("settings has 'privacy'; pass --epsilon, or add a section [privacy] to the job file.")
        if self.privacy is not None:
            check_privacy(self.privacy)
        if self.sums not in (None, "masked", "plain"):
            raise InputError(f"sums={self.sums!r} is unknown; use 'masked' or 'plain'.")

    @property
    def judged(self) -> tuple[int, int] | None:
        """The smallest and the largest number of clusters that are judged; None where rows are to be clustered."""
        return range_of(self.clusters) if isinstance(self.clusters, str) and self.clusters != "auto" else None

    def scanned_tables(self) -> dict[str, tuple[Table, str]]:
        """Every site's table and the fingerprint of its rows; ``InputError`` if a table cannot be clustered."""
        from coterie.cli.inputs import Inputs, readings_of
        from coterie.estimators.given import level_rows, units_asked

        if not self.data:
            raise InputError("there is no data; give one file per site, or one file and its site column.")
        how, estimator = self.reading_with_described(), self.estimator()
        how.check()
        named = self.data if isinstance(self.data, dict) else named_files(self.data)
        is_split = bool(estimator.splits_columns)
        inputs = Inputs(self.words, self.keeps_missing, not is_split, self.key, self.keeps_unlike, self.besides())
        if self.site_column is not None:
            if len(named) != 1:
                raise InputError(f"a site column needs exactly one file, not {len(named)}.")
            (path,) = named.values()
            rules = {"": self._policy_of("")}
            unit, least = units_asked(estimator, rules).get(""), level_rows(estimator, rules)[""]
            return inputs.of_one_file(path, self.site_column, how, unit, least)
        rules, readings = self.policies(named), readings_of(how, self.reading, list(named))
        units, few = units_asked(estimator, rules), level_rows(estimator, rules)
        return inputs.of_files(named, readings, units, few, is_split=is_split)

    @property
    def keeps_missing(self) -> bool:
        """Whether rows may lack values."""
        return self.missing != "refuse" or self.privacy is not None

    def reading_with_described(self) -> Reading:
        """How files are read, with the columns that clusters are only described by."""
        how = reading_of(self)
        columns = None if how.columns is None else list(dict.fromkeys((*how.columns, *self.described)))
        return replace(how, columns=columns, ignore=[name for name in how.ignore if name not in self.described])

    @property
    def profiles_by(self) -> bool | list[str]:
        """What ``coterie.fit`` is asked for."""
        return self.privacy is None and self.judged is None if self.profile is None else self.profile

    @property
    def described(self) -> list[str]:
        """The columns that clusters are described by, and that are named for it."""
        return self.profile if isinstance(self.profile, list) else []

    def used_columns(self, tables: Mapping[str, Table]) -> list[str] | None:
        """The columns that clusters are made of, where tables hold others, too."""
        if not self.described or self.estimator().splits_columns:
            return None
        besides = self.besides()
        columns = (column.name for column in next(iter(tables.values())).columns)
        return [name for name in columns if raw_name(name, ()) not in besides and name not in besides]

    def besides(self) -> list[str]:
        """The columns that clusters are only described by."""
        return [name for name in self.described if name not in (self.columns or ())]

    def policies(self, sites: Iterable[str]) -> dict[str, Policy]:
        """Every site's policy."""
        sites = list(sites)
        for name in self.policy.keys() - set(sites) if isinstance(self.policy, dict) else ():
            raise InputError(f"policy names the site {name!r}, which is unknown; the sites are {', '.join(sites)}.")
        policies = {name: self._policy_of(name) for name in sites}
        if self.show_rows:
            check_shown(policies)
        return policies

    def _policy_of(self, site: str) -> Policy:
        from coterie.sites.policy_files import find_policy

        default = "standard" if self.privacy is None else "private"
        given = self.policy or (default if self.site_column is None else "simulation")
        return find_policy(given if isinstance(given, str) else given.get(site, default))

    def estimator(self) -> Any:
        from coterie.estimators.registry import choice_estimator, make_estimator

        parameters = {"random_state": self.seed, **self.settings}
        if self.privacy is not None:
            parameters["privacy"] = Privacy.of(self.privacy)
        if self.judged is not None:
            low, high = self.judged
            return choice_estimator(self.method, {"min_clusters": low, "max_clusters": high, **parameters})
        return make_estimator(self.method, {"n_clusters": self.clusters, **parameters})

    def run(self, *, resume: bool, watch: Write) -> dict[str, Any]:
        """Fit and write the results. Bad input leaves no files; a run that stops or is killed leaves its journal."""
        from coterie.estimators.fitting import fit

        out, estimator = Path(self.out), self.estimator()
        self.check_folder(out, resume)
        self.check_key(estimator)
        scanned = self.scanned_tables()
        tables = {name: table for name, (table, _) in scanned.items()}
        policies = self.policies(tables)
        asked = self.asked(estimator, tables, policies)
        terms = Terms(deadline=self.deadline, quorum=self.quorum)
        with Claimed(out) as claim:
            self.check_folder(out, resume)
            prints = {name: seen + _key_digest(policies[name]) for name, (_, seen) in scanned.items()}
            check_fingerprints(out / "journal", prints, resume=resume)
            with EventFile(out / EVENTS, watch) as events, SiteLogs(out / "journal" / "sites") as logs:
                try:
                    fitted = fit(
                        estimator, tables, journal=out / "journal", resume=resume, terms=terms, events=events, **asked
                    )
                except RunError as problem:
                    raise type(problem)(f"{problem} {logs.warnings()}".strip(), problem.outcomes) from None
                except (CoterieError, TypeError, ValueError) as problem:
                    claim.give_back()
                    if isinstance(problem, CoterieError):
                        raise
                    raise InputError(f"the settings cannot be used: {problem}") from None
            return self._written(out, fitted, tables, policies)

    def _written(
        self, out: Path, fitted: Any, tables: dict[str, Table], policies: dict[str, Policy]
    ) -> dict[str, Any]:
        from coterie.report.outputs import write_run

        forms = {name: form for name, table in tables.items() if (form := getattr(table, "form", ""))}
        return write_run(out, fitted, tables, asdict(self) | {"csv_forms": forms}, policies, show_rows=self.show_rows)

    def asked(self, estimator: Any, tables: Mapping[str, Table], policies: Mapping[str, Policy]) -> dict[str, Any]:
        """What ``coterie.fit`` is asked to do with these tables, by its parameters; nothing is sent."""
        from coterie.estimators.fitting import columns_described

        if estimator.splits_columns and self.scale == "minmax":
            raise InputError(f"scale='minmax' and {self.method}: sites hold different columns; use 'standard'.")
        used = self.used_columns(tables)
        names = [column.name for column in next(iter(tables.values())).columns] if used is None else used
        described = [column.name for column in columns_described(self.profiles_by, tables)]
        return {
            "ranges": self.ranges_of(names, [name for name in described if name not in names]),
            "policy": policies,
            "sums": self.sums or ("masked" if estimator.splits_columns else sums_of(policies)),
            "scale": self.scale,
            "missing": self.missing,
            "max_share": self.max_share,
            "halves": self.halves,
            "columns": used,
            "profile": self.profiles_by,
            "key": self.key,
        }

    def check_folder(self, out: Path, resume: bool, kept: str = "journal") -> None:
        """Refuse a folder that cannot hold this run; an unfinished run has the file ``kept``."""
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file; --out needs a folder.")
        if (out / "result.json").exists():
            raise InputError(f"{out} already holds a finished run; choose another folder.")
        if (out / kept).exists() and not resume:
            raise InputError(f"{out} holds an unfinished run; pass --resume, or choose another folder.")
        if resume and not (out / kept).exists():
            raise InputError(f"{out} holds no run to resume; run without --resume.")

    def check_key(self, estimator: Any) -> None:
        """Refuse a key or a site column that does not suit the method."""
        if self.key is not None and not estimator.splits_columns:
            raise InputError(f"{self.method} does not match rows by key; leave {self.key!r} out with --ignore.")
        if estimator.splits_columns and self.show_rows:
            raise InputError(f"--show-rows: with {self.method} no site holds whole rows to show; leave it out.")
        if estimator.splits_columns and self.site_column is not None:
            raise InputError(f"{self.method} needs one file per site with its own columns, and no site column.")

    def ranges_of(self, names: Iterable[str], besides: Iterable[str] = ()) -> tuple[list[float], list[float]] | None:
        """The declared lows and highs of these columns, in a private run followed by those of others ``besides``;
        None where none are declared and the scale needs none."""
        from coterie.sites.tables.phrases import listed

        names, declared = [*names, *(besides if self.privacy else ())], self.ranges or {}
        if self.scale != "minmax" and not declared and self.privacy is None:
            return None
        for name, ends in declared.items():
            numbers = isinstance(ends, list) and all(isinstance(v, int | float) for v in ends)
            if not numbers or len(ends) != 2 or not ends[0] <= ends[1]:
                raise InputError(f"the range of {name!r} is {ends!r}; give [low, high] with low <= high.")
        found = {name: ends for name in names if (ends := declared_range(name, declared)) is not None}
        missing = [name for name in names if name not in found]
        if missing:
            why = "scale='minmax'" if self.scale == "minmax" else "a run with ranges"
            raise InputError(
                f"{'differential privacy' if self.privacy else why} needs a range for every column, and "
                f"{listed(missing)} {'has' if len(missing) == 1 else 'have'} none; pass --ranges "
                f"{missing[0]}=LOW,HIGH, a TOML file with lines such as {missing[0]} = [LOW, HIGH] (--ranges "
                "ranges.toml), or add it to the job file (ranges = { column = [low, high] })."
            )
        for name in sorted(declared.keys() - {*names, *(raw_name(name, ()) for name in names)}):
            raise InputError(f"ranges names the column {name!r}, which is none of {', '.join(names)}.")
        return [found[name][0] for name in names], [found[name][1] for name in names]


def declared_range(name: str, declared: Mapping[str, list[float]]) -> list[float] | None:
    """The range of a table's column: declared, that of the column it is a transform of, or 0 to 1 of a category."""
    from coterie.sites.tables.transforms import transformed

    if name in declared:
        return declared[name]
    transform = transform_of(name)
    if transform is not None and transform[0] in declared:
        ends = transformed(np.array(declared[transform[0]], np.float64), transform[1])
        if not np.isfinite(ends).all():
            raise InputError(
                f"the range of {transform[0]!r} is {declared[transform[0]]!r}, and an end has no {transform[1]}; "
                "give another one, or use another transform."
            )
        return [float(end) for end in ends]
    return [0.0, 1.0] if category_of(name) else None


class FileJob(Job):
    """A job that was read from a file."""

    words: ClassVar[CommandLine] = JobFile()


def check_privacy(privacy: Mapping[str, Any]) -> None:
    """Raise what is wrong with what was said of differential privacy, before a file is opened."""
    if "epsilon" not in privacy:
        raise InputError("[privacy] needs epsilon; add epsilon = 1, for example.")
    Privacy.of(privacy)


def check_shown(policies: Mapping[str, Policy]) -> None:
    """Refuse to show rows unless one owner holds all data."""
    from coterie.sites.policy import Policy

    others = [name for name, policy in policies.items() if policy != Policy.simulation()]
    if others:
        raise InputError(
            f"--show-rows shows rows of {', '.join(others)}, whose policy protects them; leave it out. If all files "
            f"are "
            "yours, pass --policy simulation (in a job file: policy = 'simulation')."
        )


def sums_of(policies: Mapping[str, Policy]) -> Literal["masked", "plain"]:
    """Plain sums if every policy is simulation; otherwise masked sums, which need enough sites."""
    from coterie.sites.policy import Policy

    if all(policy == Policy.simulation() for policy in policies.values()):
        return "plain"
    smallest = max(policy.min_roster for policy in policies.values())
    if len(policies) < smallest:
        raise InputError(
            f"{count_of(len(policies), 'site')} cannot form a masked sum: the policies require at least {smallest} "
            "sites per sum (min_roster). If all files are yours, pass --policy simulation "
            "(in a job file: policy = 'simulation')."
        )
    return "masked"


def _key_digest(policy: Policy) -> str:
    """A digest of the policy's alignment_key; empty without one."""
    secret = policy.alignment_key
    return "" if secret is None else "-" + hashlib.blake2b(secret, digest_size=8, person=b"alignment").hexdigest()


def named_files(paths: list[str]) -> dict[str, str]:
    """Files by site: a site is named after its file, without the suffix."""
    named: dict[str, str] = {}
    for path in paths:
        name = Path(path).name.split(".")[0]
        if name in named:
            raise InputError(f"{named[name]} and {path} would both be site {name!r}; rename one of them.")
        named[name] = path
    return named


def read_job(path: Path, *, needs_data: bool = True) -> Job:
    """A job from a TOML file. Over a federation it needs no data: sites use their own."""
    hints = get_type_hints(Job)
    kinds = {item.name: hints[item.name] for item in fields(Job)}
    raw = read_toml(path, kinds)
    if isinstance(raw.get("data"), str):
        raw["data"] = [raw["data"]]
    if isinstance(raw.get("ranges"), str):
        raw["ranges"] = read_ranges(path.parent / raw["ranges"])
    for key, value in raw.items():
        try:
            msgspec.convert(value, kinds[key])
        except msgspec.ValidationError as problem:
            reason = str(problem).replace(" | null", "").replace("object", "table")  # in TOML's terms
            raise InputError(f"{path}: {key} = {value!r}: {reason}.") from None
    if "clusters" not in raw:
        raise InputError(f"{path}: clusters is missing; add clusters = 5, for example.")
    if "data" not in raw and needs_data:
        raise InputError(f"{path}: data is missing; add data = ['a.csv', 'b.csv'], or a table of site = 'file'.")
    for key in ("data", "out", "policy"):
        if key in raw:
            raw[key] = _placed(raw[key], path.parent, is_policy=key == "policy")
    return FileJob(**raw)


def _placed(given: Any, folder: Path, *, is_policy: bool) -> Any:
    """Paths relative to the job file's folder; the name of a built-in policy stays a name."""
    if isinstance(given, dict):
        return {site: _placed(text, folder, is_policy=is_policy) for site, text in given.items()}
    if isinstance(given, list):
        return [_placed(text, folder, is_policy=is_policy) for text in given]
    return given if is_policy and not (folder / given).is_file() else str(folder / given)
