"""The authority's register: which certificates it issued, for which keys, and which of them it revoked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coterie.engines.nvflare.tls import write_secret
from coterie.errors import InputError
from coterie.messages.identity import Authority, Certificate, Revocations, Role
from coterie.sites.ledger import kept_secret


class Issued(msgspec.Struct, frozen=True):
    """A certificate that was issued."""

    role: Role
    name: str
    serial: str = ""
    """Of the certificate for a signing key; a server has none."""
    keys: str = ""
    """The fingerprint of the keys in the request; empty where keys were made here."""
    ends: int = 0


class _Pages(msgspec.Struct):
    issued: list[Issued] = []
    revoked: list[str] = []
    number: int = 0
    """Of the newest list of revoked certificates."""


class Register:
    """The file ``issued.json`` in the authority's folder, and the key beside it that signs."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(kept_secret(folder / "coterie.key"))
        self._path = folder / "issued.json"
        try:
            raw = self._path.read_bytes() if self._path.exists() else b"{}"
            self._pages = msgspec.json.decode(raw, type=_Pages)
        except msgspec.MsgspecError:
            raise InputError(f"{self._path} cannot be read; restore it from a backup.") from None

    def certify(self, role: Role, name: str, signing_key: bytes, keys: str = "") -> Certificate:
        """A certificate, which is noted before anyone gets it."""
        made = self.authority.certify(role, name, signing_key)
        self._note(Issued(role, name, made.serial.hex(), keys, made.ends))
        return made

    def note_server(self, name: str, keys: str) -> None:
        """Note whose request became the server's kit."""
        self._note(Issued("server", name, keys=keys))

    def enrolled(self) -> dict[str, Issued]:
        """Whoever made their keys themselves, by name, with what was issued last and not revoked."""
        pages = self._pages
        return {one.name: one for one in pages.issued if one.keys and one.serial not in pages.revoked}

    def revoked(self) -> Revocations:
        """The newest signed list."""
        return self.authority.revoke([bytes.fromhex(serial) for serial in self._pages.revoked], self._pages.number)

    def revoke(self, name: str) -> Revocations:
        """A signed list with every certificate of this name."""
        serials = [one.serial for one in self._pages.issued if one.name == name and one.serial]
        if not serials:
            raise InputError(f"no certificate of a site or an analyst named {name!r} was issued here.")
        self._pages.revoked = list(dict.fromkeys([*self._pages.revoked, *serials]))
        self._pages.number += 1
        self._write()
        return self.revoked()

    def _note(self, issued: Issued) -> None:
        self._pages.issued.append(issued)
        self._write()

    def _write(self) -> None:
        write_secret(self._path, msgspec.json.format(msgspec.json.encode(self._pages)) + b"\n")
