"""The pages' facts: what the terminal says, decisions about orders, and nothing of a row."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from coterie import FederatedKMeans, Privacy
from coterie.cli.console.run_page import RunPage
from coterie.cli.console.server import CannotDo, LocalServer
from coterie.cli.console.site_page import SitePage
from coterie.cli.run_state import Folder
from coterie.errors import QuorumLost
from coterie.runtime.events import EventFile
from coterie.sites.approvals import Decision
from tests.cli.hospitals import ANALYST, NAMES, POLICY, Hospitals
from tests.orders import RUN

pytest.importorskip("nvflare")
from coterie.engines.nvflare.kits import kit_of

KIT = ("--kit", "kits/sites/north")
GROUPS = 'min_rows = 3\napproval = "{}"\n'


@pytest.fixture
def hospitals(tmp_path, cli):
    return Hospitals(tmp_path, cli)


def site_page(hospitals, name="north", report=lambda _: None):
    return SitePage(kit_of(hospitals.kits[name].folder, "site"), report)


class Client:
    """A browser without a screen: every answer that it got is kept."""

    def __init__(self, pages):
        self.server, self.received = LocalServer(pages, report=lambda _: None), []
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def ask(self, path, asked=None):
        """Status and JSON of an answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        own = {"X-Coterie-Token": self.server.token, "Origin": f"http://127.0.0.1:{self.server.port}"}
        line.request("GET" if asked is None else "POST", path, None if asked is None else json.dumps(asked), own)
        answer = line.getresponse()
        body = answer.read().decode()
        self.received.append(str(answer.headers) + body)
        return answer.status, json.loads(body)

    def everything(self):
        """All that the page shows, with all that it asks for later."""
        _, page = self.ask("/api/page")
        for name in re.findall(r'"type":"part","name":"([^"]+)"', self.received[-1]):
            assert self.ask(f"/api/part/{name}")[0] == 200
        return page

    def decide(self, action, run):
        return self.ask("/api/act", {"action": action, "value": run})


def texts(blocks):
    """Every text in blocks of a page."""
    return json.dumps(msgspec.to_builtins(blocks))


def section(page, key):
    (found,) = [section for section in msgspec.to_builtins(page)["sections"] if section["key"] == key]
    return found


# ---------------------------------------------------------------- nothing of a row


def recognisable(name, i):
    """A file of a site: every value and every id can be told from all other text."""
    rng = np.random.default_rng(i)
    values = np.round(rng.normal(size=(60, 2)) + 7 * rng.integers(0, 2, (60, 1)), 7)
    ids = [f"patient-{name}-{n:04d}" for n in range(len(values))]
    lines = [f"{key},{a:.7f},{b:.7f}" for key, (a, b) in zip(ids, values, strict=True)]
    Path(f"{name}.csv").write_text("\n".join(["id,a,b", *lines]) + "\n")
    cells = [f"{abs(value):.7f}" for value in values.ravel()]
    return [*ids, *cells, *(cell[:-2] for cell in cells)]  # also rounded down to five digits behind the point


def test_no_value_of_a_row_no_id_and_no_path_is_in_any_response(hospitals, cli):
    secrets = [text for i, name in enumerate(NAMES) for text in recognisable(name, i)]
    said = hospitals.hold(GROUPS.format("always"), "--ignore", "id")
    assert [code for code, *_ in said] == [0, 0, 0]
    order = hospitals.order(FederatedKMeans(2, random_state=0))
    run = order.read().run
    with pytest.raises(QuorumLost, match="waiting for the approval"):
        hospitals.run(None, order=order, random_state=0)
    with Client(site_page(hospitals)) as client, Client(site_page(hospitals, "south")) as south:
        client.everything()
        assert "AskHello" in client.received[-1]  # the preview
        assert client.decide("approve", run)[0] == south.decide("approve", run)[0] == 200
        hospitals.kits["west"].decide(run, Decision.APPROVED)
        hospitals.run(None, order=order, random_state=0)
        page = client.everything()
        assert "each only in a sum over 3 sites (north, south, west); no per-site results" in texts(page)
        for path in ("/", "/page.js", "/api/none", "/api/part/preview/x", "/api/part/preview/" + "0" * 32):
            with contextlib.suppress(json.JSONDecodeError):  # a file of the page
                client.ask(path)
        client.decide("refuse", run), client.decide("approve", run), client.decide("approve", "north.csv")
        received = client.received + south.received
    assert cli("cluster", *(f"{n}.csv" for n in NAMES), "-k", 2, "--ignore", "id", "--policy", "standard")[0] == 0
    with Client(RunPage(Folder(Path("coterie-run")))) as client:
        assert client.everything()["state"] == "done"
        received += client.received
    together = "\n".join(received)
    assert len(together) > 10_000
    assert [text for text in (*secrets, str(hospitals.folder), "north.csv", "patient-") if text in together] == []
    assert "federated-kmeans" in together


