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
from coterie.sites.policy_files import PRESETS, preset

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


WORDS = {
    "groups": lambda p: f"{p.min_group} rows",
    "per_site_results": lambda p: {"none": "no number from its rows", "averages": "its sums and averages"}[
        p.per_site_results
    ],
    "min_roster": lambda p: str(p.min_roster),
    "rosters": lambda p: {"fixed": "always the same", "shrinking": "some may drop out", "any": "any"}[p.rosters],
    "verification": lambda p: "yes" if p.verifies else "no",
    "max_questions": lambda p: f"{p.max_questions:,}, {p.max_runs}" if p.max_questions else "no limit",
    "orders_may_choose": lambda p: (
        ", ".join(name for name in ("points", "ranges", "parameters") if name in p.orders_may_choose) or "nothing"
    ),
    "approval": lambda p: {"first": "an analyst's first for a method", "automatic": "none"}[p.approval],
    "min_rows": lambda p: str(p.min_rows) if p.min_rows else "0, but one group",
}
"""What the threat model says of a policy, in the order of its table."""


@pytest.mark.parametrize(("place", "name"), list(enumerate(PRESETS, start=1)))
def test_the_threat_models_table_is_what_the_policies_say(place, name):
    table = (ROOT / "docs" / "threat-model.md").read_text().split("| rule | `strict` | `standard` | `research` |")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n\n")[0].splitlines()[2:]]
    assert [row[place] for row in rows] == [words(preset(name)) for words in WORDS.values()]


def test_tests_that_the_threat_model_names_are_there():
    named = re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", (ROOT / "docs" / "threat-model.md").read_text())
    found = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 15
    for name in named:
        assert Path(name).name in found, name
        assert "/" not in name or (ROOT / name).exists(), name


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
