"""Guards at a real site's exit: which sets of rows, rosters and Grams leave it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_part import Memory, answers, find_answer
from coterie.protocols.federated_kmeans import Train
from coterie.protocols.limits import MarkLargest
from coterie.protocols.lloyd import Assign, Close
from coterie.protocols.methods import METHODS, Method
from coterie.protocols.preparation import Prepare
from coterie.protocols.seeding import Split, Summarise
from coterie.secure.masked_sums import Masked, Revealed
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ON, TAU, Asker, MaskedAsker, nearest_row, sum_columns

LIMITS = {"rows": 100.0, "box": 100.0}


def line(n):
    """Rows on a line, in order, of which no two sets have the same sum."""
    return np.sort(np.random.default_rng(n).uniform(0, 1, (n, 1)) + np.arange(n)[:, None], axis=0)


def cut_at(*places):
    """Split a line before these rows."""
    n = len(places)
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(places, float) - 1e-9, np.zeros(1))


def asker(rows, policy=ON, path=None, **options):
    table = ArrayTable(rows, **options)
    return Asker(Site("here", table, policy=policy, ledger=SiteLedger(path)))


# ---------------------------------------------------------------- sets of rows


@st.composite
def partitions(draw):
    """Rows, and a few sets of centers, near to and far from each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.normal(size=(draw(st.integers(0, 45)), 2))
    centers = rng.normal(size=(draw(st.integers(1, 8)), 2))
    steps = draw(st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.5, 2.0]), min_size=2, max_size=7))
    return rows, [centers + step * rng.normal(size=centers.shape) for step in steps]


def cells_of(rows, centers):
    """The rows nearest to each center."""
    labels = [int(np.argmin([((row - c) ** 2).sum() for c in centers])) for row in rows]
    return [frozenset(i for i, label in enumerate(labels) if label == c) for c in range(len(centers))]


def read(reply, rows, candidates):
    """Which set of rows each cell of an answer is about, found from its number and its mean."""
    sets = []
    for count, summed in zip(reply.counts, reply.sums, strict=True):
        fits = [s for s in candidates if len(s) == count and np.allclose(rows[sorted(s)].sum(0), summed, atol=1e-9)]
        assert len(fits) == 1, "a sum over no set of rows that was asked for"
        sets += fits
    return sets


def left_over(n_rows, sent):
    """All rows less those sent, a row sent twice counting -1."""
    rest = Counter(range(n_rows))
    for rows in sent:
        rest.subtract(rows)
    return rest


def differing(one, other):
    """How many rows two signed sets differ by."""
    return sum(one[row] != other[row] for row in {*one, *other})


@given(partitions())
def test_no_set_and_no_rest_ever_differs_by_a_few_rows_from_an_earlier_one(case):
    rows, questions = case
    made, whole = Asker.of(rows.reshape(-1, 2)), frozenset(range(len(rows)))
    candidates, sets, rests = {frozenset(), whole}, [frozenset(), whole], [Counter()]
    for centers in questions:
        candidates.update(cells_of(rows, centers))
        reply = made.ask(Assign(centers))
        sent = read(reply, rows, candidates)
        if len(rows) < TAU:
            assert not any(sent)
            continue
        rest = left_over(len(rows), sent)
        assert not [s for s in sent if any(0 < len(s ^ known) < TAU for known in sets)]
        assert not [known for known in rests if 0 < differing(rest, known) < TAU]
        sets += sent
        rests.append(rest)


@given(partitions())
def test_what_is_sent_for_a_cell_is_itself_a_known_set_much_like_it_or_nothing(case):
    """A known set may differ by a few rows more than tau where rows share a bucket of its sketch."""
    rows, questions = case
    made, whole = Asker.of(rows.reshape(-1, 2)), frozenset(range(len(rows)))
    known = {frozenset(), whole}
    for centers in questions:
        cells = cells_of(rows, centers)
        sent = read(made.ask(Assign(centers)), rows, {*known, *cells})
        for cell, told in zip(cells, sent, strict=True):
            assert told in (cell, frozenset()) or (told in known and len(told ^ cell) <= 2 * TAU)
        known.update(sent)


