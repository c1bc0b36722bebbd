"""What sites' tables hold over all of them, described by column, and what that suggests before clustering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.findings import ColumnDescription, Note, Scale, listed_columns, notes_of, suggested_scale
from coterie.estimators.fitting import fit
from coterie.estimators.given import Rules, opened_sites
from coterie.messages.site_api import Table
from coterie.methods.analysis.describe import QUANTILES, DescribeSettings, Description
from coterie.methods.shared.privacy import Privacy, PrivacySpent
from coterie.parameters import described
from coterie.runtime.events import Write
from coterie.runtime.ledger import Ledger
from coterie.secure.certificates import RunCertificate


@described
@dataclass(eq=False, repr=False, kw_only=True)
class TableDescriber(DescribeSettings, FederatedEstimator):
    """What columns hold over all sites. :func:`coterie.describe` is the way to use it.

    Attributes
    ----------
    description_ : Description
        The number of rows, and by column values present, means, deviations and quantiles.
    ledger_ : Ledger
        Every question and answer of the run.
    """

    def fit(
        self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None, ranges: Any = None, units: Any = None
    ) -> Self:
        """Describe the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_all_finite="allow-nan")
        self._simulate(rows, sites, None, ranges, units)
        return self

    def _set_attributes(self, result: Description) -> None:
        self.description_ = result


