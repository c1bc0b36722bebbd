"""Kernel PCA of columns at several sites, against matrices written down."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.decomposition import PCA, KernelPCA
from sklearn.metrics.pairwise import rbf_kernel

from coterie.engines.inprocess import in_process
from coterie.errors import InputError, QuorumLost, Unaligned
from coterie.maths import factors, spectra
from coterie.maths.factors import sin_theta
from coterie.methods.shared.alignment import Alignment, row_tags
from coterie.methods.vertical.kernel_pca import VerticalSettings, project, vertical_kernel_pca
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.tables import ArrayTable, PairedTable
from coterie_studies.closed_forms import project_cost, vertical_kernel_pca_cost

METHOD = "vertical-kernel-pca"
RNG = np.random.default_rng(11)
ROWS = RNG.normal(size=(70, 64)) * np.linspace(2, 0.2, 64)
NEW = RNG.normal(size=(9, 64)) * np.linspace(2, 0.2, 64)
GAMMA = 0.004


def shared_out(rows, n_sites):
    return {f"s{j}": part for j, part in enumerate(np.array_split(rows, n_sites, axis=1))}


def pairs_of(rows, new, n_sites):
    later = shared_out(new, n_sites)
    return {
        name: PairedTable(ArrayTable(part), ArrayTable(later[name]))
        for name, part in shared_out(rows, n_sites).items()
    }


def fitted(settings, parts, *, ledger=None, seed=1):
    tables = {name: part if hasattr(part, "raw_blocks") else ArrayTable(part) for name, part in parts.items()}
    with in_process(tables) as channel:
        return run(vertical_kernel_pca(settings, seed=seed), channel, method=METHOD, ledger=ledger)


def projected(fit, tables, *, layers=None, ledger=None):
    with in_process(tables) as channel:
        return run(project(fit), channel, method=METHOD, layers=layers or [PlainSums()], ledger=ledger)


def kernel_matrix(kernel, one, other):
    return one @ other.T if kernel == "linear" else rbf_kernel(one, other, gamma=GAMMA)


# ---------------------------------------------------------------- exact where it must be


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("n_sites", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("center", [True, False])
def test_with_all_pairs_it_is_exact(kernel, n_sites, center):
    fit = fitted(
        VerticalSettings(5, kernel=kernel, gamma=GAMMA, local_rank=70, center=center), shared_out(ROWS, n_sites)
    )
    matrix = kernel_matrix(kernel, ROWS, ROWS)
    off = np.eye(70) - 1 / 70 if center else np.eye(70)
    values, vectors = np.linalg.eigh(off @ matrix @ off)
    np.testing.assert_allclose(fit.pairs.values, values[::-1][:5], rtol=1e-10)
    assert sin_theta(fit.pairs.vectors, vectors[:, ::-1][:, :5]) < 1e-10
    assert fit.error_bound == 0
    new, tags = projected(fit, pairs_of(ROWS, NEW, n_sites))
    assert tags is None
    if center:
        reference = KernelPCA(5, kernel=kernel, gamma=GAMMA).fit(ROWS)
        expected = reference.transform(NEW)
    else:
        top, along = values[::-1][:5], vectors[:, ::-1][:, :5]
        expected = kernel_matrix(kernel, NEW, ROWS) @ along / np.sqrt(top)
    signs = np.sign((new * expected).sum(0))
    np.testing.assert_allclose(new * signs, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("rank", [16, 17])
def test_a_linear_kernel_is_exact_with_as_many_pairs_as_columns(rank):
    fit = fitted(VerticalSettings(6, kernel="linear", local_rank=rank), shared_out(ROWS, 4))
    pca = PCA(6).fit(ROWS)
    np.testing.assert_allclose(fit.pairs.values, pca.explained_variance_ * 69, rtol=1e-10)
    new, _ = projected(fit, pairs_of(ROWS, NEW, 4))
    np.testing.assert_allclose(np.abs(new), np.abs(pca.transform(NEW)), atol=1e-9)
    fewer = fitted(VerticalSettings(6, kernel="linear", local_rank=15), shared_out(ROWS, 4))
    assert np.abs(fewer.pairs.values / pca.explained_variance_ / 69 - 1).max() > 1e-6


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("center", [True, False])
def test_with_some_pairs_it_is_what_algorithm_1_and_equations_9_and_10_say(kernel, center):
    """A twin with matrices written down: K_hat by (5) or (8), new rows by exact kernel values, K_hat's means."""
    fit = fitted(VerticalSettings(4, kernel=kernel, gamma=GAMMA, local_rank=3, center=center), shared_out(ROWS, 4))
    hats, mean = [], ROWS.mean(0) if center and kernel == "linear" else np.zeros(64)  # linear: centered at the sites
    for part in shared_out(ROWS - mean, 4).values():
        values, vectors = np.linalg.eigh(kernel_matrix(kernel, part, part))
        hats.append((vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].T)
    joined = sum(hats) if kernel == "linear" else np.prod(hats, axis=0)
    off = np.eye(70) - 1 / 70 if center else np.eye(70)
    values, vectors = np.linalg.eigh(off @ joined @ off)
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    np.testing.assert_allclose(fit.pairs.values, values, rtol=1e-9)
    np.testing.assert_allclose(np.abs(fit.embedding), np.abs(vectors * np.sqrt(values)), atol=1e-8)
    new, _ = projected(fit, pairs_of(ROWS, NEW, 4))
    cross = kernel_matrix(kernel, NEW - mean, ROWS - mean)
    if center:
        cross = cross - cross.mean(1, keepdims=True) - joined.mean(0) + joined.mean()
    expected = cross @ vectors / np.sqrt(values)
    np.testing.assert_allclose(np.abs(new), np.abs(expected), atol=1e-8)


