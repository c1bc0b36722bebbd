"""Pages of runs as a person meets them: in Chromium, by mouse and by keyboard, light and dark, wide and narrow."""

from __future__ import annotations

import base64
import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from coterie.report.page import SECTIONS
from tests.browser import Browser
from tests.report.runs import QUICK

pytestmark = pytest.mark.xdist_group("browser")
LARGEST = 3_000_000
WITHOUT: dict[str, set[str]] = {"choice": {"clusters", "map"}}
"""Sections that a kind of run does not have; none has other runs unless it is asked for."""
SLOW_KINDS = [
    pytest.param("columns", marks=pytest.mark.slow),
    pytest.param("phones", marks=[pytest.mark.slow, pytest.mark.data]),
]
UNNAMED = """
const named = e => e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim();
return [...document.querySelectorAll('svg:not([aria-hidden]), button, input, select, a, [tabindex="0"], section')]
  .filter(e => !named(e)).map(e => e.outerHTML.slice(0, 80));
"""
"""What a screen reader could not name."""
INK_ON_SHAPES = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function light(colour) {
  canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
const name = document.querySelector('.map .name'), circle = name.parentElement.querySelector('circle');
return [...Array(8).keys()].map(i => {
  circle.setAttribute('class', `c${i}`);
  const [a, b] = [light(getComputedStyle(name).fill), light(getComputedStyle(circle).fill)].sort((x, y) => y - x);
  return (a + .05) / (b + .05);
});
"""
"""Contrast of a cluster's name on each of the colours."""


def check_renders(browser: Browser, page: Path) -> None:
    """In all widths and schemes: no errors, nothing cut off, every text readable, every control named."""
    for width, scheme in product((1200, 400), ("light", "dark")):
        browser.open(page, width=width, scheme=scheme)
        browser.run("document.querySelectorAll('details').forEach(part => { part.open = true })")
        assert browser.errors() == []
        assert browser.overflow() <= 0
        assert browser.low_contrast() == []
    assert browser.run(UNNAMED) == []
    ids = browser.run("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = browser.run("return [...document.querySelectorAll('a')].map(e => e.getAttribute('href'))")
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert len(browser.all("h1")) == 1
    assert page.stat().st_size < LARGEST


@pytest.mark.parametrize("kind", [*QUICK, *SLOW_KINDS])
def test_every_page_renders(browser, finished, kind, request):
    if kind == "phones":
        request.getfixturevalue("data_folder")
    page = finished(kind) / "report.html"
    check_renders(browser, page)
    sections = browser.run("return [...document.querySelectorAll('main > section')].map(e => e.id)")
    assert sections == [name for name in SECTIONS if name not in WITHOUT.get(kind, set()) | {"compared"}]
    assert "component0" not in page.read_text()
    assert not browser.all("img")


@pytest.fixture
def heart(browser: Browser, finished: Any) -> Browser:
    """The page of the hospitals."""
    browser.open(finished("heart") / "report.html")
    return browser


def column(browser: Browser, place: int) -> list[str]:
    """The texts of a column of the heat map, as they are shown."""
    rows = "[...document.querySelectorAll('.heat tbody tr')].filter(row => !row.hidden)"
    script = f"return {rows}.map(row => row.cells[arguments[0]].textContent)"
    return list(browser.run(script, place))


def test_columns_are_sorted_by_what_is_clicked(heart):
    shares = [float(text.removesuffix(" %")) for text in column(heart, 1)]
    assert shares == sorted(shares, reverse=True)
    heads = heart.all(".heat thead th")
    heads[0].find_element("css selector", "button").click()
    assert column(heart, 0) == sorted(column(heart, 0), key=str.lower)
    assert heads[0].get_attribute("aria-sort") == "ascending"
    heads[3].find_element("css selector", "button").click()  # cluster 1, by its difference from all rows
    heart.run("const s = document.getElementById('show'); s.value = 1; s.dispatchEvent(new Event('change'))")
    differences = [float(text) for text in column(heart, 3)]
    assert differences == sorted(differences, reverse=True)
    heads[3].find_element("css selector", "button").click()
    assert [float(text) for text in column(heart, 3)] == differences[::-1]
    assert heads[0].get_attribute("aria-sort") is None
    assert heart.errors() == []


def test_columns_are_filtered_by_name_and_cells_switched(heart):
    field = heart.one("#filter")
    whole = column(heart, 0)
    field.send_keys("Thal")
    assert set(column(heart, 0)) == {name for name in whole if "thal" in name} != set()
    drawn = heart.run(
        "return [...document.querySelectorAll('figure')].filter(f => f.checkVisibility()).map(f => f.dataset.name)"
    )
    assert set(drawn) == set(column(heart, 0))  # those in the fold are unfolded
    assert heart.one("#filter-count").text == f"{len(drawn)} of {len(whole)} columns"
    field.clear()
    field.send_keys("x")
    heart.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    assert column(heart, 0) == whole
    means = column(heart, 2)
    heart.all("#show option")[-1].click()
    assert column(heart, 2) != means
    assert all(text == "-" or float(text.replace(",", "")) >= 0 for text in column(heart, 2))  # missing values
    heart.all("#show option")[0].click()
    assert column(heart, 2) == means


def test_details_come_by_mouse_and_by_arrow_keys(heart):
    from selenium.webdriver import ActionChains, Keys

    details, cells = heart.one("#cell-details"), heart.all(".heat tbody tr:first-child td[data-v]")
    ActionChains(heart.driver).move_to_element(cells[1]).perform()
    name = column(heart, 0)[0]
    assert details.text.startswith(f"{name}, cluster 1: mean or share {cells[1].text}, difference in sd ")
    assert len(heart.all("thead th.lit[data-cluster='1'], .multiples g.lit[data-cluster='1']")) > 2
    heart.run("arguments[0].focus()", cells[0])
    ActionChains(heart.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    assert details.text.startswith(f"{column(heart, 0)[1]}, cluster 1: ")
    assert heart.run("return document.querySelectorAll('.heat td[tabindex=\"0\"]').length") == 1


def test_details_stay_in_sight_of_the_last_cell(heart):
    heart.run("arguments[0].scrollIntoView({block: 'end'}); arguments[0].focus()", heart.all(".heat td[data-v]")[-1])
    box = heart.run("return document.getElementById('cell-details').getBoundingClientRect().toJSON()")
    assert box["top"] >= 0
    assert box["bottom"] < 300


def test_clusters_on_the_map_are_reached_by_tab_and_marked_elsewhere(heart):
    from selenium.webdriver import ActionChains, Keys

    groups = heart.all("svg.map g[data-cluster]")
    assert {group.get_attribute("data-cluster") for group in groups} == {"0", "1", "2", "3"}
    heart.run("arguments[0].focus()", groups[0])
    for group in groups[:2]:
        cluster = group.get_attribute("data-cluster")
        assert heart.one("#map-details").text.startswith(f"cluster {cluster}: ")
        assert [row.get_attribute("data-cluster") for row in heart.all("tr.lit")] == [cluster]
        ActionChains(heart.driver).send_keys(Keys.TAB).perform()


def test_the_theme_is_chosen_and_the_log_unfolded(heart):
    button, paper = heart.one("#theme"), "return getComputedStyle(document.body).backgroundColor"
    light = heart.run(paper)
    button.click()
    assert (button.text, heart.run(paper)) == ("Theme: light", light)
    button.click()
    assert button.text == "Theme: dark"
    assert heart.run(paper) != light
    assert heart.low_contrast() == []
    button.click()
    assert (button.text, heart.run(paper)) == ("Theme: as the system", light)
    log = heart.one("#wire-log")
    assert not log.find_element("css selector", "table").is_displayed()
    log.find_element("css selector", "summary").click()
    assert log.find_element("css selector", "table").is_displayed()


def test_names_of_clusters_can_be_read_on_their_colours(heart, finished):
    for scheme in ("light", "dark"):
        heart.open(finished("heart") / "report.html", scheme=scheme)
        assert min(heart.run(INK_ON_SHAPES)) >= 4.5


def test_paper_shows_what_is_folded(heart):
    pdf = heart.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert base64.b64decode(pdf).startswith(b"%PDF")
    assert heart.run("return [...document.querySelectorAll('details')].every(part => part.open)")
    heart.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not [item.text for item in heart.all(".controls, nav") if item.is_displayed()]
        assert heart.low_contrast() == []
    finally:
        heart.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_page_runs_its_own_script_and_no_other(browser, finished, tmp_path):
    page = tmp_path / "changed.html"
    text = (finished("heart") / "report.html").read_text()
    page.write_text(text.replace("</body>", "<script>document.title = 'taken over'</script></body>"))
    browser.open(page)
    assert browser.driver.title != "taken over"
    assert [line for line in browser.errors() if "Content Security Policy" in line]
    assert browser.run("return document.documentElement.classList.contains('js')")


def test_without_scripts_all_numbers_are_there(browser, finished, tmp_path):
    text = (finished("heart") / "report.html").read_text()
    page = tmp_path / "plain.html"
    page.write_text(re.sub("<script>.*</script>", "", text, flags=re.DOTALL))
    browser.open(page)
    assert not browser.one("#filter").is_displayed()
    assert browser.all(".heat tbody td")[0].is_displayed()
    assert browser.low_contrast() == []


def test_names_are_text_and_never_markup(browser, tmp_path):
    from tests.federations import blobs
    from tests.report.runs import run, written

    names = ("<img src=x onerror=alert(1)>", '"it\'s" </script><b>', "a & b|c")
    quoted = [f'"{name}"'.replace('"it\'s"', '""it\'s""') for name in names]
    folder = run(tmp_path, written(tmp_path, blobs(90, 3, 2, seed=1), quoted), clusters=2)
    check_renders(browser, folder / "report.html")
    assert set(column(browser, 0)) == set(names)
    assert not browser.all("img, main b")


def test_rows_are_shown_to_the_owner_of_all_data_who_asks(browser, tmp_path):
    from tests.federations import blobs
    from tests.report.runs import run, written

    data = written(tmp_path, blobs(90, 3, 2, seed=1), "abc")
    folder = run(tmp_path, data, clusters=2, policy="simulation", show_rows=True)
    check_renders(browser, folder / "report.html")
    assert len(browser.all("svg.map .dots circle")) == 90
    assert "This page shows single rows" in browser.one("#disclosed").text
    assert (folder / "report.html").stat().st_mode & 0o077 == 0
    copied = shutil.copytree(folder, tmp_path / "copy")
    from coterie.report.page import write_page

    browser.open(write_page(copied))
    assert not browser.all("svg.map .dots circle")
