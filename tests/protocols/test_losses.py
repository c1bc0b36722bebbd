"""What protocols do where a site was lost and the others, guarded, do not tell again what they told with it."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import Repeated
from coterie.maths.clustering import moments
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.messages.verbs import total
from coterie.protocols.dspgd import DSPGDSettings, dspgd, embedded, find_gamma
from coterie.protocols.federated_kmeans import Settings, federated_kmeans
from coterie.protocols.landmarks_search import _supposed, summed_landmarks
from coterie.protocols.landmarks_summed import projection_of
from coterie.protocols.limits import within
from coterie.protocols.lloyd import Sizes, lloyd
from coterie.protocols.preparation import SumColumns, spread
from coterie.protocols.prepared import Spread
from coterie.protocols.seeding import _Cells, cells_start, var_part
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly

ROWS = blobs(300, 4, 3, seed=2, spread=8.0)
"""Three clusters that no step of Lloyd's tears apart."""
LIMITS = {"rows": 256.0, "box": 64.0, "length": 4.0}
GUARDED = Policy(gram_rows=0)


def go(protocol, method, lost_at=None, *, rows=ROWS, ledger=None, policy=GUARDED):
    """Masked and guarded; from one round on a site is gone."""
    faults = [] if lost_at is None else [Fault("site-1", "drop", frozenset(range(lost_at, 1000)))]
    with in_process(split_evenly(rows, 5), policy=policy, schedule=Schedule(faults)) as channel:
        return run(
            within(LIMITS, protocol), channel, method=method, layers=[MaskedSums()], terms=Terms(quorum=0.6),
            ledger=ledger if ledger is not None else Ledger(),
        )  # fmt: skip


def rounds_of(protocol, method, kind):
    ledger = Ledger()
    go(protocol, method, ledger=ledger)
    return [e.round for e in ledger.exchanges if e.asked.endswith(kind)]


START = np.array([ROWS[:100].mean(0), ROWS[100:200].mean(0), ROWS[200:].mean(0)])


def test_lloyd_keeps_what_it_knows_where_cells_stand_still():
    def steps():
        return lloyd(START, max_rounds=5, tol=0.0)

    whole, asked = go(steps(), "lloyd"), rounds_of(steps(), "lloyd", "Assign")
    assert len(asked) >= 2
    late = go(steps(), "lloyd", asked[1])
    np.testing.assert_allclose(late.centers, whole.centers, atol=1e-9)
    assert late.counts.sum() == pytest.approx(300, abs=1e-6)  # the lost site's rows are in what was told with it
    assert late.n_rounds == 1
    early = go(steps(), "lloyd", asked[0])  # nothing was told of these cells before: they are summed up without it
    assert early.counts.sum() == pytest.approx(240, abs=1e-6)


def test_without_anything_known_the_run_stops():
    def steps():
        yield from total(SumColumns(False, np.zeros(4), np.ones(4)))
        return (yield from lloyd(ROWS.mean(0)[None], max_rounds=3, tol=0.0))

    (first, *_) = rounds_of(steps(), "lloyd", "Assign")
    with pytest.raises(Repeated, match="site-1"):
        go(steps(), "lloyd", first)


@pytest.mark.parametrize("start", [var_part, cells_start])
def test_a_start_splits_cells_in_thought_where_they_are_not_told(start):
    def steps():
        about = yield from spread(4)
        more = {"seed": 1} if start is cells_start else {}
        return (yield from start(3, 4, about=about, **more))

    whole, asked = go(steps(), "lloyd"), rounds_of(steps(), "lloyd", "Split")
    assert whole.known.counts.sum() == pytest.approx(300)
    found = go(steps(), "lloyd", asked[0])  # all rows are summed up already
    assert found.centers.shape == (3, 4)
    assert found.known.counts.sum() == pytest.approx(300)
    assert len(np.unique(found.centers.round(6), axis=0)) == 3
    low, high = ROWS.mean(0) - 3 * ROWS.std(0), ROWS.mean(0) + 3 * ROWS.std(0)
    assert ((found.centers > low) & (found.centers < high)).all()


def test_halves_of_a_cell_have_its_mean_and_its_rows_and_no_more_error():
    one = _Cells(np.array([[1.0, 2.0]]), np.array([80.0]), np.array([[320.0, 80.0]]))
    for n in (2, 3, 7):
        made = one.halved(n)
        assert len(made.means) == len(made.counts) == len(made.errors) == n
        np.testing.assert_allclose(made.counts @ made.means / 80, [1.0, 2.0])
        assert made.counts.sum() == pytest.approx(80)
        between = made.counts[:, None] * (made.means - [1.0, 2.0]) ** 2
        np.testing.assert_allclose(between.sum(0) + made.errors.sum(0), [320.0, 80.0])


def test_starts_know_their_sizes_and_at_most_their_cost():
    with in_process(split_evenly(ROWS, 5)) as channel:
        for made in (var_part(6, 4), cells_start(6, 4, seed=1)):
            found = run(made, channel, method="lloyd")
            exact = moments(ROWS, found.centers)
            assert found.known.counts.sum() == pytest.approx(300)
            assert exact.cost <= found.known.cost * (1 + 1e-9)
            assert found.known.cost <= 2 * exact.cost


