"""Append-only lines, chained by hashes.

A line is a JSON object whose ``chain`` is the SHA-256 of the previous ``chain`` and the line itself. Editing,
dropping, adding or reordering a line breaks the chain there. A head file beside the lines holds their number and
the last hash, so that truncation is detected as well. Whoever rewrites the whole file can rewrite its head file, so
that a second line of the head file has room for a head that the owner of the lines signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coterie.errors import CoterieError, LedgerBroken
from coterie.files import opened_private, private_folder

START = "0" * 64
_MARK = b',"chain":"'
_HEAD = "{:020d} {}\n"
_SEAL_AT = len(_HEAD.format(0, START))
_HASH_BYTES = 32
_HEAD_BYTES, _LINE_BYTES = 1 << 10, 1 << 29
"""The most that is read of a head file and of a line, which holds an answer at most."""


def seal(previous: str, line: bytes) -> str:
    """The hash of ``line`` and of the chain before it."""
    return hashlib.sha256(previous.encode() + line).hexdigest()


class Chain:
    """Chained lines in memory or, with a path, in a file that is written before :meth:`append` returns.

    ``durable`` waits for the disk at every line. Without it a killed process loses nothing, but a machine that loses
    power may lose the last lines.
    """

    def __init__(self, path: Path | None = None, *, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self.n_lines = 0
        self.head = START
        self.size = 0
        """Bytes in the file: the start of the next line."""
        self._hashes = bytearray()
        self._files: tuple[int, int] | None = None
        self._is_abandoned = False

    def reopen(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The start of each line in the file, and the line; the chain then continues after the last line.

        An incomplete last line, left by a crash, was never acted upon and is removed.
        """
        if self.path is None or not self.path.exists():
            return
        written, head = _read_head(self.path) or (0, START)
        for line, end in _lines(self.path, torn_tail_allowed=True):
            start, self.size = self.size, end
            self._extend(line["chain"])
            if written == self.n_lines and head != self.head:
                raise LedgerBroken(f"{self.path}: line {self.n_lines} is not the line that was written last")
            yield start, line
        if self.n_lines < written:
            raise LedgerBroken(f"{self.path}: {written - self.n_lines} lines are missing at the end")
        if self.n_lines > written + 1:  # a crash can leave the head one line behind, not two
            raise LedgerBroken(f"{self.path}: its head file is missing or outdated, so lines may be missing or added")
        os.truncate(self.path, self.size)

    def append(self, line: dict[str, Any]) -> str:
        """Store one line and return its hash. A line that cannot be stored leaves no trace."""
        if not line:
            raise ValueError("a line of a ledger cannot be empty")
        if self._is_abandoned:
            raise OSError(f"{self.path or 'the ledger'} is now written by another process")
        raw = msgspec.json.encode(line)
        head = seal(self.head, raw)
        if self.path is not None:
            self._write(raw[:-1] + _MARK + head.encode() + b'"}\n', head)
        self._extend(head)
        return head

    def hash_at(self, n_lines: int) -> bytes | None:
        """The hash of the first ``n_lines`` lines; None where there are fewer."""
        end = n_lines * _HASH_BYTES
        return bytes(self._hashes[end - _HASH_BYTES : end]) if 0 < n_lines <= self.n_lines else None

    def seal(self, signed: str) -> None:
        """Keep a signed head in the head file, in place of the one before."""
        if self.path is not None and not self._is_abandoned:
            os.pwrite(self._open()[1], signed.encode() + b"\n", _SEAL_AT)

    def _extend(self, head: str) -> None:
        self.head, self.n_lines = head, self.n_lines + 1
        self._hashes += bytes.fromhex(head)

    def line_at(self, start: int) -> dict[str, Any]:
        """The line that begins at byte ``start`` of the file."""
        assert self.path is not None
        with self.path.open("rb") as file:
            file.seek(start)
            return msgspec.json.decode(file.readline(), type=dict[str, Any])

    def close(self) -> None:
        """Close the files; the next line opens them again."""
        if self._files is not None:
            for file in self._files:
                os.close(file)
            self._files = None

    def abandon(self) -> None:
        """Refuse further lines, since another writer has taken over the file."""
        self._is_abandoned = True

    def _write(self, line: bytes, head: str) -> None:
        lines, heads = self._open()
        if os.fstat(lines).st_size != self.size:  # part of a line whose write failed
            os.ftruncate(lines, self.size)
        try:
            written = os.write(lines, line)
            while written < len(line):
                written += os.write(lines, line[written:])
            if self.durable:
                os.fsync(lines)
            os.pwrite(heads, _HEAD.format(self.n_lines + 1, head).encode(), 0)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(lines, self.size)
            raise
        self.size += len(line)

    def _open(self) -> tuple[int, int]:
        assert self.path is not None
        if self._files is None:
            private_folder(self.path.parent)
            lines = opened_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._files = lines, opened_private(head_path(self.path), os.O_WRONLY | os.O_CREAT)
        return self._files


