"""What a site's rules must not forget, wherever it is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Notes", "allows"]


class Notes(Protocol):
    """Where a guard keeps what it must not forget."""

    def note(self, run: bytes, what: str, data: bytes) -> None:
        """Keep ``data``."""
        ...

    def notes(self, run: bytes, what: str) -> Sequence[bytes]:
        """Everything kept under ``what``, in order."""
        ...


def allows(notes: Notes, run: bytes, what: str, key: bytes, most: int) -> bool:
    """Whether ``what`` happens with at most ``most`` different keys in a run, this one included; written down."""
    digest = hashlib.sha256(key).digest()[:16]
    before = notes.notes(run, what)
    if digest in before:
        return True
    if len(before) >= most:
        return False
    notes.note(run, what, digest)
    return True
