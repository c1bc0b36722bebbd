"""The tables of a job's files: read as the job says, checked as a whole, and told of in one message if not usable."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from coterie.cli.problems import CommandLine, message
from coterie.errors import InputError
from coterie.messages.site_api import Table
from coterie.sites.tables import (
    Problem,
    Reading,
    Remedy,
    Scan,
    TableProblems,
    examined,
    examined_by_site,
    read_columns,
)
from coterie.sites.tables.encoders import PANDAS_INDEX
from coterie.sites.tables.levels import unlike
from coterie.sites.tables.opening import named_levels
from coterie.sites.tables.reading import raw_name
from coterie.text import count_of, nearest_name

OF_A_SITE = ("na", "csv_separator", "csv_decimal", "csv_encoding")
"""How a site's own file may be read in another way than the others."""


@dataclass
class Inputs:
    """The files of a job."""

    words: CommandLine
    keeps_missing: bool
    """Whether rows may lack values."""
    can_drop: bool = True
    key: str | None = None
    keeps_unlike: bool = False
    """Whether a text column of which no value is a category is kept."""
    besides: Collection[str] = ()
    """Columns that may lack values in any case."""
    problems: list[Problem] = field(default_factory=list)

    def of_files(
        self,
        files: Mapping[str, str],
        readings: Mapping[str, Reading],
        units: Mapping[str, str],
        least: Mapping[str, int | None],
        *,
        is_split: bool,
    ) -> dict[str, tuple[Table, str]]:
        """The table of each site and the fingerprint of its rows; with ``is_split`` sites hold other columns.

        ``least`` is how many rows of a site must hold a text for the site to name it as a category; None: it names
        none.
        """
        held = {site: names for site in files if (names := self._held(files[site], readings[site])) is not None}
        self._check_names(readings, held)
        if not is_split:
            readings = self._same_columns(files, readings, held, units)
        own = {site: readings[site].for_columns(names) for site, names in held.items()}
        levels = self._levels(files, own, units, least)
        tables = {}
        for site, names in held.items():
            name, unit = Path(files[site]).name, units.get(site)
            try:
                table, problems = examined(files[site], own[site], levels, key=self.key, unit=unit, name=name)
            except InputError as problem:
                self._add(problem, files[site])
                continue
            tables[site] = self._scanned(table, problems, names)
        self.check()
        return tables

    def of_one_file(
        self, path: str, site_column: str, how: Reading, unit: str | None, least: int | None
    ) -> dict[str, tuple[Table, str]]:
        """The tables of the sites that a column names."""
        name, keeps = Path(path).name, self.keeps_unlike
        tables, problems = examined_by_site(
            path, site_column, how, unit=unit, name=name, least=least, keeps_unlike=keeps
        )
        self.problems += problems
        scanned = {site: self._scanned(table, (), how.named) for site, table in tables.items()}
        self.check()
        return scanned

    def check(self) -> None:
        """Raise all that is wrong."""
        if self.problems:
            raise InputError(message(self.problems, self.words, can_drop=self.can_drop))

    def _levels(
        self,
        files: Mapping[str, str],
        readings: Mapping[str, Reading],
        units: Mapping[str, str],
        least: Mapping[str, int | None],
    ) -> dict[str, tuple[str, ...]]:
        """The categories of text columns that sites agree on."""
        chosen = dict(readings)
        for site in readings:
            for column in filter(None, (self.key, units.get(site))):
                chosen[site] = chosen[site].without(column)
        names = {site: Path(path).name for site, path in files.items()}
        levels, problems = named_levels({site: files[site] for site in readings}, chosen, least, names)
        self.problems += problems if self.keeps_unlike else [*problems, *unlike(levels)]
        return levels

    def _held(self, path: str, how: Reading) -> list[str] | None:
        """The columns of a file; None if it cannot be read."""
        try:
            return [column.name for column in read_columns(path, replace(how, na={}))]
        except InputError as problem:
            self._add(problem, path)
        return None

    def _add(self, problem: InputError, path: str) -> None:
        if isinstance(problem, TableProblems):
            self.problems += problem.problems
            return
        text = str(problem)
        table = next((name for name in (path, Path(path).name) if text.startswith(f"{name}: ")), "")
        self.problems.append(Problem(table or Path(path).name, text.removeprefix(f"{table}: ")))

    def _check_names(self, readings: Mapping[str, Reading], held: Mapping[str, list[str]]) -> None:
        """Every name must be one of a column of some file."""
        there = list(dict.fromkeys(name for names in held.values() for name in names))
        for name in dict.fromkeys(name for how in readings.values() for name in how.named):
            if held and name not in there:
                self.problems.append(
                    Problem("", f"there is no column {name!r} in any of the files{nearest_name(name, there)}")
                )

    def _same_columns(
        self,
        files: Mapping[str, str],
        readings: Mapping[str, Reading],
        held: Mapping[str, list[str]],
        units: Mapping[str, str],
    ) -> dict[str, Reading]:
        """The readings for the columns that all files share, in the first one's order; others are a problem."""
        usable = {site: self._usable(names, readings[site], units.get(site)) for site, names in held.items()}
        every = list(dict.fromkeys(name for names in usable.values() for name in names))
        shared = [name for name in every if all(name in names for names in usable.values())]
        given = next(iter(readings.values())).columns
        left = [column for column in given or shared if column in shared]
        if not left:
            what = "no column is" if given is None else f"none of the columns {', '.join(given)} is"
            raise InputError(f"{what} in all of the files {', '.join(Path(files[site]).name for site in held)}.")
        for name in every:
            lacking = [Path(files[site]).name for site, names in usable.items() if name not in names]
            if lacking:
                fault = f"column {name!r} is not in {', '.join(lacking)}"
                having = next(Path(files[site]).name for site, names in usable.items() if name in names)
                advice = f"to use the columns that all files have: {self.words.names('columns', left)}"
                escaped = advice.replace("{", "{{").replace("}", "}}")
                self.problems.append(Problem(having, fault, escaped, Remedy.SELECT, name, tuple(left)))
        if any("" in names for names in usable.values()):
            return dict(readings)
        return {
            site: replace(how, columns=left, transforms={c: t for c, t in how.transforms.items() if c in left})
            for site, how in readings.items()
        }

    def _usable(self, names: list[str], how: Reading, unit: str | None) -> list[str]:
        """The columns of a file that the job may use, in its order or in the job's."""
        if how.columns is not None:
            return [name for name in how.columns if name in names]
        left_out = {*how.ignore, self.key, unit}
        return [name for name in names if name not in left_out and not PANDAS_INDEX.fullmatch(name)]

    def _scanned(self, table: Any, problems: Any, names: list[str]) -> tuple[Table, str]:
        """A table and the fingerprint of its rows, after a look at all values."""
        scan, told = Scan(table), {problem.column for problem in problems}
        known = {problem.column for problem in self.problems if not problem.table}  # of several files
        told |= known
        self.problems += [problem for problem in (*problems, *scan.problems) if problem.column not in known]
        missing: dict[str, int] = {}
        for column, count in zip(table.columns, scan.missing.tolist(), strict=True):
            raw = raw_name(column.name, names)
            if count and raw not in (*told, *self.besides) and not self.keeps_missing:
                missing[raw] = max(count, missing.get(raw, 0))
        self.problems += [
            Problem(
                table.name,
                f"column {column!r} holds {count_of(n, 'missing value')}",
                "",
                Remedy.FILL,
                column,
                (f"{n:,}",),
            )
            for column, n in missing.items()
        ]
        return table, scan.fingerprint


def readings_of(how: Reading, by_site: Mapping[str, Mapping[str, Any]], sites: list[str]) -> dict[str, Reading]:
    """How each site's file is read: as the job says, or as it says of the site."""
    for site, own in by_site.items():
        if site not in sites:
            raise InputError(f"reading names the site {site!r}, which is unknown; the sites are {', '.join(sites)}.")
        for name in own:
            if name not in OF_A_SITE:
                raise InputError(f"reading of {site!r} has the key {name!r}{nearest_name(name, OF_A_SITE)}")
    names = {item.name for item in fields(Reading)}
    return {site: replace(how, **{n: v for n, v in by_site.get(site, {}).items() if n in names}) for site in sites}
