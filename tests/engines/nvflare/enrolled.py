"""Organisations that made their own keys, as in three different places, and an authority that signs."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from coterie.engines.nvflare.handover import install
from coterie.engines.nvflare.kits import Kit
from coterie.engines.nvflare.requests import enroll
from coterie.engines.nvflare.signing import sign
from coterie.messages.identity import Role

ANA = "ana@university.example"


@dataclass
class Places:
    """A folder for everyone, and one for the authority."""

    folder: Path
    server: str = "localhost"
    port: int = 8002
    roles: dict[str, Role] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.folder / "kits"

    @property
    def authority(self) -> Path:
        return self.out / "authority"

    def own(self, name: str) -> Path:
        """The folder of one of them."""
        return self.folder / name

    def ask(self, role: Role, name: str) -> Path:
        """Make keys and a request."""
        self.roles[name] = role
        return enroll(self.own(name), role, name)[0]

    def sign(self, *requests: Path) -> list[Path]:
        """The authority's answers."""
        return list(sign(self.out, requests, server=self.server, port=self.port))

    def join(self, role: Role, name: str) -> Kit:
        """All three steps."""
        (answer,) = self.sign(self.ask(role, name))
        return install(answer, self.own(name))


def unpacked(file: Path) -> dict[str, bytes]:
    """What is in a kit that is one file."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
