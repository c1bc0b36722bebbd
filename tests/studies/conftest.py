"""Studies run their trials on one thread each; so do their tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Numerical libraries on one thread: faster at these sizes, and fair to whatever else runs."""
    with threadpool_limits(limits=1):
        yield
