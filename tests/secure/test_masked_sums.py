"""Masked sums: the sum and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.messages import codec
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import answers
from coterie.messages.verbs import Seen, total
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.lloyd import lloyd
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.keys import Context, own_seed
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked, Reveal, codings, threshold
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.declared import Declared
from tests.federations import Tampered, blobs, federation, split_evenly
from tests.maths.rings import add_in_ring, mask_stream

from .shares import combine


class Whole(Reply):
    values: Floats = array("n", bound="1000")


class AskWhole(Request[Whole]):
    n: int


class Anything(Reply):
    values: Floats = array("n", bound="rows * weight")


class AskAnything(Request[Anything]):
    n: int


@answers(AskWhole)
def local_whole(table, memory, ask):
    """Whole numbers a site's first row decides."""
    seed = int(next(iter(table.blocks())).rows[0, 0])
    return Whole(np.random.default_rng(seed).integers(-1000, 1001, ask.n).astype(float))


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, "trial", Method("trial", "", (AskWhole, AskAnything, ReportMagnitude), "", ""))


def expected(names, n):
    return sum(np.random.default_rng(int(name.split("-")[1])).integers(-1000, 1001, n) for name in names)


def sites(n, **options):
    return in_process({f"s-{i}": ArrayTable(np.full((1, 1), float(i))) for i in range(n)}, **options)


def ask_once(n=50):
    return (yield from total(AskWhole(n)))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 20, 100])
@pytest.mark.parametrize("bits", [24, 32, 64])
def test_the_masked_sum_is_the_plain_sum_of_whole_numbers(n, bits):
    with sites(n) as channel:
        found = run(ask_once(), channel, method="trial", layers=[MaskedSums(bits)])
    step = 2000 * n / 2 ** (bits - 1) * n  # a ring of few bits rounds
    np.testing.assert_allclose(found.values, expected([f"s-{i}" for i in range(n)], 50), atol=step)
    if bits == 64:
        np.testing.assert_array_equal(found.values, expected([f"s-{i}" for i in range(n)], 50))


@settings(max_examples=15)
@given(st.integers(2, 30), st.data())
def test_any_dropouts_that_leave_enough_give_the_survivors_sum_bit_for_bit(n, data):
    check_dropouts(n, data)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(2, 100), st.data())
def test_up_to_a_hundred_sites_and_any_dropouts_give_the_survivors_sum_bit_for_bit(n, data):
    check_dropouts(n, data)


def check_dropouts(n, data):
    """Before the upload, on its way, or before unmasking: the sum is over the whole roster of the last question."""
    METHODS.setdefault("trial", Method("trial", "", (AskWhole, AskAnything, ReportMagnitude), "", ""))
    places = st.integers(0, n - 1)
    gone = data.draw(st.sets(places, max_size=n - 1))
    late = set() if gone else data.draw(st.sets(places, max_size=n - 1))
    kind = st.sampled_from(["drop", "vanish"])
    faults = [Fault(f"s-{i}", data.draw(kind), frozenset({2})) for i in gone]  # round 2 is the first upload
    faults += [Fault(f"s-{i}", data.draw(kind), frozenset({3})) for i in late]
    with sites(n, schedule=Schedule(faults)) as channel:
        found = run(ask_once(), channel, method="trial", layers=[MaskedSums()], terms=Terms(quorum=0.01, resends=0))
    if n - len(late) > threshold(n):  # they can unmask the sum over all
        late = set()
    left = [f"s-{i}" for i in range(n) if i not in gone | late]
    np.testing.assert_array_equal(found.values, expected(left, 50))


def test_a_survivor_that_drops_before_unmasking_is_done_without():
    faults = [Fault("s-3", "drop", frozenset({3}))]
    with sites(6, schedule=Schedule(faults)) as channel:
        found = run(ask_once(), channel, method="trial", layers=[MaskedSums()], terms=Terms(quorum=0.5, resends=0))
    np.testing.assert_array_equal(found.values, expected([f"s-{i}" for i in range(6)], 50))


def test_those_left_are_asked_again_and_masks_of_the_first_upload_are_never_revealed():
    asked = []

    def listen(name, question, frame):
        request = codec.decode_question(question).request
        asked.append((name, type(request).__name__, getattr(request, "roster", None)))
        return frame

    faults = [Fault("s-1", "drop", frozenset({2}))]
    with sites(5, schedule=Schedule(faults)) as channel:
        terms = Terms(quorum=0.5, resends=0)
        run(ask_once(), Tampered(channel, listen), method="trial", layers=[MaskedSums()], terms=terms)
    everyone = tuple(f"s-{i}" for i in range(5))
    left = tuple(name for name in everyone if name != "s-1")
    assert {roster for _, kind, roster in asked if kind == "AskMasked"} == {everyone, left}
    assert {(name, roster) for name, kind, roster in asked if kind == "Reveal"} == {(name, left) for name in left}


