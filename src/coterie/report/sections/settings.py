"""What was asked for and what was in force: settings, protection, seeds, versions; no path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.report.in_force import in_force_table
from coterie.report.markup import RunFiles, section, table

SHOWN = (
    *(
        "method",
        "clusters",
        "settings",
        "columns",
        "ignore",
        "categories",
        "na",
        "transforms",
        "normalise_rows",
        "ranges",
    ),
    *("max_share", "halves", "profile", "key", "quorum", "deadline"),
)
"""Fields of a job that say what was computed; others are names of files."""
USUAL: Mapping[str, Any] = {"quorum": 1.0}


def settings(run: RunFiles) -> str:
    """Two tables."""
    result = run.result
    given = result.get("settings", {})
    asked = [[name.replace("_", " "), _text(given[name])] for name in SHOWN if _is_given(name, given.get(name))]
    asked = asked or [["method", result["method"]]]
    head, lines = in_force_table(result["in_force"])
    titles = [text or fallback for text, fallback in zip(head, ("in force", "value"), strict=True)]
    parts = [table(["asked for", "value"], asked), "<h3>What was in force</h3>", table(titles, lines)]
    return section("settings", "Settings and versions", *parts)


def _is_given(name: str, value: Any) -> bool:
    return value not in (None, False, [], {}, "") and value != USUAL.get(name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
