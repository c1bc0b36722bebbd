"""One life of a run: fresh sites over the ledgers they have, a journal where wanted, and what came of it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coterie.cli.ledgers import reconcile
from coterie.engines.inprocess import Fault, InProcess, Schedule, in_process
from coterie.errors import RunError
from coterie.estimators.fitting import fit_over
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.channel import Channel
from coterie.runtime.journal import Journal
from coterie.runtime.ledger import Exchange, Ledger
from coterie.runtime.run import Progress
from coterie.runtime.terms import Terms
from coterie.secure.certificates import Conclude
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from tests.faults.methods import Method
from tests.faults.wires import TABLES

DEADLINE = 30.0
GRACE = 60.0
"""Seconds beyond the deadline after which an exchange hangs."""
MOST = Terms(deadline=DEADLINE, quorum=0.6)
EVERY = Terms(deadline=DEADLINE, quorum=1.0)


class Hung(BaseException):
    """An exchange took much longer than its deadline."""


@contextmanager
def not_hanging(deadline: float) -> Iterator[Callable[[], None]]:
    """Raise where what is yielded is not called again long after the deadline."""

    def ring(signum: int, frame: Any) -> None:
        raise Hung(f"nothing happened for {deadline + GRACE:g} s")

    def wind(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE)

    before = signal.signal(signal.SIGALRM, ring)
    wind()
    try:
        yield wind
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Life:
    """What a run came to."""

    fitted: Any = None
    stop: RunError | None = None
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def exchanges(self) -> list[Exchange]:
        """All up to the result; what is signed of it afterwards changes nothing."""
        return [exchange for exchange in self.ledger.exchanges if exchange.asked != Conclude.kind]


@dataclass
class Setting:
    """A method in a folder of its own, which the sites' ledgers and the journal survive in."""

    method: Method
    folder: Path
    terms: Terms = MOST
    journaled: bool = False
    policy: Policy | None = None

    def channel(self, faults: Iterable[Fault] = (), **options: Any) -> InProcess:
        happening = list(faults)
        schedule = Schedule(happening, seed=3) if happening else None
        books = self.folder / "journal" / "sites"
        tables = self.method.tables()
        made = in_process(
            tables, policy=self.policy or self.method.policy, folder=books, schedule=schedule, seed=0, **options
        )
        TABLES.update({site: tables[name] for name, site in made.members.items()})
        return made

    def live(
        self,
        channel: InProcess | None = None,
        wire: Callable[[InProcess], Channel] = lambda channel: channel,
        *,
        resume: bool = False,
        watch: Callable[[Progress], None] | None = None,
        journal: type[Journal] = Journal,
    ) -> Life:
        """Run from the start, or from the journal, to the end or until the run stops itself."""
        life, columns = Life(), {name: table.columns for name, table in self.method.tables().items()}
        deadline = self.terms.deadline or DEADLINE
        with not_hanging(deadline) as wind, channel or self.channel() as opened:

            def look(progress: Progress) -> None:
                wind()
                life.ledger = progress.ledger
                if watch is not None:
                    watch(progress)

            try:
                life.fitted = fit_over(
                    wire(opened),
                    self.method.make(),
                    columns,
                    PreparationOptions(),
                    order=opened.analyst,
                    sums="masked" if self.method.is_masked else "plain",
                    journal=journal(self.folder / "journal", resume=resume) if self.journaled else None,
                    terms=self.terms,
                    watch=look,
                )
                life.ledger = life.fitted.ledger_
            except RunError as stop:
                life.stop = stop
        return life

    def check_books(self, life: Life) -> None:
        """The sites' books are whole and add up to the server's."""
        lines = [{"run": life.ledger.run, **msgspec.to_builtins(exchange)} for exchange in life.ledger.exchanges]
        if lines:
            reconcile(self.folder, lines)


class Computed:
    """How often each site computed an answer, by run, round and attempt."""

    def __init__(self, monkeypatch: Any) -> None:
        self.counts: Counter[tuple[str, str, bytes, int, int]] = Counter()
        for name in ("evaluate", "_answer"):
            monkeypatch.setattr(Site, name, self._counting(name, getattr(Site, name)))

    def _counting(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(site: Site, about: Any, *rest: Any) -> Any:
            found = original(site, about, *rest)
            if rest and isinstance(rest[0], Agree):  # a site says it again when it is brought up to date
                return found
            envelope = getattr(about, "envelope", about)
            self.counts[what, site.name, envelope.run, envelope.round, envelope.attempt] += 1
            return found

        return counted

    def check(self) -> None:
        twice = [key for key, times in self.counts.items() if times > 1]
        assert not twice, f"computed twice: {twice[:3]}"
        self.counts.clear()


def same(method: Method, one: Any, other: Any) -> None:
    """Bit for bit: also masked, since what is masked are whole numbers."""
    for a, b in zip(method.numbers(one), method.numbers(other), strict=True):
        np.testing.assert_array_equal(a, b)


def names_a_site(stop: RunError, sites: Iterable[str]) -> bool:
    """Whether a stop says which site was lost, and what became of it."""
    return any(name in str(stop) for name in sites)


def places(exchanges: list[Exchange], which: Iterable[str] = ("first", "middle", "last")) -> dict[int, str]:
    """Rounds at which every kind of question is asked: by round, the question's name and which time it is."""
    rounds: dict[str, list[int]] = {}
    for exchange in exchanges:
        rounds.setdefault(exchange.asked.split(".")[-1], []).append(exchange.round)
    found: dict[int, str] = {}
    for kind, at in rounds.items():
        chosen = {"first": at[0], "middle": at[len(at) // 2], "last": at[-1]}
        for one in which:
            found.setdefault(chosen[one], f"{kind} ({one})")
    return dict(sorted(found.items()))
