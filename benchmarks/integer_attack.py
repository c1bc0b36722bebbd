"""What an integer solver finds behind groups: heart's columns are whole numbers of small ranges, the means are exact.

The attacker is given all a view shows at full precision, the site's scale, each column's range, which cells are
pooled, and what these add to a group's one number. Of a cell it then knows how many values there are and their sum;
of a group, one weighted sum of its cells' squares. Solutions are enumerated with integers. A mixed-integer solver on
floats would not do: its tolerance (1e-10 at best) is far wider than what the group's number is known to (2e-15).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Grid, Result, data_folder
from coterie.sites.tables import ArrayTable
from coterie.sites.views.store import form

__all__ = ["BENCHMARKS", "Cell", "Group", "assignments_differ", "certain_rows", "groups_of", "multisets", "solve"]

Floats = npt.NDArray[np.float64]
Values = tuple[int, ...]

MIN_GROUPS = (3, 5, 10)
FEW_VALUES = 8
"""A column of at most so many values is known by its values, another by its range."""
MOST_SUMS = 8_000_000
"""Each half of a group's columns is searched by at most so many sums; where there are more, by a sample of them."""
MOST_HITS = 5_000
"""So many solutions of a group are tried at most."""
PRECISION = 2e-15
"""What a group's one number is taken to be known to, relative to itself: far better than the view shows it."""


# ---------------------------------------------------------------- one cell: values with a known sum


