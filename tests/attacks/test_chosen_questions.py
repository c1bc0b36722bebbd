"""A server that chooses its cells, and an analyst with many jobs: rows over rows, averages of groups over groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits

import coterie
from coterie import FederatedKMeans
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.prepared import Prepare
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view
from tests.attacks.asker import OFF, ON, ROW, Asker, sum_columns

Rows = npt.NDArray[np.float64]


def heart(folder: Any) -> Rows:
    z = np.load(folder / "heart_disease.npz")
    rows = z["X"][z["site"] == 0].astype(np.float64)
    return rows[~np.isnan(rows).any(axis=1)]


def mushrooms(folder: Any) -> Rows:
    return np.load(folder / "mushrooms.npz")["X"][:900].astype(np.float64)


def exposed(rows: Rows, guesses: Rows) -> int:
    """How many rows a guess is as near to as no guess may be, unless all rows of their group are equal to them."""
    seen = {tuple(row) for row in np.round(guesses, 5)}
    hit = [row for row in np.unique(rows, axis=0) if tuple(np.round(row, 5)) in seen]
    near = [row for row in hit if np.abs(guesses - row).max(axis=1).min() < ROW]
    (block,) = grouped_view(ArrayTable(rows), 5, SiteLedger()).blocks()
    pure = block.within < 1e-12 * max(float(block.within.max()), 1e-300)
    return sum(np.abs(block.rows[pure] - row).max(axis=1).min(initial=np.inf) > ROW for row in near)


def half_spaces(made: Asker, rows: Rows, n_questions: int, seed: int) -> Rows:
    """Cells cut at parallel hyperplanes that move by about a row: differences of neighbours, by how many rows."""
    rng = np.random.default_rng(seed)
    guesses = [np.zeros((0, rows.shape[1]))]
    per_direction = 100
    for _ in range(n_questions // per_direction):
        direction = rng.normal(size=rows.shape[1])
        along = np.sort(rows @ direction)
        cuts = (along[1:] + along[:-1]) / 2
        first = int(rng.integers(0, max(1, len(cuts) - per_direction)))
        cuts = cuts[first : first + per_direction]
        step = direction / (direction @ direction)
        sums, counts = [], []
        for cut in cuts:  # nearer to the first center: below the cut
            reply = made.ask(Assign(np.array([(cut - 1) * step, (cut + 1) * step])))
            sums.append(reply.sums[0])
            counts.append(reply.counts[0])
        for gap in (1, 2, 3):
            more, fewer = np.array(counts[gap:]) - counts[:-gap], np.array(sums[gap:]) - np.array(sums[:-gap])
            guesses.append(fewer[more > 0.5] / more[more > 0.5][:, None])
            guesses.append(fewer)
    return np.concatenate(guesses)


def test_a_server_that_chooses_its_cells_gets_rows_over_rows_and_none_over_groups():
    rows = load_digits().data[:200]
    assert exposed(rows, half_spaces(Asker.of(rows, OFF), rows, 400, 0)) >= 50
    assert exposed(rows, half_spaces(Asker.of(rows, ON), rows, 400, 0)) == 0


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["digits", "heart", "mushrooms"])
def test_a_thousand_chosen_cells_get_no_row(name, data_folder):
    rows = {"digits": lambda _: load_digits().data, "heart": heart, "mushrooms": mushrooms}[name](data_folder)
    assert exposed(rows, half_spaces(Asker.of(rows, ON), rows, 1000, 1)) == 0


def jobs(tables: dict[str, Any], n_jobs: int, policy: Policy, seed: int) -> Rows:
    """Two clusters, one round, centers of the analyst's choice that move from job to job: unions and differences."""
    rng, rows = np.random.default_rng(seed), np.concatenate(list(tables.values()))
    opened = {name: ArrayTable(own) for name, own in tables.items()}
    direction = rng.normal(size=rows.shape[1])
    along = np.sort(rows @ direction)
    sums, counts = [], []
    for place in np.linspace(1, len(along) - 2, n_jobs).astype(int):
        cut, step = (along[place] + along[place + 1]) / 2, direction / (direction @ direction)
        start = [(cut - 1) * step, (cut + 1) * step]
        made = coterie.fit(FederatedKMeans(2, init=start, max_rounds=1, tol=0.0), opened, policy=policy)
        closed = coterie.fit(FederatedKMeans(2, init=start, max_rounds=0, tol=0.0), opened, policy=policy)
        counts.append(closed.counts_[0])
        sums.append(closed.counts_[0] * made.cluster_centers_[0])
    sums_, counts_ = np.array(sums), np.array(counts)
    found = [np.zeros((0, rows.shape[1]))]
    for gap in (1, 2, 3):
        more, fewer = counts_[gap:] - counts_[:-gap], sums_[gap:] - sums_[:-gap]
        found += [fewer, fewer[more > 0.5] / more[more > 0.5][:, None]]
    return np.concatenate(found)


def dealt(n: int, n_sites: int = 3) -> dict[str, Rows]:
    rows = np.random.default_rng(5).normal(size=(n, 4))
    return {f"site-{i}": rows[i::n_sites] for i in range(n_sites)}


def exposed_at_any(tables: dict[str, Rows], guesses: Rows) -> int:
    return sum(exposed(rows, guesses) for rows in tables.values())


def test_an_analyst_with_many_jobs_gets_rows_over_rows_and_none_over_groups():
    tables = dealt(60)
    near = 1e-4  # a masked sum keeps some digits only
    open_ = jobs(tables, 40, Policy(protection="none"), 0)
    rows = np.concatenate(list(tables.values()))
    assert sum(np.abs(open_ - row).max(axis=1).min() < near for row in rows) >= 5
    closed = jobs(tables, 40, Policy(), 0)
    assert sum(np.abs(closed - row).max(axis=1).min() < near for row in rows) == 0