def test_rounds_of_federated_kmeans_as_lloyd_keep_a_bound_of_the_cost():
    rows = np.random.default_rng(3).normal(size=(200, 3))
    centers, known = rows[:4], None
    m = moments(rows, centers)
    known = Sizes(m.counts, m.cost)
    for _ in range(6):
        m = moments(rows, centers)
        means = m.sums / m.counts[:, None]
        known = Settings.sizes_after(known, m.counts, means - centers)
        centers = means
        exact = float(moments(rows, centers).cost)
        assert exact <= float(known.cost) * (1 + 1e-9)
    assert float(known.cost) < 0.9 * float(moments(rows, rows[:4]).cost)


@pytest.mark.parametrize("settings", [Settings(fraction=0.5), Settings(epochs=2), Settings(server_momentum=0.5)])
def test_what_is_not_lloyd_s_step_keeps_none(settings):
    assert not settings.is_lloyd
    assert Settings(max_rounds=7).is_lloyd


def test_federated_kmeans_ends_with_what_it_knows():
    def steps():
        about = yield from spread(4)
        start = yield from cells_start(3, 4, seed=1, about=about)
        return (yield from federated_kmeans(start.centers, Settings(), known=start.known))

    whole, asked = go(steps(), "federated-kmeans"), rounds_of(steps(), "federated-kmeans", "Train")
    found = go(steps(), "federated-kmeans", asked[-1])
    np.testing.assert_allclose(found.centers, whole.centers, atol=1e-6)
    assert float(moments(ROWS, found.centers).cost) <= found.cost
    assert found.counts.sum() == pytest.approx(300, rel=0.05)


def test_gamma_is_known_from_the_columns_spread():
    def steps():
        about = yield from spread(4)
        return (yield from find_gamma(4, about=about))

    (asked,) = rounds_of(steps(), "dspgd", "SumLengths")
    gamma, n_rows = go(steps(), "dspgd", asked)
    assert n_rows == pytest.approx(300)
    assert gamma == pytest.approx(average_distance_gamma(300.0, ROWS.sum(0), float((ROWS**2).sum())), rel=1e-6)


RBF = Kernel("rbf", 0.01)


def embedded_rows(found):
    return embedded(ArrayTable(ROWS), found.transcript).rows


@pytest.mark.parametrize("step", ["1/t", "2/t"])
def test_dspgd_ends_with_the_iterations_it_has_where_they_are_half_of_all(step):
    """The embedding is that of a run which has no more of them, and nobody is lost to."""

    def steps(n_iter):
        return dspgd(RBF, DSPGDSettings(3, 8, n_iter, rank=4, step=step, solver="gram"), seed=4)

    asked = rounds_of(steps(6), "dspgd", "SendGram")
    found, whole = go(steps(6), "dspgd", asked[3]), go(steps(3), "dspgd")  # lost in the fourth
    np.testing.assert_allclose(found.values, whole.values, rtol=1e-9)
    np.testing.assert_allclose(embedded_rows(found), embedded_rows(whole), atol=1e-9)
    assert len(found.ranks) == 3


def test_dspgd_begins_again_where_it_has_few_iterations():
    def steps():
        return dspgd(RBF, DSPGDSettings(3, 8, 6, rank=4, solver="gram"), seed=4)

    ledger = Ledger()
    asked = rounds_of(steps(), "dspgd", "SendGram")
    found = go(steps(), "dspgd", asked[2], ledger=ledger)
    assert found.n_restarts == 1
    assert len(found.ranks) == 6
    assert sum(e.asked.endswith("BeginKernel") for e in ledger.exchanges) == 2
    draws = [ask.step for ask in found.transcript[1:]]
    assert not set(draws) & set(range(1, 7))  # of these something was told with the lost site


def test_landmarks_are_looked_for_elsewhere_where_cells_are_not_told_again():
    def steps():
        return summed_landmarks(6, 4, bits=8, min_count=1, seed=2, n_projected=3)

    ledger = Ledger()
    shares = rounds_of(steps(), "landmarks", "ShareCells")
    found = go(steps(), "landmarks", shares[1], ledger=ledger).landmarks
    assert found.weights.sum() == pytest.approx(300)  # what is known of all rows was told with the lost site
    assert found.scatter == pytest.approx(((ROWS - ROWS.mean(0)) ** 2).sum(), rel=1e-6)
    nearest = ((ROWS[:, None] - found.points) ** 2).sum(-1).min(1)
    assert nearest.mean() < 0.5 * ((ROWS - ROWS.mean(0)) ** 2).sum(1).mean()


def test_a_survey_from_the_columns_spread_has_room_for_columns_that_go_together():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(500, 1)) + 0.1 * rng.normal(size=(500, 12))  # all alike
    seen = projection_of(12, 4, 1)
    made = _supposed(Spread(500.0, rows.mean(0), rows.std(0)), seen, None)
    projected = rows @ seen
    assert ((projected > made.low) & (projected < made.low + made.span)).all()
    np.testing.assert_allclose(made.mean, projected.mean(0), atol=1e-9)
    assert made.scatter == pytest.approx(((rows - rows.mean(0)) ** 2).sum())