def test_rows_of_the_fit_projected_differ_from_the_fits_own_below_full_rank_only():
    for rank, is_same in ((70, True), (3, False)):
        fit = fitted(VerticalSettings(3, kernel="rbf", gamma=GAMMA, local_rank=rank), shared_out(ROWS, 4))
        again, _ = projected(fit, pairs_of(ROWS, ROWS, 4))
        assert np.allclose(again, fit.embedding, atol=1e-9) == is_same


# ---------------------------------------------------------------- the error


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_error_falls_with_the_rank_within_its_bound(kernel):
    """Theorem 3 with the gap Davis and Kahan need: lambda_D of K less lambda_(D+1) of K_hat."""
    matrix = kernel_matrix(kernel, ROWS, ROWS)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    before, first = np.inf, None
    for rank in (2, 4, 8, 16, 32):
        fit = fitted(
            VerticalSettings(3, kernel=kernel, gamma=GAMMA, local_rank=rank, center=False), shared_out(ROWS, 2)
        )
        more = fitted(
            VerticalSettings(4, kernel=kernel, gamma=GAMMA, local_rank=rank, center=False), shared_out(ROWS, 2)
        )
        error = sin_theta(fit.pairs.vectors, vectors[:, :3])
        rest = [np.linalg.eigvalsh(kernel_matrix(kernel, p, p))[::-1][rank] for p in shared_out(ROWS, 2).values()]
        bound = 2 * np.sqrt(70 - rank if kernel == "linear" else 70) * max(rest)
        gap = values[2] - more.pairs.values[3]
        assert gap > 0
        assert error <= bound / gap + 1e-9
        assert error < before or error < 1e-9
        before, first = error, error if first is None else first
    assert before < first / 10


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("tolerance", [0.1, 0.01, 1e-3, 1e-6])
def test_a_tolerance_is_kept_with_the_fewest_pairs_that_promise_it(kernel, tolerance):
    settings = VerticalSettings(3, kernel=kernel, gamma=GAMMA, tolerance=tolerance, center=False)
    parts = shared_out(ROWS, 4)
    fit = fitted(settings, parts)
    matrix = kernel_matrix(kernel, ROWS, ROWS)
    share = tolerance * np.trace(matrix) / 4
    hats = []
    for name, part in parts.items():
        values, vectors = np.linalg.eigh(kernel_matrix(kernel, part, part))
        rest = np.sqrt(np.cumsum(values**2))  # of the smallest 1, 2, ... values
        rank = fit.ranks[name]
        assert rank == 70 or rest[69 - rank] <= share
        assert rank == 1 or rest[70 - rank] > share
        hats.append((vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T)
    joined = sum(hats) if kernel == "linear" else np.prod(hats, axis=0)
    assert np.linalg.norm(matrix - joined) <= tolerance * np.trace(matrix)
    np.testing.assert_allclose(fit.pairs.values, np.linalg.eigvalsh(joined)[::-1][:3], rtol=1e-9)


def test_a_tolerance_ends_at_the_largest_rank_allowed():
    fit = fitted(VerticalSettings(3, kernel="rbf", gamma=GAMMA, local_rank=5, tolerance=1e-6), shared_out(ROWS, 4))
    assert set(fit.ranks.values()) == {5}


def test_pairs_of_a_large_table_are_found_by_products_and_once(monkeypatch):
    for module in (spectra, factors):
        monkeypatch.setattr(module, "SMALL", 30)
    monkeypatch.setattr(factors, "WRITTEN", 30)
    monkeypatch.setattr(factors, "TILE", 16)
    rows = np.random.default_rng(3).normal(size=(150, 8)) * 0.3
    found = []
    whole = factors.kernel_pairs

    def counted(kernel, gamma, part, count, **options):
        found.append(count)
        return whole(kernel, gamma, part, count, **options)

    monkeypatch.setattr(factors, "kernel_pairs", counted)
    monkeypatch.setattr("coterie.methods.vertical.sites.kernel_pairs", counted)
    fit = fitted(VerticalSettings(3, kernel="rbf", gamma=0.5, tolerance=1e-3, center=True), shared_out(rows, 2))
    assert sorted(set(found)) == [16, 32]  # 16 were too few, 32 enough; what was found is not found again
    assert len(found) == 4
    reference = KernelPCA(3, kernel="rbf", gamma=0.5).fit(rows)
    assert sin_theta(fit.pairs.vectors, reference.eigenvectors_) < 0.02


def test_single_precision_halves_the_bytes_and_hardly_moves_the_components():
    books = {}
    for precision in ("float64", "float32"):
        books[precision] = Ledger()
        settings = VerticalSettings(3, kernel="rbf", gamma=GAMMA, local_rank=10, precision=precision)
        fit = fitted(settings, shared_out(ROWS, 4), ledger=books[precision])
        books[precision].vectors = fit.pairs.vectors
    ratio = books["float32"].total("bytes_up") / books["float64"].total("bytes_up")
    assert 0.5 < ratio < 0.55
    assert 0 < sin_theta(books["float32"].vectors, books["float64"].vectors) < 1e-5


# ---------------------------------------------------------------- what is counted


def test_the_cost_is_j_d_t_plus_1_and_what_comes_before():
    """J D (T + 1), one round; two more where rows have keys and gamma is asked for."""
    ledger = Ledger()
    fit = fitted(VerticalSettings(3, kernel="rbf", gamma=GAMMA, local_rank=7), shared_out(ROWS, 4), ledger=ledger)
    pairs = [e for e in ledger.exchanges if e.asked.endswith(".Decompose")]
    assert sum(count.floats_up for count in pairs[0].sites.values()) == 4 * 7 * (70 + 1)
    assert ledger.total("floats_up") == 4 * 7 * 71 + 4 * 3
    assert ledger.total("rounds") == 2
    assert vertical_kernel_pca_cost(fit).floats_up == ledger.total("floats_up")


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_new_rows_are_asked_for_in_pieces_and_counted(kernel, monkeypatch):
    monkeypatch.setattr("coterie.methods.vertical.kernel_pca.AT_ONCE", 8 if kernel == "linear" else 150)
    fit = fitted(VerticalSettings(3, kernel=kernel, gamma=GAMMA, local_rank=7), shared_out(ROWS, 4))
    whole, ledger = projected(fit, pairs_of(ROWS, NEW, 4))[0], Ledger()
    monkeypatch.setattr("coterie.methods.vertical.kernel_pca.AT_ONCE", 4 if kernel == "linear" else 71)
    np.testing.assert_allclose(projected(fit, pairs_of(ROWS, NEW, 4), ledger=ledger)[0], whole, atol=1e-12)
    cost = project_cost(fit, Alignment(9, None))
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)
    assert cost.floats_up == 4 * (9 * (3 if kernel == "linear" else 70) + 6)
    assert cost.rounds == 2 + 9 + (kernel == "linear")


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_sums_over_new_rows_may_be_masked(kernel):
    fit = fitted(VerticalSettings(3, kernel=kernel, gamma=GAMMA, local_rank=7), shared_out(ROWS, 4))
    plain, ledger = projected(fit, pairs_of(ROWS, NEW, 4))[0], Ledger()
    masked, _ = projected(fit, pairs_of(ROWS, NEW, 4), layers=[MaskedSums()], ledger=ledger)
    np.testing.assert_allclose(masked, plain, atol=1e-9)
    summed = [e for e in ledger.exchanges if e.asked.endswith((".SumDistances", ".SumProducts"))]
    assert summed
    assert {e.seen for e in summed} == {"masked"}


