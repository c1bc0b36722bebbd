"""Parquet and Arrow files as sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.sites.tables.phrases import reading
from coterie.sites.tables.sources import Source

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
