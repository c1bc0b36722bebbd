"""Bounds on files that are small on disk and large once expanded: they are refused before they are.

Files that are streamed may be of any size. Bounded is what one read takes at once: it may be large, or much larger
than the file, but not both.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from coterie.errors import InputError
from coterie.text import count_of

LARGEST_READ, LARGEST_RATIO = 256 << 20, 200
"""An expansion that is beyond both, in bytes and times the file's size, is refused."""
ROWS_A_BYTE = 100_000
"""Constant columns take next to nothing on disk; still, a file of so few bytes a row holds no table."""
FEW_COLUMNS = 10_000
"""So many are never refused; more need a byte each on disk."""
MOST_MEMBERS = 1000
"""Of a .npz archive."""
HEADER_BYTES = 1 << 14
"""The most that is read of the header of an array."""


def check_expansion(name: str, expanded: int, on_disk: int) -> None:
    """``InputError`` for what takes much more memory than its file has bytes."""
    if expanded > max(LARGEST_READ, LARGEST_RATIO * on_disk):
        raise InputError(
            f"{name}: {on_disk:,} bytes would expand to {expanded:,} or more at once; above {LARGEST_READ >> 20} MB, "
            f"{LARGEST_RATIO} times the size of the file is the most that is read. Save it in smaller parts, or "
            "uncompressed"
        )


def check_size(name: str, n_rows: int, n_columns: int, on_disk: int) -> None:
    """``InputError`` for rows or columns that a file of this size cannot hold."""
    if not 0 <= n_rows <= ROWS_A_BYTE * on_disk or n_columns > max(FEW_COLUMNS, on_disk):
        shape = f"{count_of(n_rows, 'row')} and {count_of(n_columns, 'column')}"
        raise InputError(f"{name}: declares {shape} in {on_disk:,} bytes; it is damaged, write it again")


class GzipText(gzip.GzipFile):
    """A compressed file, read in parts, up to the bound."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, "rb")
        self._table, self._on_disk = name, path.stat().st_size

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        check_expansion(self._table, self.tell(), self._on_disk)
        return data


class ArrayHeader(NamedTuple):
    """What an array says of itself, and the bytes there are."""

    shape: tuple[int, ...]
    dtype: Any
    n_bytes: int

    @classmethod
    def read(cls, file: Any, n_bytes: int) -> ArrayHeader:
        """The header of an array file of ``n_bytes``, header and all."""
        start = io.BytesIO(file.read(HEADER_BYTES))
        old = np.lib.format.read_magic(start) == (1, 0)
        read: Any = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(start)
        return cls(shape, dtype, n_bytes - start.tell())

    def check(self, name: str, on_disk: int) -> None:
        """Raise what is wrong with an array that is about to be read."""
        if self.dtype.hasobject:
            raise InputError(f"{name}: holds Python objects, which are not read; save numbers or text")
        if min(self.shape, default=0) < 0 or math.prod(self.shape) * self.dtype.itemsize != self.n_bytes:
            raise ValueError("the array is not as large as its header says")
        check_expansion(name, self.n_bytes, on_disk)
        if len(self.shape) == 2:
            check_size(name, *self.shape, on_disk)


def array_headers(archive: zipfile.ZipFile, name: str) -> dict[str, ArrayHeader]:
    """The arrays of a .npz archive by their names."""
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{name}: holds {len(members):,} arrays; {MOST_MEMBERS:,} are the most that is read")
    headers = {}
    for member in members:
        if not member.filename.endswith(".npy"):
            continue
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{name}: {member.filename!r} is compressed in a way numpy never does; save it again")
        with archive.open(member) as file:
            headers[member.filename.removesuffix(".npy")] = ArrayHeader.read(file, member.file_size)
    return headers


class IpcBatch(NamedTuple):
    """What an Arrow file says of one of its batches: rows, and bytes that it takes once expanded."""

    n_rows: int
    expanded: int


def check_ipc(path: Path, name: str) -> int:
    """The number of rows of an Arrow IPC file; ``InputError`` if a batch would expand beyond the bound."""
    on_disk = path.stat().st_size
    with path.open("rb") as file:
        batches, dictionaries = _ipc_batches(file, on_disk)
    check_expansion(name, sum(batch.expanded for batch in dictionaries), on_disk)
    for batch in batches:
        check_expansion(name, batch.expanded, on_disk)
    return sum(batch.n_rows for batch in batches)


def _ipc_batches(file: BinaryIO, size: int) -> tuple[list[IpcBatch], list[IpcBatch]]:
    """Record batches and dictionaries, by the file's footer."""
    file.seek(size - 10)
    (length,) = struct.unpack("<i", file.read(4))
    file.seek(size - 10 - max(0, length))
    footer = _Flat.root(file.read(max(0, length)))
    batches, dictionaries = (footer.structs(field, "<qi4xq") for field in (3, 2))
    if any(min(block) < 0 or sum(block) > size for block in (*batches, *dictionaries)):
        raise ValueError("a batch lies outside of the file")
    return [_ipc_batch(file, *block) for block in batches], [_ipc_batch(file, *block) for block in dictionaries]


