"""What both ends of the engine agree on: the topic, the keys of a message, and how processes end."""

from __future__ import annotations

import logging
import os
import threading
import time

__all__ = ["CODE", "FRAME", "HELLO", "QUESTION", "VERSION", "end_with_parent"]

QUESTION = "coterie.question"
"""A question of a run; its reply is the site's answer, or a bare code."""
HELLO = "coterie.hello"
"""Is the site's end there? Its reply says with which version."""
FRAME, CODE, VERSION = "frame", "code", "version"


def end_with_parent(every: float = 1.0) -> None:
    """End this process when the one that started it is gone: nobody would read what it says, or stop it."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        logging.getLogger("coterie").error("the process that started this one is gone; ending")
        logging.shutdown()
        os._exit(3)

    threading.Thread(target=look, daemon=True, name="coterie-parent").start()
