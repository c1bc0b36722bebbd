"""What a site did with a question, as values; sentences about it are made from them here and read nowhere."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from coterie.messages.refusals import Refusal


class OutcomeKind(StrEnum):
    """What a site did, or why it was not asked. The values are those of ledgers, journals and events."""

    sentence: str
    """What follows a site's name; may be changed without regard to files."""

    def __new__(cls, value: str, sentence: str = "") -> OutcomeKind:
        """A value and its sentence."""
        kind = str.__new__(cls, value)
        kind._value_, kind.sentence = value, sentence
        return kind

    ANSWERED = "answered", "answered"
    RECALLED = "answered after being brought up to date", "answered after being brought up to date"
    UNASKED = "answered without being asked", "answered without being asked"
    REFUSED = "refused", "refused"
    INVALID = "invalid", "sent an answer that does not fit the question"
    LATE = "late", "was late"
    UNREACHABLE = "unreachable", "could not be reached"
    TURNED_AWAY = "turned away", "was turned away by the engine"
    DROPPED = "dropped", "dropped out of a masked sum"
    PAUSED = "paused", "sits out"
    LEFT = "left", "takes no part any more"
    EXCLUDED = (
        "excluded",
        "takes no part any more: it was missing from a masked sum, and sites let the roster of those shrink only",
    )
    UNKNOWN = "unknown", "is not a site of this run"
    NOT_ASKED = "not asked yet", "not asked yet"
    CLOSED = "closed", "has no table to answer from; its own log says why"
    OTHER_VERSION = "other version", "runs coterie"


GOOD = frozenset({OutcomeKind.ANSWERED, OutcomeKind.RECALLED})
"""Outcomes of a site whose answer is used."""
HEARD = GOOD | {OutcomeKind.UNASKED}
"""Outcomes of a site that answered, whether asked or not."""
_MAY_RETURN = (
    OutcomeKind.LATE,
    OutcomeKind.UNREACHABLE,
    OutcomeKind.TURNED_AWAY,
    OutcomeKind.PAUSED,
    OutcomeKind.EXCLUDED,
)


class SiteOutcome(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one site did; ``str`` continues a sentence that begins with the site's name."""

    kind: OutcomeKind
    refusal: Refusal | None = None
    """With what it refused, now or when it left."""
    detail: str = ""
    """What a sentence says besides; nothing is decided by it."""

    @property
    def is_good(self) -> bool:
        """Whether the site's answer is used."""
        return self.kind in GOOD

    @property
    def is_heard(self) -> bool:
        """Whether an answer came, asked for or not."""
        return self.kind in HEARD

    @property
    def may_return(self) -> bool:
        """Whether the site may take part again in a later job of the run, as opposed to one that refused."""
        return self.kind in _MAY_RETURN

    @property
    def is_final(self) -> bool:
        """Whether asking this site again in this run is pointless."""
        return self.refusal is not None and self.refusal.declines == "run"

    @property
    def has_declined(self) -> bool:
        """Whether the site declined this question only, and stays in the run for others."""
        return self.refusal is not None and self.refusal.declines == "question"

    @property
    def may_resend(self) -> bool:
        """Whether the same question sent again may fare better."""
        is_passing = self.kind in (OutcomeKind.UNREACHABLE, OutcomeKind.INVALID)
        return is_passing or self.refusal in (Refusal.MALFORMED, Refusal.FORGOT)

    @property
    def reason(self) -> str:
        """The name of the code of a refusal, or what a sentence says besides: what files say beside the kind."""
        return self.detail if self.refusal is None else self.refusal.name

    @property
    def sentence(self) -> str:
        """What happened, by itself."""
        if self.kind is OutcomeKind.REFUSED and self.refusal is not None:
            return self.refusal.sentence
        if self.kind is OutcomeKind.INVALID and self.detail:
            return self.detail
        said = self.kind.sentence
        if self.kind is OutcomeKind.LATE and self.detail:
            return f"{said} ({self.detail})"
        if self.kind is OutcomeKind.LEFT and self.refusal is not None:
            return f"{said}: {self.refusal.sentence}"
        return f"{said} {self.detail}" if self.detail else said

    def __str__(self) -> str:
        has_failed = self.kind in (OutcomeKind.REFUSED, OutcomeKind.INVALID)
        return f"failed: {self.sentence}" if has_failed else self.sentence


def outcome_sentence(kind: str, reason: str = "") -> str:
    """The sentence for what a file says; what an older file says in words of its own stays as it is."""
    try:
        known = OutcomeKind(kind)
    except ValueError:
        return kind
    refusal = Refusal.__members__.get(reason)
    return SiteOutcome(known, refusal, "" if refusal else reason).sentence
