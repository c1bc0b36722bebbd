"""What an analyst orders: plain values, checked where they arrive."""

from __future__ import annotations

import msgspec
import pytest

from coterie.deployment.order import Order, read_order
from coterie.errors import InputError

GOOD = {"run": "0" * 32, "method": "lloyd", "parameters": {"n_clusters": 3, "random_state": 1}, "columns": ["a", "b"]}


def test_an_order_comes_back_as_it_was_written():
    order = read_order(GOOD)
    assert read_order(msgspec.to_builtins(order)) == order
    assert order.estimator().get_params()["n_clusters"] == 3
    assert order.terms().deadline == 60.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "../../etc"}, "32 hex digits"),
        ({"run": "0" * 31 + "/"}, "32 hex digits"),
        ({"method": "lloid"}, "did you mean 'lloyd'"),
        ({"parameters": {"n_clusters": 3, "data": "/etc/passwd"}}, "no parameter 'data'"),
        ({"data": "/etc/passwd"}, "unknown field"),
        ({"policy": "research"}, "unknown field"),
        ({"columns": []}, "names of the columns"),
        ({"columns": "a"}, "columns"),
        ({"sums": "open"}, "sums"),
        ({"quorum": 0.0}, "quorum"),
        ({"deadline": -1.0}, "deadline"),
        ({"scale": "log"}, "scale"),
        ({"missing": "guess"}, "missing"),
    ],
)
def test_anything_else_is_refused_in_words(change, words):
    with pytest.raises(InputError, match=words):
        read_order({**GOOD, **change})


def test_where_each_site_has_its_own_columns_none_are_named():
    order = read_order({**GOOD, "method": "vertical-kernel-pca", "columns": []})
    assert isinstance(order, Order)
    assert order.estimator().splits_columns
