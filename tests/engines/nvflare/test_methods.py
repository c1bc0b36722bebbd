"""Every method over separate processes with TLS on: the in-process result, the same numbers in the ledger."""

from __future__ import annotations

import pytest

from .federations import dealt_columns, dealt_rows

pytestmark = pytest.mark.xdist_group("nvflare")

KERNEL = {"n_clusters": 10, "n_components": 10, "gamma": 0.2, "max_rounds": 5}
DSPGD = {**KERNEL, "n_features": 20, "n_iter": 3}
CASES = {
    "federated k-means": ("federated-kmeans", {"n_clusters": 10}, "none", "masked"),
    "landmarks, local": ("landmarks", {**KERNEL, "landmarks": "local"}, "averages", "masked"),
    "landmarks, summed": ("landmarks", {**KERNEL, "landmarks": "summed"}, "none", "masked"),
    "DSPGD, Gram": ("dspgd", {**DSPGD, "solver": "gram"}, "none", "masked"),
    "DSPGD, Lanczos": ("dspgd", {**DSPGD, "solver": "lanczos"}, "none", "masked"),
    "DSPGD, Gram, plain sums": ("dspgd", {**DSPGD, "solver": "gram"}, "averages", "plain"),
    "JL+BKLW": ("jl+bklw", {"n_clusters": 10}, "rows", "masked"),
}
SHORT = "federated k-means"


def test_federated_kmeans_over_processes(standing):
    """The short one: k-means, masked, by the standard rules."""
    standing.hold(dealt_rows(standing.folder))
    method, parameters, _, sums = CASES[SHORT]
    standing.check(standing.order(method, parameters, sums=sums))


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if name != SHORT])
def test_methods_over_processes(standing, case):
    """What needs averages or rows to be seen gets rules that allow it."""
    method, parameters, single, sums = CASES[case]
    standing.hold(dealt_rows(standing.folder), single=single)
    standing.check(standing.order(method, parameters, sums=sums))


@pytest.mark.slow
def test_columns_over_processes(standing):
    """Rows matched by tagged keys that are in another order at every site."""
    secret = "ab" * 32
    standing.key = "patient"
    try:
        standing.hold(
            dealt_columns(standing.folder),
            single="rows",
            more=f'alignment_key = "{secret}"',
            exempt="vertical-kernel-pca",
        )
        standing.check(standing.order("vertical-kernel-pca", {"n_clusters": 5, "local_rank": 20}, sums="masked"))
    finally:
        standing.key = None