@given(partitions())
def test_the_cost_sent_is_that_of_the_sets_sent(case):
    rows, questions = case
    made, candidates = Asker.of(rows.reshape(-1, 2)), {frozenset(), frozenset(range(len(rows)))}
    for centers in questions:
        candidates.update(cells_of(rows, centers))
        reply = made.ask(Assign(centers))
        sent = read(reply, rows, candidates)
        cost = sum(((rows[sorted(s)] - c) ** 2).sum() for s, c in zip(sent, centers, strict=True))
        assert reply.cost == pytest.approx(cost, abs=1e-9)


@given(partitions(), st.integers(0, 2**32))
def test_forgetting_and_starting_again_change_no_answer(tmp_path_factory, case, seed):
    rows, questions = case
    path = tmp_path_factory.mktemp("guards") / "ledger.jsonl"
    straight, troubled = Asker.of(rows.reshape(-1, 2)), asker(rows.reshape(-1, 2), path=path)
    disturb = np.random.default_rng(seed).integers(0, 3, len(questions))
    for centers, how in zip(questions, disturb, strict=True):
        if how:
            troubled.restart() if how == 1 else troubled.recall()
        one, other = straight.ask(Assign(centers)), troubled.ask(Assign(centers))
        assert all((a == b).all() for a, b in zip(one.arrays(), other.arrays(), strict=True))
    troubled.site.ledger.close()


@pytest.mark.parametrize("disturbance", ["nothing", "recall", "restart"])
def test_a_cell_that_gained_one_row_is_answered_as_before(tmp_path, disturbance):
    made = asker(line(40), path=tmp_path / "ledger.jsonl")
    before = made.ask(cut_at(20))
    if disturbance != "nothing":
        getattr(made, disturbance)()
    after = made.ask(cut_at(21))
    assert before.counts.tolist() == [20, 20]
    assert all((a == b).all() for a, b in zip(before.arrays(), after.arrays(), strict=True))


@pytest.mark.parametrize(("moved", "counts"), [(1, [20, 20]), (4, [20, 20]), (8, [28, 12])])
def test_a_cell_that_gained_enough_rows_is_answered_anew(moved, counts):
    made = Asker.of(line(40))
    made.ask(cut_at(20))
    assert made.ask(cut_at(20 + moved)).counts.tolist() == counts


@pytest.mark.parametrize(("place", "counts"), [(22, [20, 20]), (24, [26, 14])])
def test_of_several_known_sets_the_nearest_is_sent(place, counts):
    made = Asker.of(line(40))
    made.ask(cut_at(20))
    assert made.ask(cut_at(26)).counts.tolist() == [26, 14]
    assert made.ask(cut_at(place)).counts.tolist() == counts


@pytest.mark.parametrize(
    ("places", "counts"),
    [
        ((20,), [20, 20]),
        ((3,), [0, 40]),  # what is left after a few rows is all rows
        ((37,), [40, 0]),
        ((3, 20), [0, 0, 20]),  # the rest would be three rows: the next larger cell is held back, too
        ((10, 13), [0, 0, 27]),
        ((3, 6, 9), [0, 0, 0, 31]),
        ((1, 2, 3, 4), [0, 0, 0, 0, 40]),
    ],
)
def test_cells_of_few_rows_are_held_back_and_so_is_what_gives_them_away(places, counts):
    sent = Asker.of(line(40)).ask(cut_at(*places)).counts.tolist()
    assert sent == counts
    assert sum(sent) == 40 or 40 - sum(sent) >= TAU


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_a_site_with_fewer_rows_than_tau_sends_zeros(n):
    made = Asker.of(line(n).reshape(-1, 1))
    asked = [cut_at(), Assign(np.zeros((1, 1))), sum_columns(1), Close(np.zeros((1, 1))), Summarise(1, 1, 1, 100, 0)]
    for request in asked:
        reply = made.ask(request)
        assert any(a.any() for a in reply.arrays()) == (n >= TAU)


@given(partitions())
def test_without_a_smallest_count_answers_are_those_of_a_site_without_a_guard(case):
    rows, questions = case
    made = Asker.of(rows.reshape(-1, 2), Policy(single_answers="averages", min_count=1))
    for centers in questions:
        for ask in (Assign(centers), Close(centers), sum_columns(2)):
            reply = made.ask(ask)
            plain = find_answer(type(ask))(ArrayTable(rows.reshape(-1, 2)), Memory(), ask)
            assert all((a == b).all() for a, b in zip(reply.arrays(), plain.arrays(), strict=True))


