"""DSPGD with CEM against Algorithm 1 written out, and what may not change it."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.maths.kernels import Kernel
from coterie.messages import codec
from coterie.messages.site_api import Memory
from coterie.methods.kernel.clusters import find_gamma
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, dspgd
from coterie.methods.kernel.dspgd.sites import _parts, embedded, keep_advance, keep_kernel
from coterie.methods.shared.lloyd import lloyd
from coterie.runtime.journal import Journal
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.tables import ArrayTable
from tests.declared import Declared
from tests.federations import Tampered, blobs, split_evenly, tables_of
from tests.theorems.dspgd_runs import algorithm_1, allow, counted, embed, iterate, stacked

ROWS = blobs(60, 4, 3, seed=4, spread=2.0)
RBF = Kernel("rbf", 0.05)
SETTINGS = DSPGDSettings(n_components=40, n_features=12, n_iter=4, rank=5)


def settings(**changes):
    return DSPGDSettings(**{**vars(SETTINGS), **changes})


@pytest.fixture(autouse=True)
def _methods(monkeypatch):
    allow(monkeypatch)


def assert_is(twin, found, tolerance=1e-9):
    h, fit = stacked(found), found[0]
    scale = twin.values[0]
    np.testing.assert_allclose(fit.values, twin.values, atol=tolerance * scale)
    np.testing.assert_allclose(h @ h.T, twin.k, atol=tolerance * scale)
    assert fit.threshold == pytest.approx(twin.threshold, rel=1e-9)


# ---------------------------------------------------------------- what it computes


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "kernel", [RBF, Kernel("laplacian", 0.1), Kernel("polynomial", 0.1, degree=2)], ids=lambda k: k.name
)
def test_dspgd_is_algorithm_1(solver, center, kernel):
    """Centered, it is Algorithm 1 on xi_t centered on both sides."""
    chosen = settings(solver=solver, center=center)
    twin = algorithm_1(ROWS, kernel, chosen)
    found = embed(kernel, chosen, split_evenly(ROWS, 3))
    assert_is(twin, found)
    z = iterate(found[0].values, stacked(found), found[0].threshold)
    np.testing.assert_allclose(z, twin.z, atol=1e-9 * twin.values[0])
    assert list(found[0].ranks) == twin.ranks


@pytest.mark.parametrize(
    "changes", [{"step": "2/t"}, {"features": "paired"}, {"threshold": 2.0}, {"n_components": 3}]
)
def test_every_setting_is_algorithm_1s(changes):
    chosen = settings(**changes)
    assert_is(algorithm_1(ROWS, RBF, chosen), embed(RBF, chosen, split_evenly(ROWS, 3)))


def test_gram_and_lanczos_find_the_same_eigenpairs():
    by_gram, by_lanczos = (embed(RBF, settings(solver=s), split_evenly(ROWS, 3)) for s in ("gram", "lanczos"))
    np.testing.assert_allclose(by_gram[0].values, by_lanczos[0].values, rtol=1e-10)
    one, two = stacked(by_gram), stacked(by_lanczos)
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-10 * by_gram[0].values[0]
    assert by_gram[0].n_products == (1, 1, 1, 1)
    assert min(by_lanczos[0].n_products) > 1


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
def test_what_is_told_to_sites_are_eigenpairs_of_w_t(solver):
    found, _ = counted(RBF, settings(solver=solver), split_evenly(ROWS, 3))
    assert residuals(found.transcript, ArrayTable(ROWS)) < 1e-9


def residuals(transcript, table, from_step=1):
    """The largest |W'W v - rho v| over what the sites were told, as a share of the largest eigenvalue."""
    memory, worst = Memory(), 0.0
    keep_kernel(table, memory, transcript[0])
    for t, ask in enumerate(transcript[1:], start=1):
        w = np.concatenate([part for _, part in _parts(table, memory, ask.step, ask.eta, ask.means)])
        product = w.T @ (w @ ask.vectors)
        rho = np.vecdot(ask.vectors, product, axis=0)
        if t >= from_step:
            off = np.linalg.norm(product - ask.vectors * rho, axis=0).max() / rho[0]
            worst = max(worst, off, np.abs(ask.vectors.T @ ask.vectors - np.eye(len(rho))).max())
        keep_advance(table, memory, ask)
    return worst


