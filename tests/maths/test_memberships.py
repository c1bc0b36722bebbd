"""Sketches of sets of rows, against plain Python sets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coterie.maths import memberships
from coterie.maths.memberships import BUCKETS, Memberships, SketchIndex, n_different

PLACES = st.integers(0, 2**40) | st.integers(0, 60)
SETS = st.frozensets(PLACES, max_size=40)


def sketch(rows):
    """The sketch of one set."""
    seen = Memberships(1)
    seen.see(np.array(list(rows), np.int64), np.zeros(len(rows), np.intp))
    return seen.sketches[0]


def slow_sketch(rows):
    """The sum of every row's own sketch, in Python's integers."""
    summed = [0] * BUCKETS
    for row in rows:
        summed = [(a + int(b)) % 2**32 for a, b in zip(summed, sketch([row]), strict=True)]
    return summed


def near(one, others, tau):
    """What an index shall find, by comparing all pairs."""
    found = [(int(n_different(one, other)), place) for place, other in enumerate(others)]
    return sorted((n, place) for n, place in found if n < max(1, tau))


@given(PLACES)
def test_a_row_has_one_odd_number_in_one_bucket(row):
    filled = sketch([row])[sketch([row]) != 0]
    assert len(filled) == 1
    assert filled[0] % 2 == 1


@given(SETS)
def test_a_sketch_is_the_sum_of_its_rows_sketches(rows):
    assert sketch(rows).tolist() == slow_sketch(rows)


@given(SETS, SETS)
def test_sketches_add_and_subtract_as_sets_do(one, other):
    assert (sketch(one | other) == sketch(one) + sketch(other) - sketch(one & other)).all()
    assert (sketch(one - other) == sketch(one) - sketch(one & other)).all()


@given(SETS, SETS)
def test_sets_differ_in_no_more_buckets_than_rows(one, other):
    assert n_different(sketch(one), sketch(other)) <= len(one ^ other)


@given(SETS, st.frozensets(PLACES, min_size=1, max_size=9))
def test_a_difference_of_a_few_rows_always_shows(rows, moved):
    tau = len(moved) + 1
    assert 1 <= n_different(sketch(rows), sketch(rows ^ moved)) < tau


@given(st.integers(0, 10**6), st.integers(5, 12))
def test_differences_of_tau_rows_seldom_look_smaller(start, tau):
    """Rows that share a bucket hide each other; sets withheld for that are few."""
    rng = np.random.default_rng(start)
    looks = [int((sketch(rng.integers(0, 10**6, tau)) != 0).sum()) for _ in range(200)]
    sharing = 1 - np.prod(1 - np.arange(tau) / BUCKETS)
    assert np.mean([n < tau for n in looks]) < sharing + 0.15


def test_rows_in_order_fill_the_buckets_evenly():
    counts = np.count_nonzero([sketch([row]) for row in range(50 * BUCKETS)], axis=0)
    assert ((counts - 50) ** 2 / 50).sum() < 215  # chi-square, 127 degrees of freedom: p > 1e-6


@given(st.lists(st.tuples(PLACES, st.integers(0, 4)), max_size=60, unique_by=lambda pair: pair[0]), st.data())
def test_blocks_pieces_and_order_do_not_matter(rows, data):
    shuffled = data.draw(st.permutations(rows))
    cut, piece = data.draw(st.integers(0, len(rows))), data.draw(st.integers(1, 7))
    whole, parts = Memberships(5), Memberships(5)
    with pytest.MonkeyPatch.context() as patch:
        whole.see(*_arrays(rows))
        patch.setattr(memberships, "_PIECE", piece)
        for block in (shuffled[:cut], shuffled[cut:]):
            parts.see(*_arrays(block))
    assert (whole.sketches == parts.sketches).all()
    assert (whole.counts == parts.counts).all()


def _arrays(rows):
    return np.array([place for place, _ in rows], np.int64), np.array([cell for _, cell in rows], np.intp)


@given(st.lists(st.tuples(PLACES, st.integers(0, 4)), max_size=60, unique_by=lambda pair: pair[0]))
def test_every_cell_has_the_sketch_and_the_number_of_its_own_rows(rows):
    seen = Memberships(5)
    seen.see(*_arrays(rows))
    sizes = Counter(cell for _, cell in rows)
    assert seen.counts.tolist() == [sizes[cell] for cell in range(5)]
    for cell in range(5):
        assert (seen.sketches[cell] == sketch({place for place, other in rows if other == cell})).all()


def test_sums_over_more_rows_than_a_piece_are_exact_to_the_last_bit():
    n = memberships._PIECE + 1000
    buckets, numbers = memberships._drawn(np.arange(n))
    exact = np.zeros(BUCKETS, np.uint64)
    np.add.at(exact, buckets, numbers.astype(np.uint64))
    assert (sketch(range(n)) == exact.astype(np.uint32)).all()


def test_a_cell_too_many_is_an_error_and_not_another_cell():
    with pytest.raises(ValueError):
        Memberships(2).see(np.arange(3), np.array([0, 1, 2]))


@given(st.integers(0, 9) | st.integers(0, BUCKETS // 2), st.lists(SETS, max_size=12), SETS, st.integers(0, 2**32))
def test_an_index_finds_what_comparing_all_pairs_finds(tau, sets, rows, seed):
    rng = np.random.default_rng(seed)
    moved = [{*rng.integers(0, 2**40, size)} for size in rng.integers(0, tau + 4, 12)]
    kept = [sketch(one) for one in (*sets, *(rows ^ some for some in moved))]  # some of them close by
    index = SketchIndex(tau)
    for one in kept:
        index.add(one)
    assert len(index) == len(kept)
    assert all((index[place] == one).all() for place, one in enumerate(kept))
    assert index.find(sketch(rows)) == near(sketch(rows), kept, tau)


@given(st.integers(2, 20), SETS, st.frozensets(PLACES, min_size=1, max_size=19))
def test_an_index_finds_every_set_that_differs_by_fewer_than_tau_rows(tau, rows, moved):
    assume(len(moved) < tau)
    index = SketchIndex(tau)
    index.add(sketch(rows ^ moved))
    assert [place for _, place in index.find(sketch(rows))] == [0]
