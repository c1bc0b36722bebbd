"""A site whose rows come and go, what it shows of them as sums over rows, and every answer it gives as one.

What a cell of the view shows is written as a vector over all rows there ever were: its product with the rows' values
is the sum that is shown. Each vector is checked against the numbers, so nothing is taken from the code that formed
the groups but who is in which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.messages.schema import Nothing
from coterie.messages.site_api import Block
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.prepared import Prepare
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view, groups_folder
from coterie.sites.views.identity import row_tokens
from coterie.sites.views.store import Grouping, load
from tests.attacks.asker import Asker, sum_columns
from tests.attacks.auditor import few_rows_told

Rows = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def rows_secret(ledger: SiteLedger) -> bytes:
    """The key that a site's rows are recognised by."""
    return hashlib.blake2b(b"rows", key=ledger.secret()).digest()


class Audited(NamedTuple):
    """Rows of a combination over fewer than a group, by what they were found in; None where there is none."""

    sums: tuple[int, ...] | None
    squares: tuple[int, ...] | None


class ShownSite:
    """Rows with keys, kept in a folder; a row whose values change counts as another row."""

    def __init__(self, folder: Path, rows: Rows, tau: int, *, most_rows: int = 600) -> None:
        self.tau, self.path, self.most_rows = tau, folder / "ledger.jsonl", most_rows
        self.policy = Policy(per_site_results="averages", min_group=tau)
        self.values = np.full((most_rows, rows.shape[1]), np.nan)
        self.keys: list[str] = []
        self.here: list[int] = []
        self.cells: dict[tuple[int, int], list[Rows]] = {}
        """By generation and number of a group: for every column, the rows that what it shows is a sum over."""
        self._copies: dict[tuple[int, int], int] = {}
        self.generation, self.n_questions, self.n_run = 0, 0, 0
        self.sums: list[Rows] = []
        """Of every answer, by column, the rows it is a sum over."""
        self.squares: list[Rows] = []
        self.append(rows)

    # ---------------------------------------------------------------- rows

    def append(self, rows: Rows) -> None:
        """New rows."""
        self._add(rows, [f"patient {len(self.keys) + i}" for i in range(len(rows))])

    def change(self, places: Iterable[int], rows: Rows) -> None:
        """Other values for rows that are there."""
        old = list(places)
        self._add(rows, [self.keys[place] for place in old])
        self.remove(old)

    def remove(self, places: Iterable[int]) -> None:
        """Rows that leave."""
        gone = set(places)
        self.here = [place for place in self.here if place not in gone]

    def _add(self, rows: Rows, keys: list[str]) -> None:
        start = len(self.keys)
        self.values[start : start + len(rows)] = rows
        self.keys += keys
        self.here += range(start, start + len(rows))

    @property
    def table(self) -> ArrayTable:
        """The rows that are there."""
        return ArrayTable(self.values[self.here], keys=[self.keys[place] for place in self.here])

    def groups(self) -> list[list[int]]:
        """The rows of every group that stands, as of the last look."""
        return [members.tolist() for members in self._members]

    # ---------------------------------------------------------------- looking and asking

    def look(self, n_questions: int = 0, *, anew: bool = False, seed: int = 0) -> None:
        """Open the site with the rows that are there, explain what it shows, and ask it questions.

        ``anew`` forms all groups anew before.
        """
        ledger = SiteLedger(self.path)
        if anew:
            grouped_view(self.table, self.tau, ledger, anew=True)
            self.generation += 1
        site = Site("here", self.table, policy=self.policy, ledger=ledger)
        folder, secret = groups_folder(ledger, "table"), rows_secret(ledger)
        assert folder is not None
        grouping = load(folder, secret)
        assert grouping is not None
        self._explain(grouping, secret)
        (block,) = site._tables["groups"].raw_blocks()
        rng = np.random.default_rng(seed)
        for drop in (False, True):
            self._ask(site, grouping, block, drop, n_questions // 2, rng)
        ledger.close()

    def _explain(self, grouping: Grouping, secret: bytes) -> None:
        """Write every cell that is new as a sum over rows."""
        places = dict(zip(row_tokens(self.table, secret).rows.tolist(), self.here, strict=True))
        rows = grouping.rows
        self._members = [
            np.array([places[token] for token in rows.tokens[rows.place == number].tolist()])
            for number in grouping.numbers
        ]
        new = np.array([(self.generation, int(number)) not in self.cells for number in grouping.numbers])
        for group in np.flatnonzero(new):
            self.cells[self.generation, int(grouping.numbers[group])] = []
        for column in range(self.values.shape[1]):
            self._explain_column(grouping, column, new)

    def _explain_column(self, grouping: Grouping, column: int, new: npt.NDArray[np.bool_]) -> None:
        shown = np.nan_to_num(grouping.cells.means[:, column]) * grouping.cells.present[:, column]
        for group in np.flatnonzero(~new):  # what stands is as it was
            assert self._explains(self._cell(grouping, group, column), column, shown[group])
        for group in np.flatnonzero(new):
            cell = self._own(grouping, group, column)
            if cell is None or not self._explains(cell, column, shown[group]):
                made = self._known if grouping.reformed[group] else self._pooled
                cell = made(grouping, int(group), column, new)
            assert self._explains(cell, column, shown[group]), (group, column)
            self.cells[self.generation, int(grouping.numbers[group])].append(cell)

    def _explains(self, cell: Rows, column: int, shown: float) -> bool:
        """Whether this sum over rows is the one that is shown."""
        total = cell @ np.nan_to_num(self.values[:, column])
        return bool(np.isclose(total, shown, rtol=1e-9, atol=1e-9))

    def _cell(self, grouping: Grouping, group: int, column: int) -> Rows:
        return self.cells[self.generation, int(grouping.numbers[group])][column]

    def _own(self, grouping: Grouping, group: int, column: int) -> Rows | None:
        """The sum over the values of the group's own rows, where so many are behind it; nothing where none is."""
        members = self._members[group]
        there = members[~np.isnan(self.values[members, column])]
        behind = grouping.cells.present[group, column]
        if behind == 0:
            return self._indicator(there[:0])
        return self._indicator(there) if len(there) == behind else None

    def _pooled(self, grouping: Grouping, group: int, column: int, new: npt.NDArray[np.bool_]) -> Rows:
        """A share of the sum over all rows of the cells that show the same; a few may count as holding the mode."""
        means, weights = grouping.cells.means[:, column], grouping.cells.weights
        pool = np.flatnonzero(new & ~grouping.reformed & (means == means[group]) & ~grouping.cells.full[:, column])
        pool = pool if group in pool else np.array([group])
        members = np.concatenate([self._members[one] for one in pool])
        there = members[~np.isnan(self.values[members, column])]
        share = weights[group] / weights[pool].sum()
        cell = self._indicator(there) * share
        if self._explains(cell, column, float(means[group] * grouping.cells.present[group, column])):
            return cell
        return self._indicator(np.array([self._as_mode(int(place), column) for place in there])) * share

    def _as_mode(self, place: int, column: int) -> int:
        """The row itself where it holds the column's mode; else a row of its own that does."""
        known = self.values[self.here, column]
        kinds, times = np.unique(known[~np.isnan(known)], return_counts=True)
        mode = float(kinds[np.argmax(times)])
        if self.values[place, column] == mode:
            return place
        if (place, column) not in self._copies:
            self._copies[place, column] = len(self.keys)
            self.keys.append("")
            self.values[len(self.keys) - 1, column] = mode
        return self._copies[place, column]

    def _known(self, grouping: Grouping, group: int, column: int, new: npt.NDArray[np.bool_]) -> Rows:
        """What the groups that stood showed on average, as often as rows are behind it."""
        standing, behind = np.flatnonzero(~new), grouping.cells.present[:, column]
        total = np.sum([self._cell(grouping, int(one), column) for one in standing], axis=0)
        return np.asarray(total * (behind[group] / behind[standing].sum()))

    def _indicator(self, places: Ids) -> Rows:
        made = np.zeros(self.most_rows)
        made[places] = 1.0
        return made

    def _ask(
        self, site: Site, grouping: Grouping, block: Block, drop: bool, n_questions: int, rng: np.random.Generator
    ) -> None:
        """Totals, and cells cut at hyperplanes: each answer is checked against the sum over rows that it is."""
        d, self.n_run = self.values.shape[1], self.n_run + 1
        asker = Asker(site, run=self.n_run.to_bytes(16, "big"))
        chosen = np.ones(len(block.rows), bool)
        if drop:
            chosen = (block.values == block.counts[:, None]).all(axis=1)
        said = asker.ask(sum_columns(d, drop=drop))
        self._take(grouping, np.flatnonzero(chosen), said.sums, said.squares)
        missing = "drop" if drop else "mean"
        assert (
            asker.ask(Prepare(missing, False, np.zeros(d), np.zeros(d), np.ones(d), *np.zeros((2, 0)))) == Nothing()
        )
        shown = np.nan_to_num(block.rows) * block.values / block.counts[:, None]
        for _ in range(n_questions):
            direction = rng.normal(size=d) / (np.abs(shown).max(axis=0) + 1e-3)
            along = shown @ direction
            cut, step = rng.uniform(along.min(), along.max()), direction / (direction @ direction)
            said = asker.ask(Assign(np.array([(cut - 1) * step, (cut + 1) * step])))
            self._take(grouping, np.flatnonzero(chosen & (along < cut)), said.sums[0], None)
            self._take(grouping, np.flatnonzero(chosen & (along >= cut)), said.sums[1], None)
            self.n_questions += 1

    def _take(self, grouping: Grouping, groups: Ids, sums: Rows, squares: Rows | None) -> None:
        made = np.zeros((self.values.shape[1], self.most_rows))
        for column in range(len(made)):
            for group in groups:
                made[column] += self._cell(grouping, int(group), column)
            values = np.nan_to_num(self.values[:, column])
            np.testing.assert_allclose(made[column] @ values, sums[column], rtol=1e-7, atol=1e-7)
            if squares is not None:
                np.testing.assert_allclose(made[column] @ values**2, squares[column], rtol=1e-7, atol=1e-7)
        self.sums.append(made)
        if squares is not None:
            self.squares.append(made)

    # ---------------------------------------------------------------- the audit

    def released(self, column: int) -> Rows:
        """Everything that was shown or answered of a column, as vectors over rows."""
        own = [cells[column] for cells in self.cells.values()]
        return np.array([*own, *(answer[column] for answer in self.sums)])

    def audit(self, column: int) -> Audited:
        """Is there a combination over fewer rows than a group, of sums or of squares?"""
        squares = np.array([answer[column] for answer in self.squares])
        return Audited(few_rows_told(self.released(column), self.tau), few_rows_told(squares, self.tau))

    def audit_answers(self, column: int) -> tuple[int, ...] | None:
        """The same from answers alone."""
        return few_rows_told(np.array([answer[column] for answer in self.sums]), self.tau)
