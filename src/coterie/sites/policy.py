"""The rules a site sets; a server cannot talk them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Content, Request, message_fields, reply_type
from coterie.protocols.methods import belongs

__all__ = ["Policy"]

_LEVEL: dict[Content, int] = {"nothing": 0, "schema": 0, "sums": 1, "averages": 1, "rows": 2}
_ALLOWED = {"none": 0, "averages": 1, "rows": 2}


@dataclass(frozen=True)
class Policy:
    """What a site lets happen with its rows.

    ``single_answers`` says what the server may see of one site by itself: ``"none"`` (nothing computed from
    rows), ``"averages"`` (sums and averages) or ``"rows"`` (anything, rows included).
    """

    methods: frozenset[str] | None = None
    """The methods allowed; None is all."""
    single_answers: Literal["none", "averages", "rows"] = "none"
    min_count: int = 5
    """The fewest rows any average sent by itself may stand for."""
    min_roster: int = 3
    """The fewest sites a masked sum may be over."""
    peers: Mapping[str, bytes] | None = None
    """Other sites' public keys, pinned; None trusts those the server introduces."""
    max_questions: int | None = None
    """How many questions one run may ask."""
    min_rows: int = 0
    """How many rows the site must hold to take part."""

    @classmethod
    def simulation(cls) -> Policy:
        """One owner playing all sites: everything is allowed."""
        return cls(single_answers="rows", min_count=1, min_roster=1)

    def allows(self, method: str) -> bool:
        """Whether the method may be run at all."""
        return self.methods is None or method in self.methods

    def objection(self, method: str, request: type[Request[Any]], *, is_masked: bool = False) -> Refusal | None:
        """Why this question may not be answered, or None.

        ``is_masked`` is what the site itself does to the answer, not what the question promises.
        """
        if not self.allows(method):
            return Refusal.METHOD_FORBIDDEN
        if not belongs(request, method):
            return Refusal.UNKNOWN_QUESTION
        reply = reply_type(request)
        allowed = _ALLOWED[self.single_answers]
        if not is_masked and _LEVEL[reply.content] > allowed:
            return Refusal.SINGLE_ANSWER_FORBIDDEN
        if allowed < _ALLOWED["rows"] and has_row_axis(reply):
            return Refusal.ROWS_FORBIDDEN
        return None


def has_row_axis(reply: type[object]) -> bool:
    """Whether an answer holds a number for every row: an axis declared ``rows``."""
    return any("rows" in item.array.axes for item in message_fields(reply) if item.array)
