"""Sources of rows, as Arrow record batches of named columns: objects in memory, Parquet, Arrow and NumPy files."""

from __future__ import annotations

import sys
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from coterie.arrays import Array, Integers
from coterie.errors import InputError
from coterie.sites.tables.archives import ArrayHeader, array_headers, check_expansion, check_ipc, check_size
from coterie.sites.tables.phrases import IGNORE_IT, listed, quoted, reading
from coterie.sites.tables.problems import Problem
from coterie.sites.tables.reading import ALL, number_in

BUFFER = 1 << 18


class Source(ABC):
    """Named columns, read a batch at a time, as often as needed."""

    def __init__(self, name: str, schema: Any, n_rows: int | None) -> None:
        check_names(name, schema.names)
        self.name, self.schema = name, schema
        self.n_rows = n_rows
        """None if only a pass over the rows can tell."""
        self.texts: Mapping[str, frozenset[str]] = {}
        """Columns to return as text, if the source can, with their declared values."""
        self.codes: Mapping[str, frozenset[str]] = {}
        """By column, or ``*`` for all, what stands for a missing value."""
        self.forgives = False
        """Whether a value that cannot be read counts as missing."""
        self.form = ""
        """How the file is written, where that is not the usual form."""
        self.strays: dict[str, Problem] | None = None
        """Where the rows are being checked, by column the first cell that cannot be read; otherwise it is raised."""

    def forgive(self) -> None:
        """From now on what cannot be read counts as missing, and no column's kind depends on its cells."""
        self.forgives = True

    def batches(self, names: Sequence[str], step: int) -> Iterator[Any]:
        """Record batches of at most ``step`` rows, in order, with at least the columns named; codes for missing
        values are null."""
        coded = {name: self.codes_of(name) for name in names if self.codes_of(name)}
        for batch in self.read(names, step):
            yield _without_codes(batch, coded) if coded else batch

    @abstractmethod
    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        """The same as they are stored."""

    def codes_of(self, column: str) -> frozenset[str]:
        """What stands for a missing value in a column."""
        return self.codes.get(column, frozenset()) | self.codes.get(ALL, frozenset())


def _without_codes(batch: Any, codes: Mapping[str, frozenset[str]]) -> Any:
    """The batch with nulls for codes of missing values."""
    arrays = []
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if name in codes:
            values = values.dictionary_decode() if kinds.is_dictionary(values.type) else values
            values = pc.if_else(_is_code(values, codes[name]), pa.scalar(None, values.type), values)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _is_code(values: Any, codes: frozenset[str]) -> Any:
    """Whether each value is a code: text without spaces around it, a number by its value."""
    kind = values.type
    if _has_length(kind) or kinds.is_string_view(kind):
        return pc.is_in(pc.utf8_trim_whitespace(values), value_set=pa.array(sorted(codes), kind))
    numbers = [number for number in map(number_in, codes) if number is not None]
    if not kinds.is_floating(kind):
        values = values.cast(pa.float64(), safe=False) if _is_numeric(kind) else values.cast(pa.string())
    if kinds.is_string(values.type):
        return pc.is_in(values, value_set=pa.array(sorted(codes)))
    return pc.is_in(values.cast(pa.float64()), value_set=pa.array(numbers, pa.float64()))


def _is_numeric(kind: Any) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind) or kinds.is_null(kind))


def check_names(table: str, names: Sequence[str]) -> None:
    """Refuse duplicate names."""
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"{table}: {times} columns are named {quoted(name)}; give every column its own name")


class MemorySource(Source):
    """An Arrow table."""

    def __init__(self, table: Any, name: str) -> None:
        super().__init__(name, table.schema, int(table.num_rows))
        self._table = table

    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        yield from self._table.select(list(names)).to_batches(max_chunksize=step)

    def taken(self, places: Integers) -> MemorySource:
        return MemorySource(self._table.take(places), self.name)


class ArraySource(Source):
    """A 2-d array of numbers, in memory or mapped from a file; only a batch at a time is copied."""

    def __init__(self, values: Array, names: Sequence[str], name: str) -> None:
        wide = values.dtype.kind == "f" and values.dtype.itemsize > 8
        self._dtype = np.dtype(np.float64) if wide else values.dtype.newbyteorder("=")
        self.values = values
        super().__init__(name, pa.schema([(n, pa.from_numpy_dtype(self._dtype)) for n in names]), len(values))

    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        places = [self.schema.get_field_index(name) for name in names]
        for start in range(0, len(self.values), step):
            rows = self.values[start : start + step][:, places].astype(self._dtype, order="F")
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in rows.T], names=list(names))

    def taken(self, places: Integers) -> ArraySource:
        return ArraySource(self.values[places], self.schema.names, self.name)


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        with reading(name, "Parquet file"), pq.ParquetFile(path) as file:
            super().__init__(name, file.schema_arrow, int(file.metadata.num_rows))
            _check_row_groups(file.metadata, name, path.stat().st_size)

    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        texts = [name for name in names if self.schema.field(name).type in (pa.string(), pa.large_string())]
        done = 0
        with reading(self.name, "Parquet file"):
            try:
                for batch in self._read(names, step, texts):  # one text of many rows is held once
                    yield batch
                    done += batch.num_rows
            except OSError as problem:
                if "Not yet implemented" not in str(problem):
                    raise
                for batch in self._read(names, step, []):  # Arrow reads some encodings only so
                    yield from [batch.slice(done)] if batch.num_rows > done else []
                    done = max(0, done - batch.num_rows)

    def _read(self, names: Sequence[str], step: int, texts: list[str]) -> Iterator[Any]:
        streamed = {"pre_buffer": False, "buffer_size": BUFFER}  # otherwise Arrow holds a whole row group
        with pq.ParquetFile(self.path, read_dictionary=texts, **streamed) as file:
            for batch in file.iter_batches(batch_size=step, columns=list(names), use_threads=False):
                batch.validate(full=True)  # text may be no UTF-8
                _check_texts(batch, self.name, self.path.stat().st_size)
                yield batch


