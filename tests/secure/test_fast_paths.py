"""What is done fast, against the slow way that is plainly right."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from coterie.maths.masks import add_streams
from coterie.secure.keys import expanded, extracted
from coterie.secure.masked_sums import threshold
from coterie.secure.shamir import combine_others, split
from tests.maths.rings import add_in_ring, mask_stream

from .shares import combine


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_keys_are_hkdfs_in_two_steps(secret, info):
    whole = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)
    assert expanded(extracted(secret), info) == whole


@given(st.integers(8, 64), st.integers(0, 40), st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=5))
def test_many_streams_at_once_are_the_streams_one_by_one(bits, count, signed):
    start = np.random.default_rng(count).integers(0, 1 << (bits - 1), count, dtype=np.uint64)
    keys = [(number.to_bytes(32, "little"), minus) for number, minus in signed]
    slow = start
    for key, minus in keys:
        slow = add_in_ring(slow, mask_stream(key, count, bits), bits, minus=minus)
    np.testing.assert_array_equal(add_streams(start.copy(), keys, bits).astype(np.uint64), slow)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 20, 100])
def test_all_secrets_from_one_set_of_rows_are_the_secrets_one_by_one(n):
    rng, needed = np.random.default_rng(n), threshold(n)
    secrets = {place: rng.bytes(16) for place in range(1, n + 1)}
    shares = {owner: split(secret, [p for p in secrets if p != owner], needed) for owner, secret in secrets.items()}
    for _ in range(3):
        takers = [int(p) for p in rng.choice(np.arange(1, n + 1), needed + 1, replace=False)]
        rows = {p: b"".join(shares[o].get(p, bytes(17)) for o in range(1, n + 1)) for p in takers}
        assert combine_others(rows, secrets) == secrets
        owner = int(rng.integers(1, n + 1))
        others = [p for p in secrets if p != owner][:needed]
        assert combine({p: shares[owner][p] for p in others}) == secrets[owner]


def test_a_share_that_was_changed_does_not_give_the_secret():
    secrets = {place: bytes([place]) * 16 for place in (1, 2, 3, 4)}
    shares = {o: split(s, [p for p in secrets if p != o], 2) for o, s in secrets.items()}
    rows = {p: b"".join(shares[o].get(p, bytes(17)) for o in range(1, 5)) for p in (1, 2, 3)}
    rows[2] = rows[2][:17] + bytes(17) + rows[2][34:51] + b"\xff" * 16 + b"\x01"
    try:
        found = combine_others(rows, [4])
    except ValueError:
        return
    assert found[4] != secrets[4]