@cache
def multisets(values: Values, count: int, total: int, square: int | None = None, most: int = 2) -> tuple[Values, ...]:
    """Up to ``most`` multisets of ``count`` of the values with this sum (and sum of squares), largest value first."""
    found: list[Values] = []
    least = values[0]

    def extend(chosen: Values, k: int, s: int, q: int, below: int) -> None:
        if k == 0:
            if s == 0 and (square is None or q == 0):
                found.append(chosen)
            return
        largest = s - (k - 1) * least
        if square is not None:
            if k * q < s * s:
                return
            largest = min(largest, (s + math.isqrt((k - 1) * (k * q - s * s))) // k)
        for place in range(min(below, bisect_right(values, largest) - 1), -1, -1):
            v = values[place]
            if v * k < s or (square is not None and q > (v + least) * s - k * v * least) or len(found) >= most:
                return
            extend((*chosen, v), k - 1, s - v, q - v * v, place)

    extend((), count, total, square or 0, len(values) - 1)
    return tuple(found)


def squares_possible(values: Values, count: int, total: int, largest: float) -> npt.NDArray[np.int64]:
    """The sums of squares that ``count`` values with this sum may have; for wide ranges, and a few that none have."""
    if len(values) <= FEW_VALUES:
        sums = {sum(v * v for v in chosen) for chosen in multisets(values, count, total, most=10**9)}
        return np.array(sorted(q for q in sums if q <= largest), np.int64)
    if count == 3:
        v = np.array(values)
        last = total - v[:, None] - v
        squares = np.unique((v[:, None] ** 2 + v**2 + last**2)[(last >= v[0]) & (last <= v[-1])])
        return squares[squares <= largest]
    return np.arange(least_square(values, count, total), math.floor(largest) + 1, 2, dtype=np.int64)


@cache
def least_square(values: Values, count: int, total: int) -> int:
    """The smallest sum of squares of ``count`` values with this sum."""
    if len(values) <= FEW_VALUES:
        return min(sum(v * v for v in chosen) for chosen in multisets(values, count, total, most=10**9))
    low, more = divmod(total, max(count, 1))
    return more * (low + 1) ** 2 + (count - more) * low**2


@dataclass(frozen=True)
class Cell:
    """One column of one group: what is shown of it, and the true sum of squares, to check what is found."""

    column: int
    values: Values
    count: int
    total: int
    square: int
    scale: float

    def part(self, square: npt.NDArray[np.int64] | int) -> Floats:
        """What a sum of squares adds to the group's one number."""
        return np.asarray((square * self.count - self.total**2) / (self.count * self.scale**2))

    def is_determined_by_sum(self) -> bool:
        """Whether one multiset of values has this sum."""
        return len(multisets(self.values, self.count, self.total)) == 1

    def is_determined_by_square(self, square: int) -> bool:
        """Whether one multiset of values has this sum and this sum of squares."""
        return len(multisets(self.values, self.count, self.total, square)) == 1

    def may_be(self, square: int) -> bool:
        """Whether any multiset of values has this sum and this sum of squares."""
        return bool(multisets(self.values, self.count, self.total, square, 1))


# ---------------------------------------------------------------- one group: its cells and its one number


@dataclass(frozen=True)
class Group:
    """What is shown of a group, and its rows (as integers; NaN is a missing value), to check what is found."""

    rows: Floats
    cells: dict[int, Cell]
    """By column; a pooled cell is not among them."""
    within: float
    """The group's one number, less what pooled cells add."""
    tolerance: float
    """What that number is known to."""


def groups_of(rows: Floats, units: Floats, ranges: list[Values], min_group: int) -> list[Group]:
    """The groups a site shows; ``rows * units`` are integers, of which ``ranges`` says the possible values."""
    table = ArrayTable(rows)
    grouping = form(table, min_group, bytes(32))
    shown, scale = grouping.view(table), grouping.scale.scale * units
    (block,) = shown.raw_blocks()
    groups = []
    for place in range(len(block.rows)):
        own = np.rint(rows[grouping.rows.place == grouping.numbers[place]] * units)
        present = ~np.isnan(own)
        within, cells = float(grouping.cells.squares[place] @ (units / scale) ** 2), {}
        tolerance = PRECISION * within
        for column in np.flatnonzero(present.any(axis=0)).tolist():
            known = own[present[:, column], column].astype(np.int64)
            mean, behind = block.rows[place, column] * units[column], grouping.cells.present[place, column]
            spread = grouping.cells.squares[place, column] * units[column] ** 2
            is_own = behind == len(known) and np.isclose([mean, spread], [known.mean(), known.var() * behind]).all()
            if is_own:
                total = round(mean * len(known))
                cells[column] = Cell(
                    column, ranges[column], len(known), total, int((known**2).sum()), float(scale[column])
                )
            else:
                within -= float(spread / scale[column] ** 2)
        groups.append(Group(own, cells, within, tolerance))
    return groups


def solve(group: Group, most: int = MOST_SUMS) -> dict[int, bool | None]:
    """By column whether the values behind the mean are determined by all that is shown; None where undecided."""
    cells = list(group.cells.values())
    answer: dict[int, bool | None] = {}
    for cell in cells:
        if cell.is_determined_by_sum():
            answer[cell.column] = True
        elif not cell.is_determined_by_square(cell.square):
            answer[cell.column] = False
    unclear = {place for place, cell in enumerate(cells) if cell.column not in answer}
    if unclear:
        found, is_all = _splits(cells, group.within, group.tolerance, most)
        assert not is_all or [cell.square for cell in cells] in found, "the true values are not among the solutions"
        for squares in found:
            other = {place for place in unclear if squares[place] != cells[place].square}
            if other and all(cell.may_be(q) for cell, q in zip(cells, squares, strict=True)):
                unclear -= other
                answer |= dict.fromkeys((cells[place].column for place in other), False)
        answer |= dict.fromkeys((cells[place].column for place in unclear), True if is_all else None)
    return answer


def _splits(cells: list[Cell], within: float, tolerance: float, most: int) -> tuple[list[list[int]], bool]:
    """Sums of squares, one a cell, that add up to the group's one number; and whether these are all there are."""
    rng, possible = np.random.default_rng(0), []
    for cell in cells:
        largest = (within + tolerance) * cell.scale**2 + cell.total**2 / cell.count
        possible.append(squares_possible(cell.values, cell.count, cell.total, largest * (1 + 1e-12)))
    parts = [cell.part(squares) for cell, squares in zip(cells, possible, strict=True)]
    halves: tuple[list[int], list[int]] = ([], [])
    for place in sorted(range(len(cells)), key=lambda i: -len(parts[i])):
        min(halves, key=lambda half: math.prod(len(parts[i]) for i in half)).insert(0, place)
    (first, at_first, all_first), (second, at_second, all_second) = (
        _sums([parts[i] for i in half], within, tolerance, most, rng) for half in halves
    )
    order = np.argsort(first)
    first, at_first = first[order], at_first[order]
    low = np.searchsorted(first, within - second - tolerance, "left")
    high = np.searchsorted(first, within - second + tolerance, "right")
    hits = rng.permutation(np.flatnonzero(high > low))
    found = []
    for other in hits[:MOST_HITS]:
        for one in range(low[other], high[other]):
            squares = [0] * len(cells)
            for half, at in ((halves[0], at_first[one]), (halves[1], at_second[other])):
                for i, place in zip(half, at, strict=True):
                    squares[i] = int(possible[i][place])
            found.append(squares)
    return found, all_first and all_second and len(hits) <= MOST_HITS


def _sums(
    parts: list[Floats], within: float, tolerance: float, most: int, rng: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.int32], bool]:
    """Sums of one number from each part, at most ``within``; what they are sums of; and whether these are all.

    Where there are too many, only those near the middle are made: two halves of these meet more often than others.
    """
    sums, places, is_all = np.zeros(1), np.zeros((1, 0), np.int32), True
    for i, part in enumerate(parts):
        low, high = -1.0, within + tolerance
        while True:
            start = np.searchsorted(part, low - sums, "left")
            ends = np.cumsum(np.searchsorted(part, high - sums, "right") - start)
            n = int(ends[-1]) if len(ends) else 0
            if n <= most or i < len(parts) - 1 or high - low < 1e-6 * within:
                break
            is_all, width = False, (high - max(low, 0.0)) / 4
            low, high = within / 2 - width, within / 2 + width
        flat = np.arange(n) if n <= most else np.sort(rng.integers(0, n, most))
        is_all &= n <= most
        before = np.searchsorted(ends, flat, "right")
        here = flat - np.append(0, ends)[before] + start[before]
        sums = sums[before] + part[here]
        places = np.column_stack([places[before], here.astype(np.int32)])
    return sums, places, is_all


