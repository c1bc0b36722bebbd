"""The documentation: its examples, its drawings, what its pages say of methods, and its build."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
MOST_SECONDS = 180


@pytest.fixture(scope="module")
def gallery():
    """The module that executes examples."""
    pytest.importorskip("sphinx")
    import examples

    return examples


NAMES = sorted(path.stem for path in (DOCS / "gallery").glob("*.py"))


def test_every_example_is_shown(gallery):
    assert sorted(example.name for example in gallery.examples()) == NAMES
    linked = set(re.findall(r"^_generated/(\w+)$", (DOCS / "gallery.md").read_text(), re.M))
    assert linked == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_stored_results_are_those_of_the_example(gallery, name):
    """Of those that need the data folder, and of the picture in the README."""
    example = gallery.Example(DOCS / "gallery" / f"{name}.py")
    stored = gallery.STORED / name
    assert stored.exists() or not example.needs_data, f"run python docs/_ext/examples.py {name}"
    if stored.exists():
        results = json.loads((stored / "results.json").read_text())
        assert results["digest"] == example.digest, f"the example changed: run python docs/_ext/examples.py {name}"
        pictures = {picture for cell in results["cells"] for picture in cell["pictures"]}
        assert pictures == {path.name for path in stored.glob("*.png")} != set()


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_hold_the_code_of_the_examples(gallery, name):
    example = gallery.Example(DOCS / "gallery" / f"{name}.py")
    book = json.loads(json.dumps(gallery.notebook(example)))
    assert book["nbformat"] == 4
    script = example.path.read_text()
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            compile(source, name, "exec")
            assert source in script
    assert sum(cell["cell_type"] == "code" for cell in book["cells"]) == script.count("\n# %%\n")
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


SLOW, NEEDS_DATA = ("epsilon",), ("hospitals", "loads", "phones")
RUNS = [
    pytest.param(
        name, marks=[pytest.mark.slow] * (name in SLOW + NEEDS_DATA) + [pytest.mark.data] * (name in NEEDS_DATA)
    )
    for name in NAMES
]


@pytest.mark.parametrize("name", RUNS)
def test_examples_run_without_a_warning(gallery, name, tmp_path, request):
    if name in NEEDS_DATA:
        request.getfixturevalue("data_folder")
    words = [sys.executable, "-W", "error", gallery.__file__, "--into", str(tmp_path), name]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob(f"{name}-*.png"))


def test_drawings_show_what_the_server_sees_of_single_sites():
    """A method has a step seen of every site exactly if its plug-in object says that there may be one."""
    from exchanges import STEPS, drawing

    assert set(STEPS) <= set(METHODS)
    for name, steps in STEPS.items():
        method = METHODS[name]
        always = method.visibility != "sums"
        if any(step.kind == "each" for step in steps):
            assert method.per_site_results != "no", name
        else:
            assert not always, name
        assert drawing(name).count("<svg") >= len(steps)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.use])
def test_every_recommended_method_has_a_page_with_its_picture_its_cost_and_when_it_loses(name):
    (page,) = (path for path in (DOCS / "methods").glob("*.md") if f"{{exchange}} {name}\n" in path.read_text())
    assert f"{{method-facts}} {name}\n" in page.read_text()
    assert "\n## When it loses\n" in page.read_text()
    flow = (DOCS / "methods" / "index.md").read_text().split(":::")[1]
    assert f"[{name}]({page.name}" in flow


@pytest.mark.slow
def test_the_docs_build_without_a_warning_and_fetch_nothing(gallery, tmp_path):
    """Also without the data folder; in less than three minutes of CPU, examples and all."""
    env = {name: value for name, value in os.environ.items() if name != "COTERIE_DATA"}
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path / "html")]
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime < MOST_SECONDS
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        fetched = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?:https?:)?//[^>]*>", page.read_text())
        assert not fetched, page
    assert (tmp_path / "html" / "searchindex.js").stat().st_size > 10_000
