"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("COTERIE_HYPOTHESIS", "default"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of shared data sets; tests that need it say so when it is not there."""
    folder = Path(os.environ.get("COTERIE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder} (set COTERIE_DATA)")
    return folder
