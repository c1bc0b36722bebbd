"""How a site's own parts refuse."""

from __future__ import annotations

from coterie.messages.refusals import Refusal


class Refused(Exception):
    """Carries a code to the exit; the sentence stays in the site's log."""

    def __init__(self, code: Refusal, reason: str = "") -> None:
        super().__init__(reason or code.sentence)
        self.code = code
