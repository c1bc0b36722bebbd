"""Certificates: what the sites of a run sign, and that nobody can change it."""

from __future__ import annotations

import base64
import hashlib
from itertools import product

import msgspec
import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans, VerticalKernelPCA
from coterie.engines.inprocess import ANALYST, Fault, Schedule, in_process
from coterie.errors import InputError
from coterie.estimators.fitting import fit_over
from coterie.messages.chain import read_chain
from coterie.messages.identity import Authority, Identity, Trust, public_signing_key, sign
from coterie.methods.order import SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.journal import Journal
from coterie.runtime.terms import Terms
from coterie.secure.certificates import SIGNED_BYTES, RunAuthority, RunCertificate, Signed
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs
from tests.runtime.test_journal import Killed, Killing

ROWS = blobs(160, 3, 2, seed=5)
TABLES = {f"s{i}": ArrayTable(ROWS[i::4]) for i in range(4)}
COLUMNS = {name: table.columns for name, table in TABLES.items()}


def kmeans():
    return FederatedKMeans(2, init=np.eye(2, 3), max_rounds=3)


def fitted(**options):
    return coterie.fit(kmeans(), TABLES, **options)


@pytest.fixture(scope="module")
def run():
    """A run that ended well, and its certificate."""
    return fitted()


@pytest.fixture(scope="module")
def certificate(run):
    return run.certificate_


def problems(certificate):
    """What does not fit in a certificate that was written and read."""
    read = RunCertificate.read(msgspec.json.encode(certificate), "a file")
    return read.problems(read.authority_key)


def changed(certificate, **fields):
    return msgspec.structs.replace(certificate, **fields)


def with_statement(certificate, name, raw):
    text = None if raw is None else base64.b64encode(raw).decode()
    return changed(certificate, sites={**certificate.sites, name: text})


def test_all_sites_sign_what_they_did(run, certificate):
    assert problems(certificate) == []
    assert certificate.run == run.ledger_.run
    assert certificate.authority_made_for == "run"
    assert set(certificate.sites) == set(TABLES)
    exchanges = run.ledger_.exchanges
    assert exchanges[-1].asked == "secure.Conclude"
    n_sums = sum(exchange.seen == "masked" for exchange in exchanges)
    for name, (_, statement, _) in certificate.statements.items():
        assert statement.run.hex() == run.ledger_.run
        assert statement.order == hashlib.sha256(base64.b64decode(certificate.order)).digest()
        assert (statement.answered, statement.refused) == (len(exchanges) - 1, 0)
        assert statement.n_bytes == run.ledger_.total("bytes_up", name) - exchanges[-1].sites[name].bytes_up
        assert (statement.sites, statement.min_group) == (4, 5)
        assert (statement.verified, statement.is_whole) == (n_sums, True)
        assert (statement.breaks, statement.epsilon) == (0, 0.0)


def test_without_verification_a_site_says_so():
    statements = fitted(policy=Policy(verification="off", protection="none")).certificate_.statements
    assert len(statements) == 4
    for signed in statements.values():
        assert (signed.statement.verified, signed.statement.is_whole, signed.statement.min_group) == (0, False, 0)


def test_statements_have_no_numbers_of_the_algorithm(run):
    last = run.ledger_.exchanges[-1]
    assert (last.phase, last.content) == ("masking", "nothing")
    sent = {(count.floats_up, count.bytes_up) for count in last.sites.values()}
    assert len(sent) == 1
    assert next(iter(sent))[0] == 0


def test_the_certificate_shows_what_was_ordered_and_by_whom(run, certificate):
    order = certificate.ordered.read()
    assert (certificate.ordered.analyst, order.run, order.method) == (ANALYST, certificate.run, run.method)
    assert [name for name, _ in order.columns] == list(run.feature_names_in_)


def test_plain_runs_have_a_certificate_too():
    """Nothing is verified in them, and nobody is introduced."""
    certificate = fitted(sums="plain", policy=Policy.simulation()).certificate_
    assert problems(certificate) == []
    assert set(certificate.statements) == set(TABLES)
    for signed in certificate.statements.values():
        said = signed.statement
        assert (said.sites, said.min_group, said.verified, said.is_whole, said.refused) == (0, 0, 0, False, 0)


def test_runs_over_columns_of_the_same_rows_have_a_certificate_too():
    estimator = VerticalKernelPCA(2, gamma=0.1)
    columns = {name: ArrayTable(ROWS[:40] + i) for i, name in enumerate(TABLES)}
    certificate = coterie.fit(estimator, columns, sums="plain", policy=Policy.simulation()).certificate_
    assert problems(certificate) == []
    assert set(certificate.statements) == set(TABLES)
    assert certificate.ordered.read().columns == []


