"""The codes of refusals. Only a code leaves the site; both ends know the sentence for it."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class Refusal(IntEnum):
    """Why a site refused. The details stay in the site's own log."""

    sentence: str
    """What the code means; it contains nothing about the site's rows."""
    declines: Literal["", "question", "run"]
    """What the site refuses for good: this question only, every further question of the run, or neither."""

    def __new__(cls, code: int, sentence: str = "", declines: Literal["", "question", "run"] = "") -> Refusal:
        """A code, its sentence, and what the site declines."""
        refusal = int.__new__(cls, code)
        refusal._value_, refusal.sentence, refusal.declines = code, sentence, declines
        return refusal

    MALFORMED = 1, "the question arrived damaged"
    UNKNOWN_QUESTION = 2, "the site's version of coterie does not know this question", "run"
    FOREIGN = 3, "the question was addressed to another site"
    STALE = 4, "the question belongs to a round that is over"
    CONFLICT = 5, "another question was already answered in the same round and attempt"
    FORGOT = 6, "the site must be brought up to date first"
    METHOD_FORBIDDEN = 7, "the site's policy does not allow this method", "run"
    SINGLE_ANSWER_FORBIDDEN = 8, "the site's policy does not allow this per-site result", "question"
    ROWS_FORBIDDEN = 9, "the site's policy does not allow answers with a value for every row", "question"
    TOO_MANY_QUESTIONS = 10, "the site's policy allows no more questions in this run, or no more runs", "run"
    TOO_LARGE = 11, "the answer would be too large to send", "question"
    TOO_FEW_ROWS = 12, "the site holds too few rows to take part", "run"
    MISSING_VALUES = 13, "the site's table holds missing values, and the run does not say how to treat them", "run"
    OUT_OF_RANGE = 14, "the site's table holds values outside the declared range", "run"
    INVALID_ANSWER = 15, "the site's own check stopped an answer that was not finite or out of bounds"
    FAILED = 16, "the site's computation failed; its log says why"
    ROSTER_FORBIDDEN = 18, "the site's policy does not allow a sum over these sites", "run"
    UNMASKING_FORBIDDEN = 19, "the site refused to unmask this sum"
    UNALIGNED = 20, "the site has no keys or no alignment_key to match rows by, or not the rows asked for", "run"
    OTHER_ROWS = 21, "the site's rows have changed since this run began", "run"
    UNTRUSTED = 22, "the site does not trust a key or signature it was shown, or has no certificate of its own", "run"
    ROWS_PROTECTED = 23, "the method needs single rows, and the site's policy protects them by groups", "run"
    NOT_ORDERED = 24, "the question is not what was ordered, or a sum is not the sites' own", "run"
    OTHER_VERSIONS = 25, "the site has other versions of coterie or its libraries than the order names", "run"
    CHOICE_FORBIDDEN = 26, "the site's policy does not let an order choose points, ranges or parameters", "run"
    WAITING = 27, "waiting for the approval of a site"
    DECLINED = 28, "declined by a site", "run"
    WAITING_HERE = 29, "waiting for the approval of the site's data officer"
    DECLINED_HERE = 30, "declined by the site's data officer", "run"
    LEDGER_BROKEN = 31, "the site's ledger is not as others remember it; its data officer must acknowledge it", "run"
    SHARE_TOO_LARGE = (
        33,
        "the site holds a larger share of all rows than the run lets one site hold (max_share)",
        "run",
    )
    NOT_PRIVATE = (
        34,
        "the site answers only differentially private orders: order with an epsilon and the ranges of all columns",
        "run",
    )
    BUDGET_SPENT = (
        35,
        "less is left of the site's privacy budget than the order takes: order with a smaller epsilon, or ask its "
        "data officer",
        "run",
    )
    NO_BUDGET = (
        37,
        "the site's policy has no budget for differentially private orders: ask its data officer, or order without "
        "privacy",
        "run",
    )
    NO_UNIT = 36, "the site's table has no column that says whose row it is, of the name that the order gives", "run"
    IDENTIFIES = 38, "the order describes clusters by a column in which every row has a number of its own", "run"
    IN_FULL = 32, "the site asks for the whole question, which its own arithmetic gives with other last digits"

    @property
    def is_waiting(self) -> bool:
        """Whether the order may be accepted later."""
        return self in (Refusal.WAITING, Refusal.WAITING_HERE)

    @property
    def is_declined(self) -> bool:
        """Whether a data officer decided against the order."""
        return self in (Refusal.DECLINED, Refusal.DECLINED_HERE)

    @property
    def is_anonymous(self) -> bool:
        """Whether an analyst is not told which site it was."""
        return self in (Refusal.WAITING, Refusal.DECLINED)
