"""A site's rules as a TOML file: written with comments, checked key by key, explained in sentences."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.protocols.methods import METHODS
from coterie.sites.policy import Policy
from coterie.sites.toml_files import read_toml

__all__ = ["POLICY_TEXT", "explain_policy", "read_policy"]

POLICY_TEXT = """\
# What this site lets happen with its rows. A server cannot talk these rules down.

# Methods allowed by name (`coterie methods` lists them); leave out to allow all of them.
# methods = ["federated-kmeans", "lloyd"]

# What the server may see of this site by itself:
#   "none"      nothing computed from rows; only sums over several sites, masked
#   "averages"  sums, counts and averages
#   "rows"      anything, single rows included
single_answers = "averages"

# The fewest rows a local center may stand for when the server sees it by itself. Plain sums by cluster are not
# held to it: where a cluster has one row here, its sum is that row.
min_count = 5

# The most questions one run may ask.
max_questions = 2000

# The fewest rows this site must hold to take part at all.
min_rows = 20
"""


def read_policy(path: Path) -> Policy:
    """A policy file, checked; an unknown key is an error that names the nearest valid one."""
    known = [field.name for field in fields(Policy) if field.name != "peers"]
    raw = read_toml(path, known, absent=f"`coterie policy init {path}` writes one")
    return Policy(**{key: _checked(path, key, value) for key, value in raw.items()})


def _checked(path: Path, key: str, value: Any) -> Any:
    if key == "methods":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InputError(f"{path}: methods is a list of names, not {value!r}")
        for name in value:
            if name not in METHODS:
                raise InputError(f"{path}: there is no method {name!r}; there are {', '.join(sorted(METHODS))}")
        return frozenset(value)
    if key == "single_answers":
        if value not in ("none", "averages", "rows"):
            raise InputError(f"{path}: single_answers is none, averages or rows, not {value!r}")
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{path}: {key} is a whole number, at least 0, not {value!r}")
    return value


def explain_policy(policy: Policy) -> list[str]:
    """The rules as sentences."""
    seen = {
        "none": "The server sees nothing computed from this site's rows by itself.",
        "averages": "The server may see sums, counts and averages of its rows; a sum over one row is that row.",
        "rows": "The server may see anything it asks for, single rows included.",
    }
    names = "any method" if policy.methods is None else ", ".join(sorted(policy.methods)) or "no method at all"
    told = [f"This site takes part in {names}.", seen[policy.single_answers]]
    if policy.single_answers != "none" and policy.min_count > 1:
        told.append(f"No local center it sends stands for fewer than {policy.min_count} rows; plain sums may.")
    if policy.max_questions is not None:
        told.append(f"It answers at most {policy.max_questions} questions in one run.")
    if policy.min_rows:
        told.append(f"It takes part only while it holds at least {policy.min_rows} rows.")
    refused = [
        m.name for m in METHODS.values() if m.single_answers.startswith("yes") and policy.single_answers == "none"
    ]
    if refused:
        told.append(f"Methods that need single answers are therefore refused: {', '.join(refused)}.")
    return told
