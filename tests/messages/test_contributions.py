"""Private questions: answered by contributions alone, which are whole, short, and nobody else's business."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.engines.inprocess import in_process
from coterie.errors import BadAnswer, QuorumLost
from coterie.maths.accounting import ROUNDING, SMOOTHING
from coterie.messages.contributions import (
    CONTRIBUTIONS,
    EXACT,
    PIECE_ROWS,
    ByCell,
    Gram,
    Noisy,
    PrivateRequest,
    Whole,
    contributes,
    noisy,
)
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import ANSWERS, Memory, answers
from coterie.messages.verbs import each, total
from coterie.methods.kernel.landmarks.whole_features import ShowFeatures, WholeFeatures
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.private_sums import (
    PRIVATE,
    CountInBins,
    MeasureCost,
    SumByCell,
    SumMarks,
    SumProducts,
    SumRows,
    SumWholeColumns,
)
from coterie.methods.shared.whole_rows import ROWS, WIDEST, ShowWhole, WholeRows
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie.sites.views.noise import exact_sums, noisy_answer

D = 3
GRID = 1.0 / WIDEST


class Sums(Noisy):
    values: Integers = noisy("d", norm="reach")


class AskSums(PrivateRequest[Sums]):
    d: int
    reach: int


class Plain(Reply):
    values: Floats = array("d", bound="1")


class AskPlainly(Request[Sums]):
    d: int
    reach: int


class AskForPlain(PrivateRequest[Plain]):  # type: ignore[type-var]
    d: int


class Undeclared(Noisy):
    values: Integers = array("d", dtype="int64", bound="1")


class AskUndeclared(PrivateRequest[Undeclared]):
    d: int


def asked(kind: type[PrivateRequest[Any]], *values: Any, n_arrays: int = 1, **more: Any) -> Any:
    return replace(kind(3, 0, 64, np.full(n_arrays, 1000.0), *values), **more)


def memory_of(rows: Any) -> Memory:
    memory = Memory()
    rows = np.asarray(rows, float).reshape(-1, D)
    show = ShowWhole(GRID, 1.0, np.zeros(D), np.zeros(0), np.zeros((0, 0)))
    memory[ROWS] = WholeRows(ArrayTable(rows), show)
    return memory


# ---------------------------------------------------------------- what can be registered


@pytest.mark.parametrize("request_type", [AskSums, AskPlainly, *PRIVATE], ids=lambda kind: kind.__name__)
def test_a_request_for_noisy_sums_cannot_be_registered_with_a_function_that_answers(request_type):
    with pytest.raises(TypeError, match="contributes"):
        answers(request_type)(lambda table, memory, ask: Sums(np.zeros(D, np.int64)))
    assert request_type not in ANSWERS


@pytest.mark.parametrize("request_type", [AskPlainly, AskForPlain, AskUndeclared], ids=lambda kind: kind.__name__)
def test_contributions_are_registered_for_private_requests_of_declared_noisy_sums_alone(request_type):
    with pytest.raises(TypeError, match=r"PrivateRequest\[<a Noisy reply>\]|declare it by noisy"):
        contributes(request_type)
    assert request_type not in CONTRIBUTIONS


def test_the_private_requests_have_contributions_and_no_answers():
    assert set(PRIVATE) <= CONTRIBUTIONS.keys()
    assert not CONTRIBUTIONS.keys() & ANSWERS.keys()


# ---------------------------------------------------------------- what is answered

WRONG = {
    "a sum": lambda rows: (rows.sum(axis=0),),
    "a reply": lambda rows: Sums(rows.sum(axis=0).astype(np.int64)),
    "an array for each row": lambda rows: (rows,),
    "two contributions": lambda rows: (Whole(rows), Whole(rows)),
    "none": lambda rows: (),
    "contributions of all rows together": lambda rows: (Whole(rows.sum(axis=0, keepdims=True)),),
    "of twice the rows": lambda rows: (Whole(np.concatenate([rows, rows])),),
    "of other columns": lambda rows: (Whole(rows[:, 1:]),),
}


@pytest.fixture
def summing(monkeypatch):
    """Register a function of rows as what they add to :class:`AskSums`."""

    def register(function):
        monkeypatch.setitem(CONTRIBUTIONS, AskSums, lambda rows, memory, ask: function(rows))

    monkeypatch.setitem(METHODS, "trial", Method("trial", "", (AskSums, AskForPlain, ShowWhole), "", ""))
    return register


def ask_at_sites(request, rows=None, ask=total):
    def protocol():
        yield from total(ShowWhole(GRID, 1.0, np.zeros(D), np.zeros(0), np.zeros((0, 0))))
        return (yield from ask(request))

    rows = np.full((6, D), 0.5) if rows is None else rows
    with in_process({f"s{i}": ArrayTable(rows[i::3]) for i in range(3)}) as channel:
        return run(protocol(), channel, method="trial")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_site_answers_with_nothing_but_a_contribution_of_each_row_to_each_array(wrong, summing):
    summing(WRONG[wrong])
    with pytest.raises(QuorumLost):
        ask_at_sites(asked(AskSums, D, 10**6))
    summing(lambda rows: (Whole(rows),))
    assert ask_at_sites(asked(AskSums, D, 10**6)).values.shape == (D,)


def test_a_private_request_for_a_plain_reply_is_answered_by_no_site(summing, monkeypatch):
    monkeypatch.setitem(ANSWERS, AskForPlain, lambda table, memory, ask: Plain(np.zeros(D)))
    with pytest.raises(QuorumLost):
        ask_at_sites(AskForPlain(3, 0, 64, np.zeros(0), D), ask=each)
    with pytest.raises(QuorumLost):
        ask_at_sites(AskForPlain(3, 0, 64, np.full(1, 1000.0), D), ask=each)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_site_without_rows_refuses_what_one_with_rows_refuses(wrong, summing):
    """Who has rows is not to be told by who refuses."""
    summing(WRONG[wrong])
    for rows in (np.zeros((0, D)), np.zeros((1, D)), np.zeros((5, D))):
        with pytest.raises((BadAnswer, ValueError, AttributeError, TypeError)):
            exact_sums(memory_of(rows), asked(AskSums, D, 10**6))


@pytest.mark.parametrize(
    "ask",
    [
        asked(SumRows, D + 1, 100, n_arrays=3),
        asked(SumProducts, 7, 100, 100.0, np.zeros(D)),
        asked(SumProducts, 6, 100, 100.0, np.zeros(D - 1)),
        asked(SumByCell, 100, np.zeros((2, D + 1)), n_arrays=2),
        asked(SumByCell, 100, np.zeros((0, D)), n_arrays=2),
    ],
    ids=lambda ask: type(ask).__name__,
)
def test_a_question_of_other_columns_is_refused_with_and_without_rows(ask):
    for rows in (np.zeros((0, D)), np.full((2, D), 0.5)):
        with pytest.raises((ValueError, IndexError)):
            exact_sums(memory_of(rows), ask)


def test_what_is_too_long_or_no_whole_number_is_left_out_row_by_row(summing):
    rows = np.array([[3, 0, 4], [30, 0, 40], [1.5, 0, 0], [np.nan, 0, 0], [np.inf, 0, 0], [0, 5, 0], [0, 0, 6]])
    added = Whole(rows)
    fits = np.array([1, 0, 0, 0, 0, 1, 0], bool)
    with np.errstate(all="ignore"):
        assert (((x := added.norms_squared()) <= 25) & (x == np.rint(x))).tolist() == fits.tolist()
    summing(lambda shown: (added if len(shown) == len(rows) else Whole(shown),))
    found = exact_sums(memory_of(np.zeros((len(rows), D))), asked(AskSums, D, 5))
    np.testing.assert_array_equal(found[0], rows[fits].sum(axis=0))


def test_contributions_add_up():
    rows = np.array([[1.0, 2, 3], [-4, 5, 6]])
    np.testing.assert_array_equal(Whole(rows).added_up((3,)), [-3, 7, 9])
    np.testing.assert_array_equal(ByCell(np.array([2, 2])).added_up((3,)), [0, 0, 2])
    np.testing.assert_array_equal(ByCell(np.array([2, 0]), rows).added_up((3, 3))[[2, 0]], rows)
    np.testing.assert_array_equal(Gram(rows).added_up((6,)), (rows.T @ rows)[np.triu_indices(3)])
    np.testing.assert_array_equal(Gram(rows).norms_squared(), (rows**2).sum(axis=1) ** 2)


# ---------------------------------------------------------------- sensitivity of every private request

NUMBERS = st.floats(-2, 2) | st.sampled_from([0.0, 1.0, -1.0, math.nan, math.inf, 1e300])
AWAY = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1e15, -1e200, 1e300])


def vectors(numbers, *shape):
    size = math.prod(shape)
    return st.lists(numbers, min_size=size, max_size=size).map(lambda v: np.array(v).reshape(shape))


REQUESTS = st.one_of(
    st.integers(1, 10**5).map(lambda reach: asked(SumRows, D, reach, n_arrays=3)),
    *(
        st.integers(1, 10**5).map(lambda reach, k=k: asked(SumWholeColumns, k, D + 1 - min(k, 2), reach, n_arrays=3))
        for k in (1, 2, 9)
    ),
    *(
        st.integers(1, 10**5).map(lambda reach, k=k: asked(SumMarks, k, D + 1 - min(k, 2), reach, n_arrays=2))
        for k in (1, 2, 9)
    ),
    *(st.integers(1, 40).map(lambda bins, k=k: asked(CountInBins, k, D + 1 - min(k, 2), bins)) for k in (1, 2, 9)),
    st.builds(
        lambda reach, radius, center: asked(SumProducts, 6, reach, radius, center),
        st.integers(1, 2**18),
        st.sampled_from([1e-300, 0.5, 100.0, 1e5, 1e300, math.inf]),
        vectors(AWAY, D),
    ),
    st.builds(
        lambda kind, reach, centers: asked(kind, reach, centers, n_arrays=2 if kind is SumByCell else 1),
        st.sampled_from([SumByCell, MeasureCost]),
        st.integers(1, 10**5),
        vectors(AWAY, 4, D),
    ),
)


def test_sensitivity_is_tested_for_every_private_request():
    assert set(PRIVATE) == {SumRows, SumWholeColumns, SumMarks, CountInBins, SumProducts, SumByCell, MeasureCost}


@given(st.lists(vectors(NUMBERS, D), min_size=1, max_size=40), REQUESTS, st.data())
def test_without_one_row_sums_differ_by_no_more_than_declared(rows, ask, data):
    place = data.draw(st.integers(0, len(rows) - 1))
    whole = exact_sums(memory_of(rows), ask)
    without = exact_sums(memory_of(rows[:place] + rows[place + 1 :]), ask)
    alone = exact_sums(memory_of([rows[place]]), ask)
    charged = 0.0
    for item, norm, one, other, own in zip(ask.layout.fields, ask.norms, whole, without, alone, strict=True):
        difference = np.array(one - other, dtype=object).ravel()
        np.testing.assert_array_equal(difference, own.ravel())  # what a row adds has nothing to do with others
        weights = np.ones(len(difference), dtype=object)
        if item.spec.is_gram:
            rows_, columns = np.triu_indices(D)
            weights = np.where(rows_ == columns, 1, 2)
        assert (weights * difference * difference).sum() <= norm**2 * (1 + ROUNDING)
        charged += norm**2 / (ask.shares * 1000 / 3)
    assert charged > 0


def test_centers_far_away_leave_products_exact():
    """A center of 1e200 would make the product of every row inexact, and its rounding depend on other rows."""
    rows = np.full((5, D), 0.25)
    centers = np.array([[1e200] * D, [-1e200] * D, [0.0] * D, [1e15] * D])
    counts, _ = exact_sums(memory_of(rows), asked(SumByCell, 100, centers, n_arrays=2))
    np.testing.assert_array_equal(counts, [0, 0, 5, 0])
    centers = np.array([[1e16 + 4] * D, [1e16] * D])  # both are as far away as a center can be
    counts, _ = exact_sums(memory_of(rows), asked(SumByCell, 100, centers, n_arrays=2))
    np.testing.assert_array_equal(counts, [5, 0])


def test_rows_that_a_radius_makes_huge_are_as_long_as_any():
    """Squares of numbers like 1e200 would overflow; of 1e30, their rounding could depend on other rows."""
    for radius in (1e-25, 1e-200):
        (packed,) = exact_sums(memory_of(np.full((2, D), 0.5)), asked(SumProducts, 6, 1000, radius, np.zeros(D)))
        assert packed.tolist() == [packed[0]] * 6
        assert 0.99 * 2 * 1000**2 / D < packed[0] <= 2 * 1000**2 / D


def test_rows_are_the_same_whenever_they_are_shown_whatever_a_question_makes_of_them():
    """Another sum the second time would be refused, and tell that there are rows."""
    landmarks = np.array([[0.0] * D, [1.0] * D])
    show = ShowFeatures("rbf", 1.0, GRID, 1e-3, np.zeros(D), landmarks, np.eye(2), np.array([0.0, math.nan]))
    shown = WholeFeatures(ArrayTable(np.full((4, D), 0.25)), show)
    first, second = (np.concatenate(list(shown.pieces())) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first[:, 0].all()
    assert not first[:, 1].any()


# ---------------------------------------------------------------- variances and charges


@given(st.integers(1, 60), st.data(), st.floats(2.001, 1e12), st.integers(1, 10**4))
def test_noise_of_enough_sites_is_worth_what_was_asked_and_what_is_charged(sites, data, variance, reach):
    tolerated = data.draw(st.integers(0, sites - 1))
    ask = SumProducts(sites, tolerated, 64, np.array([variance]), 6, reach, 1.0, np.zeros(D))
    diagonal, pairs = ask.share_variance(0), ask.share_variance_of_pairs(0)
    assert isinstance(diagonal, int)
    assert isinstance(pairs, int)
    assert ask.shares * diagonal >= variance
    # a row y adds y_i y_j: with any split of its length, mu**2 is at most what is charged
    for row in ([1, 0, 0], [1, 1, 0], [1, 1, 1], [3, 2, 1]):
        y = np.array(row) / math.sqrt(sum(x * x for x in row)) * reach
        squares = np.outer(y, y)[np.triu_indices(D)] ** 2
        noise = np.where(np.equal(*np.triu_indices(D)), diagonal, pairs) * ask.shares - SMOOTHING
        assert (squares / noise).sum() <= ask.mu_squared * (1 + 1e-12)
    # and pairs have no more noise than they need, but for rounding up to whole numbers at each site
    assert ask.shares * (pairs - 1) <= (ask.shares * diagonal - SMOOTHING) / 2 + SMOOTHING or pairs == 16


def test_noise_has_the_variances_that_are_charged():
    memory = memory_of(np.zeros((0, D)))
    ask = asked(SumProducts, 6, 100, 100.0, np.zeros(D))
    found = np.array([noisy_answer(memory, ask, i.to_bytes(32, "big")).packed for i in range(4000)])
    expected = [
        ask.share_variance(0) if i == j else ask.share_variance_of_pairs(0) for i in range(3) for j in range(i, 3)
    ]
    np.testing.assert_allclose(found.var(axis=0), expected, rtol=6 * math.sqrt(2 / 4000))
    correlations = np.corrcoef(found.T) - np.eye(6)
    assert np.abs(correlations).max() < 5 / math.sqrt(4000)


def test_the_same_sums_get_the_same_noise_and_any_other_question_independent_noise():
    memory, key = memory_of(np.full((4, D), 0.5)), bytes(32)
    ask = asked(SumRows, D, 1000, n_arrays=3)
    one = noisy_answer(memory, ask, key)
    for name, value in (("bits", 63), ("sites", 4), ("reach", 1001), ("variances", np.full(3, 1000.5))):
        other = noisy_answer(memory, replace(ask, **{name: value}), key)
        assert (one.sums != other.sums).any()
    np.testing.assert_array_equal(one.sums, noisy_answer(memory, ask, key).sums)
    more = memory_of(np.full((5, D), 0.5))
    noise = [noisy_answer(rows, ask, key).sums - exact_sums(rows, ask)[1] for rows in (memory, more)]
    assert (noise[0] != noise[1]).any()
    assert (one.sums != noisy_answer(memory, ask, bytes(31) + b"1").sums).any()


@pytest.mark.parametrize(
    "changed",
    [
        {"sites": 0},
        {"tolerated": 3},
        {"tolerated": -1},
        {"bits": 7},
        {"bits": 65},
        {"variances": np.array([2.0])},
        {"variances": np.array([math.nan])},
        {"variances": np.array([-5.0])},
        {"variances": np.zeros(0)},
        {"variances": np.array([50.0, 50.0])},
        {"reach": 0},
        {"reach": EXACT // PIECE_ROWS},
        {"reach": -5},
    ],
    ids=str,
)
def test_a_question_that_noise_cannot_protect_has_a_problem(changed):
    ask = asked(AskSums, D, 100)
    assert ask.problem() is None
    assert replace(ask, **changed).problem() is not None


# ---------------------------------------------------------------- how rows are prepared


SOUND = Prepare("mean", False, np.zeros(2), np.zeros(2), np.ones(2), np.zeros(2), np.ones(2))


@pytest.mark.parametrize(
    "changed",
    [
        {"scale": np.array([1.0, 0.0])},
        {"scale": np.array([1.0, 1e-308])},
        {"scale": np.array([1.0, math.nan])},
        {"shift": np.array([0.0, math.inf])},
        {"shift": np.array([0.0, 1e300])},
        {"fill": np.array([0.0, math.nan])},
        {"high": np.array([1.0, math.inf])},
        {"missing": "refuse"},
        {"missing": "keep"},
        {"bounded": True},
    ],
    ids=str,
)
def test_a_preparation_whose_failure_would_tell_of_rows_is_not_one_that_tells_nothing(changed):
    """A scale of 1e-308 turns values above some size into infinity: a refusal would tell of them."""
    assert SOUND.tells_nothing
    assert not replace(SOUND, **changed).tells_nothing
