"""A site's groups over time: formed once, kept, and changed by one rule that never tells of few rows."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.maths.grouping import group_rows
from coterie.messages.codec import FORMAT_VERSION, Envelope
from coterie.sites.ledger import SiteLedger
from coterie.sites.tables import ArrayTable
from coterie.sites.views import forming, grouped_view, groups_folder
from coterie.sites.views.identity import row_tokens
from coterie.sites.views.store import BATCH, GONE, OUT, REMAINS, WAITING, Grouping, form, load, save, update
from tests.attacks.auditor import few_rows_told, memberships

SECRET = b"s" * 32


def _rows(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def _sets(grouping: Grouping, ids: dict[int, int]) -> list[set[int]]:
    """The rows behind every group that stands; ``ids`` are the rows' numbers by their tokens."""
    rows = grouping.rows
    return [{ids[int(token)] for token in rows.tokens[rows.place == number]} for number in grouping.numbers]


class _Site:
    """Rows that come and go, every set of them that was ever a group, and every group's mean at the time."""

    def __init__(self, rows: np.ndarray, tau: int, *, keyed: bool = False) -> None:
        self.tau, self.keyed = tau, keyed
        self.numbers, self.rows = list(range(len(rows))), rows
        self.next = len(rows)
        self.tokens: dict[int, int] = {}
        self.grouping = form(self._table(), tau, SECRET)
        self.released: list[set[int]] = []
        self._release()

    def _table(self) -> ArrayTable:
        keys = [f"patient {n}" for n in self.numbers] if self.keyed else None
        table = ArrayTable(self.rows, keys=keys)
        self.tokens |= dict(zip(row_tokens(table, SECRET).rows.tolist(), self.numbers, strict=True))
        return table

    def _release(self) -> None:
        self.released += [one for one in _sets(self.grouping, self.tokens) if one not in self.released]

    def change(self, *, remove: list[int] = (), add: np.ndarray | None = None, back: list[int] = ()) -> None:  # type: ignore[assignment]
        keep = [place for place, number in enumerate(self.numbers) if number not in remove]
        self.numbers, self.rows = [self.numbers[place] for place in keep], self.rows[keep]
        if add is not None:
            self.numbers += list(range(self.next, self.next + len(add)))
            self.rows = np.concatenate([self.rows, add])
            self.next += len(add)
        self.grouping, self.last = update(self.grouping, self._table())
        self._release()

    def audit(self) -> tuple[int, ...] | None:
        return few_rows_told(memberships(self.released, self.next), self.tau)


@pytest.mark.parametrize("tau", [3, 5])
def test_every_row_stands_in_one_group_of_the_size_that_is_promised(tau: int) -> None:
    site = _Site(_rows(57), tau)
    sizes = [len(one) for one in site.released]
    assert sum(sizes) == 57
    assert all(tau <= size < 2 * tau for size in sizes)
    assert site.grouping.cells.sizes.tolist() == sizes


def test_the_same_rows_in_another_order_and_format_are_the_same_groups() -> None:
    rows = _rows(60).astype(np.float32)
    made = form(ArrayTable(rows), 5, SECRET)
    order = np.random.default_rng(1).permutation(60)
    again, change = update(made, ArrayTable(rows[order].astype(np.float64)))
    assert (change.formed, change.broken) == (0, 0)
    np.testing.assert_array_equal(again.cells.means, made.cells.means)


def test_equal_rows_count_as_often_as_they_are_there() -> None:
    rows = np.repeat(_rows(4), 5, axis=0)
    made = form(ArrayTable(rows), 5, SECRET)
    again, change = update(made, ArrayTable(rows[1:]))
    assert change.broken == 1
    assert again.cells.sizes.sum() == 15
    assert len(np.unique(made.rows.tokens)) == 20


@pytest.mark.parametrize("keyed", [False, True])
def test_a_group_that_loses_a_row_leaves_whole(keyed: bool) -> None:
    site = _Site(_rows(40), 5, keyed=keyed)
    (own,) = [one for one in site.released if 7 in one]
    site.change(remove=[7])
    standing = _sets(site.grouping, site.tokens)
    assert site.last.broken == 1
    assert not any(own & one for one in standing)
    assert site.audit() is None


def test_a_changed_row_breaks_its_group_and_stays_out_where_an_id_names_it() -> None:
    site = _Site(_rows(40), 5, keyed=True)
    site.rows = site.rows.copy()
    site.rows[7, 0] += 1.0
    site.change()
    assert site.last.broken == 1
    rows = site.grouping.rows
    places = dict(zip((site.tokens[t] for t in rows.tokens.tolist()), rows.place.tolist(), strict=True))
    assert places[7] == OUT


def test_what_broken_groups_leave_over_forms_new_groups_of_rows_from_different_ones() -> None:
    tau = 3
    site = _Site(_rows(60), tau)
    before = list(site.released)
    gone = [min(one) for one in before[:6]]
    site.change(remove=gone)
    new = [one for one in site.released if one not in before]
    assert new
    for one in new:
        assert len({next(i for i, old in enumerate(before) if row in old) for row in one}) == len(one) == tau
    assert site.audit() is None


