"""Examples: scripts with text between their code (``# %%``), executed, as pages and as notebooks.

``python docs/_ext/examples.py NAME...`` executes examples and stores what they print and draw beside them, for builds
that cannot execute them: those that need the data folder (COTERIE_DATA).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parents[1] / "gallery"
STORED = GALLERY / "results"
TEXT = "[markdown]"


@dataclass(frozen=True)
class Cell:
    """Text, or code."""

    is_text: bool
    source: str


@dataclass(frozen=True)
class Example:
    """A script of the gallery."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def cells(self) -> list[Cell]:
        parts = re.split(r"^# %%(.*)\n", self.path.read_text(), flags=re.MULTILINE)[1:]
        kinds, sources = parts[::2], [part.strip() for part in parts[1::2]]
        return [
            Cell(True, re.sub(r"^# ?", "", source, flags=re.MULTILINE))
            if kind.strip() == TEXT
            else Cell(False, source)
            for kind, source in zip(kinds, sources, strict=True)
        ]

    @property
    def title(self) -> str:
        return self.cells[0].source.splitlines()[0].removeprefix("# ")

    @property
    def summary(self) -> str:
        """Its first two sentences."""
        return " ".join(re.split(r"(?<=[.?]) ", " ".join(self.cells[0].source.splitlines()[1:]).strip())[:2])

    @property
    def needs_data(self) -> bool:
        """Whether it reads the data folder."""
        return "COTERIE_DATA" in self.path.read_text()

    @property
    def can_run(self) -> bool:
        return not self.needs_data or bool(os.environ.get("COTERIE_DATA"))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


def examples() -> list[Example]:
    """All of them, in the order in which they are shown."""
    names = ("penguins", "hospitals", "loads", "phones", "labs", "rings", "few", "epsilon")
    return [Example(GALLERY / f"{name}.py") for name in names]


def execute(example: Example, folder: Path) -> None:
    """Run an example's cells in this process; write ``results.json`` and a picture for every figure to a folder."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "savefig.dpi": 110})
    shown, names = [], {"__name__": "__main__"}
    for at, cell in enumerate(example.cells):
        printed, pictures = io.StringIO(), []
        if not cell.is_text:
            with contextlib.redirect_stdout(printed):
                _run_cell(cell.source, names, f"{example.name}, part {at}")
            for figure in plt.get_fignums():
                pictures.append(f"{example.name}-{at}-{figure}.png")
                plt.figure(figure).savefig(folder / pictures[-1], metadata={"Software": None})
            plt.close("all")
        shown.append({"text": printed.getvalue(), "pictures": pictures})
    (folder / "results.json").write_text(json.dumps({"digest": example.digest, "cells": shown}, indent=1) + "\n")


def _run_cell(source: str, names: dict[str, Any], where: str) -> None:
    """Run a cell; a last line that is an expression is printed, as a notebook shows it."""
    import ast

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        if value is not None:
            print(value.to_string() if hasattr(value, "to_string") else value)


def executed(example: Example, built: Path) -> Path:
    """The folder with an example's results: of this build where it can run here, else those that are stored."""
    if not example.can_run:
        return STORED / example.name
    folder, done = built / example.name, built / example.name / "made-from"
    made_from = f"{example.digest} {_code_digest()}"
    if not done.exists() or done.read_text() != made_from:
        words = [sys.executable, "-W", "error", __file__, "--into", str(folder), example.name]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"the example {example.path} fails:\n{ran.stderr}")
        done.write_text(made_from)
    return folder


def _code_digest() -> str:
    code = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()


def page(example: Example, results: Path) -> Iterator[str]:
    """The parts of an example's page; its pictures are beside it."""
    shown = json.loads((results / "results.json").read_text())["cells"]
    for at, (cell, output) in enumerate(zip(example.cells, shown, strict=True)):
        if cell.is_text:
            yield f"{cell.source}\n"
            if at == 0:
                yield f"{{download}}`As a notebook <{example.name}.ipynb>`, {_origin(example)}\n"
            continue
        yield f"```python\n{cell.source}\n```\n"
        if output["text"]:
            yield f"```{{code-block}} text\n:class: output\n\n{output['text'].rstrip()}\n```\n"
        for picture in output["pictures"]:
            about = f":alt: {example.title}: what the code above draws\n:class: plot"
            yield f"```{{image}} {picture}\n{about}\n```\n"


def _origin(example: Example) -> str:
    if not example.needs_data:
        return "executed when this page was built."
    command = f"`COTERIE_DATA=FOLDER python docs/_ext/examples.py {example.name}`"
    return f"with data that is not part of coterie; {command} executes it anew."


def _alone(cell: Cell) -> str:
    """A cell without links to pages beside it."""
    return re.sub(r"\[([^]]*)\]\((?!https:)[^)]*\)", r"\1", cell.source) if cell.is_text else cell.source


def notebook(example: Example) -> dict[str, Any]:
    """An example as a Jupyter notebook, without results."""
    cells = [
        {"id": f"part-{at}", "cell_type": "markdown" if cell.is_text else "code", "metadata": {}}
        | {"source": _alone(cell).splitlines(keepends=True)}
        | ({} if cell.is_text else {"execution_count": None, "outputs": []})
        for at, cell in enumerate(example.cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


if __name__ == "__main__":
    into, *given = sys.argv[2:] if sys.argv[1:2] == ["--into"] else (None, *sys.argv[1:])
    for chosen in given:
        execute(Example(GALLERY / f"{chosen}.py"), Path(into) if into else STORED / chosen)
