"""What was disclosed to whom, in sentences that a data officer can check; below them the log of all questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.report.in_force import protections
from coterie.report.markup import RunFiles, element, paragraph, section, table
from coterie.report.privacy import privacy_sentences, releases_table
from coterie.text import count_of

FROM_ROWS = {
    "noisy": "noisy sums",
    "sums": "sums",
    "composition": "rows of each cluster",
    "grams": "sums of products",
    "averages": "averages",
    "rows": "numbers for single rows",
}
"""Contents of answers computed from rows, in words."""


def disclosed(run: RunFiles) -> str:
    """Sentences, then the log, folded."""
    result = run.result
    sentences = [*_seen(result), *_protected(result["in_force"]), *_labels(run), *_verified(run), *_dropouts(result)]
    points = "".join(element("li", paragraph(sentence)) for sentence in sentences)
    return section(
        "disclosed",
        "What was disclosed",
        element("ul", points, class_="sentences"),
        _privacy(result.get("privacy")),
        _log(result),
    )


def _seen(result: Mapping[str, Any]) -> Iterator[str]:
    """What the server saw of rows: sums, or each site's answers."""
    asked = [row for row in result["asked"] if set(row["content"].split("+")) & FROM_ROWS.keys()]
    sums = [row for row in asked if row["seen"] == "masked"]
    single = [row for row in asked if row["seen"] != "masked"]
    if sums:
        yield (
            f"The server saw {_contents(sums)} over sites: {count_of(sum(row['times'] for row in sums), 'sum')}, "
            "whose parts were masked so that it could not tell one site's from another's."
        )
    declared = [row for row in single if row["seen"] == "summed"]
    if declared:
        yield (
            f"The server was sent each site's {_contents(declared)} by itself, and declared that it would only add "
            "them up."
        )
    own = [row for row in single if row["seen"] != "summed"]
    if own:
        times = count_of(sum(row["times"] for row in own), "question")
        yield f"The server saw of every site by itself: {_contents(own)}, in {times}."
    if not single:
        yield "The server saw no site's results by themselves."
    yield (
        "The server also saw which sites took part, which of the requested columns they hold, what their policies "
        "allow, and the sizes and times of messages."
    )


def _contents(rows: list[Mapping[str, Any]]) -> str:
    """``sums and averages``."""
    kinds = dict.fromkeys(FROM_ROWS[kind] for row in rows for kind in row["content"].split("+") if kind in FROM_ROWS)
    *others, last = kinds
    return f"{', '.join(others)} and {last}" if others else last


_PROTECTED = {
    "groups": "computed with averages of {text}, formed once; single rows never entered the computation. This is "
    "k-anonymous averaging, not differential privacy",
    "noise": "computed with rows, and added noise to all that left, charged to a budget",
    "none": "computed with rows as they are: what it answered may be a function of a single row",
}


def _protected(facts: Mapping[str, Any]) -> Iterator[str]:
    """By protection, what the sites computed with."""
    for text, names in protections(facts).items():
        kind, _, rest = text.partition(" of ")
        words = _PROTECTED[kind].format(text=f"fixed groups of {rest}")
        who = "Every site" if len(names) == len(facts["sites"]) else f"Each of {', '.join(names)}"
        yield f"{who} {words}."


def _labels(run: RunFiles) -> Iterator[str]:
    if not run.result["centers"]:
        return
    if any("rows" in row["content"].split("+") for row in run.result["asked"]):
        yield "Sites sent numbers for every row, so the server can tell the cluster of each of them."
    else:
        yield "The cluster of each row was computed at its site and stays there; the server knows sizes, not members."
    if run.shown is None:
        yield "This page is made of released numbers alone: it shows no row."
    else:
        yield "This page shows single rows, since the owner of all data asked for it: treat it as you treat them."


def _verified(run: RunFiles) -> Iterator[str]:
    """What the sites signed."""
    certificate = run.certificate
    if certificate is None:
        yield "No certificate was kept of this run."
        return
    statements = {name: signed.statement for name, signed in certificate.statements.items()}
    whole = [name for name, one in statements.items() if one.is_whole]
    if whole and len(whole) == len(certificate.sites):
        sums = count_of(max(statements[name].verified for name in whole), "sum")
        yield (
            f"Verified: every site ran the ordered method itself and checked each question against it ({sums}); a "
            "server that asked anything else would not have been answered."
        )
    else:
        parts = [f"{name} {count_of(one.verified, 'sum')}" for name, one in statements.items() if one.verified]
        checked = f"; checked were: {', '.join(parts)}" if parts else ""
        yield (
            "Not verified as a whole: sites answered questions that their policies allow, without running the "
            f"method themselves{checked}."
        )
    vouching = "an authority made for this run: whoever ran it played all sites"
    if certificate.authority_made_for != "run":
        vouching = "the federation's authority"
    yield (
        f"{len(statements)} of {count_of(len(certificate.sites), 'site')} signed what they did (certificate.json; "
        f"coterie certificate verify checks it). Their keys are certified by {vouching}."
    )


def _dropouts(result: Mapping[str, Any]) -> Iterator[str]:
    names = [f"{name} in round {since}" for name, since in result.get("lost", {}).items()]
    if names:
        yield f"Dropped out: {', '.join(names)}; earlier sums include their rows."


def _privacy(privacy: Mapping[str, Any] | None) -> str:
    if not privacy:
        return ""
    sentences = "".join(map(paragraph, privacy_sentences(privacy)))
    return f"<h3>Differential privacy</h3>{sentences}{table(*releases_table(privacy))}"


def _log(result: Mapping[str, Any]) -> str:
    """Every kind of question, folded."""
    head = ["question", "answer", "content", "the server sees", "times", "values per site"]
    names = ("asked", "answer", "content", "seen", "times", "numbers")
    sight = {"single": "each answer", "summed": "each, to sum", "masked": "only the sum"}
    rows = [{**row, "seen": sight.get(row["seen"], row["seen"])} for row in result["asked"]]
    lines = [[f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in names] for row in rows]
    log = table(
        head, lines, caption="In the order in which they were first asked; ledger.jsonl has every single one."
    )
    return element("details", f"<summary>All {len(lines)} kinds of questions</summary>{log}", id="wire-log")
