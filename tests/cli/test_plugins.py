"""Commands that other packages add."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer

from coterie.cli import commands as plugins

greeter = typer.Typer(add_completion=False)


@greeter.command()
def greet(name: str) -> None:
    """Say hello."""
    print(f"hello, {name}")


@pytest.fixture
def installed(monkeypatch):
    """Only these entry points are there."""

    def install(*names):
        found = [EntryPoint(name, f"{__name__}:greeter", plugins.GROUP) for name in names]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == plugins.GROUP else [])

    return install


def test_a_package_adds_a_command(cli, installed):
    installed("greet")
    assert cli("greet", "you")[:2] == (0, "hello, you\n")
    assert "Say hello." in cli("--help")[1]
    assert "greet" in cli("gree")[2]  # a misspelt one is suggested
    installed()
    assert cli("greet", "you")[0] == 2
    assert "Say hello." not in cli("--help")[1]


def test_a_package_replaces_no_command_of_ours(cli, installed):
    installed("version")
    assert "hello" not in cli("version", "you")[1]
    assert "Say hello." not in cli("--help")[1]


@pytest.mark.parametrize("words", [("reproduce", "federated-kmeans"), ("reproduce", "--help"), ("reproduce",)])
def test_without_the_studies_reproduce_says_how_to_get_them(cli, installed, words):
    installed()
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "coterie-studies" in err
    assert "pip install ./studies" in err
    assert "reproduce" not in cli("--help")[1]


def test_with_the_studies_reproduce_is_a_command_and_help_loads_none_of_them(cli):
    code, out, _ = cli("reproduce", "--help")
    assert code == 0
    assert "federated-kernel-kmeans" in out
    code, _, err = cli("reproduce", "landmark")
    assert code == 2
    assert "landmarks" in err
    look = (
        "import sys; from coterie.cli import main; sys.argv = ['coterie', '--help']\n"
        "try: main()\n"
        "except SystemExit:\n"
        "    print(sorted({'numpy', 'sklearn', 'matplotlib', 'coterie_studies.registry'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
