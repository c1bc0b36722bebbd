"""Small files that expand to large ones; keys that others on the machine may read: with and without what stops it."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.engines.nvflare import tls
from coterie.engines.nvflare.kits import provision
from coterie.errors import InputError
from coterie.sites.tables import archives, open_table

MEGABYTE = 1 << 20
N_ROWS = 30 * MEGABYTE // 8


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of a megabyte that expands to three hundred."""
    path, header = tmp_path_factory.mktemp("files") / "t.npz", {"descr": "<f8", "fortran_order": False}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as file:
        np.lib.format.write_array_header_2_0(file, {**header, "shape": (N_ROWS, 10)})
        for _ in range(300):
            file.write(bytes(MEGABYTE))
    assert path.stat().st_size < MEGABYTE / 2
    return path


def test_an_archive_that_expands_a_thousandfold_is_refused(bomb: Path) -> None:
    with pytest.raises(InputError, match="would expand to"):
        open_table(bomb)


def test_without_the_bound_it_is_read(bomb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_READ", 1 << 40)
    assert open_table(bomb).n_rows == N_ROWS


class Touch:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_code_in_an_array_is_not_run(tmp_path: Path, suffix: str) -> None:
    values, path = np.array([[Touch(tmp_path / "touched")]], dtype=object), tmp_path / f"t.{suffix}"
    np.save(path, values) if suffix == "npy" else np.savez(path, X=values)
    with pytest.raises(InputError):
        open_table(path)
    assert not (tmp_path / "touched").exists()
    loaded = np.load(path, allow_pickle=True)  # the control
    assert suffix == "npy" or loaded["X"].size
    assert (tmp_path / "touched").exists()


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