CORNERS = np.array([[0.0, 0.0], [0.0, 20.0], [20.0, 0.0]])


@given(st.integers(0, 1000))
def test_a_first_partition_into_large_cells_is_answered_as_without_a_guard(seed):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(size=(TAU + 3, 2)) + corner for corner in CORNERS])
    centers = CORNERS + rng.normal(size=(3, 2))
    cuts = Split(3, np.zeros(2, int), np.array([0, 1]), np.array([10.0, 10.0]), rng.normal(size=2))
    for ask in (Assign(centers), cuts, Train(1, 0, 1.0, 0, 0, centers), Train(1, 0, 0.5, 0, 0, centers)):
        method = "federated-kmeans" if isinstance(ask, Train) else "lloyd"
        reply = Asker.of(rows, method=method).ask(ask)
        plain = find_answer(type(ask))(ArrayTable(rows), Memory(), ask)
        for one, other in zip(reply.arrays(), plain.arrays(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_sets_are_known_whatever_question_they_answered():
    rows = line(40)
    first = Asker.of(rows)
    first.ask(cut_at(20))
    reply = first.ask(Assign(np.array([[10.5], [31.5]])))  # splits at 21
    assert reply.counts.tolist() == [20, 20]
    np.testing.assert_allclose(reply.sums[0], rows[:20].sum(0))
    trained = Asker.of(rows, method="federated-kmeans")
    trained.ask(cut_at(20))
    moved = trained.ask(Train(1, 0, 1.0, 0, 0, np.array([[10.5], [31.5]])))
    np.testing.assert_allclose(moved.weighted[0], rows[:20].sum(0))


def test_local_centers_are_held_against_what_left_before():
    rows = np.concatenate([line(20), line(20) + 1000])
    made = Asker.of(rows)
    made.ask(cut_at(19))  # one row fewer on the left than the local center will have
    reply = made.ask(Summarise(2, 1, 1, 100, 0))
    assert sorted(reply.counts) == [19, 21]
    np.testing.assert_allclose(sorted(reply.centers[:, 0]), [rows[:19].mean(), rows[19:].mean()])


# ---------------------------------------------------------------- views


def test_a_set_seen_otherwise_is_sent_in_the_new_numbers_and_one_nearly_equal_is_not_sent_at_all():
    rows, scaled = line(40), Prepare("refuse", False, np.zeros(1), np.zeros(1), np.full(1, 2.0))
    same, near = Asker.of(rows), Asker.of(rows)
    for made in (same, near):
        made.ask(cut_at(20))
        assert made.ask(scaled) == Nothing()
    np.testing.assert_allclose(same.ask(cut_at(10)).sums[:, 0], [rows[:20].sum() / 2, rows[20:].sum() / 2])
    assert not near.ask(cut_at(10.5)).counts.any()


def with_holes(n):
    rows = np.random.default_rng(5).normal(size=(40, 3))
    rows[:n, 0] = np.nan
    return rows


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("n", [0, 1, TAU - 1, TAU + 3])
def test_sums_with_and_without_incomplete_rows_do_not_leave_in_one_run(first, n):
    made = Asker.of(with_holes(n))
    one, other = made.ask(sum_columns(3, drop=first)), made.ask(sum_columns(3, drop=not first))
    assert isinstance(one, Reply)
    assert other is Refusal.GUARDED
    assert one.rows == (40 - n if first else 40)


def test_the_set_of_all_rows_is_remembered_over_a_restart(tmp_path):
    made = asker(with_holes(2), path=tmp_path / "ledger.jsonl")
    made.ask(sum_columns(3))
    made.restart()
    assert made.ask(sum_columns(3, drop=True)) is Refusal.GUARDED
    assert made.ask(sum_columns(3)).rows == 40


def test_a_view_that_drops_a_few_rows_is_held_against_the_sums_of_all():
    made = Asker.of(with_holes(2))
    made.ask(sum_columns(3))
    assert made.ask(Prepare("drop", False, np.zeros(3), np.zeros(3), np.ones(3))) is Refusal.GUARDED


def test_runs_are_guarded_each_for_itself():
    one = Asker.of(line(40))
    one.ask(cut_at(20))
    other = Asker(one.site, run=b"s" * 16)
    assert other.ask(cut_at(21)).counts.tolist() == [21, 19]
    assert one.ask(cut_at(21)).counts.tolist() == [20, 20]


# ---------------------------------------------------------------- weights


def test_rows_of_weight_0_do_not_count():
    weights = np.ones(40)
    weights[[0, 20]] = 0.0
    made = asker(line(40), weights=weights)
    assert made.ask(cut_at(5)).counts.tolist() == [0, 38]  # four rows with weight, and all less four
    made.ask(cut_at(20))
    moved = made.ask(cut_at(21))  # row 20 weighs nothing: no row moved
    np.testing.assert_allclose(moved.sums[:, 0], [line(40)[1:20].sum(), line(40)[21:].sum()])


def test_rows_count_by_number_and_not_by_weight():
    rows, heavy = line(40), np.full(40, 100.0)
    assert asker(rows, weights=heavy).ask(cut_at(4)).counts.tolist() == [0, 4000]


# ---------------------------------------------------------------- training and closing


@pytest.mark.parametrize(
    ("epochs", "batch_size", "rate", "is_held"),
    [
        (2, 0, 0.5, True),
        (1, 7, 0.5, True),
        (3, 7, 0.99, True),
        (1, 0, 0.5, False),
        (3, 0, 1.0, False),
        (2, 7, 1.0, False),
    ],
)
def test_centers_that_mix_several_batches_at_a_rate_below_1_are_held_back(epochs, batch_size, rate, is_held):
    ask = Train(epochs, batch_size, rate, 0, 0, np.array([[10.0], [30.0]]))
    found = Asker.of(line(40), method="federated-kmeans").ask(ask)
    assert found is Refusal.GUARDED if is_held else found.sizes.sum() == 40
    free = Asker.of(line(40), Policy(single_answers="averages", min_count=1), method="federated-kmeans")
    assert free.ask(ask).sizes.sum() == 40


@given(partitions(), st.integers(1, 3), st.integers(0, 9))
def test_trained_centers_stand_for_enough_rows(case, epochs, batch_size):
    rows, questions = case
    made = Asker.of(rows.reshape(-1, 2), method="federated-kmeans")
    for step, centers in enumerate(questions):
        reply = made.ask(Train(epochs, batch_size, 1.0, 0, step, centers))
        assert all(size == 0 or size >= TAU for size in reply.sizes)
        assert not reply.weighted[reply.sizes == 0].any()
        means = reply.weighted[reply.sizes > 0] / reply.sizes[reply.sizes > 0, None]
        assert all(nearest_row(mean, rows) > 1e-9 for mean in means)


def test_a_run_is_closed_at_one_set_of_centers(tmp_path):
    centers, others = np.array([[10.0], [30.0]]), np.array([[10.0], [30.0 + 1e-9]])
    made = asker(line(40), path=tmp_path / "ledger.jsonl")
    first = made.ask(Close(centers))
    assert first.counts.sum() == 40
    assert made.ask(Close(others)) is Refusal.GUARDED
    made.restart()
    assert made.ask(Close(others)) is Refusal.GUARDED
    assert made.ask(Close(centers)).cost == first.cost
    assert Asker(made.site, run=b"s" * 16).ask(Close(others)).counts.sum() == 40
    made.site.ledger.close()


def test_counts_below_tau_are_not_closed_with():
    assert Asker.of(line(40)).ask(Close(np.array([[1.0], [31.0]]))).counts.tolist() == [16, 24]
    assert Asker.of(line(40)).ask(Close(np.array([[1.0], [5.0], [31.0]]))).counts.tolist() == [0, 15, 22]


# ---------------------------------------------------------------- rosters


def sites(policy, names="abcde", folder=None):
    rng = np.random.default_rng(8)
    return {
        name: Site(
            name,
            ArrayTable(rng.normal(size=(30, 2))),
            policy=policy,
            ledger=SiteLedger(None if folder is None else folder / f"{name}.jsonl"),
        )
        for name in names
    }


ASSIGN, OTHERWISE = Assign(np.zeros((1, 2))), Assign(np.array([[0.0, -9.0], [0.0, 0.0], [0.0, 9.0]]))


@pytest.mark.parametrize(
    ("rosters", "fewer", "others", "again"),
    [("fixed", False, False, True), ("shrinking", True, False, False), ("any", True, True, True)],
)
def test_who_is_summed_up_with_whom(rosters, fewer, others, again):
    """Five sites, then four of them, then four others, then all five again."""
    made = MaskedAsker(sites(Policy(rosters=rosters, min_count=1)))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(OTHERWISE, "abcd", LIMITS).found) == fewer
    assert _is_answered(made.upload(OTHERWISE, "abce", LIMITS).found, "abc") == others
    assert _is_answered(made.upload(OTHERWISE, "abcde", LIMITS).found, "abcd") == again


def _is_answered(found, names=None):
    """Whether all of these sites uploaded; all refuse by the same code otherwise."""
    kinds = {type(one) if isinstance(one, Reply) else one for name, one in found.items() if name in (names or found)}
    assert kinds in ({Masked}, {Revealed}, {Refusal.ROSTER_FORBIDDEN}, {Refusal.UNMASKING_FORBIDDEN})
    return not kinds <= {Refusal.ROSTER_FORBIDDEN, Refusal.UNMASKING_FORBIDDEN}


@pytest.mark.parametrize(("rosters", "is_unmasked"), [("fixed", False), ("shrinking", True), ("any", True)])
def test_what_a_dropout_does_to_the_unmasking(rosters, is_unmasked):
    made = MaskedAsker(sites(Policy(rosters=rosters, min_count=1)))
    upload = made.upload(ASSIGN, "abcde", LIMITS)
    assert _is_answered(made.reveal(upload, "abcd")) == is_unmasked
    if rosters == "shrinking":  # who dropped out stays out
        assert not _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found, "abcd")
        assert _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)


