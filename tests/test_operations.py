"""What operations.md says: its commands exist, the units start what there is, and files lie where it lists them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from coterie.cli import app
from coterie.cli.jobs import read_job

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


def shell_lines(page: Path) -> list[str]:
    """The lines of every block of shell commands, and of every block of no said kind that calls coterie."""
    blocks = re.findall(r"^```(\S*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    chosen = [text for kind, text in blocks if kind == "sh" or (not kind and text.startswith("coterie "))]
    return [line for text in chosen for line in text.splitlines()]


def commands(lines: list[str]) -> list[str]:
    """What is given to coterie, of every line that calls it."""
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words[:2] == ["sudo", "-u"]:
            words = words[3:]
        if words and Path(words[0]).name == "coterie":
            found.append(shlex.join(words[1:]))
    return found


def check_parses(text: str) -> None:
    """Raise where there is no such command, option or argument."""
    command = typer.main.get_command(app)
    name, words = "coterie", shlex.split(text)
    command.load(words[0])
    while hasattr(command, "commands"):
        name, *words = getattr(command, "in_full", list)(words)
        command = command.commands[name]
    command.make_context(name, words).close()


@pytest.mark.parametrize("text", dict.fromkeys(commands(shell_lines(PAGE))))
def test_commands_of_the_page_are_commands_of_coterie(text):
    check_parses(text)


def test_the_page_shows_every_step():
    shown = {" ".join(text.split()[:2]) for text in commands(shell_lines(PAGE))}
    assert shown >= {
        "provision --sites", "site start", "site status", "site preview", "server status", "run job.toml",
        "watch together", "federation up", "federation run", "federation down",
    }  # fmt: skip
    assert "`coterie server start --kit" in PAGE.read_text()


def test_an_option_that_is_not_there_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        check_parses("site start --kit here --no-such-option")


def test_the_job_of_the_page_is_a_job(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "job.toml").write_text(text)
    job = read_job(tmp_path / "job.toml", needs_data=False)
    assert job.columns == ["age", "pressure", "bmi"]


# ---------------------------------------------------------------- units


def unit(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return {name: dict(parser[name]) for name in parser.sections()}


def test_there_is_a_unit_for_a_site_and_one_for_a_server():
    assert [path.stem for path in UNITS] == ["coterie-server", "coterie-site"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_what_there_is_and_gives_it_no_more_than_it_needs(path):
    service = unit(path)["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/coterie/bin/coterie"
    check_parses(shlex.join(words))
    kit = words[words.index("--kit") + 1]
    assert service["ReadWritePaths"] == kit
    assert service["ReadOnlyPaths"] == f"{kit}/startup"
    assert service["User"] == "coterie"
    assert service["KillMode"] == "control-group"
    assert service["Restart"] == "always"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["UMask"] == "0077"
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "PrivateDevices"):
        assert service[name] == "true"
    assert kit in PAGE.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_knows_every_line_of_a_unit(path, tmp_path):
    """The program need not be installed where this is run."""
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/coterie/bin/coterie", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if path.name in line]
    assert not about, "\n".join(about)


# ---------------------------------------------------------------- what is stored


def listed(after: str) -> list[str]:
    """The paths of the table that follows these words."""
    table = PAGE.read_text().split(after)[1].split("\n\n")[1]
    found: list[str] = []
    for row in table.splitlines()[2:]:
        names = re.findall(r"`([^`]+)`", row.split("|")[1])
        found += [names[0] + name if name.startswith(".") else name for name in names]
    return found


def stored(folder: Path, jobs: str = "JOB") -> set[str]:
    """Every file of a kit, jobs' folders and runs by one name each."""
    number = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    return {number.sub(jobs, str(path.relative_to(folder))) for path in folder.rglob("*") if path.is_file()}


def is_listed(path: str, names: list[str]) -> bool:
    return any(path == name or (name.endswith("/") and path.startswith(name)) for name in names)


HANDED_OVER = ("readme.txt",)


@pytest.mark.slow
@pytest.mark.xdist_group("nvflare")
def test_what_is_stored_is_what_the_page_lists(tmp_path):
    pytest.importorskip("nvflare")
    import numpy as np

    from coterie.cli.remote_jobs import run_remotely
    from coterie.deployment.federation import Federation
    from coterie.sites.installed import Holdings

    rows, names = np.random.default_rng(0).normal(size=(180, 2)), ("north", "south", "west")
    rows[::2] += 6
    for i, name in enumerate(names):
        np.savetxt(tmp_path / f"{name}.csv", rows[i::3], delimiter=",", header="a,b", comments="")
    job = tmp_path / "job.toml"
    job.write_text("clusters = 2\ncolumns = ['a', 'b']\nout = 'together'\n")
    made = Federation(tmp_path / "all")
    made.up({name: Holdings(str(tmp_path / f"{name}.csv")) for name in names})
    try:
        run_remotely(job, made.analyst().folder, resume=False, attempts=2, patience=30.0, as_json=True)
    finally:
        made.down()
    site, server = stored(made.folder / "sites" / "north"), stored(made.folder / "server")
    ours = {*HANDED_OVER, "output.log", "local/"}  # a federation on one machine keeps output in a file
    for found, words in ((site, "At a **site**, in its kit:"), (server, "At the **server**, in its kit:")):
        names_ = [*listed(words), *ours, "startup/"]
        assert [path for path in sorted(found) if not is_listed(path, names_)] == []
    for name in listed("At a **site**, in its kit:"):
        assert any(is_listed(path, [name]) for path in site), name
    assert not any(path.startswith(("JOB/", "store/", "coterie/runs/", "transfer/")) for path in server)
    assert "coterie/server.log" in server
    text = PAGE.read_text().split("At the **analyst's**")[1].split("\n\n")[0]
    kept = {path.name for path in (tmp_path / "together").iterdir()}
    assert kept == {"ledger.jsonl.head", *re.findall(r"`(\w+\.\w+)`", text.split("No labels")[0])}
    answers = (made.folder / "sites" / "north").rglob("log*.txt")
    assert not any("answer:" in path.read_text() for path in answers), "what left is in the site's own log only"
