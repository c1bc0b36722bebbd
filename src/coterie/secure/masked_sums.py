"""Masked sums after Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".

A site adds to its numbers, coded as integers of a ring, one mask for every other site of the roster (with opposite
signs at the two ends, so that they cancel) and one of its own. All masks of a round are streams of keys used once:
they bind the run, the round, the attempt, the roster and the request. Where the whole roster has uploaded, sites
reveal for that round their shares of each other's own masks (any ``threshold`` of them give one). Where it has not,
nothing is revealed, and those left are asked again, masked for each other alone. Common masks are never revealed, so
the only sum that can be unmasked is the one over the roster that every site of it was asked about.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coterie.errors import BadAnswer, MalformedMessage, NotOrdered
from coterie.maths.masks import (
    TAGS,
    Coding,
    FixedPoint,
    Narrow,
    Ring,
    SignedNumbers,
    WholeNumbers,
    add_streams,
    inner_product,
)
from coterie.maths.thresholds import may_tolerate, threshold
from coterie.messages import codec
from coterie.messages.bounds import Limits, Magnitude
from coterie.messages.codec import Envelope
from coterie.messages.contributions import PrivateRequest
from coterie.messages.schema import Layout, Reply, Request, array, request_type
from coterie.messages.site_api import Exit, Memory, carries
from coterie.messages.verbs import Question
from coterie.secure.keys import Bytes, Context, array_of, common_seed, expanded, opened, own_seed, rows_of, seal
from coterie.secure.shamir import SECRET_BYTES, SHARE_BYTES, split

SEALED_BYTES = SHARE_BYTES + 16
TAG_BYTES = 16


class Masked(Reply, content="sums"):
    """Masked numbers, and for every other site of the roster its sealed share of the secret of one's own mask."""

    numbers: Narrow = array("count", dtype="uint{bits}")
    shares: Bytes = array("n", SEALED_BYTES, dtype="uint8", is_counted=False)
    tag: Bytes = array("tag_bytes", dtype="uint8", is_counted=False)


class AskMasked(Request[Masked], doing="summing masked answers"):
    """Answer the request in ``body``, masked for this roster."""

    bits: int
    count: int
    n: int
    roster: tuple[str, ...]
    body: bytes
    """Empty where sites know the question: then its kind and the digest of its bytes stand for it."""
    position: int = 0
    """How many sums the run has asked for before."""
    tag_bytes: int = 0
    """16 where sites check the sum, else 0."""
    known: str = ""
    digest: bytes = b""

    @property
    def subject(self) -> type[Request[Any]]:
        """The request carried, where it is one known here."""
        return (request_type(self.known) if self.known else codec.kind_of(self.body)) or type(self)


class Revealed(Reply, content="nothing"):
    """By place in the roster, the share of the site's own mask; none of one's own."""

    shares: Bytes = array("n", SHARE_BYTES, dtype="uint8", is_counted=False)


class Reveal(Request[Revealed], doing="unmasking the sum"):
    """Unmask the sum of an earlier round, in which the whole roster uploaded; these are the shares sealed for you."""

    n: int
    round: int
    attempt: int
    roster: tuple[str, ...]
    sealed: Bytes = array("n", SEALED_BYTES, dtype="uint8")


class Known(NamedTuple):
    """The next question of a run whose sites step the ordered method themselves."""

    position: int
    """How many sums the run took before."""
    request: Request[Any]
    limits: Limits
    digest: bytes
    coded: Callable[[int], Sequence[Coding]]
    """How the numbers of its answer are coded for so many sites."""


def ring_bits(question: Question, n_sites: int, default: int = 64) -> int:
    """The size of the ring in which the answers to a question add up."""
    request = question.request
    assert isinstance(request, Request)
    return request.ring or _fewest_bits(request.layout, n_sites) or question.bits or default


