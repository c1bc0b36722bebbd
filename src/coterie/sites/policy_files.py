"""A site's rules as a TOML file: written with comments, checked key by key, explained in sentences."""

from __future__ import annotations

import base64
import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.protocols.methods import METHODS, Method
from coterie.sites.policy import MAX_MIN_COUNT, Policy
from coterie.sites.toml_files import nearest_name, read_toml

__all__ = ["PRESETS", "explain_policy", "find_policy", "policy_text", "preset", "read_policy"]

PRESETS: tuple[str, ...] = ("strict", "standard", "research")
"""Policies that come with coterie, from careful to open."""

_WORDS: dict[str, tuple[str, ...]] = {
    "single_answers": ("none", "averages", "rows"),
    "rosters": ("fixed", "shrinking", "any"),
    "gram_rows_of": ("own", "all"),
}
_LEAST = {"min_count": 1, "min_roster": 1, "gram_rows": 0, "max_questions": 1, "max_runs": 1, "min_rows": 0}
_HEX, _BASE64 = re.compile("[0-9a-fA-F]{64}"), re.compile("[A-Za-z0-9+/]{43}=")


# ---------------------------------------------------------------- finding and reading


def find_policy(text: str) -> Policy:
    """A policy by the name of a preset, ``"simulation"``, or the path of a file; names go before files."""
    if text == "simulation":
        return Policy.simulation()
    if text in PRESETS:
        return preset(text)
    if Path(text).exists():
        return read_policy(Path(text))
    names = (*PRESETS, "simulation")
    close = difflib.get_close_matches(text, names, n=1)
    raise InputError(
        f"there is no policy and no file called {text!r}{f'; did you mean {close[0]!r}?' if close else '.'} "
        f"There are {', '.join(names)}, and files: `coterie policy init FILE` writes one."
    )


def preset(name: str) -> Policy:
    """A policy that comes with coterie."""
    return _policy(tomllib.loads(policy_text(name)), name)


def policy_text(name: str) -> str:
    """The file of a preset, with its comments."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}{nearest_name(name, PRESETS)}")
    return files("coterie.sites").joinpath(f"policies/{name}.toml").read_text(encoding="utf-8")


def read_policy(path: Path) -> Policy:
    """A policy file, checked; an unknown key is an error that names the nearest valid one."""
    known = [field.name for field in fields(Policy)]
    return _policy(read_toml(path, known, absent=f"`coterie policy init {path}` writes one"), path)


def _policy(raw: Mapping[str, Any], where: object) -> Policy:
    return Policy(**{key: _checked(where, key, value) for key, value in raw.items()})


def _checked(where: object, key: str, value: Any) -> Any:
    if key == "methods":
        return _methods(where, value)
    if key == "peers":
        return _peers(where, value)
    if key == "alignment_key":
        return _secret(where, value)
    if key in _WORDS:
        *most, last = _WORDS[key]
        if value not in _WORDS[key]:
            raise InputError(f"{where}: {key} is {', '.join(most)} or {last}, not {value!r}")
        return value
    if key == "min_count" and isinstance(value, int) and value > MAX_MIN_COUNT:
        raise InputError(f"{where}: min_count is at most {MAX_MIN_COUNT}, not {value!r}")
    if not isinstance(value, int) or isinstance(value, bool) or value < _LEAST[key]:
        raise InputError(f"{where}: {key} is a whole number, at least {_LEAST[key]}, not {value!r}")
    return value


def _methods(where: object, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where}: methods is a list of names, not {value!r}; leave it out to allow all of them")
    for name in value:
        if name not in METHODS:
            raise InputError(f"{where}: there is no method {name!r}; there are {', '.join(sorted(METHODS))}")
    return frozenset(value)


def _peers(where: object, value: Any) -> dict[str, bytes]:
    if not isinstance(value, dict) or not value:
        raise InputError(
            f'{where}: [peers] is a table with a line NAME = "KEY" for every other site, not {value!r}; '
            "leave it out to pin no key"
        )
    return {site: _public_key(where, site, text) for site, text in value.items()}


def _secret(where: object, text: Any) -> bytes:
    """The sites' common secret; never quoted in a message."""
    if isinstance(text, str) and _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if isinstance(text, str) and _BASE64.fullmatch(text):
        return base64.b64decode(text)
    raise InputError(
        f"{where}: alignment_key is 32 bytes as 44 characters of base64 or 64 hex digits; "
        "`coterie policy secret` prints a new one, to be told to the other sites and not to the server"
    )


