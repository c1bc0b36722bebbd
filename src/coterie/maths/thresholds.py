"""How many sites' shares unmask a sum, and how many may be missing from one with noise."""

from __future__ import annotations


def threshold(n_sites: int) -> int:
    """How many of the other sites' shares give a site's own mask: two thirds, and more than half of all."""
    return max(2 * n_sites // 3, n_sites // 2 + 1) if n_sites > 2 else n_sites - 1


def may_tolerate(n_sites: int, tolerated: int) -> bool:
    """Whether noise stays enough where so many sites drop out or collude, as the server says to whom it likes.

    A site reveals its shares for one roster a question. Two sums with the same noise over different rosters need more
    revealing sites than there are, colluders counted twice; or every site's noise is enough by itself.
    """
    if tolerated == n_sites - 1:
        return True
    return all(
        2 * (threshold(n_sites - tolerated + colluding) + 1) > n_sites + colluding
        for colluding in range(tolerated + 1)
    )


def most_tolerated(n_sites: int) -> int:
    """The most sites that may drop out or collude, short of all but one."""
    return max(t for t in range(max(1, n_sites - 1)) if may_tolerate(n_sites, t))
