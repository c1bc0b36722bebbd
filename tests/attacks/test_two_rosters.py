"""The sum over four sites less the sum over three of them is the fourth one's own."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost
from coterie.maths.clustering import moments
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import eigenpairs_above, full_matrix
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import total
from coterie.methods.kernel.dspgd.sites import Advance, BeginKernel, SendGram
from coterie.methods.shared.lloyd import Assign
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ROW
from tests.declared import Declared

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
@pytest.mark.parametrize("rosters", ["any", "shrinking"])
def test_where_rosters_may_change_the_difference_is_one_site_s_own(nudge, rosters):
    assert is_told(attack(Policy(verification="off", rosters=rosters, protection="none"), CENTERS + nudge))


def test_where_rosters_are_fixed_the_second_sum_is_refused():
    with pytest.raises(QuorumLost) as caught:
        attack(Policy(verification="off", rosters="fixed"))
    assert all(caught.value.outcomes[name].refusal is Refusal.ROSTER_FORBIDDEN for name in FEWER)


def other_way_round(first, second):
    """The same, the smaller roster first."""
    others = yield from total(Assign(first), to=FEWER)
    everyone = yield from total(Assign(second), to=ALL)
    return everyone.sums - others.sums, everyone.counts - others.counts


def test_a_larger_roster_after_a_smaller_one_is_the_same_attack():
    assert is_told(attack(Policy(verification="off", rosters="any", protection="none"), protocol=other_way_round))
    with pytest.raises(QuorumLost) as caught:
        attack(Policy(verification="off", rosters="shrinking"), protocol=other_way_round)
    assert all(caught.value.outcomes[name].refusal is Refusal.ROSTER_FORBIDDEN for name in FEWER)


# ---------------------------------------------------------------- Grams, and what sites keep of them

KERNEL, D = Kernel("rbf", 0.05), 6
BEGIN = BeginKernel(*BeginKernel.stated(KERNEL, D, "phase", 7), "float64")


def kept_since(first, second):
    """DSPGD's first step with all, its second with all but one: B'B of everyone is known from the first, and that of
    the others is a part of the second."""
    yield from total(BEGIN)
    gram = full_matrix(
        (yield from total(SendGram(1, 4.0, D * (D + 1) // 2, D, 1.0, np.zeros(D)), to=first)).packed, D
    )
    pairs = eigenpairs_above(gram)
    yield from total(Advance(1, 1.0, False, np.zeros(D), pairs.vectors, np.ones(len(pairs.values))))
    n = D + len(pairs.values)
    packed = (yield from total(SendGram(2, 4.0, n * (n + 1) // 2, n, 0.5, np.zeros(D)), to=second)).packed
    others = full_matrix(packed, n)[D:, D:] / 0.5
    return pairs.vectors, np.diag(pairs.values) - others


def own_gram(vectors):
    features = BEGIN.draw(2, 1)(ROWS["d"]) / np.sqrt(D)
    return vectors.T @ features.T @ features @ vectors


def attack_grams(policy):
    with in_process({name: ArrayTable(rows) for name, rows in ROWS.items()}, policy=policy) as channel:
        layers = [Declared({"rows": 100, "box": 100.0}), MaskedSums()]
        return run(kept_since(ALL, FEWER), channel, method="dspgd", layers=layers)


@pytest.mark.parametrize("rosters", ["any", "shrinking"])
def test_what_sites_keep_of_a_gram_gives_the_gram_of_one_that_is_left_out_later(rosters):
    vectors, found = attack_grams(Policy(verification="off", rosters=rosters, protection="none"))
    np.testing.assert_allclose(found, own_gram(vectors), atol=1e-6)


def test_where_rosters_are_fixed_no_gram_of_fewer_sites_is_summed_up():
    with pytest.raises(QuorumLost):
        attack_grams(Policy(verification="off", rosters="fixed"))
