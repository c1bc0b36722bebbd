"""TOML files with known keys: an unknown one is an error that names the nearest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.files import MEGABYTE, read_bounded
from coterie.text import nearest_name

MOST_PARTS = 100
"""Of a dotted key: tomllib's time grows with their square."""
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_SEPARATORS = re.compile(r"[=,{}\[\]\n#]")


def read_toml(
    path: Path, known: Iterable[str], *, offered: Iterable[str] | None = None, absent: str = ""
) -> dict[str, Any]:
    """The keys and values of a TOML file; ``absent`` says what to do where there is no such file.

    ``offered`` are the keys an error may name, where some known ones are only there to be recognised.
    """
    names = list(known)
    try:
        raw = _parsed(read_bounded(path, MEGABYTE).decode())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file{absent and '; ' + absent}.") from None
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{path}: this is not a TOML file ({problem}).") from None
    for key in raw:
        if key not in names:
            raise InputError(
                f"{path}: there is no key {key!r}{nearest_name(key, names if offered is None else offered)}"
            )
    return raw


def _parsed(text: str) -> dict[str, Any]:
    if any(part.count(".") > MOST_PARTS for part in _SEPARATORS.split(_QUOTED.sub("", text))):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    return tomllib.loads(text)
