"""Finished runs, each made once in a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.runs import QUICK, SLOW


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a finished run of a kind; tests leave it as it is."""
    folders: dict[str, Path] = {}

    def folder_of(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = {**QUICK, **SLOW}[kind](tmp_path_factory.mktemp(kind))
        return folders[kind]

    return folder_of
