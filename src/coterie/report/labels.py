"""Numbers of a result with what they are: exact, of whole groups, at most, or estimates. Sentences are made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.estimators.exactness import CostIs, CountsAre

ROWS_COLUMN = {CountsAre.ROWS: "rows", CountsAre.WHOLE_GROUPS: "rows_whole_groups", CountsAre.NOISY: "rows_about"}
"""The name of the column of sizes in a file."""
_HEADS = {CountsAre.ROWS: "rows", CountsAre.WHOLE_GROUPS: "rows in groups", CountsAre.NOISY: "rows (about)"}
COST_WORDS = {CostIs.EXACT: "", CostIs.AT_MOST: "at most ", CostIs.ESTIMATE: "about "}
"""What goes before a cost."""


def rows_head(result: Mapping[str, Any]) -> str:
    """The head of a column of sizes in a table for people; of a result that does not say, plain rows."""
    return _HEADS.get(result.get("counts_are", ""), "rows")


def cost_head(result: Mapping[str, Any]) -> str:
    """The head of a column of costs: ``cost, at most`` over groups."""
    words = COST_WORDS.get(result.get("cost_is", ""), "").strip()
    return f"cost, {words}" if words else "cost"


def size_text(result: Mapping[str, Any], count: float) -> str:
    """A size, ``about 1,200`` where it is noisy."""
    return f"{'about ' if result.get('counts_are') == CountsAre.NOISY else ''}{count:,.0f}"


def exactness_of(estimator: Any) -> dict[str, Any]:
    """How costs and sizes compare with those of the rows, as ``result.json`` has it."""
    kinds = {"cost_is": estimator.cost_is_.value, "counts_are": estimator.counts_are_.value}
    return {**kinds, "min_group": estimator.min_group_}


def facts_of(estimator: Any, n_held: int | None) -> dict[str, Any]:
    """How exact a result is. ``rows`` are all rows clustered, and those that the sites' tables hold, where these are
    at hand."""
    return {**exactness_of(estimator), "rows": {"clustered": float(estimator.counts_.sum()), "held": n_held}}


def rows_sentence(result: Mapping[str, Any]) -> str:
    """How many rows were clustered: ``918 of 920 rows`` where some were left out."""
    clustered, held = result["rows"]["clustered"], result["rows"]["held"]
    if result["counts_are"] == CountsAre.NOISY or held is None or round(clustered) == held:
        return f"{size_text(result, clustered)} rows"
    return f"{size_text(result, clustered)} of {held:,} rows"


def cost_sentence(result: Mapping[str, Any]) -> str:
    """The cost, and how exact it and the sizes are."""
    cost, counts = result["cost"], result["counts_are"]
    if counts == CountsAre.NOISY:
        if not cost > 0:
            return "too small to tell from the noise; sizes are estimates with noise"
        return f"about {cost:.3g}; sizes and costs are estimates with noise"
    text = f"{COST_WORDS[CostIs(result['cost_is'])]}{cost:.6g}"
    if counts == CountsAre.ROWS:
        return text
    return f"{text}; sizes count whole groups of at least {result['min_group']} rows"


def runs_table(facts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table of runs side by side."""
    heads = ["run", "method", "clusters", "rows", "cost", "rounds", "bytes sent", "protection", "seed"]
    lines = [
        [
            one["name"],
            one["method"],
            str(one["clusters"]),
            size_text(one, one["rows"]),
            f"{COST_WORDS[one['cost_is']]}{one['cost']:.6g}",
            str(one["rounds"]),
            f"{one['bytes_up']:,}",
            ", ".join(one["protection"]),
            str(one["seed"]["asked"]),
        ]
        for one in facts
    ]
    return heads, lines