def test_a_quorum_is_of_those_asked_first_and_a_smallest_roster_stops_the_sum():
    faults = [Fault(f"s-{i}", "drop", frozenset({2})) for i in (0, 1, 2)]
    for policy, quorum in ((None, 0.5), (Policy(verification="off", protection="none", min_roster=3), 0.1)):
        terms = Terms(quorum=quorum, resends=0)
        with sites(5, schedule=Schedule(faults), policy=policy) as channel, pytest.raises(QuorumLost):
            run(ask_once(), channel, method="trial", layers=[MaskedSums()], terms=terms)

    def some():
        return (yield from total(AskWhole(50), to=("s-0", "s-1", "s-2", "s-3")))

    faults = [Fault("s-0", "drop", frozenset({2})), Fault("s-1", "drop", frozenset({3}))]
    for quorum, is_enough in ((0.5, True), (0.6, False)):  # two of the four asked first
        with sites(5, schedule=Schedule(faults)) as channel:
            layers, terms = [MaskedSums()], Terms(quorum=quorum, resends=0)
            if is_enough:
                found = run(some(), channel, method="trial", layers=layers, terms=terms)
                np.testing.assert_array_equal(found.values, expected(["s-2", "s-3"], 50))
            else:
                with pytest.raises(QuorumLost):
                    run(some(), channel, method="trial", layers=layers, terms=terms)


def test_lloyd_with_masks_is_lloyd_within_the_fixed_point_error():
    rows = blobs(300, 4, 3, seed=3)
    with federation(rows, 5) as channel:
        plain = run(lloyd(rows[:3], tol=0), channel, method="lloyd")
        declared = Declared({"rows": 100, "box": float(np.abs(rows).max())})
        ledger = Ledger()
        masked = run(lloyd(rows[:3], tol=0), channel, method="lloyd", layers=[declared, MaskedSums()], ledger=ledger)
    np.testing.assert_allclose(masked.centers, plain.centers, atol=1e-10)
    assert masked.cost == pytest.approx(plain.cost, rel=1e-10)
    assert ledger.total("rounds") == masked.n_rounds + 1
    assert ledger.total("rounds_masking") == 2 + masked.n_rounds + 1
    assert ledger.total("floats_up") == 5 * (masked.n_rounds * (3 * 5 + 1) + 3 + 1)
    assert {e.seen for e in ledger.exchanges if e.phase == "algorithm"} == {"masked"}


def uploads(n, rounds=3, count=4000):
    seen = []

    def listen(name, question, frame):
        decoded = codec.decode_question(question)
        if isinstance(decoded.request, AskMasked):
            start = codec.read_envelope(frame)[2] + 4
            seen.append(frame[start : start + 8 * decoded.request.count])
        return frame

    def protocol():
        for _ in range(rounds):
            yield from total(AskWhole(count))

    with sites(n) as channel:
        run(protocol(), Tampered(channel, listen), method="trial", layers=[MaskedSums()])
    return seen


def test_uploads_are_uniform_and_share_no_mask():
    seen = uploads(5)
    assert len(seen) == 15
    counts = np.bincount(np.frombuffer(b"".join(seen), np.uint8), minlength=256)
    mean = counts.sum() / 256
    assert ((counts - mean) ** 2 / mean).sum() < 360  # chi-square, 255 degrees of freedom: p > 1e-5
    for i, one in enumerate(seen):
        for other in seen[:i]:
            difference = np.frombuffer(one, np.uint64) - np.frombuffer(other, np.uint64)
            small = np.minimum(difference, -difference) < 2**58
            assert small.mean() < 0.1  # masks that were used twice would leave the difference of two small numbers


def test_a_strict_site_answers_masked_sums_and_nothing_else():
    strict = Policy(verification="off")
    rows = blobs(200, 3, 2)
    limits = Declared({"rows": 100, "box": 50.0})
    with in_process(split_evenly(rows, 4), policy=strict) as channel:
        fit = run(lloyd(rows[:2]), channel, method="lloyd", layers=[limits, MaskedSums()])
        assert np.isfinite(fit.centers).all()
        with pytest.raises(QuorumLost, match="does not allow this per-site result"):
            run(lloyd(rows[:2]), channel, method="lloyd", layers=[limits, PlainSums()])
    with in_process(split_evenly(rows, 2), policy=strict) as channel, pytest.raises(QuorumLost):
        run(lloyd(rows[:2]), channel, method="lloyd", layers=[limits, MaskedSums()])  # a roster of two is too small


def test_what_has_no_bound_cannot_be_masked():
    with sites(3) as channel, pytest.raises(InputError, match="AskAnything cannot be masked: the bound inf"):
        run(total(AskAnything(3)), channel, method="trial", layers=[MaskedSums()])


