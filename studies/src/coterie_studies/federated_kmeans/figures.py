"""Tables and figures of the study of Triebe & Rajagopal (2019)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from coterie_studies.curves import Panel, Spot, draw_paths, draw_spots
from coterie_studies.study import Findings
from coterie_studies.tables import Row, estimate

__all__ = ["write_findings"]

METRICS = {"distance": "mean distance to own center", "davies_bouldin": "Davies-Bouldin index"}
KINDS = ("federated, as in the paper", "central, one start", "coterie's default")
LEVEL = "central, best of 10 starts"
X_NAMES = {"C": "C, share of sites sampled each round", "E": "E, epochs at a site", "beta": "β, rate at a site"}

NOTES = """
The paper's data: 50 sites, each 10 draws from one of five Gaussians on a line (means 1 to 5, deviation 0.2), drawn
anew for every seed, and so is the start, the same for the federated runs and the central one. alpha = (1, 0.5) is
rate 1 with momentum 0.5; clusters below 1 % of the sampled rows for 20 rounds move. Numbers are means ± half a 95 %
t-interval over seeds; the CSV has standard deviations as well (the paper's bars).

What was assumed, since the paper's text does not say or its captions are cut: figure 5 shows E = 1 (a) and E = 10
(b); figure 7 has C = 0.1 and figures 6 and 7 show seed 0; the central run of figures 1 to 5 has the same T and the
same reassignment; both measures are taken over all rows at the last centers, the Davies-Bouldin index as
scikit-learn has it.
"""


@dataclass(frozen=True)
class _Part:
    """One panel of a figure: what varies, what is fixed."""

    title: str
    varies: str
    fixed: dict[str, float]


FIGURES: dict[str, tuple[_Part, ...]] = {
    "1": (_Part("E = 1, β = 1", "C", {"E": 1, "beta": 1.0}),),
    "2": (
        _Part("(a) E = 10, β = 1", "C", {"E": 10, "beta": 1.0}),
        _Part("(b) E = 10, β = 0.1", "C", {"E": 10, "beta": 0.1}),
    ),
    "3": (
        _Part("(a) E = 5, β = 1", "C", {"E": 5, "beta": 1.0}),
        _Part("(b) E = 5, β = 0.2", "C", {"E": 5, "beta": 0.2}),
    ),
    "4": (
        _Part("(a) C = 0.1, β = 1", "E", {"C": 0.1, "beta": 1.0}),
        _Part("(b) C = 0.1, β = 0.1", "E", {"C": 0.1, "beta": 0.1}),
    ),
    "5": (
        _Part("(a) C = 0.1, E = 1", "beta", {"C": 0.1, "E": 1}),
        _Part("(b) C = 0.1, E = 10", "beta", {"C": 0.1, "E": 10}),
    ),
}
PROGRESS = {
    "6": {"6": "central k-means"},
    "7": {"7a": "(a) C = 0.1, E = 1, β = 1", "7b": "(b) C = 0.1, E = 10, β = 0.1"},
}


def write_findings(found: Findings) -> str:
    """Write all tables and figures; the summary."""
    baselines = found.table("baselines", _baselines(found))
    drawn = [number for number, parts in FIGURES.items() if _draw_figure(found, number, parts)]
    for number in PROGRESS:
        _draw_progress(found, number)
    text = [NOTES.strip(), "", "## Without and with coterie's default", "", baselines, _met(found), ""]
    text += ["## Algorithm 1, every setting", "", found.table("settings", _settings(found))]
    text += ["## Figures", ""]
    if len(drawn) < len(FIGURES):
        text += [f"Only in the full scope: figure {', '.join(n for n in FIGURES if n not in drawn)}.", ""]
    text += [f"![Figure {number}](figures/figure-{number}.png)\n" for number in [*drawn, *PROGRESS]]
    return "\n".join(text)


def _met(found: Findings) -> str:
    """How often our default is as good as the best of ten central starts."""
    words = []
    for way, data in (("default", "the paper's data"), ("larger", "50 rows a site")):
        ratios = found.values("ratio", way=way)
        good = sum(ratio <= 1.001 for ratio in ratios)
        words.append(f"on {data} in {good} of {len(ratios)} seeds")
    return f"coterie's default costs at most 0.1 % more than {LEVEL}: {words[0]}; {words[1]}."


def _baselines(found: Findings) -> list[Row]:
    names = {
        "default": "coterie's default",
        "best": LEVEL,
        "central": "central, one start (the paper's)",
        "larger": "coterie's default, 50 rows a site",
    }
    return [{"run": names[way], **_measured(found, way=way)} for way in names]


def _settings(found: Findings) -> list[Row]:
    rows: list[Row] = []
    for C, E, beta in product(*(_levels(found, name) for name in ("C", "E", "beta"))):
        rows.append({"C": C, "E": E, "beta": beta, **_measured(found, C=C, E=E, beta=beta)})
    return rows


def _measured(found: Findings, **labels: str | float) -> Row:
    row = {
        "distance": found.estimate("distance", **labels),
        "Davies-Bouldin": found.estimate("davies_bouldin", **labels),
        "cost ratio": found.estimate("ratio", **labels),
    }
    sent = {"values sent": "floats_up", "bytes up": "bytes_up", "rounds": "rounds"}
    return row | {head: found.estimate(name, **labels) for head, name in sent.items()}


def _levels(found: Findings, name: str) -> list[float]:
    """The values of one setting that were run."""
    return sorted({float(trial.labels[name]) for trial in found.trials if name in trial.labels})


def _draw_figure(found: Findings, number: str, parts: tuple[_Part, ...]) -> bool:
    """Draw one figure, unless its settings are not in this scope."""
    if not all(found.select(way="federated", **part.fixed) for part in parts):
        return False
    grid = [[_panel(found, part, metric) for part in parts] for metric in METRICS]
    draw_spots(found.figure(f"figure-{number}"), grid, KINDS, LEVEL)
    return True


def _panel(found: Findings, part: _Part, metric: str) -> Panel:
    spots = [
        _spot(f"{x:g}", found.values(metric, **part.fixed, **{part.varies: x}), 0)
        for x in _levels(found, part.varies)
    ]
    spots.append(_spot("central", found.values(metric, way="central"), 1))
    spots.append(_spot("default", found.values(metric, way="default"), 2))
    level = found.estimate(metric, way="best").mean
    return Panel(part.title, X_NAMES[part.varies], METRICS[metric], spots, level)


def _spot(label: str, values: list[float], kind: int) -> Spot:
    made = estimate(values)
    return Spot(label, values, made.mean, made.low, made.high, kind)


def _draw_progress(found: Findings, number: str) -> None:
    panels = {title: _places(found, name) for name, title in PROGRESS[number].items()}
    draw_paths(found.figure(f"figure-{number}"), panels, range(1, 6))


def _places(found: Findings, name: str) -> npt.NDArray[np.float64]:
    """Centers by round, sorted at the start so that colours run from low to high."""
    values = found.select(progress=name)[0].values
    k = 1 + max(int(key.split(".")[1]) for key in values)
    places = np.array([values[key] for key in sorted(values)]).reshape(-1, k)
    return places[:, np.argsort(places[0])]
