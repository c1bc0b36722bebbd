"""Python imports this where a test puts its folder in the path of a server, whose code is then changed.

Nothing of coterie knows of it: what hands a run its channel hands over a changed one.
"""

from __future__ import annotations

import os
from pathlib import Path

REPORT = "COTERIE_TEST_CHANGED_SERVER"
"""Where it is written what sites made of the server's own questions."""

if REPORT in os.environ:
    from tests.attacks.changed_server import Changed

    from coterie.deployment import conductor

    honest = conductor.fit_over

    def fit_over(channel, *arguments, **more):
        """The run, and before each of its questions others."""
        return honest(Changed(channel, report=Path(os.environ[REPORT])), *arguments, **more)

    conductor.fit_over = fit_over
