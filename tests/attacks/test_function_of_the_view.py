"""Everything that leaves is a function of the groups: two federations with the same groups and no row in common.

Every method that a policy allows is run over both, with masked and plain sums, and all answers have to be the same
numbers. A method that saw one row would answer differently: one federation has every row on the other side of its
group's mean, another one has rows of every group turned about it, so that no distance from the mean is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost
from coterie.estimators.comparing import ModelComparison
from coterie.estimators.describing import TableDescriber
from coterie.estimators.registry import make_estimator
from coterie.messages.contributions import PrivateRequest
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers
from coterie.methods.analysis.compare import ClusterRule
from coterie.methods.edge.pca import View
from coterie.methods.edge.sites import SendScatter
from coterie.methods.kernel.landmarks.whole_features import ShowFeatures
from coterie.methods.method import PREPARATION, Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import UseColumns
from coterie.methods.shared.choosing import RateCandidates, SumHalves
from coterie.methods.shared.counts import PoolRows
from coterie.methods.shared.halves import CompareHalf
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.plain import plain
from coterie.methods.shared.private_profiles import UseLabelled
from coterie.methods.shared.profiles import CountByCluster, SumByCluster
from coterie.methods.shared.restarts import AssignEach, CompareStarts
from coterie.methods.shared.shares import LimitShare
from coterie.methods.shared.starts import Split, Summarise
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.runtime.run import run
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.policy_files import preset
from coterie.sites.views import forming, grouped_view
from tests.attacks.asker import Asker, sum_columns
from tests.attacks.twins import Federation, Recorder, Rows, Twin, differences, planted_groups, twin_of
from tests.federations import blobs
from tests.invariants.cases import CASES, D

TWINS: tuple[Twin, ...] = ("reflected", "turned")
OPEN = replace(preset("research"), per_site_results="rows", min_group=5)
POLICIES = {"standard": preset("standard"), "research": preset("research"), "rows": OPEN}
"""From careful to open; all of them protect rows by groups."""
LEVELS = tuple(POLICIES)
ROUNDING = 1e-9
"""Where thin cells are pooled, a product of columns is no exact sum: so much of an array's largest number."""

# ---------------------------------------------------------------- the runs


@dataclass(frozen=True)
class Variant:
    """One way to run a method, and the most careful policy that allows it."""

    options: Mapping[str, Any]
    level: str = "standard"
    is_pca: bool = False
    """Whether components, or numbers of clusters, are looked for, and not clusters."""


def _variants(*options: Mapping[str, Any], level: str = "standard", is_pca: bool = False) -> list[Variant]:
    return [Variant(one, level, is_pca) for one in options]


SUMMARY = _variants({}, {"lift": "means"}, {"refine": 2}, {"center": False}, level="rows")
VARIANTS: dict[str, list[Variant]] = {
    "lloyd": [*_variants({}, {"max_rounds": 3}), *_variants({"init": "one-shot"}, level="research")],
    "federated-kmeans": [
        *_variants({}, {"init": "var-part", "epochs": 2, "batch_size": 16}, {"reassign": True}),
        *_variants({"server_momentum": 0.5, "site_rate": 0.5, "max_rounds": 6}),
        *_variants({"fraction": 0.7, "max_rounds": 5}, {"init": "one-shot"}, level="research"),
    ],
    "landmarks": [
        *_variants({"n_landmarks": 12}, {"landmarks": "summed", "n_landmarks": 8}, {"n_components": 3}),
        *_variants({"n_landmarks": 10, "n_components": 2}, is_pca=True),
        *_variants({"landmarks": "local", "n_landmarks": 12}, level="research"),
        *_variants({"landmarks": "local", "n_components": 2}, level="research", is_pca=True),
    ],
    "dspgd": [
        *_variants({"n_features": 8, "n_iter": 2}, {"n_features": 6, "n_iter": 3, "solver": "gram"}),
        *_variants({"n_features": 8, "n_iter": 2, "solver": "lanczos"}),
        *_variants({"n_features": 8, "n_iter": 2, "kernel": "polynomial", "gamma": 0.01, "degree": 2}),
        *_variants({"n_features": 8, "n_iter": 2, "n_components": 2}, is_pca=True),
        *_variants({"n_features": 8, "n_iter": 2, "clustering": "coreset", "n_points": 20}, level="rows"),
    ],
    "one-shot": _variants({}, level="research"),
    "edge-kmeans": [
        *_variants({}, {"refine": 2}),
        *_variants({"pipeline": "jl:3+centers"}, {"pipeline": "jl:3+centers", "lift": "means"}, level="research"),
        *_variants({"pipeline": "jl:4+dispca:3+jl:3+sample:30"}, {"pipeline": "dispca:4"}, level="rows"),
    ],
    "federated-pca": [
        *_variants({}, {"solver": "sums", "center": False}, is_pca=True),
        *_variants({"solver": "local"}, {"solver": "local", "local_rank": 4}, level="research", is_pca=True),
    ],
    "describe": _variants({}),
    "choose-k": _variants({"max_clusters": 4}, is_pca=True),
    "compare": _variants({}),
    "rfk": _variants({"n_features": 8, "n_points": 20}, {"n_features": 4, "n_points": 12}, level="rows"),
    **dict.fromkeys(("fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"), SUMMARY),
}
"""By method; those not named here are refused by every policy that protects rows by groups."""
VARIANTS |= {
    name: _variants({}, level={"sums": "standard", "averages": "research", "rows": "rows"}[method.visibility])
    for name, method in METHODS.items()
    if not method.needs_rows and name not in VARIANTS  # of another package
}


