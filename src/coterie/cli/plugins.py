"""Commands of other packages: entry points of the group ``coterie.commands``, each a ``typer.Typer``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from coterie.errors import InputError

GROUP = "coterie.commands"
OPTIONAL = {"reproduce": ("coterie-studies", "in a clone of coterie's repository run `pip install ./studies`")}
"""Commands of packages that may be missing: the package, and how to install it."""


class Commands(TyperGroup):
    """Our own commands and those of other packages; these are loaded when help or an unknown name needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_plugins()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; ``InputError`` if its package is not installed."""
        if cmd_name not in self.commands:
            self._add_plugins()
        if cmd_name in OPTIONAL and cmd_name not in self.commands:
            package, remedy = OPTIONAL[cmd_name]
            raise InputError(f"`coterie {cmd_name}` needs the package {package}, which is not installed; {remedy}.")
        return super().get_command(ctx, cmd_name)

    def _add_plugins(self) -> None:
        for plugin in entry_points(group=GROUP):
            if plugin.name not in self.commands:
                self.add_command(get_command(plugin.load()), plugin.name)