# ---------------------------------------------------------------- rows: columns have to be linked


def _counts(rows: Floats) -> list[Counter[float]]:
    """By column how often each value stands; a missing one counts as a value."""
    return [Counter(np.where(np.isnan(column), np.inf, column).tolist()) for column in rows.T]


def assignments_differ(rows: Floats) -> bool:
    """Whether more than one set of rows has the same values in every column.

    All that a group shows depends on the values of each column alone. Where two columns vary, rows may have both in
    the same order, or in opposite orders: these are different sets. Where one varies, all sets are the same.
    """
    return sum(len(counts) > 1 for counts in _counts(rows)) > 1


def certain_rows(rows: Floats) -> int:
    """Rows that stand in every set of rows with the same values in every column.

    A row is certain where, column by column, so few rows differ from it that together they are not all of the group.
    """

    def certain(columns: list[Counter[float]], left: int) -> int:
        if left <= 0 or not columns:
            return max(0, left)
        return sum(certain(columns[1:], left - len(rows) + n) for n in columns[0].values())

    return certain(_counts(rows), len(rows))


def shuffled_hits(rows: Floats, rng: np.random.Generator) -> int:
    """Rows of a random set with the same values in every column that are rows of the group."""
    filled = np.where(np.isnan(rows), np.inf, rows)
    true, guess = (Counter(map(tuple, part.tolist())) for part in (filled, rng.permuted(filled, axis=0)))
    return (true & guess).total()


def scatter_bits(groups: list[Group]) -> tuple[float, float]:
    """How many sets of rows have the same values in every column, and how many scatter matrices they may have: log2.

    Groups with a missing value are given to the attacker whole, and count for neither.
    """
    whole = [group.rows for group in groups if not np.isnan(group.rows).any()]
    sets = 0.0
    for rows in whole:
        orders = math.lgamma(len(rows) + 1)
        ways = sum(orders - sum(math.lgamma(c + 1) for c in counts.values()) for counts in _counts(rows))
        sets += max(0.0, ways - orders) / math.log(2)
    products = 0.0
    for j, k in combinations(range(whole[0].shape[1]), 2):
        spans = (
            np.sort(rows[:, j]) @ np.sort(rows[:, k]) - np.sort(rows[:, j]) @ -np.sort(-rows[:, k]) for rows in whole
        )
        products += math.log2(sum(spans) + 1)
    return sets, products