def test_rows_far_away_have_a_kernel_of_nothing():
    fit = fitted(VerticalSettings(3, kernel="rbf", gamma=5.0, local_rank=20, center=False), shared_out(ROWS, 4))
    new, _ = projected(fit, pairs_of(ROWS, NEW + 1e6, 4))
    np.testing.assert_allclose(new, 0)


# ---------------------------------------------------------------- columns as they come


def test_gamma_comes_from_the_mean_squared_distance_when_none_is_given():
    fit = fitted(VerticalSettings(2), shared_out(ROWS, 3))
    mean = ((ROWS[:, None] - ROWS) ** 2).sum(-1).mean()
    np.testing.assert_allclose(fit.gamma, 1 / (2 * mean), rtol=1e-12)
    with pytest.raises(InputError, match="all rows are equal"):
        fitted(VerticalSettings(2), shared_out(np.ones((9, 4)), 2))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_one_column_a_constant_one_and_few_rows_are_no_trouble(kernel):
    rows = np.column_stack([ROWS[:, 0], np.full(70, 3.0), ROWS[:, 1:4]])
    parts = {"one": rows[:, :1], "constant": rows[:, 1:2], "rest": rows[:, 2:]}
    fit = fitted(VerticalSettings(3, kernel=kernel, gamma=GAMMA, local_rank=100), parts)
    reference = KernelPCA(3, kernel=kernel, gamma=GAMMA).fit(rows)
    assert set(fit.ranks.values()) == {70}
    np.testing.assert_allclose(fit.pairs.values, reference.eigenvalues_, rtol=1e-9)
    assert sin_theta(fit.pairs.vectors, reference.eigenvectors_) < 1e-9
    few = fitted(
        VerticalSettings(10, kernel=kernel, gamma=GAMMA, local_rank=50), {n: p[:2] for n, p in parts.items()}
    )
    assert few.pairs.values.shape == (2,)
    assert np.isfinite(few.weights).all()


