"""The local pages in a browser: what a data officer and an analyst see and do."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie import FederatedKMeans
from coterie.cli.console.run_page import RunPage
from coterie.cli.console.server import LocalServer
from coterie.cli.console.site_page import SitePage
from coterie.cli.run_state import Claimed, Folder
from coterie.runtime.events import EventFile
from coterie.sites.approvals import Decision
from tests.cli.conftest import FILES
from tests.cli.hospitals import ANALYST, Hospitals
from tests.cli.test_watching import lines_of

pytest.importorskip("nvflare")
from coterie.engines.nvflare.kits import kit_of

LOOKS = [(width, scheme) for width in (1200, 400) for scheme in ("light", "dark")]


@contextmanager
def serving(pages):
    """A server of pages, in this process."""
    with LocalServer(pages, report=lambda _: None) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def until(look, seconds=20.0):
    """What a look gives once it is there; pages are drawn again when elements that were found have gone."""
    from selenium.common.exceptions import StaleElementReferenceException

    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if found := look():
                return found
        except (StaleElementReferenceException, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError("what was waited for did not come")


def text(browser, selector="body"):
    return browser.one(selector).text


def press(browser, label, within="main"):
    """Click on the first button that is seen under a label."""

    def click():
        shown = [one for one in browser.all(f"{within} button") if one.is_displayed() and one.text == label]
        for one in shown[:1]:
            browser.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", one)
            one.click()
        return shown

    until(click)


@pytest.fixture
def officer(tmp_path, cli):
    """A site with an order that waits, one that was decided, and a run."""
    hospitals = Hospitals(tmp_path, cli)
    hospitals.hold("min_rows = 3")
    hospitals.run(None, max_rounds=2)
    hospitals.hold('min_rows = 3\napproval = "first"')
    decided, *waiting = (hospitals.wait(FederatedKMeans(k)) for k in (3, 4, 5))
    hospitals.kits["north"].decide(decided, Decision.DECLINED)
    hospitals.waiting = waiting
    with serving(SitePage(kit_of(hospitals.kits["north"].folder, "site"), lambda _: None)) as server:
        hospitals.server = server
        yield hospitals


def decision(officer, run):
    return officer.kits["north"].approvals.find(run).decision


def test_an_order_is_read_and_approved_after_its_consequences(browser, officer):
    first, second = officer.waiting
    browser.open(officer.server.link)
    until(lambda: "AskHello" in text(browser, "#waiting"))  # the preview of the order that is open
    assert officer.server.token not in browser.driver.current_url
    shown = text(browser, "#waiting")
    for words in (
        "n_clusters=4",
        "a sum over 3 sites or more",
        "Nothing was sent.",
        f"by {ANALYST}",
        "This order is one more",
    ):
        assert words in shown
    assert text(browser, ".badge") == "2"
    press(browser, "Approve")
    assert "The decision cannot be changed." in text(browser, "#consequences")
    assert browser.run("return document.activeElement.id") == "cancel"
    press(browser, "Cancel", "dialog")
    assert not browser.one("dialog").is_displayed()
    assert decision(officer, first) is Decision.WAITING
    press(browser, "Approve")
    press(browser, "Approve", "dialog")
    until(lambda: f"Approved: order {first[:8]}" in text(browser, "#notice"))
    assert (decision(officer, first), decision(officer, second)) == (Decision.APPROVED, Decision.WAITING)
    until(lambda: text(browser, ".badge") == "1" and first[:8] in text(browser, "#decided"))
    until(lambda: "n_clusters=5" in text(browser, "#waiting"))
    press(browser, "Refuse")
    assert "a site declined it, and not which one" in text(browser, "#consequences")
    press(browser, "Refuse", "dialog")
    until(lambda: "No order waits." in text(browser, "#waiting"))
    assert decision(officer, second) is Decision.DECLINED
    assert browser.errors() == []


def test_a_second_browser_sees_what_the_first_decided_and_cannot_decide_again(browser, officer):
    first, _ = officer.waiting
    browser.open(officer.server.link)
    until(lambda: "AskHello" in text(browser, "#waiting"))
    one = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        browser.open(officer.server.link)
        press(browser, "Approve")
        other = browser.driver.current_window_handle
        browser.driver.switch_to.window(one)
        press(browser, "Refuse")
        press(browser, "Refuse", "dialog")
        until(lambda: "Declined" in text(browser, "#notice"))
        browser.driver.switch_to.window(other)
        until(lambda: first[:8] in text(browser, "#decided"))  # seen, while it asks
        press(browser, "Approve", "dialog")
        said = until(lambda: text(browser, "#notice"))
        assert said == f"The order {first[:8]} is declined already; a decision cannot be changed."
        assert decision(officer, first) is Decision.DECLINED
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(one)


def test_what_was_opened_stays_open_and_a_tab_keeps_its_token(browser, officer):
    browser.open(officer.server.link)
    until(lambda: browser.all("#runs summary"))
    browser.all("#runs summary")[0].click()
    assert "each only in a sum over 3 sites (north, south, west); no per-site results" in text(browser, "#runs")
    assert "What this site signed for the certificate of the run" in text(browser, "#runs")
    officer.run(None, max_rounds=2, order=approved(officer))
    until(lambda: len(browser.all("#runs details")) == 2)
    assert [fold.get_attribute("open") for fold in browser.all("#runs details")] == [None, "true"]
    browser.driver.refresh()
    until(lambda: "Site north" in text(browser))
    browser.driver.switch_to.new_window("tab")
    one, other = browser.driver.window_handles
    try:
        browser.open(officer.server.link.partition("?")[0])  # with the cookie, but without the token
        assert until(lambda: text(browser, "#notice")).startswith("This page needs the link")
        assert browser.all("section") == []
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(one)


def approved(officer):
    """An order that every site approved."""
    order = officer.order(FederatedKMeans(2, max_rounds=2))
    for site in officer.kits.values():
        site.approvals.decision(order, order.read(), "always")
        site.decide(order.read().run, Decision.APPROVED)
    return order


def test_a_page_whose_command_has_ended_says_so(browser, officer):
    browser.open(officer.server.link)
    until(lambda: "Site north" in text(browser))
    officer.server.shutdown()
    officer.server.server_close()
    until(lambda: "has ended or cannot be reached" in text(browser, "#notice"))


def test_the_site_is_readable_at_any_width(browser, officer):
    browser.open(officer.server.link)
    until(lambda: "AskHello" in text(browser, "#waiting"))
    for fold in browser.all("summary")[1:]:
        browser.run("arguments[0].click()", fold)
    until(lambda: len(browser.all("#waiting table")) == 2)
    press(browser, "Approve")
    assert seen_at_any_width(browser) == {look: ([], 0, []) for look in LOOKS}


def seen_at_any_width(browser):
    """By width and scheme: errors, by how much the page is too wide, texts that are too pale."""
    seen = {}
    for width, scheme in LOOKS:
        browser.look(width, scheme)
        seen[width, scheme] = browser.errors(), browser.overflow(), browser.low_contrast()
    return seen


@pytest.fixture
def events(cli, three):
    """The events of a run."""
    assert cli("cluster", *FILES, "-k", 3, "--method", "lloyd", "--set", "tol=0", "--out", "run", "--json")[0] == 0
    return lines_of("run")


def late(line):
    """An exchange in which one site was late."""
    return {**line, "sites": {**line["sites"], "west": {**line["sites"]["west"], "outcome": "late"}}}


def test_a_run_is_seen_as_it_goes_on(browser, events):
    live = Path("live")
    live.mkdir()
    with serving(RunPage(Folder(live))) as server:
        with Claimed(live), EventFile(live / "events.jsonl") as write:
            for line in events[:8]:
                write({**line, "time": time.time()})
            browser.open(server.link)
            until(lambda: text(browser, "#state") == "running")
            rounds = sum(line["event"] == "exchange" for line in events[:8])
            assert browser.all(".tiles dd")[0].text == str(rounds)
            assert "missed" not in text(browser, "#sites")
            write({**late(events[8]), "time": time.time()})
            until(lambda: "missed" in text(browser, "#sites"))
            assert "was late" in text(browser, "#sites")
            for line in events[9:-1]:
                write({**line, "time": time.time()})
            until(lambda: browser.all("#cost svg"))
        until(lambda: text(browser, "#state") == "interrupted")  # nobody holds its folder any more
        assert browser.errors() == []


def test_a_run_is_readable_at_any_width_and_its_chart_answers_the_pointer(browser, events):
    costs = [line for line in events if line["event"] == "cost"]
    with serving(RunPage(Folder(Path("run")))) as server:
        browser.open(server.link)
        until(lambda: text(browser, "#state") == "done")
        assert seen_at_any_width(browser) == {look: ([], 0, []) for look in LOOKS}
        assert text(browser, ".reading").startswith(f"round {costs[-1]['round']}: ")
        browser.run(
            "const s = document.querySelector('svg'), b = s.getBoundingClientRect();"
            "s.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 1, clientY: b.top + 1}))"
        )
        assert text(browser, ".reading").startswith(f"round {costs[0]['round']}: ")