def test_what_cannot_be_read_is_said_without_its_path_and_words(hospitals):
    reports = []
    hospitals.hold(GROUPS.format("always"))
    run = hospitals.wait(FederatedKMeans(2))
    page = site_page(hospitals, report=reports.append)
    (name,) = re.findall(r'"name": "(preview/[^"]+)"', texts(page.page()))
    rows = Path("north.csv").read_text().splitlines()
    Path("north.csv").write_text("\n".join([*rows, ","]) + "\n")  # missing values, which the order refuses
    assert texts(page.part(name)).count(f"coterie site show {run[:8]}") == 1
    assert "missing values" in reports[-1]
    Path("north.csv").unlink()
    assert page.page().state == "unreadable"
    with Client(page) as client:
        status, answer = client.ask(f"/api/part/{name}")
        assert (status, "terminal" in answer["error"]) == (500, True)
        client.everything()
        assert not [text for text in client.received if str(hospitals.folder) in text or "north.csv" in text]


# ---------------------------------------------------------------- decisions


def test_an_order_is_approved_once_and_a_second_session_is_told(hospitals, cli):
    hospitals.hold(GROUPS.format("first"))
    run, other = (hospitals.wait(FederatedKMeans(2)) for _ in range(2))
    reports = []
    first, second = site_page(hospitals, report=reports.append), site_page(hospitals)
    assert section(first.page(), "waiting")["badge"] == "2"
    shown = texts(first.page())
    assert "later orders of this analyst for this method do not wait" in shown
    assert "a site declined it, and not which one" in shown
    assert first.act("approve", run) == f"Approved: order {run[:8]} of {ANALYST}, federated-kmeans."
    assert reports == [f"Approved: order {run[:8]} of {ANALYST}, federated-kmeans."]
    decided = hospitals.kits["north"].approvals.find(run).decided
    assert section(second.page(), "waiting")["badge"] == "1"
    assert run[:8] in texts(section(second.page(), "decided"))
    again = second.act("approve", run)
    assert re.fullmatch(rf"The order {run[:8]} .* is approved already, since [\d :-]+\. Nothing was changed\.", again)
    with pytest.raises(CannotDo) as refused:
        second.act("refuse", run)
    assert refused.value.status == 409
    assert refused.value.sentence == f"The order {run[:8]} is approved already; a decision cannot be changed."
    assert hospitals.kits["north"].approvals.find(run).decided == decided
    assert "Declined" in cli("site", "refuse", other, *KIT)[1]  # a third session, on a terminal
    assert section(second.page(), "waiting")["badge"] == "0"
    for action, value in (("approve", "0" * 32), ("approve", ""), ("approve", run[:8]), ("delete", run)):
        with pytest.raises(CannotDo) as missing:
            first.act(action, value)
        assert missing.value.status == 404