def test_every_site_treats_its_own_columns():
    holes = ROWS.copy()
    holes[::20, 5] = np.nan  # 4 of 70
    holes[::3, 40] = np.nan  # a third: the column goes
    parts = shared_out(holes, 4)
    fit = fitted(
        VerticalSettings(3, kernel="rbf", gamma=0.01, local_rank=70, missing="mean", scale="standard"), parts
    )
    filled = np.delete(holes, 40, axis=1)
    filled = np.where(np.isnan(filled), np.nanmean(filled, axis=0), filled)
    mean, spread = filled.mean(0), filled.std(0)
    reference = KernelPCA(3, kernel="rbf", gamma=0.01).fit((filled - mean) / spread)
    np.testing.assert_allclose(fit.pairs.values, reference.eigenvalues_, rtol=1e-9)
    later = NEW.copy()
    later[1, 5] = np.nan
    new, _ = projected(fit, pairs_of(holes, later, 4))
    seen = np.delete(later, 40, axis=1)
    seen[1, 5] = np.nanmean(holes[:, 5])
    np.testing.assert_allclose(np.abs(new), np.abs(reference.transform((seen - mean) / spread)), atol=1e-9)


def test_missing_values_nobody_spoke_of_are_refused(caplog):
    holes = ROWS.copy()
    holes[3, 5] = np.nan
    with caplog.at_level(logging.CRITICAL), pytest.raises(QuorumLost, match="missing values"):
        fitted(VerticalSettings(3), shared_out(holes, 4))
    with caplog.at_level(logging.CRITICAL), pytest.raises(QuorumLost, match="missing values"):
        fitted(VerticalSettings(3, scale="standard"), shared_out(holes, 4))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kernel": "laplacian"}, "'linear' or 'rbf'"),
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 2.5}, "n_components=2.5 must be a whole number"),
        ({"n_components": "two"}, "n_components='two'"),
        ({"local_rank": True}, "local_rank=True must be a whole number"),
        ({"gamma": "auto"}, "gamma='auto' must be a number"),
        ({"gamma": True}, "gamma=True"),
        ({"tolerance": ""}, "tolerance=''"),
        ({"center": "no"}, "center='no'"),
        ({"local_rank": 0}, "local_rank=0"),
        ({"gamma": -1.0}, "gamma=-1.0"),
        ({"gamma": float("nan")}, "gamma=nan"),
        ({"tolerance": 0.0}, "tolerance=0.0"),
        ({"tolerance": 1.5}, "tolerance=1.5"),
        ({"precision": "float16"}, "precision='float16'"),
        ({"missing": "drop"}, "dropped at all"),
        ({"scale": "minmax"}, "every site does for itself"),
    ],
)
def test_settings_that_cannot_be_are_errors(options, told):
    with pytest.raises(InputError, match=told):
        VerticalSettings(**{"n_components": 2, **options})