def test_the_head_is_that_of_the_site_s_ledger(tmp_path):
    certificate = fitted(journal=tmp_path).certificate_
    for name, (_, statement, _) in certificate.statements.items():
        lines = read_chain(tmp_path / "sites" / f"{name}.jsonl")
        assert lines[statement.lines - 1]["chain"] == statement.hash.hex()
        assert lines[statement.lines]["asked"] == "secure.Conclude"  # the next line is the statement itself


# ---------------------------------------------------------------- servers that lie


@pytest.mark.parametrize("site", ["s0", "s3"])
def test_no_byte_of_a_statement_can_be_changed(certificate, site):
    raw = certificate.statements[site].to_bytes()
    assert len(raw) == SIGNED_BYTES
    for place, bit in product(range(len(raw)), (1, 2, 128)):
        spoiled = raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :]
        try:
            found = problems(with_statement(certificate, site, spoiled))
        except InputError:
            continue  # no statement at all
        assert found, place
        assert all(problem.startswith(f"{site}: ") for problem in found), found


def test_statements_of_two_sites_cannot_be_swapped(certificate):
    sites = certificate.sites
    swapped = changed(certificate, sites={**sites, "s0": sites["s1"], "s1": sites["s0"]})
    assert {problem.partition(":")[0] for problem in problems(swapped)} == {"s0", "s1"}
    one, other = certificate.statements["s0"], certificate.statements["s1"]
    forged = with_statement(certificate, "s0", one._replace(statement=other.statement).to_bytes())
    assert problems(forged) == ["s0: the statement is not signed by this site's key."]


def test_a_statement_of_another_run_does_not_fit(tmp_path):
    first = fitted(journal=tmp_path / "journal").certificate_
    (tmp_path / "journal" / "header.json").unlink()
    (tmp_path / "journal" / "records.bin").unlink()
    second = fitted(journal=tmp_path / "journal").certificate_  # the same sites, keys and authority
    assert problems(second) == []
    assert first.authority == second.authority
    mixed = with_statement(second, "s2", first.statements["s2"].to_bytes())
    assert problems(mixed) == [
        "s2: the statement is of another run.",
        "s2: the site accepted another order than the certificate shows.",
    ]


def with_order(certificate, signed):
    return changed(certificate, order=base64.b64encode(signed.to_bytes()).decode())


def analyst_of(authority):
    return Identity.certified_by(authority, ANALYST, bytes(range(1, 33)), "analyst")


def test_another_order_does_not_fit(certificate):
    """One that the same analyst signed; one that was changed; one of another run; one of somebody else."""
    other = "the site accepted another order than the certificate shows."
    accepted = [f"s{i}: {other}" for i in range(4)]
    signed = certificate.ordered
    forged = f"The order is not signed by a key that the authority certified for {ANALYST} and this time."

    order = signed.read()
    more = msgspec.structs.replace(order, parameters={**order.parameters, "max_rounds": 7})
    spoiled = msgspec.structs.replace(signed, order=more.to_bytes())
    assert problems(with_order(certificate, spoiled)) == [*accepted, forged]

    stranger = SignedOrder.by(analyst_of(Authority()), order)
    assert problems(with_order(certificate, stranger)) == [*accepted, forged]
    renamed = msgspec.structs.replace(signed, analyst="ana")
    assert problems(with_order(certificate, renamed)) == [*accepted, forged.replace(ANALYST, "ana")]

    elsewhere = SignedOrder.by(analyst_of(Authority()), msgspec.structs.replace(order, run="ab" * 16))
    assert problems(with_order(certificate, elsewhere)) == [*accepted, forged, "The order is for another run."]


def test_the_order_must_be_an_analyst_s_at_the_time_of_the_run(certificate):
    """Sites that sign whatever they are given: the analyst's signature is checked besides theirs."""
    authority, key = Authority(), bytes(range(32))
    site = authority.certify("site", "s0", public_signing_key(key))

    def seen(role="analyst", days=360.0, at=None):
        analyst = authority.certify(role, ANALYST, public_signing_key(key), days=days)
        order = SignedOrder.by(Identity(ANALYST, key, analyst, Trust(authority.public)), certificate.ordered.read())
        digest = hashlib.sha256(order.to_bytes()).digest()
        old = certificate.statements["s0"].statement
        said = old._replace(order=digest, sites=1, at=at or old.at)
        signed = Signed(site, said, sign(key, said.signed("s0"))).to_bytes()
        alone = with_statement(changed(certificate, sites={}), "s0", signed)
        return with_order(alone, order).problems(authority.public)[1:]  # it names the authority of the other sites

    forged = f"The order is not signed by a key that the authority certified for {ANALYST} and this time."
    assert seen() == []
    assert seen(role="site") == [forged]
    later = certificate.statements["s0"].statement.at + 90 * 86400
    assert seen(at=later) == []
    assert seen(days=30, at=later) == [forged]


