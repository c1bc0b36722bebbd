"""What tests of faults share: a row of the table for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.lives import Computed
from tests.faults.rows import Row


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    """Counts what sites compute."""
    return Computed(monkeypatch)


@pytest.fixture
def row(tmp_path: Path, computed: Computed, record_property: Any) -> Row:
    """A row of the table."""
    return Row(tmp_path, computed, record_property)
