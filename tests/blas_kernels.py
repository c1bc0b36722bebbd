"""The kernels of OpenBLAS that this CPU can execute; as a program, tests of arithmetic and replay with each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTED = [
    f"tests/{name}" for name in ("maths", "runtime", "methods", "invariants", "theorems", "engines/test_inprocess.py")
]
"""The tests whose numbers come from BLAS, or that compare them bit for bit."""
NAMES = (
    *(
        "SkylakeX",
        "Cooperlake",
        "SapphireRapids",
        "Haswell",
        "Zen",
        "Sandybridge",
        "Bulldozer",
        "Nehalem",
        "Prescott",
    ),
    *("armv8", "neoversen1", "neoversev1", "neoversen2", "cortexa57", "vortex"),
)
"""Values of OPENBLAS_CORETYPE on x86-64 and on ARM. Some stand for the same kernel, and some are not built in."""
TRIAL = """
import numpy as np, scipy.linalg
from threadpoolctl import threadpool_info
for kind in (np.float32, np.float64):
    rows = np.random.default_rng(0).normal(size=(200, 100)).astype(kind)
    scipy.linalg.eigh(rows.T @ rows + scipy.linalg.blas.dgemm(1.0, rows.T, rows)), np.linalg.qr(rows), rows @ rows[0]
print(*{pool["architecture"] for pool in threadpool_info() if pool["internal_api"] == "openblas"})
"""


def environment(kernel: str, **more: str) -> Mapping[str, str]:
    """This process' environment with another kernel; with none where its name is empty: OpenBLAS then chooses."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    return inherited | ({"OPENBLAS_CORETYPE": kernel} if kernel else {}) | more


@cache
def kernel_of(name: str) -> str:
    """The kernel by which OpenBLAS computes under this name; empty where it is not OpenBLAS, or the CPU cannot."""
    done = subprocess.run([sys.executable, "-c", TRIAL], env=environment(name), capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def kernels() -> Iterator[str]:
    """The different kernels that can be chosen, the one of this process' environment first."""
    seen = {""}
    for name in (os.environ.get("OPENBLAS_CORETYPE", ""), "", *NAMES):
        kernel = kernel_of(name)
        if kernel not in seen and (not name or kernel_of(kernel) == kernel):
            seen.add(kernel)
            yield kernel


def main() -> int:
    """Run the tests once a kernel; a line for each at the end."""
    words = [sys.executable, "-m", "pytest", "--dist", "loadgroup", "-m", "not slow", *(sys.argv[1:] or ["-n", "2"])]
    found = {}
    for kernel in list(kernels()) or [""]:
        print(f"kernel: {kernel or 'not of OpenBLAS'}", flush=True)
        found[kernel] = subprocess.run([*words, *TESTED], cwd=ROOT, env=environment(kernel)).returncode
    for kernel, code in found.items():
        print(f"{kernel or 'not of OpenBLAS'}: {'passed' if code == 0 else f'failed (pytest returned {code})'}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
