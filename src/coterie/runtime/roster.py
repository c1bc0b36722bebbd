"""Who takes part, who sits out after a fault, and who is let in again."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from coterie.runtime.outcomes import OutcomeKind, SiteOutcome

LONGEST_PAUSE = 16


class Standing(msgspec.Struct, array_like=True):
    """What is known of one site's reliability."""

    misses: int = 0
    """Rounds missed in a row."""
    until: int = 0
    """The first round in which it is asked again."""
    out: SiteOutcome | None = None
    """Why it is asked no more in this run; None while it is."""


class Roster:
    """The sites of a run, in the order in which their answers are summed.

    A site that misses a round sits out the next one; each further miss in a row doubles the pause, up to 16
    rounds, and one answer wipes the slate. A site that refuses for good is not asked again.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.standings: dict[str, Standing] = {name: Standing() for name in sorted(names)}

    def admit(self, names: Iterable[str]) -> None:
        """Let sites in that were not there before, behind those that were."""
        for name in names:
            self.standings.setdefault(name, Standing())

    @property
    def names(self) -> tuple[str, ...]:
        """Every site of the run, whatever its standing."""
        return tuple(self.standings)

    def choose(self, wanted: Collection[str], round: int, needed: int) -> list[str]:
        """Those of ``wanted`` to be asked now; without a quorum among the ready, also those who would sit out."""
        there = [name for name, s in self.standings.items() if not s.out and name in wanted]
        ready = [name for name in there if self.standings[name].until <= round]
        return there if len(ready) < needed else ready

    def judge(self, name: str, outcome: SiteOutcome, round: int) -> None:
        """Change a site's standing by what it did in this round."""
        standing = self.standings[name]
        if outcome.is_good or outcome.has_declined:
            standing.misses = 0
        elif outcome.is_final:
            standing.out = SiteOutcome(OutcomeKind.LEFT, outcome.refusal)
        else:
            standing.misses += 1
            standing.until = round + 1 + min(LONGEST_PAUSE, 2 ** (standing.misses - 1))

    def keep(self, names: Collection[str]) -> None:
        """Nobody but these was ever part of the run."""
        self.standings = {name: standing for name, standing in self.standings.items() if name in names}

    def shrink(self, names: Collection[str]) -> None:
        """All but these take no part any more: sites let the roster of masked sums shrink only."""
        for name, standing in self.standings.items():
            if name not in names and standing.out is None:
                standing.out = SiteOutcome(OutcomeKind.EXCLUDED)

    def absent(self, round: int) -> tuple[str, ...]:
        """The sites that are not asked in this round, whoever is wanted."""
        return tuple(n for n, s in self.standings.items() if s.out or s.until > round)

    def why_not(self, name: str) -> SiteOutcome:
        """Why a site is not asked in this round."""
        standing = self.standings.get(name)
        if standing is None:
            return SiteOutcome(OutcomeKind.UNKNOWN)
        pause = f"until round {standing.until} after {standing.misses} missed in a row"
        return standing.out or SiteOutcome(OutcomeKind.PAUSED, detail=pause)
