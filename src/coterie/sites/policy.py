"""The rules a site sets; a server cannot talk them down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.errors import InputError
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Content, Request, message_fields, reply_type
from coterie.protocols.methods import belongs

__all__ = ["MAX_MIN_COUNT", "Policy"]

_LEVEL: dict[Content, int] = {"nothing": 0, "schema": 0, "sums": 1, "grams": 1, "averages": 1, "rows": 2}
_ALLOWED = {"none": 0, "averages": 1, "rows": 2}


MAX_MIN_COUNT = 32
MIN_KEY_BYTES = 16


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
    """tau: the fewest rows behind anything released, and behind the difference of two releases; 1 is no guard."""
    min_roster: int = 3
    """The fewest sites a masked sum may be over."""
    rosters: Literal["fixed", "shrinking", "any"] = "shrinking"
    """Which rosters one run may sum this site up with: always the same one; fewer sites as some drop out; any."""
    gram_rows: int = 8
    """How many rows there must be for each row of a matrix of products (a Gram) released in a run; 0 is no guard."""
    gram_rows_of: Literal["own", "all"] = "all"
    """Whose rows count for that: this site's alone, or all sites' in a masked sum, as the server states them."""
    peers: Mapping[str, bytes] | None = None
    """Other sites' public keys, pinned; None trusts those the server introduces."""
    max_questions: int | None = None
    """How many questions one run may ask, refused ones included; a masked sum takes two."""
    max_runs: int | None = None
    """How many runs this site takes part in, over the life of its ledger."""
    min_rows: int = 0
    """How many rows the site must hold to take part."""
    alignment_key: bytes | None = field(default=None, repr=False)
    """A secret the sites share, and the server does not: with it the keys of rows become tags that match."""

    def __post_init__(self) -> None:
        if self.min_count > MAX_MIN_COUNT:
            raise InputError(
                f"min_count={self.min_count}; a site keeps small sketches of its sets of rows, good for at most "
                f"{MAX_MIN_COUNT}."
            )
        if self.alignment_key is not None and len(self.alignment_key) < MIN_KEY_BYTES:
            raise InputError(
                f"alignment_key has {len(self.alignment_key)} bytes; at least {MIN_KEY_BYTES} random ones are needed."
            )

    @classmethod
    def simulation(cls) -> Policy:
        """One owner playing all sites: everything is allowed."""
        return cls(
            single_answers="rows", min_count=1, min_roster=1, rosters="any", gram_rows=0, alignment_key=bytes(32)
        )

    def allows(self, method: str) -> bool:
        """Whether the method may be run at all."""
        return self.methods is None or method in self.methods

    def lets_join(self, roster: Collection[str], earlier: Sequence[Collection[str]]) -> bool:
        """Whether this site may be summed up with these sites, after those of the run so far."""
        if len(roster) < self.min_roster:
            return False
        if self.rosters == "any" or not earlier:
            return True
        return set(roster) == set(earlier[0]) if self.rosters == "fixed" else set(roster) <= set(earlier[-1])

    def lets_release_grams(self, size: float, own_rows: int, all_rows: float | None) -> bool:
        """Whether so many rows of products may have been released in a run."""
        if self.single_answers == "rows":  # whoever shows rows need not count what is made of them
            return True
        rows = own_rows if self.gram_rows_of == "own" or all_rows is None else all_rows
        return size * self.gram_rows <= rows

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
        if allowed < _ALLOWED["rows"] and (reply.content == "rows" or has_row_axis(reply)):  # masked or not
            return Refusal.ROWS_FORBIDDEN
        return None


def has_row_axis(reply: type[object]) -> bool:
    """Whether an answer holds a number for every row: an axis declared ``rows``."""
    return any("rows" in item.array.axes for item in message_fields(reply) if item.array)