# ---------------------------------------------------------------- who knows part of a group, or of a row


def last_row(group: Group, place: int) -> dict[int, float]:
    """What an attacker who knows all other rows works out of one: by column its value, NaN where it has none."""
    others = np.delete(group.rows, place, axis=0)
    found = {}
    for column, cell in group.cells.items():
        known = others[:, column][~np.isnan(others[:, column])]
        found[column] = cell.total - known.sum() if cell.count > len(known) else math.nan
    return found


def fits(group: Group, row: Floats, columns: list[int], *, by_square: bool) -> bool:
    """Whether a row with these values in these columns may stand in the group.

    By what is shown: by sums, and by the smallest number the squares can add up to. ``by_square``: by the sum of
    squares of every cell, which is more than is shown.
    """
    least = 0.0
    for column, cell in group.cells.items():
        square = least_square(cell.values, cell.count, cell.total)
        if column in columns:
            if math.isnan(row[column]):
                if cell.count == len(group.rows):
                    return False
            else:
                v = int(row[column])
                rest = (cell.values, cell.count - 1, cell.total - v)
                if not multisets(*rest, cell.square - v * v if by_square else None, 1):
                    return False
                square = v * v + least_square(*rest)
        least += float(cell.part(square))
    return least <= group.within * (1 + 1e-9) + 1e-9


# ---------------------------------------------------------------- heart


@dataclass(frozen=True)
class Site:
    """One hospital's groups."""

    groups: list[Group]
    solved: list[dict[int, bool | None]]
    """By group what :func:`solve` says."""


def _sites(all_columns: bool, min_group: int) -> Iterator[Site]:
    folder = data_folder()
    assert folder is not None
    with np.load(folder / "heart_disease.npz") as z:
        names, sites = z["feature_names"].tolist(), z["site"]
        rows = np.round(z["X"].astype(np.float64), 1)
    chosen = [i for i, name in enumerate(names) if all_columns or name != "oldpeak"]
    units = np.where(np.array(names) == "oldpeak", 10.0, 1.0)[chosen]
    rows, ranges = rows[:, chosen], []
    for column in np.rint(rows * units).T:
        held = np.unique(column[~np.isnan(column)]).astype(int).tolist()
        ranges.append(tuple(held) if len(held) <= FEW_VALUES else tuple(range(held[0], held[-1] + 1)))
    for place in np.unique(sites):
        groups = groups_of(rows[sites == place], units, ranges, min_group)
        yield Site(groups, [solve(group) for group in groups])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


KINDS = ("2 values", f"3 to {FEW_VALUES} values", "a wide range")


def _values(sites: list[Site]) -> list[tuple[str, ...]]:
    """By kind of column, cells whose values are determined."""
    n = Counter[tuple[str, str]]()
    for group, solved in (pair for site in sites for pair in zip(site.groups, site.solved, strict=True)):
        for column, cell in group.cells.items():
            kind = KINDS[(len(cell.values) > 2) + (len(cell.values) > FEW_VALUES)]
            n[kind, "cells"] += 1
            n[kind, "sum"] += cell.is_determined_by_sum()
            n[kind, "shown"] += solved[column] is True
            n[kind, "undecided"] += solved[column] is None
            n[kind, "squares"] += cell.is_determined_by_square(cell.square)
    return [
        (kind, *(str(n[kind, what]) for what in ("cells", "sum", "shown", "undecided", "squares"))) for kind in KINDS
    ]


