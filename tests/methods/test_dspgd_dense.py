"""DSPGD without CEM against DSPGD with it; dropouts and what either costs."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.maths.kernels import Kernel
from coterie.messages.schema import reply_type
from coterie.methods.kernel.dspgd.dense import Expand, Project, dspgd_dense
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, dspgd
from coterie.methods.kernel.dspgd.sites import embedded
from coterie.methods.shared.counts import CountRows
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy, has_row_axis
from coterie.sites.tables import ArrayTable
from tests.declared import Declared
from tests.federations import Cut, blobs, split_evenly, tables_of
from tests.methods.test_dspgd import residuals
from tests.theorems.dspgd_runs import algorithm_1, allow, counted, embed, iterate, stacked

ROWS = blobs(60, 4, 3, seed=4, spread=2.0)
RBF = Kernel("rbf", 0.05)
SETTINGS = DSPGDSettings(n_components=40, n_features=12, n_iter=4, rank=5, solver="lanczos")
HALF = Terms(quorum=0.5, resends=0)


def settings(**changes):
    return DSPGDSettings(**{**vars(SETTINGS), **changes})


@pytest.fixture(autouse=True)
def _methods(monkeypatch):
    allow(monkeypatch)


# ---------------------------------------------------------------- the same iterates


@pytest.mark.parametrize("kernel", [RBF, Kernel("laplacian", 0.1), Kernel("polynomial", 0.1, degree=2)])
@pytest.mark.parametrize("n_iter", [1, 2, 3, 5])
def test_cem_and_dense_iterates_agree(kernel, n_iter):
    chosen, tables = settings(n_iter=n_iter), split_evenly(ROWS, 3)
    with_cem, dense = (embed(kernel, chosen, tables, dense=d) for d in (False, True))
    scale = with_cem[0].values[0]
    assert with_cem[0].threshold == pytest.approx(dense[0].threshold, rel=1e-10)
    assert with_cem[0].ranks == dense[0].ranks
    np.testing.assert_allclose(dense[0].values, with_cem[0].values, atol=1e-10 * scale)
    z, other = (iterate(fit.values, stacked((fit, rows)), fit.threshold) for fit, rows in (with_cem, dense))
    assert np.abs(z - other).max() < 1e-10 * scale
    one, two = stacked(with_cem), stacked(dense)
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-10 * scale


@pytest.mark.parametrize(
    "changes", [{"step": "2/t"}, {"features": "paired"}, {"threshold": 2.0}, {"n_components": 3}]
)
def test_dense_is_algorithm_1(changes):
    chosen = settings(**changes)
    fit, rows = embed(RBF, chosen, split_evenly(ROWS, 3), dense=True)
    twin = algorithm_1(ROWS, RBF, chosen)
    h = stacked((fit, rows))
    np.testing.assert_allclose(fit.values, twin.values, atol=1e-9 * twin.values[0])
    np.testing.assert_allclose(h @ h.T, twin.k, atol=1e-9 * twin.values[0])


def test_sites_are_told_their_own_rows_also_where_they_have_one_or_none():
    owners = np.array([0, 3] + [1] * 40 + [3] * 18)
    fit, rows = embed(RBF, SETTINGS, tables_of(ROWS, owners, 4), dense=True)
    assert rows["site-2"].shape == (0, len(fit.values))
    h = np.zeros((60, len(fit.values)))
    for m in range(4):
        h[owners == m] = rows[f"site-{m}"]
        np.testing.assert_array_equal(rows[f"site-{m}"], fit.rows[f"site-{m}"])
    twin = algorithm_1(ROWS, RBF, SETTINGS)
    np.testing.assert_allclose(h @ h.T, twin.k, atol=1e-9 * twin.values[0])


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
def test_how_rows_are_cut_into_blocks_and_pieces_does_not_matter(dense, kept_bytes, monkeypatch):
    """Whether features are kept for the next question or made again."""
    whole = embed(RBF, SETTINGS, split_evenly(ROWS, 3), dense=dense)
    monkeypatch.setattr("coterie.methods.shared.embedded.PIECE_BYTES", 3 * 8 * (12 + 4))  # three rows
    monkeypatch.setattr("coterie.methods.shared.embedded.KEPT_BYTES", kept_bytes)
    tables = {f"site-{m}": Cut(ROWS[20 * m : 20 * m + 20]) for m in range(3)}
    cut = embed(RBF, SETTINGS, tables, dense=dense)
    one, two = stacked(whole), stacked(cut)
    np.testing.assert_allclose(cut[0].values, whole[0].values, rtol=1e-10)
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-10 * whole[0].values[0]


def test_fewer_rows_than_the_threshold_s_place_give_all_that_there_is():
    """Both take the missing eigenvalue for zero."""
    few = split_evenly(ROWS[:3], 2)
    dense, with_cem = (embed(RBF, SETTINGS, few, dense=d) for d in (True, False))
    assert len(dense[0].values) == 3
    np.testing.assert_allclose(dense[0].values, with_cem[0].values, rtol=1e-9)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("solver", ["gram", "lanczos"])
def test_a_threshold_above_every_eigenvalue_leaves_no_component(dense, solver):
    fit, rows = embed(RBF, settings(threshold=1e6, solver=solver), split_evenly(ROWS, 3), dense=dense)
    assert fit.values.shape == (0,)
    assert stacked((fit, rows)).shape == (60, 0)
    assert fit.ranks == (0, 0, 0, 0)


# ---------------------------------------------------------------- what it costs and shows


def floats(ledger, asked):
    """Numbers up of every exchange of a kind."""
    return [sum(one.floats_up for one in e.sites.values()) for e in ledger.exchanges if e.asked in asked]


def test_a_lanczos_step_costs_n_plus_m_d_without_cem_and_m_times_r_plus_d_with_it():
    tables = split_evenly(ROWS, 3)
    dense, ledger = counted(RBF, SETTINGS, tables, dense=True)
    assert floats(ledger, {"kernel.Project"}) == [3 * 12] * sum(dense.n_products)
    assert floats(ledger, {"kernel.Expand"}) == [60] * sum(dense.n_products)
    assert ledger.total("floats_up") == 3 * 3 + (60 + 3 * 12) * sum(dense.n_products)
    assert ledger.total("rounds") == 3 + 2 * sum(dense.n_products)
    with_cem, ledger = counted(RBF, SETTINGS, tables)
    steps = [3 * (r + 12) for r, q in zip(with_cem.ranks, with_cem.n_products, strict=True) for _ in range(q)]
    assert floats(ledger, {"kernel.Multiply"}) == steps
    assert ledger.total("floats_up") == sum(steps)
    assert len(set(with_cem.ranks)) > 1  # r_t is not the same throughout, so a wrong r_t shows


def test_a_gram_costs_its_triangle_once_an_iteration():
    found, ledger = counted(RBF, settings(solver="gram"), split_evenly(ROWS, 3))
    sizes = [r + 12 for r in found.ranks]
    assert floats(ledger, {"kernel.SendGram"}) == [3 * n * (n + 1) // 2 for n in sizes]
    assert ledger.total("floats_up") == sum(3 * n * (n + 1) // 2 for n in sizes)
    assert ledger.total("rounds") == 1 + 2 * 4


def test_what_is_seen_are_rows_and_default_policies_refuse():
    assert has_row_axis(reply_type(Expand))
    assert {reply_type(ask).content for ask in (Project, Expand)} == {"rows"}
    for policy in (Policy(), Policy(per_site_results="averages")):
        assert policy.objection("dspgd-dense", Expand) is not None
        assert policy.objection("dspgd-dense", Project) is not None
        with in_process(split_evenly(ROWS, 3), policy=policy) as channel, pytest.raises(QuorumLost):
            run(dspgd_dense(RBF, SETTINGS, seed=0), channel, method="dspgd-dense")
    assert Policy.simulation().objection("dspgd-dense", CountRows) is None


@pytest.mark.parametrize("center", [False, True])
def test_what_is_summed_up_embeds_any_row_as_with_cem(center):
    """New rows included: the server knows A_t' U without asking for it."""
    chosen, new = settings(center=center, n_components=3), blobs(9, 4, 3, seed=8, spread=2.0)
    dense, with_cem = (embed(RBF, chosen, split_evenly(ROWS, 3), dense=d)[0] for d in (True, False))
    one, two = (embedded(ArrayTable(new), fit.transcript).rows for fit in (dense, with_cem))
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-9 * with_cem.values[0]
    again = embedded(ArrayTable(ROWS), dense.transcript).rows
    np.testing.assert_allclose(again, np.concatenate(list(dense.rows.values())), atol=1e-9)


