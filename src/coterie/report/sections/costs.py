"""What a run cost: bytes and rounds by site, beside sending the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.estimators.exactness import CountsAre
from coterie.report.markup import RunFiles, paragraph, section, table
from coterie.text import count_of

NUMBER_BYTES = 8
"""Of a value of a table, as a number of double precision."""


def costs(run: RunFiles) -> str:
    """A sentence, and a line a site."""
    head = ["site", "values sent", "bytes sent", "bytes received", "rounds", "rounds for keys and proofs"]
    names = ("floats_up", "bytes_up", "bytes_down", "rounds", "rounds_masking")
    lines = [[site, *(f"{count[name]:,}" for name in names)] for site, count in run.ledger["sites"].items()]
    total = run.ledger["total"]
    if len(lines) > 1:
        lines.append(["all sites", *(f"{total[name]:,}" for name in names)])
    result = run.result
    sentence = (
        f"The sites sent {count_of(total['bytes_up'], 'byte')} and received {total['bytes_down']:,}, in "
        f"{count_of(total['rounds'], 'round')}, and {total['rounds_masking']:,} more for keys and proofs, which "
        "carry no data."
    )
    lines_of_sites = table(head, lines, caption="Counted by the server's ledger; coterie ledger verify checks it.")
    return section("cost", "What left each site", paragraph(sentence), _beside(result), lines_of_sites)


def _beside(result: Mapping[str, Any]) -> str:
    raw = raw_bytes(result)
    if raw is None:
        return ""
    ratio, about = result["bytes_up"] / raw, "" if _is_known(result) else "about "
    compared = f"{ratio:.3g} times as much" if ratio >= 1 else f"{ratio:.2g} of that"
    return paragraph(
        f"Sending the table instead, each value as a number of {NUMBER_BYTES} bytes, takes {bytes_of_rows(result)}: "
        f"the run sent {about}{compared}. A table sent once has left its sites for good."
    )


def raw_bytes(result: Mapping[str, Any]) -> float | None:
    """The bytes of the table of all sites' rows; None where its rows or columns are not known."""
    columns = result.get("inputs")
    if not columns or "rows" not in result:
        return None
    rows = result["rows"]["held"] if _is_known(result) else result["rows"]["clustered"]
    return float(rows * len(columns) * NUMBER_BYTES) or None


def bytes_of_rows(result: Mapping[str, Any]) -> str | None:
    """The same for people; estimated where the number of rows is."""
    raw = raw_bytes(result)
    if raw is None:
        return None
    return f"{'about ' if result['counts_are'] == CountsAre.NOISY else ''}{raw:,.0f} bytes"


def _is_known(result: Mapping[str, Any]) -> bool:
    return result["rows"]["held"] is not None
