"""A cap on what one site may hold of all rows: a sum of row counts, which every site compares with its own."""

from __future__ import annotations

from coterie.errors import ShareTooLarge
from coterie.messages.bounds import Limits
from coterie.messages.schema import Nothing, Request
from coterie.messages.site_api import Memory, Table, remembers, rows_behind
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.counts import CountRows

ROUNDING = 1e-9
"""A masked count is not quite whole."""


class LimitShare(Request[Nothing], remembered=True, doing="limiting each site's share of all rows"):
    """All sites together hold ``rows`` rows; take no part if more than the share ``most`` of them is yours."""

    rows: float
    most: float

    def limits_after(self, limits: Limits) -> Limits:
        """Sites show their rows as before."""
        return limits


@remembers(LimitShare)
def keep_share(table: Table, memory: Memory, ask: LimitShare) -> None:
    """Compare one's own rows with all."""
    held = rows_behind(table)
    if held > ask.most * ask.rows * (1 + ROUNDING):
        raise ShareTooLarge(f"{held} of {ask.rows:g} rows are held here, more than the share {ask.most:g} of them")


def limit_share(most: float) -> Protocol[None]:
    """Every site that holds more than this share of all rows refuses to go on."""
    counts = yield from total(CountRows())
    yield from total(LimitShare(float(counts.held), most))