class IpcSource(Source):
    """An Arrow IPC file (Feather version 2), mapped into memory."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        with self._opened(None) as file:
            n_rows = check_ipc(path, name)
            check_size(name, n_rows, len(file.schema), path.stat().st_size)
            super().__init__(name, file.schema, n_rows)

    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        with self._opened(names) as file:
            for place in range(file.num_record_batches):
                batch = file.get_batch(place)
                batch.validate(full=True)  # offsets and indices that point outside would be followed
                _check_texts(batch, self.name, self.path.stat().st_size)
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


def source_of_object(thing: object, name: str) -> Source:
    """The source for an array, a data frame or an Arrow table."""
    pandas = sys.modules.get("pandas")
    if isinstance(thing, np.ndarray):
        return source_of_array(thing, None, name)
    if pandas is not None and isinstance(thing, pandas.DataFrame):
        columns = (thing.iloc[:, place] for place in range(thing.shape[1]))
        return _gathered([str(label) for label in thing.columns], columns, name)
    if isinstance(thing, pa.RecordBatch):
        thing = pa.Table.from_batches([thing])
    if isinstance(thing, pa.Table):
        return MemorySource(thing, name)
    raise InputError(
        f"{name}: a table cannot be read from {type(thing).__name__}; give a path, a 2-d numpy array, "
        "a pandas DataFrame or a pyarrow Table"
    )


def column_names(values: Array, names: Sequence[str] | None, table: str) -> list[str]:
    """The names of an array's columns; without names they are x0, x1 and so on."""
    if values.ndim != 2:
        raise InputError(f"{table}: the array has {values.ndim} axes; a table needs two, rows and columns")
    names = [f"x{i}" for i in range(values.shape[1])] if names is None else list(names)
    if len(names) != values.shape[1]:
        raise InputError(f"{table}: {len(names)} names for {values.shape[1]} columns; give one name per column")
    return names


def source_of_array(values: Array, names: Sequence[str] | None, name: str) -> Source:
    """The source for a 2-d array."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: is a masked array; fill the masked values with NaN first (values.filled(np.nan))")
    names = column_names(values, names, name)
    if values.dtype.kind in "biuf":
        return ArraySource(values, names, name)
    return _gathered(names, iter(values.T), name)


def _gathered(names: Sequence[str], columns: Iterator[Any], name: str) -> Source:
    """An Arrow table of columns, each of one type."""
    check_names(name, names)
    arrays = []
    for label, column in zip(names, columns, strict=True):
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise InputError(
                f"{name}: column {label!r} ({column.dtype}) mixes types or holds neither numbers nor text; "
                f"convert it to one type, or {IGNORE_IT}"
            ) from None
    return MemorySource(pa.table(arrays, names=list(names)), name)


def npy_source(path: Path, name: str) -> Source:
    """An array file, mapped into memory."""
    with reading(name, "array file (.npy) of numbers"), path.open("rb") as file:
        size = path.stat().st_size
        ArrayHeader.read(file, size).check(name, size)
        values = np.lib.format.open_memmap(path, mode="r")
    return source_of_array(values, None, name)


def npz_source(path: Path, name: str) -> Source:
    """The 2-d array of an archive, with the names of its columns if it has them."""
    with reading(name, "archive (.npz) of arrays of numbers and text"), zipfile.ZipFile(path) as archive:
        size = path.stat().st_size
        headers = array_headers(archive, name)
        shapes = {key: header.shape for key, header in headers.items()}
        table = _table_key(shapes, name)
        headers[table].check(name, size)
        key = next((k for k in ("columns", "feature_names") if len(shapes.get(k, ())) == 1), None)
        if key is not None and shapes[key][0] != shapes[table][1]:
            raise InputError(
                f"{name}: {key!r} holds {shapes[key][0]} names for {shapes[table][1]} columns; give one per column"
            )
        if key is not None:
            headers[key].check(name, size)
        values = _member(archive, table)
        names = None if key is None else _member(archive, key).astype(str).tolist()
    return source_of_array(values, names, name)


def _member(archive: zipfile.ZipFile, key: str) -> Array:
    with archive.open(f"{key}.npy") as file:
        values: Array = np.lib.format.read_array(file, allow_pickle=False)
        return values


def _check_texts(batch: Any, name: str, on_disk: int) -> None:
    """Refuse texts that are stored once for many rows and would expand beyond the bound."""
    for column in batch.columns:
        if kinds.is_dictionary(column.type) and _has_length(column.type.value_type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            check_expansion(name, pc.sum(lengths.cast(pa.int64())).as_py() or 0, on_disk)


def _has_length(kind: Any) -> bool:
    """Whether values of an Arrow type are of any length."""
    tests = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    return any(test(kind) for test in tests)


def _check_row_groups(metadata: Any, name: str, on_disk: int) -> None:
    """Refuse a Parquet file one of whose row groups expands beyond the bound.

    Columns are not looked at: for metadata that contradict each other pyarrow 26 ends the process there.
    """
    check_size(name, metadata.num_rows, metadata.num_columns, on_disk)
    for group in range(metadata.num_row_groups):
        check_expansion(name, metadata.row_group(group).total_byte_size, on_disk)


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