# ---------------------------------------------------------------- rows with keys


def keyed(part, later, seed):
    rng = np.random.default_rng(seed)
    order, turned = rng.permutation(len(part)), rng.permutation(len(later))
    names = np.arange(len(part))[order], 1000 + np.arange(len(later))[turned]
    return PairedTable(ArrayTable(part[order], keys=names[0]), ArrayTable(later[turned], keys=names[1]))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_rows_in_other_orders_give_the_same_components(kernel):
    settings = VerticalSettings(3, kernel=kernel, gamma=GAMMA, local_rank=70)
    by_place = fitted(settings, shared_out(ROWS, 3))
    later = shared_out(NEW, 3)
    tables = {n: keyed(p, later[n], i) for i, (n, p) in enumerate(shared_out(ROWS, 3).items())}
    by_key = fitted(settings, tables)
    order = np.argsort(row_tags(range(70), bytes(32)))
    np.testing.assert_allclose(np.abs(by_key.embedding), np.abs(by_place.embedding[order]), atol=1e-9)
    new, tags = projected(by_key, tables)
    expected, _ = projected(by_place, pairs_of(ROWS, NEW, 3))
    turned = np.argsort(row_tags(1000 + np.arange(9), bytes(32)))
    np.testing.assert_array_equal(tags, np.sort(row_tags(1000 + np.arange(9), bytes(32))))
    np.testing.assert_allclose(np.abs(new), np.abs(expected[turned]), atol=1e-9)


def test_new_rows_of_other_tables_than_the_fits_are_refused():
    settings = VerticalSettings(3, kernel="rbf", gamma=GAMMA)
    fit = fitted(settings, shared_out(ROWS, 3))
    with pytest.raises(Unaligned, match="the 70 rows of the fit: they hold 69 rows, and 1 are"):
        projected(fit, pairs_of(ROWS[:69], NEW, 3))
    tables = {n: keyed(p, shared_out(NEW, 3)[n], i) for i, (n, p) in enumerate(shared_out(ROWS, 3).items())}
    with pytest.raises(Unaligned, match="matched in the same way as in the fit"):
        projected(fit, tables)
    by_key = fitted(settings, tables)
    other = {
        n: PairedTable(ArrayTable(p, keys=[*range(69), 555]), ArrayTable(shared_out(NEW, 3)[n], keys=range(9)))
        for n, p in shared_out(ROWS, 3).items()
    }
    with pytest.raises(Unaligned, match="they hold 70 rows, and 2 are in one of the two only"):
        projected(by_key, other)


