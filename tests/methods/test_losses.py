"""What protocols do where a site is lost in a masked run: they go on with the others."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost
from coterie.maths.clustering import means, moments
from coterie.maths.kernels import Kernel
from coterie.methods.kernel.dspgd.protocol import AFRESH, DSPGDSettings, dspgd
from coterie.methods.kernel.landmarks.search import summed_landmarks
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.starts import cells_start, var_part
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from tests.declared import Declared
from tests.federations import blobs, split_evenly

ROWS = blobs(300, 4, 3, seed=2, spread=8.0)
LEFT = np.concatenate([ROWS[:60], ROWS[120:]])
"""All rows but those of site-1."""
LIMITS = {"rows": 256.0, "box": 64.0}


def go(protocol, method, lost_at=None, *, ledger=None, policy=None):
    """Masked; from one round on a site is gone."""
    faults = [] if lost_at is None else [Fault("site-1", "drop", frozenset(range(lost_at, 1000)))]
    rules = policy or Policy(protection="none", verification="off")
    with in_process(split_evenly(ROWS, 5), policy=rules, schedule=Schedule(faults)) as channel:
        return run(
            protocol, channel, method=method, layers=[Declared(LIMITS), MaskedSums()], terms=Terms(quorum=0.6),
            ledger=ledger if ledger is not None else Ledger(),
        )  # fmt: skip


def rounds_of(protocol, method, kind):
    ledger = Ledger()
    go(protocol, method, ledger=ledger)
    return [e.round for e in ledger.exchanges if e.asked.endswith(kind)]


START = np.array([ROWS[:100].mean(0), ROWS[100:200].mean(0), ROWS[200:].mean(0)])


@pytest.mark.parametrize("which", [0, 1])
def test_lloyd_fits_the_rows_of_those_left(which):
    def steps():
        return lloyd(START, max_rounds=9, tol=0.0)

    found = go(steps(), "lloyd", rounds_of(steps(), "lloyd", "Assign")[which])
    exact = moments(LEFT, found.centers)
    np.testing.assert_allclose(means(exact.sums, exact.counts, fallback=found.centers), found.centers, atol=1e-9)
    np.testing.assert_allclose(found.counts, exact.counts, atol=1e-6)
    assert found.cost == pytest.approx(float(exact.cost))


def test_where_rosters_are_fixed_the_run_ends():
    def steps():
        return lloyd(START, max_rounds=9, tol=0.0)

    lost_at = rounds_of(steps(), "lloyd", "Assign")[1]
    with pytest.raises(QuorumLost, match="site-1"):
        go(steps(), "lloyd", lost_at, policy=Policy(rosters="fixed", protection="none", verification="off"))


@pytest.mark.parametrize("start", [var_part, cells_start])
def test_a_start_is_of_the_rows_left(start):
    def steps():
        about = yield from spread(4)
        more = {"seed": 1} if start is cells_start else {}
        return (yield from start(3, 4, about=about, **more))

    found = go(steps(), "lloyd", rounds_of(steps(), "lloyd", "Split")[0])
    cells = moments(LEFT, found)
    assert (cells.counts > 0).all()
    assert cells.cost < 0.5 * moments(LEFT, LEFT.mean(0)[None]).cost


def test_dspgd_begins_an_iteration_again_with_features_of_its_own():
    def steps():
        return dspgd(Kernel("rbf", 0.01), DSPGDSettings(3, n_features=8, n_iter=4, rank=4, solver="gram"), seed=4)

    asked = rounds_of(steps(), "dspgd", "SendGram")
    found = go(steps(), "dspgd", asked[2])
    assert found.n_restarts == 1
    assert [ask.step for ask in found.transcript[1:]] == [1, 2, 3 + AFRESH, 4]


def test_landmarks_are_those_of_the_rows_left():
    def steps():
        return summed_landmarks(6, 4, bits=8, seed=2, n_projected=3)

    shares = rounds_of(steps(), "landmarks", "ShareCells")
    found = go(steps(), "landmarks", shares[1]).landmarks
    assert found.weights.sum() == pytest.approx(300)  # as many as there were when all were counted
    assert found.scatter == pytest.approx(((LEFT - LEFT.mean(0)) ** 2).sum(), rel=0.02)  # about the landmarks' mean
    nearest = ((LEFT[:, None] - found.points) ** 2).sum(-1).min(1)
    assert nearest.mean() < 0.5 * ((LEFT - LEFT.mean(0)) ** 2).sum(1).mean()
