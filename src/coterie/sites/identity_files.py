"""The files of an identity in a kit: a signing key, its certificate, the authority, and what it revoked."""

from __future__ import annotations

import base64
from pathlib import Path

from coterie.errors import InputError, Untrusted
from coterie.files import MEGABYTE, private_folder, read_from_others, write_private
from coterie.messages.identity import Authority, Certificate, Identity, Revocations, Role, Trust, public_signing_key
from coterie.sites.ledger import kept_secret

NOTHING = Revocations(0, frozenset())


class IdentityFiles:
    """The folder ``startup/identity`` of a kit."""

    def __init__(self, kit: Path) -> None:
        self.folder = kit / "startup" / "identity"

    def key(self) -> bytes:
        """The signing key, made here if there is none."""
        private_folder(self.folder)
        return kept_secret(self.folder / "key")

    def write(self, authority: Authority, certificate: Certificate | None, revoked: Revocations = NOTHING) -> None:
        """Write what an authority says of this kit."""
        private_folder(self.folder)
        parts = {"authority": authority.public}
        if certificate is not None:
            parts["certificate"] = certificate.to_bytes()
        if revoked.number:
            parts["revoked"] = revoked.to_bytes()
        for file, raw in parts.items():
            write_private(self.folder / file, as_text(raw).encode())

    @property
    def is_certified(self) -> bool:
        """Whether there is a certificate."""
        return (self.folder / "certificate").exists()

    def own_public_key(self) -> bytes | None:
        """The public half of the signing key; None if there is none yet."""
        path = self.folder / "key"
        return public_signing_key(path.read_bytes()) if path.exists() else None

    def authority(self) -> bytes | None:
        """The public key of the authority, if there is one yet."""
        path = self.folder / "authority"
        return from_text(path.read_bytes()) if path.exists() else None

    def trust(self) -> Trust:
        """The authority, and what it revoked as far as is known here."""
        path = self.folder / "revoked"
        known = Revocations.from_bytes(from_text(path.read_bytes())) if path.exists() else NOTHING
        return Trust(from_text((self.folder / "authority").read_bytes()), known)

    def read(self, role: Role, name: str) -> Identity:
        """Who this is, and whom it trusts; raises what is wrong with its certificate."""
        try:
            own = Certificate.from_bytes(from_text((self.folder / "certificate").read_bytes()))
            identity = Identity(name, (self.folder / "key").read_bytes(), own, self.trust())
            if own.signing_key != public_signing_key(identity.key):
                raise Untrusted("it is for another signing key than the one in this kit")
        except FileNotFoundError:
            raise InputError(
                f"{self.folder.parents[1]}: this kit has no certificate for a signing key; whoever made it makes a "
                "new one (docs/operations.md, Upgrading)."
            ) from None
        except (OSError, ValueError, Untrusted) as problem:
            raise InputError(f"{self.folder}: the certificate cannot be read ({problem}).") from None
        identity.trust.check(own, role, name)
        return identity

    def install_revoked(self, file: Path) -> Revocations:
        """Replace the list of revoked certificates by one that this kit's authority signed, and not earlier."""
        raw = read_from_others(file, MEGABYTE)
        try:
            trust = self.trust()
            found = Revocations.from_bytes(from_text(raw))
            if not found.number:
                raise Untrusted("it has no number")
            Trust(trust.authority, found)
        except FileNotFoundError:
            raise InputError(f"{self.folder}: this kit has no authority yet; install it first.") from None
        except (ValueError, Untrusted) as problem:
            raise InputError(f"{file}: this is no list of revoked certificates ({problem}).") from None
        if found.number < trust.revoked.number:
            raise InputError(
                f"{file}: list {found.number} is older than list {trust.revoked.number}, which is installed here."
            )
        write_private(self.folder / "revoked", as_text(found.to_bytes()).encode())
        return found


def as_text(raw: bytes) -> str:
    """Bytes as the line of a file."""
    return base64.b64encode(raw).decode() + "\n"


def from_text(text: bytes) -> bytes:
    """The bytes of such a line; ``ValueError`` where it is none."""
    return base64.b64decode(text.strip(), validate=True)
