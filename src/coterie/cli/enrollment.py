"""Keys and certificates: ``provision``, ``enroll``, ``install``, ``site revoked``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from coterie.cli import options as opt
from coterie.cli.options import app, site
from coterie.cli.remote_jobs import check_installed
from coterie.cli.terminal import show_table, tell
from coterie.engines.nvflare.kits import provision as make_kits
from coterie.engines.nvflare.kits import read_kit
from coterie.errors import InputError
from coterie.messages.identity import fingerprint
from coterie.sites.identity_files import IdentityFiles
from coterie.text import count_of

Folder = Annotated[Path, typer.Option("--kit", help="The folder that `coterie enroll` made.")]


@app.command()
def enroll(
    role: Annotated[Literal["site", "analyst", "server"], typer.Argument(help="site, analyst or server.")],
    name: Annotated[str, typer.Argument(help="The site's name, the analyst's e-mail, or the server's host name.")],
    kit: Annotated[Path, typer.Option(help="Folder for the keys and, later, the rest of the kit.")],
) -> None:
    """Make your own private keys, and a request that the federation's authority signs.

    The keys stay in the folder. Send the request to the authority, and compare the fingerprint by telephone.
    Running the command again keeps the keys and writes the same request.

    Example: coterie enroll site north --kit north
    """
    check_installed()
    from coterie.engines.nvflare.requests import enroll as make_request

    path, request = make_request(kit, role, name)
    tell(f"Keys of {role} {name} are in {kit}/startup. They stay there.")
    tell(f"Send {path} to the authority. Its fingerprint is {request.fingerprint()}")
    tell(f"The authority answers with a file; then run `coterie install FILE --kit {kit}`.")


@app.command()
def install(
    file: Annotated[Path, typer.Argument(help="The file from the authority: NAME.kit.")], kit: Folder
) -> None:
    """Check the authority's answer to a request, and unpack it beside the keys. Renewal is the same.

    Example: coterie install north.kit --kit north
    """
    check_installed()
    from coterie.engines.nvflare.handover import install as unpack

    made = unpack(file, kit)
    authority = IdentityFiles(kit).authority() or b""
    tell(f"Installed the kit of {made.kind} {made.name} in {kit}; certificates until {made.valid_until():%Y-%m-%d}.")
    tell(f"Compare the authority's fingerprint by telephone before you start: {fingerprint(authority)}")


@site.command("revoked")
def site_revoked(
    file: Annotated[Path, typer.Argument(help="The authority's list of revoked certificates.")], kit: opt.Kit
) -> None:
    """Install a list of revoked certificates, if the authority signed it and it is not older than the last."""
    found = IdentityFiles(read_kit(kit).folder).install_revoked(file)
    tell(f"Installed list {found.number} with {count_of(len(found.serials), 'revoked certificate')}.")


@app.command()
def provision(
    out: Annotated[Path, typer.Option(help="Folder for the kits; existing kits are kept, new sites are added.")],
    sites: Annotated[str, typer.Option(help="Names of sites whose keys are made here: north,south,west.")] = "",
    sign: Annotated[
        list[Path] | None, typer.Option(help="A request of `coterie enroll` to sign (may be repeated).")
    ] = None,
    server: Annotated[str, typer.Option(help="The server's host name, as the sites resolve it.")] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port the server listens on.")] = 8002,
    analyst: Annotated[
        list[str] | None,
        typer.Option(help="An analyst whose keys are made here, by e-mail address (may be repeated)."),
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(help="A site or analyst whose certificates are no longer valid (may be repeated)."),
    ] = None,
) -> None:
    """Create start-up kits: sign the requests of sites, analysts and the server, or make their keys here.

    The authority's keys stay in OUT/authority. No kit lets its owner send code: a job carries a configuration, and
    sites run the version of coterie they installed.

    Example: coterie provision --sign north.request --server center.example.org --out kits
    """
    check_installed()
    if revoke:
        if sites or sign or analyst:
            raise InputError("--revoke goes with --out only.")
        _revoke(out, revoke)
        return
    if sign:
        _sign(out, sign, server, port)
    if sites or analyst or not sign:
        _make_kits(out, opt.names_of(sites), server, port, analyst)
    tell(f"Keep {out}/authority private: it signs kits.")


def _sign(out: Path, files: list[Path], server: str, port: int) -> None:
    from coterie.engines.nvflare.signing import sign

    made = sign(out, files, server=server, port=port)
    rows = [[one.role, one.name, str(path.relative_to(out))] for path, one in made.items()]
    show_table(f"Kits without private keys in {out}", ["for", "name", "file"], rows)
    tell("Before you hand a file over, compare the fingerprint of its request by telephone:")
    for request in made.values():
        tell(f"  {request.name}: {request.fingerprint()}")


def _make_kits(out: Path, sites: list[str], server: str, port: int, analysts: list[str] | None) -> None:
    before = {path.absolute() for path in (*out.glob("server"), *out.glob("sites/*"), *out.glob("analysts/*"))}
    kits = make_kits(out, sites, server=server, port=port, analysts=analysts)
    rows = []
    for kit in kits.values():
        place, note = kit.folder.relative_to(out.absolute()), "kept" if kit.folder in before else ""
        rows.append([kit.kind, kit.name, str(place), note])
    show_table(f"Kits in {out}", ["for", "name", "folder", ""], rows)
    tell(
        "These kits contain private keys made here: use them for a federation on one machine or a trial. "
        "Otherwise each site runs `coterie enroll` and you sign its request."
    )
    tell("Start the server with `coterie server start --kit KIT`,")
    tell("and a site with `coterie site start --kit KIT --data FILE --policy POLICY`.")


def _revoke(out: Path, names: list[str]) -> None:
    from coterie.engines.nvflare.signing import revoke

    path = revoke(out, names)
    tell(f"Revoked {', '.join(names)}. Hand {path} to every site: `coterie site revoked FILE --kit KIT` installs it.")