def _rows(sites: list[Site]) -> list[tuple[str, ...]]:
    """Groups and rows that are determined where the values of every column are given."""
    groups = [group.rows for site in sites for group in site.groups]
    mixed = [
        rows for rows in groups if not np.array_equal(rows, np.broadcast_to(rows[0], rows.shape), equal_nan=True)
    ]
    rng = np.random.default_rng(0)
    guessed = np.mean([sum(shuffled_hits(rows, rng) for rows in mixed) for _ in range(20)])
    sets, products = scatter_bits(sites[0].groups)
    return [
        (
            str(len(groups)),
            str(sum(map(len, groups))),
            str(len(groups) - len(mixed)),
            str(sum(not assignments_differ(rows) for rows in mixed)),
            str(sum(map(certain_rows, mixed))),
            f"{guessed:.1f}",
            f"{sets:.0f}",
            f"{products:.0f}",
        )
    ]


def _linked(sites: list[Site]) -> list[tuple[str, ...]]:
    """What is found of a row by who knows all others of its group, or half of its columns."""
    rng, n = np.random.default_rng(0), Counter[str]()
    for group, solved, others in (
        (*pair, site.groups) for site in sites for pair in zip(site.groups, site.solved, strict=True)
    ):
        d, shown = group.rows.shape[1], (~np.isnan(group.rows)).any(axis=0)
        constant = {column for column in group.cells if len(set(group.rows[:, column])) == 1}
        known = {"shown": {column for column in constant if solved[column]}, "squares": constant}
        for place, row in enumerate(group.rows):
            found = last_row(group, place)
            right = [np.array_equal(value, row[column], equal_nan=True) for column, value in found.items()]
            n["rows"] += 1
            n["cells"] += len(right)
            n["cells right"] += sum(right)
            n["rows whole"] += sum(right) == shown.sum()
            half = rng.permutation(d)[: d // 2].tolist()
            for way, by_square in (("shown", False), ("squares", True)):
                if sum(fits(other, row, half, by_square=by_square) for other in others) == 1:
                    rest = set(np.flatnonzero(shown).tolist()) - set(half)
                    n[f"{way} one"] += 1
                    n[f"{way} rest"] += len(rest)
                    n[f"{way} known"] += len(rest & known[way])
                    n[f"{way} all"] += rest <= known[way]
    whole = [_percent(n["cells right"], n["cells"]), _percent(n["rows whole"], n["rows"])]
    return [
        (
            way,
            *whole,
            _percent(n[f"{way} one"], n["rows"]),
            _percent(n[f"{way} known"], n[f"{way} rest"]),
            str(n[f"{way} all"]),
        )
        for way in ("shown", "squares")
    ]


def integer_attack() -> Result:
    """Values, rows and links that an integer solver determines from the groups of four hospitals."""
    if data_folder() is None:
        return Result("integer attack", [], "skipped: no data folder; point COTERIE_DATA at it")
    head = ("columns", "min_group")
    values = Grid(
        "Cells not pooled whose values are determined (never whose they are)",
        (*head, "a column of", "cells", "by mean and count", "by all shown", "undecided", "by squares of every cell"),
    )
    rows = Grid(
        "Rows, where the values of every column of a group are given",
        (
            *head,
            "groups",
            "rows",
            "groups of equal rows",
            "other groups with one solution",
            "rows certain",
            "rows guessed",
            "sets of rows, log2",
            "matrices, log2",
        ),
        "the last two: of the first hospital's groups without missing values",
    )
    linked = Grid(
        "Links",
        (*head, "known", "all others known: cells", "whole rows", "half known: one group fits", "rest", "whole rows"),
        "known: what is shown of every group, or the squares of every cell besides",
    )
    for all_columns in (False, True):
        for min_group in MIN_GROUPS:
            sites = list(_sites(all_columns, min_group))
            label = ("13" if all_columns else "12", str(min_group))
            for grid, measured in ((values, _values), (rows, _rows), (linked, _linked)):
                grid.rows += [(*label, *line) for line in measured(sites)]
    return Result(
        "integer attack",
        [],
        "heart disease, four hospitals together; nothing here has a limit",
        [values, rows, linked],
    )


BENCHMARKS = {"integer-attack": integer_attack}
