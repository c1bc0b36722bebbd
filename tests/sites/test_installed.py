"""A site as it is installed: what its owner said, one process at a time, and no run gone on with over other rows."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest

from coterie.errors import InputError, QuorumLost, Untrusted
from coterie.messages.chain import read_chain
from coterie.messages.refusals import Refusal
from coterie.runtime.channel import Outcome
from coterie.runtime.journal import Journal
from coterie.runtime.run import run
from coterie.secure.handshake import ordered_plainly
from coterie.sites import installed
from coterie.sites.installed import Holdings, InstalledSite
from tests.identities import certify
from tests.orders import RUN, an_order, signed

CENTERS = np.array([[0.0, 0.0], [5.0, 5.0]])
LLOYD = {"init": CENTERS.tolist()}
POLICY = 'per_site_results = "averages"\nprotection = "none"\nmin_rows = 1\n'


class Alone:
    """A channel to one installed site."""

    def __init__(self, site):
        self.site, self.asked = site, 0

    def sites(self):
        return (self.site.name,)

    def exchange(self, payloads, timeout):
        self.asked += 1
        return {name: Outcome("answered", self.site.answer(data)) for name, data in payloads.items()}


def run_over(site, parameters=LLOYD, run_=None, **more):
    """A run of an ordered method over one site, sums in the clear."""
    order = an_order("lloyd", parameters, run=run_)
    protocol = ordered_plainly(signed(order), 0)
    return run(protocol, site, method="lloyd", identity=order.identity, **more).result


def write_rows(path, shift=0.0):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(30, 2)), 5 + rng.normal(size=(30, 2))]) + shift
    np.savetxt(path, rows, delimiter=",", header="a,b", comments="")


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "rows.csv")
    (tmp_path / "site.toml").write_text(POLICY)
    made = InstalledSite(tmp_path / "kit")
    certify(tmp_path / "kit", "north")
    made.tell(Holdings(str(tmp_path / "rows.csv"), str(tmp_path / "site.toml")))
    return tmp_path


def test_it_answers_from_its_own_file_by_its_own_rules(folder):
    made = InstalledSite(folder / "kit")
    site = made.open("north")
    found = run_over(Alone(site))
    made.close()
    assert found.counts.tolist() == [30, 30]
    lines = list(read_chain(made.ledger_path))
    asked = [line["asked"] for line in lines if line["event"] == "answer"]
    assert asked[0] == "secure.AskHello"
    assert sum(kind in ("shared.Assign", "shared.Close") for kind in asked) == found.n_rounds + 1
    assert json.loads(made.log_path.read_text().splitlines()[0])["site"] == "north"


def test_what_is_told_is_kept_with_whole_paths_for_its_owner_alone(folder, monkeypatch):
    monkeypatch.chdir(folder)
    made = InstalledSite(folder / "kit")
    made.tell(Holdings("rows.csv", "site.toml", ignore=["b"]))
    held = made.holdings()
    assert held.data == str(folder / "rows.csv")
    assert held.policy == str(folder / "site.toml")
    assert [column.name for column in held.table().columns] == ["a"]
    assert stat.S_IMODE((folder / "kit" / "local" / "coterie.json").stat().st_mode) == 0o600


def test_what_cannot_be_opened_is_not_told(folder):
    made = InstalledSite(folder / "kit")
    before = made.holdings()
    for held, words in (
        (Holdings(str(folder / "none.csv")), "no such file"),
        (Holdings(before.data, "standrad"), "did you mean 'standard'"),
        (Holdings(before.data, ignore=["c"]), "c"),
    ):
        with pytest.raises(InputError, match=words):
            made.tell(held)
    assert made.holdings() == before


def test_a_site_nobody_told_anything_says_how_to(tmp_path):
    with pytest.raises(InputError, match="coterie site start"):
        InstalledSite(tmp_path).holdings()


def test_a_site_answers_once(folder, monkeypatch):
    monkeypatch.setattr(installed, "PATIENCE", 0.3)
    first = InstalledSite(folder / "kit")
    first.open("north")
    with pytest.raises(InputError, match="answers once"):
        InstalledSite(folder / "kit").open("north")
    first.close()
    second = InstalledSite(folder / "kit")
    second.open("north")
    second.close()


def interrupted(folder, rounds):
    """A run over the site that is killed after so many exchanges."""
    made = InstalledSite(folder / "kit")
    channel = Alone(made.open("north"))

    def watch(_):
        if channel.asked == rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_over(channel, run_=RUN, journal=Journal(folder / "journal"), watch=watch)
    made.close()


def resumed(folder):
    made = InstalledSite(folder / "kit")
    try:
        journal = Journal(folder / "journal", resume=True)
        return run_over(Alone(made.open("north")), run_=RUN, journal=journal)
    finally:
        made.close()


def test_a_run_goes_on_over_the_same_rows(folder):
    interrupted(folder, 2)
    assert resumed(folder).counts.tolist() == [30, 30]


def test_a_run_is_not_gone_on_with_over_other_rows(folder):
    interrupted(folder, 2)
    write_rows(folder / "rows.csv", shift=0.1)
    with pytest.raises(QuorumLost) as refused:
        resumed(folder)
    assert refused.value.outcomes["north"].refusal is Refusal.OTHER_ROWS
    made = InstalledSite(folder / "kit")  # a new run is none of that
    assert run_over(Alone(made.open("north"))).counts.tolist() == [30, 30]
    made.close()


def test_a_site_without_a_certificate_or_with_another_s_does_not_start(folder):
    kit = folder / "kit"
    with pytest.raises(Untrusted, match="site south is not signed"):
        InstalledSite(kit).open("south")
    assert InstalledSite(kit).identity("north").certificate.signing_key
    assert stat.S_IMODE((kit / "startup" / "identity" / "key").stat().st_mode) == 0o600
    (kit / "startup" / "identity" / "certificate").write_text("c29tZXRoaW5n\n")
    with pytest.raises(InputError, match="the certificate cannot be read"):
        InstalledSite(kit).identity("north")
    (kit / "startup" / "identity" / "certificate").unlink()
    with pytest.raises(InputError, match="has no certificate for a signing key"):
        InstalledSite(kit).identity("north")


# ---------------------------------------------------------------- categories


def write_wards(path, icu):
    wards = ["icu"] * icu + ["maternity"] * 20 + ["rare"] * 4
    path.write_text("a,ward\n" + "".join(f"{i},{ward}\n" for i, ward in enumerate(wards)))


def names_of(table):
    return [column.name for column in table.columns]


def test_a_site_names_its_categories_once(tmp_path):
    """A name that came later would tell that rows were added."""
    path, site = tmp_path / "wards.csv", InstalledSite(tmp_path / "kit")
    write_wards(path, icu=6)
    assert names_of(site.tell(Holdings(str(path)))) == ["a", "ward=icu", "ward=maternity"]
    write_wards(path, icu=0)
    path.write_text(path.read_text() + "".join(f"{i},new\n" for i in range(9)))
    again = InstalledSite(tmp_path / "kit")
    assert names_of(again.holdings().table()) == ["a", "ward=icu", "ward=maternity"]
    assert names_of(again.tell(again.holdings())) == ["a", "ward=icu", "ward=maternity"]
    other = Holdings(str(path), categories={"ward": ["icu", "maternity", "new", "rare"]})
    assert names_of(again.tell(other))[1:] == ["ward=icu", "ward=maternity", "ward=new", "ward=rare"]


def test_names_that_too_few_rows_hold_do_not_outlive_a_stricter_policy(tmp_path):
    path, rules, site = tmp_path / "wards.csv", tmp_path / "site.toml", InstalledSite(tmp_path / "kit")
    write_wards(path, icu=6)
    rules.write_text('protection = "none"\n')
    open_ = Holdings(str(path), policy=str(rules))
    assert names_of(site.tell(open_)) == ["a", "ward=icu", "ward=maternity", "ward=rare"]
    rules.write_text("min_group = 5\n")
    assert names_of(site.tell(site.holdings())) == ["a", "ward=icu", "ward=maternity"]
    rules.write_text("min_group = 7\n")
    assert names_of(site.tell(site.holdings())) == ["a", "ward=maternity", "ward=other"]
    rules.write_text("min_group = 5\n")
    assert names_of(site.tell(site.holdings())) == ["a", "ward=maternity", "ward=other"]


def test_a_site_that_lists_categories_names_none(tmp_path):
    path, rules = tmp_path / "wards.csv", tmp_path / "site.toml"
    write_wards(path, icu=6)
    rules.write_text('levels = "listed"\n')
    with pytest.raises(InputError, match="column 'ward' holds text"):
        InstalledSite(tmp_path / "kit").tell(Holdings(str(path), policy=str(rules)))
