"""The header of every frame, and the digests in it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from coterie.errors import MalformedMessage

FORMAT_VERSION = 2
MAX_FRAME_BYTES = 1 << 28
MAX_ANSWER_BYTES = 1 << 28
MAX_METHOD_BYTES = 32
NO_TRANSCRIPT = bytes(8)


class Form(IntEnum):
    """What a frame is."""

    QUESTION = 1
    RECALL = 2
    ANSWER = 3
    REFUSAL = 4


class Envelope(NamedTuple):
    """The header of every message."""

    version: int
    run: bytes
    round: int
    attempt: int
    roster: bytes
    """Digest of the names of the sites asked in this exchange."""
    site: bytes
    """Digest of the site this message is sent to or comes from."""
    request: bytes
    """Digest of the request's body."""
    method: str


# version, form, run, round, attempt, roster, site, request, length of the method's name
HEADER = struct.Struct("<BB16sIH8s8s16sB")
_FORMS = frozenset(int(form) for form in Form)


@lru_cache(maxsize=4096)
def site_tag(name: str) -> bytes:
    """Eight bytes that stand for a site in every envelope."""
    return hashlib.blake2b(name.encode(), digest_size=8, person=b"coterie-site").digest()


def roster_digest(names: Iterable[str]) -> bytes:
    """Eight bytes that stand for the set of sites asked in one exchange."""
    tags = b"".join(sorted(map(site_tag, names)))
    return hashlib.blake2b(tags, digest_size=8, person=b"coterie-roster").digest()


def extend_transcript(transcript: bytes, body: bytes) -> bytes:
    """The digest of all remembered requests so far, after one more."""
    return hashlib.blake2b(transcript + body, digest_size=8, person=b"coterie-script").digest()


def request_digest(data: bytes | memoryview) -> bytes:
    """Sixteen bytes that stand for an encoded request."""
    return hashlib.sha256(data).digest()[:16]


def header(form: Form, envelope: Envelope) -> bytes:
    """The bytes every frame of that form begins with."""
    name = envelope.method.encode("ascii")
    version, run, round_, attempt, roster, site, request, _ = envelope
    return HEADER.pack(version, form, run, round_, attempt, roster, site, request, len(name)) + name


def read_envelope(frame: bytes) -> tuple[Form, Envelope, int]:
    """The form and envelope of any frame, and where the rest begins."""
    if len(frame) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"the message has more than {MAX_FRAME_BYTES} bytes")
    if len(frame) < HEADER.size:
        raise MalformedMessage("the message is shorter than its header")
    version, form, run, round_, attempt, roster, site, request, length = HEADER.unpack_from(frame)
    if version != FORMAT_VERSION:
        raise MalformedMessage(
            f"message format {version} is not supported; this version uses format {FORMAT_VERSION}"
        )
    if form not in _FORMS:
        raise MalformedMessage(f"form {form} of a message is unknown")
    start = HEADER.size + length
    name = frame[HEADER.size : start]
    if length > MAX_METHOD_BYTES or len(name) != length or not (name.isascii() and name.decode().isprintable()):
        raise MalformedMessage("the method's name is not readable")
    return Form(form), Envelope(version, run, round_, attempt, roster, site, request, name.decode()), start
