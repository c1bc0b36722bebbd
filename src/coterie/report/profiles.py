"""Profiles of clusters as people and files have them: ``profiles.csv``, a table of what distinguishes each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.methods.shared.cluster_profiles import Profile
from coterie.methods.shared.composition import Composition

PROFILES, COMPOSITION = "profiles.csv", "composition.csv"
SHOWN = 3
"""Columns of a cluster in the table of what distinguishes it."""


def profile_facts(profile: Profile | None) -> dict[str, Any] | None:
    """What ``result.json`` says of the profiles; None where none were asked for."""
    if profile is None:
        return None
    return {
        "counts_and_means_are": "exact" if profile.noise is None else "estimates",
        "deviations_are": "estimates" if profile.over_groups or profile.noise else "exact",
        "quartiles_are": "estimates" if profile.over_groups or profile.noise else "within 0.1 deviations",
        "noise_of_rows": None if profile.noise is None else profile.noise[0],
        "columns": [profile.columns[place] for place in profile.order()],
        "profiles": profile.records(),
        "distinguishing": [
            [profile.columns[place] for place in profile.distinguishing(cluster, SHOWN)]
            for cluster in range(len(profile.rows))
        ],
    }


def write_profiles(path: Path, profile: Profile) -> None:
    """A line a cluster and column, and one of all rows a column; what distinguishes clusters first."""
    records = profile.records()
    about = {"sd", "q1", "median", "q3"} if profile.over_groups else {"q1", "median", "q3"}
    if profile.noise is not None:
        about = records[0].keys() - {"cluster", "column", "noise_of_mean"}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"{name}_about" if name in about else name for name in records[0]])
        for record in records:
            writer.writerow(["" if value is None else value for value in record.values()])


def distinguishing_table(facts: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table: for each cluster the columns in which it differs most from all rows."""
    records = {(record["cluster"], record["column"]): record for record in facts["profiles"]}
    nothing = "nothing" if facts.get("noise_of_rows") is None else "nothing that could not be noise"
    lines = [
        [str(cluster), "; ".join(_differs(records[cluster, column]) for column in columns) or nothing]
        for cluster, columns in enumerate(facts["distinguishing"])
    ]
    return ["cluster", "differs most in (mean or share, difference from all rows)"], lines


def composition_facts(composition: Composition | None) -> dict[str, Any] | None:
    """What ``result.json`` says of the sites' rows in each cluster; None where that was not seen."""
    if composition is None:
        return None
    counted = "whole_groups" if composition.over_groups else "rows"
    return {"sites": list(composition.sites), "counts_are": counted, "counts": composition.rows.tolist()}


def write_composition(path: Path, composition: Composition) -> None:
    """A line a cluster and site."""
    counted = "rows_of_whole_groups" if composition.over_groups else "rows"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cluster", "site", counted, "share_of_cluster"])
        for record in composition.records():
            writer.writerow([record["cluster"], record["site"], f"{record['rows']:.15g}", f"{record['share']:.6g}"])


def composition_table(facts: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table: for each cluster how many rows each site has in it."""
    lines = [
        [str(cluster), *(f"{count:,.0f} ({count / max(sum(counts), 1):.0%})".replace("%", " %") for count in counts)]
        for cluster, counts in enumerate(facts["counts"])
    ]
    return ["cluster", *facts["sites"]], lines


def exactness_sentence(facts: Mapping[str, Any]) -> str:
    """How exact the numbers of ``profiles.csv`` are."""
    if facts.get("noise_of_rows") is not None:
        return (
            f"{PROFILES} describes the clusters by all columns; all its numbers are estimates. The noise in each "
            f"number of rows has a standard deviation of {facts['noise_of_rows']:.3g}; noise_of_mean is that of each "
            "mean. Columns whose difference may be noise are not named, and quartiles that would be noise are left "
            "out."
        )
    of = "count whole groups" if facts["deviations_are"] == "estimates" else "are exact"
    return (
        f"{PROFILES} describes the clusters by all columns: rows, means and shares {of}, standard deviations are "
        f"{facts['deviations_are']}, quartiles {facts['quartiles_are']}."
    )


def _differs(record: Mapping[str, Any]) -> str:
    """``age 63.2 (+1.1 sd)``, ``sex=f 82 % (+0.9 sd)``."""
    share = record["share"]
    value = f"{record['mean']:.4g}" if share is None else f"{share:.0%}".replace("%", " %")
    return f"{record['column']} {value} ({record['difference_in_sd']:+.1f} sd)"
