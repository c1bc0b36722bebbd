"""``report.html``: one self-contained page, made from what a run released. It asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.files import MEGABYTE, read_bounded, write_private
from coterie.report.choices import CHOICE
from coterie.report.markup import RunFiles, element
from coterie.report.sections.clusters import clusters
from coterie.report.sections.compared import compared
from coterie.report.sections.costs import costs
from coterie.report.sections.disclosed import disclosed
from coterie.report.sections.headline import headline
from coterie.report.sections.map import map_of_clusters
from coterie.report.sections.quality import quality
from coterie.report.sections.settings import settings
from coterie.secure.certificates import CERTIFICATE, MAX_CERTIFICATE_BYTES, RunCertificate

REPORT = "report.html"
MOST_BYTES = 256 * MEGABYTE
"""Of each file that a page is made of."""
SECTIONS: dict[str, tuple[str, Callable[[RunFiles], str]]] = {
    "clusters": ("Clusters", clusters),
    "map": ("Map", map_of_clusters),
    "quality": ("How good", quality),
    "compared": ("Other runs", compared),
    "cost": ("What it cost", costs),
    "disclosed": ("What was disclosed", disclosed),
    "settings": ("Settings", settings),
}
"""In the order of the page, by the name of each."""


def write_page(folder: Path, **more: Any) -> Path:
    """Write ``report.html`` from the files of a run; ``more`` are fields of ``RunFiles`` that no file has.

    A page that shows rows is for its owner alone.
    """
    run = replace(read_run_files(folder), **more)
    path, page = folder / REPORT, page_of(run).encode()
    if run.shown is None:
        path.write_bytes(page)
    else:
        write_private(path, page)
    return path


def read_run_files(folder: Path) -> RunFiles:
    """What a finished run has left in its folder."""

    def read(name: str) -> Any:
        return json.loads(read_bounded(folder / name, MOST_BYTES)) if (folder / name).exists() else None

    certificate = folder / CERTIFICATE
    signed = None
    if certificate.exists():
        signed = RunCertificate.read(read_bounded(certificate, MAX_CERTIFICATE_BYTES), certificate)
    return RunFiles(read("result.json"), read("ledger.json"), read(CHOICE), signed)


def page_of(run: RunFiles) -> str:
    """The whole page."""
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    parts = {name: build(run) for name, (_, build) in SECTIONS.items()}
    links = "".join(element("a", escape(SECTIONS[name][0]), href=f"#{name}") for name, part in parts.items() if part)
    theme = element("button", "Theme: as the system", type="button", id="theme", class_="controls")
    today = datetime.now(UTC).date().isoformat()
    written = f"Written by coterie {escape(str(run.result['coterie']))} on {element('time', today, datetime=today)}."
    body = [
        element("a", "To the clusters and numbers", href="#main", class_="skip"),
        element("header", headline(run) + element("nav", links + theme, aria_label="sections")),
        element("main", "\n".join(part for part in parts.values() if part), id="main"),
        element("footer", element("p", written)),
        f"<script>{script}</script>",
    ]
    head = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        element("meta", http_equiv="Content-Security-Policy", content=_rules(style, script)),
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(run.result['title'])}</title><style>{style}</style></head><body>",
    ]
    return "\n".join([*head, *body, "</body></html>\n"])


def _resource(name: str) -> str:
    return files("coterie.report").joinpath(name).read_text(encoding="utf-8")


def _rules(style: str, script: str) -> str:
    """What the page may load and run: its own style and script, and nothing else."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
