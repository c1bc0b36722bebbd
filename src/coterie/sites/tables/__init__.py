"""A site's rows, read a block at a time from files, arrays and data frames."""

from coterie.sites.tables.looking import fingerprint, look_through
from coterie.sites.tables.opening import open_table, read_columns, read_keys
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, PairedTable, rows_a_block
from coterie.sites.tables.splitting import split_by_site

__all__ = [
    "BLOCK_BYTES",
    "ArrayTable",
    "PairedTable",
    "fingerprint",
    "look_through",
    "open_table",
    "read_columns",
    "read_keys",
    "rows_a_block",
    "split_by_site",
]
