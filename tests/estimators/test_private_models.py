"""Differential privacy in fitted models: kept in files and read back; what sites would refuse is said beforehand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans, Privacy
from coterie.errors import InputError, RunError
from coterie.estimators.kmeans import LloydKMeans
from coterie.estimators.models import load_model, save_model
from coterie.estimators.registry import make_estimator
from coterie.sites.policy import Policy, PrivacyRules
from tests.federations import blobs

BOX = ([-30.0] * 2, [30.0] * 2)
ROWS = blobs(3000, 2, 3, seed=4)
SITES = dict(zip("abc", np.array_split(ROWS, 3), strict=True))
NOISE = Policy(protection="noise", privacy=PrivacyRules(4.0))


def private(epsilon=1.0, **more):
    return FederatedKMeans(3, privacy=Privacy(epsilon, **more), random_state=0)


def test_a_saved_model_gives_its_promise_back(tmp_path):
    model = coterie.fit(private(1.5, tolerated=2), SITES, policy=NOISE, ranges=BOX)
    again = load_model(save_model(model, tmp_path / "model.json"))
    assert again.privacy_ == model.privacy_
    assert (again.privacy_.epsilon, again.privacy_.sites, again.privacy_.tolerated) == (1.5, 3, 2)
    assert again.privacy == model.privacy
    assert np.array_equal(again.cluster_centers_, model.cluster_centers_)


def test_a_model_without_privacy_and_one_of_an_earlier_version_have_none(tmp_path):
    model = FederatedKMeans(3, random_state=0).fit(ROWS)
    path = save_model(model, tmp_path / "model.json")
    assert load_model(path).privacy_ is None
    raw = json.loads(path.read_text())
    del raw["privacy"], raw["parameters"]["privacy"]
    path.write_text(json.dumps(raw))
    assert load_model(path).privacy_ is None


@pytest.mark.parametrize("spoil", [{"epsilon": "much"}, {"releases": [{"what": 3}]}, {"sites": None}])
def test_a_damaged_promise_is_one_clear_error(tmp_path, spoil):
    path = save_model(private().fit(ROWS, ranges=BOX), tmp_path / "model.json")
    raw = json.loads(path.read_text())
    raw["privacy"] = {**raw["privacy"], **spoil}
    path.write_text(json.dumps(raw))
    with pytest.raises(InputError, match="the model file is damaged"):
        load_model(path)


@pytest.mark.parametrize(
    ("estimator", "policy", "told"),
    [
        (FederatedKMeans(3), NOISE, "the policy of a, b, c answers only differentially private orders; give"),
        (LloydKMeans(3), NOISE, "lloyd cannot be run privately; use federated-kmeans"),
        (private(), Policy(), r"the policy of a, b, c has no budget for .*; add a section \[privacy\] with"),
        (private(), {"a": Policy(), "b": NOISE, "c": NOISE}, "the policy of a has no budget"),
        (private(5.0), NOISE, "takes epsilon=5 of the budget of a, which is epsilon=4 at delta=1e-06 for one row"),
        (private(tolerated=3), NOISE, "tolerated=3 of 3 sites; at least one must be left"),
    ],
)
def test_what_sites_would_refuse_is_said_before_anything_is_sent(estimator, policy, told):
    seen = []
    with pytest.raises(InputError, match=told):
        coterie.fit(estimator, SITES, policy=policy, ranges=BOX, watch=seen.append)
    assert seen == []


def test_no_refusal_tells_how_many_rows_there_are_in_a_private_run_under_groups():
    rules = Policy(min_rows=10_000, privacy=PrivacyRules(4.0))
    with pytest.raises(RunError, match="holds too few rows to take part"):
        coterie.fit(FederatedKMeans(2), SITES, policy=rules)
    assert coterie.fit(private(2.0), SITES, policy=rules, ranges=BOX).cluster_centers_.shape == (3, 2)
    few = {name: rows[:4] for name, rows in SITES.items()}
    with pytest.raises(InputError, match="shows only groups of at least 5 rows"):
        coterie.fit(FederatedKMeans(2), few)
    with pytest.raises(InputError, match="noise hides the rows"):
        coterie.fit(private(0.1), few, policy=Policy(privacy=PrivacyRules(4.0)), ranges=BOX)


def test_a_method_by_name_that_cannot_be_private_names_one_that_can():
    with pytest.raises(InputError, match="one-shot cannot be run privately; use federated-kmeans"):
        make_estimator("one-shot", {"n_clusters": 2, "privacy": Privacy(1.0)})