def test_the_gram_exchange_needs_cem():
    with pytest.raises(InputError, match="use cem=True"):
        settings(solver="gram", cem=False)


# ---------------------------------------------------------------- dropouts


def rounds_of(ledger, step, kinds):
    """The rounds of iteration ``step``: those between what was remembered before and after it."""
    seen, found = 0, []
    for exchange in ledger.exchanges:
        seen += exchange.asked == "kernel.Advance"
        if seen == step - 1 and exchange.asked in kinds:
            found.append(exchange.round)
    return found


def dropping(solver, at, *, forever):
    """A run that loses site-2 at a round; its result and its ledger."""
    rounds = frozenset(range(at, at + (1000 if forever else 1)))
    ledger = Ledger()
    with in_process(split_evenly(ROWS, 4), schedule=Schedule([Fault("site-2", "drop", rounds)])) as channel:
        protocol = dspgd(RBF, settings(solver=solver), seed=0)
        return run(protocol, channel, method="dspgd", ledger=ledger, terms=HALF), ledger


@pytest.mark.parametrize("forever", [True, False])
def test_a_site_lost_inside_lanczos_restarts_the_iteration_with_those_left(forever):
    undisturbed, ledger = counted(RBF, SETTINGS, split_evenly(ROWS, 4))
    rounds = rounds_of(ledger, 3, {"kernel.Multiply"})
    found, ledger = dropping("lanczos", rounds[4], forever=forever)
    assert found.n_restarts == 1
    assert undisturbed.n_restarts == 0
    steps = [e for e in ledger.exchanges if e.round in rounds_of(ledger, 3, {"kernel.Multiply"})]
    assert len(steps) == 5 + found.n_products[2]
    assert ["site-2" in e.sites for e in steps] == [True] * 5 + [False] * found.n_products[2]
    assert [e.sites["site-2"].outcome.kind is OutcomeKind.ANSWERED for e in steps[:5]] == [True] * 4 + [False]
    left = np.concatenate([ROWS[:30], ROWS[45:]])
    assert eigenpair_residual(found, left, 3) < 1e-8
    assert eigenpair_residual(found, ROWS, 3) > 1e-4  # the matrix is another one without the site
    if forever:
        assert residuals(found.transcript, ArrayTable(left), from_step=3) < 1e-8
    else:  # it is back in the next iteration, brought up to date
        assert eigenpair_residual(found, ROWS, 4) < 1e-8


