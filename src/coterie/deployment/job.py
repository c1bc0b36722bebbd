"""What a job carries over a federation: an analyst's signed order, and what is the server's business."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from coterie.errors import CoterieError, InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.registry import estimator_of
from coterie.methods.method import ChoiceSettings, ClusterSettings
from coterie.methods.order import Order, SignedOrder
from coterie.runtime.terms import Terms

EVENTS, STOP = "coterie.events", "coterie.stop"
"""What an analyst may ask a job that is running: what happened, and to end."""
OUTCOME, EVENT_LINES = "outcome.json", "event-lines.json"
"""What a job leaves beside the result: how it ended, and all of its events."""

MOST_BYTES = 24 << 20
"""Of a job: the order in it is text."""
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
    WAITING = "waiting"
    """A site's data officer has not decided about the order yet; the run can be resumed."""
    DECLINED = "declined"
    """A site's data officer declined the order."""
    ENDED = "ended"
    """The job was ended from outside; its run goes on from the journal."""
    LOST = "lost"
    """The job left no outcome behind."""


class RemoteJob(msgspec.Struct, forbid_unknown_fields=True):
    """A run over sites: what is ordered, how sums are taken, and when to give up."""

    order: SignedOrder
    seed: int = 0
    """What random choices are drawn from where the sites do not draw it together."""
    sums: Literal["masked", "plain"] = "masked"
    quorum: float = 1.0
    deadline: float = 60.0
    settings: dict[str, Any] = {}
    """What the analyst said, for the result file."""

    def read(self) -> Order:
        """What is ordered; the sites check who signed it."""
        return self.order.read()

    def estimator(self) -> FederatedEstimator:
        return estimator_of(self.read(), self.seed)

    def terms(self) -> Terms:
        """When to wait, ask again and give up."""
        return Terms(deadline=self.deadline, quorum=self.quorum)

    def check(self) -> None:
        """Raise what is wrong with it, before anyone is asked."""
        order = self.read()
        for name, value in {**order.parameters, "random_state": self.seed}.items():
            if isinstance(value, int | float) and abs(value) > _LARGEST:
                raise InputError(
                    f"{name}={max(-_HUGE, min(value, _HUGE)):.3g} is more than anything is counted to here (2**53)."
                )
        if self.deadline > _LONGEST:
            raise InputError(f"deadline={self.deadline:g} s is too long; a day ({_LONGEST:g} s) is the longest.")
        if not issubclass(order.kind, ClusterSettings | ChoiceSettings):
            raise InputError(f"{order.settings} finds components, not clusters.")
        estimator = self.estimator()
        self.terms()
        estimator.check_options(order.options())
        if estimator.splits_columns:
            estimator.check(0)
            return
        if not order.columns:
            raise InputError(
                f"{order.method} needs the names of the columns, in order: columns = ['age', ...] in the job file. "
                "Sites are asked whether they hold these; what else they hold they keep to themselves."
            )
        estimator.check(len(order.columns))


def read_job(raw: Any) -> RemoteJob:
    """A job from plain values; anything else is refused."""
    try:
        n_bytes = len(msgspec.json.encode(raw))
        job = msgspec.convert(raw, RemoteJob)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InputError(f"this is no job that coterie knows ({problem}).") from None
    if n_bytes > MOST_BYTES:
        raise InputError(f"the job has {n_bytes:,} bytes; the most that is read is {MOST_BYTES:,}.")
    try:
        job.check()
    except InputError:
        raise
    except (CoterieError, TypeError, ValueError) as problem:
        raise InputError(f"the order of the job cannot be carried out ({problem}).") from None
    return job
