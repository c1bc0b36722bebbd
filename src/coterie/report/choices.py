"""What is known of each number of clusters, as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coterie.estimators.choosing import rows_of
from coterie.estimators.exactness import CostIs
from coterie.methods.shared.choosing import Choice, Support, verdict
from coterie.methods.shared.prepared import Preparation
from coterie.report.labels import COST_WORDS

CHOICE = "choose-k.json"


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
    """Write what is known of each number of clusters, with the centers of candidates among rows."""
    facts = choice_facts(choice)
    for of in facts["numbers"] if choice.support is not Support.NOT_JUDGED else ():
        centers = choice.centers_of(of["k"])
        of["centers"] = (centers if preparation is None else preparation.undo(centers)).tolist()
    (folder / CHOICE).write_text(json.dumps(facts, indent=2) + "\n")
