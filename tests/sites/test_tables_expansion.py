"""Files that are small on disk and large once expanded are refused before they are; honest ones are read."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.errors import InputError
from coterie.sites.tables import archives, open_table, read_keys

MEGABYTE = 1 << 20
BOMB = "would expand to"
DAMAGED = r"not a readable|declares"


def refused(path: Path, match: str) -> None:
    """One sentence, for which little memory is taken."""
    tracemalloc.start()
    taken = pa.default_memory_pool().max_memory()
    try:
        with pytest.raises(InputError, match=match):
            list(open_table(path).blocks())
        assert tracemalloc.get_traced_memory()[1] < 64 * MEGABYTE  # reading libraries import others
        assert pa.default_memory_pool().max_memory() <= max(taken, 100 * MEGABYTE)
    finally:
        tracemalloc.stop()


def npy_header(shape: tuple[int, ...], descr: Any = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def npz(path: Path, header: bytes, n_zeros: int, *, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive of an array of zero bytes after a header, written a megabyte at a time."""
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("X.npy", "w", force_zip64=True) as file:
        file.write(header)
        for start in range(0, n_zeros, MEGABYTE):
            file.write(bytes(min(MEGABYTE, n_zeros - start)))
    return path


def test_an_archive_of_300_kilobytes_that_expands_to_300_megabytes(tmp_path: Path) -> None:
    rows = 300_000_000 // 80
    path = npz(tmp_path / "t.npz", npy_header((rows, 10)), rows * 80)
    assert path.stat().st_size < MEGABYTE // 2
    refused(path, BOMB)


def test_a_table_of_zeros_of_moderate_size_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((1_000_000, 10)))
    assert open_table(tmp_path / "t.npz").n_rows == 1_000_000  # 80 MB, 1000 times the file


def test_the_bound_is_both_in_bytes_and_in_ratio() -> None:
    archives.check_expansion("t", archives.LARGEST_READ, 1)
    archives.check_expansion("t", 10**12, 10**10)
    with pytest.raises(InputError, match=BOMB):
        archives.check_expansion("t", archives.LARGEST_READ + 1, 1)


@pytest.mark.parametrize(
    ("shape", "n_zeros"),
    [((10, 10), 79), ((10**9, 10**9), 800), ((-10, -10), 800), ((0, 10**9), 0), ((10**12, 0), 0), ((2**63, 2), 0)],
)
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_shapes_that_do_not_fit(tmp_path: Path, shape: tuple[int, int], n_zeros: int, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    if suffix == "npz":
        npz(path, npy_header(shape), n_zeros)
    else:
        path.write_bytes(npy_header(shape) + bytes(n_zeros))
    refused(path, DAMAGED)


def test_a_header_of_256_megabytes_is_not_read(tmp_path: Path) -> None:
    refused(npz(tmp_path / "t.npz", b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 28), 1 << 28), DAMAGED)


def test_many_arrays_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for i in range(archives.MOST_MEMBERS + 1):
            archive.writestr(f"{i}.npy", b"")
    refused(tmp_path / "t.npz", "arrays; 1,000 are the most")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_numpy_never_writes(tmp_path: Path, method: int) -> None:
    refused(npz(tmp_path / "t.npz", npy_header((2, 1)), 16, method=method), "in a way numpy never does")


def test_an_encrypted_archive(tmp_path: Path) -> None:
    data = bytearray(npz(tmp_path / "t.npz", npy_header((2, 1)), 16).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    (tmp_path / "t.npz").write_bytes(data)
    refused(tmp_path / "t.npz", DAMAGED)


def test_arrays_that_are_not_read_may_be_anything(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2), order="F"), labels=np.array([None, "a"]))
    assert open_table(tmp_path / "t.npz").n_rows == 2


@pytest.mark.parametrize("dtype", ["c16", "V8", [("a", "f8"), ("b", "f8")]], ids=["complex", "void", "fields"])
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_arrays_of_neither_numbers_nor_text(tmp_path: Path, dtype: Any, suffix: str) -> None:
    save = np.savez if suffix == "npz" else np.save
    save(tmp_path / f"t.{suffix}", np.zeros((3, 2), dtype))
    refused(tmp_path / f"t.{suffix}", "neither numbers nor text|holds|cannot")


def test_compressed_text_is_read_up_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_READ", 10 * MEGABYTE)
    for name, megabytes in (("small", 8), ("large", 30)):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * (megabytes << 18)))
    assert open_table(tmp_path / "small.csv.gz").n_rows == 8 << 18
    refused(tmp_path / "large.csv.gz", BOMB)


def test_a_header_that_is_one_long_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a" * 200_000)
    refused(tmp_path / "t.csv", DAMAGED)


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_a_column_chunk_that_expands_too_far(tmp_path: Path, compression: str) -> None:
    table = pa.table({"a": np.zeros(40_000_000)})
    options: dict[str, Any] = {"compression": compression, "use_dictionary": False, "row_group_size": 40_000_000}
    pq.write_table(table, tmp_path / "t.parquet", **options)
    assert (tmp_path / "t.parquet").stat().st_size < MEGABYTE
    with pytest.raises(InputError, match=BOMB):
        open_table(tmp_path / "t.parquet")


