"""The worked example of docs/adding-a-method.md: one file and one line, and every check of the library holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text()
NAME = "fuzzy-kmeans"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The example as an installed package: its file, and its entry point."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "fuzzy.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    points = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])["project"]["entry-points"]
    info = folder / "fuzzy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fuzzy\nVersion: 1.0\n")
    lines = [f"[{group}]\n{name} = {target}\n" for group, all_ in points.items() for name, target in all_.items()]
    (info / "entry_points.txt").write_text("".join(lines))
    return folder


def python(package, *arguments, **options):
    paths = [str(package), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600, **options
    )


def test_every_check_of_the_library_holds_for_it(package):
    folders = ("tests/invariants", "tests/attacks/test_function_of_the_view.py", "tests/fuzz", "tests/estimators")
    options = ("-p", "no:cacheprovider", "-m", "not slow", "-k", NAME)
    done = python(package, "-m", "pytest", *options, *folders, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 20, done.stdout[-400:]
    corpus = "test_the_corpus_is_valid_and_holds_every_form_and_every_kind_of_question"
    done = python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/fuzz", "-k", corpus, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_commands_of_the_page_work(package, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("north", "south", "east"):
        rows = np.concatenate([rng.normal(center, 0.3, (40, 2)) for center in ((0, 0), (5, 0), (0, 5))])
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b", comments="")
    commands = re.findall(r"^\$ (coterie .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = python(package, "-m", *command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert NAME in done.stdout or "cluster" in done.stdout
    wrong = python(package, "-m", *commands[-1].replace("fuzziness", "fuzzines").split(), "--out", "x", cwd=tmp_path)
    assert wrong.returncode != 0
    assert "did you mean 'fuzziness'?" in wrong.stderr


def test_it_is_an_estimator_in_python_and_its_model_can_be_saved(package, tmp_path):
    script = """
import numpy as np, coterie
from coterie.estimators.registry import make_estimator
rng = np.random.default_rng(0)
tables = {n: np.concatenate([rng.normal(c, 0.3, (40, 2)) for c in ((0, 0), (5, 0), (0, 5))]) for n in "abc"}
model = coterie.fit(make_estimator("fuzzy-kmeans", {"n_clusters": 3, "fuzziness": 1.5, "random_state": 1}), tables)
assert sorted(map(tuple, model.cluster_centers_.round(0))) == [(0, 0), (0, 5), (5, 0)], model.cluster_centers_
again = coterie.load_model(coterie.save_model(model, "model.json"))
assert (again.predict(tables["a"]) == model.predict(tables["a"])).all()
assert "fuzziness" in type(model).__doc__
"""
    done = python(package, "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
