"""The remembered requests of a run, in order: what brings a site up to date that forgot or joins late."""

from __future__ import annotations

import msgspec

from coterie.messages import codec


class Remembered(msgspec.Struct, array_like=True):
    """One remembered request: its bytes, and the sites it was meant for (None: all, whoever was there)."""

    body: bytes
    to: tuple[str, ...] | None = None


class Transcript:
    """All remembered requests of a run, and what each site should have made of them."""

    def __init__(self) -> None:
        self.entries: list[Remembered] = []
        self._digests: dict[str, tuple[int, bytes]] = {}
        self._is_common = True

    def add(self, entry: Remembered) -> None:
        self.entries.append(entry)
        if entry.to is not None and self._is_common:
            self._is_common = False  # from here on sites' transcripts differ
            self._digests.clear()

    def bodies(self, site: str) -> list[bytes]:
        """What this site has to remember."""
        return [entry.body for entry in self.entries if entry.to is None or site in entry.to]

    def digest(self, site: str) -> bytes:
        """Eight bytes that stand for what this site has to remember."""
        key = "" if self._is_common else site
        counted, digest = self._digests.get(key, (0, codec.NO_TRANSCRIPT))
        for entry in self.entries[counted:]:
            if entry.to is None or site in entry.to:
                digest = codec.extend_transcript(digest, entry.body)
        self._digests[key] = (len(self.entries), digest)
        return digest
