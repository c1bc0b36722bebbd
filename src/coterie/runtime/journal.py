"""What the algorithm saw, so that a run that was killed goes on where it stopped.

The journal is a header and one record a question. Resuming replays the algorithm from its start and feeds it
the recorded answers; no algorithm holds checkpoint code. A record torn by the crash is dropped: its question is
asked again under the same round and attempt, and the sites send the bytes they stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from coterie.errors import InputError, JournalMismatch
from coterie.files import opened_private, private_folder, read_bounded, write_private
from coterie.runtime.ledger import Exchange
from coterie.runtime.roster import Standing
from coterie.runtime.transcript import Remembered

JOURNAL_SCHEMA = 5


class Header(msgspec.Struct):
    """What must be the same for a replay to be bit-identical."""

    schema: int
    run: str
    method: str
    versions: dict[str, str]
    settings: dict[str, Any]
    arithmetic: dict[str, Any] = {}
    """What :func:`coterie.maths.arithmetic.described` says of where the run began."""
    sites: list[str] = []
    """Who was there at the start: the first question may be in flight when a run is killed."""


class Record(msgspec.Struct, array_like=True):
    """One question and what came of it."""

    question: bytes
    """Digest of what was asked."""
    kind: str
    """``sum``, ``single``, ``present`` or ``raised``."""
    value: bytes
    next_round: int
    exchanges: list[Exchange]
    standings: dict[str, Standing]
    remembered: list[Remembered]
    layers: list[bytes] = []
    """The state of every layer."""


def _difference(name: str, then: Any, now: Any) -> str:
    """The first thing that is not the same, by its name, with both values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            if then.get(key) != now.get(key):
                return _difference(f"{name}.{key}", then.get(key), now.get(key))
    return f"{name}: it was {then!r} and is now {now!r}"


def _remedy(name: str, then: Header, now: Header) -> str:
    """What to do about a difference, as the end of its sentence."""
    if name == "versions":
        return "; go back to the versions it began with, or begin it anew"
    if name == "arithmetic":
        kernels = _openblas_kernels(then)
        by_choice = len(kernels) == 1 and kernels != _openblas_kernels(now)
        choice = f", set OPENBLAS_CORETYPE={kernels.pop()}" if by_choice else ""
        return f"; resume it where it began{choice}, or begin it anew"
    return ""


def _openblas_kernels(header: Header) -> set[str]:
    with contextlib.suppress(LookupError, TypeError, AttributeError):  # a header that somebody else wrote
        libraries = header.arithmetic["blas"].values()
        return {str(library["kernel"]) for library in libraries if library["version"].startswith("openblas")}
    return set()


_RECORD = msgspec.msgpack.Decoder(Record)
_CHECK = 8
_HEADER_BYTES = 256 << 20


class Journal:
    """A folder with ``header.json`` and ``records.bin``."""

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.folder = Path(folder)
        self.header: Header | None = None
        self.life = 0
        """How often this run was begun or resumed before."""
        self._header_path, self._records_path = self.folder / "header.json", self.folder / "records.bin"
        self._records: list[Record] = []
        self._place = 0
        if resume:
            self._load()
        elif self._header_path.exists():
            raise InputError(f"{self.folder} already holds the journal of a run; resume it, or choose another folder")

    def begin(self, header: Header) -> Header:
        """Write the header of a new run, or check it against the one being resumed."""
        private_folder(self.folder)
        with open(self.folder / "lives", "ab", opener=opened_private) as lives:
            self.life = lives.tell()
            lives.write(b".")
        if self.header is None:
            write_private(self._header_path, msgspec.json.format(msgspec.json.encode(header), indent=2))
            self.header = header
            return header
        for name in ("method", "settings", "versions", "arithmetic"):
            then, now = getattr(self.header, name), getattr(header, name)
            if then != now:
                raise JournalMismatch(
                    f"{self.folder}: the run being resumed differs in {_difference(name, then, now)}"
                    f"{_remedy(name, self.header, header)}"
                )
        return self.header

    def recorded(self) -> Record | None:
        """The next record to replay, or None where the run stopped."""
        if self._place >= len(self._records):
            return None
        record = self._records[self._place]
        self._place += 1
        return record

    def write(self, record: Record) -> None:
        """Add one record; it is in the file when this returns."""
        data = msgspec.msgpack.encode(record)
        frame = len(data).to_bytes(8, "little") + hashlib.blake2b(data, digest_size=_CHECK).digest() + data
        with open(self._records_path, "ab", opener=opened_private) as file:
            file.write(frame)
            file.flush()
            os.fsync(file.fileno())

    def _load(self) -> None:
        if not self._header_path.exists():
            return  # killed before it began, or never begun: start anew
        try:
            self.header = msgspec.json.decode(read_bounded(self._header_path, _HEADER_BYTES), type=Header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InputError):
            raise JournalMismatch(f"{self._header_path} cannot be read") from None
        if self.header.schema != JOURNAL_SCHEMA:
            raise JournalMismatch(
                f"{self.folder}: journal format {self.header.schema} is not known here ({JOURNAL_SCHEMA} is); finish "
                f"the run with coterie {self.header.versions.get('coterie')}, which began it, or begin it anew"
            )
        if self._records_path.exists():
            os.truncate(self._records_path, self._read_records(self._records_path.read_bytes()))

    def _read_records(self, data: bytes) -> int:
        """Read whole records; return where they end. Whatever follows was torn by the crash."""
        place = 0
        while True:
            start = place + 8 + _CHECK
            stop = start + int.from_bytes(data[place : place + 8], "little")
            if start > len(data) or stop > len(data):
                return place
            body = data[start:stop]
            if hashlib.blake2b(body, digest_size=_CHECK).digest() != data[place + 8 : start]:
                if stop == len(data):
                    return place
                raise JournalMismatch(f"{self._records_path} is damaged at byte {place}")
            try:
                self._records.append(_RECORD.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise JournalMismatch(f"{self._records_path} is damaged at byte {place}") from None
            place = stop
