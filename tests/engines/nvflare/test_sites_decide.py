"""What a site's owner says holds, whatever a job says; and what goes wrong at a site stays there."""

from __future__ import annotations

import contextlib
import json
import time
import zipfile
from pathlib import Path

import msgspec
import pytest

from coterie.deployment.job import OUTCOME, RemoteJob
from coterie.engines.nvflare import processes
from coterie.engines.nvflare.session import Session
from coterie.errors import RunError
from coterie.sites.installed import Holdings
from tests.orders import a_job

from .federations import dealt_rows, rules
from .strangers import answers, ended, orders, refuses, submitted

pytestmark = [
    pytest.mark.xdist_group("nvflare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that NVFlare leaves open
]


def bad_run(job: RemoteJob) -> dict:
    """The order of a job, for a run that is a path."""
    raw = job.order.order.replace(job.read().run.encode(), b"../../../escaped")
    return msgspec.to_builtins(msgspec.structs.replace(job.order, order=raw))


def _events(standing, name: str) -> list[dict]:
    path = standing.federation.site(name).ledger_path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_site_whose_policy_forbids_a_method_refuses_it_and_allows_others(standing):
    standing.hold(tables := dealt_rows(standing.folder))
    policy = standing.folder / "only-lloyd.toml"
    policy.write_text(rules("none", 'methods = ["lloyd"]', ""))
    site, table = standing.federation.site("site-2"), tables["site-2"]
    site.tell(Holdings(str(table), str(policy), table_name=table.stem))
    before = len(_events(standing, "site-2"))
    with pytest.raises(RunError, match=r"site-2.*policy does not allow this method"):
        standing.run(standing.order("federated-kmeans", {"n_clusters": 3}), attempts=1)
    left = _events(standing, "site-2")[before:]
    assert {(one["event"], one["code"], one["floats"]) for one in left} == {("refusal", "METHOD_FORBIDDEN", 0)}
    done = standing.run(standing.order("lloyd", {"n_clusters": 3, "max_rounds": 3}), attempts=1)
    assert done.outcome["status"] == "done"
    assert any(one["event"] == "answer" and one["method"] == "lloyd" for one in _events(standing, "site-2"))


SECRET = "PATIENT-4711-SECRET"


def _everything(folder: Path) -> bytes:
    """All bytes below a folder, those of archives as well."""
    found = b""
    for path in folder.rglob("*"):
        if path.is_file():
            found += path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    found += b"".join(archive.read(name) for name in archive.namelist())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["removed", "corrupt"])
def test_what_is_wrong_with_a_site_s_data_is_told_to_its_owner_only(standing, tmp_path, wrong):
    tables = dealt_rows(standing.folder)
    own = tmp_path / "hidden-folder" / "rows.csv"
    own.parent.mkdir()
    own.write_text("p0,p1\n" + "1.0,2.0\n" * 50)
    standing.hold(tables)
    standing.federation.site("site-3").tell(Holdings(str(own), str(standing.policy)))
    if wrong == "removed":
        own.unlink()
    else:
        own.write_text("p0,p1\n" + "1.0,2.0\n" * 50 + f"3.0,{SECRET}\n")
    with Session(standing.federation.analyst()) as session:
        job = session.submit(orders(standing), name="job", least=1)
        while not session.status(job).startswith("FINISHED"):
            time.sleep(0.3)
        raw = Path(session._ask("download_job_result", job, str(tmp_path / "fetched")))
        assert json.dumps(session._ask("get_job_meta", job)).count("hidden-folder") == 0
        session.delete(job)
    outcome = json.loads(next(raw.rglob(OUTCOME)).read_text())
    assert outcome["status"] == "stopped"
    assert "site-3 has no table to answer from; its own log says why" in outcome["message"]
    seen = _everything(raw)
    assert b"site-3" in seen
    assert b"hidden-folder" not in seen
    assert SECRET.encode() not in seen
    log = standing.federation.site("site-3").log_path.read_text()
    assert "hidden-folder" in log
    assert (SECRET in log) == (wrong == "corrupt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [({"order": bad_run(a_job())}, "32 hex digits"), ({"data": "/etc/passwd"}, "data")],
    ids=["run", "data"],
)
def test_an_order_that_is_none_asks_nobody_and_writes_nowhere(standing, tmp_path, change, words):
    standing.hold(dealt_rows(standing.folder))
    before, around = answers(standing), set(standing.folder.rglob("*escaped*"))
    status, said = submitted(standing, tmp_path, lambda job: None, {**orders(standing), **change})
    outcome = json.loads(said)
    assert (status, outcome["status"]) == ("FINISHED:COMPLETED", "refused")
    assert words in outcome["message"]
    assert answers(standing) == before
    assert set(standing.folder.rglob("*escaped*")) == around


def _listening(pids: set[int]) -> set[tuple[str, int]]:
    """Addresses and ports that these processes listen at."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # the process has ended since
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):  # closed since
                    inodes.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
                address, port = parts[1].split(":")
                found.add((".".join(str(b) for b in reversed(bytes.fromhex(address))), int(port, 16)))
    return found


@pytest.mark.slow
def test_every_port_is_of_this_machine_or_the_declared_one_and_asks_for_a_certificate(standing):
    standing.hold(dealt_rows(standing.folder))
    server, seen = standing.federation.kit("server"), set()

    def look(_) -> None:
        running = standing.federation.running().values()
        seen.update(_listening({pid for one in running for pid in (one.pid, *one.jobs)}))

    standing.run(standing.order("federated-kmeans", {"n_clusters": 3, "max_rounds": 2}), tell=look, attempts=1)
    assert ("127.0.0.1", server.port) in seen
    assert {address for address, _ in seen} == {"127.0.0.1"}
    assert len(seen) == 1 + 1 + len(standing.names), "one the server declares, one each for jobs of its own machine"
    for _, port in seen:
        assert ended(lambda plain: (plain.sendall(bytes(64)), plain)[1], port)
        assert refuses(port)
        assert not refuses(port, standing.federation.kit("site-1"))
    assert all(processes.find_running(kit) for kit in standing.federation.kits())
