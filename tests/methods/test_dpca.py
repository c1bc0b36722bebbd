"""DPCA by messages against DPCA of parts that are all here; what it costs, shows and refuses."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, MalformedMessage, QuorumLost, RunError
from coterie.messages.schema import reply_type
from coterie.messages.site_api import ANSWERS, Memory
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy, dpca, local_components, local_copy
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy, has_row_axis
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import dpca_cost
from tests.federations import Cut
from tests.maths import dpca_twin as twin

REQUESTS = (CountColumns, SolveCopy, SendComponents)


@pytest.fixture(autouse=True)
def _method(monkeypatch):
    if "dpca" not in METHODS:
        monkeypatch.setitem(METHODS, "dpca", Method("dpca", "a trial", REQUESTS, "", ""))
    with threadpool_limits(1):
        yield


def parts_of(widths, n_rows=24, seed=0):
    """Columns of one table, some of them alike."""
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n_rows, 3)) * [9.0, 5.0, 1.0] @ rng.normal(size=(3, sum(widths)))
    whole += 0.1 * rng.normal(size=whole.shape)
    return np.split(whole, np.cumsum(widths)[:-1], axis=1)


def tables(parts, kind=ArrayTable):
    return {f"site-{j}": kind(part, name=f"site-{j}") for j, part in enumerate(parts)}


def fit(sites, n_components=2, *, schedule=None, policy=None, terms=None, ledger=None, **options):
    settings = {"n_rows": 24, "neighbours": len(sites), "n_iter": 4, "seed": 7, **options}
    with in_process(sites, schedule=schedule, policy=policy or Policy.simulation()) as channel:
        protocol = dpca(n_components, **settings)
        return run(protocol, channel, method="dpca", terms=terms or Terms(), ledger=ledger or Ledger())


def assert_is(found, expected):
    assert len(found.history) == len(expected.history)
    for copies, others in zip(found.history, expected.history, strict=True):
        for copy, other in zip(copies.values(), others, strict=True):
            np.testing.assert_allclose(copy, other, atol=1e-10)
    for components, other in zip(found.components.values(), expected.components, strict=True):
        np.testing.assert_allclose(components, other, atol=1e-10 * max(1.0, np.abs(other).max()))


# ---------------------------------------------------------------- the same numbers


@pytest.mark.parametrize(
    ("widths", "neighbours", "n_components"),
    [
        ([4, 6], 2, 1),
        ([5, 1, 7], 3, 2),
        ([3] * 5, 3, 2),
        ([2, 4, 1, 3, 2, 5, 30], 5, 3),
        ([4] * 10, 10, 1),
        ([4] * 10, 3, 2),
        ([1, 1], 2, 3),  # fewer columns than components
        ([4, 6], 2, 24),  # as many components as rows
    ],
)
def test_messages_give_what_the_parts_give(widths, neighbours, n_components):
    parts, settings = parts_of(widths), {"neighbours": neighbours, "n_iter": 4, "seed": 7}
    assert_is(fit(tables(parts), n_components, **settings), twin.dpca(parts, n_components, **settings))


def test_every_setting_is_passed_on():
    parts = parts_of([3] * 5)
    settings = {"neighbours": 3, "n_iter": 3, "inner": 5, "rho": 0.9, "seed": 3}
    assert_is(fit(tables(parts), 2, **settings), twin.dpca(parts, 2, **settings))


def test_it_ends_in_the_leading_singular_subspace():
    parts = parts_of([8, 1, 9])
    found = fit(tables(parts), n_iter=40, rho=400.0)
    left, _, axes = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    basis = np.linalg.qr(found.stacked)[0]
    np.testing.assert_allclose(basis @ basis.T, axes[:2].T @ axes[:2], atol=1e-8)
    for copy in found.history[-1].values():
        np.testing.assert_allclose(copy @ copy.T, left[:, :2] @ left[:, :2].T, atol=1e-8)


def test_neither_the_order_of_sites_nor_blocks_matter():
    parts = parts_of([3] * 5)
    found = fit(tables(parts), neighbours=3)
    for sites in (dict(reversed(tables(parts).items())), tables(parts, Cut)):
        other = fit(sites, neighbours=3)
        assert list(other.components) == list(found.components)
        np.testing.assert_allclose(other.stacked, found.stacked, rtol=1e-13, atol=1e-13)


def test_answers_in_any_order_find_their_sites():
    parts, order = parts_of([3, 4, 5, 2, 6]), (2, 0, 4, 1, 3)
    sites, protocol, answer = tables(parts), dpca(2, n_rows=24, neighbours=3, n_iter=4, seed=7), None
    with pytest.raises(StopIteration) as stop:
        while True:
            question, names = protocol.send(answer), [f"site-{j}" for j in order]
            asked = {name: question.request_for(name) for name in names}
            answer = {name: ANSWERS[type(ask)](sites[name], Memory(), ask) for name, ask in asked.items()}
    assert_is(stop.value.value, twin.dpca(parts, 2, neighbours=3, n_iter=4, seed=7))


def test_answers_damaged_once_change_nothing():
    parts = parts_of([3, 4, 5])
    damaged = Schedule([Fault(f"site-{j}", "corrupt", times=1) for j in range(3)], seed=5)
    assert fit(tables(parts), schedule=damaged).stacked.tobytes() == fit(tables(parts)).stacked.tobytes()


def test_a_site_away_from_the_start_is_left_out_and_one_lost_later_ends_the_run():
    parts, half = parts_of([3, 4, 5]), Terms(quorum=0.5, resends=0)
    found = fit(tables(parts), neighbours=2, schedule=Schedule([Fault("site-2", "drop")]), terms=half)
    assert_is(found, twin.dpca(parts[:2], 2, neighbours=2, n_iter=4, seed=7))
    later = Schedule([Fault("site-2", "drop", frozenset(range(5, 1000)))])
    with pytest.raises(RunError):
        fit(tables(parts), schedule=later, terms=half)


# ---------------------------------------------------------------- what it costs and shows


@pytest.mark.parametrize(("widths", "neighbours"), [([4, 6], 2), ([1, 300, 7], 3), ([3] * 5, 3)])
@pytest.mark.parametrize("n_components", [1, 3])
def test_the_closed_form_is_the_ledger(widths, neighbours, n_components):
    ledger, steps = Ledger(), {"n_iter": 2, "inner": 3}
    fit(tables(parts_of(widths)), n_components, neighbours=neighbours, ledger=ledger, **steps)
    cost = dpca_cost(widths, n_rows=24, n_components=n_components, **steps)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)
    assert cost.floats_up == len(widths) * (1 + 6 * 24 * n_components) + sum(widths) * n_components
    assert cost.rounds == 1 + 6 + 1


def test_what_is_seen_are_rows_and_default_policies_refuse():
    assert has_row_axis(reply_type(SolveCopy))
    assert [reply_type(ask).content for ask in REQUESTS] == ["rows", "rows", "rows"]
    for policy in (Policy(), Policy(per_site_results="averages")):
        with pytest.raises(QuorumLost):
            fit(tables(parts_of([3, 4])), policy=policy)


def test_components_are_rows_where_the_server_wants_them_to_be():
    """Why they are declared as rows."""
    rows = parts_of([4])[0]
    told = local_components(ArrayTable(rows), Memory(), SendComponents(4, np.eye(24)[:, 5:6]))
    np.testing.assert_allclose(told.components[:, 0], rows[5], rtol=1e-12)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"neighbours": 1}, "neighbours"),
        ({"neighbours": 4}, "neighbours"),
        ({"neighbours": 2}, "neighbours"),  # of three: not the same on either side
        ({"n_components": 0}, "n_components"),
        ({"n_components": 25}, "n_components"),
        ({"n_iter": 0}, "n_iter"),
        ({"inner": 0}, "inner"),
        ({"rho": 0.0}, "rho"),
        ({"rho": -4.0}, "rho"),
        ({"rho": float("nan")}, "rho"),
        ({"rho": float("inf")}, "rho"),
    ],
)
def test_settings_that_cannot_be(options, match):
    with pytest.raises(InputError, match=match):
        fit(tables(parts_of([3, 4, 5])), **options)


def test_sites_with_other_rows_end_the_run():
    parts = parts_of([3, 4, 5])
    with pytest.raises(RunError):
        fit(tables([*parts[:2], parts[2][:-1]]))
    with pytest.raises(RunError):
        fit(tables(parts), n_rows=25)


def step(n_rows=24, rank=2, weight=8.0):
    return SolveCopy(weight, np.ones((n_rows, rank)), np.ones((n_rows, rank)))


@pytest.mark.parametrize(
    "ask",
    [
        step(n_rows=23),
        step(n_rows=25),
        step(rank=0),
        step(rank=25),
        step(weight=0.0),
        step(weight=-1.0),
        step(weight=float("nan")),
        step(weight=float("inf")),
    ],
)
def test_a_step_that_does_not_fit_the_site(ask):
    with pytest.raises(MalformedMessage):
        local_copy(ArrayTable(parts_of([4])[0]), Memory(), ask)


@pytest.mark.parametrize(
    ("columns", "shape"), [(3, (24, 2)), (5, (24, 2)), (4, (23, 2)), (4, (24, 25)), (4, (24, 0))]
)
def test_components_that_do_not_fit_the_site(columns, shape):
    with pytest.raises(MalformedMessage):
        local_components(ArrayTable(parts_of([4])[0]), Memory(), SendComponents(columns, np.ones(shape)))


def test_a_copy_of_columns_that_are_alike_still_has_a_step():
    table = ArrayTable(parts_of([4])[0])
    assert np.isfinite(local_copy(table, Memory(), step()).copy).all()
    assert np.isfinite(local_copy(ArrayTable(np.zeros((24, 2))), Memory(), step()).copy).all()


def test_rows_with_weights_are_refused():
    table = ArrayTable(parts_of([4])[0], weights=np.full(24, 2.0))
    with pytest.raises(InputError, match="weights"):
        local_copy(table, Memory(), step())
