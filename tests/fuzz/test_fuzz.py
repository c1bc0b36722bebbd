"""Many nearly valid bytes against the codec and against a site's exit."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.messages import codec, schema, site_api
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing, Reply, reply_type
from coterie.methods.kernel.dspgd.sites import Multiply, ReportFeatureLength, SendGram, SumFeatures
from coterie.methods.kernel.landmarks.sites import MeanByCell, SendFeatureGram
from coterie.methods.kernel.landmarks.summed import CountCells, ShareCells, SumProjected
from coterie.methods.method import PREPARATION
from coterie.methods.registry import METHODS
from coterie.methods.shared.coresets import SampleCoreset
from coterie.methods.shared.halves import CompareHalf
from coterie.secure import replay
from coterie.secure.handshake import Parts, PublicSeed, SiteHello
from coterie.secure.masked_sums import AskMasked, Masked, Reveal, Revealed

from .bounds import Bounds, bounded, small_machine
from .history import Walk, recordings, walk
from .mutator import in_turn, mutations, run_of
from .target import (
    AVERAGES,
    HOLES,
    PLAIN,
    ROWS,
    SAMPLES,
    SITE,
    UPLOAD,
    acquainted_site,
    answered,
    answers,
    corpus,
    envelope,
    fuzz_one,
    fuzz_site,
    introduced,
    masked,
    method_of,
    new_site,
    question,
    questions,
)

QUICK, SLOW = 3_000, {"codec": 140_000, "new": 5_000, "seen much": 80_000, "run": 80_000}
"""How many inputs, in the quick suite and in the whole."""


def both(name: str, quick: int = QUICK) -> list[Any]:
    return [quick, pytest.param(SLOW[name], marks=pytest.mark.slow)]


@pytest.fixture
def few_resources(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bounds]:
    """A question that asks for much fails by itself, before it takes as much as a check finds too much."""
    monkeypatch.setattr(codec, "MAX_ANSWER_BYTES", 1 << 18)
    with small_machine(2 << 30), bounded() as check:
        yield check


@pytest.mark.parametrize("count", both("codec"))
def test_the_codec_reads_any_bytes_as_a_message_or_one_clear_error(few_resources, count):
    for data in mutations(corpus(), count, seed=1):
        few_resources.begin()
        fuzz_one(data)
        few_resources(data)


@pytest.mark.filterwarnings("ignore")  # at a real site a warning stops nothing either
@pytest.mark.parametrize("count", both("new", 1_500))
def test_a_new_site_answers_any_bytes_and_gives_nothing_away(few_resources, count):
    seen = Counter()
    for data in mutations(questions(), count, seed=3):
        few_resources.begin()
        seen.update(map(_outcome, fuzz_site(data)))
        few_resources(data)
    assert {Masked, Revealed, Refusal.ROSTER_FORBIDDEN} <= {*seen}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", both("seen much", 5_000))
def test_a_site_that_has_seen_much_answers_any_bytes_and_gives_nothing_away(few_resources, count):
    sites, seen = [new_site(ROWS), new_site(HOLES)], Counter()
    for number, data in enumerate(mutations(questions(), count, seed=3)):
        few_resources.begin()
        recall, transcript = introduced(run_of(number))
        for site in sites:
            if number % 80 == 40:  # in every second run the site knows the others
                site.answer(recall)
            seen[_outcome(answered(site, in_turn(data, number, transcript)))] += 1
        few_resources(data)
    # the inputs are worth something only if they get past the door
    assert {Refusal.MALFORMED, Refusal.FOREIGN, Refusal.UNKNOWN_QUESTION, Refusal.STALE, Refusal.CONFLICT} <= {*seen}
    assert {Refusal.FORGOT, Refusal.MISSING_VALUES, Refusal.OUT_OF_RANGE, Refusal.FAILED} <= {*seen}
    assert Masked in seen
    assert sum(issubclass(kind, Reply) for kind in seen if isinstance(kind, type)) >= 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", both("run"))
def test_a_site_in_the_middle_of_a_run_answers_what_is_due_whatever_else_it_is_asked(few_resources, count):
    seen = walk(count, 4, few_resources)
    assert {Masked, Revealed, SiteHello, Parts, PublicSeed, Nothing} <= {*seen}
    assert {
        Refusal.IN_FULL,
        Refusal.MALFORMED,
        Refusal.NOT_ORDERED,
        Refusal.UNTRUSTED,
        Refusal.FORGOT,
        Refusal.STALE,
    } <= {*seen}
    assert seen["finished"]


@pytest.mark.parametrize("recording", range(5))
def test_a_site_that_forgot_a_run_is_brought_up_to_date_wherever_it_stands(recording):
    """The control: without other questions in between all is answered; a recall of nothing makes a site forget."""
    on_the_way = Walk(recordings()[recording], Counter())
    forgets = codec.encode_recall(envelope(), [])
    on_the_way.site.answer(forgets)
    while on_the_way.go_on():
        on_the_way.site.answer(forgets)
    assert on_the_way.place == len(on_the_way.recording.frames)


def test_a_question_beside_the_ordered_one_is_found(monkeypatch):
    """The control: sites that take any question for the ordered one."""
    monkeypatch.setattr(replay, "is_same", lambda *_: True)
    with bounded() as check, pytest.raises(AssertionError, match=r"another question than|refuses what it answered"):
        walk(4 * QUICK, 4, check)


def _outcome(found):
    return type(found) if isinstance(found, Reply) else found


@pytest.mark.filterwarnings("ignore")
def test_the_corpus_is_valid_and_holds_every_form_and_every_kind_of_question():
    carrying = {kind for kind in site_api.CARRIERS if kind.__module__.startswith("coterie.")}
    declared = {kind for method in METHODS.values() for kind in method.requests} | {*PREPARATION} | carrying
    lacking = declared - {type(request) for request in SAMPLES}
    assert not lacking, f"give SAMPLES in tests/fuzz/target.py a question of each of {lacking}"
    forms = Counter(codec.read_envelope(frame)[0] for frame in corpus())
    assert {*forms} == {*codec.Form}
    assert all(codec.decode_question(frame) for frame in questions())
    replies = [answered(new_site(ROWS), frame) for frame in questions()]
    assert sum(isinstance(reply, Reply) for reply in replies) >= 15
    assert sum(codec.read_envelope(frame)[0] is codec.Form.ANSWER for frame in answers()) >= 15


NEED_A_VIEW = (
    *(ReportFeatureLength, SumFeatures, Multiply, SendGram),
    *(SumProjected, CountCells, ShareCells, MeanByCell, SendFeatureGram),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("request_", [one for one in SAMPLES if isinstance(one, AskMasked | Reveal)])
def test_questions_that_carry_others_are_answered_by_a_site_that_knows_the_others(request_):
    site = acquainted_site(ROWS, has_uploaded=isinstance(request_, Reveal))
    found = answered(site, question(request_, {}))
    if request_.subject.remembered:
        assert found is Refusal.UNKNOWN_QUESTION
    elif METHODS[method_of(request_)].needs_rows:
        assert found is Refusal.ROWS_PROTECTED
    elif request_.subject in NEED_A_VIEW or b"{}" in getattr(request_, "body", b""):
        assert found is Refusal.MALFORMED  # no kernel was begun, no landmarks agreed on; or a model that is none
    elif reply_type(request_.subject).content == "rows" or request_.subject is SampleCoreset:
        assert found is Refusal.ROWS_FORBIDDEN  # masked or not, nobody gets a number for every row
    elif request_.n < AVERAGES.min_roster or request_.subject is CompareHalf:  # no policy here lets halves be asked
        assert found is Refusal.ROSTER_FORBIDDEN
    else:
        assert _outcome(found) in (Masked, Revealed, Refusal.INVALID_ANSWER)


def _looks_uniform(numbers):
    """Whether the bytes of many numbers are as good as random: chi-square, 255 degrees of freedom, p > 1e-6."""
    counts = np.bincount(np.frombuffer(np.asarray(numbers, np.uint64).tobytes(), np.uint8), minlength=256)
    return ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 375


def test_masked_answers_are_uniform_and_share_no_number():
    """The same question to the same rows again and again."""
    seen = [answered(acquainted_site(ROWS, has_uploaded=False), question(UPLOAD, {})).numbers for _ in range(300)]
    assert _looks_uniform(np.concatenate(seen))
    assert len({*np.concatenate(seen).tolist()}) == sum(map(len, seen))


def test_numbers_without_a_mask_do_not_look_uniform():
    """The control: a site that would be summed up with nobody sends its numbers as they are."""
    alone = dataclasses.replace(AVERAGES, min_roster=1)
    frame = question(masked(PLAIN[0], roster=(SITE,)), {})
    ask, said = codec.decode_question(frame).request, codec.read_envelope(frame)[1]
    sites = [acquainted_site(ROWS, alone, has_uploaded=False) for _ in range(300)]
    seen = [codec.decode_answer(site.answer(frame), said, ask.layout, ask.layout.bounds({})) for site in sites]
    assert not _looks_uniform(np.concatenate([reply.numbers for reply in seen]))


def test_the_same_seed_gives_the_same_bytes():
    assert list(mutations(corpus(), 50, seed=4)) == list(mutations(corpus(), 50, seed=4))
    assert list(mutations(corpus(), 50, seed=4)) != list(mutations(corpus(), 50, seed=5))


DIGEST = """
import hashlib
from tests.fuzz.mutator import mutations
from tests.fuzz.target import questions
print(hashlib.sha256(b"".join(mutations(questions(), 3000, seed=6))).hexdigest())
"""


@pytest.mark.filterwarnings("ignore")
def test_the_same_seed_gives_the_same_bytes_whatever_was_imported(monkeypatch):
    """Another test's requests are no part of the inputs; a process of its own knows none."""

    class Foreign(schema.Request[schema.Nothing]):
        pass

    monkeypatch.delitem(schema._KINDS, Foreign.kind)
    monkeypatch.setitem(schema._KINDS, "aaa.Foreign", Foreign)
    here = hashlib.sha256(b"".join(mutations(questions(), 3000, seed=6))).hexdigest()
    root = Path(__file__).parents[2]
    alone = subprocess.run([sys.executable, "-c", DIGEST], cwd=root, capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == here