def test_a_site_cannot_be_left_out(certificate):
    fewer = {name: text for name, text in certificate.sites.items() if name != "s1"}
    assert problems(changed(certificate, sites=fewer)) == ["Sites say that 4 took part, and the certificate names 3."]
    assert problems(with_statement(certificate, "s1", None)) == []  # it is named, and did not sign


def test_nobody_but_the_authority_vouches_for_a_site(certificate):
    """A server makes an authority, sites and statements; also one that is certified under another name."""
    authority, key = Authority(), bytes(range(32))
    name, signed = "s0", certificate.statements["s0"]
    made_up = Signed(
        authority.certify("site", name, public_signing_key(key)),
        signed.statement,
        sign(key, signed.statement.signed(name)),
    )
    forged = with_statement(certificate, name, made_up.to_bytes())
    assert problems(forged) == ["s0: its key is not certified by the authority for this name and time."]
    renamed = changed(forged, authority=base64.b64encode(authority.public).decode())
    assert len(renamed.problems(authority.public)) == 4  # three other sites, and the analyst
    assert "The certificate names another authority." in renamed.problems(certificate.authority_key)
    assert changed(certificate, authority="").problems(b"") != []
    assert changed(certificate, sites=dict.fromkeys(TABLES)).problems(certificate.authority_key) == [
        "No site signed."
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-9],
        lambda raw: b"[" * 100_000,
        lambda raw: raw.replace(b'"schema":1', b'"schema":2'),
        lambda raw: raw.replace(b'"order":"', b'"order":"\xff'),
        lambda raw: raw.replace(b'"order":"', b'"order":"AAAA'),
        lambda raw: raw.replace(b'"run":"', b'"run":"x'),
        lambda raw: raw.replace(b'"s0":"', b'"s0":"A'),
        lambda raw: raw.replace(b'"authority":"', b'"authority":"*'),
    ],
)
def test_what_is_no_certificate_is_one_clear_error(certificate, spoil):
    with pytest.raises(InputError, match="a file: is "):
        RunCertificate.read(spoil(msgspec.json.encode(certificate)), "a file")


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("lost", [("s1",), tuple(TABLES)])
def test_a_site_that_does_not_sign_does_not_stop_the_run(run, lost):
    faults = [Fault(name, "drop", frozenset({run.ledger_.exchanges[-1].round})) for name in lost]
    found = fitted(schedule=Schedule(faults), terms=Terms(deadline=5))
    np.testing.assert_array_equal(found.cluster_centers_, run.cluster_centers_)
    signed = {name for name, text in found.certificate_.sites.items() if text is not None}
    assert signed == set(TABLES) - set(lost)
    assert problems(found.certificate_) == ([] if signed else ["No site signed."])


def test_a_site_that_drops_out_is_named_without_a_signature():
    found = fitted(
        schedule=Schedule([Fault("s3", "drop", frozenset(range(9, 100)))]), terms=Terms(deadline=5, quorum=0.7)
    )
    assert found.certificate_.sites["s3"] is None
    assert found.certificate_.statements.keys() == {"s0", "s1", "s2"}
    assert problems(found.certificate_) == []


def killed(folder, at, after, **options):
    """A run that is killed at its n-th exchange; or its estimator."""
    policy = Policy()
    with in_process(TABLES, policy=policy, folder=folder / "sites") as channel:
        authority = RunAuthority(channel.authority, "run")
        return fit_over(
            Killing(channel, at, after),
            kmeans(),
            COLUMNS,
            PreparationOptions(),
            order=channel.analyst,
            journal=Journal(folder / "journal", **options),
            authority=authority,
        )


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("left", [0, 1, 9])
def test_a_resumed_run_has_one_certificate(run, tmp_path, left, after):
    """Killed at the last exchange, the one before it, and in the midst of the sums."""
    with pytest.raises(Killed):
        killed(tmp_path, len(run.ledger_.exchanges) - 1 - left, after)
    found = killed(tmp_path, 10_000, after=False, resume=True)
    np.testing.assert_array_equal(found.cluster_centers_, run.cluster_centers_)
    assert problems(found.certificate_) == []
    assert set(found.certificate_.statements) == set(TABLES)
    assert all(signed.statement.is_whole for signed in found.certificate_.statements.values())
    again = killed(tmp_path, 0, after=False, resume=True)  # nobody is asked again
    assert again.certificate_ == found.certificate_
