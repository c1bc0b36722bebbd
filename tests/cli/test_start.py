"""How long a command takes to begin, and where commands are."""

from __future__ import annotations

import os
import pkgutil
import resource
import statistics
import subprocess
import sys
from importlib import import_module

import pytest
import typer

import coterie.cli
from coterie.cli.commands import COMMANDS, Listed, TyperGroup
from coterie.cli.options import app


def cpu_seconds(*words: str) -> float:
    """CPU time of Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(("words", "most"), [(("-c", "import coterie"), 0.5), (("-m", "coterie", "--help"), 4)])
def test_beginning_takes_a_share_of_importing_numpy(words, most):
    """Medians of runs in turn, so that both are under the same load."""
    cpu_seconds(*words)  # what is read from disk once
    pairs = [(cpu_seconds(*words), cpu_seconds("-c", "import numpy")) for _ in range(5)]
    assert statistics.median(ours for ours, _ in pairs) <= most * statistics.median(numpy for _, numpy in pairs)


def test_every_command_is_loaded_from_the_modules_that_are_listed():
    """A command that is missing here belongs in ``COMMANDS``."""
    everything_loaded()
    found: dict[str, set[str]] = {}
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        found[name] = {command.callback.__module__}
    for group in app.registered_groups:
        found[group.name] = modules_of(group.typer_instance)
    assert found == {name: {f"coterie.cli.{module}" for module in modules} for name, modules in COMMANDS.items()}


def modules_of(group) -> set[str]:
    """The modules of a group's commands."""
    modules = {command.callback.__module__ for command in group.registered_commands}
    return modules.union(*(modules_of(part.typer_instance) for part in group.registered_groups))


def test_help_of_a_command_that_is_not_loaded_is_that_of_the_command():
    for name, command in everything_loaded().commands.items():
        if not isinstance(command, TyperGroup):
            listed = Listed(name, callback=None)
            listed.describe()
            assert (listed.hidden, listed.help or command.help) == (command.hidden, command.help), name


def everything_loaded() -> TyperGroup:
    """The command line with every command."""
    for module in pkgutil.iter_modules(coterie.cli.__path__):
        import_module(f"coterie.cli.{module.name}")
    return typer.main.get_command(app)


def test_completion_of_a_shell_names_commands_and_their_options(tmp_path):
    def complete(words: str) -> str:
        env = {"_COTERIE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-c", "import sys; sys.argv = ['coterie']; from coterie.cli import main; main()"],
            env={**os.environ, **env}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    assert complete("coterie cl").split() == ["cluster"]
    assert set(complete("coterie ledger ").split()) == {"show", "verify"}
    assert "--site-column" in complete("coterie cluster --site")
