"""Pages in a browser: ``site console``; and ``watch --browser``, which serves a run in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import site
from coterie.cli.terminal import tell
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.cli.console.server import Pages

Port = Annotated[
    int, typer.Option(min=0, max=65535, help="The port of 127.0.0.1 for the page (default: any that is free).")
]


@site.command("console")
def site_console(
    folder: Annotated[Path | None, typer.Argument(help="The site's start-up kit (or --kit; default: here).")] = None,
    kit: Annotated[Path | None, typer.Option(help="The same, as in other commands.")] = None,
    port: Port = 0,
) -> None:
    """Serve a page for the site's data officer: orders that wait, budget, runs, ledger, certificates.

    Orders are shown with what would leave under this site's policy, and approved or refused there. Only this machine
    and only the link that is printed open the page. Ctrl-C ends it; the site itself is not affected.

    Example: coterie site console north
    """
    from coterie.cli.console.site_page import SitePage
    from coterie.engines.nvflare.kits import kit_of

    if folder is not None and kit is not None:
        raise InputError(f"{folder} and --kit {kit}; name the site's kit once.")
    serve(SitePage(kit_of(folder or kit or Path(), "site"), tell), port)


def serve(pages: Pages, port: int) -> None:
    """Serve pages on loopback until Ctrl-C."""
    from coterie.cli.console.server import LocalServer

    with LocalServer(pages, port, tell) as server:
        tell(f"Open {server.link}")
        tell("Whoever has this link sees the page; it works on this machine, until Ctrl-C.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            tell("The page is closed.")
