"""Which module has which command, so that help and a single command load no others; commands of other packages."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from coterie.errors import InputError

COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": ("cluster",),
    "cluster": ("cluster",),
    "run": ("cluster",),
    "label": ("labels",),
    "assign": ("labels",),
    "plan": ("planning",),
    "choose-k": ("choosing",),
    "describe": ("describing",),
    "compare": ("comparing",),
    "report": ("reporting",),
    "watch": ("watching",),
    "enroll": ("enrollment",),
    "install": ("enrollment",),
    "provision": ("enrollment",),
    "methods": ("inspection",),
    "audit": ("inspection",),
    "version": ("inspection",),
    "site": ("cluster", "previews", "deployment", "approvals", "enrollment", "budgets", "console.commands"),
    "server": ("deployment",),
    "federation": ("federation",),
    "policy": ("inspection",),
    "ledger": ("ledgers",),
    "certificate": ("certificates",),
}
"""The modules of this package that add a command, or commands to a group; help lists them in this order."""
GROUP = "coterie.commands"
"""Entry points of other packages, each a ``typer.Typer``."""
OPTIONAL = {"reproduce": ("coterie-studies", "in a clone of coterie's repository run `pip install ./studies`")}
"""Commands of packages that may be missing: the package, and how to install it."""


class Listed(TyperCommand):
    """A command whose module is not loaded: what help and completion show of it is read from its source."""

    def describe(self) -> None:
        """Set the help; without a function of its name it is an older name, and hidden."""
        assert self.name is not None
        self.help = _docstring(*COMMANDS[self.name], function=self.name.replace("-", "_"))
        self.hidden = self.help is None


def _docstring(module: str, *, function: str) -> str | None:
    """The docstring of a function of a module of this package."""
    spec = find_spec(f"coterie.cli.{module}")
    assert spec is not None
    assert spec.origin is not None
    for part in ast.parse(Path(spec.origin).read_bytes()).body:
        if isinstance(part, ast.FunctionDef) and part.name == function:
            return ast.get_docstring(part)
    return None


class Commands(TyperGroup):
    """Our own commands and those of other packages: a module is imported when one of its commands is run."""

    def __init__(self, *, commands: Any = None, **given: Any) -> None:
        there: dict[str, Any] = dict(commands or {})
        listed = {name: there.pop(name, None) or Listed(name, callback=None) for name in COMMANDS}
        super().__init__(commands=listed | there, **given)

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_plugins()
        for command in self.commands.values():
            if isinstance(command, Listed):
                command.describe()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, as far as it is loaded; ``InputError`` if its package is not installed."""
        if cmd_name not in self.commands:
            self._add_plugins()
        if cmd_name in OPTIONAL and cmd_name not in self.commands:
            package, remedy = OPTIONAL[cmd_name]
            raise InputError(f"`coterie {cmd_name}` needs the package {package}, which is not installed; {remedy}.")
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Import what has the command of that name, so that it can be run."""
        for module in COMMANDS.get(name, ()):
            import_module(f"coterie.cli.{module}")
        if name in COMMANDS:
            from coterie.cli.options import (
                app,
            )  # it has all commands that are loaded by now, and is made of this class

            self.commands[name] = cast(TyperGroup, get_command(app)).commands[name]

    def _add_plugins(self) -> None:
        for plugin in entry_points(group=GROUP):
            if plugin.name not in self.commands:
                self.add_command(get_command(plugin.load()), plugin.name)


class ShowByDefault(TyperGroup):
    """A group without the name of a command is its ``show``: ``certificate RUN`` is ``certificate show RUN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.in_full(args))

    def in_full(self, args: Sequence[str]) -> list[str]:
        """The arguments with the name of a command."""
        named = not args or args[0] == "--help" or args[0] in self.commands
        return [*args] if named else ["show", *args]
