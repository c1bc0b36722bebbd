"""What comes of a run that loses sites: a fit to the rows of those left, never below its quorum."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost
from coterie.maths import clustering
from coterie.messages.verbs import total
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.starts import cells_start
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.declared import Declared

MIDDLES = np.array([[-30.0, 0.0], [-25.0, 12.0], [0.0, 3.0], [22.0, -9.0], [40.0, 9.0]])


def tables(own):
    """Sites of which the first so many hold rows of one cluster alone."""
    made = {}
    for i, name in enumerate("abcde"):
        rng = np.random.default_rng(i)
        rows = [rng.normal(m, 0.5, size=(40, 2)) for m in (MIDDLES[i : i + 1] if i < own else MIDDLES)]
        made[name] = np.concatenate(rows)
    return made


def clustered():
    about = yield from spread(2)
    begun = yield from cells_start(5, 2, seed=0, about=about)
    return (yield from lloyd(begun))


def ran(protocol, rows, faults, policy):
    sites = {n: ArrayTable(r) for n, r in rows.items()}
    with in_process(sites, policy=policy, schedule=Schedule(faults)) as channel:
        layers = [Declared({"rows": 1000, "box": 100.0}), MaskedSums()]
        return run(protocol, channel, method="lloyd", layers=layers, terms=Terms(quorum=0.5, resends=0))


@pytest.mark.parametrize("own", [0, 1, 5])
def test_a_fit_is_that_of_the_rows_left(own):
    """A site is lost after the spread."""
    rows = tables(own)
    found = ran(clustered(), rows, [Fault("e", "vanish", frozenset(range(6, 99)))], Policy(verification="off"))
    left = np.concatenate([rows[n] for n in "abcd"])
    assert found.n_rounds > 0
    assert clustering.moments(left, found.centers).cost < 1.1 * clustering.moments(left, MIDDLES).cost


NAMES = tuple("abcdefghijkl")


def sampled():
    return (yield from total(Assign(np.zeros((1, 2))), to=NAMES[:10]))


def test_a_sample_asked_again_is_held_to_the_same_quorum():
    """Half of ten must answer. Five do at first, then four of these."""
    faults = [Fault(n, "vanish", frozenset(range(2, 99))) for n in "fghij"]
    faults.append(Fault("e", "vanish", frozenset(range(3, 99))))
    with pytest.raises(QuorumLost):
        ran(sampled(), {n: np.ones((10, 2)) for n in NAMES}, faults, Policy(verification="off", rosters="any"))
