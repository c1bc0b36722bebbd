"""What is published: the source distribution and the wheel, built, measured, and installed alone."""

from __future__ import annotations

import email
import os
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import coterie

ROOT = Path(__file__).parents[1]
MOST_BYTES = 800_000
"""Of the wheel. The aim is 700,000 (docs/roadmap.md)."""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packages")]


def environment(folder: Path, *packages: str) -> Path:
    """The programs of a new environment that holds these packages and what they need."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *packages)
    return programs


def run(*words: object, folder: Path = ROOT) -> str:
    """What a command prints; nothing of the developers' environment is visible to it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COTERIE"))}
    done = subprocess.run([*map(str, words)], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder with both; the wheel is built from the source distribution, as installers do that find no wheel."""
    folder = tmp_path_factory.mktemp("packages")
    programs = environment(folder / "builder", "hatchling")
    run(programs / "python", "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    run(programs / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=unpacked)
    return folder


def test_the_wheel_is_small_and_holds_the_package_alone(packages):
    (wheel,) = packages.glob("*.whl")
    assert wheel.stat().st_size < MOST_BYTES, f"the wheel has {wheel.stat().st_size:,} bytes"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (described,) = (name for name in names if name.endswith("METADATA"))
        says = email.message_from_bytes(archive.read(described))
    assert {name.split("/")[0] for name in names} == {"coterie", described.split("/")[0]}
    assert "coterie/py.typed" in names
    assert says["Version"] == coterie.__version__
    assert says["License-Expression"] == "Apache-2.0"
    classified = says.get_all("Classifier")
    for minor in (11, 12, 13):
        assert f"Programming Language :: Python :: 3.{minor}" in classified
    assert len(says.get_all("Project-URL")) >= 3


def test_the_wheel_alone_runs_the_demonstration(packages, tmp_path):
    (wheel,) = packages.glob("*.whl")
    programs = environment(tmp_path / "alone", str(wheel))
    where = run(programs / "python", "-c", "import coterie; print(coterie.__file__)", folder=tmp_path)
    assert Path(where).is_relative_to(tmp_path)
    assert run(programs / "python", "-m", "coterie", "version").strip() == coterie.__version__
    shown = run(programs / "coterie", "demo", "--out", "demonstration", folder=tmp_path)
    assert "together, masked" in shown
    assert (tmp_path / "demonstration" / "report.html").stat().st_size > 10_000