def _ipc_batch(file: BinaryIO, offset: int, n_metadata: int, n_body: int) -> IpcBatch:
    file.seek(offset)
    raw = file.read(n_metadata)
    message = _Flat.root(raw[8:] if raw[:4] == b"\xff" * 4 else raw[4:])
    if message.scalar(3, "<q") != n_body:  # Arrow takes as much memory
        raise ValueError("a batch is not as large as the file's footer says")
    batch = message.table(2)
    if message.scalar(1, "<B") == 2:  # a dictionary holds a batch
        batch = batch.table(1)
    buffers = batch.structs(2, "<qq")
    if not batch.place(3):  # not compressed: mapped into memory
        return IpcBatch(batch.scalar(0, "<q"), 0)
    return IpcBatch(batch.scalar(0, "<q"), sum(_expanded(file, offset + n_metadata + at, n) for at, n in buffers))


def _expanded(file: BinaryIO, start: int, n_bytes: int) -> int:
    """The declared size of a compressed buffer; -1 stands for one that is stored as it is."""
    if n_bytes < 8:
        return 0
    file.seek(start)
    (declared,) = struct.unpack("<q", file.read(8))
    return n_bytes if declared < 0 else int(declared)


class _Flat(NamedTuple):
    """A table of a FlatBuffer, as Arrow writes its metadata."""

    data: bytes
    start: int

    @classmethod
    def root(cls, data: bytes) -> _Flat:
        return cls(data, _unpacked("<I", data, 0)[0])

    def place(self, field: int) -> int:
        """Where a field lies; 0 if it is not there."""
        about = self.start - _unpacked("<i", self.data, self.start)[0]
        if 4 + 2 * field >= _unpacked("<H", self.data, about)[0]:
            return 0
        offset: int = _unpacked("<H", self.data, about + 4 + 2 * field)[0]
        return offset and self.start + offset

    def scalar(self, field: int, form: str) -> int:
        place = self.place(field)
        return int(_unpacked(form, self.data, place)[0]) if place else 0

    def table(self, field: int) -> _Flat:
        return _Flat(self.data, self._target(field))

    def structs(self, field: int, form: str) -> Sequence[tuple[Any, ...]]:
        """The members of a vector of structs."""
        if not self.place(field):
            return []
        start, size = self._target(field), struct.calcsize(form)
        n = _unpacked("<I", self.data, start)[0]
        return list(struct.iter_unpack(form, self.data[start + 4 : start + 4 + n * size]))

    def _target(self, field: int) -> int:
        place = self.place(field)
        return place + int(_unpacked("<I", self.data, place)[0])


def _unpacked(form: str, data: bytes, place: int) -> tuple[Any, ...]:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise ValueError("an offset is outside of the data")
    return struct.unpack_from(form, data, place)
