"""The site's log as lines of JSON: what it was asked under which run and round, what it gave, and what went wrong.

The log is its owner's: unlike everything that leaves, it may hold an exception's text, and that may quote a row.
"""

from __future__ import annotations

import logging
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import msgspec

from coterie.files import opened_private, private_folder
from coterie.messages.codec import Envelope
from coterie.sites.ledger import question_facts

LOGGER = "coterie.site"
MAX_BYTES, KEPT = 10_000_000, 5
_FACTS = ("site", "run", "round", "attempt", "method", "event", "code", "asked", "bytes", "seconds")


def about(site: str, envelope: Envelope, event: str, **facts: Any) -> dict[str, Any]:
    """What a record says beside its sentence; given as ``extra``."""
    return {"site": site, **question_facts(envelope), "event": event, **facts}


class JsonLines(logging.Formatter):
    """A record as one line: time (seconds since 1970), level, what the site says of it, message, trace."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname}
        line |= {name: getattr(record, name) for name in _FACTS if hasattr(record, name)}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _OwnersFile(RotatingFileHandler):
    """A rotating file that only its owner can read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=opened_private)


def log_to(path: Path, site: str, *, log: logging.Logger | None = None) -> logging.Handler:
    """Keep a site's log in a file from now on, every answer and every refusal: 10 MB, and up to five files before it.

    Other sites of this process do not show in it. The logger is made to let answers (INFO) through; to end it,
    ``removeHandler`` and close what is returned.
    """
    log = log or logging.getLogger(LOGGER)
    private_folder(path.parent)
    handler = _OwnersFile(path, maxBytes=MAX_BYTES, backupCount=KEPT)
    handler.setFormatter(JsonLines())
    handler.addFilter(lambda record: getattr(record, "site", site) == site)
    log.addHandler(handler)
    if not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.INFO)
    return handler


class SiteLogs(logging.Handler):
    """The logs of all sites of this process, ``<site>.log`` each in one folder, for as long as it is entered."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        self._folder = folder
        self._warnings: dict[str, None] = {}
        self._level = logging.NOTSET
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line to the log of the site it is about."""
        if record.levelno >= logging.WARNING:
            self._warnings[record.getMessage()] = None
        try:
            path = self._folder / f"{quote(str(getattr(record, 'site', 'site')), safe='')}.log"
            with open(path, "a", encoding="utf-8", opener=opened_private) as file:
                file.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def warnings(self) -> str:
        """The last three different warnings, which the user may read: all sites are the user's own."""
        last = list(self._warnings)[-3:]
        return f"The sites logged: {'; '.join(last)}." if last else ""

    def __enter__(self) -> Self:
        log = logging.getLogger(LOGGER)
        self._level = log.level
        if not log.isEnabledFor(logging.INFO):
            log.setLevel(logging.INFO)
        log.addHandler(self)
        return self

    def __exit__(self, *_: Any) -> None:
        log = logging.getLogger(LOGGER)
        log.removeHandler(self)
        log.setLevel(self._level)