def _public_key(where: object, site: str, text: Any) -> bytes:
    if difflib.get_close_matches(site.lower(), ["alignment_key"], cutoff=0.8):  # a secret: never quoted
        raise InputError(f"{where}: {site} stands below [peers] and so is read as a site; move it above")
    if site in {field.name for field in fields(Policy)}:
        raise InputError(f"{where}: {site} = {text!r} stands below [peers] and so is read as a site; move it above")
    if isinstance(text, str) and _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if isinstance(text, str) and _BASE64.fullmatch(text):
        return base64.b64decode(text)
    size = f" ({len(text)} characters)" if isinstance(text, str) else ""
    raise InputError(
        f"{where}: the key of {site} under [peers] is {text!r}{size}; a public key is 32 bytes as 44 characters of "
        "base64 or 64 hex digits, and `coterie policy key LEDGER` prints a site's"
    )


# ---------------------------------------------------------------- explaining


def explain_policy(policy: Policy) -> list[str]:
    """The rules as sentences: what they keep, and where they stop."""
    return [
        *_taking_part(policy),
        *_single_answers(policy),
        *_small_groups(policy),
        *_masked_sums(policy),
        _grams(policy),
        *_keys(policy),
        _alignment(policy),
        *_refused(policy),
    ]


def _taking_part(policy: Policy) -> list[str]:
    names = "any method" if policy.methods is None else ", ".join(sorted(policy.methods)) or "no method at all"
    rows = f"while it holds at least {policy.min_rows} rows" if policy.min_rows else "however few rows it holds"
    if policy.max_questions is None:
        limit = "It answers any number of questions in one run."
    else:
        limit = (
            f"It answers at most {policy.max_questions} questions in one run, keys, unmasking and refusals included "
            "(a masked sum takes two); a new run counts afresh."
        )
    runs = "Any number of runs may ask." if policy.max_runs is None else f"It takes part in {policy.max_runs} runs."
    return [f"This site takes part in {names}, {rows}.", limit, runs]


def _single_answers(policy: Policy) -> list[str]:
    seen = {
        "none": "The server sees nothing computed from this site's rows by itself: sums, counts and averages leave "
        "only masked, and it sees their sum over several sites.",
        "averages": "The server may see sums, counts and averages of this site's rows by themselves, but no answer "
        "with a number for every row.",
        "rows": "The server may see anything it asks for by itself, single rows included.",
    }
    always = (
        "It always sees which of the columns it asks for the site holds, the site's public key, and a code for why a "
        "question is refused: by these rules, or for rows that are too few, incomplete or outside limits it states."
    )
    return [seen[policy.single_answers], always]


def _small_groups(policy: Policy) -> list[str]:
    few = f"fewer than {policy.min_count}"
    if policy.min_count <= 1:
        return ["Groups of rows may be as small as one row, whose sum is that row: min_count = 1 guards nothing."]
    return [
        f"No sum or average leaves of a group of {few} rows, of groups that leave {few} of all rows over, or of a "
        f"group that differs by {few} rows from one sent before in the run.",
        "In its place goes what is known already: the group as it was sent before, all rows together, or zeros. "
        f"Where all the rows in use differ by {few} from those summed up before in the run, the site refuses.",
        "This holds within one run; a new run starts afresh. Not held to it: how many rows there are and how far the "
        "largest value lies from three points a run that the server names, both in powers of sixteen; and, once a "
        f"run, the final sizes of the clusters (none below {policy.min_count}) and their cost.",
        "Where a run embeds rows in s columns for the d they have, groups of fewer than 2 s / d + 1 rows are small "
        "as well, since sums of many features tell of the rows behind them.",
    ]


