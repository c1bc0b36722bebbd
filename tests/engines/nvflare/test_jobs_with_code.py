"""A job that carries code, or asks for classes, sites or files of its own, is run nowhere; nor may an analyst do more
than submit jobs, follow and end his own, and fetch what came of them."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import uuid
from pathlib import Path

import pytest

from coterie.engines.nvflare.kits import SITE_CLASS, provision, read_kit
from coterie.engines.nvflare.session import Session
from coterie.errors import CoterieError

from .federations import dealt_rows
from .strangers import answers, changed, orders, submitted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nvflare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that NVFlare leaves open
]

SERVER, SITE = "app/config/config_fed_server.json", "app/config/config_fed_client.json"


@pytest.fixture
def held(standing):
    """The federation, with rows and the usual rules at every site."""
    standing.hold(dealt_rows(standing.folder))
    return standing


def test_the_same_job_without_code_is_run(held, tmp_path):
    before = answers(held)
    status, said = submitted(held, tmp_path, lambda job: None)
    assert status == "FINISHED:COMPLETED"
    assert json.loads(said)["status"] == "done"
    assert all(count > before[name] for name, count in answers(held).items())


def _touch(mark: Path) -> dict:
    """What makes a file where it is built as a component: the plainest code a class path can name."""
    return {"path": "subprocess.Popen", "args": {"args": ["touch", str(mark)]}}


def _custom(job: Path, mark: Path) -> None:
    (job / "app/custom").mkdir()
    (job / "app/custom/evil.py").write_text(
        "from nvflare.apis.executor import Executor\n"
        f"open({str(mark)!r}, 'w').close()\n"
        "class Evil(Executor):\n    def execute(self, *args): pass\n"
    )
    changed(job / SITE, lambda raw: raw["executors"][0].update(executor={"path": "evil.Evil", "args": {}}))


def _drivers(job: Path, mark: Path) -> None:
    """NVFlare looks for its own settings by name, in a job's folder as well, and these name a folder of code."""
    (mark.parent / "drivers").mkdir()
    (mark.parent / "drivers/evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    settings = {"comm_driver_path": str(mark.parent / "drivers")}
    (job / "app/config/comm_config.json").write_text(json.dumps(settings))


def _settings(job: Path, mark: Path) -> None:
    (job / "app/config/resources.json").write_text(json.dumps({"class_allow_list": ["*"]}))


def _class_at_site(job: Path, mark: Path) -> None:
    changed(job / SITE, lambda raw: raw["components"].append({"id": "evil", **_touch(mark)}))


def _executor_at_site(job: Path, mark: Path) -> None:
    other = {"path": "nvflare.app_common.np.np_trainer.NPTrainer", "args": {}}
    changed(job / SITE, lambda raw: raw["executors"].append({"tasks": ["train"], "executor": other}))


def _class_at_server(job: Path, mark: Path) -> None:
    changed(job / SERVER, lambda raw: raw["components"].append({"id": "evil", **_touch(mark)}))


def _class_among_orders(job: Path, mark: Path) -> None:
    changed(job / SERVER, lambda raw: raw["workflows"][0]["args"].update(settings=_touch(mark)))


def _arguments_for_the_site(job: Path, mark: Path) -> None:
    told = {"data": "/etc/passwd", "policy": "open"}
    changed(job / SITE, lambda raw: raw["executors"][0].update(executor={"path": SITE_CLASS, "args": told}))


def _image(job: Path, mark: Path) -> None:
    changed(job / "meta.json", lambda raw: raw.update(launcher_spec={"@ALL": {"docker": {"image": "evil"}}}))


def _some_sites(job: Path, mark: Path) -> None:
    changed(job / "meta.json", lambda raw: raw.update(deploy_map={"app": ["server", "site-1"]}))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_custom, "carries no code"),
        (_drivers, "carries 'config/comm_config.json'"),
        (_settings, "carries 'config/resources.json'"),
        (_class_at_site, ""),
        (_executor_at_site, ""),
        (_class_at_server, ""),
        (_class_among_orders, ""),
        (_arguments_for_the_site, ""),
        (_image, "launcher_spec"),
        (_some_sites, "all sites"),
    ],
)
def test_what_a_job_may_not_bring_is_run_nowhere(held, tmp_path, change, word):
    before, mark = answers(held), tmp_path / "evil-was-here"
    status, said = submitted(held, tmp_path, lambda job: change(job, mark))
    assert not mark.exists()
    assert answers(held) == before
    assert word in said
    assert status != "FINISHED:COMPLETED" or json.loads(said[said.index("{") :])["status"] != "done", said


