"""The codes with which a site declines. A code is all that leaves; the sentence for it is known at both ends."""

from __future__ import annotations

from enum import IntEnum


class Refusal(IntEnum):
    """Why a site did not answer. The site's own log has the details, which never travel."""

    MALFORMED = 1
    UNKNOWN_QUESTION = 2
    FOREIGN = 3
    STALE = 4
    CONFLICT = 5
    FORGOT = 6
    METHOD_FORBIDDEN = 7
    SINGLE_ANSWER_FORBIDDEN = 8
    ROWS_FORBIDDEN = 9
    TOO_MANY_QUESTIONS = 10
    TOO_LARGE = 11
    TOO_FEW_ROWS = 12
    MISSING_VALUES = 13
    OUT_OF_RANGE = 14
    INVALID_ANSWER = 15
    FAILED = 16
    ROSTER_FORBIDDEN = 18
    UNMASKING_FORBIDDEN = 19
    UNALIGNED = 20
    OTHER_ROWS = 21
    ROWS_PROTECTED = 23

    @property
    def sentence(self) -> str:
        """What the code means, in words fit for anyone."""
        return _SENTENCES[self]

    @property
    def is_final(self) -> bool:
        """Whether asking the same site again in this run is pointless."""
        return self in _FINAL

    @property
    def is_about_the_question(self) -> bool:
        """Whether the site declines this one question and stays in the run for others."""
        return self in _ABOUT_THE_QUESTION


_SENTENCES = {
    Refusal.MALFORMED: "the question arrived damaged",
    Refusal.UNKNOWN_QUESTION: "the site does not know this question (is its coterie older?)",
    Refusal.FOREIGN: "the question was addressed to another site",
    Refusal.STALE: "the question belongs to a round that is over",
    Refusal.CONFLICT: "another question was already answered under the same round and attempt",
    Refusal.FORGOT: "the site has to be brought up to date first",
    Refusal.METHOD_FORBIDDEN: "the site's policy does not allow this method",
    Refusal.SINGLE_ANSWER_FORBIDDEN: "the site's policy does not let the server see this answer by itself",
    Refusal.ROWS_FORBIDDEN: "the site's policy does not allow answers with a number for every row",
    Refusal.TOO_MANY_QUESTIONS: "the site's policy allows no more questions in this run, or no more runs",
    Refusal.TOO_LARGE: "the answer would be larger than a site ever sends",
    Refusal.TOO_FEW_ROWS: "the site holds too few rows to take part",
    Refusal.MISSING_VALUES: "the site's table holds missing values that nobody said how to treat",
    Refusal.OUT_OF_RANGE: "the site's table holds values outside the declared range",
    Refusal.INVALID_ANSWER: "the site's own check stopped an answer that was not finite or not within bounds",
    Refusal.ROSTER_FORBIDDEN: "the site's policy does not let it be summed up with these sites",
    Refusal.UNMASKING_FORBIDDEN: "the site does not unmask this sum",
    Refusal.UNALIGNED: "the site has no keys or no alignment_key to match rows by, or not the rows asked for",
    Refusal.OTHER_ROWS: "the site's rows are not those it began this run with",
    Refusal.ROWS_PROTECTED: "the method needs rows as such, and the site's policy protects them by groups",
    Refusal.FAILED: "the site's computation failed; its log says why",
}

_FINAL = frozenset(
    {
        Refusal.UNKNOWN_QUESTION,
        Refusal.METHOD_FORBIDDEN,
        Refusal.TOO_MANY_QUESTIONS,
        Refusal.TOO_FEW_ROWS,
        Refusal.MISSING_VALUES,
        Refusal.OUT_OF_RANGE,
        Refusal.ROSTER_FORBIDDEN,
        Refusal.UNALIGNED,
        Refusal.OTHER_ROWS,
        Refusal.ROWS_PROTECTED,
    }
)

_ABOUT_THE_QUESTION = frozenset({Refusal.SINGLE_ANSWER_FORBIDDEN, Refusal.ROWS_FORBIDDEN, Refusal.TOO_LARGE})