def test_rows_of_a_group_of_remains_never_form_another() -> None:
    tau = 3
    site = _Site(_rows(60), tau)
    before = list(site.released)
    site.change(remove=[min(one) for one in before[:6]])
    new = [one for one in site.released if one not in before]
    site.change(remove=[min(one) for one in new])
    assert len(site.released) == len(before) + len(new)
    assert site.audit() is None


def test_a_few_rows_that_are_added_wait_and_many_form_groups_of_their_own() -> None:
    tau = 5
    site = _Site(_rows(50), tau)
    before = list(site.released)
    site.change(add=_rows(BATCH * tau - 1, seed=1))
    assert site.released == before
    assert site.last.waiting == BATCH * tau - 1
    site.change(add=_rows(1, seed=2))
    new = [one for one in site.released if one not in before]
    assert set.union(*new) == set(range(50, 50 + BATCH * tau))
    assert site.audit() is None


def test_a_row_that_comes_back_stays_out() -> None:
    tau = 3
    rows = _rows(60)
    site = _Site(rows, tau)
    site.change(remove=[0])
    site.numbers.append(0)
    site.rows = np.concatenate([site.rows, rows[:1]])
    site.change(add=_rows(BATCH * tau, seed=3))
    places = dict(zip(site.grouping.rows.tokens.tolist(), site.grouping.rows.place.tolist(), strict=True))
    token = next(t for t, n in site.tokens.items() if n == 0)
    assert places[token] == OUT
    assert site.audit() is None


def _history(site: _Site, seed: int) -> None:
    """Rows removed, added and brought back at random."""
    rng = np.random.default_rng(seed)
    for step in range(6):
        gone = rng.choice(site.numbers, size=int(rng.integers(1, 6)), replace=False).tolist()
        more = _rows(int(rng.choice([0, 4, BATCH * site.tau])), seed=1000 + 100 * seed + step)
        site.change(remove=gone, add=more)


@pytest.mark.parametrize("seed", range(8))
def test_no_history_of_rows_tells_of_few_of_them(seed: int) -> None:
    site = _Site(_rows(36, seed=seed), 3, keyed=bool(seed % 2))
    _history(site, seed)
    assert site.audit() is None


def _recomputed(old: list[set[int]], rows: dict[int, np.ndarray], tau: int) -> list[set[int]]:
    """The wrong rule: a group goes on without the row it lost."""
    return [one & rows.keys() for one in old if len(one & rows.keys()) >= tau]


def _regrouped(old: list[set[int]], rows: dict[int, np.ndarray], tau: int) -> list[set[int]]:
    """The other wrong rule: all groups are formed anew."""
    names = list(rows)
    labels = group_rows(np.array([rows[name] for name in names]), tau)
    return [{names[i] for i in np.flatnonzero(labels == label)} for label in np.unique(labels)]


@pytest.mark.parametrize("rule", [_recomputed, _regrouped])
def test_the_wrong_rules_do_tell_of_single_rows(rule: Callable[..., list[set[int]]]) -> None:
    tau, rows = 3, dict(enumerate(_rows(36)))
    old = _regrouped([], rows, tau + 1)
    released, told = list(old), None
    for gone in range(8):
        rows.pop(gone)
        old = rule(old, rows, tau)
        released += old
        told = told or few_rows_told(memberships(released, 36), 2)
    assert told is not None


def test_thin_cells_stay_what_they_were_when_other_groups_leave() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    rows[rng.random(60) < 0.6, 1] = np.nan
    rows[:, 2] = rng.random(60) < 0.15
    made = form(ArrayTable(rows), 5, SECRET)
    assert not made.cells.full[:, 1:].all()
    later, change = update(made, ArrayTable(rows[4:]))
    assert 0 < change.broken <= 4
    for place, number in enumerate(later.numbers):
        (before,) = np.flatnonzero(made.numbers == number)
        np.testing.assert_array_equal(later.cells.means[place], made.cells.means[before])
        np.testing.assert_array_equal(later.cells.squares[place], made.cells.squares[before])


def test_what_remains_show_of_a_thin_column_follows_from_what_was_shown_before() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(90, 2))
    rows[rng.random(90) < 0.5, 1] = np.nan
    made = form(ArrayTable(rows), 3, SECRET)
    gone = [int(np.flatnonzero(_labels_of(made, rows) == number)[0]) for number in made.numbers[:9]]
    later, change = update(made, ArrayTable(np.delete(rows, gone, axis=0)))
    assert change.formed > 0
    new = later.numbers >= made.n_formed
    standing = later.cells.taken(~new)
    mean = np.nansum(standing.present[:, 1] * standing.means[:, 1]) / standing.present[:, 1].sum()
    shown = later.cells.means[new, 1]
    full = later.cells.full[new, 1]
    np.testing.assert_allclose(shown[~full], mean)
    assert (~full).any()


