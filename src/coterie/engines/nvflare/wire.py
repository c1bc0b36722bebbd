"""What both ends of the engine agree on: the topic, the keys of a message, how their processes begin and end."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from pathlib import Path

from nvflare.fuel.f3.streaming import byte_streamer

QUESTION = "coterie.question"
"""A question of a run; its reply is the site's answer, or a bare code."""
HELLO = "coterie.hello"
"""Is the site's end there? Its reply says with which version."""
FRAME, CODE, VERSION = "frame", "code", "version"
KEPT = 24 * 3600.0
"""Seconds for which the folder of a job stays."""
LATE_ERRORS = 1000
"""Of how many messages NVFlare keeps to whom they went, should an error come after they were sent."""
_JOB = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def forget_old_jobs(kit: Path) -> None:
    """Remove the folders of jobs that ended more than a day ago: their configuration, and NVFlare's logs of them."""
    for folder in kit.iterdir():
        if _JOB.fullmatch(folder.name) and folder.is_dir() and time.time() - folder.stat().st_mtime > KEPT:
            shutil.rmtree(folder, ignore_errors=True)


def begin_job() -> None:
    """What a job's process does first at either end: tie its life to its parent's, and keep few messages in mind."""
    end_with_parent()
    byte_streamer.MAX_STREAM_ERROR_CONTEXTS = LATE_ERRORS  # of ten thousand, half a kilobyte each, it would be 5 MB


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
