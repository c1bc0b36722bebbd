"""Ways around the verification of runs, by a server that asks what it likes at any moment: each gets nothing."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from coterie import DSPGDKernelPCA, FederatedKernelKMeans, FederatedKMeans
from coterie.estimators.registry import make_estimator
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing
from coterie.messages.verbs import Seen
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.prepared import Prepare
from coterie.secure.certificates import SIGNED_BYTES, Conclude
from coterie.secure.handshake import HELLO_BYTES, AskHello, ShareKey, seed_from
from coterie.secure.masked_sums import Reveal
from coterie.secure.replay import Attachment, ProvenSum, Replay, encode
from coterie.sites.policy import Policy
from tests.attacks.verified import VerifiedRun

NAMES = tuple("abcd")
ROWS = {name: np.random.default_rng(ord(name)).normal(size=(40, 2)) for name in NAMES}
START = np.array([[-1.0, 1.0], [1.0, -1.0]])
KMEANS = make_estimator("lloyd", {"n_clusters": 2, "init": START, "tol": 0.0, "max_rounds": 20})


def begun(estimator=KMEANS, *, n_sums=0, **options):
    run = VerifiedRun(ROWS, estimator, **options)
    for _ in range(n_sums):
        run.next_sum()
    return run


def until(run, kind):
    """Ask as ordered until the next question is of this kind."""
    while not isinstance(run.replay.request, kind):
        run.next_sum()
    return run


def is_refused(found, *codes):
    refusals = [one for one in found.values() if isinstance(one, Refusal)]
    assert len(refusals) in (0, len(found)), found
    return bool(refusals) and set(refusals) <= set(codes or (Refusal.NOT_ORDERED,))


def goes_on(run):
    """Whether the run goes on as it would have without what was tried."""
    expected = begun(n_sums=len(run.sums) + 2)
    for _ in range(2):
        run.next_sum()
    for one, other in zip(run.results, expected.results, strict=True):
        for left, right in zip(one.arrays(), other.arrays(), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-9)
    return True


# ---------------------------------------------------------------- a question within rounding, many times


def moved(run, by):
    """The next question with its centers some way off, under its own name, and its bytes."""
    inner = run.replay.request
    body = codec.encode_body(replace(inner, centers=inner.centers + by), run.replay.question.limits)
    return replace(run.replay.ask(run.names), digest=body.digest), body.data


def test_a_question_within_rounding_is_answered_in_the_server_s_words():
    """The control: arithmetic differs, so a site takes what differs from its own by rounding only."""
    run = until(begun(), Assign)
    ask, body = moved(run, 1e-10)
    assert run.upload(ask=ask).refusals == {Refusal.IN_FULL}
    assert run.upload(ask=ask, body=body).is_answered


def test_steps_within_rounding_do_not_add_up():
    """Each question within rounding of the one before: after a few it is not within rounding of the site's own."""
    run = until(begun(), Assign)
    for step in range(1, 30):
        ask, body = moved(run, step * 4e-10)
        if not run.upload(ask=ask, body=body).is_answered:
            break
    assert step in (2, 3, 4)
    ask, body = moved(run, 0.0)
    assert run.upload(ask=ask, body=body).is_answered
    assert goes_on(run)


def test_one_question_at_a_place_is_unmasked():
    run = until(begun(), Assign)
    first, second = (run.upload(ask=ask, body=body) for ask, body in (moved(run, 0.0), moved(run, 3e-10)))
    assert not is_refused(run.reveal(second))
    third = run.upload(ask=moved(run, 0.0)[0], body=moved(run, 0.0)[1])
    assert is_refused(run.reveal(third))
    assert is_refused(run.reveal(first))


# ---------------------------------------------------------------- what a site has in mind after a refusal

METHODS = [
    KMEANS,
    FederatedKernelKMeans(2, n_landmarks=2, random_state=0),
    DSPGDKernelPCA(2, n_features=4, n_iter=2, random_state=0),
]