def head_path(path: Path) -> Path:
    """The file with the number of lines and the last hash of a chain."""
    return path.with_name(path.name + ".head")


def read_seal(path: Path) -> str | None:
    """The signed head in the head file; None if there is none."""
    parts = _head_parts(path)
    return parts[2] if len(parts) > 2 else None


def read_chain(path: Path) -> list[dict[str, Any]]:
    """All lines of a finished chain; :class:`LedgerBroken` names the first line that fails verification."""
    lines = [line for line, _ in _lines(path, torn_tail_allowed=False)]
    expected = _read_head(path)
    if expected is None:
        raise LedgerBroken(f"{head_path(path)} is missing, so lines may be missing at the end of {path}")
    head = lines[-1]["chain"] if lines else START
    if expected != (len(lines), head):
        raise LedgerBroken(f"{path} holds {len(lines)} lines; according to its head file, {expected[0]} were written")
    return lines


def read_open_chain(path: Path) -> list[dict[str, Any]]:
    """All lines of a chain that is being written, or whose writer was killed.

    The file may have newer lines than the head, and an incomplete last line; no line of the head may be missing.
    """
    written, head = _read_head(path) or (0, START)
    lines = [line for line, _ in _lines(path, torn_tail_allowed=True)]
    if len(lines) < written or (written and lines[written - 1]["chain"] != head):
        raise LedgerBroken(f"{path} does not hold the {written} lines of its head file")
    return lines


def _read_head(path: Path) -> tuple[int, str] | None:
    parts = _head_parts(path)
    if not parts:  # a crash before the first line was complete
        return None
    if len(parts) < 2 or not parts[0].isdecimal():
        raise LedgerBroken(f"{head_path(path)} cannot be read")
    return int(parts[0]), parts[1]


def _head_parts(path: Path) -> list[str]:
    """The number of lines, the last hash and, where the owner signs heads, a signed head."""
    head = head_path(path)
    if not head.exists():
        return []
    try:
        with head.open() as file:
            parts = file.read(_HEAD_BYTES).split()
    except ValueError:
        parts = ["?"]
    if len(parts) > 3:
        raise LedgerBroken(f"{head} cannot be read")
    return parts


def _lines(path: Path, *, torn_tail_allowed: bool) -> Iterator[tuple[dict[str, Any], int]]:
    """Each verified line, and the position of its end."""
    previous, end = START, 0
    with path.open("rb") as file:
        for number, text in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), start=1):
            end += len(text)
            if not text.endswith(b"\n"):
                if torn_tail_allowed:
                    return
                raise LedgerBroken(f"{path}: line {number} is truncated")
            body, mark, tail = text.rpartition(_MARK)
            stated = tail[:64].decode("ascii", "replace")
            if not mark or tail[64:] != b'"}\n' or seal(previous, body + b"}") != stated:
                raise LedgerBroken(f"{path}: line {number} was changed, or a line before it is missing")
            previous = stated
            try:
                line = msgspec.json.decode(text, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise LedgerBroken(f"{path}: line {number} is no JSON object") from None
            yield line, end


@contextlib.contextmanager
def known_lines(path: Path | None) -> Iterator[None]:
    """Within, a line that lacks what every line of a ledger has is ``LedgerBroken``, not an error of Python."""
    try:
        yield
    except CoterieError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise LedgerBroken(f"{path}: a line is not one that coterie writes to a ledger") from None