def eigenpair_residual(found, rows, step):
    """The residual of one iteration's eigenpairs on the W_t of some rows."""
    return residuals(found.transcript[: step + 1], ArrayTable(rows), from_step=step)


def test_lanczos_and_gram_agree_after_the_same_dropout():
    """The reference of a run with a dropout is a run with the same dropout."""
    ledgers = [counted(RBF, settings(solver=s), split_evenly(ROWS, 4))[1] for s in ("lanczos", "gram")]
    places = [rounds_of(ledgers[0], 3, {"kernel.Multiply"})[4], rounds_of(ledgers[1], 3, {"kernel.SendGram"})[0]]
    fits = [dropping(s, at, forever=True)[0] for s, at in zip(("lanczos", "gram"), places, strict=True)]
    assert [fit.n_restarts for fit in fits] == [1, 1]
    np.testing.assert_allclose(fits[0].values, fits[1].values, rtol=1e-9)
    one, two = (embedded(ArrayTable(ROWS), fit.transcript).rows for fit in fits)
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-8 * fits[0].values[0]


@pytest.mark.parametrize("kind", ["kernel.Project", "kernel.Expand"])
@pytest.mark.parametrize("step", [1, 3])
def test_without_cem_a_lost_site_takes_its_rows_along_and_the_rest_is_as_with_cem(kind, step):
    """Though the site could be reached again, it stays out: the server has no rows of Z_{t+1} for it."""
    whole, ledger = counted(RBF, SETTINGS, split_evenly(ROWS, 4), dense=True)
    at = [e.round for e in ledger.exchanges if e.asked == kind][sum(whole.n_products[: step - 1]) + 3]
    with in_process(split_evenly(ROWS, 4), schedule=Schedule([Fault("site-2", "drop", frozenset({at}))])) as channel:
        found = run(dspgd_dense(RBF, SETTINGS, seed=0), channel, method="dspgd-dense", terms=HALF)
    _, ledger = counted(RBF, SETTINGS, split_evenly(ROWS, 4))
    with_cem, _ = dropping("lanczos", rounds_of(ledger, step, {"kernel.Multiply"})[3], forever=True)
    left = np.concatenate([ROWS[:30], ROWS[45:]])
    h, other = np.concatenate(list(found.rows.values())), embedded(ArrayTable(left), with_cem.transcript).rows
    assert found.n_restarts == with_cem.n_restarts == 1
    assert list(found.rows) == ["site-0", "site-1", "site-3"]
    np.testing.assert_allclose(found.values, with_cem.values, atol=1e-9 * found.values[0])
    assert np.abs(h @ h.T - other @ other.T).max() < 1e-9 * found.values[0]


