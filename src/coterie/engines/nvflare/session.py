"""The analyst's end: jobs that carry a configuration and no code, followed and fetched over the analyst's kit."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from coterie.engines.nvflare.kits import CENTER_CLASS, SITE_CLASS, Kit
from coterie.errors import CoterieError, InputError

COMMAND_SECONDS = 30.0


class Unreachable(CoterieError):
    """The server does not answer, or not this analyst."""


def write_job(
    folder: Path, name: str, arguments: Mapping[str, Any], *, least: int, center: str = CENTER_CLASS
) -> Path:
    """A job: three files of configuration, no code. ``arguments`` go to the center; sites get none."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {"name": name, "resource_spec": {}, "min_clients": least, "deploy_map": {"app": ["@ALL"]}}
    no_filters: dict[str, Any] = {"components": [], "task_data_filters": [], "task_result_filters": []}
    run = {"id": "coterie", "path": center, "args": dict(arguments)}
    site = {"tasks": ["*"], "executor": {"path": SITE_CLASS, "args": {}}}
    for path, value in (
        (folder / "meta.json", meta),
        (config / "config_fed_server.json", {"format_version": 2, "workflows": [run], **no_filters}),
        (config / "config_fed_client.json", {"format_version": 2, "executors": [site], **no_filters}),
    ):
        path.write_text(json.dumps(value, indent=2) + "\n")
    return folder


class Session:
    """One analyst's connection; made anew when it breaks."""

    def __init__(self, kit: Kit) -> None:
        if kit.kind != "analyst":
            raise InputError(f"{kit.folder}: this is the kit of a {kit.kind}; an analyst's is needed (--kit).")
        kit.check()
        self.kit = kit
        self._session: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception), _quiet():
                self._session.close()
            self._session = None

    def connect(self, seconds: float) -> None:
        """Connect, if not connected; :class:`Unreachable` where that takes longer."""
        if self._session is not None:
            return
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:  # say at once where nobody listens
            socket.create_connection((self.kit.host, self.kit.port), timeout=min(5.0, seconds)).close()
        except OSError as problem:
            words = f"nobody answers at {self.kit.host}:{self.kit.port} ({problem.strerror or problem})"
            raise Unreachable(f"{words}; is the server up?") from None
        try:
            with _quiet():
                self._session = new_secure_session(
                    username=self.kit.name, startup_kit_location=str(self.kit.folder), timeout=seconds
                )
                self._session.set_timeout(COMMAND_SECONDS)
        except Exception as problem:
            self._session = None
            raise Unreachable(
                f"the server at {self.kit.host}:{self.kit.port} does not answer to {self.kit.name} "
                f"({type(problem).__name__}: {problem})."
            ) from None

    def sites(self) -> dict[str, float]:
        """The sites that are connected now, and when each was heard of last."""
        return {client.name: float(client.last_connect_time) for client in self._ask("get_connected_client_list")}

    def server_started(self) -> str:
        """When the server was started, as far as that is known; another answer means that it was started anew."""
        with contextlib.suppress(CoterieError):
            return str(self._ask("get_system_info").server_info.start_time)
        return ""

    def submit(self, arguments: Mapping[str, Any], *, name: str, least: int, center: str = CENTER_CLASS) -> str:
        """Submit a job; its number. ``center`` is what carries it out, of what the server's own files allow."""
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(Path(folder) / name, name, arguments, least=least, center=center)
            return str(self._ask("submit_job", str(job)))

    def status(self, job: str) -> str:
        """What the server says of a job: ``SUBMITTED``, ``RUNNING``, ``FINISHED:COMPLETED``, ..."""
        meta = self._ask("get_job_meta", job)
        return str(meta.get("status", ""))

    def problems(self, job: str) -> list[str]:
        """What kept a job from being run somewhere, as the server reports it."""
        meta = self._ask("get_job_meta", job)
        details = [str(detail) for detail in meta.get("job_deploy_detail") or []]
        return [detail for detail in details if not detail.rstrip().endswith(": OK")] + [
            str(detail) for detail in meta.get("schedule_history") or [] if "NOT_ENOUGH" in str(detail).upper()
        ]

    def idle(self) -> set[str]:
        """The sites that are connected and run no job."""
        clients = self._ask("get_client_job_status") or []
        return {client["client_name"] for client in clients if client.get("status") == "no_jobs"}

    def command(self, job: str, topic: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the running job something; nothing where it is not running (yet, or any more)."""
        try:
            reply = self._ask("do_app_command", job, topic, dict(arguments))
        except Unreachable:
            raise
        except CoterieError:
            return {}
        return dict(reply or {})

    def abort(self, job: str) -> None:
        """End a job; one that is over already stays so."""
        with contextlib.suppress(CoterieError):
            self._ask("abort_job", job)

    def delete(self, job: str) -> None:
        """Let the server forget a job and its files."""
        with contextlib.suppress(CoterieError):
            self._ask("delete_job", job)

    def fetch(self, job: str, target: Path) -> None:
        """Bring the files of a job that is over."""
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            job_folder = Path(self._ask("download_job_result", job, folder))
            results = job_folder / "workspace" / "coterie"
            target.mkdir(parents=True, exist_ok=True)
            for path in results.iterdir() if results.is_dir() else ():
                if path.is_dir():
                    shutil.copytree(path, target / path.name, dirs_exist_ok=True)
                else:
                    shutil.copy2(path, target / path.name)

    def _ask(self, what: str, *args: Any) -> Any:
        """One command; a broken connection is made anew once."""
        from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError, SessionClosed

        for last in (False, True):
            self.connect(5.0)
            try:
                with _quiet():
                    return getattr(self._session, what)(*args)
            except AuthorizationError as problem:
                raise InputError(f"the server does not let {self.kit.name} do this ({problem}).") from None
            except (SessionClosed, AuthenticationError, ConnectionError, TimeoutError, OSError) as problem:
                self.close()
                if last:
                    raise Unreachable(f"the server at {self.kit.host}:{self.kit.port} is gone ({problem}).") from None
                time.sleep(0.2)
            except Exception as problem:
                raise CoterieError(f"the server could not do it ({type(problem).__name__}: {problem}).") from None
        raise AssertionError("the second attempt returns or raises")


@contextlib.contextmanager
def _quiet() -> Any:
    """NVFlare prints and logs what it does; errors are reported by coterie."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
