"""``report.html``: one self-contained page, made from the result files of a run."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.report.in_force import in_force_table
from coterie.report.labels import rows_head, size_text
from coterie.report.privacy import privacy_sentences, releases_table
from coterie.report.profiles import composition_table, distinguishing_table, exactness_sentence

SHOWN_COLUMNS = 12


def write_page(folder: Path) -> Path:
    """Write ``report.html`` from ``result.json``, ``ledger.json`` and, if it exists, ``clusters.png``."""
    result = json.loads((folder / "result.json").read_text())
    ledger = json.loads((folder / "ledger.json").read_text())
    parts = [f"<h1>{escape(result['title'])}</h1><p class=lead>{escape(result['summary'])}</p>"]
    if "comparisons" in result:
        parts += [
            "<h2>Federated, pooled, and each site alone</h2>",
            _table(*comparison_table(result["comparisons"]), first="ours"),
            _LEGEND,
        ]
    if result.get("profiles"):
        parts += [
            f"<h2>What distinguishes the clusters</h2>{_table(*distinguishing_table(result['profiles']))}",
            f"<p><small>{escape(exactness_sentence(result['profiles']))}</small></p>",
        ]
    if result.get("composition"):
        parts.append(f"<h2>Whose rows are in them</h2>{_table(*composition_table(result['composition']))}")
    privacy = result.get("privacy")
    if privacy:
        parts.append(_privacy(privacy))
    else:
        parts.append(_picture(folder / "clusters.png", result["caption"]))
    parts += [
        "<h2>What left each site</h2>",
        _sites(ledger["sites"]),
        f"<h2>Questions</h2>{_asked(result['asked'])}",
        "<h2>Centers</h2>",
        _centers(result),
        f"<h2>What was in force</h2>{_table(*in_force_table(result['in_force']))}",
    ]
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    style = files("coterie.report").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(parts)
    path = folder / "report.html"
    path.write_text(f"{head}\n<title>{escape(result['title'])}</title><style>\n{style}</style>\n{body}\n</html>\n")
    return path


_LEGEND = (
    "<p><small>ARI and NMI compare with the known classes, and the cost is relative to the pooled optimum: all "
    "exact, over all rows without missing values. Values and bytes are those sent by all sites; pooling sends every "
    "value of every row.</small></p>"
)


def _privacy(privacy: dict[str, Any]) -> str:
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in privacy_sentences(privacy))
    note = "<p><small>The report has no picture of the rows, since it would show them.</small></p>"
    return f"<h2>Privacy</h2>{sentences}{_table(*releases_table(privacy))}{note}"


def _picture(path: Path, caption: str) -> str:
    if not path.exists():
        return "<p><small>The rows are at remote sites, so there is no picture of them.</small></p>"
    data = base64.b64encode(path.read_bytes()).decode()
    image = f"<h2>Clusters by site</h2><img alt='clusters by site' src='data:image/png;base64,{data}'>"
    return f"{image}<p><small>{escape(caption)}</small></p>"


def comparison_table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the cells of the comparison of clusterings."""
    columns = {
        "": "{way}",
        "ARI": "{ari:.3f}",
        "NMI": "{nmi:.3f}",
        "cost ratio": "{cost_ratio:.4f}",
        "values": "{floats_up:,}",
        "bytes": "{bytes_up:,}",
        "rounds": "{rounds}",
    }
    return list(columns), [[cell.format_map(row) for cell in columns.values()] for row in rows]


def _sites(sites: dict[str, dict[str, int]]) -> str:
    head = ["site", "values sent", "bytes sent", "bytes received", "rounds"]
    names = ("floats_up", "bytes_up", "bytes_down", "rounds")
    return _table(head, [[s, *[f"{c[n]:,}" for n in names]] for s, c in sites.items()])


def _asked(rows: list[dict[str, Any]]) -> str:
    head = ["question", "answer", "content", "the server sees", "times", "values per site"]
    names = ("asked", "answer", "content", "seen", "times", "numbers")
    return _table(head, [[str(row[n]) for n in names] for row in rows])


def _centers(result: dict[str, Any]) -> str:
    columns = result["columns"]
    lines = [
        [f"cluster {i}", size_text(result, count), *[f"{v:,.4g}" for v in center[:SHOWN_COLUMNS]]]
        for i, (center, count) in enumerate(zip(result["centers"], result["counts"], strict=True))
    ]
    more = len(columns) - SHOWN_COLUMNS
    note = f"<p><small>and {more} more columns in centers.csv</small></p>" if more > 0 else ""
    return _table(["", rows_head(result), *columns[:SHOWN_COLUMNS]], lines) + note


def _table(head: list[str], lines: list[list[str]], first: str = "") -> str:
    """A table; ``first`` is the CSS class of its first line."""
    heads = "".join(f"<th>{escape(h)}</th>" for h in head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in cells)}</tr>" for cells in lines)
    if first:
        rows = rows.replace("<tr>", f"<tr class={first}>", 1)
    return f"<div class=wide><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