def test_a_long_table_of_zeros_in_row_groups_is_streamed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.zeros(40_000_000)}), tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").n_rows == 40_000_000  # 320 MB, 40 row groups


@pytest.mark.parametrize("as_text", [False, True], ids=["numbers", "dictionary"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_batch_that_expands_too_far(tmp_path: Path, monkeypatch: Any, compression: str, as_text: bool) -> None:
    monkeypatch.setattr(archives, "LARGEST_READ", 10 * MEGABYTE)
    numbers, texts = pa.array(np.zeros(2_000_000)), pa.array(["x" * 20 * MEGABYTE]).dictionary_encode()
    table = pa.table({"a": texts if as_text else numbers})
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table)
    with pytest.raises(InputError, match=BOMB):
        open_table(path)


def test_a_batch_that_is_not_compressed_is_mapped_whatever_its_size(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(archives, "LARGEST_READ", MEGABYTE)
    monkeypatch.setattr(archives, "LARGEST_RATIO", 0)
    table = pa.table({"a": np.arange(300_000.0), "b": pa.array(["x", "y"] * 150_000).dictionary_encode()})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=100_000)
    assert open_table(tmp_path / "t.arrow", ignore=["b"]).n_rows == 300_000


def test_rows_that_no_file_can_hold(tmp_path: Path) -> None:
    table = pa.table({"a": pa.nulls(10**9)})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    refused(tmp_path / "t.arrow", "declares 1,000,000,000 rows")


def _texts(offsets: tuple[int, ...], data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _bad_text() -> pa.Array:
    return _texts((0, 2, 2), b"\xff\xc1")


def _bad_offsets() -> pa.Array:
    return _texts((0, 9, 2), b"ab")


def _bad_index() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([66, 0], pa.int32()), pa.array(["a"]), safe=False)


@pytest.mark.parametrize("make", [_bad_text, _bad_offsets, _bad_index])
def test_text_that_points_outside_of_the_file_is_not_followed(tmp_path: Path, make: Any) -> None:
    table = pa.table({"a": [1.0, 2.0], "t": make()})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(InputError, match=DAMAGED):
        read_keys(tmp_path / "t.arrow", "t")


def test_text_of_a_parquet_file_that_is_no_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": _bad_text()}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=DAMAGED):
        read_keys(tmp_path / "t.parquet", "t")


def test_a_batch_that_claims_to_be_larger_than_its_file(tmp_path: Path) -> None:
    path, table = tmp_path / "t.arrow", pa.table({"a": np.zeros(30), "b": np.zeros(30)})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    size, data = struct.pack("<q", 480), path.read_bytes()
    assert data.count(size) == 2  # the batch's own and the footer's
    for changed in (
        data.replace(size, struct.pack("<q", 1 << 38), 1),
        data.replace(size, struct.pack("<q", 1 << 38)),
    ):
        path.write_bytes(changed)
        refused(path, DAMAGED)


def test_an_array_and_a_file_of_the_same_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2)))
    with zipfile.ZipFile(tmp_path / "t.npz", "a") as archive:
        archive.writestr("X", b"no array")
    assert open_table(tmp_path / "t.npz").n_rows == 3


def test_names_that_are_no_text(tmp_path: Path) -> None:
    names = np.frombuffer(b"\xff" * 8, "<U1")
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2)), columns=names)
    refused(tmp_path / "t.npz", DAMAGED)


def test_a_header_that_is_no_python(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00\x08\x00{'a': (\n" + bytes(8))
    refused(path, DAMAGED)


def test_reading_broken_files_again_and_again_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x0b\x08")
    sizes = []
    for _ in range(2):
        for _ in range(100):
            with pytest.raises(InputError, match=DAMAGED):
                open_table(tmp_path / "t.csv.gz")
        sizes.append(int(Path("/proc/self/statm").read_text().split()[0]) * 4096)
    assert sizes[1] - sizes[0] < 20 * MEGABYTE


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_long_text_that_is_stored_once_for_many_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"

    def write(n_rows: int) -> None:
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array(["x" * MEGABYTE]))
        table = pa.table({"a": np.zeros(n_rows), "t": texts})
        if suffix == "parquet":
            pq.write_table(table, path, store_schema=False, compression="zstd")  # no longer says: a dictionary
            return
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)

    write(16_000)
    with pytest.raises(InputError, match=BOMB):
        read_keys(path, "t")
    write(1)
    assert len(read_keys(path, "t")[0]) == MEGABYTE


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_of_a_parquet_file_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    table = pa.table({"t": [f"key {i}" for i in range(20_000)]})
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, column_encoding={"t": encoding})
    assert read_keys(tmp_path / "t.parquet", "t")[-1] == "key 19999"
