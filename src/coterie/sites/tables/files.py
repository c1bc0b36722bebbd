"""Parquet, Arrow and NumPy files as sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.errors import InputError
from coterie.sites.tables.phrases import listed, reading
from coterie.sites.tables.sources import Source, source_of_array

BUFFER = 1 << 18


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        with reading(name, "Parquet file"), pq.ParquetFile(path) as file:
            super().__init__(name, file.schema_arrow, int(file.metadata.num_rows))

    def batches(self, names: Sequence[str], step: int) -> Iterator[Any]:
        streamed = {"pre_buffer": False, "buffer_size": BUFFER}  # otherwise Arrow holds a whole row group
        with reading(self.name, "Parquet file"), pq.ParquetFile(self.path, **streamed) as file:
            yield from file.iter_batches(batch_size=step, columns=list(names), use_threads=False)


class IpcSource(Source):
    """An Arrow IPC file (Feather version 2), mapped into memory."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        with self._opened(None) as file:
            super().__init__(name, file.schema, None)
        with self._opened(self.schema.names[:1]) as file:
            self.n_rows = sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))

    def batches(self, names: Sequence[str], step: int) -> Iterator[Any]:
        with self._opened(names) as file:
            for place in range(file.num_record_batches):
                batch = file.get_batch(place)
                batch.validate()
                for start in range(0, batch.num_rows, step):
                    yield batch.slice(start, step)

    @contextmanager
    def _opened(self, names: Sequence[str] | None) -> Iterator[Any]:
        fields = None if names is None else sorted(self.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        with (
            reading(self.name, "Arrow IPC file"),
            pa.memory_map(str(self.path)) as mapped,
            pa.ipc.open_file(mapped, options=options) as file,
        ):
            yield file


def npy_source(path: Path, name: str) -> Source:
    """An array file, mapped into memory."""
    with reading(name, "array file (.npy) of numbers"):
        values = np.lib.format.open_memmap(path, mode="r")
    return source_of_array(values, None, name)


def npz_source(path: Path, name: str) -> Source:
    """The 2-d array of an archive, with the names of its columns if it has them."""
    with (
        reading(name, "archive (.npz) of arrays of numbers and text"),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        members = set(archive.zip.namelist())
        shapes = {key: _shape(archive.zip, key) for key in archive.files if f"{key}.npy" in members}
        values = archive[_table_key(shapes, name)]
        key = next((k for k in ("columns", "feature_names") if len(shapes.get(k, ())) == 1), None)
        names = None if key is None else archive[key].astype(str).tolist()
    if names is not None and len(names) != values.shape[1]:
        raise InputError(
            f"{name}: {key!r} holds {len(names)} names for {values.shape[1]} columns; give one per column"
        )
    return source_of_array(values, names, name)


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


def _shape(archive: Any, key: str) -> tuple[int, ...]:
    with archive.open(f"{key}.npy") as file:
        version = np.lib.format.read_magic(file)
        read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape: tuple[int, ...] = read(file)[0]
        return shape
