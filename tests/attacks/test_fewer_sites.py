"""The same summed up with fewer sites under another name: in another view, by other features, after a detour."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import CoterieError
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import full_matrix
from coterie.messages.verbs import total
from coterie.protocols.dspgd import Advance, BeginKernel, SendGram, SumFeatures, SumLengths
from coterie.protocols.landmarks_sites import SendFeatureGram, UseLandmarks
from coterie.protocols.landmarks_summed import Regard, SumRegarded
from coterie.protocols.lloyd import Assign
from coterie.protocols.prepared import Prepare
from coterie.runtime.layers import Declared
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ROW

ALL, FEWER = tuple("abcd"), tuple("abc")
ROWS = {
    name: np.concatenate([r.normal([-6.0, 0.0], size=(20, 2)), r.normal([6.0, 0.0], size=(24, 2))])
    for name in ALL
    for r in [np.random.default_rng(ord(name))]
}
LIMITS = {"rows": 100, "box": 100.0, "length": 100.0, "all_rows": 10000.0}


def attack(protocol, method, policy=None):
    """What a protocol finds, or None where sites refuse."""
    with in_process({n: ArrayTable(r) for n, r in ROWS.items()}, policy=policy or Policy()) as channel:
        try:
            return run(protocol, channel, method=method, layers=[Declared(LIMITS), MaskedSums()])
        except CoterieError:
            return None


def is_d_s(found, own):
    return found is not None and np.abs(np.asarray(found) - own).max() < ROW


def use(kernel, points, projection=None):
    points = np.asarray(points, float)
    projection = np.eye(len(points)) if projection is None else np.asarray(projection, float)
    about = (kernel.name, kernel.gamma, kernel.degree, kernel.coef0, "float64")
    return UseLandmarks(*about, points, projection, np.zeros(projection.shape[1]))


RBF, POINTS = Kernel("rbf", 0.05), np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 1.0]])


# ---------------------------------------------------------------- another name for sums of rows


def rows_behind_an_embedding():
    """Rows are summed up with all; then they are embedded, and what is asked of the rows behind that embedding goes
    by the embedding's name."""
    everyone = yield from total(SumLengths(2), to=ALL)
    yield from total(use(RBF, POINTS))
    yield from total(Regard(0, 2, False))
    others = yield from total(SumRegarded(2, 1.0, 0), to=FEWER)
    return [*(everyone.sums - others.sums), everyone.rows - others.rows]


def test_rows_are_rows_also_behind_an_embedding():
    assert not is_d_s(attack(rows_behind_an_embedding(), "landmarks"), [*ROWS["d"].sum(0), 44])


