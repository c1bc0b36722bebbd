"""What a repository holds besides code: workflows, templates, citation, containers."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from tests.test_operations import check_parses

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONTAINERS = ROOT / "deploy" / "containers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_is_there_with_no_more_rights_than_they_need(path):
    workflow = read(path)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert workflow["permissions"] == {"contents": "read"}
    assert True in workflow  # "on", as YAML 1.1 reads it
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "@" in step.get("uses", "@")
            assert set(re.findall(r"\bmake ([\w-]+)", step.get("run", ""))) <= targets


def test_tests_run_on_every_python_that_the_package_names():
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}
    (jobs,) = (read(path)["jobs"] for path in WORKFLOWS if path.stem == "tests")
    assert set(jobs["tests"]["strategy"]["matrix"]["python"]) == named
    assert PROJECT["requires-python"] == f">={min(named)}"


def test_the_citation_is_of_this_version():
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == coterie.__version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


@pytest.mark.parametrize("name", ["bug.yml", "question.yml"])
def test_issue_templates_ask_with_labels_that_are_unique(name):
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / name)
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
    assert form["name"]
    assert form["description"]


def test_hooks_before_a_commit_are_what_make_check_runs():
    hooks = {hook["entry"] for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    checked = set(re.findall(r"\$\(BIN\)/((?:ruff|mypy|lint-imports)[^\n]*?)(?: \.)?$", makefile_part("check"), re.M))
    assert hooks == checked


def makefile_part(target: str) -> str:
    (part,) = re.findall(rf"^{target}:.*?(?=^\S|\Z)", (ROOT / "Makefile").read_text(), re.M | re.S)
    return part


def services() -> dict[str, list[str]]:
    """What each service of the compose file gives to coterie."""
    return {name: service["command"] for name, service in read(CONTAINERS / "compose.yaml")["services"].items()}


def test_services_are_commands_of_coterie_on_files_that_they_mount():
    described = read(CONTAINERS / "compose.yaml")["services"]
    assert set(described) == {"authority", "server", "north", "south", "west", "analyst"}
    for name, words in services().items():
        check_parses(shlex.join(words))
        mounted = {str(volume).split(":")[1] for volume in described[name]["volumes"]}
        for word in words:
            assert not word.startswith("/") or any(Path(word).is_relative_to(place) for place in mounted), word


def test_the_image_is_made_from_packages_by_name_and_runs_as_nobody_in_particular():
    lines = (CONTAINERS / "Containerfile").read_text()
    steps = dict(re.findall(r"^([A-Z]+) (.*)$", lines, re.M))
    assert steps["ARG"] == f'COTERIE="{PROJECT["name"]}[nvflare]"'
    assert "nvflare" in PROJECT["optional-dependencies"]
    assert steps["USER"] == "coterie"
    assert steps["ENTRYPOINT"] == '["coterie"]'
    assert not re.search(r"^(COPY|ADD) ", lines, re.M)


@pytest.mark.slow
@pytest.mark.xdist_group("nvflare")
def test_the_services_together_are_a_federation_that_clusters(tmp_path):
    """Each command as it is written, but for folders, the host's name and the port."""
    pytest.importorskip("nvflare")
    from coterie.deployment.federation import _free_port
    from coterie.engines.nvflare import processes
    from coterie.engines.nvflare.kits import read_kit
    from coterie.engines.nvflare.session import Session
    from tests.test_several_organisations import await_sites

    rows = np.random.default_rng(0).normal(size=(300, 3)) + 5 * np.arange(300)[:, None] // 100
    (tmp_path / "data").mkdir()
    for at, site in enumerate(("north", "south", "west")):
        np.savetxt(
            tmp_path / "data" / f"{site}.csv", rows[at::3], "%.3f", ",", header="age,pressure,bmi", comments=""
        )
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.toml").write_text(job_of_the_page())
    port, running = str(_free_port()), []

    def words_of(service: str) -> list[str]:
        words = " ".join(services()[service]).replace("--server server", "--server localhost").replace("8002", port)
        return [sys.executable, "-m", "coterie", *re.sub(" /(kits|data|jobs)", rf" {tmp_path}/\1", words).split()]

    subprocess.run(words_of("authority"), check=True, capture_output=True)
    try:
        with (tmp_path / "output.log").open("w") as log:
            for service in ("server", "north", "south", "west"):
                running.append(subprocess.Popen(words_of(service), stdout=log, stderr=log))
        with Session(read_kit(tmp_path / "kits" / "analysts" / "ana@university.example")) as session:
            await_sites(session)
        done = subprocess.run(words_of("analyst"), capture_output=True, text=True, check=False)
    finally:
        kits = (tmp_path / "kits" / "server", *(tmp_path / "kits" / "sites").iterdir())
        processes.stop([read_kit(kit) for kit in kits])
        for process in running:
            process.wait(60)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{(tmp_path / 'output.log').read_text()}"
    assert (tmp_path / "jobs" / "together" / "report.html").exists()


def job_of_the_page() -> str:
    """The job that the page on operations shows."""
    (job,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    return job