def test_remains_show_nothing_of_their_own_in_a_column_that_a_broken_group_showed_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There the sum over a broken group is not over all its rows: less the new groups, few would be left."""
    monkeypatch.setattr(forming, "group_rows", lambda *_: np.repeat(np.arange(5), 7))
    rows = _rows(35, 2)
    rows[[0, 7, 14, 21, 28], 1] = np.nan  # one of every seven: each group shows six values of the column
    made = form(ArrayTable(rows), 5, SECRET)
    assert made.cells.sizes.tolist() == [7] * 5
    assert not made.cells.full[:, 1].any()
    assert (made.cells.present[:, 1] == 6).all()
    later, change = update(made, ArrayTable(np.delete(rows, [0, 7, 14, 21, 28], axis=0)))
    assert change.broken == 5
    assert change.formed == 6
    assert later.cells.full[:, 0].all()
    assert not later.cells.full[:, 1].any()  # though no row of theirs lacks a value


def _labels_of(grouping: Grouping, rows: np.ndarray) -> np.ndarray:
    places = dict(zip(grouping.rows.tokens.tolist(), grouping.rows.place.tolist(), strict=True))
    return np.array([places[token] for token in row_tokens(ArrayTable(rows), SECRET).rows.tolist()])


def test_the_scatter_matrix_is_shown_to_sites_with_many_rows_and_not_after_rows_left() -> None:
    rows = _rows(120)
    made = form(ArrayTable(rows), 5, SECRET)
    assert made.scatter is not None
    view = made.view(ArrayTable(rows))
    np.testing.assert_allclose(np.diag(made.scatter), view.within_columns)
    total = made.scatter + (made.cells.means * made.cells.weights[:, None]).T @ made.cells.means
    np.testing.assert_allclose(total, rows.T @ rows)
    assert form(ArrayTable(rows[:47]), 5, SECRET).scatter is None
    assert update(made, ArrayTable(rows[1:]))[0].scatter is None


# ---------------------------------------------------------------- kept beside the ledger


def test_groups_are_kept_for_the_site_alone_and_used_again(tmp_path: Path) -> None:
    rows = _rows(40)
    ledger = SiteLedger(tmp_path / "ledger.jsonl")
    first = grouped_view(ArrayTable(rows), 5, ledger)
    folder = groups_folder(ledger, "table")
    assert folder is not None
    for path in (folder, *folder.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    ledger.close()
    again = SiteLedger(tmp_path / "ledger.jsonl")
    second = grouped_view(ArrayTable(rows[::-1]), 3, again)  # a smaller min_group: the groups do
    for one, other in zip(first.raw_blocks(), second.raw_blocks(), strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
    assert second.min_group == 5


def test_stored_groups_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = _rows(90)
    rows[rows[:, 1] > 1, 1] = np.nan
    made = update(form(ArrayTable(rows), 3, SECRET), ArrayTable(rows[9:]))[0]
    save(made, tmp_path / "groups")
    found = load(tmp_path / "groups", SECRET)
    assert found is not None
    assert (found.min_group, found.columns, found.n_formed) == (made.min_group, made.columns, made.n_formed)
    for name in ("means", "present", "squares", "full", "sizes", "weights"):
        np.testing.assert_array_equal(getattr(found.cells, name), getattr(made.cells, name))
    for name in ("tokens", "values", "place", "origin"):
        np.testing.assert_array_equal(getattr(found.rows, name), getattr(made.rows, name))
    assert {WAITING, REMAINS, OUT, GONE} >= set(found.rows.place[found.rows.place < 0].tolist())


def test_other_columns_or_larger_groups_need_the_data_officers_word_once_something_left(tmp_path: Path) -> None:
    rows = _rows(40)
    ledger = SiteLedger(tmp_path / "ledger.jsonl")
    grouped_view(ArrayTable(rows[:, :2]), 3, ledger)
    grouped_view(ArrayTable(rows), 5, ledger)  # nothing has left yet
    asked = Envelope(FORMAT_VERSION, b"r" * 16, 0, 0, bytes(8), bytes(8), bytes(16), "lloyd")
    ledger.answer(asked, b"sums", 1)
    with pytest.raises(InputError, match="coterie site regroup"):
        grouped_view(ArrayTable(rows[:, :2]), 5, ledger)
    with pytest.raises(InputError, match=r"at least 5 rows.*requires 10"):
        grouped_view(ArrayTable(rows), 10, ledger)
    assert grouped_view(ArrayTable(rows), 10, ledger, anew=True).min_group == 10
    assert grouped_view(ArrayTable(rows), 10, ledger).min_group == 10


def test_a_table_is_grouped_once_where_nothing_is_kept() -> None:
    table = ArrayTable(_rows(40))
    assert grouped_view(table, 5, SiteLedger()) is grouped_view(table, 5, SiteLedger())


def test_a_damaged_folder_is_said_in_one_sentence(tmp_path: Path) -> None:
    ledger = SiteLedger(tmp_path / "ledger.jsonl")
    grouped_view(ArrayTable(_rows(40)), 5, ledger)
    folder = groups_folder(ledger, "table")
    assert folder is not None
    (folder / "means.npy").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        grouped_view(ArrayTable(_rows(40)), 5, ledger)
