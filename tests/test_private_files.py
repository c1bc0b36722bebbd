"""What a site, a server or an analyst keeps for itself is read by nobody else, whatever the umask."""

from __future__ import annotations

import logging
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.cli.jobs import Job
from coterie.deployment.conductor import _claimed
from coterie.deployment.federation import deal_out
from coterie.deployment.remote import Remote
from coterie.engines.nvflare.handover import install
from coterie.engines.nvflare.kits import provision
from coterie.engines.nvflare.requests import enroll
from coterie.engines.nvflare.signing import sign
from coterie.messages.chain import Chain
from coterie.report.outputs import RESULT_FILES
from coterie.runtime.journal import JOURNAL_SCHEMA, Header, Journal, Record
from coterie.sites.installed import Holdings, InstalledSite
from coterie.sites.ledger import SiteLedger
from coterie.sites.logs import log_to
from coterie.sites.tables import ArrayTable, open_table
from tests.identities import certify
from tests.orders import a_job

ROWS = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Folders and files that others could read or write."""
    paths = [folder, *folder.rglob("*")]
    found = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}
    return {name: mode for name, mode in found.items() if mode & 0o077}


def test_a_ledger_its_head_and_its_keys(tmp_path: Path) -> None:
    ledger = SiteLedger(tmp_path / "a" / "b" / "ledger.jsonl")
    ledger.secret()
    ledger.began_with(bytes(16), "rows", is_new=True)
    ledger.close()
    assert (tmp_path / "a" / "b" / "ledger.jsonl.head").exists()
    assert not modes(tmp_path / "a")


def test_an_installed_site(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=ROWS)
    site = InstalledSite(tmp_path / "kit")
    site.tell(Holdings(str(tmp_path / "rows.npz")))
    certify(tmp_path / "kit", "clinic")
    site.grouped()
    handlers = [*logging.getLogger("coterie.site").handlers]
    site.open("clinic")
    site.close()
    for handler in {*logging.getLogger("coterie.site").handlers} - {*handlers}:
        logging.getLogger("coterie.site").removeHandler(handler)
        handler.close()
    names = {path.name for path in (tmp_path / "kit").rglob("*")}
    assert {"coterie.json", "key", "ledger.jsonl", "ledger.jsonl.head", "site.log", "lock"} <= names
    assert any(name.endswith(".npy") for name in names)
    assert not modes(tmp_path / "kit")


def test_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal")
    journal.begin(Header(JOURNAL_SCHEMA, "0" * 32, "lloyd", {}, {}))
    journal.write(Record(b"", "sum", b"", 1, [], {}, []))
    assert {path.name for path in journal.folder.iterdir()} == {"header.json", "records.bin", "lives"}
    assert not modes(tmp_path / "run")


def test_a_log(tmp_path: Path) -> None:
    log = logging.getLogger("coterie.test")
    handler = log_to(tmp_path / "server" / "server.log", "server", log=log)
    log.info("a line")
    log.removeHandler(handler)
    handler.close()
    assert not modes(tmp_path / "server")


def test_a_run_s_folder_at_the_server(tmp_path: Path) -> None:
    with _claimed(tmp_path / "coterie" / "runs" / "0"):
        assert not modes(tmp_path / "coterie")


def test_what_an_analyst_keeps_of_a_remote_run(tmp_path: Path) -> None:
    run = object.__new__(Remote)
    run.out, run.sites = tmp_path / "out", ()
    run._begin(a_job(), resume=False)
    assert modes(tmp_path / "out").keys() == {"."}  # the folder is the user's


def test_rows_dealt_out_to_sites(tmp_path: Path) -> None:
    deal_out(ArrayTable(ROWS), ["a", "b"], tmp_path / "data")
    assert not modes(tmp_path / "data")
    assert open_table(tmp_path / "data" / "a.parquet").n_rows == 20


def test_a_chain_in_a_folder_that_is_there_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    chain = Chain(tmp_path / "ledger.jsonl")
    chain.append({"a": 1})
    chain.close()
    assert modes(tmp_path) == {".": 0o750}


def within_reach(folder: Path) -> set[str]:
    """Files that others could read or write: they let others in, and so does every folder between."""
    shut = {path for path in folder.rglob("*") if path.is_dir() and not path.stat().st_mode & 0o077}
    open_ = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077)
    return {str(path.relative_to(folder)) for path in open_ if not shut & {*path.parents}}


def test_keys_and_kits_of_a_federation(tmp_path: Path) -> None:
    """Whatever is made to join or to run a federation; what is handed over holds nothing secret."""
    made_here, theirs, own = tmp_path / "here", tmp_path / "authority", tmp_path / "own"
    provision(made_here, ["a", "b"], server="localhost")
    request, _ = enroll(own, "site", "north")
    sign(theirs, [request], server="localhost", port=8002)
    install(theirs / "sites" / "north.kit", own)
    keys = [
        path
        for path in tmp_path.rglob("*")
        if path.name in ("key", "coterie.key", "cert.json") or ".key" in path.name
    ]
    assert len(keys) >= 8
    assert not within_reach(tmp_path)
    with zipfile.ZipFile(theirs / "sites" / "north.kit") as archive:
        assert not [name for name in archive.namelist() if b"PRIVATE" in archive.read(name) or ".key" in name]


def test_a_run_of_several_sites_shows_others_no_line_of_a_row(tmp_path: Path) -> None:
    for name in "abc":
        np.savez(tmp_path / f"{name}.npz", X=ROWS)
    out = tmp_path / "out"
    data = [str(tmp_path / f"{name}.npz") for name in "abc"]
    Job(data=data, out=str(out), clusters=2, method="lloyd").run(resume=False, watch=lambda _: None)
    shown = {"result.json", "centers.csv", "model.json", "report.html", "ledger.json"}
    shown |= {"profiles.csv", "certificate.json"}  # what was ordered and what sites signed, to be handed on
    assert within_reach(out) == shown
    assert {path.name for path in out.rglob("*")} >= {"a.parquet", "ledger.jsonl", "ledger.jsonl.head"}
    assert shown <= {*RESULT_FILES}


def test_results_keep_the_umask_and_the_journal_beside_them_does_not(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{name}.npz") for name in "abc"]
    for name in names:
        np.savez(name, X=ROWS)
    out = tmp_path / "out"
    Job(data=names, out=str(out), clusters=2, method="lloyd").run(resume=False, watch=lambda _: None)
    readable = modes(out)
    assert {"result.json", "report.html", "model.json", "centers.csv"} <= readable.keys()
    assert not [name for name in readable if "journal" in name or "events" in name or "labels" in name]
    coterie.save_model(coterie.load_model(out / "model.json"), tmp_path / "model.json")
    assert stat.S_IMODE((tmp_path / "model.json").stat().st_mode) == 0o666