def _masked_sums(policy: Policy) -> list[str]:
    over = {
        1: "A masked sum may be over this site alone, and then hides nothing.",
        2: "A masked sum is over at least 2 sites; over two, each can tell the other's part from the sum.",
    }
    least = f"A masked sum is over at least {policy.min_roster} sites, not counting those that dropped out."
    part = "its part" if policy.min_count <= 1 else f"its part (over at least {policy.min_count} rows)"
    who = {
        "fixed": "All masked sums of a run are over the same sites: where one drops out, this site stops.",
        "shrinking": "In a run sites may drop out of the masked sums, but none may join or come back; of a site that "
        f"dropped out the difference of two sums may show {part}.",
        "any": "In a run a masked sum may be over other sites than the one before; the difference of two of them may "
        f"show {part}.",
    }
    again = "A masked sum that would only repeat groups sent before, over other sites, is refused."
    told = [over.get(policy.min_roster, least), who[policy.rosters]]
    return [*told, again] if policy.rosters == "shrinking" and policy.min_count > 1 else told


def _grams(policy: Policy) -> str:
    if not policy.gram_rows:
        return "Sums of products of features (Grams) are not counted; enough of them give the rows."
    whose = {
        "own": "that this site holds",
        "all": "that the sites of a masked sum hold together, as the server states it (seen by itself: this site)",
    }
    return (
        "Enough sums of products of features (Grams) give the rows, so they are counted: in one run at most one row "
        f"of them leaves for every {policy.gram_rows} rows of data {whose[policy.gram_rows_of]}."
    )


def _keys(policy: Policy) -> list[str]:
    if policy.peers is None:
        return [
            "No other site's key is pinned: the server is trusted to introduce the sites honestly, for with keys it "
            "made up itself it could take the masks off. Keys under [peers] rule that out."
        ]
    names = ", ".join(sorted(policy.peers)) or "nobody"
    told = [f"It is summed up only with sites whose keys are pinned here, under those keys: {names}."]
    if len(policy.peers) + 1 < policy.min_roster:
        told.append(f"With itself that is fewer than the {policy.min_roster} sites of a masked sum: it joins none.")
    return told


def _alignment(policy: Policy) -> str:
    if policy.alignment_key is None:
        return "Rows are not matched with other sites' by a key column: there is no alignment_key to tag keys with."
    mark = hashlib.sha256(b"coterie alignment key" + policy.alignment_key).hexdigest()[:8]
    return (
        "Where columns of the same rows are at several sites, this site tags the key of each row with the sites' "
        f"alignment_key (fingerprint {mark}, the same at every site); the server sees the tags, which tell it which "
        "rows match, and not the keys."
    )


def _refused(policy: Policy) -> list[str]:
    """What cannot be run under these rules, though no rule names it."""
    allowed = [method for method in METHODS.values() if policy.allows(method.name)]
    told = _needing_single_answers(allowed) if policy.single_answers == "none" else []
    if policy.allows("federated-kmeans") and policy.rosters != "any":
        told.append("federated-kmeans on a sample of the sites (fraction below 1)")
    if policy.allows("federated-kmeans") and policy.min_count > 1:
        told.append("federated-kmeans with a site_rate below 1 over several epochs or batches")
    return [f"Refused as a consequence: {'; '.join(told)}."] if told else []


def _needing_single_answers(allowed: list[Method]) -> list[str]:
    """What shows the server single answers."""
    always = [method.name for method in allowed if method.single_answers.startswith("yes")]
    sometimes = [method.name for method in allowed if method.single_answers.startswith("only with a one-shot start")]
    return always + ([f"a one-shot start of {' or '.join(sometimes)}"] if sometimes else [])
