"""The site's end: installed at the site; the site's own files say what it holds and what it may answer."""

from __future__ import annotations

import logging
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

import coterie.secure.replay  # noqa: F401  (so that masked questions are known here, and checked)
from coterie.engines.nvflare.gate import hear_the_server_only
from coterie.engines.nvflare.wire import CODE, FRAME, HELLO, QUESTION, VERSION, begin_job, forget_old_jobs
from coterie.sites.installed import InstalledSite
from coterie.sites.site import Site


class SiteEnd(Executor):
    """Hands a question's bytes to the site and its answer's bytes back.

    It takes no arguments: they would come from the job, and what a site holds and allows is said by its own files.
    """

    def __init__(self) -> None:
        super().__init__()
        self._installed: InstalledSite | None = None
        self._site: Site | None = None
        self._opened = threading.Event()
        self._log = logging.getLogger("coterie.site")

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the site when a job begins, close it when it ends."""
        if event_type == EventType.START_RUN:
            begin_job()
            engine = fl_ctx.get_engine()
            hear_the_server_only(engine.get_cell())
            engine.register_aux_message_handler(QUESTION, self._answered)
            engine.register_aux_message_handler(HELLO, self._greeted)
            kit, name = Path(engine.get_workspace().get_root_dir()), fl_ctx.get_identity_name()
            threading.Thread(target=self._open, args=(kit, name), daemon=True, name="coterie-open").start()
        elif event_type == EventType.END_RUN and self._installed is not None:
            self._installed.close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """There are no tasks: whatever a job asks for by task is not done here."""
        return make_reply(ReturnCode.TASK_UNSUPPORTED)

    def _open(self, kit: Path, name: str) -> None:
        try:
            forget_old_jobs(kit)
            self._installed = InstalledSite(kit)
            self._site = self._installed.open(name)
        except Exception:  # the text may quote a row: it stays here
            self._log.exception("%s could not be opened", name)
        finally:
            self._log.propagate = not self._log.handlers  # what may quote a row is in the site's own log only
            self._opened.set()

    def _greeted(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        if not self._opened.is_set():
            return make_reply(ReturnCode.SERVER_NOT_READY)
        reply = make_reply(ReturnCode.OK)
        reply[VERSION] = version("coterie")
        reply[CODE] = "" if self._site is not None else "closed"
        reply[FRAME] = request.get(FRAME)  # an echo, to measure the engine by
        return reply

    def _answered(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        """The site's answer, or a bare code; nothing else leaves, whatever goes wrong."""
        try:
            frame = request.get(FRAME)
            if self._site is None or not isinstance(frame, bytes | bytearray | memoryview):
                return _coded("closed" if self._site is None else "malformed")
            reply = Shareable()
            reply[FRAME] = self._site.answer(bytes(frame))
            return reply
        except Exception:
            self._log.exception("an answer could not be given")
            return _coded("failed")


def _coded(code: str) -> Any:
    reply = Shareable()
    reply[CODE] = code
    return reply
