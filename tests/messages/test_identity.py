"""Certificates and cards: nothing but what the authority signed is trusted, and only for as long as it says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import Untrusted
from coterie.messages.identity import (
    CARD_BYTES,
    Authority,
    Card,
    Certificate,
    Identity,
    Revocations,
    Trust,
    public_masking_key,
    public_signing_key,
)
from tests.identities import AUTHORITY, identity

MASKING = bytes(range(32))


def test_a_card_is_what_it_says_and_has_one_size():
    own = identity("north")
    card = own.card(MASKING)
    assert len(card.to_bytes()) == CARD_BYTES
    assert Card.from_bytes(card.to_bytes()) == card
    assert card.masking_key == public_masking_key(MASKING)
    assert card.certificate.signing_key == public_signing_key(own.key)
    own.trust.check_card(card, "north")
    assert own.key.hex() not in repr(own)


@given(st.integers(0, 8 * CARD_BYTES - 1))
def test_one_changed_bit_of_a_card_is_enough(bit):
    raw = bytearray(identity("north").card(MASKING).to_bytes())
    raw[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(Untrusted):
        Trust(AUTHORITY.public).check_card(Card.from_bytes(bytes(raw)), "north")


def test_a_card_is_for_one_name_one_role_and_one_authority():
    card, trust = identity("north").card(MASKING), Trust(AUTHORITY.public)
    with pytest.raises(Untrusted, match="site south is not signed"):
        trust.check_card(card, "south")
    with pytest.raises(Untrusted, match="analyst north is not signed"):
        trust.check(card.certificate, "analyst", "north")
    with pytest.raises(Untrusted, match="not signed by this federation's authority"):
        Trust(Authority().public).check_card(card, "north")
    mixed = card._replace(certificate=identity("south").certificate)
    with pytest.raises(Untrusted, match="masking key of south is not signed by its signing key"):
        trust.check_card(mixed, "south")


def test_a_certificate_holds_from_its_day_to_its_end():
    made = Identity.certified_by(AUTHORITY, "north", bytes(32))
    now = time.time()
    made.trust.check(made.certificate, "site", "north", now=now - 1800)  # clocks differ
    for when in (now - 2 * 86400, now + 361 * 86400):
        with pytest.raises(Untrusted, match="not valid today"):
            made.trust.check(made.certificate, "site", "north", now=when)
    with pytest.raises(Untrusted, match="not valid today"):
        Trust(AUTHORITY.public).check_card(identity("north", ends=10).card(MASKING), "north")


def test_what_is_revoked_is_refused_and_only_the_authority_revokes():
    gone, there = identity("north", serial=b"northern"), identity("south", serial=b"southern")
    listed = AUTHORITY.revoke([b"northern"], 1)
    assert Revocations.from_bytes(listed.to_bytes()) == listed
    trust = Trust(AUTHORITY.public, listed)
    trust.check_card(there.card(MASKING), "south")
    with pytest.raises(Untrusted, match="site north was revoked"):
        trust.check_card(gone.card(MASKING), "north")
    for forged in (Authority().revoke([b"northern"], 1), listed._replace(serials=frozenset({b"southern"}))):
        with pytest.raises(Untrusted, match="list of revoked certificates is not signed"):
            Trust(AUTHORITY.public, forged)


@given(st.binary(max_size=400))
def test_other_bytes_are_no_card_no_certificate_and_no_list(raw):
    for read in (Card.from_bytes, Certificate.from_bytes, Revocations.from_bytes):
        try:
            read(raw)
        except Untrusted:
            continue
        assert len(raw) >= 72
