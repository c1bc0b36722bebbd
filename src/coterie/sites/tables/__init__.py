"""A site's rows, read a block at a time from files, arrays and data frames."""

from coterie.sites.tables.opening import open_table, read_columns, read_keys
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, PairedTable, rows_a_block
from coterie.sites.tables.scanning import fingerprint, scan_table
from coterie.sites.tables.splitting import split_by_site

__all__ = [
    "BLOCK_BYTES",
    "ArrayTable",
    "PairedTable",
    "fingerprint",
    "open_table",
    "read_columns",
    "read_keys",
    "rows_a_block",
    "scan_table",
    "split_by_site",
]
