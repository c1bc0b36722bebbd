"""Global sums of two rounds in which few rows moved: their difference is a row."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coterie.engines.inprocess import in_process
from coterie.maths.clustering import nearest
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.runtime.layers import PlainSums
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from tests.attacks.asker import ROW, TAU
from tests.declared import Declared
from tests.federations import tables_of

ROWS = load_digits().data
K, N_SITES = 10, 5


def overheard(protocol, heard):
    """A protocol, and what the server sees while it runs: the sums over all sites."""
    answer = None
    while True:
        try:
            question = protocol.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield question
        if isinstance(question.request, Assign):
            heard.append(answer)


def honest_run(policy, layer, seed):
    """Lloyd as anyone runs it; the fit and what was overheard."""
    rng = np.random.default_rng(seed)
    start = ROWS[rng.choice(len(ROWS), K, replace=False)] + rng.normal(size=(K, ROWS.shape[1]))
    heard = []
    with in_process(tables_of(ROWS, rng.integers(0, N_SITES, len(ROWS)), N_SITES), policy=policy) as channel:
        layers = [Declared({"rows": 500, "box": 50.0}), layer]
        fit = run(overheard(lloyd(start, tol=0.0), heard), channel, method="lloyd", layers=layers)
    return fit, heard


PLACES = {row.tobytes(): place for place, row in enumerate(ROWS.astype(int))}


def recovered(heard):
    """The rows that are the difference of any two cells of nearly or quite the same count, in any two rounds."""
    nothing = np.zeros((1, ROWS.shape[1]))
    sums, counts = (
        np.concatenate([nothing, *[m.sums for m in heard]]),
        np.concatenate([[0], *[m.counts for m in heard]]),
    )
    found = set()
    for total, count in zip(sums, counts, strict=True):
        differences = total - sums[np.abs(counts - count) < TAU - 0.5]
        whole = np.rint(differences)  # digits are whole numbers
        found.update(PLACES.get(row.tobytes()) for row in whole[np.abs(differences - whole).max(1) < ROW].astype(int))
    return found - {None}


SEEDS = [0, 1, 2]
OFF = Policy(per_site_results="averages", protection="none")


@pytest.mark.parametrize("seed", SEEDS)
def test_over_rows_a_run_gives_away_some_dozen_rows(seed):
    _, heard = honest_run(OFF, PlainSums(), seed)
    assert len(recovered(heard)) >= 10


def test_over_rows_masks_make_no_difference():
    """Masked, only sums over all sites are seen; these are what is subtracted."""
    _, heard = honest_run(Policy(verification="off", protection="none"), MaskedSums(), SEEDS[0])
    assert len(recovered(heard)) >= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_over_groups_no_difference_is_a_row_and_the_clustering_is_hardly_worse(seed):
    fit, heard = honest_run(Policy(verification="off"), MaskedSums(), seed)
    assert recovered(heard) == set()
    assert len(heard) > 2
    free, _ = honest_run(OFF, PlainSums(), seed)
    own = nearest(ROWS, fit.centers)[1].sum()
    assert own <= fit.cost
    assert own < 1.05 * free.cost
