"""``coterie.plan``: nothing is sent, no row is looked at, and what it says can be read by programs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import coterie
from coterie.errors import InputError
from coterie.planning import rehearsal, speeds
from coterie.planning.amounts import Amount
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable

COLUMNS = ["age", "bmi", "sex=f"]
SHAPES = {"north": (400, COLUMNS), "south": (90, COLUMNS), "west": (210, COLUMNS)}
KMEANS = coterie.FederatedKMeans(3, random_state=0)


class Shut(ArrayTable):
    """A table that must not be read."""

    def raw_blocks(self):
        raise AssertionError("a plan looks at no row")

    blocks = raw_blocks


def shut(rows, columns):
    return Shut(np.full((rows, len(columns)), np.nan), columns=columns)


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (KMEANS, {"profile": True}),
        (KMEANS, {"policy": "simulation", "sums": "plain", "scale": "robust"}),
        (
            coterie.FederatedKMeans(3, privacy=coterie.Privacy(2.0)),
            {"policy": "private", "ranges": ([0] * 3, [9] * 3)},
        ),
        (coterie.VerticalKernelPCA(2, random_state=0), {"policy": "simulation"}),
        (coterie.EdgeKMeans(3, pipeline="nr", random_state=0), {"policy": "simulation"}),
    ],
    ids=["verified", "plain", "private", "columns", "rows"],
)
def test_no_row_is_looked_at(estimator, options):
    tables = {name: shut(*shape) for name, shape in SHAPES.items()}
    if estimator.splits_columns:
        tables = {name: shut(60, ["a", "b"]) for name in SHAPES}
    shapes = {name: (table.n_rows, [column.name for column in table.columns]) for name, table in tables.items()}
    made = coterie.plan(estimator, tables, **options).to_dict()
    assert made == coterie.plan(estimator, shapes=shapes, **options).to_dict()
    assert made["methods"][0]["bytes_up"]["least"] > 0


def test_only_sizes_decide_what_is_exact():
    """More rows in the same magnitude leave a plan as it is; one more column does not."""
    pca = coterie.FederatedPCA(2, random_state=0)

    def bytes_up(rows, columns):
        shapes = dict.fromkeys(("a", "b", "c"), (rows, columns))
        return coterie.plan(pca, shapes=shapes, policy="research")["federated-pca"].bytes_up

    assert bytes_up(4000, 5).is_exact
    assert bytes_up(4000, 5) == bytes_up(40_000, 5)
    more = bytes_up(4000, 6).least - bytes_up(4000, 5).least
    assert more == 3 * (8 * (1 + 6) + 1)  # by site a sum, six products, and a byte of its report on columns


def test_a_plan_is_the_same_twice_and_is_json():
    first, second = (coterie.plan([KMEANS, coterie.EdgeKMeans(3)], shapes=SHAPES).to_dict() for _ in range(2))
    assert json.loads(json.dumps(first)) == second


def test_the_estimator_is_left_as_it_was():
    estimator = coterie.FederatedKMeans(3)
    coterie.plan(estimator, shapes=SHAPES)
    assert estimator.random_state is None
    assert not hasattr(estimator, "result_")


def test_what_cannot_be_run_is_said_and_the_rest_is_planned():
    both = coterie.plan([KMEANS, coterie.baselines.PooledKernelKMeans(3)], shapes=SHAPES)
    assert [plan.method for plan in both.methods] == ["federated-kmeans"]
    assert [(refused.method, "sends rows" in refused.why) for refused in both.not_planned] == [("ck", True)]
    with pytest.raises(InputError, match="sends rows"):
        coterie.plan(coterie.baselines.PooledKernelKMeans(3), shapes=SHAPES)
    with pytest.raises(InputError, match="either tables or shapes"):
        coterie.plan(KMEANS)
    with pytest.raises(InputError, match="north has rows=0"):
        coterie.plan(KMEANS, shapes={"north": (0, 3)})


def test_hiding_sites_goes_before_few_bytes():
    one_shot = coterie.EdgeKMeans(3, pipeline="centers", random_state=0)
    made = coterie.plan([KMEANS, one_shot], shapes=SHAPES, policy="research")
    assert made["edge-kmeans"].bytes_up.estimate < made["federated-kmeans"].bytes_up.estimate
    assert made["edge-kmeans"].shows_sites
    assert not made["federated-kmeans"].shows_sites
    assert made.recommendation is not None
    assert (made.recommendation.method, made.recommendation.hides_sites) == ("federated-kmeans", True)
    assert not made.recommendation.is_smallest


def test_budgets_are_compared_with_the_most():
    few, many = Policy(max_questions=20, max_runs=3), Policy(max_questions=2000)
    policies = {"north": few, "south": many, "west": many}
    plan = coterie.plan(KMEANS, shapes=SHAPES, policy=policies)["federated-kmeans"]
    uses = {(use.site, use.of): (use.takes, use.is_enough) for use in plan.budgets}
    most = plan.sites["north"].questions.most
    assert uses == {
        ("north", "runs"): (1, True),
        ("north", "questions"): (most, False),
        ("south", "questions"): (most, True),
        ("west", "questions"): (most, True),
    }


def test_epsilon_is_that_of_the_order():
    private = coterie.FederatedKMeans(3, privacy=coterie.Privacy(epsilon=0.5), random_state=0)
    shapes = dict.fromkeys(SHAPES, (4000, 3))
    plan = coterie.plan(private, shapes=shapes, policy="private", ranges=([0] * 3, [1] * 3))["federated-kmeans"]
    takes = [(use.takes, use.allowed) for use in plan.budgets if use.of == "epsilon"]
    assert takes == [(pytest.approx(0.5, rel=1e-6), 4.0)] * 3
    assert plan.is_private
    assert {seen.content for seen in plan.seen} == {"noisy"}


def test_without_a_useful_bound_there_is_none(monkeypatch):
    monkeypatch.setattr(rehearsal, "MOST_EXCHANGES", 60)
    plan = coterie.plan(KMEANS, shapes=SHAPES, sums="plain", policy="simulation")["federated-kmeans"]
    assert plan.bytes_up.most is None
    assert plan.estimates["inprocess"].seconds_most is None
    assert 10**12 in plan.bytes_up
    assert plan.bytes_up.least - 1 not in plan.bytes_up


def test_estimates_add_up_measured_constants():
    speed = speeds.speeds().engines["inprocess"]
    idle, busy = speeds.Work(0, 0, 0, 0, 0, 0), speeds.Work(10, 30, 90, 10**6, 10**6, 0)
    more = 10 * speed.exchange + 30 * speed.answer + 90 * speed.pair + speed.megabyte + speed.million_values
    assert busy.seconds(speed) - idle.seconds(speed) == pytest.approx(more)
    assert {"inprocess", "nvflare"} <= set(speeds.speeds().engines)


def test_amounts():
    assert Amount(3, 3, 3).is_exact
    assert Amount(3, 5).estimate == 3
    assert [value in Amount(3, 5) for value in (2, 3, 5, 6)] == [False, True, True, False]
