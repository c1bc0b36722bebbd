"""Commands that other packages add: entry points of the group ``coterie.commands``, each a ``typer.Typer``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from coterie.errors import InputError

GROUP = "coterie.commands"
ELSEWHERE = {"reproduce": ("coterie-studies", "in a clone of coterie's repository run `pip install ./studies`")}
"""Commands of packages that may not be installed, and how to get them."""


class Commands(TyperGroup):
    """Our own commands, and those of other packages, which are looked for where help or a name asks for them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of help."""
        self._add_plugins()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; one of a package that is not installed is bad input."""
        if cmd_name not in self.commands:
            self._add_plugins()
        if cmd_name in ELSEWHERE and cmd_name not in self.commands:
            package, remedy = ELSEWHERE[cmd_name]
            raise InputError(f"`coterie {cmd_name}` needs the package {package}, which is not installed; {remedy}.")
        return super().get_command(ctx, cmd_name)

    def _add_plugins(self) -> None:
        for plugin in entry_points(group=GROUP):
            if plugin.name not in self.commands:
                self.add_command(get_command(plugin.load()), plugin.name)