def test_many_who_decide_at_once_leave_one_decision(hospitals):
    run = hospitals.wait(FederatedKMeans(2))
    said, begin = [], threading.Barrier(6)

    def decide(action):
        page = site_page(hospitals)
        begin.wait()
        try:
            said.append((action, page.act(action, run)))
        except CannotDo as problem:
            said.append((action, problem.sentence))

    threads = [threading.Thread(target=decide, args=(action,)) for action in ("approve", "refuse") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decision = hospitals.kits["north"].approvals.find(run).decision
    won = {"approve": Decision.APPROVED, "refuse": Decision.DECLINED}
    assert len(said) == 6
    for action, sentence in said:
        assert ("already" in sentence and "cannot be changed" in sentence) == (won[action] is not decision)


def test_an_expired_order_has_no_button_and_is_not_approved(hospitals, cli):
    run = hospitals.wait(FederatedKMeans(2, privacy=Privacy(1.0)))
    page = site_page(hospitals)
    assert '"action": "approve"' in texts(page.page())
    assert cli("provision", "--revoke", ANALYST, "--out", "kits")[0] == 0
    assert cli("site", "revoked", "kits/revoked", *KIT)[0] == 0
    shown = texts(page.page())
    assert '"action": "approve"' not in shown
    assert "The order has expired" in shown
    with pytest.raises(CannotDo, match="cannot be approved any more") as expired:
        page.act("approve", run)
    assert expired.value.status == 409
    assert page.act("refuse", run).startswith("Declined")


# ---------------------------------------------------------------- the same facts as on the terminal


def test_the_page_says_what_the_terminal_says(hospitals, cli):
    fitted = hospitals.run(1.0)
    hospitals.hold(POLICY.format(approval="always"))
    runs = [hospitals.wait(FederatedKMeans(2, privacy=Privacy(epsilon))) for epsilon in (2.0, 3.9)]
    page = site_page(hospitals)
    shown = texts(page.page())
    waiting = json.loads(cli("site", "pending", *KIT, "--json")[1])
    assert [order["id"] for order in waiting] == [run[:8] for run in runs]
    for order in waiting:
        takes = f"It would take epsilon = {order['budget']['takes']:.3g} of a budget of 4"
        assert takes in shown
        assert f"Order {order['id']}: federated-kmeans, by {ANALYST}, came {order['came']}" in shown
    assert "Even approved, this site would refuse the order today: less is left of the site's privacy" in shown
    budget = json.loads(cli("site", "budget", *KIT, "--json")[1])
    tiles = dict(section(page.page(), "budget")["blocks"][0]["rows"])
    assert tiles == {name: f"{budget[key]:.3g}" for name, key in
                     (("budget, epsilon", "epsilon"), ("spent", "spent"), ("left for one run", "left"))}  # fmt: skip
    played = json.loads(cli("site", "show", runs[0], *KIT, "--json")[1])["answers"]
    (name, _) = re.findall(r'"name": "(preview/[^"]+)"', shown)
    answers, said = page.part(name)
    assert "example" not in answers.heads
    kinds = [[a["asked"].rpartition(".")[2], a["seen"], a["answer"], a["content"]] for a in played]
    assert [row[:4] for row in answers.rows] == kinds  # sizes depend on the noise
    assert "Nothing was sent." in said.sentences[0]
    told = " ".join(cli("ledger", "show", "kits/sites/north/coterie/ledger.jsonl")[1].split())
    (fold,) = section(page.page(), "runs")["blocks"]
    run, sentences, _, signed = fold["blocks"]
    for sentence in sentences["sentences"]:
        assert sentence in told
    statement = fitted.certificate_.statements["north"].statement
    assert run["rows"] == [["run", statement.run.hex()]]
    facts = dict(signed["rows"])
    assert facts["head"] == f"{statement.lines} {statement.hash.hex()[:8]}"
    assert (facts["verified"], facts["protection"]) == (f"{statement.verified} (all)", "noise")
    status = dict(section(page.page(), "site")["blocks"][0]["rows"])
    assert status["bytes sent"] == f"{json.loads(cli('site', 'status', *KIT, '--json')[1])['bytes_up']:,}"
    assert (status["policy"], "data" in status) == ("site.toml", False)


def test_a_preview_is_asked_for_again_when_policy_or_table_change(hospitals):
    hospitals.wait(FederatedKMeans(2))
    page = site_page(hospitals)
    names = []
    for change in (lambda: None, lambda: None, lambda: hospitals.hold(GROUPS.format("always")),
                   lambda: Path("north.csv").write_text(Path("north.csv").read_text() + "1.0,1.0\n")):  # fmt: skip
        change()
        names += re.findall(r'"name": "(preview/[^"]+)"', texts(page.page()))
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_a_run_is_shown_as_its_events_come(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    page = RunPage(Folder(folder))
    counts = {"outcome": "answered", "bytes_up": 1000, "bytes_down": 10}
    with EventFile(folder / "events.jsonl") as write:
        write(
            {"event": "begin", "time": time.time(), "run": "ab" * 16, "method": "lloyd", "sites": ["north", "south"]}
        )
        for i in range(3):
            sites = {"north": counts, "south": counts if i < 2 else {**counts, "outcome": "late"}}
            about = {"round": i, "phase": "algorithm", "asked": "shared.Assign", "bytes_up": 2000}
            write({"event": "exchange", "time": time.time(), "sites": sites, **about})
            shown = msgspec.to_builtins(page.page())
            tiles = dict(section(page.page(), "run")["blocks"][-1]["rows"])
            assert (tiles["rounds"], tiles["bytes sent by sites"]) == (str(i + 1), f"{2000 * (i + 1):,}")
            (table,) = section(page.page(), "sites")["blocks"]
            assert ("missed" in table["heads"]) == (i == 2)
            assert section(page.page(), "rounds")["blocks"][0]["rows"][0][0] == str(i)
    rows = [dict(zip(table["heads"], row, strict=True)) for row in table["rows"]]
    assert [row["missed"] for row in rows] == ["", "1"]
    assert shown["seconds"] == 5.0  # nobody writes to it any more


def test_a_failed_run_says_why_where_sites_are_why(tmp_path):
    for kind, message, says in (
        ("QuorumLost", "north, south failed: the site holds too few rows to take part", True),
        ("InputError", "/srv/patients.csv: (1) column 'a' holds 'x'", False),
    ):
        folder = tmp_path / kind
        folder.mkdir()
        with EventFile(folder / "events.jsonl") as write:
            write({"event": "begin", "time": 1.0, "run": RUN, "method": "lloyd", "sites": ["north"]})
            write({"event": "failed", "time": 2.0, "kind": kind, "message": message})
        page = RunPage(Folder(folder)).page()
        assert (page.state, page.tone) == ("failed", "bad")
        assert (message in texts(page)) == says
        assert "/srv" not in texts(page)


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize("words", [("site", "console", "kits/sites/north"), ("watch", "coterie-run", "--browser")])
def test_the_commands_serve_until_ctrl_c(hospitals, cli, words):
    hospitals.hold(GROUPS.format("always"))
    if words[0] == "watch":
        assert cli("cluster", *(f"{name}.csv" for name in NAMES), "-k", 2)[0] == 0
    run = "import signal, coterie.cli; signal.signal(signal.SIGINT, signal.default_int_handler); coterie.cli.main()"
    with subprocess.Popen(  # Ctrl-C works, also where tests run in the background of a shell
        [sys.executable, "-u", "-c", run, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            link = process.stdout.readline().split()[-1]
            address, _, token = link.removeprefix("http://").partition("/?token=")
            line = http.client.HTTPConnection(address, timeout=60)
            line.request("GET", "/api/page", headers={"X-Coterie-Token": token})
            assert line.getresponse().status == 200
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, "The page is closed." in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("site", "console", "nowhere"), "nowhere: this is no start-up kit"),
        (("site", "console", "kits/server"), "give the kit of a site"),
        (("site", "console", "a", "--kit", "b"), "name the site's kit once"),
        (("watch", "--browser", "--json"), "leave out --once and --json"),
        (("watch", "--port", "8000"), "add --browser, or leave it out"),
        (("watch", "nowhere", "--browser"), "there is no run to watch"),
    ],
)
def test_what_cannot_be_served_is_said(hospitals, cli, words, told):
    code, _, err = cli(*words)
    assert (code, told in err) == (2, True)