N = len(ROWS)
SPLITS = {
    "at random": np.random.default_rng(0).integers(0, 5, N),
    "sorted": np.argsort(np.argsort(ROWS[:, 0])) * 5 // N,
    "four of one row": np.minimum(np.arange(N), 4),
    "all at one": np.zeros(N, int),
}


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("split", SPLITS)
def test_how_rows_are_split_does_not_change_eigenpairs(solver, split):
    """The sixth site never has any rows."""
    owners = SPLITS[split]
    whole = embed(RBF, settings(solver=solver), {"all": ArrayTable(ROWS)})
    found = embed(RBF, settings(solver=solver), tables_of(ROWS, owners, 6))
    np.testing.assert_allclose(found[0].values, whole[0].values, rtol=1e-10)
    h = np.zeros_like(whole[1]["all"])
    for m in range(6):
        h[owners == m] = found[1][f"site-{m}"]
    assert np.abs(h @ h.T - whole[1]["all"] @ whole[1]["all"].T).max() < 1e-10 * whole[0].values[0]


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("center", [False, True])
def test_masked_is_plain_within_the_fixed_point_error(solver, center):
    tables, chosen = split_evenly(ROWS, 5), settings(solver=solver, center=center)
    plain, ledger = Ledger(), Ledger()
    layers = [Declared({"rows": 90, "box": 64.0}), MaskedSums()]
    with in_process(tables) as channel:
        one = run(dspgd(RBF, chosen, seed=1), channel, method="dspgd", ledger=plain)
        two = run(dspgd(RBF, chosen, seed=1), channel, method="dspgd", ledger=ledger, layers=layers)
    np.testing.assert_allclose(two.values, one.values, rtol=1e-8)
    h, masked = (embedded(ArrayTable(ROWS), found.transcript).rows for found in (one, two))
    assert np.abs(h @ h.T - masked @ masked.T).max() < 1e-8 * one.values[0]
    shown = {e.seen for e in ledger.exchanges if e.phase == "algorithm" and e.content != "nothing"}
    assert shown == {"masked"}
    if solver == "gram":
        assert ledger.total("floats_up") == plain.total("floats_up")


def test_features_in_single_precision_lose_less_than_a_millionth():
    """Measured: 3e-8 of the largest eigenvalue."""
    wide, narrow = (embed(RBF, settings(precision=p), split_evenly(ROWS, 3)) for p in ("float64", "float32"))
    off = np.abs(wide[0].values - narrow[0].values).max() / wide[0].values[0]
    one, two = stacked(wide), stacked(narrow)
    assert 0 < off < 1e-6
    assert np.abs(one @ one.T - two @ two.T).max() < 1e-6 * wide[0].values[0]


# ---------------------------------------------------------------- new rows, replay, memory


def test_the_transcript_embeds_rows_as_their_sites_did():
    tables = split_evenly(ROWS, 3)
    fit, rows = embed(RBF, settings(center=True), tables)
    for name, table in tables.items():
        np.testing.assert_allclose(embedded(table, fit.transcript).rows, rows[name], rtol=1e-12, atol=1e-14)
    new = embedded(ArrayTable(ROWS[7:9] + 0.1), fit.transcript).rows
    alone = embedded(ArrayTable(ROWS[8:9] + 0.1), fit.transcript).rows
    np.testing.assert_allclose(new[1:], alone, atol=1e-12)
    with pytest.raises(InputError, match="does not end in an embedding"):
        embedded(ArrayTable(ROWS), fit.transcript[:-1])


def test_replay_from_the_journal_is_the_run(tmp_path):
    tables = split_evenly(ROWS, 3)

    class Silent:
        def sites(self):
            return tuple(tables)

        def exchange(self, payloads, timeout):
            raise AssertionError("a replay asks nobody")

    with in_process(tables) as channel:
        first = run(dspgd(RBF, SETTINGS, seed=3), channel, method="dspgd", journal=Journal(tmp_path))
    journal = Journal(tmp_path, resume=True)
    again = run(dspgd(RBF, SETTINGS, seed=3), Silent(), method="dspgd", journal=journal)
    assert first.values.tobytes() == again.values.tobytes()
    for one, two in zip(first.transcript[1:], again.transcript[1:], strict=True):
        assert one.vectors.tobytes() == two.vectors.tobytes()


