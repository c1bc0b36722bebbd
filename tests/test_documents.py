"""What the README and the docs say is what happens."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil
import re
from pathlib import Path
from statistics import NormalDist

import pytest
from benchmarks.__main__ import BENCHMARKS

import coterie
import coterie_studies
from coterie.examples.demo import demo
from coterie.maths.accounting import epsilon_of, mu_of
from coterie.messages.codec import answer_header_bytes
from coterie.sites.policy_files import PRESETS, preset
from coterie_studies.registry import STUDIES

ROOT = Path(__file__).parents[1]
MADE = {ROOT / "docs" / "_build", ROOT / "docs" / "_generated"}
"""Where a build of the docs writes."""
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if not MADE & {*page.parents})


def test_the_readmes_numbers_are_the_demonstrations():
    text = (ROOT / "README.md").read_text()
    for c in demo().comparisons:
        numbers = f"{c.ari:.3f} {c.nmi:.3f} {c.cost_ratio:.4f} {c.floats_up:,} {c.bytes_up:,} {c.rounds}"
        assert re.search(rf"^{re.escape(c.way)}\s+" + r"\s+".join(map(re.escape, numbers.split())) + "$", text, re.M)


def test_the_header_is_as_long_as_the_docs_say():
    assert "`65 + len(method)` bytes" in (ROOT / "docs" / "messages.md").read_text()
    assert answer_header_bytes("lloyd") == 65 + len("lloyd")


WORDS = {
    "groups": lambda p: (
        f"none: noise, epsilon {p.privacy.epsilon:g}" if p.protection == "noise" else f"{p.min_group} rows"
    ),
    "per_site_results": lambda p: {"none": "no number from its rows", "averages": "its sums and averages"}[
        p.per_site_results
    ],
    "min_roster": lambda p: str(p.min_roster),
    "rosters": lambda p: {"fixed": "always the same", "shrinking": "some may drop out", "any": "any"}[p.rosters],
    "verification": lambda p: "yes" if p.verifies else "no",
    "max_questions": lambda p: f"{p.max_questions:,}, {p.max_runs}" if p.max_questions else "no limit",
    "orders_may_choose": lambda p: (
        ", ".join(name for name in ("points", "ranges", "parameters") if name in p.orders_may_choose)
        or ("nothing but ranges" if p.protection == "noise" else "nothing")
    ),
    "approval": lambda p: {"first": "an analyst's first for a method", "automatic": "none"}[p.approval],
    "min_rows": lambda p: str(p.min_rows) if p.min_rows or p.protection == "noise" else "0, but one group",
}
"""What the threat model says of a policy, in the order of its table."""


@pytest.mark.parametrize(("place", "name"), list(enumerate(PRESETS, start=1)))
def test_the_threat_models_table_is_what_the_policies_say(place, name):
    table = (
        (ROOT / "docs" / "threat-model.md")
        .read_text()
        .split("| rule | `private` | `strict` | `standard` | `research` |")[1]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n\n")[0].splitlines()[2:]]
    assert [row[place] for row in rows] == [words(preset(name)) for words in WORDS.values()]


def test_what_epsilon_means_in_numbers_is_what_the_formulas_give():
    text = (ROOT / "docs" / "privacy.md").read_text()
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        mu, factor = mu_of(epsilon, 1e-6), math.exp(epsilon)
        coin, suspicion = NormalDist().cdf(mu / 2), 0.01 * factor / (0.99 + 0.01 * factor)
        row = f"| {epsilon:g} | {factor:.3g} | {100 * coin:.1f} % | {100 * suspicion:.1f} % | {1 / mu:.1f} |"
        assert row in text
    runs = [int(mu_of(4, 1e-6) ** 2 / mu_of(epsilon, 1e-6) ** 2) for epsilon in (1, 2, 0.5)]
    assert "enough for {} runs of epsilon 1, or {} of epsilon 2, or {} of epsilon 0.5".format(*runs) in text
    two = epsilon_of(mu_of(1.0, 1e-6) * 2**0.5, 1e-6)
    assert f"two budgets of epsilon 1 are together at most one of epsilon {math.ceil(100 * two) / 100}" in text


def test_tests_that_the_threat_model_names_are_there():
    named = re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", (ROOT / "docs" / "threat-model.md").read_text())
    found = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 15
    for name in named:
        assert Path(name).name in found, name
        assert "/" not in name or (ROOT / name).exists(), name


def prose(page: Path) -> str:
    """A page without its blocks and pieces of code."""
    return re.sub(r"(`+)[^`].*?\1", "", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), flags=re.S)


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may be: as on the web and in a repository's view."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(<?([^)>]+)>?\)", prose(page)):
        if re.match(r"\w+:", target):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./~%@?=&#+-]*)?", target), target
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if there.parent.name == "_generated":  # a build makes it
            there = ROOT / "docs" / "gallery" / f"{there.stem.partition('-')[0]}.py"
        assert there.exists(), f"{page.name} points to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} points to {target}"


def test_the_readmes_other_numbers_are_those_of_the_pages_it_names():
    table = (ROOT / "README.md").read_text().split("\n## Numbers\n\n")[1].split("\n\n")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) >= 4
    for claim, about, made_by in rows:
        (command,) = re.findall(r"`(.*)`", made_by)
        kind, name = command.rsplit(" ", 1)
        known = {"python -m benchmarks": BENCHMARKS, "coterie reproduce": STUDIES}
        assert name in known[kind] if kind in known else (ROOT / name).is_dir(), command
        pages = [ROOT / target.partition("#")[0] for target in re.findall(r"\]\(([^)]*)\)", about)]
        stated = re.findall(r"\d[\d,.]*\d", claim + re.sub(r"\]\([^)]*\)", "", about))
        for number in stated:
            assert any(number in page.read_text() for page in pages), f"{number} is on none of {pages}"


MODULES = [
    module.name
    for package in (coterie, coterie_studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
