"""By linear algebra over all that is shown and answered, before and after rows came, changed and left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from coterie.sites.views import forming, grouped_view, groups_folder
from coterie.sites.views.identity import row_tokens
from coterie.sites.views.store import load
from tests.attacks.asker import Asker, sum_columns
from tests.attacks.auditor import few_rows_told, memberships
from tests.attacks.shown import Audited, Rows, ShownSite, rows_secret

NONE = Audited(None, None)
COLUMNS = range(4)
SELECTIONS = ([0, 1, 2], [1, 2, 3], [0, 1, 3])
"""Columns; every two selections share two, and all share one."""


def mixed_rows(n: int, seed: int, share: float = 0.2) -> Rows:
    """Two columns of numbers, one with many values missing, and one of 0 and 1, a share of them 1."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4))
    rows[rng.random(n) < 0.3, 2] = np.nan
    rows[:, 3] = rng.random(n) < share
    return rows


def history(site: ShownSite, seed: int, n_questions: int, *, share: float = 0.2, anew: bool = False) -> None:
    """Rows leave, change and come, a few and many, from one look to the next; questions are asked at each."""
    rng = np.random.default_rng(seed)
    site.look(n_questions, seed=seed)
    for step in range(4):
        broken = rng.permutation(len(site.groups()))[: site.tau + 1]
        site.remove([int(rng.choice(site.groups()[group])) for group in broken])
        if step % 2:
            changed = rng.choice(site.here, size=2, replace=False).tolist()
            site.change(changed, mixed_rows(2, 50 * seed + step, share))
        site.append(mixed_rows(3 if step < 2 else 20 * site.tau, 70 * seed + step, share))
        site.look(n_questions, seed=10 * seed + step, anew=anew)


@pytest.mark.parametrize(("tau", "seed"), [(3, 0), (5, 1)])
def test_nothing_that_was_shown_or_answered_combines_to_few_rows(tmp_path: Path, tau: int, seed: int) -> None:
    """A thousand questions and totals over five states of a table, by all groups and by those that lack no value."""
    site = ShownSite(tmp_path, mixed_rows(24 * tau, seed), tau)
    history(site, seed, 200)
    assert site.n_questions == 1000
    for column in COLUMNS:
        assert site.audit(column) == NONE
        assert site.audit_answers(column) is None
    n_rows_alone = np.unique(site.released(0), axis=1, return_counts=True)[1]
    assert (n_rows_alone == 1).sum() > 20  # there was something to look for


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize("tau", [3, 5])
def test_the_same_over_other_histories(tmp_path: Path, tau: int, share: float, seed: int) -> None:
    """Where very few rows hold a 1, they count as holding a 0."""
    site = ShownSite(tmp_path, mixed_rows(24 * tau, 100 + seed, share), tau)
    history(site, seed, 10, share=share)
    assert [site.audit(column) for column in COLUMNS] == [NONE] * len(COLUMNS)


def test_one_row_that_leaves_at_a_time(tmp_path: Path) -> None:
    """After each the site is asked for totals of sums and squares: no two of them differ by few rows."""
    site = ShownSite(tmp_path, mixed_rows(60, 3), 5)
    site.look()
    for step in range(12):
        site.remove([site.groups()[step % 2][0]])
        site.look(4, seed=step)
    assert [site.audit(column) for column in COLUMNS] == [NONE] * len(COLUMNS)


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_lack_a_value_leave_groups_that_showed_the_others(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such groups showed is not over all their rows: new groups of the rest must not show what is left."""
    monkeypatch.setattr(forming, "group_rows", lambda rows, *_: np.arange(len(rows)) // 7)
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(84, 2))
    rows[::7, 1] = np.nan
    site = ShownSite(tmp_path, rows, 5)
    site.look(4)
    for step in range(3):
        for group in [site.groups()[place] for place in rng.permutation(len(site.groups()))[:6]]:
            lacking = [place for place in group if np.isnan(site.values[place, 1])]
            site.remove(lacking if lacking and rng.random() < 0.8 else [int(rng.choice(group))])
        site.look(4, seed=step)
    assert [site.audit(column) for column in (0, 1)] == [NONE, NONE]


# ---------------------------------------------------------------- selections of columns


def test_a_site_that_answered_refuses_other_selections_of_its_columns(tmp_path: Path) -> None:
    rows = mixed_rows(60, 4)
    tables = [ArrayTable(rows[:, chosen], columns=[f"x{i}" for i in chosen]) for chosen in SELECTIONS]
    ledger = SiteLedger(tmp_path / "ledger.jsonl")
    policy = Policy(per_site_results="averages")
    Asker(Site("here", tables[0], policy=policy, ledger=ledger)).ask(sum_columns(3))
    for table in tables[1:]:
        with pytest.raises(InputError, match="use the same columns"):
            Site("here", table, policy=policy, ledger=ledger)
    again = Site("here", tables[0], policy=policy, ledger=ledger)
    assert again.policy.min_group == 5


def _groups_of(rows: Rows, chosen: Sequence[int], ledger: SiteLedger, name: str) -> list[list[int]]:
    """The groups of rows by some of their columns, kept under a name."""
    table = ArrayTable(rows[:, chosen], keys=[str(place) for place in range(len(rows))])
    grouped_view(table, 5, ledger, name=name)
    folder = groups_folder(ledger, name)
    assert folder is not None
    grouping = load(folder, rows_secret(ledger))
    assert grouping is not None
    places = dict(zip(row_tokens(table, rows_secret(ledger)).rows.tolist(), range(len(rows)), strict=True))
    kept = grouping.rows
    return [[places[token] for token in kept.tokens[kept.place == number].tolist()] for number in grouping.numbers]


# ---------------------------------------------------------------- the audit can fail


def test_selections_that_are_grouped_each_on_its_own_combine_to_few_rows(tmp_path: Path) -> None:
    """So the columns that a table offers are fixed; three tables with names of their own would be three groupings."""
    rows, ledger = mixed_rows(60, 4), SiteLedger(tmp_path / "ledger.jsonl")
    sets = [group for chosen in SELECTIONS for group in _groups_of(rows, chosen, ledger, f"by {chosen}")]
    assert few_rows_told(memberships(sets, 60), 5) is not None
    alone = _groups_of(rows, SELECTIONS[0], ledger, f"by {SELECTIONS[0]}")
    assert few_rows_told(memberships(alone, 60), 5) is None


def test_groups_formed_anew_at_each_change_combine_to_few_rows(tmp_path: Path) -> None:
    site = ShownSite(tmp_path, mixed_rows(72, 0), 3)
    history(site, 0, 20, anew=True)
    assert site.audit(0).sums is not None
    assert site.audit_answers(0) is not None


def test_a_group_that_goes_on_without_a_row_it_lost_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ShownSite(tmp_path, mixed_rows(63, 5), 5)
    site.look(20)
    large = next(group for group in site.groups() if len(group) > 5)
    label = {place: number for number, group in enumerate(site.groups()) for place in group}
    site.remove([large[0]])
    monkeypatch.setattr(forming, "group_rows", lambda *_: np.array([label[place] for place in site.here]))
    site.look(20, anew=True)
    assert site.audit(0).sums == (large[0],)
    assert site.audit(0).squares == (large[0],)
