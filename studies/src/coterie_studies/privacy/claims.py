"""What is promised of private runs, held against what was measured; means over seeds decide, unless named."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from statistics import mean, median

from coterie_studies.privacy.sets import FULL, KERNEL, PrivateSet
from coterie_studies.study import Findings
from coterie_studies.tables import Estimate, Row, estimate

__all__ = ["BARS", "LSH", "PEER_TITLES", "Bar", "by_peer", "claims", "measured_elsewhere"]

LSH = "lsh"
PEER_TITLES = {
    "fast-lloyd": "FastLloyd (Diaa et al. 2025)",
    "su-lloyd": "DP-Lloyd (Su et al. 2016)",
    "diffprivlib": "diffprivlib",
    LSH: "LSH clustering (Google)",
}
NEAR_LIMIT = 1.03


@dataclass(frozen=True)
class Bar:
    """What runs of one kind, on one set and at one epsilon, must reach."""

    name: str
    limit: float
    epsilon: float = 1.0
    kind: str = "kmeans"
    what: str = "ratio"
    is_median: bool = False

    @property
    def one(self) -> PrivateSet:
        """The set."""
        return (KERNEL if self.kind == "kernel" else FULL)[self.name]

    @property
    def text(self) -> str:
        """The promise in words."""
        middle = "median" if self.is_median else "mean"
        words = {"kmeans": "k-means cost", "kernel": "kernel k-means cost"}[self.kind]
        if self.what == "nmi":
            return f"{middle} NMI of {words.removesuffix(' cost')} at least {self.limit:g}"
        return f"{middle} {words} at most {self.limit:g} times the pooled one"

    def value(self, values: list[float]) -> float:
        """What decides."""
        return median(values) if self.is_median else mean(values)

    def holds(self, values: list[float]) -> bool:
        """Whether runs reach it."""
        return self.value(values) >= self.limit if self.what == "nmi" else self.value(values) <= self.limit


BARS = (
    Bar("digits", 1.15),
    Bar("digits", 0.63, what="nmi"),
    Bar("mnist", 1.015),
    Bar("mushrooms", 1.005),
    Bar("covtype", 1.03),
    Bar("gaussians", 1.04),
    Bar("heart", 1.03, is_median=True),
    Bar("pjm", 1.025),
    Bar("mnist", 1.10, epsilon=0.1),
    Bar("mushrooms", 1.05, epsilon=0.1),
    Bar("digits", 1.06, kind="kernel"),
    Bar("mnist", 1.01, kind="kernel"),
    Bar("rings", 0.99, kind="kernel", what="nmi"),
)


def claims(found: Findings) -> Iterator[Row]:
    """Every promise about what was run."""
    for bar in BARS:
        values = found.values(bar.what, kind=bar.kind, set=bar.name, epsilon=bar.epsilon)
        values = [value for value in values if not math.isnan(value)]
        if values:
            measured = f"{bar.value(values):.4f}"
            yield _verdict(bar.one.title, f"epsilon {bar.epsilon:g}: {bar.text}", measured, bar.holds(values))
    for name, one in FULL.items():
        yield from _at_the_limit(found, name, one)
        yield from _below_peers(found, name, one)


def _at_the_limit(found: Findings, name: str, one: PrivateSet) -> Iterator[Row]:
    far, without = (found.values("ratio", kind="limit", set=name, epsilon=epsilon) for epsilon in (100.0, "none"))
    if far and without:
        measured = mean(far) / mean(without)
        promised = f"epsilon 100: k-means cost at most {NEAR_LIMIT:g} times that without noise"
        yield _verdict(one.title, promised, f"{measured:.4f}", measured <= NEAR_LIMIT)


def _below_peers(found: Findings, name: str, one: PrivateSet) -> Iterator[Row]:
    ours = found.estimate("ratio", kind="kmeans", set=name, epsilon=1.0)
    theirs = {peer: by_peer(found, name, peer, "ratio").mean for peer in PEER_TITLES}
    known = {peer: value for peer, value in theirs.items() if value > 0}
    if ours.n and known:
        best = min(known, key=lambda peer: known[peer])
        promised = "epsilon 1: mean k-means cost below that of every peer"
        measured = f"{ours.mean:.4f}; best peer {known[best]:.4f}, {PEER_TITLES[best]}"
        yield _verdict(one.title, promised, measured, ours.mean < known[best])


def _verdict(title: str, promised: str, measured: str, holds: bool) -> Row:
    return {"data": title, "promised": promised, "measured": measured, "verdict": "held" if holds else "did not hold"}


def by_peer(found: Findings, name: str, peer: str, what: str) -> Estimate:
    """What one peer reached on a set, measured here or elsewhere."""
    if peer == LSH:
        return estimate(measured_elsewhere(name, what))
    return found.estimate(what, kind="peer", set=name, peer=peer)


def measured_elsewhere(name: str, what: str) -> list[float]:
    """The better of both ways to center rows, run by run: figures of a library that is on no package index."""
    text = (files("coterie_studies.privacy") / "lsh_clustering.csv").read_text(encoding="utf-8")
    lines = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    rows = [line for line in lines if line["set"] == name]
    ways = {way: [row for row in rows if row["center"] == way] for way in ("box", "mean")}
    if not rows:
        return []
    best = min(ways, key=lambda way: mean(float(row["ratio"]) for row in ways[way]))
    return [float(row[what]) for row in ways[best] if row[what]]
