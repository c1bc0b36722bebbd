"""A site's rows, read a block at a time from files, arrays and data frames."""

from coterie.sites.tables.identifying import identifying_columns as identifying_columns
from coterie.sites.tables.opening import examined as examined
from coterie.sites.tables.opening import named_levels as named_levels
from coterie.sites.tables.opening import open_table as open_table
from coterie.sites.tables.opening import open_tables as open_tables
from coterie.sites.tables.opening import read_columns as read_columns
from coterie.sites.tables.opening import read_keys as read_keys
from coterie.sites.tables.opening import read_texts as read_texts
from coterie.sites.tables.problems import Problem as Problem
from coterie.sites.tables.problems import Remedy as Remedy
from coterie.sites.tables.problems import TableProblems as TableProblems
from coterie.sites.tables.problems import Words as Words
from coterie.sites.tables.reading import Reading as Reading
from coterie.sites.tables.reading import reading_for as reading_for
from coterie.sites.tables.reading import reading_of as reading_of
from coterie.sites.tables.rows import BLOCK_BYTES as BLOCK_BYTES
from coterie.sites.tables.rows import ArrayTable as ArrayTable
from coterie.sites.tables.rows import PairedTable as PairedTable
from coterie.sites.tables.rows import Scan as Scan
from coterie.sites.tables.rows import fingerprint as fingerprint
from coterie.sites.tables.rows import rows_a_block as rows_a_block
from coterie.sites.tables.rows import scan_table as scan_table
from coterie.sites.tables.splitting import examined_by_site as examined_by_site
from coterie.sites.tables.splitting import split_by_site as split_by_site