def test_a_number_beyond_the_bound_is_refused_at_the_site_and_never_wrapped():
    rows = blobs(60, 2) * 100
    limits = Declared({"rows": 100, "box": 1.0})
    with federation(rows, 3) as channel, pytest.raises(QuorumLost, match="out of bounds"):
        run(lloyd(rows[:2]), channel, method="lloyd", layers=[limits, MaskedSums()])


# ---------------------------------------------------------------- servers that lie


def caught(n=5, folder=None):
    """The frames of one honest masked sum, by site: upload and reveal."""
    frames = {}

    def listen(name, question, frame):
        decoded = codec.decode_question(question)
        frames[name, type(decoded.request).__name__] = (question, frame, decoded)
        return frame

    channel = sites(n, folder=folder)
    with channel:
        run(ask_once(), Tampered(channel, listen), method="trial", layers=[MaskedSums()])
    return channel.members, frames


def put(site, decoded, request, *, round_=None, roster=None):
    """Ask a site something of the server's own making; its answer's form and last byte."""
    body = codec.encode_body(request, {})
    envelope = decoded.envelope._replace(
        round=decoded.envelope.round + 50 if round_ is None else round_,
        request=body.digest,
        roster=decoded.envelope.roster if roster is None else codec.roster_digest(roster),
    )
    answer = site.answer(codec.encode_question(envelope, body, decoded.transcript, Seen.MASKED))
    return codec.read_envelope(answer)[0]


def changed(request, **fields):
    import dataclasses

    return dataclasses.replace(request, **fields)


def test_a_replayed_round_gets_the_same_bytes():
    members, frames = caught()
    question, frame, _ = frames["s-2", "Reveal"]
    assert members["s-2"].answer(question) == frame


def test_a_second_reveal_is_refused_also_after_a_restart(tmp_path):
    members, frames = caught(folder=tmp_path)  # ledgers in files know every upload of the run
    _, _, decoded = frames["s-2", "Reveal"]
    restarted = sites(5, folder=tmp_path).members["s-2"]
    introduced = frames["s-2", "Introduce"][2]
    recall = codec.encode_recall(decoded.envelope._replace(round=60), list(introduced.bodies))
    assert codec.read_envelope(restarted.answer(recall))[0] is codec.Form.ANSWER
    for site in (members["s-2"], restarted):
        assert site.answered(decoded.envelope.run, decoded.request.round, decoded.request.attempt) is not None
        assert put(site, decoded, decoded.request, round_=70) is codec.Form.REFUSAL


def test_every_key_binds_run_round_attempt_roster_request_purpose_and_names():
    context = Context(b"r" * 16, 3, 1, b"o" * 8, b"q" * 16)
    infos = {
        context.info("mask", "a", "b"),
        context.info("share", "a", "b"),
        context.info("mask", "a", "c"),
        context._replace(run=b"s" * 16).info("mask", "a", "b"),
        context._replace(round=4).info("mask", "a", "b"),
        context._replace(attempt=2).info("mask", "a", "b"),
        context._replace(roster=b"p" * 8).info("mask", "a", "b"),
        context._replace(request=b"x" * 16).info("mask", "a", "b"),
    }
    assert len(infos) == 8


def test_too_small_a_story_an_invented_site_and_another_roster_are_refused():
    members, frames = caught()
    _, _, upload = frames["s-2", "AskMasked"]
    roster = upload.request.roster
    for names in (("s-2",), (*roster[:2], "s-2", "stranger"), roster[:3], tuple(reversed(roster))[:4]):
        ask = changed(upload.request, roster=names, n=len(names))
        if "s-2" in names and set(names) <= set(roster) and len(names) >= 1:
            continue  # a smaller roster of known sites is a matter for the policy's smallest roster
        assert put(members["s-2"], upload, ask, roster=names) is codec.Form.REFUSAL
    lying = changed(upload.request, roster=roster[:4], n=4)
    assert put(members["s-2"], upload, lying) is codec.Form.REFUSAL  # the envelope says another roster


def test_a_site_reveals_nothing_for_a_round_it_did_not_upload_in():
    members, frames = caught()
    _, _, decoded = frames["s-2", "Reveal"]
    assert put(members["s-2"], decoded, changed(decoded.request, round=40)) is codec.Form.REFUSAL


def test_pinned_keys_keep_a_server_from_introducing_itself():
    pinned = {f"s-{i}": bytes([i + 1] * 32) for i in range(4)}  # not the keys the server will introduce
    with sites(4, policy=Policy(verification="off", peers=pinned)) as channel, pytest.raises(QuorumLost):
        run(ask_once(), channel, method="trial", layers=[MaskedSums()])


