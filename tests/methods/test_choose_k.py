"""How many clusters: what sites answer, what the server makes of it, and how often it is right."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import coterie
from coterie.engines.inprocess import in_process
from coterie.errors import InputError, MalformedMessage
from coterie.maths import clustering
from coterie.messages.site_api import Memory
from coterie.methods.shared import choosing
from coterie.methods.shared.choosing import RateCandidates, SumHalves, Support, choose_k
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import Points
from coterie.runtime.run import run
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable
from tests.federations import Cut, blobs, split_evenly
from tests.mixtures import mixture, without_clusters

ROWS = blobs(240, 4, 4, seed=3)
SPREAD = Spread(240.0, ROWS.mean(axis=0), ROWS.std(axis=0))
QUICKLY = Policy(verification="off")


def chosen(tables, ks=range(2, 7), judged=True):
    with in_process(tables) as channel:
        return run(choose_k(list(ks), SPREAD, seed=1, judged=judged), channel, method="choose-k")


# ---------------------------------------------------------------- the two questions


def test_halves_are_sums_of_rows_by_their_nearest_point():
    points = ROWS[:5] + 0.1
    origin = np.arange(4.0)
    reply = choosing.local_half_sums(Cut(ROWS), Memory(), SumHalves(7, origin, points))
    half = choosing.halves_of(ROWS, 7)
    labels = ((ROWS[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)
    for which in (0, 1):
        for place in range(5):
            own = ROWS[(half == which) & (labels == place)]
            assert reply.counts[which, place] == len(own)
            np.testing.assert_allclose(reply.sums[which, place], (own - origin).sum(axis=0), atol=1e-9)


def test_halves_are_even_differ_by_seed_and_do_not_depend_on_order_or_precision():
    rows = np.random.default_rng(0).normal(size=(4000, 3))
    half, other = choosing.halves_of(rows, 1), choosing.halves_of(rows, 2)
    assert set(half.tolist()) == {0, 1}
    assert abs(half.mean() - 0.5) < 0.04  # five deviations
    assert abs(np.corrcoef(half, other)[0, 1]) < 0.08
    assert all(abs(np.corrcoef(half, rows[:, i])[0, 1]) < 0.08 for i in range(3))
    order = np.random.default_rng(1).permutation(4000)
    assert (choosing.halves_of(rows[order], 1) == half[order]).all()
    assert (choosing.halves_of(rows * (1 + 1e-15), 1) == half).mean() > 0.999
    whole = np.arange(400.0)[:, None] // 1
    assert abs(choosing.halves_of(whole, 1).mean() - 0.5) < 0.13  # of small whole numbers as well


def test_ratings_are_those_of_the_rows_one_by_one():
    rng, sizes = np.random.default_rng(2), (2, 3)
    centers, first, second = (rng.normal(size=(5, 4)) * 3 for _ in range(3))
    ask = RateCandidates(4 + 9, np.array(sizes), centers, first, second)
    weights = rng.integers(1, 4, len(ROWS)).astype(float)
    reply = choosing.local_ratings(ArrayTable(ROWS, weights=weights), Memory(), ask)
    counts, pairs = [], []
    for place, (start, k) in enumerate(((0, 2), (2, 3))):
        squared, one, two = (
            ((ROWS[:, None] - part[start : start + k]) ** 2).sum(axis=2) for part in (centers, first, second)
        )
        ordered = np.sqrt(np.sort(squared, axis=1))
        assert reply.costs[place] == pytest.approx(weights @ squared.min(axis=1))
        assert reply.silhouettes[place] == pytest.approx(weights @ (1 - ordered[:, 0] / ordered[:, 1]))
        counts += [weights[squared.argmin(axis=1) == i].sum() for i in range(k)]
        of_both = one.argmin(axis=1), two.argmin(axis=1)
        pairs += [weights[(of_both[0] == i) & (of_both[1] == j)].sum() for i in range(k) for j in range(k)]
    assert reply.counts.tolist() == counts
    assert reply.pairs.tolist() == pairs


@pytest.mark.parametrize(
    ("sizes", "pairs"), [((2, 4), 13), ((2, 3), 12), ((5, 0), 25), ((6, -1), 37), ((), 0)], ids=str
)
def test_a_site_refuses_candidates_whose_sizes_do_not_add_up(sizes, pairs):
    centers = np.zeros((5, 4))
    ask = RateCandidates(pairs, np.array(sizes, int), centers, centers, centers)
    with pytest.raises(MalformedMessage):
        choosing.local_ratings(ArrayTable(ROWS), Memory(), ask)


# ---------------------------------------------------------------- what the server makes of it


def test_every_number_is_that_of_the_pooled_rows_with_the_candidates_centers():
    choice = chosen(split_evenly(ROWS, 3))
    assert (choice.support, choice.best, choice.recommended) == (Support.SUPPORTED, 4, 4)
    for place, k in enumerate(range(2, 7)):
        centers = choice.centers_of(k)
        squared = ((ROWS[:, None] - centers) ** 2).sum(axis=2)
        ordered = np.sqrt(np.sort(squared, axis=1))
        assert choice.costs[place] == pytest.approx(squared.min(axis=1).sum())
        assert choice.silhouettes[place] == pytest.approx((1 - ordered[:, 0] / ordered[:, 1]).mean())
        assert choice.counts[choice.ks[:place].sum() :][:k].tolist() == np.bincount(squared.argmin(axis=1)).tolist()
    assert choice.stabilities[2] > 0.99


def test_candidates_are_nearly_the_best_there_are():
    choice = chosen(split_evenly(ROWS, 3))
    for place, k in enumerate(range(2, 7)):
        best = clustering.moments(ROWS, clustering.weighted_kmeans(ROWS, np.ones(240), k, seed=0)).cost
        assert choice.costs[place] <= 1.05 * float(best), k


def test_stability_is_the_agreement_of_clusters_of_the_two_halves():
    rows = blobs(400, 2, 3, seed=5)
    half = choosing.halves_of(rows, 1)
    points = rows[::4]
    reply = choosing.local_half_sums(ArrayTable(rows), Memory(), SumHalves(1, np.zeros(2), points))
    labels = []
    for which in (0, 1):
        held = reply.counts[which] > 0
        means = reply.sums[which][held] / reply.counts[which][held][:, None]
        own = clustering.best_centers(means, reply.counts[which][held], 3, seed=1).centers
        labels.append(clustering.nearest(rows, own)[0])
        assert reply.counts[which].sum() == (half == which).sum()
    assert adjusted_rand_score(*labels) > 0.95


def test_without_judging_nothing_is_recommended():
    choice = chosen(split_evenly(ROWS, 3), judged=False)
    assert (choice.support, choice.best, choice.recommended) == (Support.NOT_JUDGED, 4, None)


def test_clusters_that_halves_do_not_agree_on_are_not_recommended():
    found = coterie.choose_k(without_clusters(9, kind="gaussian").tables, range(2, 6), policy=QUICKLY, random_state=0)
    assert (found.choice_.support, found.n_clusters_) == (Support.UNSTABLE, None)


def test_a_long_gaussian_is_stable_in_two_halves_and_has_no_gap():
    rows = np.random.default_rng(0).normal(size=(1500, 2)) * [8.0, 1.0]
    found = coterie.choose_k({f"s{i}": rows[i::3] for i in range(3)}, range(2, 4), policy=QUICKLY, random_state=0)
    choice = found.choice_
    assert choice.stabilities[choice.best - 2] > choosing.STABLE
    assert (choice.support, found.n_clusters_) == (Support.NO_GAP, None)


def test_few_distinct_rows_have_an_answer():
    rows = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 40, axis=0)
    tables = {f"s{i}": rows[i::3] for i in range(3)}
    found = coterie.choose_k(tables, range(2, 6), policy=QUICKLY, random_state=0)
    assert np.isfinite(found.choice_.gaps).all()
    assert found.choice_.best == 3
    equal = coterie.choose_k({f"s{i}": np.ones((20, 2)) for i in range(3)}, range(2, 4), policy=QUICKLY)
    assert equal.n_clusters_ is None


@pytest.mark.parametrize("d", [3, 40])
def test_the_box_has_the_variances_of_the_rows(d):
    """All of the variance is along the axes or besides; axes of wide rows are those of their summary."""
    rows = np.random.default_rng(1).normal(size=(600, d)) * np.linspace(3, 1, d)
    points = rows[:20]
    counts, sums = np.zeros(20), np.zeros((20, d))
    labels = clustering.nearest(rows, points)[0]
    np.add.at(counts, labels, 1.0)
    np.add.at(sums, labels, rows)
    spread = Spread(600.0, rows.mean(axis=0), rows.std(axis=0))
    variances, rest = choosing.box_variances(Points(sums / counts[:, None], counts), spread, 30)
    assert sum(variances) + rest == pytest.approx(rows.var(axis=0).sum())
    if d == 3:
        assert rest == pytest.approx(0, abs=1e-9)
        np.testing.assert_allclose(variances, np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1], rtol=0.2)


# ---------------------------------------------------------------- the whole run


def test_it_takes_at_most_two_rounds_more_than_a_run_with_the_largest_number():
    tables = split_evenly(ROWS, 3)
    found = coterie.choose_k(tables, range(2, 9), random_state=0)
    whole = coterie.fit(coterie.FederatedKMeans(8, random_state=0), tables)
    rounds = [[x for x in fit.ledger_.exchanges if x.phase == "algorithm"] for fit in (found, whole)]
    assert len(rounds[0]) <= len(rounds[1]) + 2
    assert [x.asked for x in rounds[0]].count("shared.RateCandidates") == 1


def test_a_verified_run_is_the_plain_one_at_the_same_public_seed():
    tables = split_evenly(ROWS, 3)
    verified = coterie.choose_k(tables, range(2, 6), random_state=3)
    assert any(exchange.asked == "secure.ShareKey" for exchange in verified.ledger_.exchanges)
    plain = coterie.choose_k(tables, range(2, 6), random_state=verified.public_seed_, policy=QUICKLY)
    for name, value in vars(verified.choice_).items():
        np.testing.assert_array_equal(value, getattr(plain.choice_, name), name)


def test_one_owner_simulates_sites():
    found = coterie.NumberOfClusters(max_clusters=5, random_state=0).fit(ROWS, sites=np.arange(240) % 3)
    assert found.n_clusters_ == 4
    rows = list(found.rows())
    assert [row["k"] for row in rows] == [2, 3, 4, 5]
    assert rows[2]["silhouette"] == max(row["silhouette"] for row in rows)


def test_kernel_clusters_are_shown_without_a_recommendation():
    found = coterie.choose_k(split_evenly(ROWS, 3), range(2, 5), method="landmarks", random_state=0, policy=QUICKLY)
    assert (found.choice_.support, found.n_clusters_) == (Support.NOT_JUDGED, None)
    assert len(found.choice_.silhouettes) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ks": [2, 4]}, "consecutive"),
        ({"ks": []}, "consecutive"),
        ({"ks": [1, 2]}, "at least 2"),
        ({"min_clusters": 5, "max_clusters": 3}, "min_clusters=5 is above max_clusters=3"),
        ({"method": "dspgd"}, "are not judged for dspgd"),
        ({"method": "landmark"}, "landmarks"),
        ({"ks": range(2, 101)}, "the sites hold 60 rows"),
    ],
    ids=str,
)
def test_what_cannot_be_judged_is_said_before_anything_is_asked(options, words):
    tables = {f"s{i}": ROWS[i::3][:20] for i in range(3)}
    with pytest.raises(InputError, match=words):
        coterie.choose_k(tables, **options)


# ---------------------------------------------------------------- with differential privacy


def enlarged(dealt, n_rows=10_000):
    """As many rows of the same kind: the rows many times, each with a little noise."""
    rows = np.concatenate(list(dealt.tables.values()))
    times = -(-n_rows // len(rows))
    noise = 0.3 * np.random.default_rng(0).normal(size=(times * len(rows), rows.shape[1]))
    return np.tile(rows, (times, 1)) + noise * rows.std(axis=0) / 3


def privately(rows, **options):
    ranges = np.floor(rows.min(axis=0)), np.ceil(rows.max(axis=0))
    tables = {f"s{i}": rows[i::4] for i in range(4)}
    policy = Policy(privacy=PrivacyRules(2.0), verification="off")
    given = {"privacy": coterie.Privacy(epsilon=1.0), "ranges": ranges, "policy": policy, "random_state": 0}
    return coterie.choose_k(tables, range(2, 9), **{**given, **options})


def test_noisy_sums_recommend_the_number_and_spend_what_was_ordered():
    dealt = mixture(3)
    found = privately(enlarged(dealt))
    assert found.n_clusters_ == dealt.n_clusters
    assert sum(release.share for release in found.privacy_.releases) == pytest.approx(1)
    choice = found.choice_
    assert np.isfinite(choice.gaps).sum() == np.isfinite(choice.stabilities).sum() == 1
    assert [row["gap"] is None for row in found.rows()] == [k != choice.best for k in range(2, 9)]
    assert choice.n_rows == pytest.approx(10_000, rel=0.06)


def test_noisy_sums_recommend_nothing_where_there_are_no_clusters():
    assert privately(enlarged(without_clusters(4, kind="uniform"))).n_clusters_ is None
    assert privately(enlarged(without_clusters(4, kind="gaussian"))).n_clusters_ is None


def test_where_noise_hides_the_clusters_nothing_is_recommended():
    found = privately(enlarged(mixture(3), 1000), privacy=coterie.Privacy(epsilon=0.3))
    assert found.n_clusters_ is None


def test_kernel_clusters_are_not_judged_privately():
    with pytest.raises(InputError, match="landmarks"):
        privately(ROWS, method="landmarks")


# ---------------------------------------------------------------- how often it is right


def recommended(dealt, ks):
    """What is recommended under the default policy; verified runs give the same and take longer."""
    return coterie.choose_k(dealt.tables, ks, policy=QUICKLY, random_state=0).n_clusters_


def test_it_is_right_on_the_first_sets_quickly():
    sets = [dealt for dealt in map(mixture, range(8)) if dealt.n_clusters <= 6 and len(dealt.tables) <= 12][:3]
    assert [recommended(dealt, range(2, 8)) for dealt in sets] == [dealt.n_clusters for dealt in sets]
    assert recommended(without_clusters(11, kind="uniform"), range(2, 8)) is None


@pytest.mark.slow
def test_it_is_right_on_sixty_of_sixty_four_sets():
    wrong = {
        number: (dealt.n_clusters, found)
        for number, dealt in ((number, mixture(number)) for number in range(64))
        if (found := recommended(dealt, range(2, 16))) != dealt.n_clusters
    }
    assert len(wrong) <= 4, wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uniform", "gaussian"])
def test_it_recommends_nothing_where_there_are_no_clusters(kind):
    found = [recommended(without_clusters(number, kind=kind), range(2, 16)) for number in range(20)]
    assert sum(k is None for k in found) >= 18, found
