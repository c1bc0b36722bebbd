"""Declared ranges: what lies outside is clipped, and each site's sums are limited by them, column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie import FederatedKMeans
from coterie.engines.inprocess import in_process
from coterie.errors import InputError, OutOfRange, QuorumLost
from coterie.estimators.models import load_model, save_model
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Block, Memory
from coterie.messages.verbs import total
from coterie.methods.shared.limits import with_limits
from coterie.methods.shared.lloyd import Assign, lloyd, local_moments
from coterie.methods.shared.preparation import SumColumns, local_column_sums, prepare
from coterie.methods.shared.prepared import Preparation, PreparedTable
from coterie.methods.shared.ranges import Ranges
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view
from tests.federations import blobs, split_evenly

UNITS = np.array([1e-9, 1.0, 1e6])
ROWS = blobs(90, 3, 3, seed=5, spread=4.0)


def clipped_slowly(rows, low, high):
    """The obvious twin: value by value."""
    return np.array([[min(max(v, lo), hi) for v, lo, hi in zip(row, low, high, strict=True)] for row in rows])


def prepared_by(low, high, **options):
    d = len(low)
    return Preparation("refuse", np.zeros(d), np.zeros(d), np.ones(d), low=low, high=high, **options)


def asked(protocol, *, rows=ROWS, layer=None, policy=None, n_sites=3):
    ledger = Ledger()
    with in_process(split_evenly(rows, n_sites), policy=policy or Policy.simulation()) as channel:
        result = run(protocol, channel, method="lloyd", layers=[layer or MaskedSums()], ledger=ledger)
    return result, [e.asked.split(".")[1] for e in ledger.exchanges if e.phase == "algorithm"]


@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.5, 2.0]))
def test_a_masked_sum_of_columns_of_very_different_units_is_that_of_the_clipped_rows(seed, width):
    """Exact to the ring's step in every column: 2**-50 of what the range allows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, 3)) * UNITS
    low, high = -width * UNITS, (width + rng.random(3)) * UNITS
    kept = clipped_slowly(rows, low, high)

    def protocol():
        yield from prepare(3, ranges=(low, high))
        return (yield from total(SumColumns(False, np.zeros(3))))

    masked, names = asked(protocol(), rows=rows)
    plain, _ = asked(protocol(), rows=rows, layer=PlainSums())
    most = len(rows) * np.maximum(np.abs(low), np.abs(high))
    for found in (masked, plain):
        assert (np.abs(found.sums - kept.sum(axis=0)) <= 2.0**-45 * most).all()
        assert (np.abs(found.squares - (kept**2).sum(axis=0)) <= 2.0**-45 * most**2).all()
    assert names == ["Prepare", "ReportMagnitude", "SumColumns"]


def limits_of(protocol):
    """What the first sum after the preparation is limited by, without asking anybody how large values are."""
    limited, answer = with_limits(protocol), None
    while True:
        question = limited.send(answer)
        layout = question.request.layout
        if type(question.request).__name__ == "ReportMagnitude":
            assert question.request.groups == 0, "how large values are was asked for"
            shape = layout.fields[0].shape
            answer = layout.reply(
                np.eye(*shape, 20)[0] if len(shape) > 1 else np.eye(1, shape[0], 18)[0], np.zeros((0, 48))
            )
        elif layout.numbers == 0:
            answer = layout.reply()
        else:
            return question


def test_limits_are_the_ranges_by_column_and_nobody_is_asked_for_others():
    def protocol():
        yield from prepare(3, ranges=(-UNITS, 2 * UNITS))
        yield from total(Assign(np.zeros((2, 3))))

    question = limits_of(protocol())
    np.testing.assert_allclose(question.limits["box"], 2 * UNITS, rtol=1e-5)
    (_, sums), (_, counts), (_, cost) = question.request.layout.bounds(question.limits)
    np.testing.assert_allclose(sums, question.limits["rows"] * 2 * UNITS, rtol=1e-5)
    assert counts == question.limits["rows"]
    assert cost == pytest.approx(question.limits["rows"] * 3 * 4e12, rel=1e-4)


def test_limits_about_an_origin_and_of_scaled_columns_follow_from_the_ranges():
    about = limits_of(iter_of(prepare(2, ranges=([0, -1], [4, 1])), total(SumColumns(False, np.array([3.0, 1.0])))))
    np.testing.assert_allclose(about.limits["box"], [7, 2], rtol=1e-5)
    ask = Preparation(
        "refuse",
        np.zeros(2),
        np.array([1.0, 0.0]),
        np.array([2.0, 0.5]),
        low=np.array([0, -1.0]),
        high=np.array([4, 1.0]),
    ).request()
    assert ask.limits_after({"rows": 16.0, "other": 1.0})["rows"] == 16.0
    np.testing.assert_allclose(ask.limits_after({})["box"], [1.5, 2], rtol=1e-5)


def iter_of(*protocols):
    found = None
    for protocol in protocols:
        found = yield from protocol
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_on_the_bound_fit_and_values_far_outside_are_clipped_to_it(dtype):
    """All rows at one end fill a sum to its bound; float32 rounds 0.1 up."""
    low, high = np.array([0.1, -3e5]), np.array([0.1, 0.7])
    for value in (high, np.array([1e30, 1e30]), low, np.array([-1e30, -1e30])):
        rows = np.tile(value, (64, 1)).astype(dtype)

        def protocol():
            yield from prepare(2, ranges=(low, high))
            return (yield from total(Assign(np.zeros((1, 2)))))

        found, _ = asked(protocol(), rows=rows)
        kept = np.clip(value, low, high)
        np.testing.assert_allclose(found.sums[0], 64 * kept, rtol=1e-6)


