"""What the README and the docs say is what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import coterie
import coterie_studies
from coterie.examples.demo import demo
from coterie.messages.codec import answer_header_bytes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readmes_numbers_are_the_demonstrations():
    text = (ROOT / "README.md").read_text()
    for c in demo().comparisons:
        numbers = f"{c.ari:.3f} {c.nmi:.3f} {c.cost_ratio:.4f} {c.floats_up:,} {c.bytes_up:,} {c.rounds}"
        assert re.search(rf"^{re.escape(c.way)}\s+" + r"\s+".join(map(re.escape, numbers.split())) + "$", text, re.M)


def test_the_header_is_as_long_as_the_docs_say():
    assert "`65 + len(method)` bytes" in (ROOT / "docs" / "messages.md").read_text()
    assert answer_header_bytes("lloyd") == 65 + len("lloyd")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} points to {target}"


MODULES = [
    module.name
    for package in (coterie, coterie_studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
