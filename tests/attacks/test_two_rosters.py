"""The sum over four sites less the sum over three of them is the fourth one's own."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost, Repeated, RunError
from coterie.maths.clustering import moments
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import eigenpairs_above, full_matrix
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import total
from coterie.protocols.dspgd import Advance, BeginKernel, SendGram
from coterie.protocols.lloyd import Assign
from coterie.runtime.layers import Declared
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ROW, MaskedAsker

ALL, FEWER = tuple("abcd"), tuple("abc")
CENTERS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 40.0]])


def _rows(name):
    rng = np.random.default_rng(ord(name))
    return np.concatenate([rng.normal(CENTERS[0], size=(20, 2)), rng.normal(CENTERS[1], size=(24, 2))])


ROWS = {name: _rows(name) for name in ALL}


def two_rosters(first, second):
    """The same question, or nearly, to all and to all but one: what that one answered."""
    everyone = yield from total(Assign(first), to=ALL)
    others = yield from total(Assign(second), to=FEWER)
    return everyone.sums - others.sums, everyone.counts - others.counts


def attack(policy, second=CENTERS, protocol=two_rosters):
    with in_process({name: ArrayTable(rows) for name, rows in ROWS.items()}, policy=policy) as channel:
        layers = [Declared({"rows": 100, "box": 100.0}), MaskedSums()]
        return run(protocol(CENTERS, second), channel, method="lloyd", layers=layers)


def is_told(found, cells=slice(None)):
    """Whether these cells' sums and counts are the fourth site's own."""
    own = moments(ROWS["d"], CENTERS)
    sums, counts = found
    return np.abs(sums - own.sums)[cells].max() < ROW and np.abs(counts - own.counts)[cells].max() < ROW


@pytest.mark.parametrize("nudge", [0.0, 1e-9])
@pytest.mark.parametrize("tau", [1, 5])
def test_without_a_guard_the_difference_is_one_site_s_own(nudge, tau):
    assert is_told(attack(Policy(rosters="any", min_count=tau), CENTERS + nudge))


@pytest.mark.parametrize("nudge", [0.0, 1e-9])
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(rosters="fixed", min_count=1), Refusal.ROSTER_FORBIDDEN),
        (Policy(rosters="fixed"), Refusal.ROSTER_FORBIDDEN),
        (Policy(rosters="shrinking"), Refusal.REPEATS),
    ],
    ids=lambda value: value.name if isinstance(value, Refusal) else f"{value.rosters}, tau {value.min_count}",
)
def test_with_the_guard_the_second_sum_is_refused(policy, reason, nudge):
    with pytest.raises(RunError) as caught:
        attack(policy, CENTERS + nudge)
    assert all(reason.sentence in caught.value.outcomes[name] for name in FEWER)


def other_way_round(first, second):
    """The same, the smaller roster first."""
    others = yield from total(Assign(first), to=FEWER)
    everyone = yield from total(Assign(second), to=ALL)
    return everyone.sums - others.sums, everyone.counts - others.counts


def test_a_larger_roster_after_a_smaller_one_is_the_same_attack():
    assert is_told(attack(Policy(rosters="any", min_count=1), protocol=other_way_round))
    with pytest.raises(QuorumLost) as caught:
        attack(Policy(rosters="shrinking"), protocol=other_way_round)
    assert all(Refusal.ROSTER_FORBIDDEN.sentence in caught.value.outcomes[name] for name in FEWER)


def test_rosters_that_shrink_are_no_guard_without_a_smallest_count():
    """Which sets left before is what the guard of small counts knows; without it, nobody remembers."""
    assert is_told(attack(Policy(rosters="shrinking", min_count=1)))


def test_shrinking_rosters_do_not_stop_a_question_that_changed_one_cell_a_lot():
    """What ``rosters = "shrinking"`` leaves open, so that dropouts do not end every run: an answer is refused only
    where all its cells left before with other sites. Move one center so that its cell changes by tau rows or more at
    every site, and the cells that did not change are the fourth site's own again. Only ``"fixed"`` stops that."""
    second = CENTERS.copy()
    second[2] = [6.0, 0.01]  # takes half of the second cell's rows
    assert is_told(attack(Policy(rosters="shrinking"), second), cells=slice(0, 1))
    with pytest.raises(QuorumLost):
        attack(Policy(rosters="fixed"), second)


# ---------------------------------------------------------------- Grams, and what sites keep of them

KERNEL, D = Kernel("rbf", 0.05), 6
BEGIN = BeginKernel(*BeginKernel.stated(KERNEL, D, "phase", 7), "float64")


def kept_since(first, second):
    """DSPGD's first step with all, its second with all but one: B'B of everyone is known from the first, and that of
    the others is a part of the second."""
    yield from total(BEGIN)
    gram = full_matrix((yield from total(SendGram(D * (D + 1) // 2, D, 1, 1.0, np.zeros(D)), to=first)).packed, D)
    pairs = eigenpairs_above(gram)
    yield from total(Advance(1, 1.0, False, np.zeros(D), pairs.vectors, np.ones(len(pairs.values))))
    n = D + len(pairs.values)
    packed = (yield from total(SendGram(n * (n + 1) // 2, n, 2, 0.5, np.zeros(D)), to=second)).packed
    others = full_matrix(packed, n)[D:, D:] / 0.5
    return pairs.vectors, np.diag(pairs.values) - others


def own_gram(vectors):
    features = BEGIN.draw(2, 1)(ROWS["d"]) / np.sqrt(D)
    return vectors.T @ features.T @ features @ vectors


def attack_grams(policy):
    with in_process({name: ArrayTable(rows) for name, rows in ROWS.items()}, policy=policy) as channel:
        layers = [Declared({"rows": 100, "box": 100.0, "length": 4.0}), MaskedSums()]
        return run(kept_since(ALL, FEWER), channel, method="dspgd", layers=layers)


def test_what_sites_keep_of_a_gram_gives_the_gram_of_one_that_is_left_out_later():
    vectors, found = attack_grams(Policy(rosters="any", gram_rows=0))
    np.testing.assert_allclose(found, own_gram(vectors), atol=1e-6)
    with pytest.raises(Repeated) as caught:
        attack_grams(Policy(rosters="shrinking", gram_rows=0))
    assert all(Refusal.REPEATS.sentence in caught.value.outcomes[name] for name in FEWER)


def test_a_gram_held_back_until_another_one_left_is_not_unmasked_any_more(tmp_path):
    """The server keeps the first upload, has the second unmasked, and comes back for the first."""
    sites = {
        name: Site(name, ArrayTable(rows), policy=Policy(gram_rows=0), ledger=SiteLedger(tmp_path / f"{name}.jsonl"))
        for name, rows in ROWS.items()
    }
    made, limits = MaskedAsker(sites, method="dspgd"), {"rows": 100.0, "length": 4.0}
    made.each(BEGIN)
    first = made.upload(SendGram(D * (D + 1) // 2, D, 1, 1.0, np.zeros(D)), ALL, limits)
    made.each(Advance(1, 1.0, False, np.zeros(D), np.eye(D), np.ones(D)))
    second = made.upload(SendGram(D * (2 * D + 1), 2 * D, 2, 0.5, np.zeros(D)), FEWER, limits)
    made.reveal(second, FEWER, ask="a")
    assert made.reveal(first, ALL, ask="a") == {"a": Refusal.REPEATS}
    for site in sites.values():
        site.ledger.close()
