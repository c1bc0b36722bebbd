"""Files of others, read only up to a bound; files for their owner alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from coterie.errors import InputError

MEGABYTE = 1 << 20


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file; ``InputError`` for one of more than ``most`` bytes, of which no more is read."""
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        room = about.st_size if stat.S_ISREG(about.st_mode) else most
        data = file.read(room + 1) if room <= most else b""
    if max(room, len(data)) > most:
        limit = f"{most // MEGABYTE} MB" if most >= MEGABYTE else f"{most:,} bytes"
        raise InputError(f"{path}: is larger than {limit}, the most that is read of such a file.")
    return data


def read_from_others(path: Path, most: int) -> bytes:
    """The same for a file that someone handed over; also one clear error where it cannot be read."""
    try:
        return read_bounded(path, most)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"{path}: {reason}.") from None


def private_folder(path: Path) -> Path:
    """A folder that is there, made with all that is missing above it for its owner only."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(exist_ok=True)  # says so where it is a file
    return path


def opened_private(path: str | Path, flags: int) -> int:
    """The ``opener`` of files that only their owner reads and writes."""
    return os.open(path, flags, 0o600)


def private_file(path: Path) -> Path:
    """A new, empty file that only its owner reads and writes, for writers that open it by name."""
    private_folder(path.parent)
    path.unlink(missing_ok=True)
    os.close(opened_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return path


def write_private(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a file at once by one that only its owner reads and writes; ``durable`` waits for the disk before."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with open(temporary, "xb", opener=opened_private) as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
