"""A run over a federation ends with the same page as one in this process: the server's numbers, and no row."""

from __future__ import annotations

import re

import numpy as np
import pytest

from coterie.report.page import write_page
from tests.report.test_in_browser import check_renders

from .federations import dealt_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

CASES = {
    "k-means": ("federated-kmeans", {"n_clusters": 6}),
    "landmarks": ("landmarks", {"n_clusters": 6, "n_components": 6, "gamma": 0.2}),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_page_over_processes(standing, browser, case):
    standing.hold(dealt_rows(standing.folder))
    found = standing.run(standing.order(*CASES[case], sums="masked", profile=True))
    page = found.folder / "report.html"
    check_renders(browser, page)
    text = page.read_text()
    date = re.compile("<time.*</time>")
    assert date.sub("", write_page(found.folder).read_text()) == date.sub("", text)
    sections = browser.run("return [...document.querySelectorAll('main > section')].map(e => e.id)")
    assert sections == ["clusters", "map", "quality", "cost", "disclosed", "settings"]
    assert len(browser.all(".heat tbody tr")) == 64
    assert len(browser.all("svg.map g[data-cluster]")) == 6
    told = browser.one("#disclosed").text
    assert "Verified: every site ran the ordered method itself" in told
    assert "5 of 5 sites signed what they did" in told
    assert "the federation's authority" in told
    for folder in {path.parent for path in standing.tables.values()}:
        assert str(folder) not in text
    assert np.sum(found.result["counts"]) == 900
