"""TOML files with known keys: an unknown one is an error that names the nearest."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.text import nearest_name


def read_toml(
    path: Path, known: Iterable[str], *, offered: Iterable[str] | None = None, absent: str = ""
) -> dict[str, Any]:
    """The keys and values of a TOML file; ``absent`` says what to do where there is no such file.

    ``offered`` are the keys an error may name, where some known ones are only there to be recognised.
    """
    names = list(known)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file{absent and '; ' + absent}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InputError(f"{path}: this is not a TOML file ({problem}).") from None
    for key in raw:
        if key not in names:
            raise InputError(
                f"{path}: there is no key {key!r}{nearest_name(key, names if offered is None else offered)}"
            )
    return raw
