"""What the pages get from the package itself: methods' facts, the gallery, what travels in a run."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import exchanges
from docutils import nodes
from examples import examples, executed, notebook, page
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from coterie.methods.method import Method
from coterie.methods.registry import METHODS

MADE = "_generated"
"""Folder of pages that a build makes, beside those that are written."""
PAGES = {
    "federated-kmeans": "federated-kmeans",
    "lloyd": "lloyd",
    "one-shot": "lloyd",
    "landmarks": "landmarks",
    "federated-pca": "edge-kmeans",
    "dspgd": "kernel-kmeans",
    "edge-kmeans": "edge-kmeans",
    "vertical-kernel-pca": "vertical-kernel-pca",
    "choose-k": "choosing-k",
    "describe": "describe",
    "compare": "choosing-k",
}
"""The page in ``methods/`` of each method that is not a baseline."""


def facts(method: Method) -> list[tuple[str, str]]:
    """What a reader asks first of a method, from its plug-in object."""
    return [
        ("use it", method.use or "where its paper is to be compared with"),
        ("on the command line", f"`--method {method.name}`"),
        ("values sent by a site", method.cost),
        ("what the server learns", method.discloses),
        ("results of single sites", method.per_site_results),
        ("needs single rows", "yes: every site's policy must exempt it from groups" if method.needs_rows else "no"),
        ("differential privacy", "yes: `--epsilon`" if method.can_be_private else "no"),
    ]


class MethodFacts(SphinxDirective):
    """``{method-facts} NAME``: use, cost and disclosure of a method, from the registry."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = [f"* - {name}\n  - {text}" for name, text in facts(METHODS[self.arguments[0]])]
        return self.parse_text_to_nodes(
            "\n".join(["```{list-table}", ":widths: 1 3", ":stub-columns: 1", "", *rows, "```"])
        )


class MethodTable(SphinxDirective):
    """``{method-table}``: all recommended methods, or with ``others`` the rest, side by side."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        others = self.arguments == ["others"]
        chosen = [m for m in METHODS.values() if bool(m.use) != others and not m.is_baseline]
        lines = [
            "| method | use it | results of single sites | single rows | epsilon |",
            "| --- | --- | --- | --- | --- |",
        ]
        for method in chosen:
            about = method.use or method.title
            name = f"[{method.name}]({PAGES[method.name]}.md)" if method.name in PAGES else method.name
            needs, private = ("needed" if method.needs_rows else "no"), ("yes" if method.can_be_private else "no")
            lines.append(f"| {name} | {about} | {method.per_site_results} | {needs} | {private} |")
        return self.parse_text_to_nodes("\n".join(lines))


class Exchange(SphinxDirective):
    """``{exchange} NAME``: what travels in a run of a method, drawn."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", exchanges.drawing(self.arguments[0]), format="html")]


class Gallery(SphinxDirective):
    """``{gallery}``: a card for each example, with its last picture."""

    def run(self) -> list[nodes.Node]:
        cards = []
        for example in examples():
            shown = json.loads((Path(self.env.srcdir) / MADE / f"{example.name}.json").read_text())
            picture = next(name for cell in shown["cells"] for name in cell["pictures"])
            cards += [
                ":::{container} card",
                f"[![{example.title}]({MADE}/{picture})]({MADE}/{example.name}.md)",
                "",
                f"**[{example.title}]({MADE}/{example.name}.md)**",
                "",
                example.summary,
                ":::",
            ]
        return self.parse_text_to_nodes("\n".join(["::::{container} cards", *cards, "::::"]))


def make_gallery(app: Sphinx) -> None:
    """Execute the examples that can run here, and write a page and a notebook for each."""
    made = Path(app.srcdir) / MADE
    made.mkdir(exist_ok=True)
    built = Path(app.outdir).parent / "examples"
    with ThreadPoolExecutor(2) as pool:  # each is a process of its own
        done = pool.map(lambda example: executed(example, built), examples())
    for example, results in zip(examples(), done, strict=True):
        for picture in results.glob("*.png"):
            shutil.copyfile(picture, made / picture.name)
        shutil.copyfile(results / "results.json", made / f"{example.name}.json")
        _write(made / f"{example.name}.md", "\n".join(page(example, results)))
        _write(made / f"{example.name}.ipynb", json.dumps(notebook(example), indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    """Write a file if it is another one, so that a build reads only what changed."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives, and make the gallery before pages are read."""
    app.add_directive("method-facts", MethodFacts)
    app.add_directive("method-table", MethodTable)
    app.add_directive("exchange", Exchange)
    app.add_directive("gallery", Gallery)
    app.connect("builder-inited", make_gallery)
    return {"version": "1", "parallel_read_safe": True}
