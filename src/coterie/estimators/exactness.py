"""How exact the numbers of a result are: facts as values, from which sentences are made where people read them."""

from __future__ import annotations

from enum import StrEnum


class CostIs(StrEnum):
    """How a reported cost compares with that of the rows."""

    EXACT = "exact"
    """That of the rows, but for rounding."""
    AT_MOST = "at_most"
    """That of groups, each assigned whole: the rows' cost is at most as large."""
    ESTIMATE = "estimate"
    """Near that of the rows, above or below."""


class CountsAre(StrEnum):
    """What sizes count."""

    ROWS = "rows"
    """Rows, exactly."""
    WHOLE_GROUPS = "whole_groups"
    """Groups of rows, each counted whole with all its rows: sizes add up exactly, single ones may be a little off."""
    NOISY = "noisy"
    """Rows, with noise added."""


def sizes_are(min_group: int, *, is_private: bool) -> CountsAre:
    """What sizes count where sites showed groups of at least so many rows (0: rows), or noisy sums."""
    if is_private:
        return CountsAre.NOISY
    return CountsAre.WHOLE_GROUPS if min_group else CountsAre.ROWS


def cost_compares(counts: CountsAre, over_groups: CostIs) -> CostIs:
    """How a cost compares that comes from such counts; ``over_groups`` is how it does where sites show groups."""
    return {CountsAre.ROWS: CostIs.EXACT, CountsAre.WHOLE_GROUPS: over_groups, CountsAre.NOISY: CostIs.ESTIMATE}[
        counts
    ]