@pytest.mark.parametrize("solver", ["gram", "lanczos"])
def test_a_site_that_forgets_everything_rebuilds_b_t_and_changes_nothing(solver):
    tables, chosen = split_evenly(ROWS, 3), settings(solver=solver)
    whole = counted(RBF, chosen, tables)[0]
    forgotten = []

    def forget(name, question, frame):
        forms = codec.read_envelope(question)[0], codec.read_envelope(frame)[0]
        if name == "site-1" and forms == (codec.Form.QUESTION, codec.Form.ANSWER):
            forgotten.append(name)
            channel.members[name]._memories._runs.clear()
        return frame

    with in_process(tables) as channel:
        found = run(dspgd(RBF, chosen, seed=0), Tampered(channel, forget), method="dspgd")
    assert len(forgotten) >= 9  # every question after which something was kept
    assert found.values.tobytes() == whole.values.tobytes()


# ---------------------------------------------------------------- edges


def test_too_few_features_for_the_threshold_are_refused():
    with pytest.raises(InputError, match=r"n_features=3 .* the 5-th eigenvalue .* n_features >= 5"):
        settings(n_features=3)
    assert settings(n_features=3, threshold=1.0).n_features == 3


def test_more_components_than_there_are_give_those_there_are():
    chosen = settings(n_components=40, n_iter=2)
    fit, rows = embed(RBF, chosen, split_evenly(ROWS, 3))
    twin = algorithm_1(ROWS, RBF, chosen)
    assert len(fit.values) == len(twin.values) < 12
    assert all(site.shape[1] == len(fit.values) for site in rows.values())


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.nan, np.inf])
def test_gamma_must_be_above_zero_and_finite(gamma):
    with pytest.raises(InputError, match="gamma"):
        Kernel("rbf", gamma)


@pytest.mark.parametrize(
    "bad",
    [{"n_components": 0}, {"n_iter": 0}, {"step": "1"}, {"solver": "qr"}, {"threshold": -1.0}, {"precision": "f"}],
)
def test_a_wrong_setting_is_named_with_its_value(bad):
    (name, value) = next(iter(bad.items()))
    with pytest.raises(InputError, match=f"{name}={value!r}"):
        settings(**bad)


def test_gamma_by_sums_is_the_papers_and_a_constant_column_does_not_change_it():
    apart = ((ROWS[:, None] - ROWS) ** 2).sum()
    with_constant = np.column_stack([ROWS, np.full(len(ROWS), 3.0)])
    for rows in (ROWS, with_constant):
        with in_process(split_evenly(rows, 4)) as channel:
            gamma, n = run(find_gamma(rows.shape[1]), channel, method="dspgd")
        assert n == len(ROWS)
        assert gamma == pytest.approx(len(ROWS) ** 2 / (2 * apart), rel=1e-9)
    found = embed(Kernel("rbf", gamma), SETTINGS, split_evenly(with_constant, 3))
    assert_is(algorithm_1(with_constant, Kernel("rbf", gamma), SETTINGS), found)


def test_rows_that_are_all_equal_have_no_gamma_and_one_component():
    equal = np.ones((12, 3))
    with pytest.raises(InputError, match="all rows are equal"), in_process(split_evenly(equal, 2)) as channel:
        run(find_gamma(3), channel, method="dspgd")
    fit, rows = embed(RBF, settings(n_iter=3), split_evenly(equal, 2))
    assert len(fit.values) == 1
    assert np.ptp(np.concatenate(list(rows.values())), axis=0).max() < 1e-12


def test_sites_with_fewer_rows_than_clusters_take_part_in_the_clustering():
    """Embedded rows are what later questions see: k-means over them is k-means over H."""
    rows = blobs(60, 4, 3, seed=4, spread=8.0)
    owners = np.array([0, 0, 1] + [2] * 57)
    tables = tables_of(rows, owners, 4)
    h = stacked(embed(RBF, settings(n_components=3), tables))

    def both():
        yield from dspgd(RBF, settings(n_components=3), seed=0)
        return (yield from lloyd(h[[0, 20, 40]], tol=0.0))

    with in_process(tables) as channel:
        fit = run(both(), channel, method="dspgd")
    nearest = ((h[:, None] - fit.centers) ** 2).sum(axis=2)
    assert fit.cost == pytest.approx(nearest.min(axis=1).sum(), rel=1e-9)
    assert fit.counts.sum() == 60
