"""A server that tells sites different stories of who dropped out, to get a sum over fewer sites than any allows."""

from __future__ import annotations

import numpy as np

from coterie.secure.keys import Context, common_seed, opened, own_seed, seal
from coterie.secure.masked_sums import codings, threshold
from coterie.sites.policy import Policy
from tests.maths.rings import add_in_ring, mask_stream
from tests.secure.shares import combine
from tests.secure.test_masked_sums import AskWhole, _trial, expected, reply_of, reveal_from, uploaded  # noqa: F401

N, FEWEST = 10, 7
"""Sites, and the smallest roster their policies allow."""
TARGETS = ("s-0", "s-1", "s-2", "s-3")
STORIES = {
    **{a: {f"s-{4 + (i + j) % 6}" for j in range(3)} for i, a in enumerate(TARGETS)},
    **{f"s-{4 + b}": {a for i, a in enumerate(TARGETS) if (b - i) % 6 >= 3} for b in range(6)},
}
"""The sites that dropped out according to the story for each site: at most three."""


def believing(site, frames, name, gone):
    """What a site reveals that believes a story: shares of own masks of those left, common masks with the others."""
    decoded, _ = frames[name]
    context, memory, roster = Context.of(decoded.envelope), site._memory(decoded.envelope), decoded.request.roster
    assert name not in gone
    assert len(roster) - len(gone) >= FEWEST
    place = roster.index(name)
    shares = {
        peer: opened(
            seal(site, memory, context, peer, name), bytes(reply_of(frames[peer]).shares[place].astype(np.uint8))
        )
        for peer in roster
        if peer != name and peer not in gone
    }
    return shares, {peer: common_seed(site, memory, context, peer) for peer in gone}


def test_sites_that_believe_stories_give_the_sum_over_four_of_ten():
    """The control: with sites that reveal common masks the attack works, and no story is of fewer than seven."""
    members, frames = uploaded(N)
    context = Context.of(frames["s-0"][0].envelope)
    revealed = {name: believing(members[name], frames, name, gone) for name, gone in STORIES.items()}
    places = {name: place for place, name in enumerate(frames["s-0"][0].request.roster, start=1)}
    total = np.zeros(50, np.uint64)
    for a in TARGETS:
        shares = {places[name]: given[a] for name, (given, _) in revealed.items() if a in given}
        assert len(shares) >= threshold(N)
        part = reply_of(frames[a]).numbers.astype(np.uint64)
        secret = combine(dict(list(shares.items())[: threshold(N)]))
        part = add_in_ring(part, mask_stream(own_seed(secret, context), 50, 64), 64, minus=True)
        for b in STORIES.keys() - set(TARGETS):
            common = revealed[a][1].get(b) or revealed[b][1][a]
            part = add_in_ring(part, mask_stream(common, 50, 64), 64, minus=a < b)
        total += part
    (coding,) = codings(AskWhole(50), {}, 64, N)
    np.testing.assert_array_equal(coding.decode(total), expected(TARGETS, 50))


def test_sites_believe_no_story():
    """Whatever the server says, a site reveals for the whole roster or nothing; and nothing below the smallest."""
    members, frames = uploaded(N, policy=Policy(verification="off", protection="none", min_roster=FEWEST))
    roster = frames["s-0"][0].request.roster
    for name, gone in STORIES.items():
        left = tuple(peer for peer in roster if peer not in gone)
        assert reveal_from(members, frames, name, roster=left) is None
        none = np.array([np.zeros_like(reply_of(frames[name]).shares[0])] * N)
        assert reveal_from(members, frames, name, sealed=none) is None
    assert all(reveal_from(members, frames, name) is not None for name in roster)
