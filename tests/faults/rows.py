"""One row of the table of faults: a fault, a method, and what came of it at every place it was tried."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from coterie.runtime.terms import Terms
from tests.faults.lives import MOST, Computed, Life, Setting, places
from tests.faults.methods import Method

Verdict = Literal["survived", "stopped"]
Cell = Callable[[Setting, int], Verdict]

_whole: dict[str, Life] = {}


def whole_run(method: Method, folder: Path) -> Life:
    """The run to which nothing happens; once a process."""
    if method.title not in _whole:
        life = Setting(method, folder / "whole").live()
        assert life.fitted is not None
        _whole[method.title] = life
    return _whole[method.title]


class Row:
    """Tries a fault at many places and keeps count."""

    def __init__(self, folder: Path, computed: Computed, record: Callable[[str, object], None]) -> None:
        self.folder, self._computed, self._record = folder, computed, record

    def fill(
        self,
        fault: str,
        method: Method,
        cell: Cell,
        *,
        share: tuple[int, int] = (0, 1),
        which: Iterable[str] = ("first", "middle", "last"),
        terms: Terms = MOST,
        journaled: bool = False,
    ) -> None:
        """Try the fault at every kind of question (``share``: every n-th from one on), and record it."""
        exchanges = whole_run(method, self.folder).exchanges
        self._computed.check()
        kinds = list(places(exchanges, which).items())
        at = dict(kinds[share[0] % len(kinds) :: share[1]])
        counts = dict.fromkeys(("survived", "stopped"), 0)
        wrong = []
        for number, name in at.items():
            folder = self.folder / f"{number}"
            try:
                counts[cell(Setting(method, folder, terms, journaled), number)] += 1
                self._computed.check()
            except Exception as problem:  # every place is tried, and all that went wrong is told at once
                wrong.append(f"{name}, round {number}: {type(problem).__name__}: {problem}"[:600])
                self._computed.counts.clear()
            shutil.rmtree(folder, ignore_errors=True)
        self._record("fault", [fault, method.title, len(at), counts["survived"], counts["stopped"]])
        assert not wrong, f"{fault}, {method.title}: {len(wrong)} of {len(at)} places\n" + "\n".join(wrong)
        assert at
        assert len(at) == sum(counts.values())