@pytest.mark.parametrize("rosters", ["fixed", "shrinking", "any"])
def test_with_everybody_there_every_policy_unmasks(rosters):
    made = MaskedAsker(sites(Policy(rosters=rosters)))
    for _ in range(2):
        assert _is_answered(made.reveal(made.upload(ASSIGN, "abcde", LIMITS), "abcde"))


def test_rosters_are_remembered_over_a_restart(tmp_path):
    made = MaskedAsker(sites(Policy(rosters="fixed", min_count=1), folder=tmp_path))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for one in made.askers.values():
        one.restart()
    assert not _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for one in made.askers.values():
        one.site.ledger.close()


@pytest.mark.parametrize(("fewest", "n", "is_answered"), [(1, 1, True), (2, 1, False), (3, 2, False), (3, 3, True)])
def test_rosters_below_the_smallest_are_refused(fewest, n, is_answered):
    made = MaskedAsker(sites(Policy(min_roster=fewest)))
    assert _is_answered(made.upload(ASSIGN, "abcde"[:n], LIMITS).found) == is_answered


@pytest.mark.parametrize(("fewest", "is_unmasked"), [(4, True), (5, False)])
def test_too_few_survivors_for_the_smallest_roster_are_not_unmasked(fewest, is_unmasked):
    made = MaskedAsker(sites(Policy(min_roster=fewest)))
    upload = made.upload(ASSIGN, "abcde", LIMITS)
    assert _is_answered(made.reveal(upload, "abcd")) == is_unmasked


