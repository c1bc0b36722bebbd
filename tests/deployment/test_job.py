"""What a job carries: a signed order and the server's business, checked where it arrives."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest

from coterie import Privacy
from coterie.deployment.job import RemoteJob, read_job
from coterie.errors import InputError
from tests.orders import a_job

GOOD = a_job("lloyd", {"n_clusters": 3, "random_state": 1})
PLAIN = msgspec.to_builtins(GOOD)


def with_order(**change):
    """The job with another order; who signed it is for the sites to check."""
    raw = json.dumps({**json.loads(GOOD.order.order), **change}).encode()
    return {**PLAIN, "order": {**PLAIN["order"], "order": base64.b64encode(raw).decode()}}


def test_a_job_comes_back_as_it_was_written():
    job = read_job(PLAIN)
    assert job == GOOD
    assert job.estimator().get_params()["n_clusters"] == 3
    assert job.estimator().random_state == 1
    assert job.terms().deadline == 60.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "../../etc"}, "32 hex digits"),
        ({"run": "0" * 31 + "/"}, "32 hex digits"),
        ({"run": 7}, "run"),
        ({"method": "lloid"}, "lloid has no parameters"),
        ({"method": ["lloyd"]}, "method"),
        ({"method": "one-shot"}, "one-shot has no parameters"),
        ({"parameters": {"n_clusters": 3, "data": "/etc/passwd"}}, "no parameter 'data'"),
        ({"parameters": {"n_clusters": "many"}}, "n_clusters"),
        ({"parameters": {"n_clusters": -1}}, "n_clusters"),
        ({"parameters": {"n_clusters": 10**30}}, "n_clusters"),
        ({"data": "/etc/passwd"}, "unknown field"),
        ({"policy": "research"}, "unknown field"),
        ({"columns": []}, "names of the columns"),
        ({"columns": "a"}, "columns"),
        ({"columns": [1]}, "columns"),
        ({"scale": "log"}, "scale"),
        ({"missing": "guess"}, "missing"),
        ({"versions": {"numpy": ["2", "x"]}}, "versions '2' to 'x' of 'numpy'"),
        ({"method": "federated-pca", "settings": "PCASettings", "parameters": {}}, "finds components, not clusters"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused_in_words(change, words):
    with pytest.raises(InputError, match=words):
        read_job(with_order(**change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "/etc/passwd"}, "unknown field"),
        ({"policy": "open"}, "unknown field"),
        ({"order": "lloyd"}, "order"),
        ({"sums": "open"}, "sums"),
        ({"quorum": 0.0}, "quorum"),
        ({"quorum": 2.0}, "quorum"),
        ({"quorum": float("nan")}, "quorum"),
        ({"deadline": -1.0}, "deadline"),
        ({"deadline": float("nan")}, "deadline"),
        ({"deadline": 1e300}, "deadline"),
        ({"seed": 2**60}, "random_state"),
    ],
)
def test_a_job_that_says_anything_else_is_refused_in_words(change, words):
    with pytest.raises(InputError, match=words):
        read_job({**PLAIN, **change})


def test_where_each_site_has_its_own_columns_none_are_named():
    job = read_job(msgspec.to_builtins(a_job("vertical-kernel-pca", columns=[])))
    assert isinstance(job, RemoteJob)
    assert job.estimator().splits_columns
    assert job.read().columns == []


PRIVATE = {"privacy": Privacy(2.0, 1e-7, "row", 1)}
RANGES = ([0.0, 0.0], [1.0, 2.0])


def test_privacy_travels_with_the_order():
    job = read_job(msgspec.to_builtins(a_job("federated-kmeans", PRIVATE, ranges=RANGES)))
    assert job.read().privacy == PRIVATE["privacy"]
    assert Privacy.of(job.estimator().privacy) == PRIVATE["privacy"]


def test_an_order_without_privacy_says_nothing_of_it():
    assert "privacy" not in a_job("federated-kmeans").read().parameters


@pytest.mark.parametrize(
    ("parameters", "ranges", "words"),
    [
        (PRIVATE, None, "privacy needs ranges"),
        ({"privacy": Privacy(2.0), "max_rounds": 3}, RANGES, "privacy does not go with max_rounds"),
    ],
)
def test_a_private_order_that_cannot_be_is_refused_before_anyone_is_asked(parameters, ranges, words):
    with pytest.raises(InputError, match=words):
        read_job(msgspec.to_builtins(a_job("federated-kmeans", parameters, ranges=ranges)))


@pytest.mark.parametrize("privacy", [["Privacy", 1000.0, None, "row", 0], ["Privacy", 1.0], "much", {"epsilom": 1}])
def test_what_is_no_privacy_is_refused_in_words(privacy):
    raw = json.loads(a_job("federated-kmeans", PRIVATE, ranges=RANGES).order.order)
    with pytest.raises(InputError, match=r"epsilon=1000|is no Privacy|privacy has no 'epsilom'"):
        read_job(with_order(**{**raw, "parameters": {"n_clusters": 2, "privacy": privacy}}))
