"""Files are streamed: a table larger than memory is read with little of it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

N_ROWS, N_COLUMNS = 550_000, 10

READ = """
import sys
import pandas  # pyarrow loads it where it is installed, which is no reading of ours
import pyarrow as pa, pyarrow.csv, pyarrow.parquet, pyarrow.compute
from coterie.sites.tables import open_table, rows, split_by_site, splitting

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

def read(table):
    assert sum(len(block.rows) for block in table.blocks()) == table.n_rows
    return table.n_rows

splitting.HELD_TOGETHER = rows.HELD_BYTES = 0  # as if the file were larger than what is kept in memory
before = peak()
n_rows = read(open_table(sys.argv[1]))
assert n_rows == sum(read(table) for table in split_by_site(sys.argv[1], "site").values())
print(n_rows, (peak() - before) // 1024, pa.default_memory_pool().max_memory() >> 20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_a_large_file_is_read_with_little_memory(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=N_ROWS) for i in range(N_COLUMNS)} | {"site": rng.integers(0, 3, N_ROWS)}
    write = {
        "csv": arrow_csv.write_csv,
        "parquet": pq.write_table,
        "feather": lambda table, to: feather.write_feather(table, to, compression="uncompressed"),
    }[suffix]
    write(pa.table(columns), path)
    assert suffix != "csv" or path.stat().st_size > 100e6
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    n_rows, resident, allocated = map(int, done.stdout.split())
    assert n_rows == N_ROWS
    assert allocated < 60
    assert suffix == "feather" or resident < 150  # a mapped file counts as resident, though it may be dropped
