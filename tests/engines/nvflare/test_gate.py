"""What a job may be and what a server may ask, without any process."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from coterie.engines.nvflare.gate import Gate, KnownFiles, hear_the_server_only
from coterie.engines.nvflare.kits import provision
from coterie.engines.nvflare.session import write_job


@pytest.fixture
def app(tmp_path):
    return write_job(tmp_path / "job", "job", {}, least=1) / "app"


def test_a_job_as_it_is_written_is_known(app):
    for folder in (app, app / "config"):
        for signature in (".__nvfl_sig.json", ".__nvfl_submitter.crt"):
            (folder / signature).write_text("{}")
    assert KnownFiles().validate(str(app)) == ("", {})


@pytest.mark.parametrize(
    "path",
    [
        "custom/evil.py",
        "config/comm_config.json",
        "config/resources.json",
        "config/config_fed_client.conf",
        "config/deeper/config_fed_client.json",
        "fed_client.json",
        "config/.hidden",
    ],
)
def test_any_other_file_is_refused_by_its_name(app, path):
    (app / path).parent.mkdir(parents=True, exist_ok=True)
    (app / path).write_text("{}")
    assert path.rpartition("/")[0] in KnownFiles().validate(str(app))[0]
    assert "carries" in KnownFiles().validate(str(app))[0]


def test_a_link_is_no_file_of_a_job(app):
    (app / "config/comm_config.json").symlink_to("/nowhere")
    assert "comm_config" in KnownFiles().validate(str(app))[0]


def _blocked(**more) -> str:
    meta = {"name": "n", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}, "study": "default"}
    context = FLContext()
    context.set_prop(FLContextKey.JOB_META, {**meta, **more}, private=True, sticky=False)
    Gate().handle_event(EventType.SUBMIT_JOB, context)
    return context.get_prop(FLContextKey.JOB_BLOCK_REASON) or ""


def test_only_the_known_shape_of_a_job_is_taken():
    assert _blocked() == ""
    assert "job_id" in _blocked(job_id="local")
    assert "code" in _blocked(byoc=True)
    assert "all sites" in _blocked(deploy_map={"app": ["server", "site-1"]})
    assert "all sites" in _blocked(deploy_map={"app": ["@ALL"], "other": ["site-1"]})
    assert "resources" in _blocked(resource_spec={"site-1": {"docker": {"image": "evil"}}})
    assert "launcher_spec" in _blocked(launcher_spec={})


def test_a_job_that_cannot_be_looked_at_is_not_taken():
    context = FLContext()
    Gate().handle_event(EventType.SUBMIT_JOB, context)
    assert context.get_prop(FLContextKey.JOB_BLOCK_REASON)


class _Cell:
    def __init__(self, name: str) -> None:
        self.core_cell, self._name, self.filters = self, name, []

    def get_fqcn(self) -> str:
        return self._name

    def add_incoming_request_filter(self, channel, topic, cb) -> None:
        assert (channel, topic) == ("*", "*")
        self.filters.append(cb)


def _started() -> SimpleNamespace:
    agent = SimpleNamespace(
        processors={topic: one for one in ClientRequestProcessors.request_processors for topic in one.get_topics()}
    )
    cell = _Cell("site-1")
    engine = SimpleNamespace(admin_agent=agent, get_cell=lambda: cell)
    Gate().handle_event(EventType.SYSTEM_START, SimpleNamespace(get_engine=lambda: engine))
    return agent


def test_a_site_does_what_jobs_need_and_shows_no_files_and_no_logs():
    assert set(_started().processors) == {
        "train.deploy",
        "train.start_job",
        "train.abort",
        "train.delete_run",
        "train.check_status",
        "train.notify_job_status",
        "scheduler.check_resource",
        "scheduler.cancel_resource",
    }


@pytest.mark.parametrize("name", ["local", "coterie", "../x", "", None])
def test_a_site_makes_and_removes_no_folder_but_a_job_s(name):
    for topic in ("train.deploy", "train.delete_run", "train.start_job", "train.abort"):
        request = Message(topic, b"")
        request.set_header("job_id", name)
        assert "no job's name" in str(_started().processors[topic].process(request, None).body)
    request.set_header("job_id", str(uuid.uuid4()))
    with pytest.raises(TypeError, match="engine must be"):  # so it is handed on
        _started().processors["train.delete_run"].process(request, None)


@pytest.mark.parametrize(
    ("origin", "is_heard"),
    [
        ("server", True),
        ("server.a-job", True),
        ("site-1.a-job", True),
        ("site-2", False),
        ("site-2.a-job", False),
        ("servers", False),
        ("", False),
    ],
)
def test_a_site_hears_its_server_and_its_own_jobs_only(origin, is_heard):
    cell = _Cell("site-1.a-job")
    hear_the_server_only(cell)
    found = cell.filters[0](SimpleNamespace(get_header=lambda key, default="": origin))
    assert (found is None) is is_heard


def test_kits_hold_what_closes_them(tmp_path):
    kits = provision(tmp_path / "out", ["site-1"], port=8123)
    for name in ("server", "site-1"):
        folder = kits[name].folder
        resources = json.loads((folder / "local/resources.json").read_text())
        assert resources["app_validator"]["path"].endswith("gate.KnownFiles")
        assert any(one["path"].endswith("gate.Gate") for one in resources["components"])
        internal = json.loads((folder / "comm_config.json").read_text())["internal"]["resources"]
        assert internal == {"host": "localhost", "connection_security": "mtls"}
        rights = json.loads((folder / "local/authorization.json").read_text())["permissions"]
        for role in rights.values():
            assert {role[what] for what in ("byoc", "shell_commands", "clone_job", "configure_job_log")} == {"none"}