@pytest.mark.slow
def test_three_hundred_jobs_get_no_row():
    tables = dealt(240)
    guesses, rows = jobs(tables, 150, Policy(), 1), np.concatenate(list(tables.values()))
    assert sum(np.abs(guesses - row).max(axis=1).min() < 1e-4 for row in rows) == 0


def test_what_a_method_was_shown_is_not_there_for_another_one_of_the_same_run():
    """A run that begins under a method that may see rows, and goes on under one that may not."""
    rows = np.random.default_rng(6).normal(size=(40, 2))
    policy = Policy(per_site_results="averages", method_protection={"lloyd": "none"})
    made = Asker.of(rows, policy)
    assert made.ask(Prepare("refuse", False, np.zeros(2), np.zeros(2), np.ones(2), *np.zeros((2, 0)))) == Nothing()
    near = Assign(np.array([rows[0], rows[0] + 100.0]))
    first = made.ask(near)
    assert first.counts.sum() == 40
    one = Assign(np.array([rows[0], np.delete(rows, 0, axis=0).mean(axis=0)]))
    made.method = "landmarks"
    assert made.ask(one) is Refusal.FORGOT
    made.recall()
    cells = made.ask(one)
    assert set(cells.counts.tolist()) <= {float(n) for n in range(41) if n == 0 or n >= 5}
    (block,) = grouped_view(ArrayTable(rows), 5, SiteLedger()).blocks()
    np.testing.assert_allclose(cells.sums.sum(axis=0), block.weights @ block.rows)
    assert float(cells.cost) > float(Asker.of(rows, OFF).ask(one).cost)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_rows])
def test_a_site_refuses_methods_that_need_rows_itself(name):
    made = Asker.of(np.ones((20, 2)), Policy(per_site_results="rows"), method=name)
    assert made.ask(sum_columns(2)) is Refusal.ROWS_PROTECTED


# ---------------------------------------------------------------- whatever a function can reach


class Everything(Reply, content="averages"):
    """All numbers that a site's function can reach."""

    numbers: Floats = array("size")


class Grab(Request[Everything]):
    """Send all you can reach."""

    size: int


def reached(thing: Any, seen: set[int] | None = None) -> list[Rows]:
    """Every array that can be reached from a thing: attributes, items, cells of closures, bases of views."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | str | bytes | int | float | complex | None.__class__):
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        numbers = [thing.astype(np.float64).ravel()] if thing.dtype.kind in "fiub" else []
        return numbers + reached(thing.base, seen)
    parts: list[Any] = []
    if isinstance(thing, dict):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts += list(thing)
    parts += list(getattr(thing, "__dict__", {}).values())
    parts += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    parts += [getattr(thing, "__self__", None)]
    return [found for part in parts for found in reached(part, seen)]


@answers(Grab)
def local_everything(table: Table, memory: Memory, ask: Grab) -> Everything:
    """A method that keeps to no rule."""
    numbers = np.concatenate([np.zeros(0), *reached(table), *reached(memory)])
    numbers = numbers[np.isfinite(numbers)][: ask.size]
    return Everything(np.pad(numbers, (0, ask.size - len(numbers))))


@pytest.fixture
def grabbing():
    METHODS["grab"] = Method("grab", "a method that keeps to no rule", (Grab,), "all", "all")
    yield
    del METHODS["grab"]


def windows(numbers: Rows, rows: Rows) -> int:
    """How many rows stand in the numbers, one value after the other."""
    d = rows.shape[1]
    found = np.lib.stride_tricks.sliding_window_view(numbers, d)
    return sum(bool((np.abs(found - row).max(axis=1) < ROW).any()) for row in rows)


def test_a_method_that_sends_all_it_can_reach_sends_averages_of_groups(grabbing):
    rows = np.random.default_rng(2).normal(size=(120, 4))
    over_rows, over_groups = (Asker.of(rows, rule, method="grab").ask(Grab(20_000)).numbers for rule in (OFF, ON))
    assert windows(over_rows, rows) == len(rows)
    assert windows(over_groups, rows) == 0
    (block,) = grouped_view(ArrayTable(rows), 5, SiteLedger()).blocks()
    assert windows(over_groups, block.rows) == len(block.rows)


def test_no_view_of_a_run_holds_a_row(grabbing, monkeypatch):
    """After real questions, prepared and embedded: what functions can reach is still averages of groups."""
    rows = np.random.default_rng(3).normal(size=(180, 4))
    tables = {f"s{i}": rows[i::3] for i in range(3)}
    compute, n_seen = Site._compute, 0

    def watched(self: Site, envelope: Any, request: Any) -> Reply:
        nonlocal n_seen
        reply = compute(self, envelope, request)
        memory = self._memory(envelope)
        numbers = np.concatenate([np.zeros(4), *reached(memory), *reached(self._table(envelope))])
        own = tables[self.name]
        assert windows(numbers[np.isfinite(numbers)], own) == 0
        n_seen += 1
        return reply

    monkeypatch.setattr(Site, "_compute", watched)
    for estimator, scale in (
        (FederatedKMeans(3, random_state=0), "standard"),
        (coterie.FederatedKernelKMeans(3, random_state=0), "none"),
        (coterie.DSPGDKernelKMeans(3, n_features=8, n_iter=2, random_state=0), "standard"),
        (coterie.EdgeKMeans(3, random_state=0), "none"),
        (coterie.FederatedPCA(2, random_state=0), "none"),
        (coterie.FederatedKernelPCA(2, random_state=0), "standard"),
    ):
        coterie.fit(estimator, tables, scale=scale)
    assert n_seen > 100
