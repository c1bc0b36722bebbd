"""Answers and refusals that were changed, cut, or made for another exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import BadAnswer
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.messages.verbs import Seen
from coterie.methods.shared.lloyd import Assign, Moments

from .exchanges import ASSIGN, LIMITS, SAMPLES, answer, resealed
from .samples import mutated


def read_answer(frame: bytes, expected: tuple[Any, ...]) -> Reply | Refusal | None:
    """A reply all of whose numbers are allowed, a refusal, or None for BadAnswer; anything else is raised."""
    try:
        found = codec.decode_answer(frame, *expected)
    except BadAnswer:
        return None
    if isinstance(found, Reply):
        _, layout, bounds = expected
        assert type(found) is layout.reply
        for value, item, (low, high) in zip(found.arrays(), layout.fields, bounds, strict=True):
            assert value.shape == item.shape
            assert not item.wire.is_float or np.isfinite(value).all()
            slack = 3e-3 * np.where(np.isfinite(high), high, 0.0)
            assert (value >= low - slack).all()
            assert (value <= high + slack).all()
    else:
        assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
@given(data=st.data())
def test_any_change_of_an_answer_gives_a_fitting_reply_a_refusal_or_one_clear_error(request_, data):
    frame, expected = answer(request_, data.draw(st.integers(0, 9)))
    changed = data.draw(mutated(frame))
    read_answer(changed, expected)
    read_answer(resealed(changed), expected)


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
def test_no_flipped_bit_and_no_cut_of_an_answer_passes(request_):
    frame, expected = answer(request_)
    for place in range(len(frame)):
        assert read_answer(frame[:place], expected) is None
        for bit in range(8):
            changed = frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]
            assert read_answer(changed, expected) is None
            read_answer(resealed(changed), expected)


@given(st.sampled_from(Refusal), st.data())
def test_any_change_of_a_refusal_gives_a_refusal_or_one_clear_error(code, data):
    _, expected = answer(ASSIGN)
    frame = codec.encode_refusal(expected[0], code)
    found = read_answer(data.draw(mutated(frame)), expected)
    assert found is None or isinstance(found, Refusal)


OTHERS = {
    "run": bytes(16),
    "round": 4,
    "attempt": 0,
    "roster": bytes(8),
    "request": bytes(16),
    "method": "lloyx",
    "site": codec.site_tag("b"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_answer_of_another_exchange_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    other = expected._replace(**{name: OTHERS[name]})
    frame = codec.encode_answer(other, layout, layout.reply.zeros(ASSIGN.axes), bounds)
    text = "is from another site" if name == "site" else f"belongs to another {name}"
    with pytest.raises(BadAnswer, match=f"its answer {text}"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["", "one-shot", "lloyd-longer"])
def test_the_answer_of_a_method_with_a_longer_or_shorter_name_is_refused(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_answer(expected._replace(method=name), layout, layout.reply.zeros(ASSIGN.axes), bounds)
    with pytest.raises(BadAnswer, match="belongs to another method"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["site", "run"])
def test_the_refusal_of_another_site_or_run_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_refusal(expected._replace(**{name: OTHERS[name]}), Refusal.FAILED)
    with pytest.raises(BadAnswer, match=f"another {name}"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["round", "attempt", "roster", "request", "method"])
def test_the_refusal_of_another_exchange_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_refusal(expected._replace(**{name: OTHERS[name]}), Refusal.FAILED)
    with pytest.raises(BadAnswer, match=f"another {name}"):
        codec.decode_answer(frame, expected, layout, bounds)


def test_a_refusal_with_no_meaning_is_refused():
    _, (expected, layout, bounds) = answer(ASSIGN)
    for code in set(range(256)) - {*Refusal}:
        frame = codec.encode_refusal(expected, Refusal.FAILED)[:-1] + bytes([code])
        with pytest.raises(BadAnswer, match=f"refused with the unknown code {code}"):
            codec.decode_answer(frame, expected, layout, bounds)


def test_what_is_no_answer_at_all_is_refused_and_says_what_it_is():
    _, (expected, layout, bounds) = answer(ASSIGN)
    body = codec.encode_body(ASSIGN, LIMITS)
    cases = {
        "cannot be read: the message is shorter than its header": b"",
        "cannot be read: message format 7": b"\x07" + bytes(80),
        "is a question, not an answer": codec.encode_question(expected, body, bytes(8), Seen.SINGLE),
        "is a refusal, not an answer": codec.encode_refusal(expected, Refusal.FAILED) + b"\0",
    }
    for text, frame in cases.items():
        with pytest.raises(BadAnswer, match=text):
            codec.decode_answer(frame, expected, layout, bounds)


def test_the_answer_to_a_question_of_another_size_is_refused():
    _, (expected, layout, bounds) = answer(ASSIGN)
    other = Assign(np.zeros((2, 3)))
    frame = codec.encode_answer(expected, other.layout, Moments.zeros(other.axes), other.layout.bounds({}))
    with pytest.raises(BadAnswer, match="its answer is not of the type Moments"):
        codec.decode_answer(frame, expected, layout, bounds)


def test_a_short_long_or_damaged_answer_is_refused_and_says_so():
    frame, expected = answer(ASSIGN)
    cases = {
        "holds 79 bytes of numbers, not 80": resealed(frame[:-5] + frame[-4:]),
        "holds 72 bytes of numbers, not 80": resealed(frame[:-12] + frame[-4:]),
        "holds 88 bytes of numbers, not 80": resealed(frame[:-4] + bytes(8) + frame[-4:]),
        "holds 0 bytes of numbers, not 80": frame[:66],
        "arrived damaged": frame[:-1] + bytes([frame[-1] ^ 1]),
        "its answer arrived damaged": frame[:70] + bytes([frame[70] ^ 1]) + frame[71:],
    }
    for text, changed in cases.items():
        with pytest.raises(BadAnswer, match=text):
            codec.decode_answer(changed, *expected)
