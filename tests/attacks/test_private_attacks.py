"""Chosen cells, products and repeated jobs, under a budget of epsilon 1: no row, and no more of who was there than
epsilon allows.

The server is changed, asks one site alone (whose noise is then all there is), and divides what the order takes among
questions of its choice. With the noise off each attack gets rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm

from coterie import FederatedKMeans
from coterie.engines.inprocess import in_process
from coterie.errors import InputError, RunError
from coterie.estimators.fitting import fit_over
from coterie.maths.accounting import mu_of, variance_for
from coterie.messages.contributions import PrivateRequest
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing
from coterie.messages.site_api import KEEPERS, Memory
from coterie.methods.shared import private_subspace
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import DELTA, Privacy
from coterie.methods.shared.private_sums import SumByCell, SumProducts, SumRows
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.secure.handshake import HELLO_BYTES, REPORT_BYTES, AskHello
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable
from coterie.sites.views import noise
from coterie.sites.views.noise import exact_sums
from tests.attacks.asker import Asker
from tests.attacks.private_runs import log_ratio_of
from tests.orders import an_order, signed

Rows = npt.NDArray[np.float64]
METHOD, D, GRID = "federated-kmeans", 3, 1e-3
MU2 = mu_of(1.0, DELTA) ** 2
OPEN = Policy(
    protection="noise", privacy=PrivacyRules(epsilon=1.0), per_site_results="rows", verification="off", min_roster=1
)
NEAR = 5 * GRID
"""A guess as near to a row is that row: rows are rounded to a grid before they are added up."""


def drawn(n: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).uniform(-1, 1, (n, D))


def site_of(rows: Rows) -> Asker:
    """A site that accepted an order of epsilon 1, all of its budget, and shows rows on the grid."""
    names = [f"x{i}" for i in range(D)]
    asker = Asker.of(ArrayTable(rows, columns=names), OPEN, method=METHOD)
    order = an_order(
        METHOD, {"privacy": Privacy(1.0)}, names, asker.run.hex(), ranges=(np.full(D, -1.0), np.full(D, 1.0))
    )
    assert not isinstance(asker.ask(AskHello(signed(order).to_bytes(), HELLO_BYTES + REPORT_BYTES + D), {}), Refusal)
    assert asker.ask(shown()) == Nothing()
    return asker


def shown() -> ShowWhole:
    return ShowWhole(GRID, 1.0, np.zeros(D), np.zeros(0), np.zeros((0, 0)))


def with_share(question: PrivateRequest[Any], share: float) -> Any:
    """The question with as little noise as a share of the budget buys."""
    parts = [variance_for(length, MU2 * share / len(question.norms)) for length in question.norms]
    return replace(question, variances=np.ceil(parts))


def cells(n: int, seed: int) -> Iterator[SumByCell]:
    """Two cells on both sides of a plane that moves."""
    direction = np.random.default_rng(seed).normal(size=D)
    step = direction / np.linalg.norm(direction) / GRID
    for cut in np.linspace(-1.2, 1.2, n):
        yield SumByCell(1, 0, 64, np.ones(2), 5000, np.array([(cut - 1) * step, (cut + 1) * step]))


def guesses(asker: Asker, n: int) -> Rows:
    """Differences of neighboring cells, by how many rows."""
    found, refused = [np.zeros((0, D))], 0
    last: tuple[float, Rows] | None = None
    for question in cells(n, 1):
        reply = asker.ask(with_share(question, 1 / n))
        if isinstance(reply, Refusal):
            refused += 1
            continue
        count, total = float(reply.counts[0]), (reply.sums[0] + reply.counts[0] * question.centers[0]) * GRID
        if last is not None and abs(count - last[0]) > 0.5:
            found.append(((total - last[1]) / (count - last[0]))[None])
        last = count, total
    assert refused <= 1
    assert asker.ask(with_share(question, 0.5)) is not None
    return np.concatenate(found)


def recovered(rows: Rows, found: Rows, near: float = NEAR) -> int:
    return sum(bool(len(found)) and np.abs(found - row).max(axis=1).min() < near for row in rows)


def no_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(noise, "draws", lambda variance, count, key: np.zeros(count, np.int64))


def test_chosen_cells_give_rows_without_noise_and_none_with_it(monkeypatch):
    rows = drawn(30)
    assert recovered(rows, guesses(site_of(rows), 300)) == 0
    no_noise(monkeypatch)
    assert recovered(rows, guesses(site_of(rows), 300)) >= 10


def products_of_one(asker: Asker, guess: Rows) -> Rows:
    """The row next to a guess, from products about it: all others are moved to the same distance."""
    ask = SumProducts(1, 0, 64, np.ones(1), D * (D + 1) // 2, 1000, 1000.0, guess / GRID)
    reply = asker.ask(with_share(ask, 0.5))
    other = asker.ask(with_share(replace(ask, center=guess / GRID + 1e6), 0.5))
    assert not isinstance(reply, Refusal)
    assert not isinstance(other, Refusal)
    return np.sqrt(np.maximum(np.asarray(reply.packed, float), 0.0))[[0, D, 2 * D - 1]] * GRID


def test_products_give_a_row_without_noise_and_none_with_it(monkeypatch):
    row = drawn(1, seed=3) / 2
    assert np.abs(products_of_one(site_of(row), np.zeros(D)) - np.abs(row)).max() > NEAR
    no_noise(monkeypatch)
    assert np.abs(products_of_one(site_of(row), np.zeros(D)) - np.abs(row)).max() < NEAR


# ---------------------------------------------------------------- who was there


def chosen(how: str) -> list[PrivateRequest[Any]]:
    """Questions that tell most of a row at (1, 1, 1), with all of the budget."""
    target, spare = np.full(D, 1.0) / GRID, np.full(D, -1.0) / GRID
    reach = math.ceil(np.linalg.norm(target))
    moments = SumRows(1, 0, 64, np.ones(3), D, reach)
    cell = SumByCell(1, 0, 64, np.ones(2), 2 * reach, np.array([target, spare]))
    gram = SumProducts(1, 0, 64, np.ones(1), D * (D + 1) // 2, 1000, 1000.0, spare)
    if how == "one question":
        return [with_share(moments, 0.999)]
    if how == "five cells":
        return [with_share(replace(cell, reach=reach + i), 0.999 / 5) for i in range(5)]
    return [with_share(one, 0.33) for one in (moments, cell, gram)]


def scores(how: str, n: int, patch: pytest.MonkeyPatch) -> tuple[Rows, Rows]:
    """How much likelier what left is with the row, of tables without it and with it."""
    others = -(drawn(5) ** 2)
    worlds = others, np.concatenate([others, np.ones((1, D))])
    memories = [Memory(), Memory()]
    for memory, rows in zip(memories, worlds, strict=True):
        KEEPERS[ShowWhole](ArrayTable(rows), memory, shown())
    exact = [[exact_sums(memory, ask) for memory in memories] for ask in chosen(how)]
    found: tuple[list[float], list[float]] = [], []
    for i in range(2 * n):
        key = hashlib.sha256(b"%d" % i).digest()
        patch.setattr(SiteLedger, "noise_key", lambda _ledger, _run, key=key: key)
        asker = site_of(worlds[i % 2])
        replies = [asker.ask(ask) for ask in chosen(how)]
        assert not any(isinstance(reply, Refusal) for reply in replies)
        assert isinstance(asker.ask(with_share(chosen(how)[0], 0.05)), Refusal)
        pairs = zip(chosen(how), replies, exact, strict=True)
        found[i % 2].append(sum(log_ratio_of(ask, reply, *sums) for ask, reply, sums in pairs))
    return np.array(found[0]), np.array(found[1])


def auc(without: Rows, with_: Rows) -> float:
    """How often a table with the row looks more like it than one without."""
    more = with_[:, None] - without
    return float((more > 0).mean() + (more == 0).mean() / 2)


@pytest.mark.parametrize("how", ["one question", "five cells", "three kinds"])
def test_who_was_there_is_told_no_better_than_epsilon_allows(how, monkeypatch):
    n = 100
    allowed = float(norm.cdf(math.sqrt(MU2 / 2)))
    error = 3 * math.sqrt((2 * n + 1) / (12 * n * n))
    found = auc(*scores(how, n, monkeypatch))
    assert 0.5 - error < found < allowed + error < 0.69
    drawn_ = noise.draws
    monkeypatch.setattr(noise, "draws", lambda *which: drawn_(*which) // 10)
    assert auc(*scores(how, 20, monkeypatch)) > allowed + error


# ---------------------------------------------------------------- jobs of an analyst


def jobs(rows: Rows, n_jobs: int, policy: Policy, n_clusters: int = 1) -> tuple[Rows, list[Any]]:
    """All centers and means of columns of so many jobs with other seeds and ranges, and why sites refused others."""
    tables = {f"site-{i}": ArrayTable(rows[i::3], name=f"site-{i}") for i in range(3)}
    found, refused = [np.zeros((0, D))], list[Any]()
    with in_process(tables, policy=policy) as channel:
        columns = {name: table.columns for name, table in tables.items()}
        for seed in range(n_jobs):
            widest = np.full(D, 1 + 0.01 * seed)
            estimator = FederatedKMeans(n_clusters, privacy=Privacy(1.0), random_state=seed)
            options = PreparationOptions("standard", ranges=(-widest, widest))
            try:
                fit_over(channel, estimator, columns, options, order=channel.analyst)
            except InputError:  # noise hides that there is a row
                continue
            except RunError as problem:
                refused.append({one.refusal for one in problem.outcomes.values()})
            else:
                found.append(np.vstack([estimator.cluster_centers_, estimator.preparation_.shift]))
    return np.concatenate(found), refused


TWO = replace(OPEN, privacy=PrivacyRules(2.0))


@pytest.mark.filterwarnings("ignore::coterie.errors.NoiseWarning")
def test_repeated_jobs_get_no_row(monkeypatch):
    rows = drawn(1, seed=8)
    monkeypatch.setattr(private_subspace, "SURE_ROWS", 0.0)  # noise hides one row, and no run ends for that
    found, _ = jobs(rows, 6, TWO)
    assert recovered(rows, found, 0.05) == 0
    assert len(found)
    no_noise(monkeypatch)
    found, _ = jobs(rows, 3, TWO)
    assert recovered(rows, found, 0.05) == 1


def test_repeated_jobs_end_with_the_budget():
    found, refused = jobs(drawn(3000), 6, TWO, 2)
    assert len(found) == 3 * (2 + 1)
    assert refused == [{Refusal.BUDGET_SPENT}] * 3  # the square of mu is a little more than three times as large