@pytest.mark.parametrize("nudge", [0.0, 1e-9])
def test_the_same_sets_are_not_summed_up_with_fewer_sites(nudge):
    made, centers = MaskedAsker(sites(Policy())), np.array([[0.0, -1.0], [0.0, 1.0]])
    made.upload(Assign(centers), "abcde", LIMITS)
    found = made.upload(Assign(centers + nudge), "abcd", LIMITS).found
    assert {*found.values()} == {Refusal.GUARDED}
    again = made.upload(Assign(centers[:, ::-1]), "abcd", LIMITS).found  # other sets are
    assert _is_answered(again)


def test_what_was_seen_by_itself_may_be_summed_up_with_anybody():
    made = MaskedAsker(sites(Policy(single_answers="averages")))
    made.each(ASSIGN)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)


# ---------------------------------------------------------------- Grams


@dataclass(frozen=True)
class Products(Reply, content="grams"):
    """Sums of products of columns."""

    gram: Floats = array("n", "n", bound="rows * box**2")


@dataclass(frozen=True)
class Multiply(Request[Products]):
    """What do the columns' products add up to?"""

    n: int


@answers(Multiply)
def local_products(table, memory, ask):
    total = np.zeros((ask.n, ask.n))
    for block in table.blocks():
        wide = np.resize(block.rows, (len(block.rows), ask.n))
        total += wide.T @ wide
    return Products(total)


