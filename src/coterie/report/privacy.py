"""What a private run promised and did, in sentences for a report and a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from coterie.methods.shared.privacy import HIDDEN, unit_words
from coterie.text import count_of


def privacy_facts(estimator: Any) -> dict[str, Any] | None:
    """What ``result.json`` says of a run's differential privacy; None where it had none."""
    spent = estimator.privacy_
    if spent is None:
        return None
    found = estimator.certificate_  # an owner who plays all sites keeps no budget over runs
    signed = found.statements if found is not None and found.authority_made_for == "federation" else {}
    bounds_tables = bool(signed) and all(one.statement.bounds_table for one in signed.values())
    return {
        **asdict(spent),
        "hides_clusters": spent.hides_clusters,
        "bounds": "tables" if bounds_tables else "releases",
    }


def privacy_sentences(privacy: Mapping[str, Any]) -> Iterator[str]:
    """Epsilon, what it protects from whom, and where it ends."""
    epsilon, one = privacy["epsilon"], unit_words(privacy["unit"], privacy["rows_per_unit"])
    yield (
        f"Differentially private: epsilon = {epsilon:g}, delta = {privacy['delta']:g}. Adding or removing {one} "
        f"changes the probability of whatever anybody concludes from what this run released by a factor of at "
        f"most exp({epsilon:g}) = {math.exp(epsilon):,.3g}, up to a probability of {privacy['delta']:g}."
    )
    needed = privacy["sites"] - privacy["tolerated"]
    if privacy["tolerated"]:
        yield (
            f"Each of {count_of(privacy['sites'], 'site')} added its share of the noise, and the shares of {needed} "
            f"are enough: {count_of(privacy['tolerated'], 'site')} may drop out, or collude with the server."
        )
    else:
        yield (
            f"Each of {count_of(privacy['sites'], 'site')} added its share of the noise, and all of them are needed "
            "(tolerated = 0): a site that colludes with the server can subtract its own."
        )
    if privacy["bounds"] == "tables":
        yield "The sites release nothing of these tables without noise, and keep a budget over all runs."
    else:
        yield (
            "Epsilon bounds what the releases of this run tell, not what is known of the tables: there, other runs "
            "may be answered without noise."
        )
    what = "All numbers" if privacy["size_deviation"] is None else "Centers, sizes and costs"
    yield f"{what} are estimates: they were computed from sums with noise."
    if privacy["size_deviation"] is not None:
        cost = "" if privacy["cost_deviation"] is None else f", and in the cost of {privacy['cost_deviation']:,.3g}"
        yield f"Noise in each size has a standard deviation of {privacy['size_deviation']:,.0f} rows{cost}."
    if privacy["hides_clusters"]:
        yield HIDDEN


def releases_table(privacy: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the cells of a table of the releases."""
    rows = [[release["what"], f"{release['share']:.1%}"] for release in privacy["releases"]]
    return ["noisy sums", "share of the privacy"], rows
