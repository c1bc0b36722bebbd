"""A server that introduces sites of its own making, to be the only other member of a site's sums."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import InProcess, in_process
from coterie.errors import QuorumLost, Untrusted
from coterie.messages.identity import Authority, Identity, Trust
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import total
from coterie.methods.shared.lloyd import Assign
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.declared import Declared
from tests.identities import identity

NAMES = tuple("abcd")
ROWS = {name: np.random.default_rng(ord(name)).normal(size=(40, 2)) for name in NAMES}
CENTERS = np.array([[-1.0, 0.0], [1.0, 0.0]])
KNOWN = np.zeros((40, 2))


def made_up(name, authority=None):
    """A site that is the server's own, under a real one's name: rows and keys are known to the server."""
    own = Identity.certified_by(authority or Authority(), name, bytes(32))
    return Site(name, ArrayTable(KNOWN), policy=Policy(verification="off", rosters="any"), identity=own)


def real(name, **options):
    return Site(
        name,
        ArrayTable(ROWS[name]),
        policy=Policy(verification="off", protection="none"),
        identity=identity(name),
        **options,
    )


def own_sums(sites):
    """What the server computes of the first site: the sum over all less what its own sites sent."""
    with InProcess(sites) as channel:
        layers = [Declared({"rows": 100, "box": 100.0}), MaskedSums()]
        found = run(total(Assign(CENTERS)), channel, method="lloyd", layers=layers)
    return found.sums.sum(axis=0)  # its own rows are all zero


def test_without_signatures_a_server_reads_every_site_s_sums(monkeypatch):
    """The control: two sites of the server's own and one that believes it."""
    monkeypatch.setattr(Trust, "check_card", lambda *_: None)
    for name in NAMES:
        others = [other for other in NAMES if other != name][:2]
        np.testing.assert_allclose(own_sums([real(name), *map(made_up, others)]), ROWS[name].sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("authority", ["another", "a site's own key"])
def test_a_site_refuses_others_that_its_authority_did_not_certify(authority):
    """Neither an authority of the server's own nor a certified site's key makes a site."""
    signing = Authority(identity("b").key) if authority == "a site's own key" else Authority()
    site = real("a")
    with pytest.raises(QuorumLost) as caught:
        own_sums([site, made_up("b", signing), made_up("c", signing)])
    assert caught.value.outcomes["a"].refusal is Refusal.UNTRUSTED
    assert site.ledger.total("floats_up") == 0


def test_nobody_takes_part_without_a_certificate():
    sites = [
        Site(name, ArrayTable(ROWS[name]), policy=Policy(verification="off", protection="none")) for name in "abc"
    ]
    with pytest.raises(QuorumLost) as caught:
        own_sums(sites)
    assert {outcome.refusal for outcome in caught.value.outcomes.values()} == {Refusal.UNTRUSTED}


def test_once_sums_began_nobody_new_is_introduced_but_those_left_may_be(tmp_path):
    """A second introduction in a run: as the first, or of fewer sites; also after the site was started again."""
    from coterie.sites.ledger import SiteLedger
    from tests.attacks.asker import MaskedAsker

    def started(name):
        return real(name, ledger=SiteLedger(tmp_path / f"{name}.jsonl"))

    sites = {name: started(name) for name in NAMES[:3]}
    cards = {name: site.card() for name, site in sites.items()} | {"d": real("d").card()}
    other_key = identity("b").card(bytes(range(32)))
    site = sites["a"]

    def accepts(**introduced):
        try:
            site.meet(b"r" * 16, introduced)
        except Untrusted:
            return False
        return True

    asker = MaskedAsker(sites)
    assert accepts(**cards)  # nothing was summed yet
    assert accepts(**{name: cards[name] for name in "abc"})
    assert not isinstance(asker.upload(Assign(CENTERS), "abc", {"rows": 100, "box": 100.0}).found["a"], Refusal)
    for _ in range(2):
        assert accepts(**{name: cards[name] for name in "abc"})
        assert accepts(**{name: cards[name] for name in "ab"})
        assert not accepts(**cards)
        assert not accepts(a=cards["a"], b=other_key, c=cards["c"])
        site.ledger.close()
        site = started("a")
    site.ledger.close()


def test_a_site_says_when_the_key_of_another_has_changed_since_an_earlier_run(caplog):
    site, changed = real("a"), Identity.certified_by(Authority(bytes(range(100, 132))), "b", bytes(32))
    site.meet(b"1" * 16, {"a": site.card(), "b": identity("b").card(bytes(range(32)))})
    site.meet(b"2" * 16, {"a": site.card(), "b": identity("b").card(bytes(range(32)))})
    assert not caplog.records
    site.meet(b"3" * 16, {"a": site.card(), "b": changed.card(bytes(range(32)))})
    assert "the signing key of b has changed" in caplog.text


def test_in_one_process_every_site_has_an_identity_of_one_authority(tmp_path):
    tables = {name: ArrayTable(ROWS[name]) for name in NAMES}
    for _ in range(2):  # kept over a restart, so that a resumed run goes on
        with in_process(tables, folder=tmp_path) as channel:
            cards = {name: site.card() for name, site in channel.members.items()}
            for site in channel.members.values():
                site.meet(bytes(16), cards)
