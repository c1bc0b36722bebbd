"""Sites with guards, rows on a line and where to cut it, and random partitions: what tests of guards ask about."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from coterie.protocols.seeding import Split
from coterie.sites.ledger import SiteLedger
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ON, Asker

LIMITS = {"rows": 100.0, "box": 100.0}


def line(n):
    """Rows on a line, in order, of which no two sets have the same sum."""
    return np.sort(np.random.default_rng(n).uniform(0, 1, (n, 1)) + np.arange(n)[:, None], axis=0)


def cut_at(*places):
    """Split a line before these rows."""
    n = len(places)
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(places, float) - 1e-9, np.zeros(1))


def asker(rows, policy=ON, path=None, **options):
    table = ArrayTable(rows, **options)
    return Asker(Site("here", table, policy=policy, ledger=SiteLedger(path)))


@st.composite
def partitions(draw):
    """Rows, and a few sets of centers, near to and far from each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.normal(size=(draw(st.integers(0, 45)), 2))
    centers = rng.normal(size=(draw(st.integers(1, 8)), 2))
    steps = draw(st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.5, 2.0]), min_size=2, max_size=7))
    return rows, [centers + step * rng.normal(size=centers.shape) for step in steps]


def sites(policy, names="abcde", folder=None):
    rng = np.random.default_rng(8)
    return {
        name: Site(
            name,
            ArrayTable(rng.normal(size=(30, 2))),
            policy=policy,
            ledger=SiteLedger(None if folder is None else folder / f"{name}.jsonl"),
        )
        for name in names
    }
