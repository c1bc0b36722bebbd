"""Threads and libraries of the arithmetic, which decide the last bits of a result."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  (loads its own BLAS, which can then be limited)
from numpy.lib import introspect
from threadpoolctl import ThreadpoolController

THREADS = 1
"""Threads of BLAS and OpenMP. With more threads the order of sums, and so the last bits, would vary."""


@lru_cache(maxsize=1)
def _pools(n_modules: int) -> tuple[list[Any], list[Any]]:  # noqa: ARG001  (a key)
    """The thread pools of the loaded libraries: those of the process, and those of every thread.

    The number of modules is the cache key: new libraries are loaded by new modules.
    """
    shared: list[Any] = []
    own: list[Any] = []
    for pool in ThreadpoolController().lib_controllers:
        is_own = "openmp" in (pool.user_api, getattr(pool, "threading_layer", ""))
        (own if is_own else shared).append(pool)
    return shared, own


_lock = threading.Lock()
_n_inside = 0
_before: dict[str, tuple[Any, int]] = {}
"""The limited shared pools, with their original numbers of threads."""


@contextmanager
def fixed_threads() -> Iterator[None]:
    """Limit BLAS and OpenMP to ``THREADS`` threads; the last to leave restores the shared pools."""
    global _n_inside
    shared, own = _pools(len(sys.modules))
    with _lock:
        _n_inside += 1
        for pool in shared:
            _before.setdefault(pool.filepath, (pool, pool.num_threads))
            _set_threads(pool, THREADS)
    mine = [(pool, pool.num_threads) for pool in own]
    for pool in own:
        pool.set_num_threads(THREADS)
    try:
        yield
    finally:
        for pool, threads in mine:
            pool.set_num_threads(threads)
        with _lock:
            _n_inside -= 1
            if not _n_inside:
                for pool, threads in _before.values():
                    _set_threads(pool, threads)
                _before.clear()


def _set_threads(pool: Any, threads: int) -> None:
    """threadpoolctl 3.8 lets only the first thread set a pool, unless its controlling thread is cleared."""
    clear = getattr(pool, "clear_controlling_thread", lambda **_: None)
    clear(force=True)
    pool.set_num_threads(threads)
    clear(force=True)


def described() -> dict[str, Any]:
    """What decides the last bits of a result on this machine, besides package versions."""
    loops = introspect.opt_func_info().values()
    return {
        "threads": THREADS,
        "machine": " ".join([platform.machine(), *platform.libc_ver()]),
        "numpy": " ".join(sorted({str(kind["current"]) for kinds in loops for kind in kinds.values()})),
        "blas": {
            Path(pool.filepath).name: {
                "version": f"{pool.internal_api} {pool.version}",
                "kernel": str(getattr(pool, "architecture", "")),
            }
            for pool in ThreadpoolController().lib_controllers
            if pool.user_api == "blas"
        },
    }