def uploaded(n=6, policy=None):
    """Sites that have uploaded and not yet revealed anything, and their uploads: the server stops here to lie."""
    from tests.runtime.test_journal import Killed, Killing

    frames, channel = {}, sites(n, policy=policy)

    def listen(name, question, frame):
        decoded = codec.decode_question(question)
        if isinstance(decoded.request, AskMasked):
            frames[name] = (decoded, frame)
        return frame

    with channel, pytest.raises(Killed):
        # keys, introduction and upload are three exchanges; the fourth would unmask
        run(ask_once(), Killing(Tampered(channel, listen), 3, False), method="trial", layers=[MaskedSums()])
    return channel.members, frames


def reveal_from(members, frames, name, *, roster=None, sealed=None):
    """Ask one site to unmask, as a lying server would; its answer, or None where it refuses."""
    decoded, _ = frames[name]
    roster = decoded.request.roster if roster is None else roster
    place = decoded.request.roster.index(name)
    sealed = np.array([_shares(frames[peer])[place] for peer in roster]) if sealed is None else sealed
    ask = Reveal(len(roster), decoded.envelope.round, decoded.envelope.attempt, roster, sealed)
    body = codec.encode_body(ask, {})
    envelope = decoded.envelope._replace(round=decoded.envelope.round + 1, request=body.digest)
    answer = members[name].answer(codec.encode_question(envelope, body, decoded.transcript, Seen.MASKED))
    found = codec.decode_answer(answer, envelope, ask.layout, ask.layout.bounds({}))
    return found if isinstance(found, Reply) else None


def reply_of(upload):
    decoded, frame = upload
    return codec.decode_answer(frame, decoded.envelope, decoded.request.layout, decoded.request.layout.bounds({}))


def _shares(upload):
    return reply_of(upload).shares


def own_masks(members, frames):
    """Every site's own mask, from all shares that sites reveal."""
    roster = frames["s-0"][0].request.roster
    revealed = {name: reveal_from(members, frames, name) for name in roster}
    masks = {}
    for i, name in enumerate(roster):
        shares = {
            place: bytes(revealed[peer].shares[i].astype(np.uint8))
            for place, peer in enumerate(roster, start=1)
            if peer != name
        }
        secret = combine(dict(list(shares.items())[: threshold(len(roster))]))
        masks[name] = mask_stream(own_seed(secret, Context.of(frames[name][0].envelope)), 50, 64)
    return masks


def test_only_the_sum_over_the_whole_roster_comes_out_of_its_masks():
    """With every share that sites ever reveal, a sum over all is there, and one over fewer is noise."""
    members, frames = uploaded(6)
    masks = own_masks(members, frames)
    parts = {
        name: add_in_ring(reply_of(frames[name]).numbers.astype(np.uint64), mask, 64, minus=True)
        for name, mask in masks.items()
    }
    (coding,) = codings(AskWhole(50), {}, 64, 6)
    for n in range(1, 7):
        names = sorted(parts)[:n]
        found = coding.decode(np.sum([parts[name] for name in names], axis=0, dtype=np.uint64))
        assert (found == expected(names, 50)).mean() == (n == 6)


@pytest.mark.parametrize("missing", ["s-0", "s-5"])
def test_nobody_reveals_before_the_whole_roster_has_uploaded(missing):
    """A server that holds all uploads but one cannot show the shares that one sealed, whatever it sends instead."""
    members, frames = uploaded(6)
    roster = frames["s-0"][0].request.roster
    for name in roster:
        place, sealed = roster.index(name), []
        for peer in roster:
            known = peer if peer != missing else "s-1"
            sealed.append(_shares(frames[known])[place])
        if name not in (missing, "s-1"):
            assert reveal_from(members, frames, name, sealed=np.array(sealed)) is None
        sealed[roster.index(missing)] = np.zeros_like(sealed[0])
        if name != missing:
            assert reveal_from(members, frames, name, sealed=np.array(sealed)) is None


def test_a_roster_other_than_that_of_the_upload_is_never_unmasked():
    members, frames = uploaded(6)
    roster = frames["s-0"][0].request.roster
    for fewer in (roster[:5], roster[:4], (*roster[:2], *roster[3:])):
        assert all(reveal_from(members, frames, name, roster=fewer) is None for name in fewer)


def test_once_those_left_were_asked_again_the_first_roster_is_not_unmasked():
    """Of one question the sum over one roster comes out: not that over all and that over all but one."""
    members, frames = uploaded(6, policy=Policy(verification="off", protection="none"))
    roster = frames["s-0"][0].request.roster
    for name in roster[:5]:
        decoded, _ = frames[name]
        ask = changed(decoded.request, roster=roster[:5], n=5)
        assert put(members[name], decoded, ask, roster=roster[:5]) is codec.Form.ANSWER
    assert all(reveal_from(members, frames, name) is None for name in roster[:5])
