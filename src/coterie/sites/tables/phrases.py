"""The sentences in which a table is refused; they stay at the site, so they may quote a cell."""

from __future__ import annotations

import difflib
import shlex
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from coterie.errors import InputError

SHOWN = 6
LONGEST = 40


def quoted(value: object) -> str:
    """A cell as a message shows it: in quotes, and not too long."""
    text = str(value)
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def listed(names: Sequence[object]) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(quoted(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def leave_out(column: str) -> str:
    """How to do without a column."""
    return f"leave it out with --ignore {shlex.quote(column)}"


def no_column(table: str, column: object, names: Sequence[str]) -> InputError:
    """A column asked for that is not there; the names most like it come first."""
    nearest = difflib.get_close_matches(str(column), names, n=len(names) or 1, cutoff=0.0)
    there = f"there are {listed(nearest)}" if nearest else "it has no columns"
    return InputError(f"{table}: there is no column {quoted(column)}; {there}")


@contextmanager
def reading(table: str, what: str) -> Iterator[None]:
    """Turn whatever a reading library raises into one sentence."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{table}: there is no such file") from None
    except PermissionError:
        raise InputError(f"{table}: may not be read by this user; change its permissions") from None
    except (pa.ArrowException, OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        raise InputError(
            f"{table}: not a readable {what}; it may be cut short, damaged or of another kind: "
            "write it again, or give it the suffix of what it is"
        ) from None