def test_the_ends_of_a_range_may_be_the_same():
    fit, _ = asked(iter_of(prepare(3, ranges=(np.zeros(3), np.zeros(3))), lloyd(np.ones((1, 3)), max_rounds=1)))
    np.testing.assert_array_equal(fit.centers, np.zeros((1, 3)))


@given(st.integers(0, 10_000))
def test_squares_about_any_point_stay_within_the_bound_of_ranges_over_groups(seed):
    """Bhatia and Davis: rows within [l, h] of mean m have at most n (h - m)(m - l) squares about it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 2)) * rng.choice([0.1, 30.0], size=(60, 1)) * [1.0, 1e4]
    low, high = np.array([-1.0, -1e4]), np.array([2.0, 1e4])
    view = PreparedTable(grouped_view(ArrayTable(rows), 5, SiteLedger(), name="t"), prepared_by(low, high))
    origin = rng.uniform(low, high)
    found = local_column_sums(view, Memory(), SumColumns(False, origin))
    most = np.maximum(high - origin, origin - low)
    assert (np.abs(found.sums) <= found.rows * most * (1 + 1e-12)).all()
    assert (found.squares <= found.rows * most**2 * (1 + 1e-12)).all()
    scatter = view.within_scatter
    assert scatter is None or np.linalg.eigvalsh(scatter).min() > -1e-6 * np.abs(scatter).max()


def test_ranges_that_hold_all_rows_change_nothing_over_groups():
    view = grouped_view(ArrayTable(ROWS), 5, SiteLedger(), name="t")
    same = PreparedTable(view, prepared_by(ROWS.min(0), ROWS.max(0)))
    centers = Assign(ROWS[:3])
    one, other = (local_moments(table, Memory(), centers) for table in (view, same))
    for a, b in zip(one.arrays(), other.arrays(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(same.within_columns, view.within_columns)


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("missing", ["refuse", "mean", "drop"])
def test_a_run_with_ranges_is_the_run_over_clipped_rows(scale, missing):
    rng = np.random.default_rng(4)
    rows = np.where(rng.random(ROWS.shape) < (0.0 if missing == "refuse" else 0.1), np.nan, ROWS * 3)
    low, high = np.full(3, -4.0), np.array([5.0, 6.0, 3.0])
    options: dict[str, Any] = {"policy": Policy.simulation(), "sums": "plain", "scale": scale, "missing": missing}
    model = FederatedKMeans(3, init="random", random_state=1)
    tables = {str(i): rows[i::3] for i in range(3)}
    ranged = coterie.fit(model, tables, ranges=(low, high), **options)
    centers, cost = ranged.cluster_centers_, ranged.inertia_
    labels = ranged.label_rows(rows)
    clipped = coterie.fit(model, {name: np.clip(part, low, high) for name, part in tables.items()}, **options)
    np.testing.assert_allclose(centers, clipped.cluster_centers_, rtol=1e-12)
    assert cost == pytest.approx(clipped.inertia_, rel=1e-12)
    np.testing.assert_array_equal(labels, clipped.label_rows(np.clip(rows, low, high)))


def test_with_minmax_values_outside_are_still_refused():
    with pytest.raises(OutOfRange, match="number 2 holds values outside"):
        prepared_by(np.zeros(2), np.ones(2), bounded=True).apply(Block(np.array([[0.5, 1.1]])))
    with pytest.raises(QuorumLost) as caught:
        coterie.fit(
            FederatedKMeans(2, random_state=0),
            {str(i): ROWS[i::3] for i in range(3)},
            scale="minmax",
            ranges=(np.zeros(3), np.ones(3)),
        )
    assert {outcome.refusal for outcome in caught.value.outcomes.values()} == {Refusal.OUT_OF_RANGE}


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        (([0, 0], [1, 1]), "for each of the 3 columns"),
        (([0, 2, 0], [1, 1, 1]), "low <= high"),
        (([0, 0, 0], [1, 1, np.inf]), "not finite"),
        (([0, 0, 0], [1, 1, np.nan]), "low <= high"),
    ],
)
def test_ranges_that_cannot_be_used_are_refused(ranges, says):
    with pytest.raises(InputError, match=says):
        Ranges.of(ranges, 3)


def test_a_verified_run_is_limited_by_the_ranges_and_saves_them_with_the_model(tmp_path):
    tables = {str(i): 9 * ROWS[i::4] for i in range(4)}
    model = coterie.fit(FederatedKMeans(3, random_state=0), tables, ranges=(np.full(3, -5.0), np.full(3, 5.0)))
    asked = {e.asked for e in model.ledger_.exchanges}
    assert "secure.ShareKey" in asked
    assert "shared.Prepare" not in asked  # a site's own protocol makes it
    assert np.abs(model.cluster_centers_).max() <= 5.0 + 1e-9
    assert np.abs(coterie.fit(FederatedKMeans(3, random_state=0), tables).cluster_centers_).max() > 5.0
    again = load_model(save_model(model, tmp_path / "model.json"))
    labels = model.label_rows(np.clip(ROWS * 9, -5, 5))
    for one in (model, again):
        np.testing.assert_array_equal(one.label_rows(ROWS * 9), labels)