@dataclass(frozen=True)
class TableDescription:
    """What the tables of all sites hold."""

    rows: float
    sites: int
    min_group: int
    """The fewest rows in a group where sites showed groups; 0 where they showed rows. Over groups, values that too
    few rows hold are pooled, and quantiles are estimates."""
    columns: tuple[ColumnDescription, ...]
    scale: Scale
    """The scaling that the columns suggest."""
    notes: tuple[Note, ...]
    rounds: int
    bytes_sent: int
    privacy: PrivacySpent | None = None
    noise: float = 0.0
    """The standard deviation of the noise in the number of rows."""
    ledger: Ledger | None = field(default=None, repr=False, compare=False)
    certificate: RunCertificate | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, name: str) -> ColumnDescription:
        return {column.name: column for column in self.columns}[name]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = {
            name: getattr(self, name) for name in ("rows", "sites", "min_group", "scale", "rounds", "bytes_sent")
        }
        notes = [
            {"finding": note.finding.value, "columns": list(note.columns), "value": note.value, "text": note.sentence}
            for note in self.notes
        ]
        private = {} if self.privacy is None else {"privacy": asdict(self.privacy), "noise": self.noise}
        return {**facts, "columns": [asdict(column) for column in self.columns], "notes": notes, **private}

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """A head, and a line for each column; a column of categories has a line for each as well."""
        names = [f"{level:.0%}" for level in QUANTILES]
        lines = []
        for column in self.columns:
            numbers = [(column.quantiles or {}).get(name) for name in names]
            lines.append(
                [column.name, column.kind, column.present, column.missing, column.mean, column.deviation, *numbers]
            )
            for category, share in (column.shares or {}).items():
                there = [share * column.present, None, share, None, *[None] * len(names)]
                lines.append([f"{column.name}={category}", "category", *there])
        return ["column", "kind", "present", "missing", "mean", "deviation", *names], lines

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each column and category."""
        import pandas as pd

        head, lines = self.table()
        return pd.DataFrame(lines, columns=head).set_index("column")


def describe(
    tables: Any,
    *,
    site_column: str | None = None,
    policy: Rules | Mapping[str, Rules] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    privacy: Privacy | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    random_state: int | None = None,
    journal: str | Path | None = None,
    events: Write | None = None,
    **reading: Any,
) -> TableDescription:
    """What the columns of all sites' tables hold, by sums, before any clustering.

    ``tables``, ``site_column``, ``policy``, ``sums``, ``journal`` and options of reading are those of
    :func:`coterie.fit`. With ``privacy`` the numbers have noise; ``ranges`` then has the lowest and the highest
    plausible value of every column, columns of categories excepted.

    >>> import numpy as np, coterie
    >>> from coterie.sites.policy import Policy
    >>> rows = np.arange(60.0).reshape(30, 2)
    >>> sites = {"a": rows[:10], "b": rows[10:20], "c": rows[20:]}
    >>> about = coterie.describe(sites, policy=Policy.simulation(), sums="plain")
    >>> about.rows, about["x1"].mean, about["x1"].missing
    (30.0, 30.0, 0.0)
    """
    describer = TableDescriber(privacy=privacy, random_state=random_state)
    opened, rules = opened_sites(
        describer, tables, policy, site_column=site_column, reading=reading, keeps_unlike=True
    )
    return described_tables(describer, opened, ranges, policy=rules, sums=sums, journal=journal, events=events)


def described_tables(
    describer: TableDescriber,
    tables: Mapping[str, Table],
    ranges: Mapping[str, Sequence[float]] | None,
    **options: Any,
) -> TableDescription:
    """The description of opened tables; ``options`` are those of :func:`coterie.fit`."""
    first = next(iter(tables.values()))
    names = [column.name for column in first.columns]
    blocks = {name: (start, stop) for name, start, stop in category_blocks(first)}
    if ranges is not None and describer.privacy is None:
        raise InputError("ranges are for a private description; give privacy, an epsilon, or leave them out.")
    if describer.privacy is not None:
        options["ranges"] = _ends(names, blocks, ranges or {})
    fit(describer, tables, **options)
    found, ledger = describer.description_, describer.ledger_
    columns = tuple(_columns(found, blocks))
    return TableDescription(
        _whole(found.rows),
        len(tables),
        describer.min_group_ if describer.privacy is None else 0,
        columns,
        suggested_scale(columns),
        tuple(notes_of(columns, found.rows)),
        ledger.total("rounds"),
        ledger.total("bytes_up"),
        describer.privacy_,
        found.noise_of_rows,
        ledger,
        describer.certificate_,
    )


def category_blocks(table: Table) -> Iterator[tuple[str, int, int]]:
    """The columns of categories of a table: their names, and the first and the last of their columns of 0 and 1."""
    names = [column.name for column in table.columns]
    for start, stop, _ in getattr(table, "categories", ()):
        yield names[start].partition("=")[0], start, stop


def _ends(
    names: Sequence[str], blocks: Mapping[str, tuple[int, int]], ranges: Mapping[str, Sequence[float]]
) -> tuple[list[float], list[float]]:
    """The declared lows and highs of all columns; those of categories are 0 and 1."""
    declared = {names[place]: (0.0, 1.0) for start, stop in blocks.values() for place in range(start, stop)}
    declared |= {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
    without, unknown = [n for n in names if n not in declared], [n for n in declared if n not in names]
    if without or unknown:
        problems = [f"a range is missing for {listed_columns(without)}"] if without else []
        problems += [f"ranges names {listed_columns(unknown)}, which is none of the columns"] if unknown else []
        raise InputError(f"{'; '.join(problems)}; declare one, such as 0 to 120, for every column of numbers.")
    return [declared[name][0] for name in names], [declared[name][1] for name in names]


def _columns(found: Description, blocks: Mapping[str, tuple[int, int]]) -> Iterator[ColumnDescription]:
    """The columns as they were before categories became columns of 0 and 1."""
    block_of = {place: name for name, (start, stop) in blocks.items() for place in range(start, stop)}
    for place, name in enumerate(found.columns):
        block = block_of.get(place)
        if block is None:
            yield _column(found, place, name)
        elif place == blocks[block][0]:
            shares = {
                found.columns[i].partition("=")[2]: _number(found.means[i]) or 0.0 for i in range(*blocks[block])
            }
            yield ColumnDescription(block, "categories", *_there(found, place), shares=shares)


def _column(found: Description, place: int, name: str) -> ColumnDescription:
    quantiles = {
        f"{level:.0%}": value
        for level, number in zip(QUANTILES, found.quantiles[place], strict=True)
        if (value := _number(number)) is not None
    }
    noise = _number(found.noise_of_means[place]) if len(found.noise_of_means) else None
    return ColumnDescription(
        name,
        "yes or no" if found.is_share[place] and found.present[place] > 0 else "number",
        *_there(found, place),
        _number(found.means[place]),
        _number(found.deviations[place]),
        quantiles or None,
        noise=noise,
    )


def _there(found: Description, place: int) -> tuple[float, float]:
    """How many values are present and missing."""
    present = _whole(found.present[place])
    return present, max(0.0, _whole(found.rows - present))


def _whole(number: float) -> float:
    """A number of rows; masked sums leave it not quite whole."""
    return float(round(number)) if abs(number - round(number)) < 1e-3 else float(number)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