def of_degree(kernel):
    """Sums of rows from the sums of (gamma <x, l> + coef0)^degree at a few l."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    everyone = yield from total(SumLengths(2), to=ALL)
    yield from total(use(kernel, points))
    m = yield from total(Assign(np.zeros((1, 5))), to=FEWER)
    at = m.sums[0]
    if kernel.degree == 1:
        others = (at[1:3] - at[0]) / kernel.gamma
    else:  # f(l) - f(-l) = 4 gamma coef0 <x, l>
        others = (at[1:3] - at[3:5]) / (4 * kernel.gamma * kernel.coef0)
    return everyone.sums - others


@pytest.mark.parametrize("degree", [1, 2])
def test_a_polynomial_kernel_s_features_hold_the_rows_themselves(degree):
    assert not is_d_s(attack(of_degree(Kernel("polynomial", 0.1, degree, 1.0)), "landmarks"), ROWS["d"].sum(0))


def with_another_constant():
    sums = []
    for kernel, to in ((Kernel("polynomial", 1.0, 1, 1.0), ALL), (Kernel("polynomial", 1.0, 1, 2.0), FEWER)):
        yield from total(use(kernel, [[1.0, 0.0], [0.0, 1.0]]))
        m = yield from total(Assign(np.zeros((1, 2))), to=to)
        sums.append(m.sums[0] - kernel.coef0 * m.counts[0])
    return sums[0] - sums[1]


def test_polynomials_of_another_constant_are_made_of_the_same():
    assert not is_d_s(attack(with_another_constant(), "landmarks"), ROWS["d"].sum(0))


def nearly_linear():
    """exp(-gamma |x - l|^2) with a tiny gamma is linear in x, up to what l and -l have in common."""
    gamma, far = 1e-10, 1000.0
    everyone = yield from total(SumLengths(2), to=ALL)
    yield from total(use(Kernel("rbf", gamma), [[far, 0], [0, far], [-far, 0], [0, -far]]))
    at = (yield from total(Assign(np.zeros((1, 4))), to=FEWER)).sums[0]
    return everyone.sums - (at[:2] - at[2:]) / (4 * gamma * far) * np.exp(gamma * far**2)


def test_a_tiny_gamma_is_no_other_function_of_rows():
    assert not is_d_s(attack(nearly_linear(), "landmarks"), ROWS["d"].sum(0))


# ---------------------------------------------------------------- another name for sums of features


def features_twice(first, second, cut=slice(None), between=()):
    yield from total(first)
    everyone = yield from total(Assign(np.zeros((1, first.axes["r"]))), to=ALL)
    for ask in between:
        yield from total(ask)
    if second is not None:
        yield from total(second)
    width = first.axes["r"] if second is None else second.axes["r"]
    others = yield from total(Assign(np.zeros((1, width))), to=FEWER)
    return everyone.sums[0] - others.sums[0][cut]


OWN = RBF.between(ROWS["d"], POINTS).sum(0)


def test_landmarks_in_another_order_are_the_same_features():
    again = use(RBF, POINTS[::-1])
    assert not is_d_s(attack(features_twice(use(RBF, POINTS), again, slice(None, None, -1)), "landmarks"), OWN)


def test_one_landmark_more_is_the_same_features_and_one_more():
    again = use(RBF, [*POINTS, [9.0, 9.0]])
    assert not is_d_s(attack(features_twice(use(RBF, POINTS), again, slice(0, 3)), "landmarks"), OWN)


def prepared_features():
    """Features that are prepared go by the name of rows."""
    yield from total(use(RBF, POINTS))
    everyone = yield from total(Assign(np.zeros((1, 3))), to=ALL)
    yield from total(Prepare("refuse", False, np.zeros(3), np.zeros(3), np.ones(3)))
    others = yield from total(Assign(np.zeros((1, 3))), to=FEWER)
    return everyone.sums[0] - others.sums[0]


def test_prepared_features_are_still_features():
    assert not is_d_s(attack(prepared_features(), "landmarks"), OWN)


# DSPGD
D = 6
BEGIN = BeginKernel(*BeginKernel.stated(RBF, D, "phase", 7), "float64")
LAST = (1.0, True, np.zeros(D), np.eye(D), np.ones(D))


def advanced_by_nothing():
    """An embedding of draw 1, and one of draws 2 and 1 that is made of draw 1 alone: eta = 1 leaves B out."""
    yield from total(BEGIN)
    yield from total(Advance(1, *LAST))
    everyone = yield from total(Assign(np.zeros((1, D))), to=ALL)
    yield from total(BEGIN)
    yield from total(Advance(2, 1.0, False, np.zeros(D), np.eye(D)[:, :1], np.ones(1)))
    yield from total(Advance(1, 1.0, True, np.zeros(D), np.eye(D + 1)[:, :D], np.ones(D)))
    others = yield from total(Assign(np.zeros((1, D))), to=FEWER)
    return everyone.sums[0] - others.sums[0]


def own_features(step=1):
    return BEGIN.draw(2, step)(ROWS["d"]) / np.sqrt(D)


def test_an_embedding_made_of_one_draw_is_that_whatever_was_drawn_before():
    assert not is_d_s(attack(advanced_by_nothing(), "dspgd"), own_features().sum(0))


def grams_of_b():
    """B_2 made of draw 1 is a part of the Gram of draw 2 over all; B_3 = B_2, as if made of draw 9 as well, is part
    of the Gram of draw 3 over the others."""
    n, eta, found = 2 * D, 0.5, []
    yield from total(BEGIN)
    yield from total(Advance(1, 1.0, False, np.zeros(D), np.eye(D), np.ones(D)))
    ask = SendGram(n * (n + 1) // 2, n, 2, eta, np.zeros(D))
    found.append(full_matrix((yield from total(ask, to=ALL)).packed, n)[D:, D:] / (1 - eta))
    yield from total(Advance(9, eta, False, np.zeros(D), np.eye(n)[:, D:], np.full(D, (1 - eta) ** -0.5)))
    ask = SendGram(n * (n + 1) // 2, n, 3, eta, np.zeros(D))
    found.append(full_matrix((yield from total(ask, to=FEWER)).packed, n)[D:, D:] / (1 - eta))
    return found[0] - found[1]


def test_what_sites_keep_goes_by_each_draw_it_is_made_of():
    own = own_features().T @ own_features()
    assert is_d_s(attack(grams_of_b(), "dspgd", Policy(gram_rows=0, rosters="any")), own)
    assert not is_d_s(attack(grams_of_b(), "dspgd", Policy(gram_rows=0)), own)
    assert not is_d_s(attack(grams_of_b(), "dspgd"), own)


def grams_of_the_same_draw():
    """numpy's seeds are words of 32 bits, zeros at the end left out: [7, 1] is [7 + 2**32, 0]."""
    found = []
    for seed, step, to in ((7, 1, ALL), (7 + (1 << 32), 0, FEWER)):
        yield from total(BeginKernel(*BeginKernel.stated(RBF, D, "phase", seed), "float64"))
        ask = SendGram(D * (D + 1) // 2, D, step, 1.0, np.zeros(D))
        found.append(full_matrix((yield from total(ask, to=to)).packed, D))
    return found[0] - found[1]


def test_two_seeds_do_not_give_the_same_draw():
    own = own_features().T @ own_features()
    assert not is_d_s(attack(grams_of_the_same_draw(), "dspgd"), own)


def other_draws_of_polynomials():
    """Sums of the features of two draws of a polynomial kernel are sums of the same monomials."""
    d, kernel, sums = 40, Kernel("polynomial", 0.1, 2, 1.0), []
    begin = BeginKernel(*BeginKernel.stated(kernel, d, "phase", 7), "float64")
    yield from total(begin)
    probe = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [0, 2], [-1, 2]], float)
    design = np.column_stack([np.ones(7), probe, probe[:, 0] * probe[:, 1], probe**2])
    for step, to in ((1, ALL), (2, FEWER)):
        found = yield from total(SumFeatures(d, step), to=to)
        coefficients = np.linalg.lstsq(design, begin.draw(2, step)(probe), rcond=None)[0]  # monomials to features
        sums.append(np.linalg.lstsq(coefficients.T, found.sums, rcond=None)[0])
    return (sums[0] - sums[1])[1:3]


def test_features_of_two_draws_of_a_polynomial_kernel_are_not_held_against_each_other():
    """What is left open: with as many features as there are monomials, and rows enough for as many Grams."""
    found = attack(other_draws_of_polynomials(), "dspgd", Policy(gram_rows=0))
    assert is_d_s(found, ROWS["d"].sum(0))


def gram_then_cells():
    """The first row of [1, phi]'[1, phi] is the sum of phi over all rows."""
    n = 4
    yield from total(use(RBF, POINTS))
    packed = (yield from total(SendFeatureGram(n * (n + 1) // 2, n, "float64"), to=ALL)).packed
    others = yield from total(Assign(np.zeros((1, 3))), to=FEWER)
    return np.asarray(packed)[1:n] - others.sums[0]


def test_a_gram_of_features_tells_their_sums():
    assert not is_d_s(attack(gram_then_cells(), "landmarks"), OWN)
