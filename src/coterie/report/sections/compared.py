"""This run beside others: agreement of labels, corresponding centers, cost, bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.report.labels import runs_table
from coterie.report.markup import RunFiles, number, paragraph, section, table


def compared(run: RunFiles) -> str:
    """Nothing unless the page was asked for with other runs."""
    if run.compared is None:
        return ""
    facts, pairs = run.compared
    return section(
        "compared", "Beside other runs", table(*runs_table(facts)), *(part for pair in pairs for part in _pair(pair))
    )


def _pair(pair: Mapping[str, Any]) -> Iterator[str]:
    """How far two runs agree, and which centers correspond."""
    first, second, agreement = pair["first"], pair["second"], pair["agreement"]
    if agreement is not None:
        over = (
            " in whole groups: an estimate of that of the rows" if agreement["counts_are"] == "whole_groups" else ""
        )
        yield paragraph(
            f"{first} and {second}: adjusted Rand index {agreement['ari']:.3f} over {agreement['rows']:,.0f} "
            f"rows{over}. It is 1 for the same clusters, and about 0 for unrelated ones."
        )
        counts = agreement["table"]
        lines = [[f"cluster {i} of {first}", *(f"{count:,.0f}" for count in row)] for i, row in enumerate(counts)]
        heads = ["rows in both", *(f"{j} of {second}" for j in range(len(counts[0])))]
        yield table(heads, lines)
    if pair["centers"] is not None:
        found = pair["centers"]
        lines = [
            [f"{i} of {first}", f"{j} of {second}", number(distance)]
            for (i, j), distance in zip(found["pairs"], found["distances"], strict=True)
        ]
        yield table(["cluster", "corresponds to", "distance of centers, in the first run's scale"], lines)
    yield from (paragraph(note) for note in pair["notes"])