# ---------------------------------------------------------------- the same over masked sums


def masked_run(schedule=None, **changes):
    """DSPGD over masked sums, with what it found and its ledger."""
    ledger, layers = Ledger(), [Declared({"rows": 64.0, "box": 16.0}), MaskedSums()]
    protocol = dspgd(RBF, settings(**changes), seed=0)
    with in_process(split_evenly(ROWS, 4), schedule=schedule) as channel:
        found = run(protocol, channel, method="dspgd", ledger=ledger, terms=HALF, layers=layers)
    return found, ledger


def masked_rounds(ledger):
    """The rounds between the sites' second and third Advance: uploads and unmaskings in turn."""
    told = [e.round for e in ledger.exchanges if e.asked.endswith("kernel.Advance")]
    return [e.round for e in ledger.exchanges if told[1] < e.round < told[2]]


@pytest.mark.parametrize("place", [0, 1, 2, 7, 8, -2, -1])
def test_a_site_lost_anywhere_inside_masked_lanczos_leaves_eigenpairs_of_those_left(place):
    """While it uploads, or when the sum is unmasked, which takes all four: nothing half summed enters the basis."""
    undisturbed, ledger = masked_run()
    at = masked_rounds(ledger)[place]
    found, ledger = masked_run(Schedule([Fault("site-2", "drop", frozenset(range(at, at + 1000)))]))
    left = np.concatenate([ROWS[:30], ROWS[45:]])
    assert undisturbed.n_restarts == 0
    assert found.n_restarts == 1
    assert eigenpair_residual(found, left, 3) < 1e-8
    assert eigenpair_residual(found, left, 4) < 1e-8
    lost = [
        e
        for e in ledger.exchanges
        if "site-2" in e.sites and e.sites["site-2"].outcome.kind is not OutcomeKind.ANSWERED
    ]
    assert lost[0].round == at


@pytest.mark.parametrize("solver", ["lanczos", "gram"])
def test_masked_and_plain_sums_give_the_same_after_the_same_dropout(solver):
    plain = counted(RBF, settings(solver=solver), split_evenly(ROWS, 4))[1]
    kind = "kernel.Multiply" if solver == "lanczos" else "kernel.SendGram"
    one, _ = dropping(solver, rounds_of(plain, 3, {kind})[0], forever=True)
    _, ledger = masked_run(solver=solver)
    at = masked_rounds(ledger)[0]
    two, _ = masked_run(Schedule([Fault("site-2", "drop", frozenset(range(at, at + 1000)))]), solver=solver)
    assert one.n_restarts == two.n_restarts == 1
    np.testing.assert_allclose(two.values, one.values, rtol=1e-8)
    a, b = (embedded(ArrayTable(ROWS), fit.transcript).rows for fit in (one, two))
    assert np.abs(a @ a.T - b @ b.T).max() < 1e-7 * one.values[0]
