"""A server that asks what was not ordered, in a run that goes on around it: hundreds of questions, and no answer.

With the mechanism off each kind of them is answered. The same over processes: tests/engines/nvflare.
"""

from __future__ import annotations

import contextlib
import logging

import numpy as np
import pytest

from coterie import DSPGDKernelPCA, EdgeKMeans, FederatedKernelKMeans, FederatedKMeans
from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost
from coterie.estimators.fitting import fit_over
from coterie.estimators.registry import make_estimator
from coterie.methods.shared.preparation import PreparationOptions
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.attacks.changed_server import Changed, checked
from tests.federations import blobs

ROWS = blobs(240, 4, 3, seed=5)
TABLES = {f"s{i}": ArrayTable(ROWS[i::4]) for i in range(4)}
METHODS = [
    FederatedKMeans(3, random_state=1),
    EdgeKMeans(3, random_state=1),
    FederatedKernelKMeans(3, random_state=1),
    DSPGDKernelPCA(2, n_features=16, n_iter=2, random_state=1),
]


def fitted(estimator, *, is_changed, policy=None):
    with in_process(TABLES, policy=policy or Policy(), seed=3) as channel:
        columns = {"": next(iter(TABLES.values())).columns}
        changed = Changed(channel)
        used = changed if is_changed else channel
        made = fit_over(used, estimator, columns, PreparationOptions(), order=channel.analyst)
        return made, changed, channel


def numbers(estimator):
    return [v for v in vars(estimator).values() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]


@pytest.mark.parametrize("estimator", METHODS, ids=lambda e: type(e).__name__)
def test_no_site_answers_what_was_not_ordered_and_the_run_goes_on(estimator, caplog):
    plain = numbers(fitted(estimator, is_changed=False)[0])
    with caplog.at_level(logging.WARNING, "coterie.site"):
        made, changed, channel = fitted(estimator, is_changed=True)
    checked({"answered": changed.answered, "refused": changed.refused}, least=400)
    for one, other in zip(numbers(made), plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    n_refused = sum(changed.refused.values())
    assert len(caplog.records) >= n_refused  # a sentence each
    refusals = [record for record in caplog.records if getattr(record, "event", "") in ("refused", "failed")]
    assert all(record.getMessage() and record.code for record in refusals)
    assert refusals
    for site in channel.members.values():
        assert site.ledger.total("answers") > 0


CONTROLS = {
    "cells": Policy(verification="off", protection="none", per_site_results="averages"),
    "masked cells": Policy(verification="off", protection="none"),
    "magnitudes": Policy(verification="off", per_site_results="averages"),
    "column sums of complete rows": Policy(verification="off", per_site_results="averages"),
}


@pytest.mark.parametrize("what", CONTROLS)
def test_without_verification_sites_answer_as_often_as_they_are_asked(what):
    """The control: the same server, and one kind of question after the other."""
    lloyd = make_estimator("lloyd", {"n_clusters": 3})
    for policy, n_answered in ((CONTROLS[what], 120), (Policy(), 0)):
        with in_process(TABLES, policy=policy) as channel:
            changed = Changed(channel, only=what, times=30)
            columns = {"": next(iter(TABLES.values())).columns}
            with contextlib.suppress(QuorumLost):  # its questions may take the place of the run's
                fit_over(changed, lloyd, columns, PreparationOptions(), order=channel.analyst)
        assert changed.answered[what] >= n_answered, changed.by_what
        assert bool(changed.answered) == bool(n_answered)