def _rule(k: int, seed: int) -> Any:
    """A model of k clusters of all columns."""
    centers = np.random.default_rng(seed).normal(size=(k, 4)) * 100
    return plain(ClusterRule([f"x{i}" for i in range(4)], None, None, centers))


def _estimator(method: str, variant: Variant, k: int, seed: int) -> Any:
    if method == "describe":
        return TableDescriber(random_state=seed)
    if method == "choose-k":
        return coterie.NumberOfClusters(**variant.options, random_state=seed)
    if method == "compare":
        return ModelComparison(first=_rule(k, seed), second=_rule(k + 1, seed + 9), random_state=seed)
    if method == "federated-pca":
        return coterie.FederatedPCA(**{"n_components": 2, **variant.options, "random_state": seed})
    if variant.is_pca:
        kind = coterie.FederatedKernelPCA if method == "landmarks" else coterie.DSPGDKernelPCA
        return kind(**variant.options, random_state=seed)
    return make_estimator(method, {"n_clusters": k, "random_state": seed, **variant.options})


def _runs(method: str, level: str, n_runs: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Estimators, and how they are fitted: other variants, seeds, numbers of clusters, scales and sums in turn."""
    allowed = [one for one in VARIANTS[method] if LEVELS.index(one.level) <= LEVELS.index(level)]
    box = np.full((2, 1), 4000.0) * [[-1], [1]] * np.ones((2, 4))
    scales: list[dict[str, Any]] = [{"scale": "standard"}, {}, {"scale": "minmax", "ranges": (box[0], box[1])}]
    for i in range(n_runs):
        sums = "plain" if level != "standard" and i % 2 else "masked"
        variant = allowed[i % len(allowed)]
        made = _estimator(method, variant, 2 + i % 3, i)
        has_clusters = method not in ("describe", "compare")
        preparing = scales[i % len(scales)] if has_clusters else {}
        yield made, {"sums": sums, "profile": not variant.is_pca and has_clusters, **preparing}


def _record(federation: Federation, method: str, level: str, n_runs: int, **options: Any) -> Recorder:
    """Everything that leaves over several runs on the same tables."""
    heard, tables = Recorder(), federation.tables()
    with planted_groups(federation), heard.listening():
        for estimator, preparing in _runs(method, level, n_runs):
            coterie.fit(estimator, tables, **{"policy": POLICIES[level], **preparing, **options})
    return heard


METHODS_BY_POLICY = [
    (method, level)
    for method, variants in VARIANTS.items()
    for level in LEVELS
    if any(LEVELS.index(one.level) <= LEVELS.index(level) for one in variants)
]
every = pytest.mark.parametrize(("method", "level"), METHODS_BY_POLICY)


def test_both_federations_show_the_same_to_the_last_bit() -> None:
    """Products of columns among it, so that they are compared, too."""
    federation = Federation.drawn()
    first, *others = (_shown(one) for one in (federation, *(twin_of(federation, how) for how in TWINS)))
    assert len(first) == 15
    for other in others:
        assert all(np.array_equal(one, two) for one, two in zip(first, other, strict=True))


def _shown(federation: Federation) -> list[Any]:
    with planted_groups(federation):
        views = [grouped_view(table, 5, SiteLedger()) for table in federation.tables().values()]
    parts = [(*next(view.raw_blocks())[:3], view.within_columns, view.within_scatter) for view in views]
    return [part for site in parts for part in site if part is not None]


@every
@pytest.mark.parametrize("n_runs", [1, 3, pytest.param(20, marks=pytest.mark.slow)])
def test_all_answers_are_the_same_for_other_rows_with_the_same_groups(method: str, level: str, n_runs: int) -> None:
    federation = Federation.drawn(seed=n_runs)
    heard = _record(federation, method, level, n_runs)
    least = 6 if method == "compare" else 9  # which asks once
    assert sum(map(len, heard.answers.values())) >= least * n_runs
    for how in TWINS:
        assert not differences(heard, _record(twin_of(federation, how), method, level, n_runs))


@pytest.mark.parametrize("missing", ["mean", "drop"])
@pytest.mark.parametrize("method", ["lloyd", "landmarks", "dspgd", "edge-kmeans", "federated-pca"])
def test_the_same_where_values_are_missing_and_thin_cells_are_pooled(method: str, missing: str) -> None:
    federation = Federation.drawn(missing=True)
    heard = _record(federation, method, "standard", 2, missing=missing)
    for how in TWINS:
        twin = _record(twin_of(federation, how), method, "standard", 2, missing=missing)
        assert not differences(heard, twin, ROUNDING)


@pytest.mark.parametrize("missing", ["mean", "drop"])
@pytest.mark.parametrize("method", ["lloyd", "landmarks", "federated-pca"])
def test_the_same_for_some_of_the_columns(method: str, missing: str) -> None:
    """Which groups are complete differs from selection to selection; what they show is a function of the groups."""
    federation = Federation.drawn(missing=True)
    names = [column.name for column in next(iter(federation.tables().values())).columns]
    for chosen in ([names[2], names[0]], names[1:], names[::-1]):
        recorded = [
            _record(one, method, "standard", 1, missing=missing, columns=chosen)
            for one in (federation, *(twin_of(federation, how) for how in TWINS))
        ]
        assert not any(differences(recorded[0], twin, ROUNDING) for twin in recorded[1:])


def test_every_question_of_every_method_that_is_allowed_was_asked() -> None:
    """The answers compared above are those to all questions there are: one that is new has to be added."""
    every = {request for method in VARIANTS for request in (*PREPARATION, *METHODS[method].requests)}
    of_noise = {request for request in every if issubclass(request, PrivateRequest)}
    of_noise |= {ShowWhole, ShowFeatures, UseLabelled}
    asked = {request.kind for request in every - of_noise}  # these see rows: test_private_questions.py
    federation, heard = Federation.drawn(), set[str]()
    for method, level in METHODS_BY_POLICY:
        n_runs = 2 * len(VARIANTS[method])
        heard |= _record(federation, method, level, n_runs).kinds
    only_if_ordered = {CompareHalf.kind, LimitShare.kind, UseColumns.kind}
    # asked where rows are shown as they are; an attacker asks it below
    assert asked - heard == {PoolRows.kind, *only_if_ordered}


# ---------------------------------------------------------------- methods that are refused


def test_every_other_method_needs_rows_or_is_refused() -> None:
    assert {name for name, method in METHODS.items() if method.needs_rows} == METHODS.keys() - VARIANTS.keys()
    for name, variants in VARIANTS.items():
        assert METHODS[name].sends_rows == all(one.level == "rows" for one in variants)


ROW_CASES = [case for case in CASES if case.discloses_rows]


@pytest.mark.parametrize("case", ROW_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("level", LEVELS)
def test_sites_refuse_methods_for_rows_themselves(case: Any, level: str) -> None:
    if level == "rows" and not METHODS[case.method].needs_rows:
        pytest.skip("here every group's mean may be sent")
    policy, rows, heard = POLICIES[level], blobs(90, D, 3, seed=21), Recorder()
    with heard.listening(), in_process(case.split(rows, 3), policy=policy) as channel, pytest.raises(QuorumLost):
        run(case.protocol(rows), channel, method=case.method)
    refused = {one.refusal for given in heard.answers.values() for one in given if one.refusal is not None}
    against_rows = {Refusal.ROWS_PROTECTED, Refusal.ROWS_FORBIDDEN, Refusal.SINGLE_ANSWER_FORBIDDEN}
    assert refused <= against_rows | {Refusal.NOT_ORDERED}
    if METHODS[case.method].needs_rows:
        assert not heard.kinds


# ---------------------------------------------------------------- questions of an attacker's own


def _chosen_questions(rng: np.random.Generator, d: int, n_groups: int) -> Iterator[tuple[str, Request[Any]]]:
    """Questions, and under which method they are asked: cells cut anywhere, totals, products through any map."""
    spread = 20 * np.array([1.0, 2.0, 1.0, 64.0])
    while True:
        yield "lloyd", Assign(rng.normal(size=(int(rng.integers(1, 6)), d)) * spread)
        yield "lloyd", Close(rng.normal(size=(2, d)) * spread)
        origin, column = rng.normal(size=d) * spread, int(rng.integers(d))
        names, at = tuple(f"x{i}" for i in range(d)), rng.normal(size=(3, d)) * spread
        none = np.zeros(0)
        yield "lloyd", SumByCluster(names, none, none, at, origin, 3)
        yield "lloyd", CountByCluster(names[:2], none, none, 5, np.ones(3), at, at[:, :2] - 9, at[:, :2] + 9)
        places, cut = rng.normal(size=(int(rng.integers(4)), d)) * spread, rng.normal(size=1) * spread[column]
        yield "lloyd", Split(2, np.zeros(1, int), np.array([column]), cut, origin, places)
        starts = rng.normal(size=(int(rng.integers(1, 4)), 2, d)) * spread
        yield "lloyd", (AssignEach if rng.integers(2) else CompareStarts)(starts)
        yield "choose-k", SumHalves(int(rng.integers(1 << 20)), origin, rng.normal(size=(5, d)) * spread)
        candidates = rng.normal(size=(3, 5, d)) * spread
        yield "choose-k", RateCandidates(13, np.array([2, 3]), *candidates)
        yield "lloyd", Summarise(int(rng.integers(2, 9)), d, int(rng.integers(1 << 20)), 0)
        yield "lloyd", sum_columns(d, drop=bool(rng.integers(2)))
        view = View(d, int(rng.integers(1 << 20)), origin).projected(3, "gaussian")
        yield "federated-pca", SendScatter(*view.fields(), 6, 3, view.reach)
        yield "edge-kmeans", PoolRows(n_groups, d, n_groups)


def _answers_to(rows: Rows, policy: Policy, n_questions: int) -> Recorder:
    heard, asker = Recorder(), Asker.of(rows, policy)
    asked = _chosen_questions(np.random.default_rng(3), rows.shape[1], asker.site._tables["groups"].n_rows)
    with heard.listening():
        for _ in range(n_questions):
            asker.method, question = next(asked)
            asker.ask(question)
    return heard


def test_a_thousand_chosen_questions_get_the_same_answers() -> None:
    federation = Federation.drawn((200,))
    with planted_groups(federation):
        heard = _answers_to(federation.rows["site-0"], OPEN, 1000)
        assert not any(one.refusal for one in heard.answers["here"])
        for how in TWINS:
            assert not differences(heard, _answers_to(twin_of(federation, how).rows["site-0"], OPEN, 1000))


# ---------------------------------------------------------------- the comparison can fail


BY_DISTANCES = [name for name in VARIANTS if not METHODS[name].sends_rows and name != "federated-pca"]
"""Methods that do more with rows than sum up products of columns: these sums are the same in both federations."""


@pytest.mark.parametrize("method", BY_DISTANCES)
@pytest.mark.parametrize("how", TWINS)
def test_over_rows_as_they_are_answers_differ(method: str, how: Twin) -> None:
    federation = Federation.drawn()
    open_ = Policy(protection="none", per_site_results="averages")
    heard = _record(federation, method, "research", 1, policy=open_)
    assert differences(heard, _record(twin_of(federation, how), method, "research", 1, policy=open_), ROUNDING)


@pytest.mark.parametrize("method", VARIANTS)
@pytest.mark.parametrize("how", TWINS)
def test_a_view_that_shows_a_single_row_is_noticed(method: str, how: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """One group of one site shows its first row in place of its mean."""
    level = LEVELS[min(LEVELS.index(one.level) for one in VARIANTS[method])]
    made = forming.group_cells

    def one_row_shown(rows: Rows, labels: Any, *options: Any) -> Any:
        cells = made(rows, labels, *options)
        if len(rows) == 200:
            cells.means[0] = rows[np.argmax(labels == 0)]
        return cells

    monkeypatch.setattr(forming, "group_cells", one_row_shown)
    federation = Federation.drawn()
    heard = _record(federation, method, level, 1)
    assert differences(heard, _record(twin_of(federation, how), method, level, 1), ROUNDING)


class Extreme(Reply, content="sums"):
    """The squared distance of one row from the mean of its group, in all columns."""

    size: Floats = array(bound="rows * box")


class FindExtreme(Request[Extreme]):
    """How far from its group's mean is the row that is farthest?"""


def test_a_function_that_sees_a_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers with one number of one row, which is no other one where the row is reflected."""
    federation = Federation.drawn((200,))
    rows, labels = federation.rows["site-0"], federation.labels["site-0"]
    twin = twin_of(federation, "turned").rows["site-0"]
    shown = [rows]

    @answers(FindExtreme)
    def local_extreme(table: Table, memory: Memory, ask: FindExtreme) -> Extreme:
        own = shown[0][labels == 0]
        return Extreme(((own - own.mean(axis=0)) ** 2).sum(axis=1).max())

    monkeypatch.setitem(METHODS, "extreme", Method("extreme", "one row", (FindExtreme,), "1", "a row"))
    heard = []
    with planted_groups(federation):
        for shown[0] in (rows, twin):
            asker = Asker.of(shown[0], preset("research"), method="extreme")
            with Recorder().listening() as one:
                asker.ask(FindExtreme())
            heard.append(one)
    assert heard[0].kinds == {FindExtreme.kind}
    assert differences(*heard, ROUNDING)
