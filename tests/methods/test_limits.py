"""Limits of masked sums: asked for where bounds name them, once for each view, and never by a protocol itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.engines.inprocess import in_process
from coterie.errors import MalformedMessage, OutOfRange
from coterie.maths.kernels import Kernel
from coterie.messages.bounds import Bound
from coterie.messages.site_api import Memory
from coterie.messages.verbs import Question, total
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, dspgd
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks
from coterie.methods.method import RunContext
from coterie.methods.shared.limits import (
    LOWEST,
    N_MARKS,
    Magnitudes,
    ReportMagnitude,
    limits_from,
    local_magnitudes,
    marks,
)
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.methods.shared.preparation import SumColumns, prepare
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly

ROWS = blobs(90, 3, 3, seed=5, spread=4.0)


def asked(protocol, *, layer=None, rows=ROWS, method="lloyd"):
    """What a run returns, and the names of its requests."""
    ledger = Ledger()
    with in_process(split_evenly(rows, 3), policy=Policy.simulation()) as channel:
        result = run(protocol, channel, method=method, layers=[layer or MaskedSums()], ledger=ledger)
    return result, [e.asked.split(".")[1] for e in ledger.exchanges if e.phase == "algorithm"]


@given(st.floats(0, 1e37))
def test_a_mark_stands_for_the_power_of_sixteen_above_a_value(value):
    limit = limits_from(Magnitudes(marks(np.asarray(value)), marks(np.array([value]))))["rows"]
    assert limit >= value * (1 - 1e-11)
    assert limit == 16.0**LOWEST or limit / 16 < value * (1 + 1e-11)


def test_values_beyond_all_marks_are_refused():
    with pytest.raises(OutOfRange, match="too large to be masked"):
        marks(np.array([1.0, 1e40]))


def test_the_highest_mark_of_all_sites_is_the_limit_place_by_place():
    first, second = (
        Magnitudes(marks(np.asarray(n)), marks(np.array(sizes))) for n, sizes in [(5, (1, 99)), (40, (7, 2))]
    )
    assert limits_from(first + second) == {"rows": 256.0, "box": (16.0, 256.0)}
    assert (first + second).rows.shape == (N_MARKS,)


def test_magnitudes_are_taken_about_an_origin_by_column_or_together():
    table, origin = ArrayTable(np.array([[1.0, 500.0], [np.nan, 499.0]])), np.array([0.0, 500.0])
    by_column = local_magnitudes(table, Memory(), ReportMagnitude(2, origin))
    together = local_magnitudes(table, Memory(), ReportMagnitude(1, origin))
    about_zero = local_magnitudes(table, Memory(), ReportMagnitude(1, np.zeros(0)))
    assert limits_from(by_column)["box"] == (1.0, 1.0)
    assert limits_from(together)["box"] == 1.0
    assert limits_from(about_zero)["box"] == 4096.0


def test_limits_are_asked_for_once_where_rows_stay_as_they_are():
    fit, names = asked(lloyd(ROWS[:3], max_rounds=4, tol=0.0))
    assert names == ["ReportMagnitude", *["Assign"] * fit.n_rounds, "Close"]


def test_plain_sums_ask_for_none():
    _, names = asked(lloyd(ROWS[:3], max_rounds=2), layer=PlainSums())
    assert set(names) == {"Assign", "Close"}


def test_limits_are_forgotten_when_rows_are_seen_otherwise():
    def protocol():
        yield from total(Assign(ROWS[:3]))
        yield from prepare(3, scale="standard")
        return (yield from total(Assign(np.zeros((1, 3)))))

    found, names = asked(protocol())
    assert names == [
        "ReportMagnitude",
        "Assign",
        *["ReportMagnitude", "SumColumns"] * 2,
        "Prepare",
        "ReportMagnitude",
        "Assign",
    ]
    assert float(found.cost) == pytest.approx(90 * 3)


def test_a_question_s_own_limits_are_taken_as_they_are():
    def protocol():
        return (yield Question(Assign(ROWS[:3]), summed=True, limits={"rows": 64.0, "box": 64.0}))

    assert asked(protocol())[1] == ["Assign"]


def test_columns_of_very_different_size_keep_their_digits():
    """A sum of a column near 1e-9 beside one near 1e12, in one masked sum."""
    rows = ROWS * np.array([1e-9, 1.0, 1e12])
    found, _ = asked(total(SumColumns(False, np.zeros(3))), rows=rows)
    np.testing.assert_allclose(found.sums, rows.sum(0), rtol=1e-12)
    np.testing.assert_allclose(found.squares, (rows**2).sum(0), rtol=1e-12)


def test_starting_centers_far_from_all_rows_fit_into_a_masked_sum():
    far = np.full((1, 3), 1e9)
    found, _ = asked(total(Assign(far)))
    assert float(found.cost) == pytest.approx(((ROWS - far) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize(("kernel", "per_step"), [(Kernel("rbf", 0.1), 0), (Kernel("polynomial", 0.1, 2, 1.0), 1)])
def test_features_are_measured_once_a_step_where_the_kernel_does_not_bound_them(kernel, per_step):
    settings = DSPGDSettings(2, n_features=8, n_iter=3, rank=2, center=True, solver="gram")
    embedding, names = asked(dspgd(kernel, settings, seed=0), method="dspgd")
    plain, _ = asked(dspgd(kernel, settings, seed=0), method="dspgd", layer=PlainSums())
    assert names.count("ReportFeatureLength") == 3 * per_step
    assert names.count("ReportMagnitude") == 1 - per_step
    np.testing.assert_allclose(embedding.values, plain.values, rtol=1e-9)


def test_a_bound_may_differ_by_column():
    names = {"rows": 10.0, "box": (1.0, 1e3)}
    assert Bound("rows * box[d]**2").value(names).tolist() == [10.0, 1e7]
    assert Bound("rows * box[d] * other[d]").value({**names, "other": (1.0, 2.0, 3.0)}) == np.inf
    with pytest.raises(MalformedMessage, match="2 limits for an array of shape"):
        Assign(np.zeros((1, 3))).layout.bounds(names)


def test_a_request_that_states_its_ring_asks_for_no_limits():
    """Shares of cells are whole numbers of a stated ring: their bound would never be used."""
    settings = LandmarkParameters(landmarks="summed", n_landmarks=6, gamma=0.1)
    context = RunContext(3, 0, averages=False)
    protocol = cluster_by_landmarks(settings, 3, context, max_rounds=1, tol=0.0)
    _, names = asked(protocol, method="landmarks")
    assert names.count("ShareCells") > 1
    assert names.count("ReportMagnitude") == 1
