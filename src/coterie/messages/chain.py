"""Append-only lines, each sealed with the hash of all before it.

A line is a JSON object whose ``chain`` is the SHA-256 of the previous ``chain`` and the line itself. Editing,
dropping, adding or reordering a line breaks the chain there; a small head file beside the lines keeps their
number and the last hash, so that cutting off the end shows as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coterie.errors import LedgerBroken

START = "0" * 64
_MARK = b',"chain":"'
_HEAD = "{:020d} {}\n"


def seal(previous: str, line: bytes) -> str:
    """The hash that ties ``line`` to everything before it."""
    return hashlib.sha256(previous.encode() + line).hexdigest()


class Chain:
    """Sealed lines in memory or, with a path, in a file that is written before :meth:`append` returns.

    ``durable`` waits for the disk at every line, for machines that may lose power; without it a killed
    process loses nothing, a killed machine perhaps the last lines.
    """

    def __init__(self, path: Path | None = None, *, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self.n_lines = 0
        self.head = START
        self.size = 0
        """Bytes in the file: where the next line will begin."""
        self._files: tuple[int, int] | None = None
        self._is_abandoned = False

    def reopen(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Where each line already in the file begins, and the line; the chain then goes on behind the last.

        A last line torn by a crash was never acted upon: it is cut off.
        """
        if self.path is None or not self.path.exists():
            return
        written, head = _read_head(self.path) or (0, START)
        for line, end in _lines(self.path, torn_tail_allowed=True):
            start, self.size = self.size, end
            self.head, self.n_lines = line["chain"], self.n_lines + 1
            if written == self.n_lines and head != self.head:
                raise LedgerBroken(f"{self.path}: line {self.n_lines} is not the one that was written last")
            yield start, line
        if self.n_lines < written:
            raise LedgerBroken(f"{self.path}: {written - self.n_lines} lines are missing at the end")
        if self.n_lines > written + 1:  # a crash can part one line from the head, not two
            raise LedgerBroken(f"{self.path}: its head is gone or old, so lines may be missing or added")
        os.truncate(self.path, self.size)

    def append(self, line: dict[str, Any]) -> str:
        """Seal and store one line; return its hash. A line that cannot be stored leaves no trace."""
        if not line:
            raise ValueError("a line of a ledger says something")
        if self._is_abandoned:
            raise OSError(f"{self.path or 'the ledger'} is written by someone else now")
        raw = msgspec.json.encode(line)
        head = seal(self.head, raw)
        if self.path is not None:
            self._write(raw[:-1] + _MARK + head.encode() + b'"}\n', head)
        self.head = head
        self.n_lines += 1
        return head

    def line_at(self, start: int) -> dict[str, Any]:
        """The line that begins at byte ``start`` of the file."""
        assert self.path is not None
        with self.path.open("rb") as file:
            file.seek(start)
            return msgspec.json.decode(file.readline(), type=dict[str, Any])

    def close(self) -> None:
        """Give the files back; a further line opens them again."""
        if self._files is not None:
            for file in self._files:
                os.close(file)
            self._files = None

    def abandon(self) -> None:
        """Refuse every further line: two that write the same file would cut off each other's."""
        self._is_abandoned = True

    def _write(self, line: bytes, head: str) -> None:
        lines, heads = self._open()
        if os.fstat(lines).st_size != self.size:  # half a line that could not be taken back when it failed
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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._files = lines, os.open(head_path(self.path), os.O_WRONLY | os.O_CREAT, 0o600)
        return self._files


def head_path(path: Path) -> Path:
    """Where the number of lines and the last hash of a chain are kept."""
    return path.with_name(path.name + ".head")


def read_chain(path: Path) -> list[dict[str, Any]]:
    """All lines of a finished chain; :class:`LedgerBroken` names the first one that does not hold."""
    lines = [line for line, _ in _lines(path, torn_tail_allowed=False)]
    expected = _read_head(path)
    if expected is None:
        raise LedgerBroken(f"{head_path(path)} is missing, so lines may be missing at the end of {path}")
    head = lines[-1]["chain"] if lines else START
    if expected != (len(lines), head):
        raise LedgerBroken(f"{path} holds {len(lines)} lines; its head says {expected[0]} were written")
    return lines


def read_open_chain(path: Path) -> list[dict[str, Any]]:
    """The same of a chain that is being written, or whose writer was killed.

    Lines may be there that the head does not know yet, and a last one may be torn; none that it knows may be missing.
    """
    written, head = _read_head(path) or (0, START)
    lines = [line for line, _ in _lines(path, torn_tail_allowed=True)]
    if len(lines) < written or (written and lines[written - 1]["chain"] != head):
        raise LedgerBroken(f"{path} holds {len(lines)} lines, or others; its head says {written} were written")
    return lines


def _read_head(path: Path) -> tuple[int, str] | None:
    head = head_path(path)
    if not head.exists() or not head.stat().st_size:  # a crash before the first line was whole
        return None
    try:
        lines, chain = head.read_text().split()
        return int(lines), chain
    except ValueError:
        raise LedgerBroken(f"{head} cannot be read") from None


def _lines(path: Path, *, torn_tail_allowed: bool) -> Iterator[tuple[dict[str, Any], int]]:
    """Each line with its hash checked, and the byte behind it."""
    previous, end = START, 0
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            end += len(text)
            if not text.endswith(b"\n"):
                if torn_tail_allowed:
                    return
                raise LedgerBroken(f"{path}: line {number} is cut short")
            body, mark, tail = text.rpartition(_MARK)
            stated = tail[:64].decode("ascii", "replace")
            if not mark or tail[64:] != b'"}\n' or seal(previous, body + b"}") != stated:
                raise LedgerBroken(f"{path}: line {number} was changed, or a line before it is missing")
            previous = stated
            yield msgspec.json.decode(text, type=dict[str, Any]), end
