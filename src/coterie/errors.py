"""What can go wrong, as one tree.

::

    CoterieError
    ├── InputError (ValueError)      a parameter or a file that cannot be used
    │   ├── ColumnsDiffer            sites do not hold the same columns
    │   ├── MissingValues            a table holds missing values, and how to treat them is not said
    │   ├── OutOfRange               a table holds values, or more rows, than was declared
    │   ├── ShareTooLarge            a table holds more of all sites' rows than the order lets one site hold
    │   ├── Unaligned                rows of several sites that cannot be matched
    │   └── UnknownParameter (TypeError)
    ├── MalformedMessage             bytes that are no message of ours
    ├── BadAnswer                    an answer that does not fit its question
    ├── NotOrdered                   a question that the ordered method does not ask
    ├── QuestionDiffers              a question that a site's own arithmetic gives with other last digits
    ├── Untrusted                    a key or signature that the federation's authority does not vouch for
    ├── RunError
    │   ├── QuorumLost               too few sites answered; a protocol may catch it
    │   └── RosterChanged            a question that needs every site lost one; a protocol may catch it
    ├── JournalMismatch              a journal that belongs to another run, or is damaged
    └── LedgerBroken                 a ledger line was changed, dropped or added
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CoterieError(Exception):
    """The root of everything coterie raises on purpose."""


class InputError(CoterieError, ValueError):
    """A parameter or a file that cannot be used; the message says what would do."""


class UnknownParameter(InputError, TypeError):
    """A parameter that does not exist; the message names the nearest one."""


class ColumnsDiffer(InputError):
    """Sites do not hold the same columns; ``differences`` names them, site by site."""

    def __init__(self, message: str, differences: Mapping[str, tuple[str, ...]] | None = None) -> None:
        super().__init__(message)
        self.differences = dict(differences or {})


class MissingValues(InputError):
    """A table holds missing values, and how to treat them is not said."""


class OutOfRange(InputError):
    """A table holds values outside the range, or more rows, than was declared."""


class RowsHidden(InputError):
    """A private run's noise is as large as the number of all rows."""


class ShareTooLarge(InputError):
    """A table holds a larger share of all sites' rows than the order lets one site hold."""


class Unaligned(InputError):
    """Sites' rows cannot be matched: other keys, keys that are there twice, or no secret to tag them with."""


class MalformedMessage(CoterieError):
    """Bytes that are no message of ours."""


class BadAnswer(CoterieError):
    """An answer that does not fit its question; ``str(error)`` is fit to be shown to anyone."""


class Untrusted(CoterieError):
    """A key, card or signature that the federation's authority does not vouch for, or no longer."""


class NotOrdered(CoterieError):
    """A question that the ordered method does not ask here, or a sum that is not the sites' own."""


class QuestionDiffers(CoterieError):
    """A question that a site's own arithmetic gives with other last digits: it must see the whole of it."""


class RunError(CoterieError):
    """A run could not go on as asked; ``outcomes`` says what each site did (``coterie.runtime.outcomes``)."""

    def __init__(self, message: str, outcomes: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcomes = dict(outcomes or {})


class QuorumLost(RunError):
    """Too few sites answered."""


class RosterChanged(RunError):
    """A question that needs every site it was put to lost at least one of them."""


class JournalMismatch(CoterieError):
    """A journal that belongs to another run, or is damaged."""


class LedgerBroken(CoterieError):
    """A ledger line was changed, dropped or added."""


class NoiseWarning(UserWarning):
    """A private run's noise is as large as what it was to find."""
