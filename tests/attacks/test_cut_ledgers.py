"""Someone at a site cuts, deletes or replaces its ledger, so that budgets begin anew and nobody knows what left."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing

import msgspec
import numpy as np
import pytest

from coterie import FederatedKMeans
from coterie.cli.certificates import check_signature
from coterie.engines.inprocess import InProcess
from coterie.errors import LedgerBroken, QuorumLost
from coterie.estimators.fitting import fit_over
from coterie.messages.chain import head_path, read_chain, read_open_chain
from coterie.messages.heads import Head
from coterie.messages.refusals import Refusal
from coterie.methods.shared.preparation import PreparationOptions
from coterie.secure import handshake as server
from coterie.sites import ledger as ledgers
from coterie.sites.installed import Holdings, InstalledSite
from coterie.sites.ledger import NO_RUN, SiteLedger
from coterie.sites.peers import MOST_HEADS, Peers
from tests.federations import blobs
from tests.identities import certify, identity
from tests.orders import ANALYST

NAMES = ("a", "b", "c", "d")
MAX_RUNS = 2


class Organisations:
    """Four kits in four folders, whose policies allow two runs."""

    def __init__(self, folder):
        policy = folder / "policy.toml"
        policy.write_text(f"max_runs = {MAX_RUNS}\n")
        rows = blobs(160, 2, 2, seed=3)
        self.kits = {}
        for name, part in zip(NAMES, np.array_split(rows, 4), strict=True):
            np.savetxt(folder / f"{name}.csv", part, delimiter=",", header="x,y", comments="")
            certify(folder / name, name)
            self.kits[name] = InstalledSite(folder / name)
            self.kits[name].tell(Holdings(str(folder / f"{name}.csv"), str(policy)))

    def run(self):
        """One run over all sites, each of which is started for it; the estimator, or how it was refused."""
        sites = []
        try:
            sites += [kit.open(name) for name, kit in self.kits.items()]
            with InProcess(sites, analyst=ANALYST) as channel:
                columns = {"a": sites[0]._tables["groups"].columns}
                estimator = FederatedKMeans(2, init=np.eye(2), max_rounds=2)
                return fit_over(channel, estimator, columns, PreparationOptions(), order=channel.analyst)
        except QuorumLost as stop:
            return {name: outcome.refusal for name, outcome in stop.outcomes.items() if outcome.refusal}
        finally:
            for kit in self.kits.values():
                kit.close()

    @property
    def path(self):
        return self.kits["a"].ledger_path


def cut(path, copy):
    """Ten lines, and a head file that fits them; with the signature of an old copy, which is of fewer lines."""
    lines = path.read_bytes().splitlines(keepends=True)[:10]
    path.write_bytes(b"".join(lines))
    chain = msgspec.json.decode(lines[-1])["chain"]
    head_path(path).write_text(f"{10:020d} {chain}\n{ledgers.read_seal(copy) if copy else ''}")


def delete(path, copy):
    path.unlink()
    head_path(path).unlink()


def put_back(path, copy):
    shutil.copy(copy, path)
    shutil.copy(head_path(copy), head_path(path))


WAYS = (cut, delete, put_back)


@pytest.fixture
def places(tmp_path):
    """After two runs, with a copy of the ledger from before the first."""
    made = Organisations(tmp_path)
    made.kits["a"].open("a")
    made.kits["a"].close()
    made.copy = tmp_path / "copy.jsonl"
    shutil.copy(made.path, made.copy)
    shutil.copy(head_path(made.path), head_path(made.copy))
    for _ in range(MAX_RUNS):
        assert made.run().cluster_centers_.shape == (2, 2)
    return made


def test_budgets_end_runs(places):
    assert places.run() == dict.fromkeys(NAMES, Refusal.TOO_MANY_QUESTIONS)


def without_the_mechanism(monkeypatch):
    monkeypatch.setattr(ledgers, "check_signed_head", lambda *_, **__: None)
    monkeypatch.setattr(SiteLedger, "contradicts", lambda *_: False)


@pytest.mark.parametrize("way", WAYS)
def test_without_signed_heads_and_witnesses_a_budget_begins_anew(places, monkeypatch, way):
    """The control: three sites have answered two runs, and the fourth says it has answered fewer."""
    without_the_mechanism(monkeypatch)
    way(places.path, places.copy)
    assert places.run().keys() == {"b", "c", "d"}  # not a


@pytest.mark.parametrize("way", WAYS)
def test_others_remember_what_the_ledger_held(places, caplog, way):
    n_lines = len(read_chain(places.path))
    way(places.path, places.copy)
    for kit in places.kits.values():  # the others may answer more runs
        kit.tell(Holdings(kit.holdings().data))
    assert places.run() == {"a": Refusal.LEDGER_BROKEN}
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "its ledger does not hold them" in said[0].getMessage()
    assert places.kits["a"].breaks() == (0, True)  # it is in the ledger
    grown = len(read_chain(places.path))
    assert grown < n_lines
    assert places.run() == {"a": Refusal.LEDGER_BROKEN}  # nor in the next run, after a restart

    assert places.kits["a"].acknowledge("a") == 1
    assert places.kits["a"].breaks() == (1, False)
    for _ in range(2):
        statements = places.run().certificate_.statements
        assert {name: signed.statement.breaks for name, signed in statements.items()} == {
            "a": 1,
            "b": 0,
            "c": 0,
            "d": 0,
        }


def test_a_second_break_is_found_like_the_first(places):
    for kit in places.kits.values():
        kit.tell(Holdings(kit.holdings().data))
    for n_breaks in (1, 2):
        delete(places.path, None)
        assert places.run() == {"a": Refusal.LEDGER_BROKEN}
        assert places.kits["a"].acknowledge("a") == n_breaks
        assert places.run().certificate_.statements["a"].statement.breaks == n_breaks


def test_a_ledger_with_a_new_head_is_found_by_the_site_itself(places):
    """Without the key nobody signs a head for fewer lines: there is no signed head, or one of lines that are gone."""
    sealed = ledgers.read_seal(places.path)
    cut(places.path, None)
    for seal in ("", sealed, sealed[:-9], "AAAA"):
        with head_path(places.path).open("a") as file:
            file.write(seal)
        with pytest.raises(LedgerBroken):
            places.kits["a"].breaks()  # `coterie site status` and `coterie site start`
        with pytest.raises(LedgerBroken):
            check_signature(places.path, read_chain(places.path))  # `coterie ledger verify`
        with pytest.raises(LedgerBroken):
            places.kits["a"].open("a")
        places.kits["a"].close()
        cut(places.path, None)
    with closing(SiteLedger(places.path)) as ledger:
        secret = ledger.noise_key(b"r" * 16)
    assert places.kits["a"].acknowledge("a") == 1
    assert places.kits["a"].breaks() == (1, False)
    assert len(read_chain(places.path)) == 11  # it goes on where it was cut
    with closing(SiteLedger(places.path)) as ledger:
        assert ledger.noise_key(b"r" * 16) != secret  # which sums with the old noise were unmasked is not known
        ledger.charge(b"r" * 16, b"q", "patients", 0.25, 3)
        ledger.charge(b"r" * 16, b"p", "patients", 0.5, 3)
    places.path.write_bytes(places.path.read_bytes().replace(b"note", b"nope", 1))
    assert places.kits["a"].acknowledge("a") == 1  # one that cannot be read is kept, and a new one begins
    assert len(list(places.path.parent.glob("ledger.jsonl*.broken-*"))) == 2
    with closing(SiteLedger(places.path)) as ledger:
        assert 0.75 <= ledger.charged("patients") < 0.7501  # budgets are not begun anew by a break
    assert places.kits["a"].breaks() == (1, False)


def test_a_new_signing_key_cannot_vouch_for_old_lines(places):
    for path in (places.path.parents[1] / "startup" / "identity").iterdir():
        path.unlink()
    certify(places.path.parents[1], "a")
    with pytest.raises(LedgerBroken, match=r"another key than this site's\. A data officer .* `coterie site ack"):
        places.kits["a"].open("a")
    places.kits["a"].close()
    n_lines = len(read_chain(places.path))
    assert places.kits["a"].acknowledge("a") == 1
    assert len(read_chain(places.path)) == n_lines + 1
    assert places.run() == dict.fromkeys(NAMES, Refusal.TOO_MANY_QUESTIONS)  # budgets go on


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_hides_what_others_remember_can_do_so_once(places, monkeypatch, way):
    """The others keep earlier heads beside the newest, and show one of them in a later run."""
    for kit in places.kits.values():
        kit.tell(Holdings(kit.holdings().data))
    way(places.path, places.copy)
    with monkeypatch.context() as lying:
        lying.setattr(server, "compared", hiding)
        assert places.run().certificate_ is not None
    found = [places.run() for _ in range(30)]
    assert {"a": Refusal.LEDGER_BROKEN} in found


def hiding(names, hellos):
    return {name: reply.hello for name, reply in hellos.items()}
    yield


def head_of(site_name, **fields):
    own = identity(site_name)
    blank = Head(bytes(16), 0, 99, bytes(32))._replace(**fields)
    return blank._replace(signature=own.sign(blank.signed()))


def peers_of(name, ledger):
    return Peers(name, identity(name), ledger, logging.getLogger("coterie.site"))


def test_nobody_but_the_site_can_say_what_it_held(tmp_path):
    ledger = SiteLedger(tmp_path / "a.jsonl")
    peers = peers_of("a", ledger)
    early = ledger.head()
    ledger.note(NO_RUN, "more", b"")
    made_up = [head_of("b"), head_of("b", ledger=early.ledger), early._replace(lines=99), early._replace(breaks=7)]
    peers.compare([bytes(len(early.to_bytes())), early.to_bytes(), *(head.to_bytes() for head in made_up)])
    peers.check_ledger()
    for own in (head_of("a"), head_of("a", ledger=early.ledger, lines=1), head_of("a", breaks=1)):
        with pytest.raises(LedgerBroken):
            peers_of("a", SiteLedger()).compare([own.to_bytes()])


def test_earlier_heads_stay_in_mind_and_less_does_not_replace_more(caplog):
    peers, cards = peers_of("a", SiteLedger()), {"b": identity("b").card(bytes(range(32)))}
    seen = [head_of("b", lines=n) for n in range(1, 2 * MOST_HEADS)]
    for head in seen:
        peers.notice(cards, {"b": head})
    assert not caplog.records
    for less in (head_of("b", lines=5), head_of("b", ledger=b"x" * 16, lines=999)):
        peers.notice(cards, {"b": less})
        assert "the ledger of b holds less than in an earlier run" in caplog.text
        caplog.clear()
    shown = [Head.from_bytes(peers.remembered(["a", "b"])[0]) for _ in range(300)]
    assert 100 < shown.count(seen[-1]) < 250
    assert 10 < len(set(shown)) <= MOST_HEADS
    assert set(shown) <= set(seen)
    peers.notice(cards, {"b": head_of("b", ledger=b"x" * 16, breaks=1)})
    assert {raw for _ in range(20) for raw in peers.remembered(["b", "a"])} == {
        head_of("b", ledger=b"x" * 16, breaks=1).to_bytes()
    }


def test_a_site_that_was_killed_is_not_blamed(places):
    """Lines are written before anything leaves: what others saw is in the ledger, signed head or not."""
    for kit in places.kits.values():
        kit.tell(Holdings(kit.holdings().data))
    signed, lines = ledgers.read_seal(places.path), len(read_chain(places.path))
    places.run()
    head = head_path(places.path).read_text().splitlines()
    head_path(places.path).write_text(f"{head[0]}\n{signed}\n")  # the head was not signed again
    assert places.kits["a"].breaks() == (0, False)
    places.run()
    with places.path.open("ab") as file:
        file.write(b'{"event":"answer","run":"')  # nor the next line written
    assert len(read_open_chain(places.path)) > lines
    assert places.run().certificate_.statements.keys() == set(NAMES)


def test_a_ledger_that_ends_with_its_first_line_was_just_made(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    with monkeypatch.context() as killed:
        killed.setattr(SiteLedger, "head", lambda *_: None)
        peers_of("a", SiteLedger(path))
    peers_of("a", SiteLedger(path))
    assert len(read_chain(path)) == 1
