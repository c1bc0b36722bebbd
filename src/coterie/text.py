"""Parts of sentences that users read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def count_of(n: int, noun: str) -> str:
    """A number and its noun.

    >>> count_of(1, "row"), count_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def nearest_name(name: object, known: Iterable[object]) -> str:
    """What was meant by a name that is not known: the nearest one, or the list of all.

    >>> nearest_name("n_cluster", ["n_clusters", "gamma"]), nearest_name("x", ["n_clusters", "gamma"])
    ("; did you mean 'n_clusters'?", '; there are n_clusters, gamma')
    """
    names = [str(other) for other in known]
    close = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"