def test_the_gap_as_printed_is_nothing():
    """Equation (12) takes eigenvalues of K_hat up to its first or from its D-th on: every number is one of these."""
    values = fitted(
        VerticalSettings(5, kernel="rbf", gamma=GAMMA, local_rank=5, center=False), shared_out(ROWS, 2)
    ).pairs.values
    first, last = values[0], values[2]
    of_k = np.linalg.eigvalsh(kernel_matrix("rbf", ROWS, ROWS))[::-1]
    for value in np.linspace(of_k[2], of_k[0], 50):  # lambda in [lambda_D(K), lambda_1(K)]
        assert value <= first or value >= last  # a lambda_hat as near as one likes


# ---------------------------------------------------------------- what a review found


@pytest.mark.parametrize("offset", [1e6, 1e8, 1e10])
def test_linear_columns_far_from_zero_lose_no_digits(offset):
    """Each site takes off its own means: the Gram of raw columns would keep nothing of the rows."""
    rows = np.random.default_rng(0).normal(size=(40, 4)) * [4, 2, 1, 0.5]
    fit = fitted(VerticalSettings(3, kernel="linear", local_rank=2), shared_out(rows + offset, 2))
    near = fitted(VerticalSettings(3, kernel="linear", local_rank=2), shared_out(rows, 2))
    np.testing.assert_allclose(fit.pairs.values, near.pairs.values, rtol=1e-15 * offset + 1e-9)
    new, _ = projected(fit, pairs_of(rows + offset, rows[:5] + offset, 2))
    np.testing.assert_allclose(np.abs(new), np.abs(near.embedding[:5]), atol=1e-14 * offset + 1e-8)


def test_a_new_row_far_away_does_not_spoil_others_masked():
    fit = fitted(VerticalSettings(3, kernel="linear", local_rank=16), shared_out(ROWS, 4))
    far = np.concatenate([NEW, NEW[:1] + 1e15])
    masked, _ = projected(fit, pairs_of(ROWS, far, 4), layers=[MaskedSums()])
    plain, _ = projected(fit, pairs_of(ROWS, NEW, 4))
    np.testing.assert_allclose(masked[:9], plain, atol=1e-9)


@pytest.mark.parametrize("n_rows", [1201, 1500])
def test_eigenvalues_that_lie_close_together_are_told_apart(n_rows):
    """Rows in order under a narrow kernel: a few passes of block Lanczos do not do, the whole matrix does."""
    from sklearn.metrics.pairwise import rbf_kernel

    rows = np.arange(n_rows)[:, None] / 3.0
    found = factors.kernel_pairs("rbf", 0.5, rows, 5, seed=0)
    matrix = rbf_kernel(rows, gamma=0.5)
    left = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    assert left.max() < 1e-9 * found.values[0]
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(matrix)[::-1][:5], rtol=1e-10)


def test_a_site_without_a_column_left_refuses(caplog):
    holes = ROWS.copy()
    holes[::2, :16] = np.nan
    with caplog.at_level(logging.CRITICAL), pytest.raises(QuorumLost, match="missing values"):
        fitted(VerticalSettings(3, missing="mean"), shared_out(holes, 4))


def test_too_few_rows_are_found_before_pairs_are_asked_for():
    ledger = Ledger()
    with pytest.raises(InputError, match="hold 1 row; at least 2"):
        fitted(VerticalSettings(3), shared_out(ROWS[:1], 4), ledger=ledger)
    assert ledger.total("rounds") == 1


def test_a_tolerance_bounds_the_error_it_promises():
    for kernel in ("linear", "rbf"):
        fit = fitted(VerticalSettings(3, kernel=kernel, gamma=GAMMA, tolerance=0.01), shared_out(ROWS, 4))
        rows = ROWS - ROWS.mean(0) if kernel == "linear" else ROWS
        assert fit.error_bound <= 0.01 * np.trace(kernel_matrix(kernel, rows, rows)) * (1 + 1e-9)
