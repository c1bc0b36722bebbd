"""What is known of each number of clusters, as a file and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from coterie.estimators.choosing import rows_of
from coterie.estimators.exactness import CostIs
from coterie.methods.shared.choosing import STABLE, Choice, Support, verdict
from coterie.methods.shared.prepared import Preparation
from coterie.report.labels import COST_WORDS
from coterie.report.pictures import COLOURS

CHOICE, CHOICE_PICTURE = "choose-k.json", "choose-k.png"


def choice_facts(choice: Choice) -> dict[str, Any]:
    """What files say of numbers of clusters."""
    return {
        "recommended": choice.recommended,
        "support": str(choice.support),
        "verdict": verdict(choice),
        "numbers": list(rows_of(choice)),
    }


def choice_words(min_group: int, cost_is: CostIs) -> str:
    """How exact the numbers are, over groups; nothing to say over rows, where they are."""
    if not min_group:
        return ""
    return (
        f" Rows stand in groups of at least {min_group}: silhouettes are those of the groups' means, larger than of "
        f"single rows, and costs of rows are {COST_WORDS[cost_is]}what is shown."
    )


def write_choice(folder: Path, choice: Choice, preparation: Preparation | None) -> None:
    """Write what is known of each number of clusters, with the centers of candidates among rows, and draw it."""
    facts = choice_facts(choice)
    for of in facts["numbers"] if choice.support is not Support.NOT_JUDGED else ():
        centers = choice.centers_of(of["k"])
        of["centers"] = (centers if preparation is None else preparation.undo(centers)).tolist()
    (folder / CHOICE).write_text(json.dumps(facts, indent=2) + "\n")
    draw_choice(folder / CHOICE_PICTURE, choice)


def draw_choice(path: Path, choice: Choice) -> None:
    """Silhouette, gap and stability over the number of clusters; a recommended number is marked."""
    blue, red = COLOURS[:2]
    with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained", dpi=130)
        panels = figure.subplots(1, 3, sharex=True)
        panels[0].plot(choice.ks, choice.silhouettes, "o-", c=blue)
        panels[1].errorbar(choice.ks, choice.gaps, choice.gap_errors, fmt="o-", c=blue, capsize=2)
        panels[1].axhline(0, c="#999999", lw=0.8)
        panels[2].plot(choice.ks, choice.stabilities, "o-", c=blue)
        panels[2].axhline(STABLE, c="#999999", lw=0.8)
        for panel, title in zip(panels, ("silhouette", "gap over one cluster", "stability"), strict=True):
            panel.set_title(title)
            panel.set_xlabel("number of clusters")
            panel.xaxis.get_major_locator().set_params(integer=True)
            if choice.recommended is not None:
                panel.axvline(choice.recommended, c=red, lw=0.8, ls="--")
        figure.savefig(path)
