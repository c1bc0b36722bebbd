"""Agreement of sites on the levels of text columns that nobody declared."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import open_tables, split_by_site
from coterie.sites.tables.levels import MOST_LEVELS, agreed_levels
from coterie.sites.views.forming import form_groups, own_scale

VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d", "other", "é"]))
SITES = st.lists(st.lists(VALUES, min_size=1, max_size=40), min_size=1, max_size=4)


def frames(columns):
    return {f"s{i}": pd.DataFrame({"x": np.arange(len(own)) / 7, "kind": own}) for i, own in enumerate(columns)}


def opened(tables, least=5, **options):
    given = {name: {"name": name, **options} for name in tables}
    return open_tables(tables, given, dict.fromkeys(tables, least), keeps_unlike=True)


def rows_of(table):
    return np.concatenate([block.rows for block in table.raw_blocks()])


def slow_levels(columns, least):
    """What sites should agree on, value by value."""
    names, others = set(), False
    for own in columns:
        counts = Counter(value for value in own if value is not None)
        common = {value for value in counts if counts[value] >= least}
        names |= common
        others |= sum(counts[value] for value in counts if value not in common) >= least or "other" in common
    return sorted(names - {"other"}) + ["other"] * others


@settings(max_examples=60, deadline=None)
@given(SITES, st.integers(1, 6))
def test_sites_agree_on_what_enough_rows_of_any_of_them_hold(columns, least):
    if not any(value is not None for own in columns for value in own):
        return
    typed = [pd.Series(own, dtype="string") for own in columns]
    tables, names = frames(typed), slow_levels(columns, least)
    if not names:
        with pytest.raises(InputError, match="holds text"):
            opened(tables, least)
        return
    for own, table in zip(columns, opened(tables, least).values(), strict=True):
        assert [column.name for column in table.columns] == ["x", *(f"kind={name}" for name in names)]
        for value, row in zip(own, rows_of(table)[:, 1:], strict=True):
            if value is None:
                assert np.isnan(row).all()
                continue
            level = value if value in names else "other"
            assert row.tolist() == [float(name == level) for name in names]


def test_a_site_is_asked_for_nothing_that_fewer_than_a_group_of_its_rows_hold():
    rare = {"south": ["f"] * 9 + ["m"] * 9 + ["rare"] * 4, "north": ["f"] * 9 + ["m"] * 9}
    for times in (4, 5):
        rare["south"][18:] = ["rare"] * times
        (table, _) = opened(frames(rare.values())).values()
        assert ("kind=rare" in [c.name for c in table.columns]) == (times == 5)


def test_groups_show_a_level_exactly_where_the_site_would_name_it():
    """So the names that leave are a function of the groups."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        own = rng.permutation(["a"] * (seed % 8) + ["b"] * 9 + ["c"] * 30).tolist()
        table = next(iter(opened(frames([own, ["a", "b", "c"] * 6])).values()))
        chosen = np.ones(table.n_rows, bool)
        shown = form_groups(table, chosen, own_scale(table), 5).cells
        held = (shown.means * shown.present).sum(axis=0)[1:]
        named = agreed_levels(*_reading(own), {"": 5})[0]["kind"]
        assert {name for name, total in zip("abc", held, strict=True) if total > 0} == set(named)


def _reading(own):
    from coterie.sites.tables import Reading
    from coterie.sites.tables.opening import source_of

    return {"": source_of(pd.DataFrame({"kind": own}), "t")}, {"": Reading()}


def test_a_column_without_values_at_one_site_is_missing_there():
    empty = pd.DataFrame({"x": [1.0, 2.0], "kind": [np.nan, np.nan]})
    full = pd.DataFrame({"x": np.arange(12.0), "kind": ["a", "b"] * 6})
    tables = opened({"empty": empty, "full": full})
    assert np.isnan(rows_of(tables["empty"])[:, 1:]).all()
    assert rows_of(tables["full"])[:, 1:].sum() == 12


def test_text_at_one_site_and_numbers_at_another_is_an_error_unless_all_are_meant_as_categories():
    tables = {
        "north": pd.DataFrame({"x": np.arange(12.0), "kind": ["1", "2"] * 6}),
        "south": pd.DataFrame({"x": np.arange(12.0), "kind": [1, 2] * 6}),
    }
    with pytest.raises(InputError, match=r"'kind' holds text in 'north' and numbers in 'south'; .*'categories'"):
        opened(tables)
    meant = opened(tables, categories={"kind": []})
    for table in meant.values():
        assert [column.name for column in table.columns] == ["x", "kind=1", "kind=2"]
        assert rows_of(table)[:, 1:].sum(axis=0).tolist() == [6, 6]


def test_a_column_of_names_is_no_categories():
    own = [f"p{i}" for i in range(MOST_LEVELS + 1)]
    tables = frames([own, own])
    for least in (1, 5):
        assert [c.name for c in opened(tables, least)["s0"].columns] == ["x", "kind=other"]
        with pytest.raises(InputError, match="column 'kind' has no value that enough rows"):
            open_tables(tables, {name: {"name": name} for name in tables}, dict.fromkeys(tables, least))


def test_a_site_that_names_none_uses_what_others_name():
    tables = frames([["a"] * 6 + ["b"] * 6, ["c"] * 6 + ["a"] * 6])
    options = {name: {"name": name} for name in tables}
    shown = open_tables(tables, options, {"s0": 5, "s1": None})
    assert [c.name for c in shown["s1"].columns] == ["x", "kind=a", "kind=b"]
    assert rows_of(shown["s1"])[:, 1:].sum(axis=0).tolist() == [6, 0]
    with pytest.raises(InputError, match="declare its values in 'categories'"):
        open_tables(tables, options, {"s0": None, "s1": None})


@pytest.mark.parametrize("form", ["csv", "frame"])
def test_one_file_of_all_sites_agrees_by_site(tmp_path, form):
    frame = pd.DataFrame(
        {"site": ["n"] * 10 + ["s"] * 10, "x": np.arange(20.0), "kind": ["a"] * 6 + ["b"] * 4 + ["b"] * 4 + ["a"] * 6}
    )
    source = frame
    if form == "csv":
        source = tmp_path / "all.csv"
        frame.to_csv(source, index=False)
    names = {least: [c.name for c in split_by_site(source, "site", least=least)["n"].columns] for least in (1, 4, 5)}
    assert names == {1: ["x", "kind=a", "kind=b"], 4: ["x", "kind=a", "kind=b"], 5: ["x", "kind=a"]}
    assert rows_of(split_by_site(source, "site", least=5)["s"])[:, 1].sum() == 6


def test_who_may_name_levels_is_the_policys_word():
    assert Policy().level_rows == 5
    assert Policy(min_group=10).level_rows == 10
    assert Policy.simulation().level_rows == 1
    assert Policy(levels="listed").level_rows is None
    assert Policy(privacy=PrivacyRules(1.0)).level_rows is None