def _fewest_bits(layout: Layout, n_sites: int) -> int | None:
    """The smallest ring in which whole numbers of a declared kind add up exactly; None where some are not whole."""
    if any(item.wire.is_float for item in layout.fields) or not layout.is_bounded({}):
        return None
    largest = max((np.max(high) for _, high in layout.bounds({})), default=0.0)
    return next((b for b in (8, 16, 32, 64) if ((1 << (b - 1)) - 1) // n_sites >= largest), None)


def decoded_sum(total: Ring, layout: Layout, coded: Sequence[Coding]) -> Reply:
    """The reply that a sum in the ring stands for; ``BadAnswer`` if sites within their bounds cannot have sent it."""
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        value = coding.decode(total[start : start + item.size].reshape(item.shape))
        if isinstance(coding, FixedPoint) and not coding.can_sum_to(value):
            most = f"more than {coding.n_sites} sites can send"
            raise BadAnswer(f"the sum's {item.name} holds {most}: a site did not keep to its bound.")
        if item.spec.nonnegative and value.min(initial=0.0) < 0:
            raise BadAnswer(f"the sum's {item.name} is below 0: a site did not keep to its bound.")
        arrays.append(value)
        start += item.size
    return layout.reply(*arrays)


def codings(request: Request[Any], limits: Any, bits: int, n_sites: int) -> Sequence[Coding]:
    """How each array of an answer is coded; ``ValueError`` where one has no bound."""
    layout = request.layout
    if request.ring is None:
        return [_fixed_point(bits, high, n_sites) for _, high in layout.bounds(limits)]
    if bits != request.ring:
        raise ValueError(f"a ring of {bits} bits for one of {request.ring}")
    kind = SignedNumbers if isinstance(request, PrivateRequest) else WholeNumbers
    return [kind(bits)] * len(layout.fields)


def _fixed_point(bits: int, bound: Magnitude, n_sites: int) -> FixedPoint:
    return _plain_fixed_point(bits, bound, n_sites) if isinstance(bound, float) else FixedPoint(bits, bound, n_sites)


@lru_cache(maxsize=256)  # rounds of one method need the same
def _plain_fixed_point(bits: int, bound: float, n_sites: int) -> FixedPoint:
    return FixedPoint(bits, bound, n_sites)


def _roster(exit_: Exit, memory: Memory, names: tuple[str, ...], digest: bytes) -> None:
    """Refuse rosters that are unknown, or not what the envelope says."""
    known = memory.get("masked_sums.hellos", {})
    if len(set(names)) != len(names) or exit_.name not in names or codec.roster_digest(names) != digest:
        raise MalformedMessage("the roster is not the one of the envelope")
    if not set(names) <= known.keys():
        raise MalformedMessage("a site of the roster was not introduced")


@carries(AskMasked)
def local_masked(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskMasked) -> Masked:
    """The carried request's answer, coded and masked; shares of one's own mask go along, sealed."""
    _roster(exit_, memory, ask.roster, envelope.roster)
    exit_.join(envelope.run, ask.roster, envelope.request if ask.subject.of_half else b"")
    known: Known | None = memory["masked_sums.known"] if ask.known else None
    if ask.known and known is None:
        raise NotOrdered("the ordered method asks nothing more")
    carried, limits = codec.decode_body(ask.body) if known is None else (known.request, known.limits)
    if isinstance(carried, PrivateRequest):
        _check_noise(carried, ask.roster, n_introduced(exit_, envelope.run))
        if carried.shares > 1:  # else each site's noise is enough by itself, however often the same one is seen
            exit_.note(envelope.run, _noisy(envelope.round, envelope.attempt), carried.identity)
    answer = exit_.evaluate(envelope, carried, limits)
    assert carried is not None
    if (ask.count, ask.n) != (carried.layout.numbers, len(ask.roster)):
        raise MalformedMessage("the masked answer asked for has another size")
    try:
        coded = codings(carried, limits, ask.bits, ask.n) if known is None else known.coded(ask.n)
        parts = [coding.encode(value).ravel() for coding, value in zip(coded, answer.arrays(), strict=True)]
    except ValueError as problem:
        raise BadAnswer(f"it cannot be masked: {problem}") from None
    context, total = Context.of(envelope), np.concatenate([*parts, np.zeros(0, np.uint64)])
    tag = None
    if ask.tag_bytes:  # the first of the roster adds the pad
        group, first = memory["masked_sums.group"], exit_.name == ask.roster[0]
        tag = sum_tag(group, context, total, ask.bits, is_signed=is_signed(coded), is_padded=first)
    if ask.n == 1:  # there is no mask to take off
        exit_.unmask(envelope.run, ask.roster)
        return Masked(add_streams(total, [], ask.bits), np.zeros((1, SEALED_BYTES), np.uint8), tag_array(tag))
    secret = secrets.token_bytes(SECRET_BYTES)
    seeds = [(own_seed(secret, context), False)]
    for peer in ask.roster:
        if peer != exit_.name:
            seeds.append((common_seed(exit_, memory, context, peer), exit_.name > peer))
    if tag is not None:
        tag += sum((-1 if minus else 1) * tag_mask(seed) for seed, minus in seeds)
    shares = _shares(exit_, memory, context, secret, ask.roster)
    return Masked(add_streams(total, seeds, ask.bits), shares, tag_array(tag))


def n_introduced(exit_: Exit, run: bytes) -> int:
    """How many sites were introduced in a run."""
    met = exit_.notes(run, "met")
    return len(msgspec.msgpack.decode(met[-1], type=dict[str, bytes])) if met else 0


def _check_noise(request: PrivateRequest[Any], roster: tuple[str, ...], n_sites: int) -> None:
    """Refuse a sum in which there would be too little noise, now or together with one over other sites."""
    wrong = request.problem()
    if wrong is not None:
        raise MalformedMessage(f"{request.kind}: {wrong}")
    if request.shares > 1 and request.sites < n_sites:
        raise NotOrdered(f"noise for {request.sites} sites, and {n_sites} take part in the run")
    if not request.shares <= len(roster) <= request.sites:
        raise NotOrdered(f"noise for {request.shares} to {request.sites} sites, and {len(roster)} are asked")
    if not may_tolerate(request.sites, request.tolerated):
        raise NotOrdered(
            f"{request.tolerated} of {request.sites} sites cannot be missing without weakening the noise"
        )


def _noisy(round_: int, attempt: int) -> str:
    """The name of the note that says which private question was asked in a round."""
    return f"noisy {round_} {attempt}"


def sum_tag(group: bytes, context: Context, numbers: Ring, bits: int, *, is_signed: bool, is_padded: bool) -> int:
    """The tag of numbers in a ring; to that of a sum a pad is added, so that no number gives its factor away."""
    key = expanded(group, context.info("tag"))
    pad = int.from_bytes(expanded(key, b"coterie/pad")[:TAG_BYTES], "little") if is_padded else 0
    return (inner_product(numbers, key, bits, is_signed=is_signed) + pad) % TAGS


def is_signed(coded: Sequence[Coding]) -> bool:
    """Whether numbers of the ring stand for signed integers."""
    return not any(isinstance(coding, WholeNumbers) for coding in coded)


def tag_mask(seed: bytes) -> int:
    """The mask of a tag from that of the numbers."""
    return int.from_bytes(expanded(seed, b"coterie/tag mask")[:TAG_BYTES], "little")


def tag_array(tag: int | None) -> Bytes:
    """A tag as bytes; none where there is none."""
    return np.frombuffer(b"" if tag is None else (tag % TAGS).to_bytes(TAG_BYTES, "little"), np.uint8)


def _shares(exit_: Exit, memory: Memory, context: Context, secret: bytes, roster: tuple[str, ...]) -> Bytes:
    """By place in the roster, the share of one's own secret, sealed for the site there."""
    places = [i for i, peer in enumerate(roster, start=1) if peer != exit_.name]
    rows = [bytes(SEALED_BYTES)] * len(roster)
    for place, share in split(secret, places, threshold(len(roster))).items():
        cipher = seal(exit_, memory, context, exit_.name, roster[place - 1])
        rows[place - 1] = cipher.encrypt(bytes(12), share, None)
    return array_of(rows, SEALED_BYTES)


@carries(Reveal)
def local_revealed(exit_: Exit, memory: Memory, envelope: Envelope, ask: Reveal) -> Revealed:
    """What unmasks the sum of an earlier round over its whole roster: once a round."""
    upload = exit_.answered(envelope.run, ask.round, ask.attempt)
    if upload is None:
        raise MalformedMessage("this site uploaded nothing in that round")
    context = Context.of(codec.read_envelope(upload)[1])
    _roster(exit_, memory, ask.roster, context.roster)
    exit_.unmask(envelope.run, ask.roster)
    for asked in exit_.notes(envelope.run, _noisy(ask.round, ask.attempt)):  # noise is seen over one roster, or none
        exit_.pin(envelope.run, f"unmasked {asked.hex()}", "\n".join(ask.roster).encode())
    known: Known | None = memory.get("masked_sums.known")
    if known is not None:  # one question a place; over fewer sites again where some drop out
        exit_.pin(envelope.run, f"question {known.position}", known.digest)
    shares = [
        bytes(SHARE_BYTES) if peer == exit_.name else opened(seal(exit_, memory, context, peer, exit_.name), sealed)
        for peer, sealed in zip(ask.roster, rows_of(ask.sealed), strict=True)
    ]
    if not exit_.once(envelope.run, f"reveal {ask.round} {ask.attempt}"):
        raise MalformedMessage("the masks of that round were revealed already")
    return Revealed(array_of(shares, SHARE_BYTES))
