"""A site's rules as a TOML file: written with comments, checked key by key, explained in sentences."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from coterie.errors import InputError
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.privacy import unit_words
from coterie.methods.shared.starts import Summarise
from coterie.parameters import Choice
from coterie.sites.policy import LARGEST_GROUP, SMALLEST_GROUP, Policy, PrivacyRules, Protection
from coterie.sites.toml_files import read_toml
from coterie.text import count_of, nearest_name

PRESETS: tuple[str, ...] = ("private", "strict", "standard", "research")
"""Policies that come with coterie, from careful to open."""

_POSITIVE = Annotated[int, msgspec.Meta(ge=1)], "a whole number, at least 1"
_RULES: dict[str, tuple[Any, str]] = {
    "methods": (frozenset[str], "a list of names (left out, it allows all of them)"),
    "protection": (Protection, "groups, noise or none"),
    "min_group": (
        Annotated[int, msgspec.Meta(ge=SMALLEST_GROUP, le=LARGEST_GROUP)],
        f"a whole number from {SMALLEST_GROUP} to {LARGEST_GROUP}",
    ),
    "levels": (Literal["named", "listed"], "named or listed"),
    "per_site_results": (Literal["none", "averages", "rows"], "none, averages or rows"),
    "min_roster": _POSITIVE,
    "rosters": (Literal["fixed", "shrinking", "any"], "fixed, shrinking or any"),
    "verification": (Literal["required", "off"], "required or off"),
    "halves": (bool, "true or false"),
    "composition": (bool, "true or false"),
    "max_questions": _POSITIVE,
    "max_runs": _POSITIVE,
    "orders_may_choose": (frozenset[Choice], "a list of points, ranges and parameters, or an empty one"),
    "approval": (Literal["automatic", "first", "always"], "automatic, first or always"),
    "name_decisions": (bool, "true or false"),
    "min_rows": (Annotated[int, msgspec.Meta(ge=0)], "a whole number, at least 0"),
}
"""The type of each key but tables and secrets, and what is said of it."""
_CHOICES: dict[Choice, str] = {
    "points": "points (a start, landmarks)",
    "ranges": "ranges of values",
    "parameters": "parameters on a continuous scale (gamma)",
}
_PART: dict[Protection, str] = {
    "groups": "that site's part, a sum over its groups",
    "noise": "that site's part, with no less noise than either sum",
    "none": "that site's part",
}
_KEYS = (*(field.name for field in fields(Policy) if field.name != "method_protection"), "method")
_REMOVED = ("single_answers", "min_count", "gram_rows", "gram_rows_of")
_HEX, _BASE64 = re.compile("[0-9a-fA-F]{64}"), re.compile("[A-Za-z0-9+/]{43}=")


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
    return _shipped(name)


def _shipped(name: str) -> str:
    return files("coterie.sites").joinpath(f"policies/{name}.toml").read_text(encoding="utf-8")


def read_policy(path: Path) -> Policy:
    """A policy file, checked; an unknown key is an error that names the nearest valid one."""
    raw = _read(path)
    old = [f"{key} ({_replacement(key, raw[key])})" for key in _REMOVED if key in raw]
    if old:
        raise InputError(
            f"{path}: {', '.join(old)}: no longer a rule; `coterie policy upgrade {path}` rewrites the file."
        )
    return _policy(raw, path)


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path, (*_KEYS, *_REMOVED), offered=_KEYS, absent=f"`coterie policy init {path}` writes one")


def _policy(raw: Mapping[str, Any], where: object) -> Policy:
    checked = {key: _checked(where, key, value) for key, value in raw.items()}
    if "method" in checked:
        checked["method_protection"] = checked.pop("method")
    try:
        return Policy(**checked)
    except InputError as problem:  # of rules that do not go together
        raise InputError(f"{where}: {problem}") from None


def _new_rules(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of an older file under today's names."""
    rules = {key: value for key, value in raw.items() if key not in _REMOVED}
    if "single_answers" in raw:
        rules["per_site_results"] = raw["single_answers"]
    if "min_count" in raw:
        count = raw["min_count"]
        if isinstance(count, int) and count <= 1:
            rules["protection"] = "none"
        else:
            rules["min_group"] = min(LARGEST_GROUP, max(SMALLEST_GROUP, count)) if isinstance(count, int) else count
    return rules


def _replacement(key: str, value: Any) -> str:
    """The line that takes the place of a removed one."""
    lines = [f"{name} = {_toml(new)}" for name, new in _new_rules({key: value}).items()]
    return f"now {lines[0]}" if lines else "leave it out"


