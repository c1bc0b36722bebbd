"""Landmark kernel k-means against exact kernel k-means, in both ways, whole and in pieces."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.maths.landmarks import decoded
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Memory
from coterie.messages.verbs import total
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.kernel.landmarks.search import summed_landmarks
from coterie.methods.kernel.landmarks.sites import SendLandmarks, local_landmarks
from coterie.methods.kernel.landmarks.summed import ShareCells, UseProjection, keep_lens, local_shares
from coterie.methods.method import RunContext
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly, tables_of

ROWS = blobs(240, 5, 4, seed=3, spread=1.5)
GAMMA = average_distance_gamma(240.0, ROWS.sum(0), float((ROWS**2).sum()))
HALF = Terms(quorum=0.5, resends=0)


def cluster(tables, settings, *, k=4, masked=False, ledger=None, policy=None, schedule=None, **options):
    context = RunContext(len(next(iter(tables.values())).columns), averages=options.pop("averages", True))
    protocol = cluster_by_landmarks(settings, k, context, **{"max_rounds": 3, "tol": 0.0, **options})
    extra = {"layers": [MaskedSums()]} if masked else {}
    with in_process(tables, policy=policy, schedule=schedule) as channel:
        return run(protocol, channel, method="landmarks", ledger=ledger, terms=HALF, **extra)


def labels(fit, rows=ROWS):
    features = fit.embedding.embed(rows)
    return ((features[:, None] - fit.clusters.centers) ** 2).sum(-1).argmin(1)


def kernel_cost(gram, found):
    parts = [gram[np.ix_(found == c, found == c)].sum() / (found == c).sum() for c in np.unique(found)]
    return np.trace(gram) - sum(parts)


# ---------------------------------------------------------------- exact where landmarks are all rows


def kernel_lloyd(gram, found, k, rounds):
    """Kernel k-means by its definition: distances to centers nobody can write down."""
    for _ in range(rounds):
        apart = np.full((len(gram), k), np.inf)
        for c in range(k):
            inside = found == c
            if inside.any():
                apart[:, c] = np.diag(gram) - 2 * gram[:, inside].mean(1) + gram[np.ix_(inside, inside)].mean()
        found = apart.argmin(1)
    return found


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_with_all_rows_as_landmarks_it_is_exact_kernel_k_means_from_the_same_start(kernel, rounds):
    settings = LandmarkParameters(kernel=kernel, gamma=GAMMA, landmarks=ROWS)
    start, end = (cluster(split_evenly(ROWS, 3), settings, max_rounds=n) for n in (0, rounds))
    gram = settings.kernel_at(1.0).between(ROWS, ROWS)
    features = end.embedding.embed(ROWS)
    np.testing.assert_allclose(features @ features.T, gram, atol=1e-8 * gram.max())
    expected = kernel_lloyd(gram, labels(start), 4, rounds)
    np.testing.assert_array_equal(labels(end), expected)
    assert end.clusters.cost == pytest.approx(kernel_cost(gram, expected), rel=1e-2)  # the centers moved once more
    again = cluster(split_evenly(ROWS, 3), settings, max_rounds=40)
    assert again.clusters.cost == pytest.approx(kernel_cost(gram, labels(again)), rel=1e-8)


# ---------------------------------------------------------------- good where they are few


@pytest.mark.parametrize("way", ["local", "summed"])
@pytest.mark.parametrize("split", ["evenly", "sorted"])
def test_few_coarse_landmarks_cluster_as_well_as_the_kernel_itself(way, split):
    order = np.argsort(ROWS[:, 0]) if split == "sorted" else np.arange(240)
    tables = split_evenly(ROWS[order], 4)
    gram = Kernel("rbf", GAMMA).between(ROWS, ROWS)
    found = cluster(tables, LandmarkParameters(landmarks=way, n_landmarks=20), max_rounds=10)
    exact = cluster(tables, LandmarkParameters(landmarks=ROWS), max_rounds=50)
    assert kernel_cost(gram, labels(found)) <= 1.01 * kernel_cost(gram, labels(exact))
    assert found.clusters.counts.sum() == 240
    assert found.kernel.gamma == pytest.approx(GAMMA, rel=0.02)


def test_gamma_is_right_for_coarse_numbers_far_from_zero():
    """Columns near 10,000 in single precision: an expanded square would keep three digits of ten thousand squared."""
    away = (ROWS + 1e4).astype(np.float32)
    found = cluster(split_evenly(away, 3), LandmarkParameters(landmarks="local", n_landmarks=20), max_rounds=1)
    assert found.kernel.gamma == pytest.approx(GAMMA, rel=0.02)


def test_columns_that_vary_little_beside_the_largest_value_keep_their_range():
    """One column near 60,000, the others within one of zero: as many steps for every one of them."""
    rng = np.random.default_rng(3)
    rows = np.column_stack(
        [rng.normal(6e4, 1.0, 600), rng.choice([-1.0, 1.0], (600, 39)) * rng.normal(1, 0.1, (600, 39))]
    )
    protocol = summed_landmarks(8, 40, bits=6, seed=2)
    with in_process(split_evenly(rows, 3)) as channel:
        found = run(protocol, channel, method="landmarks", ledger=Ledger(), layers=[MaskedSums()]).landmarks
    middle = found.weights @ found.points / found.weights.sum()
    np.testing.assert_allclose(middle, rows.mean(0), atol=0.1)
    assert np.ptp(found.points[:, 1:], axis=0).min() > 0.2


@pytest.mark.parametrize("masked", [False, True])
def test_summed_landmarks_are_means_of_the_cells_within_a_step(masked):
    """By hand: the same cells of the pooled rows."""
    ledger, settings = Ledger(), {"bits": 6, "seed": 2}
    protocol = summed_landmarks(12, 5, **settings, limits=(-20.0, 20.0))
    layers = {"layers": [MaskedSums()]} if masked else {}
    with in_process(split_evenly(ROWS, 3)) as channel:
        found = run(protocol, channel, method="landmarks", ledger=ledger, **layers).landmarks
    assert found.weights.sum() == pytest.approx(240)
    assert found.scatter == pytest.approx(((ROWS - ROWS.mean(0)) ** 2).sum(), rel=0.01)
    cells = ((ROWS[:, None] - found.points) ** 2).sum(-1).argmin(1)  # close to settled after four rounds
    for cell in np.unique(cells):
        if (cells == cell).sum() > 10:
            assert np.abs(ROWS[cells == cell].mean(0) - found.points[cell]).max() < 2.0
    if masked:
        assert {e.seen for e in ledger.exchanges if e.phase == "algorithm"} <= {"masked", "summed"}


def test_wide_rows_are_projected_to_find_cells_and_whole_means_have_few_bits():
    rows = blobs(400, 60, 5, seed=1, spread=1.0)
    found, wide = (
        cluster(
            split_evenly(rows, 4),
            LandmarkParameters(landmarks="summed", n_landmarks=20, landmark_bits=bits),
            k=5,
            masked=True,
        )
        for bits in (5, 8)
    )
    gram = Kernel("rbf", found.kernel.gamma).between(rows, rows)
    assert kernel_cost(gram, labels(found, rows)) <= 1.02 * kernel_cost(gram, labels(wide, rows))
    assert found.embedding.landmarks.shape[1] == 60


def test_masked_and_plain_sums_give_the_same():
    settings = LandmarkParameters(landmarks="summed", n_landmarks=16)
    plain, masked = (cluster(split_evenly(ROWS, 4), settings, masked=m) for m in (False, True))
    np.testing.assert_allclose(masked.embedding.landmarks, plain.embedding.landmarks, atol=1e-5)
    np.testing.assert_array_equal(labels(masked), labels(plain))
    assert masked.clusters.cost == pytest.approx(plain.clusters.cost, rel=1e-4)


def test_parts_of_means_add_up_within_the_ring():
    """However rows are split, rounding included; a ring one bit smaller would wrap."""
    rows = np.full((50, 2), 9.0)
    ask = ShareCells(4, 2, 5, np.zeros((1, 2)), np.array([50.0]), np.zeros(1), np.full(1, 9.0))
    sums = np.zeros((1, 2))
    for part in np.array_split(rows, 5):
        memory, table = Memory(), ArrayTable(part)
        keep_lens(table, memory, UseProjection(0, 2, False))
        sums += local_shares(table, memory, ask).codes
    assert sums.max() <= 15
    np.testing.assert_allclose(sums / ask.steps * 9.0, 9.0, atol=9.0 * 5 * 0.5 / ask.steps)


# ---------------------------------------------------------------- what a site sends


def test_centers_stand_for_all_rows_and_are_at_most_one_for_two_of_them():
    for rows in (ROWS, ROWS[:20], ROWS[:7], ROWS[:0]):
        sent = local_landmarks(ArrayTable(rows), Memory(), SendLandmarks(10, 5, 5, 4, 100, 0))
        assert sent.counts.sum() == pytest.approx(len(rows))
        assert (sent.counts > 0).sum() <= max(1, min(10, len(rows) // 2))
    assert not sent.codes.any()
    assert float(sent.scatter) == 0.0


def test_a_sites_landmarks_are_its_centers_and_its_scatter_is_exact():
    sent = local_landmarks(ArrayTable(ROWS), Memory(), SendLandmarks(6, 5, 5, 8, 1000, 0))
    points = decoded(sent.codes, sent.low, sent.span, 8)
    cells = ((ROWS[:, None] - points) ** 2).sum(-1).argmin(1)
    for cell in range(6):
        np.testing.assert_allclose(points[cell], ROWS[cells == cell].mean(0), atol=0.2)
    assert float(sent.scatter) == pytest.approx(((ROWS - ROWS.mean(0)) ** 2).sum(), rel=1e-9)


def test_many_tiny_sites_are_merged():
    rows = blobs(1200, 5, 4, seed=3, spread=1.5)
    owners = np.random.default_rng(0).permutation(np.arange(1200) % 60)
    found = cluster(tables_of(rows, owners, 60), LandmarkParameters(landmarks="local"), max_rounds=2)
    gram = Kernel("rbf", found.kernel.gamma).between(rows, rows)
    exact = cluster(split_evenly(rows, 2), LandmarkParameters(landmarks=rows[:400]), max_rounds=30)
    assert len(found.embedding.landmarks) <= 60
    assert kernel_cost(gram, labels(found, rows)) <= 1.01 * kernel_cost(gram, labels(exact, rows))


@pytest.mark.parametrize("way", ["local", "summed"])
def test_odd_sites(way):
    owners = np.minimum(np.arange(240), 3)  # three sites of one row
    found = cluster(tables_of(ROWS, owners, 5), LandmarkParameters(landmarks=way))  # and one of none
    assert found.clusters.counts.sum() == 240
    alone = cluster({"only": ArrayTable(ROWS)}, LandmarkParameters(landmarks=way))
    assert alone.clusters.counts.sum() == 240
    flat = np.concatenate([ROWS, np.full((240, 1), 3.0)], axis=1)
    assert cluster(split_evenly(flat, 2), LandmarkParameters(landmarks=way)).clusters.counts.sum() == 240
    with pytest.raises(InputError, match="all rows are equal"):
        cluster(split_evenly(np.ones((40, 3)), 2), LandmarkParameters(landmarks=way))
    with pytest.raises(InputError, match=r"0 rows|no landmark"):
        cluster(split_evenly(ROWS[:0], 2), LandmarkParameters(landmarks=way))


# ---------------------------------------------------------------- policies and dropouts


def test_auto_takes_local_centers_where_every_site_lets_averages_be_seen():
    tables = split_evenly(ROWS, 4)
    for policy, local in ((Policy(per_site_results="averages"), True), (Policy(verification="off"), False)):
        ledger = Ledger()
        settings = LandmarkParameters(n_landmarks=16)
        cluster(tables, settings, masked=True, ledger=ledger, policy=policy, averages=local)
        asked = {e.asked for e in ledger.exchanges}
        assert ("kernel.SendLandmarks" in asked) is local
        assert ("kernel.ShareCells" in asked) is not local
    with pytest.raises(QuorumLost) as refused:
        cluster(tables, LandmarkParameters(landmarks="local"), masked=True, policy=Policy(verification="off"))
    assert {o.refusal for o in refused.value.outcomes.values()} == {Refusal.SINGLE_ANSWER_FORBIDDEN}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["CountCells", "ShareCells"])
def test_a_site_lost_between_counting_and_sharing_leaves_means_of_those_left(masked, kind):
    """A part of a mean of more rows would pull the mean towards nothing."""
    tables, settings, ledger = (
        split_evenly(ROWS + 50.0, 4),
        LandmarkParameters(landmarks="summed", n_landmarks=12),
        Ledger(),
    )
    cluster(tables, settings, masked=masked, ledger=ledger)
    at = [e.round for e in ledger.exchanges if e.asked == f"kernel.{kind}"][2]
    schedule = Schedule([Fault("site-1", "drop", frozenset(range(at, at + 1000)))])
    again = Ledger()
    found = cluster(tables, settings, masked=masked, schedule=schedule, ledger=again)
    assert np.abs(found.embedding.landmarks.mean(0) - ROWS.mean(0) - 50.0).max() < 5.0
    assert found.clusters.counts.sum() == 180
    assert any(
        e.sites.get("site-1") and e.sites["site-1"].outcome.kind is not OutcomeKind.ANSWERED for e in again.exchanges
    )


def test_a_site_lost_after_the_landmarks_is_left_out_of_the_rounds():
    tables, ledger = split_evenly(ROWS, 4), Ledger()
    cluster(tables, LandmarkParameters(landmarks="local"), ledger=ledger)
    at = next(e.round for e in ledger.exchanges if e.asked == "kernel.MeanByCell")
    schedule = Schedule([Fault("site-1", "drop", frozenset(range(at, at + 1000)))])
    found = cluster(tables, LandmarkParameters(landmarks="local"), schedule=schedule)
    assert found.clusters.counts.sum() == 180


# ---------------------------------------------------------------- more landmarks only where they pay


@pytest.mark.parametrize("way", ["local", "summed"])
def test_more_landmarks_are_asked_for_where_these_miss_much(way):
    rows = blobs(3000, 5, 4, seed=3, spread=1.5)
    gamma = average_distance_gamma(3000.0, rows.sum(0), float((rows**2).sum()))
    kinds = {"local": "kernel.SendLandmarks", "summed": "kernel.CountCells"}
    times = []
    for factor in (1.0, 100.0):
        ledger = Ledger()
        settings = LandmarkParameters(gamma=factor * gamma, landmarks=way)
        cluster(split_evenly(rows, 3), settings, ledger=ledger)
        times.append(sum(e.asked == kinds[way] for e in ledger.exchanges))
    assert times == ([1, 2] if way == "local" else [4, 8])  # of all rows the sums are asked for once


# ---------------------------------------------------------------- an embedding


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_components_are_those_of_the_kernel_matrix(center, masked):
    settings = LandmarkParameters(gamma=GAMMA, landmarks=ROWS)
    protocol = embed_by_landmarks(settings, 4, RunContext(5), center=center)
    layers = {"layers": [MaskedSums()]} if masked else {}
    with in_process(split_evenly(ROWS, 3)) as channel:
        found = run(protocol, channel, method="landmarks", **layers)
    middle = np.eye(240) - (1 / 240 if center else 0)
    values, vectors = np.linalg.eigh(middle @ Kernel("rbf", GAMMA).between(ROWS, ROWS) @ middle)
    np.testing.assert_allclose(found.values, values[::-1][:4], rtol=1e-4)
    h = found.embedding.embed(ROWS)
    exact = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    np.testing.assert_allclose(h @ h.T, exact, atol=2e-4)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"landmarks": "elsewhere"}, "landmarks='elsewhere'"),
        ({"n_landmarks": 0}, "n_landmarks=0"),
        ({"landmark_bits": 9}, "landmark_bits=9"),
        ({"landmarks": np.array([[np.nan]])}, "every value finite"),
        ({"landmarks": np.zeros(3)}, "a row each"),
    ],
)
def test_what_cannot_be_is_said(settings, told):
    with pytest.raises(InputError, match=told):
        LandmarkParameters(**settings).check(1)


def test_given_landmarks_have_the_rows_columns():
    with pytest.raises(InputError, match="landmarks have 3 columns, but the sites' rows have 5"):
        cluster(split_evenly(ROWS, 2), LandmarkParameters(landmarks=np.zeros((4, 3))))
    with pytest.raises(InputError, match="n_clusters=300"):
        cluster(split_evenly(ROWS, 2), LandmarkParameters(), k=300)


def test_sums_over_one_projection_are_not_taken_for_another():
    def confused():
        yield from total(UseProjection(0, 3, False))
        return (yield from total(ShareCells(4, 5, 2, np.zeros((1, 3)), np.ones(1), np.zeros(1), np.ones(1))))

    with in_process(split_evenly(ROWS, 2)) as channel, pytest.raises(QuorumLost, match="arrived damaged"):
        run(confused(), channel, method="landmarks")
