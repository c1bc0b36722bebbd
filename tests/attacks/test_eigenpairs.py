"""What a site's eigenpairs tell: all distances between its rows, and so the rows up to a turn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.methods.shared.alignment import Attend, SendTags, row_tags
from coterie.methods.vertical.sites import (
    Decompose,
    FindRank,
    MeasureSpread,
    ReportProducts,
    SumDistances,
    SumProducts,
)
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import Asker

ROWS = np.random.default_rng(7).normal(size=(60, 3)) @ np.diag([3.0, 1.0, 0.5]) + 40.0
GAMMA = 0.02
METHOD = "vertical-kernel-pca"
OPEN = Policy(per_site_results="rows", protection="none", alignment_key=bytes(32))


def scaled(kernel_matrix):
    """Classical scaling of the distances behind an rbf kernel matrix."""
    squared = -np.log(np.clip(kernel_matrix, 1e-12, 1.0)) / GAMMA
    off = np.eye(60) - 1 / 60
    values, vectors = np.linalg.eigh(-off @ squared @ off / 2)
    return vectors[:, -3:] * np.sqrt(np.maximum(values[-3:], 0))


def away(found, known):
    """Mean distance of rows turned by means of the known ones, over the rows' own spread."""
    turn, _ = orthogonal_procrustes(found[known] - found[known].mean(0), ROWS[known] - ROWS[known].mean(0))
    turned = (found - found[known].mean(0)) @ turn + ROWS[known].mean(0)
    return np.sqrt(((turned - ROWS) ** 2).sum() / ((ROWS - ROWS.mean(0)) ** 2).sum())


@pytest.mark.parametrize(("rank", "most"), [(60, 1e-4), (25, 0.02), (10, 0.3)])
@pytest.mark.parametrize("known", [slice(None), slice(0, 6)])
def test_a_few_known_rows_turn_eigenpairs_into_all_rows(rank, most, known):
    reply = Asker.of(ROWS, OPEN, method=METHOD).ask(Decompose("rbf", GAMMA, 0, 60, rank, rank, "float64"))
    found = scaled((reply.vectors * reply.values) @ reply.vectors.T)
    assert away(found, known) < most


def test_a_linear_kernel_gives_rows_at_once():
    reply = Asker.of(ROWS, OPEN, method=METHOD).ask(Decompose("linear", 1.0, 0, 60, 3, 3, "float32"))
    found = reply.vectors * np.sqrt(reply.values)
    turn, _ = orthogonal_procrustes(found[:3], ROWS[:3])  # three known rows
    np.testing.assert_allclose(found @ turn, ROWS, atol=1e-3)


QUESTIONS = [
    Decompose("rbf", GAMMA, 0, 60, 2, 2, "float64"),
    MeasureSpread(),
    FindRank("rbf", GAMMA, 0, 60, 5, 0.5),
    SendTags(60, False),
    SumDistances(GAMMA, 0, 2, 60, "float64"),
    SumProducts(0, 2, np.ones((60, 1))),
    ReportProducts(0, 2, np.ones((60, 1))),
    Attend(False),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_none_of_it_leaves_a_site_that_does_not_allow_rows(question, allowed):
    policy = Policy(per_site_results=allowed, protection="none", alignment_key=bytes(32))
    table = ArrayTable(ROWS, keys=range(60))
    table.new = ArrayTable(ROWS[:5])
    refused = Asker.of(table, policy, method=METHOD).ask(question)
    assert refused in (Refusal.ROWS_FORBIDDEN, Refusal.SINGLE_ANSWER_FORBIDDEN)
    assert isinstance(Asker.of(table, OPEN, method=METHOD).ask(question), Reply)


def test_tags_name_rows_only_to_who_knows_the_secret():
    """A server that knows every possible key tries them all."""
    secret = bytes(range(32))
    policy = Policy(per_site_results="rows", protection="none", alignment_key=secret)
    keys = [f"patient-{i:03d}" for i in range(0, 600, 10)]
    reply = Asker.of(ArrayTable(ROWS, keys=keys), policy, method=METHOD).ask(SendTags(60, False))
    all_keys = [f"patient-{i:03d}" for i in range(1000)]
    for guess in (b"", bytes(32), b"patient"):
        assert not set(row_tags(all_keys, guess).tolist()) & set(reply.tags.tolist())
    assert len(set(row_tags(all_keys, secret).tolist()) & set(reply.tags.tolist())) == 60
