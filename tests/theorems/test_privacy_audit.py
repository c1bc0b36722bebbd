"""An audit: guess from all that leaves a private run whether one row was there, as well as anybody can.

The guesser knows all other rows, every question and the distribution of the noise, and compares likelihoods. From how
often it is right follows a lower bound of epsilon (Clopper & Pearson, 95 %), which must stay below what was promised,
and exceeds it where there is too little noise. Noise is drawn from fixed keys, so that results do not change.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, norm

from coterie import FederatedKMeans
from coterie.errors import InputError
from coterie.maths.accounting import delta_of, epsilon_of
from coterie.messages.contributions import PrivateRequest
from coterie.messages.site_api import KEEPERS, Memory
from coterie.messages.verbs import Present
from coterie.methods.shared.agreement import Agree, local_report
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import Privacy
from coterie.runtime.layers import sum_in_order
from coterie.sites.tables import ArrayTable
from coterie.sites.views import noise
from coterie.sites.views.noise import exact_sums, noisy_answer
from tests.attacks.private_runs import log_ratio_of

Scores = npt.NDArray[np.float64]
DELTA = 1e-3
OTHERS = np.repeat([[-1.0, -1.0], [-1.0, -0.9], [-0.9, -1.0], [-0.5, -0.5]], 150, axis=0)
TARGET = np.array([[1.0, 1.0]])
WORLDS = ArrayTable(OTHERS), ArrayTable(np.concatenate([OTHERS, TARGET]))
"""Without the row, and with it."""


def log_ratio(epsilon: float, world: int, key: bytes, smaller: int) -> float:
    """By how much likelier everything that left one run is with the row than without it."""
    estimator = FederatedKMeans(1, privacy=Privacy(epsilon, delta=DELTA))
    options = PreparationOptions(ranges=([-1.0, -1.0], [1.0, 1.0]))
    protocol = estimator.whole_protocol({"": WORLDS[0].columns}, options, 1)
    memories, ratio, answer = (Memory(), Memory()), 0.0, None
    try:
        while True:
            question = protocol.send(answer)
            if isinstance(question, Present):
                answer = ("only",)
            elif isinstance(question.request, PrivateRequest):
                request = question.request
                reply = noisy_answer(memories[world], request, key)
                ratio += log_ratio_of(request, reply, *(exact_sums(one, request) for one in memories)) * smaller**2
                answer = sum_in_order([reply])
            elif isinstance(question.request, Agree):
                answer = {"only": local_report(WORLDS[world], Memory(), question.request)}
            else:
                for memory, table in zip(memories, WORLDS, strict=True):
                    if type(question.request) in KEEPERS:
                        KEEPERS[type(question.request)](memory.table or table, memory, question.request)
                answer = question.request.layout.reply()
    except (StopIteration, InputError):  # of a run that noise left without rows
        return ratio


def scores(epsilon: float, n_runs: int, smaller: int = 1) -> tuple[Scores, Scores]:
    """The guesser's scores of half as many runs without the row, and of as many with it."""

    def of(world: int) -> Scores:
        keys = (hashlib.sha256(b"%d %d %g" % (world, i, epsilon)).digest() for i in range(n_runs // 2))
        return np.array([log_ratio(epsilon, world, key, smaller) for key in keys])

    return of(0), of(1)


def lower_bounds(without: Scores, with_: Scores) -> tuple[float, float]:
    """Of epsilon: whatever the noise is, with a threshold chosen by half of the scores and counted in the others; and
    tighter, if two normal distributions are to be told apart, with the threshold of equal likelihoods."""
    half = len(with_) // 2
    candidates = np.quantile(np.concatenate([without[:half], with_[:half]]), np.linspace(0.05, 0.95, 37))
    best = max(candidates, key=lambda t: _bounds(without[:half], with_[:half], t)[0])
    return _bounds(without[half:], with_[half:], best)[0], _bounds(without, with_, 0.0)[1]


def _bounds(without: Scores, with_: Scores, threshold: float) -> tuple[float, float]:
    n, n_false, n_true = len(with_), int((without > threshold).sum()), int((with_ > threshold).sum())
    false = float(beta.ppf(0.975, n_false + 1, n - n_false)) if n_false < n else 1.0
    true = float(beta.ppf(0.025, n_true, n - n_true + 1)) if n_true else 0.0
    mu = float(norm.ppf(true) - norm.ppf(false))
    anyhow = math.log((true - DELTA) / false) if true - DELTA > false else 0.0
    return anyhow, epsilon_of(max(mu, 0.0), DELTA) if math.isfinite(mu) else 0.0


def audited(epsilon: float, n_runs: int) -> None:
    """The promise holds, and is all but used up; a quarter of the noise would break it."""
    found = scores(epsilon, n_runs)
    assert max(lower_bounds(*found)) < epsilon
    away = float(found[1].mean() - found[0].mean())  # of two normal distributions the square of mu
    assert delta_of(math.sqrt(away), 1.5 * epsilon) < DELTA < delta_of(math.sqrt(away), 0.5 * epsilon)


def broken(epsilon: float, n_runs: int, patch: pytest.MonkeyPatch) -> tuple[float, float]:
    """The bounds where noise is a quarter of what it must be."""
    drawn = noise.draws
    patch.setattr(noise, "draws", lambda *which: np.rint(drawn(*which) / 4).astype(np.int64))
    return lower_bounds(*scores(epsilon, n_runs, 4))


def test_a_few_runs_do_not_give_more_than_promised():
    audited(1.0, 240)


def test_a_few_runs_with_a_quarter_of_the_noise_give_more(monkeypatch):
    assert max(broken(1.0, 240, monkeypatch)) > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_two_thousand_runs_do_not_give_more_than_promised(epsilon):
    audited(epsilon, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_two_thousand_runs_with_a_quarter_of_the_noise_give_more(epsilon, monkeypatch):
    assert max(broken(epsilon, 2000, monkeypatch)) > epsilon
