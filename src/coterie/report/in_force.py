"""What was in force in a run: protection and policy of each site, seeds, sums, preparation, versions."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from coterie.methods.order import installed_versions
from coterie.sites.policy import Policy

_NOT_SHOWN = ("alignment_key", "peers", "method_protection")
"""Rules of a policy that are secrets or keys, or follow from the protection that is shown."""


def in_force(estimator: Any, policies: Mapping[str, Policy] | None) -> dict[str, Any]:
    """What ``result.json`` records. Seeds are those asked for and drawn; versions are those where it is written."""
    options, masked = estimator.options_, any(one.seen == "masked" for one in estimator.ledger_.exchanges)
    return {
        "sites": _stated(estimator) if policies is None else _ruled(estimator.method, policies),
        "sums": "masked" if masked else "plain",
        "seed": {"asked": _plain(estimator.random_state), "public": getattr(estimator, "public_seed_", None)},
        "preparation": None if options is None else _plain(asdict(options)),
        "versions": {**installed_versions(), "python": platform.python_version()},
    }


def in_force_table(facts: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table of what was in force; sites with the same protection share a line."""
    asked, drawn = facts["seed"]["asked"], facts["seed"]["public"]
    lines = [[f"protection: {text}", ", ".join(names)] for text, names in protections(facts).items()]
    lines += [["sums", facts["sums"]], ["seed", f"asked for {asked}, public seed {drawn}"]]
    for name in ("scale", "missing") if facts["preparation"] else ():
        lines.append([name, str(facts["preparation"][name])])
    lines.append(["versions", ", ".join(f"{name} {number}" for name, number in facts["versions"].items())])
    return ["", ""], lines


def protections(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The sites by their protection in words: ``groups of at least 5 rows``."""
    by_protection: dict[str, list[str]] = {}
    for name, site in facts["sites"].items():
        least = f" of at least {site['min_group']} rows" if site["min_group"] else ""
        by_protection.setdefault(site["protection"] + least, []).append(name)
    return by_protection


def _ruled(method: str, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """By site the protection of the method's view, and the policy as far as it holds no secrets."""
    return {
        name: {
            "protection": policy.protection_of(method),
            "min_group": policy.min_group if policy.protection_of(method) == "groups" else 0,
            "policy": {rule: _plain(value) for rule, value in asdict(policy).items() if rule not in _NOT_SHOWN},
        }
        for name, policy in policies.items()
    }


def _stated(estimator: Any) -> dict[str, Any]:
    """By site what it signed of its protection; nothing where sites signed nothing."""
    certificate = estimator.certificate_
    return {
        name: {"protection": _protection(one.statement), "min_group": one.statement.min_group}
        for name, one in (certificate.statements.items() if certificate is not None else ())
    }


def _protection(statement: Any) -> str:
    """``noise`` where noise was charged to a budget."""
    if statement.min_group:
        return "groups"
    return "noise" if statement.epsilon > 0 else "none"


def _plain(value: Any) -> Any:
    """A value as JSON has it; sets in order, a random state by its name."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.random.RandomState):
        return "RandomState"
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return msgspec.to_builtins(value)
