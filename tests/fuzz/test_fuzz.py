"""Many nearly valid bytes against the codec and against a site's exit."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.protocols.methods import METHODS, PREPARATION

from .mutator import in_turn, mutations
from .target import HOLES, ROWS, SAMPLES, answered, answers, corpus, fuzz_one, fuzz_site, new_site, questions

COUNTS = [2_000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, two gigabytes more, small answers: a question that asks for more than that fails by itself."""
    monkeypatch.setattr(codec, "MAX_ANSWER_BYTES", 1 << 18)
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with threadpool_limits(1):
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("count", COUNTS)
def test_the_codec_reads_any_bytes_as_a_message_or_one_clear_error(count):
    for data in mutations(corpus(), count, seed=1):
        fuzz_one(data)


@pytest.mark.filterwarnings("ignore")  # at a real site a warning stops nothing either
@pytest.mark.parametrize("count", COUNTS)
def test_a_new_site_answers_any_bytes_and_gives_nothing_away(small_machine, count):
    for data in mutations(questions(), count, seed=2):
        fuzz_site(data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", COUNTS)
def test_a_site_that_has_seen_much_answers_any_bytes_and_gives_nothing_away(small_machine, count):
    sites, seen = [new_site(ROWS), new_site(HOLES)], Counter()
    for number, data in enumerate(mutations(questions(), count, seed=3)):
        for site in sites:
            found = answered(site, in_turn(data, number))
            seen[type(found) if isinstance(found, Reply) else found] += 1
    # the inputs are worth something only if they get past the door
    assert {Refusal.MALFORMED, Refusal.FOREIGN, Refusal.UNKNOWN_QUESTION, Refusal.STALE, Refusal.CONFLICT} <= {*seen}
    assert {Refusal.FORGOT, Refusal.MISSING_VALUES, Refusal.OUT_OF_RANGE, Refusal.FAILED} <= {*seen}
    assert sum(issubclass(kind, Reply) for kind in seen if isinstance(kind, type)) >= 5


@pytest.mark.filterwarnings("ignore")
def test_the_corpus_is_valid_and_holds_every_form_and_every_kind_of_question():
    declared = {kind for method in METHODS.values() for kind in method.requests} | {*PREPARATION}
    lacking = declared - {type(request) for request in SAMPLES}
    assert not lacking, f"give SAMPLES in tests/fuzz/target.py a question of each of {lacking}"
    forms = Counter(codec.read_envelope(frame)[0] for frame in corpus())
    assert {*forms} == {*codec.Form}
    assert all(codec.decode_question(frame) for frame in questions())
    replies = [answered(new_site(ROWS), frame) for frame in questions()]
    assert sum(isinstance(reply, Reply) for reply in replies) >= 13
    assert sum(codec.read_envelope(frame)[0] is codec.Form.ANSWER for frame in answers()) >= 12


def test_the_same_seed_gives_the_same_bytes():
    assert list(mutations(corpus(), 50, seed=4)) == list(mutations(corpus(), 50, seed=4))
    assert list(mutations(corpus(), 50, seed=4)) != list(mutations(corpus(), 50, seed=5))