def upgraded_policy(path: Path) -> str:
    """The text of an older policy file under today's rules: a preset's comments, and this file's values."""
    rules = _new_rules(_read(path))
    _policy(rules, path)
    tables = {name: rules.pop(name, {}) for name in ("privacy", "peers")}
    methods = rules.pop("method", {})
    lines = []
    for line in policy_text("standard").splitlines():
        match = re.match(r"(?:# )?(\w+) = ", line)
        if match is None or match[1] not in _KEYS or line.startswith("#   "):
            lines.append(line)
        elif match[1] in rules:
            lines.append(f"{match[1]} = {_toml(rules.pop(match[1]))}")
        else:
            default = getattr(Policy(), match[1])
            lines.append(f"# {line.removeprefix('# ')}" if default is None else f"{match[1]} = {_toml(default)}")
    lines += [f"{name} = {_toml(value)}" for name, value in rules.items()]
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *(f"{_toml(key)} = {_toml(value)}" for key, value in table.items())]
    for method, rule in methods.items():
        lines += ["", f"[method.{method}]", *(f"{k} = {_toml(v)}" for k, v in rule.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    return json.dumps(
        sorted(value)
        if isinstance(value, frozenset)
        else list(value)
        if isinstance(value, list | tuple | frozenset)
        else value
    )


def _checked(where: object, key: str, value: Any) -> Any:
    if key == "peers":
        return _peers(where, value)
    if key == "alignment_key":
        return _secret(where, value)
    if key == "method":
        return _method_tables(where, value)
    if key == "privacy":
        return _privacy(where, value)
    kind, rule = _RULES[key]
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InputError(f"{where}: {key} is {rule}, not {value!r}") from None
    for name in value if key == "methods" else ():
        if name not in METHODS:
            raise InputError(f"{where}: there is no method {name!r}; there are {', '.join(sorted(METHODS))}")
    return converted


def _method_tables(where: object, value: Any) -> dict[str, Protection]:
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: method is a table for each method, [method.NAME], not {value!r}")
    for name, rules in value.items():
        if name not in METHODS:
            raise InputError(f"{where}: [method.{name}]: there is no such method{nearest_name(name, METHODS)}")
        if rules not in [{"protection": protection} for protection in ("groups", "noise", "none")]:
            raise InputError(
                f'{where}: [method.{name}] has one line, protection = "groups", "noise" or "none", not {rules!r}'
            )
    return {name: rules["protection"] for name, rules in value.items()}


def _privacy(where: object, value: Any) -> PrivacyRules:
    """The section with the budget."""
    known = {item.name for item in fields(PrivacyRules)}
    if not isinstance(value, dict):
        raise InputError(f"{where}: [privacy] is a table with a line epsilon = 4.0, not {value!r}")
    for name in value:
        if name in _KEYS:
            raise InputError(f"{where}: {name} stands below [privacy] and so is read as part of it; move it above")
        if name not in known:
            raise InputError(f"{where}: [privacy] has no {name!r}{nearest_name(name, sorted(known))}")
    if "epsilon" not in value:
        raise InputError(f"{where}: [privacy] needs the budget, such as epsilon = 4.0")
    try:
        return msgspec.convert(value, PrivacyRules)
    except (InputError, msgspec.ValidationError) as problem:
        raise InputError(f"{where}: [privacy]: {problem}") from None


def _peers(where: object, value: Any) -> dict[str, bytes]:
    if not isinstance(value, dict) or not value:
        raise InputError(
            f'{where}: [peers] is a table with a line NAME = "KEY" for every other site, not {value!r}; '
            "leave it out to pin no key"
        )
    return {site: _public_key(where, site, text) for site, text in value.items()}


def _secret(where: object, text: Any) -> bytes:
    """The sites' common secret; never quoted in a message."""
    key = _key_bytes(text)
    if key is None:
        raise InputError(
            f"{where}: alignment_key is 32 bytes as 44 characters of base64 or 64 hex digits; "
            "`coterie policy secret` prints a new one; give it to the other sites and not to the server"
        )
    return key


def _key_bytes(text: Any) -> bytes | None:
    """The 32 bytes of a key in hex digits or base64; None for anything else."""
    if isinstance(text, str) and _HEX.fullmatch(text):
        return bytes.fromhex(text)
    return base64.b64decode(text) if isinstance(text, str) and _BASE64.fullmatch(text) else None


def _public_key(where: object, site: str, text: Any) -> bytes:
    if difflib.get_close_matches(site.lower(), ["alignment_key"], cutoff=0.8):  # a secret: never quoted
        raise InputError(f"{where}: {site} stands below [peers] and so is read as a site; move it above")
    if site in {field.name for field in fields(Policy)}:
        raise InputError(f"{where}: {site} = {text!r} stands below [peers] and so is read as a site; move it above")
    key = _key_bytes(text)
    if key is None:
        size = f" ({len(text)} characters)" if isinstance(text, str) else ""
        raise InputError(
            f"{where}: the key of {site} under [peers] is {text!r}{size}; a public key is 32 bytes as 44 characters "
            "of base64 or 64 hex digits, and `coterie policy key LEDGER` prints a site's"
        )
    return key


def _composition(policy: Policy) -> str:
    """What is said of it."""
    if not policy.composition or policy.verifies:
        return "verified" if policy.composition else "none"
    return "rows" if policy.protection == "none" else "noise" if policy.protection == "noise" else "groups"


def explain_policy(policy: Policy) -> list[str]:
    """The rules as sentences: what they keep, and where they stop."""
    text = tomllib.loads(_shipped("explanations"))
    facts = _facts(policy)
    sentences = [
        text["takes_part"],
        text["any_questions" if policy.max_questions is None else "max_questions"],
        text["any_runs" if policy.max_runs is None else "max_runs"],
        text["orders_may_choose" if policy.orders_may_choose else "orders_choose_nothing"],
        *([text["private_ranges"]] if policy.privacy and "ranges" not in policy.orders_may_choose else []),
        text["approval"][policy.approval],
        text["name_decisions"][str(policy.name_decisions).lower()],
        *text["protection"][policy.protection],
        *(text["privacy"][policy.protection if policy.privacy else "none_at_all"]),
        text["levels"]["listed" if policy.level_rows is None else policy.levels],
        text["per_site_results"][policy.per_site_results],
        text["per_site_results"]["always_noise" if policy.bounds_table else "always"],
        text["min_roster"].get(str(policy.min_roster), text["min_roster"]["more"]),
        text["rosters"][policy.rosters],
        text["verification"]["required" if policy.verifies else "off"],
        text["halves"]["allowed" if policy.halves else "none"],
        text["composition"][_composition(policy)],
        text["peers"]["none" if policy.peers is None else "pinned"],
        text["alignment_key"]["none" if policy.alignment_key is None else "set"],
    ]
    if policy.peers is not None and len(policy.peers) + 1 < policy.min_roster:
        sentences.insert(-1, text["peers"]["too_few"])
    place = sentences.index(text["per_site_results"][policy.per_site_results])
    exempt = [
        text["exempt"][rule].format(**facts, exempt=", ".join(names)) for rule, names in _exempt(policy).items()
    ]
    if exempt and policy.protection == "noise":
        exempt.append(text["exempt"]["unbounded"])
    filled = [sentence.format_map(facts) for sentence in sentences]
    return [*filled[:place], *exempt, *filled[place:], *_refused(policy)]


def _exempt(policy: Policy) -> dict[Protection, list[str]]:
    """The methods with another protection, by protection."""
    found: dict[Protection, list[str]] = {}
    for name, rule in sorted(policy.method_protection.items()):
        if rule != policy.protection:
            found.setdefault(rule, []).append(name)
    return found


def _facts(policy: Policy) -> dict[str, Any]:
    """What the sentences name."""
    is_grouped, budget = policy.protection == "groups", policy.privacy or PrivacyRules(1.0)
    least = max(policy.min_rows, policy.min_group if is_grouped else 0)
    if policy.protection == "noise":  # nothing tells how many there are
        least = 0
    digest = hashlib.sha256(b"coterie alignment key" + (policy.alignment_key or b"")).hexdigest()
    return {
        **{field.name: getattr(policy, field.name) for field in fields(policy)},
        "methods": "any method"
        if policy.methods is None
        else ", ".join(sorted(policy.methods)) or "no method at all",
        "rows": f"as long as it holds at least {least} rows" if least else "however few rows it holds",
        "choices": ", ".join(_CHOICES[choice] for choice in sorted(policy.orders_may_choose)),
        "max_group": 2 * policy.min_group - 1,
        "each": "group" if is_grouped else "row",
        "single": "group average" if is_grouped else "row",
        "level_rows": count_of(policy.level_rows or 1, "row"),
        "part": _PART[policy.protection],
        "epsilon": f"{budget.epsilon:g}",
        "delta": f"{budget.delta:g}",
        "factor": f"{math.exp(budget.epsilon):,.3g}",
        "unit": unit_words(budget.unit, budget.rows_per_unit),
        "peers": ", ".join(sorted(policy.peers or ())) or "nobody",
        "fingerprint": digest[:8],
    }


def _refused(policy: Policy) -> list[str]:
    """What cannot be run under these rules, though no rule names it."""
    allowed = [method for method in METHODS.values() if policy.allows(method.name)]
    needing = [m.name for m in allowed if m.needs_rows and policy.protection_of(m.name) != "none"]
    unprivate = [m.name for m in allowed if policy.protection_of(m.name) == "noise" and not m.can_be_private]
    refused = [f"{', '.join(unprivate)} (they cannot be run privately)"] if unprivate else []
    needing = [name for name in needing if name not in unprivate]
    allowed = [method for method in allowed if policy.protection_of(method.name) != "noise"]
    refused += [f"{', '.join(needing)} (they need single rows)"] if needing else []
    if policy.per_site_results == "none":
        refused += [name for name in _needing_per_site_results(allowed) if name not in needing]
    if METHODS["federated-kmeans"] in allowed and policy.rosters != "any":
        refused.append("federated-kmeans on a sample of the sites (fraction below 1)")
    return [f"Refused as a consequence: {'; '.join(refused)}."] if refused else []


def _needing_per_site_results(allowed: list[Method]) -> list[str]:
    """What shows the server per-site results."""
    always = [method.name for method in allowed if method.visibility != "sums"]
    sometimes = [m.name for m in allowed if m.visibility == "sums" and Summarise in m.requests and m.has("init")]
    return always + ([f"a one-shot start of {' or '.join(sometimes)}"] if sometimes else [])