@pytest.mark.parametrize("estimator", METHODS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("bad", ["position", "sum"])
def test_a_question_that_is_refused_changes_no_later_answer(estimator, bad):
    """What the site keeps is not built a second time on top of what is there."""
    sums = []
    for is_attacked in (False, True):
        run = begun(estimator)
        while run.replay.question is not None:
            if is_attacked:
                ask, attached = run.replay.ask(run.names), run.sums
                if bad == "position":
                    ask = replace(ask, position=ask.position + 1)
                elif run.sums:
                    last = run.sums[-1]
                    attached = [*run.sums[:-1], structs.replace(last, numbers=last.numbers[:-1] + b"\x55")]
                    if attached == run.sums:
                        attached = []
                if (ask, attached) != (run.replay.ask(run.names), run.sums):
                    assert run.upload(ask=ask, sums=attached).refusals == {Refusal.NOT_ORDERED}
            run.next_sum()
        sums.append([array for reply in run.results for array in reply.arrays()])
    for plain, attacked in zip(*sums, strict=True):
        np.testing.assert_allclose(attacked, plain, atol=1e-9)


# ---------------------------------------------------------------- the beginning, once more and otherwise


def test_other_parts_of_the_key_change_nothing():
    run = begun(n_sums=2)
    before = run.memory("a")["masked_sums.group"]
    swapped = run.parts["a"].sealed.copy()
    swapped[1] ^= 1
    fewer = replace(run.parts["a"], names=NAMES[:3], sealed=run.parts["a"].sealed[:3])
    for other in (replace(run.parts["a"], sealed=swapped), fewer, run.parts["b"]):
        assert run.each({"a": other})["a"] in (Refusal.MALFORMED, Refusal.NOT_ORDERED)
        run.askers["a"].recall([run.hello, run.introduction, run.parts["a"]])
        assert run.memory("a")["masked_sums.group"] == before
        assert set(run.memory("a")["masked_sums.parts"]) == set(NAMES)
    assert goes_on(run)


def test_parts_left_out_for_one_site_give_a_run_that_ends_with_its_first_sum():
    """Nobody unmasks a second sum: that site's key is another one, and so is its seed."""
    run = begun(is_begun=False)
    run.hellos = {name: reply.hello for name, reply in run.each(run.hello).items()}
    found = run.each(run.introduction)
    asks = {}
    for place, name in enumerate(NAMES):
        givers = NAMES[1:] if name == "d" else NAMES
        asks[name] = ShareKey(givers, np.array([found[giver].sealed[place] for giver in givers]))
    seeds = {name: bytes(reply.seed.astype(np.uint8)) for name, reply in run.each(asks).items()}
    assert len(set(seeds.values())) == 2
    run.replay = Replay(run.order, seed_from(seeds["a"]), run.reports)
    roster = NAMES[1:]
    first = run.upload(roster)
    assert first.is_answered
    run.take(first, run.reveal(first))
    assert set(run.upload(roster).found.values()) == {Refusal.NOT_ORDERED}


def test_another_introduction_needs_another_key_and_gets_none():
    """Before the first sum others may be introduced; the key that was settled stays, and needs the first words."""
    run = begun()
    others = {name: reply.hello for name, reply in run.each(run.hello).items()}  # signed anew: other heads
    again = replace(run.introduction, hellos=np.array([others[name] for name in NAMES]))
    assert all(not isinstance(one, Refusal) for one in run.each(again).values())
    assert run.upload().refusals == {Refusal.NOT_ORDERED}  # there is no key
    assert is_refused(run.each(run.parts))
    for name, asker in run.askers.items():
        asker.recall([run.hello, run.introduction, run.parts[name]])
    assert goes_on(run)


def test_an_empty_order_after_an_order_gets_nothing():
    run = begun(n_sums=2)
    before = {name: run.site(name).ledger.total("floats_up") for name in NAMES}
    assert set(run.each(AskHello(b"", HELLO_BYTES)).values()) == {Refusal.NOT_ORDERED}
    assert not run.upload().is_answered
    assert {name: run.site(name).ledger.total("floats_up") for name in NAMES} == before
    for name, asker in run.askers.items():
        asker.recall([run.hello, run.introduction, run.parts[name]])
    assert goes_on(run)


def test_first_words_for_another_order_are_not_taken_for_this_one():
    run = begun(is_begun=False)
    run.hellos = {name: reply.hello for name, reply in run.each(run.hello).items()}
    other = begun(replace_k(3), run=run.order.run, is_begun=False)
    run.hellos["d"] = other.each(other.hello)["d"].hello
    assert is_refused(run.each(run.introduction, NAMES[:3]), Refusal.UNTRUSTED)


def replace_k(k):
    return FederatedKMeans(k, random_state=0)


# ---------------------------------------------------------------- recalls and restarts


@pytest.mark.parametrize("restarted", [False, True])
def test_a_site_that_is_told_other_requests_answers_nothing(tmp_path, restarted):
    run = begun(folder=tmp_path, n_sums=3)
    prepare = Prepare("mean", False, np.zeros(2), np.zeros(2), np.ones(2), *np.zeros((2, 0)))
    right = [run.hello, run.introduction, run.parts["a"]]
    others = [
        [prepare, *right],
        [*right, prepare],
        [right[0], prepare, *right[1:]],
        right[:2],
        right[:1],
        [],
        [right[0], right[2], right[1]],
        [right[0], right[1], run.parts["b"]],
    ]
    for requests in others:
        if restarted:
            asker = run.askers["a"]
            asker.remembered = []
            asker.restart()
        run.askers["a"].recall(requests)
        found = run.put("a", run.replay.ask(NAMES), NAMES)
        assert found in (Refusal.NOT_ORDERED, Refusal.FORGOT), requests
    assert run.askers["a"].recall(right) == Nothing()
    assert goes_on(run)
    for name in NAMES:
        run.site(name).ledger.close()


def test_a_restarted_site_goes_on_where_it_was_and_nowhere_else(tmp_path):
    run = begun(folder=tmp_path, n_sums=4)
    for asker in run.askers.values():
        asker.restart()
    for position in (0, 3, 5):
        assert run.upload(ask=replace(run.replay.ask(NAMES), position=position)).refusals == {Refusal.NOT_ORDERED}
    assert run.upload(sums=run.sums[:2]).is_answered  # what was checked needs no second showing
    assert goes_on(run)
    for name in NAMES:
        run.site(name).ledger.close()


# ---------------------------------------------------------------- unmasking


def test_no_sum_of_before_is_unmasked_later(tmp_path):
    """An upload that nobody unmasked, once the run has gone on; and one that was, twice."""
    run = begun(folder=tmp_path, n_sums=2)
    kept = run.upload()
    run.next_sum()
    run.upload()
    assert is_refused(run.reveal(kept))
    for name in NAMES:
        run.site(name).ledger.close()


def test_a_sum_that_needs_every_site_may_be_given_up():
    """Where one drops out, the method goes on with those left."""
    run = begun(DSPGDKernelPCA(2, n_features=4, n_iter=2, random_state=0))
    while not run.replay.question.complete:
        run.next_sum()
    run.sums.append(ProvenSum(run.replay.position, run.upload().round, 0, NAMES[:3]))
    run.replay.take(run.sums[-1])
    assert run.upload(NAMES[:3]).is_answered


# ---------------------------------------------------------------- another method, no site, twice at once


def test_a_question_under_another_method_is_refused():
    run = until(begun(), Assign)
    for asker in run.askers.values():
        asker.method = "federated-kmeans"
    assert run.upload().refusals == {Refusal.NOT_ORDERED}
    for asker in run.askers.values():
        asker.method = run.order.method
    assert goes_on(run)


def test_another_method_that_may_see_rows_has_no_key(tmp_path):
    """Two views of one run: what was begun in one does not open the other."""
    run = until(begun(policy=Policy(method_protection={"federated-kmeans": "none"})), Assign)
    for name, asker in run.askers.items():
        asker.method = "federated-kmeans"
        assert isinstance(asker.recall([run.hello]), Refusal)
        assert isinstance(asker.recall([run.hello, run.introduction, run.parts[name]]), Refusal)
        asker.recall([AskHello(b"", HELLO_BYTES)])
    assert not run.upload().is_answered


@pytest.mark.parametrize("roster", [(), ("a", "a", "b"), ("a", "b", "c", "x"), ("b", "c", "d")])
def test_rosters_that_are_none_are_refused(roster):
    run = begun(n_sums=2)
    ask = replace(run.replay.ask(NAMES), roster=roster, n=len(roster))
    assert run.put("a", ask, roster or ("a",)) in (Refusal.NOT_ORDERED, Refusal.MALFORMED)
    assert goes_on(run)


def test_a_question_that_comes_twice_at_once_is_answered_once(tmp_path):
    run = begun(folder=tmp_path, n_sums=3)
    site, asked = run.site("a"), run.upload()
    before = site.ledger.total("answers")
    frames = []
    shares = np.array([asked.found[name].shares[0] for name in NAMES])
    body = codec.encode_body(Reveal(4, asked.round, 0, NAMES, shares), {})
    script = codec.NO_TRANSCRIPT
    for one in run.askers["a"].remembered:
        script = codec.extend_transcript(script, one)
    for round_ in (50, 50, 51, 52):
        envelope = run.askers["a"]._envelope(body.digest, NAMES, round_)
        frames.append(codec.encode_question(envelope, body, script, Seen.SINGLE))
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda f=frame: answers.append(site.answer(f))) for frame in frames]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given = {raw for raw in answers if codec.read_envelope(raw)[0] is codec.Form.ANSWER}
    assert len(given) == 1
    assert site.ledger.total("answers") == before + 1
    for name in NAMES:
        run.site(name).ledger.close()


def test_nothing_is_answered_between_the_last_sum_and_the_end():
    run = begun(FederatedKMeans(2, init=START, max_rounds=1, tol=0.0))
    while run.replay.question is not None:
        last = run.replay.ask(NAMES)
        run.next_sum()
    others = [replace(last, position=p) for p in (0, last.position, last.position + 1)]
    for _ in range(2):
        for ask in others:
            assert run.upload(ask=ask).refusals == {Refusal.NOT_ORDERED}
            found = run.each(Conclude(SIGNED_BYTES), attached=encode(Attachment(run.sums)))
        assert not any(isinstance(one, Refusal) for one in found.values())
    assert is_refused(run.each(Agree(2, ("x0", "x1"), ("number", "number"))))
