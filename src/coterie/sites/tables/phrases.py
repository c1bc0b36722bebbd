"""Parts of error messages about tables. These stay at the site, so they may quote a cell."""

from __future__ import annotations

import csv
import difflib
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from coterie.errors import InputError
from coterie.sites.tables.problems import Problem

IGNORE_IT = "add the column to 'ignore'"
"""The option has this name in Python, in job files and on the command line."""
SHOWN = 6
LONGEST = 40
UNREADABLE = (
    *(pa.ArrowException, OSError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, RuntimeError),
    *(SyntaxError, SystemError, tokenize.TokenError, struct.error, csv.Error, zipfile.BadZipFile, zlib.error),
)
"""What reading libraries raise for bytes that are not of their format."""


def quoted(value: object) -> str:
    """A cell in quotes, shortened if it is long."""
    text = str(value)
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def listed(names: Sequence[object]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(quoted(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def no_column(table: str, column: object, names: Sequence[str]) -> Problem:
    """The problem of a missing column; the most similar names come first."""
    nearest = difflib.get_close_matches(str(column), names, n=len(names) or 1, cutoff=0.0)
    existing = f"there are {listed(nearest)}" if nearest else "it has no columns"
    return Problem(table, f"there is no column {quoted(column)}; {existing}", column=str(column))


@contextmanager
def reading(table: str, what: str) -> Iterator[None]:
    """Turn the exceptions of reading libraries into ``InputError``."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{table}: there is no such file") from None
    except PermissionError:
        raise InputError(f"{table}: permission denied; change the file's permissions") from None
    except MemoryError:
        raise InputError(f"{table}: takes more memory than there is; save it in smaller parts") from None
    except UNREADABLE:
        raise InputError(
            f"{table}: not a readable {what}; it may be truncated, damaged or in another format: "
            "write it again, or use the suffix of its format"
        ) from None
