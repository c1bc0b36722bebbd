"""Small files that expand to large ones; keys that others on the machine may read: with and without what stops it."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from coterie.engines.nvflare import tls
from coterie.engines.nvflare.kits import provision
from coterie.errors import InputError
from coterie.sites.tables import archives, open_table

MEGABYTE = 1 << 20
N_ROWS = 50 * MEGABYTE // 8


def bomb(path: Path) -> Path:
    """Half a megabyte that expands to five hundred."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (N_ROWS, 10)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for _ in range(500):
            file.write(bytes(MEGABYTE))
    assert path.stat().st_size < MEGABYTE
    return path


def test_an_archive_that_expands_a_thousandfold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would expand to"):
        open_table(bomb(tmp_path / "t.npz"))


def test_without_the_bound_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_READ", 1 << 40)
    assert open_table(bomb(tmp_path / "t.npz")).n_rows == N_ROWS


def keys_of_the_authority(folder: Path) -> dict[str, int]:
    """Files of the authority that hold private keys, and what the modes of each let others do."""
    before = os.umask(0o022)
    try:
        provision(folder, ["a"], server="localhost")
    finally:
        os.umask(before)
    made = [path for path in (folder / "authority").rglob("*") if path.is_file()]
    held = [path for path in made if path.name == "coterie.key" or b"PRIVATE KEY" in path.read_bytes()]
    return {path.name: path.stat().st_mode & 0o077 for path in held}


def test_nobody_else_reads_the_keys_of_the_authority(tmp_path: Path) -> None:
    found = keys_of_the_authority(tmp_path / "kits")
    assert found == {"cert.json": 0, "coterie.key": 0}


def test_as_nvflare_writes_them_everybody_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "write_secret", Path.write_bytes)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    assert keys_of_the_authority(tmp_path / "kits")["cert.json"] == 0o044
