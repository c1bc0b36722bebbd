"""Runs side by side, from their folders: agreement of labels, corresponding centers, cost, bytes, rounds, privacy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq

from coterie.arrays import Floats, Integers
from coterie.errors import CoterieError, InputError
from coterie.estimators.comparing import MatchedCenters, compare, matched_centers, same_units
from coterie.estimators.exactness import CostIs, CountsAre
from coterie.estimators.models import load_model
from coterie.files import MEGABYTE, read_bounded
from coterie.maths.separation import adjusted_rand
from coterie.messages.chain import read_chain
from coterie.report.outputs import RESULT_SCHEMA

MOST_BYTES = 256 * MEGABYTE
"""Of a result."""


@dataclass(frozen=True)
class RunFolder:
    """A finished run."""

    name: str
    path: Path
    result: dict[str, Any]

    @cached_property
    def model(self) -> Any:
        """The fitted model; None where columns are at several sites, so that no site can label rows alone."""
        model = load_model(self.path / "model.json")
        return None if model.splits_columns else model

    @cached_property
    def labels(self) -> dict[str, Integers]:
        """By site the cluster of every row, -1 where it has none; nothing where the labels are at the sites."""
        found = {}
        for path in sorted((self.path / "labels").glob("*.parquet")):
            column = pq.read_table(path, columns=["cluster"])["cluster"].fill_null(-1)
            found[unquote(path.stem)] = np.asarray(column.to_numpy(), np.int64)
        return found

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """By site what the run kept of its rows, to know them again; of runs on this machine."""
        found = dict[str, str]()
        for path in (self.path / "journal" / "sites").glob("*.jsonl"):
            notes = [line for line in read_chain(path) if line.get("event") == "note"]
            found |= {unquote(path.stem): str(one["data"]) for one in notes if one.get("what") == "fingerprint"}
        return found


@dataclass(frozen=True)
class Pair:
    """What can be said of two runs, and why the rest cannot."""

    first: str
    second: str
    ari: float | None = None
    counts_are: CountsAre | None = None
    """What the agreement counts: rows, by their labels; or whole groups, labelled at the sites."""
    rows: float = 0.0
    """Rows with a label in both."""
    table: Floats | None = None
    costs: tuple[float | None, float | None] | None = None
    """Of the same rows under both models, each in its own units, where the sites labelled them."""
    cost_is: CostIs | None = None
    centers: MatchedCenters | None = None
    costs_comparable: bool = False
    notes: tuple[str, ...] = ()
    """What is not compared, and why."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        agreement: dict[str, Any] | None = None
        if self.ari is not None and self.table is not None and self.counts_are is not None:
            kinds = {"counts_are": self.counts_are.value, "cost_is": self.cost_is and self.cost_is.value}
            agreement = {
                "ari": self.ari,
                "rows": self.rows,
                "table": self.table.tolist(),
                "costs": self.costs,
                **kinds,
            }
        centers = None if self.centers is None else self.centers._asdict()
        facts = {"costs_comparable": self.costs_comparable, "notes": list(self.notes)}
        return {"first": self.first, "second": self.second, "agreement": agreement, "centers": centers, **facts}


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Finished runs by their folders; ``InputError`` for anything else, for all of them at once."""
    if len(paths) < 2:
        raise InputError("there is one run; name at least two to compare.")
    whole = [path.resolve() for path in paths]
    if len(set(whole)) < len(whole):
        raise InputError(f"a run is named twice: {', '.join(map(str, paths))}.")
    short = [path.name for path in whole]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    runs, problems = [], []
    for name, path in zip(names, paths, strict=True):
        try:
            runs.append(RunFolder(name, path, _result_in(path)))
        except InputError as problem:
            problems.append(str(problem))
    if problems:
        raise InputError(" ".join(problems))
    return runs


def _result_in(path: Path) -> dict[str, Any]:
    """The result of a run that has clusters to compare."""
    result = read_run(path)
    if not result.get("centers"):
        raise InputError(f"{path}: {result.get('method')} found no clusters, so there is nothing to compare.")
    return result


def read_run(path: Path) -> dict[str, Any]:
    """The result of a finished run; ``InputError`` where a folder holds none that this version reads."""
    try:
        result = json.loads(read_bounded(path / "result.json", MOST_BYTES))
        schema = result["schema"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise InputError(f"{path} holds no finished run (no result.json); give the --out folder of one.") from None
    if schema != RESULT_SCHEMA:
        raise InputError(
            f"{path}: the result has format {str(schema)[:40]}, and this version of coterie reads {RESULT_SCHEMA}; "
            "run it again."
        )
    return dict(result)


def run_facts(run: RunFolder) -> dict[str, Any]:
    """What one run is, for a line of a table."""
    result = run.result
    facts = {name: result[name] for name in ("method", "cost", "cost_is", "counts_are", "rounds", "bytes_up")}
    force = result["in_force"]
    protection = sorted({_protection(site) for site in force["sites"].values()})
    privacy = result["privacy"]
    if privacy:
        protection = [f"epsilon {privacy['epsilon']:g}"]
    more = {"clusters": len(result["centers"]), "rows": result["rows"]["clustered"], "protection": protection}
    return {"name": run.name, **more, **facts, "columns": result["columns"], "seed": force["seed"]}


def _protection(site: Mapping[str, Any]) -> str:
    return f"groups of {site['min_group']}" if site["min_group"] else str(site["protection"])


def compared_runs(runs: Sequence[RunFolder], tables: Mapping[str, Any] | None = None, **options: Any) -> list[Pair]:
    """Every pair of runs. With ``tables`` the sites label their rows under both models, and agreement comes by sums;
    otherwise it comes from the label files."""
    pairs = [_pair(first, second, tables, options) for first, second in combinations(runs, 2)]
    if all(pair.ari is None and pair.centers is None for pair in pairs):
        reasons = dict.fromkeys(note for pair in pairs for note in pair.notes)
        raise InputError(
            f"these runs have neither rows nor columns in common. {' '.join(reasons)} Runs over the same rows can "
            "be compared, and so can runs over the same columns."
        )
    return pairs


def _pair(first: RunFolder, second: RunFolder, tables: Mapping[str, Any] | None, options: dict[str, Any]) -> Pair:
    """Two runs."""
    pair = Pair(first.name, second.name)
    if first.model is not None and second.model is not None:
        centers, is_same = matched_centers(first.model, second.model), same_units(first.model, second.model)
        pair = replace(pair, centers=centers, costs_comparable=is_same)
    notes = []
    if pair.centers is None:
        notes.append(f"Centers of {first.name} and {second.name} are not matched: {_why_no_match(first, second)}.")
    if not pair.costs_comparable:
        notes.append(f"Costs of {first.name} and {second.name} cannot be compared: they are in other units.")
    if tables is not None:
        return replace(_labelled_at_sites(pair, first, second, tables, options), notes=tuple(notes))
    table, why_not = _shared_rows(first, second)
    if table is None:
        notes.append(f"Labels of {first.name} and {second.name} are not compared: {why_not}.")
        return replace(pair, notes=tuple(notes))
    return replace(
        pair,
        ari=adjusted_rand(table),
        counts_are=CountsAre.ROWS,
        rows=float(table.sum()),
        table=table,
        notes=tuple(notes),
    )


def _labelled_at_sites(
    pair: Pair, first: RunFolder, second: RunFolder, tables: Mapping[str, Any], options: Mapping[str, Any]
) -> Pair:
    if first.model is None or second.model is None:
        raise InputError("columns are at several sites, so no site can label rows alone; leave --data out.")
    made = compare(first.model, second.model, tables, **options)
    return replace(
        pair,
        ari=made.ari,
        counts_are=made.counts_are,
        rows=float(made.table.sum()),
        table=made.table,
        costs=made.costs,
        cost_is=made.cost_is,
    )


def _why_no_match(first: RunFolder, second: RunFolder) -> str:
    if first.model is None or second.model is None or any(run.model.center_columns() for run in (first, second)):
        return "they are centers of embedded rows"
    one, other = ({str(name) for name in run.model.feature_names_in_} for run in (first, second))
    apart = sorted(one ^ other)
    shown = ", ".join(apart[:5]) + (f" and {len(apart) - 5} more" if len(apart) > 5 else "")
    return f"the runs have other columns (not in both: {shown})"


def _shared_rows(first: RunFolder, second: RunFolder) -> tuple[Floats | None, str]:
    """How many rows each pair of clusters shares, from the label files; or why that is not known."""
    without = [run.name for run in (first, second) if not run.labels]
    if without:
        return (
            None,
            f"those of {' and '.join(without)} are at the sites; pass --data with their tables, one file a site",
        )
    if first.labels.keys() != second.labels.keys():
        return None, f"the sites differ ({', '.join(first.labels)}; {', '.join(second.labels)})"
    for site, own in first.labels.items():
        if len(own) != len(second.labels[site]):
            return None, f"{site} has {len(own):,} rows in one and {len(second.labels[site]):,} in the other"
        if first.result["columns"] == second.result["columns"] and _differ(first, second, site):
            return None, f"the rows of {site} are other ones, or in another order"
    sites = list(first.labels) if first.model is not None and second.model is not None else list(first.labels)[:1]
    one, other = (np.concatenate([run.labels[site] for site in sites]) for run in (first, second))
    k1, k2 = len(first.result["centers"]), len(second.result["centers"])
    both = (one >= 0) & (other >= 0)
    return np.bincount(one[both] * k2 + other[both], minlength=k1 * k2).reshape(k1, k2).astype(np.float64), ""


def _differ(first: RunFolder, second: RunFolder, site: str) -> bool:
    """Whether the rows of a site are known to be others."""
    try:
        one, other = first.fingerprints.get(site), second.fingerprints.get(site)
    except (CoterieError, OSError):
        return False
    return one is not None and other is not None and one != other
