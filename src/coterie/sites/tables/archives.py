"""NumPy files: ``.npy``, mapped into memory, and ``.npz``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import InputError
from coterie.sites.tables.phrases import listed, reading
from coterie.sites.tables.sources import Source, source_of_array


def npy_source(path: Path, name: str) -> Source:
    """An array file, mapped into memory."""
    with reading(name, "array file (.npy) of numbers"):
        values = np.lib.format.open_memmap(path, mode="r")
    return source_of_array(values, None, name)


def npz_source(path: Path, name: str) -> Source:
    """The 2-d array of an archive, with the names of its columns if it has them."""
    names = npz_names(path, name)
    with reading(name, "archive (.npz) of arrays of numbers and text"), np.load(path, allow_pickle=False) as archive:
        return source_of_array(archive[_table_key(_shapes(path), name)], names, name)


def npz_names(path: Path, name: str) -> list[str]:
    """The names of the columns; the rows are not read."""
    with reading(name, "archive (.npz) of arrays of numbers and text"):
        shapes = _shapes(path)
        n_columns = shapes[_table_key(shapes, name)][1]
        key = next((k for k in ("columns", "feature_names") if len(shapes.get(k, ())) == 1), None)
        if key is None:
            return [f"x{i}" for i in range(n_columns)]
        with np.load(path, allow_pickle=False) as archive:
            names = [str(label) for label in archive[key].astype(str)]
    if len(names) != n_columns:
        raise InputError(f"{name}: {key!r} holds {len(names)} names for {n_columns} columns; give one per column")
    return names


def _table_key(shapes: dict[str, tuple[int, ...]], name: str) -> str:
    tables = [key for key, shape in shapes.items() if len(shape) == 2]
    if "X" in tables:
        return "X"
    if len(tables) != 1:
        raise InputError(
            f"{name}: holds {len(tables)} 2-d arrays ({listed(tables) or 'none'}), none of which is named 'X'; "
            "save the rows as a 2-d array 'X'"
        )
    return tables[0]


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.namelist() if member.endswith(".npy")]
        return {member.removesuffix(".npy"): _shape(archive, member) for member in members}


def _shape(archive: zipfile.ZipFile, member: str) -> tuple[int, ...]:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape: tuple[int, ...] = read(file)[0]
        return shape
