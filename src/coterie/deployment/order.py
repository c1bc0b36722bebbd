"""What an analyst orders of a federation: plain values that travel with a job, checked where they arrive."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Literal

import msgspec

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.registry import make_estimator
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.terms import Terms

EVENTS, STOP = "coterie.events", "coterie.stop"
"""What an analyst may ask a job that is running: what happened, and to end."""
OUTCOME, EVENT_LINES = "outcome.json", "event-lines.json"
"""What a job leaves beside the result: how it ended, and all of its events."""

_RUN = re.compile("[0-9a-f]{32}")
MOST_BYTES = 16 << 20
"""Of an order: the names of a million columns."""
_LARGEST = 2**53
_HUGE = 1e300
_LONGEST = 24 * 3600.0


class JobStatus(StrEnum):
    """How a job ended."""

    DONE = "done"
    STOPPED = "stopped"
    """The run could not go on: sites dropped out, or refused."""
    REFUSED = "refused"
    """The order cannot be carried out."""
    ENDED = "ended"
    """The job was ended from outside; its run goes on from the journal."""
    LOST = "lost"
    """The job left no outcome behind."""


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """A run over sites: which method, with what, over which columns, and when to give up."""

    run: str
    """Names the run over all its lives: its journal at the server is found by it."""
    method: str
    parameters: dict[str, Any]
    columns: list[str] = []
    """The columns sites are asked for, in order; none where each site has its own."""
    scale: Literal["none", "standard", "minmax"] = "none"
    missing: Literal["refuse", "mean", "drop"] = "refuse"
    ranges: tuple[list[float], list[float]] | None = None
    max_share: float | None = None
    halves: bool = False
    sums: Literal["masked", "plain"] = "masked"
    quorum: float = 1.0
    deadline: float = 60.0
    settings: dict[str, Any] = {}
    """What the analyst said, for the result file."""

    def estimator(self) -> FederatedEstimator:
        return make_estimator(self.method, self.parameters)

    def options(self) -> PreparationOptions:
        """How rows are prepared, and what limits a site that lies."""
        return PreparationOptions(self.scale, self.missing, self.ranges, self.max_share, self.halves)

    def terms(self) -> Terms:
        """When to wait, ask again and give up."""
        return Terms(deadline=self.deadline, quorum=self.quorum)

    def check(self) -> None:
        """Raise what is wrong with it, before anyone is asked."""
        if not _RUN.fullmatch(self.run):
            raise InputError("a run is named by 32 hex digits.")
        for name, value in self.parameters.items():
            if isinstance(value, int | float) and abs(value) > _LARGEST:
                raise InputError(
                    f"{name}={max(-_HUGE, min(value, _HUGE)):.3g} is more than anything is counted to here (2**53)."
                )
        if self.deadline > _LONGEST:
            raise InputError(f"deadline={self.deadline:g} s is too long; a day ({_LONGEST:g} s) is the longest.")
        estimator = self.estimator()
        self.terms()
        estimator.check_options(self.options())
        if estimator.splits_columns:
            estimator.check(0)
            return
        if not self.columns:
            raise InputError(
                f"{self.method} needs the names of the columns, in order: columns = ['age', ...] in the job file. "
                "Sites are asked whether they hold these; what else they hold they keep to themselves."
            )
        estimator.check(len(self.columns))


def read_order(raw: Any) -> Order:
    """An order from plain values; anything else is refused."""
    try:
        n_bytes = len(msgspec.json.encode(raw))
        order = msgspec.convert(raw, Order)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InputError(f"this is no order that coterie knows ({problem}).") from None
    if n_bytes > MOST_BYTES:
        raise InputError(f"the order has {n_bytes:,} bytes; the most that is read is {MOST_BYTES:,}.")
    order.check()
    return order