@pytest.mark.parametrize("name", ["local", "coterie", "startup", str(uuid.UUID(int=7, version=4))])
def test_a_job_does_not_choose_its_name_which_is_a_folder_s_at_every_site(held, tmp_path, name):
    kits = [kit.folder for kit in held.federation.kits()]
    before = [sorted(path.name for path in (kit / name).iterdir()) if (kit / name).exists() else [] for kit in kits]
    status, said = submitted(
        held, tmp_path, lambda job: changed(job / "meta.json", lambda raw: raw.update(job_id=name))
    )
    assert (status, "job_id" in said) == ("REFUSED", True)
    time.sleep(3)  # longer than the server takes to send a job out
    assert before == [
        sorted(path.name for path in (kit / name).iterdir()) if (kit / name).exists() else [] for kit in kits
    ]


@pytest.mark.parametrize("change", ["unsigned", "changed"])
def test_a_job_that_was_not_signed_or_was_changed_since_is_not_run(held, tmp_path, monkeypatch, change):
    from nvflare.fuel.hci.client import file_transfer

    sign, before = file_transfer.sign_folders, answers(held)

    def signed(folder, *args, **named):
        if change == "changed":
            sign(folder, *args, **named)
            changed(Path(folder) / SERVER, lambda raw: raw["workflows"][0]["args"].update(deadline=9.0))

    monkeypatch.setattr(file_transfer, "sign_folders", signed)
    status, said = submitted(held, tmp_path, lambda job: None)
    assert status == "FINISHED:FAILED_TO_RUN"
    assert "sign" in said
    assert answers(held) == before


def _refused(session: Session, what: str, *args: object) -> bool:
    """Whether the server, or the site that it passes the request on to, does not do this."""
    try:
        found = session._ask(what, *args)
    except CoterieError as problem:
        return "not authorized" in str(problem)
    return found in ("invalid_request", {"site-1": "invalid_request"})


def test_an_analyst_may_not_look_into_machines_or_end_them(held):
    before = held.federation.running()
    with Session(held.federation.analyst()) as session:
        assert set(session.sites()) == set(held.names)
        for what, *args in (
            ("ls_target", "site-1"),
            ("cat_target", "site-1", None, "local/coterie.json"),
            ("tail_target_log", "site-1"),
            ("cat_target", "server", None, "local/resources.json"),
            ("get_working_directory", "server"),
            ("shutdown", "client", ["site-1"]),
            ("shutdown", "all"),
            ("restart", "client", ["site-1"]),
            ("remove_client", "site-1"),
            ("disable_client", "site-1"),
            ("configure_site_log", "CRITICAL"),
            ("report_resources", "client", ["site-1"]),
            ("get_client_env", ["site-1"]),
        ):
            # an end is passed on to the site, which does not do it
            assert _refused(session, what, *args) or what in ("shutdown", "restart"), what
        time.sleep(3)
        assert set(session.sites()) == set(held.names)
    assert held.federation.running() == before


@pytest.fixture
def other(held, tmp_path):
    """Another analyst of the same federation."""
    server, name = held.federation.kit("server"), "other@coterie.local"
    made = provision(
        held.federation.folder, held.names, server=server.host, port=server.port, analysts=[name]
    )[name]  # fmt: skip
    shutil.move(made.folder, tmp_path / "other")
    return read_kit(tmp_path / "other")


def test_a_job_is_its_submitter_s_alone(held, other, tmp_path):
    with Session(held.federation.analyst()) as session, Session(other) as stranger:
        job = session.submit(orders(held), name="job", least=1)
        while session.status(job) != "RUNNING":
            time.sleep(0.2)
        assert job in {one["job_id"] for one in stranger._ask("list_jobs")}
        for one in (stranger, session):  # not even who submitted it
            for what, *args in (("clone_job",), ("get_job_logs",), ("get_job_logs", "site-1")):
                assert _refused(one, what, job, *args), what
            assert _refused(one, "configure_job_log", job, "CRITICAL")
            for what in ("show_errors", "show_stats"):
                with pytest.raises(CoterieError):
                    one._ask(what, job, "client")
        for what, *args in (("abort_job", job), ("delete_job", job), ("do_app_command", job, "coterie.stop", {})):
            assert _refused(stranger, what, *args), what
        while not session.status(job).startswith("FINISHED"):
            time.sleep(0.2)
        assert _refused(stranger, "download_job_result", job, str(tmp_path))
        session.fetch(job, tmp_path / "own")
        assert json.loads((tmp_path / "own/outcome.json").read_text())["status"] == "done"
        with contextlib.suppress(CoterieError):
            session.delete(job)
