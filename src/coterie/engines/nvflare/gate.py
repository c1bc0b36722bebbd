"""What a job may be and what a server may ask of a site, looked at before NVFlare acts on it.

A job is two files of configuration under a name the server gives it. NVFlare takes more: settings of its own that it
finds by name anywhere below a kit (``comm_config.json`` may point to a folder of code), a job's name chosen by who
submits it (``local`` would replace the folder of that name), sites picked by the analyst.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidationKey, AppValidator
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_def import is_valid_job_id
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor

_FILES = {"config", "config/config_fed_server.json", "config/config_fed_client.json"}
_SIGNATURES = {NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE}
_META = {"name", "resource_spec", "min_clients", "deploy_map", "study"}
_NAMED = (TrainingTopic.DEPLOY, TrainingTopic.START_JOB, TrainingTopic.ABORT, TrainingTopic.DELETE_RUN)
_ASKED = {
    *_NAMED,
    TrainingTopic.CHECK_RESOURCE,
    TrainingTopic.CANCEL_RESOURCE,
    TrainingTopic.CHECK_STATUS,
    TrainingTopic.NOTIFY_JOB_STATUS,
}
"""All that a server asks of a site to run jobs; neither files nor logs nor an end are a server's to ask for."""


class KnownFiles(AppValidator):
    """Refuses a job that holds anything but its two files of configuration and their signatures."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        """What is wrong, or nothing."""
        root = Path(app_folder)
        carried = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.name not in _SIGNATURES}
        strange = sorted(carried - _FILES)
        return (f"a job is a configuration and nothing else; this one carries {strange[0]!r}" if strange else ""), {}


class Gate(FLComponent):
    """At the server: jobs in the one known shape only. At a site: no requests but those that jobs need."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Look at a job that is submitted, or at a process that starts."""
        if event_type == EventType.SUBMIT_JOB:
            try:
                wrong = _wrong(fl_ctx.get_prop(FLContextKey.JOB_META))
            except Exception:  # NVFlare would go on
                logging.getLogger("coterie").exception("a job could not be looked at")
                wrong = "the job could not be looked at"
            if wrong:
                fl_ctx.set_prop(FLContextKey.JOB_BLOCK_REASON, wrong, private=True, sticky=False)
        elif event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            agent = getattr(engine, "admin_agent", None)
            if agent is not None:
                hear_the_server_only(engine.get_cell())
                agent.processors = {
                    topic: _Named(processor) if topic in _NAMED else processor
                    for topic, processor in agent.processors.items()
                    if topic in _ASKED
                }


def hear_the_server_only(cell: Any) -> None:
    """Refuse what other sites send: NVFlare's server passes messages on from any site to any other."""
    core = cell.core_cell
    own = FQCN.split(core.get_fqcn())[0]

    def look(message: Any) -> Any:
        origin = str(message.get_header(MessageHeaderKey.ORIGIN, ""))
        if FQCN.split(origin)[0] in (FQCN.ROOT_SERVER, own):
            return None
        logging.getLogger("coterie").warning("a message from %s was refused", origin)
        return make_reply(ReturnCode.UNAUTHENTICATED, "a site hears its server only")

    core.add_incoming_request_filter(channel="*", topic="*", cb=look)


class _Named(RequestProcessor):
    """Handles requests about a job whose name is one that the server makes: it is a folder's name, too."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def get_topics(self) -> Any:
        return self._inner.get_topics()

    def process(self, req: Any, app_ctx: Any) -> Any:
        if not is_valid_job_id(req.get_header(RequestHeader.JOB_ID)):
            return error_reply("this is no job's name")
        return self._inner.process(req, app_ctx)


def _wrong(meta: dict[str, Any]) -> str:
    if meta.get(AppValidationKey.BYOC):
        return "a job carries no code"
    strange = sorted(meta.keys() - _META)
    if strange:
        return f"a job says nothing of {strange[0]!r}"
    if meta.get("deploy_map") != {"app": ["@ALL"]}:
        return "a job goes to all sites; nobody picks some"
    if meta.get("resource_spec"):
        return "a job needs no resources of its own"
    return ""