@pytest.fixture
def grams(monkeypatch):
    monkeypatch.setitem(METHODS, "grams", Method("grams", "", (Multiply,), "", ""))


def grams_asker(path=None, **rules):
    policy = Policy(single_answers="averages", **rules)
    return Asker(Site("here", ArrayTable(line(100)), policy=policy, ledger=SiteLedger(path)), method="grams")


@pytest.mark.usefixtures("grams")
@pytest.mark.parametrize(("rows", "n", "is_held"), [(8, 12, False), (8, 13, True), (20, 5, False), (0, 200, False)])
def test_a_gram_needs_enough_rows_for_each_of_its_own(rows, n, is_held):
    found = grams_asker(gram_rows=rows).ask(Multiply(n))
    assert found is Refusal.GUARDED if is_held else isinstance(found, Products)


@pytest.mark.usefixtures("grams")
def test_the_grams_of_a_run_add_up_also_over_a_restart(tmp_path):
    made = grams_asker(tmp_path / "ledger.jsonl", gram_rows=8)
    assert isinstance(made.ask(Multiply(6)), Products)
    assert isinstance(made.ask(Multiply(6)), Products)
    made.restart()
    assert made.ask(Multiply(1)) is Refusal.GUARDED
    assert isinstance(Asker(made.site, method="grams", run=b"s" * 16).ask(Multiply(12)), Products)
    made.site.ledger.close()


@pytest.mark.usefixtures("grams")
@pytest.mark.parametrize(
    ("whose", "all_rows", "is_held"),
    [("own", 1e6, True), ("all", None, True), ("all", 99.0, True), ("all", 240.0, False)],
)
def test_whose_rows_count_for_a_masked_gram(whose, all_rows, is_held):
    made = MaskedAsker(sites(Policy(gram_rows=8, gram_rows_of=whose)), method="grams")
    limits = LIMITS | ({} if all_rows is None else {"all_rows": all_rows})
    kinds = {
        type(one) if isinstance(one, Reply) else one
        for one in made.upload(Multiply(30), "abcde", limits).found.values()
    }
    assert kinds == ({Refusal.GUARDED} if is_held else {Masked})


@pytest.mark.usefixtures("grams")
def test_rows_of_other_sites_do_not_count_for_a_gram_seen_by_itself():
    made = grams_asker(gram_rows=8, gram_rows_of="all")
    assert made.ask(Multiply(13), {"all_rows": 1e6, "rows": 100.0, "box": 200.0}) is Refusal.GUARDED


# ---------------------------------------------------------------- columns, marks and limits


def test_a_column_with_few_values_counts_as_one_without_any():
    rows = np.random.default_rng(6).normal(size=(40, 3))
    rows[TAU - 1 :, 0], rows[TAU:, 1] = np.nan, np.nan
    reply = Asker.of(rows).ask(sum_columns(3))
    assert reply.present.tolist() == [0, TAU, 40]
    assert reply.sums[0] == reply.squares[0] == 0
    np.testing.assert_allclose(reply.sums[1:], np.nansum(rows, axis=0)[1:])


def test_the_largest_values_are_marked_about_a_few_origins(tmp_path):
    made, origins = asker(line(40), path=tmp_path / "ledger.jsonl"), np.arange(20.0)
    found = [made.ask(MarkLargest(1, np.array([origin]))) for origin in origins]
    n = sum(isinstance(one, Reply) for one in found)
    assert 1 <= n <= 5
    assert {*found[n:]} == {Refusal.GUARDED}
    made.restart()
    assert made.ask(MarkLargest(1, np.array([7.5]))) is Refusal.GUARDED
    assert isinstance(made.ask(MarkLargest(1, np.zeros(1))), Reply)  # the same again tells nothing new
    made.site.ledger.close()


def test_a_run_may_declare_a_few_different_limits():
    made = Asker.of(line(40))
    found = [made.ask(cut_at(20), {"rows": 100.0, "box": 100.0 + i}) for i in range(20)]
    n = sum(isinstance(one, Reply) for one in found)
    assert 2 <= n <= 10
    assert {*found[n:]} == {Refusal.GUARDED}
    assert isinstance(made.ask(cut_at(20), {"rows": 100.0, "box": 100.0}), Reply)
