"""A site in the middle of a run: what it was asked in a real one, put to it again with other questions in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from coterie import EdgeKMeans, FederatedKernelKMeans, FederatedKMeans, FederatedPCA
from coterie.engines.inprocess import Fault, InProcess, Schedule
from coterie.messages import codec
from coterie.messages.codec import Form
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.channel import Outcome
from coterie.runtime.run import Run
from coterie.runtime.terms import Terms
from coterie.secure.certificates import Conclusion
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked
from coterie.secure.replay import Attachment, are_same, encode, is_same
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from tests.orders import ANALYST

from .bounds import Bounds
from .mutator import mutated
from .target import ROSTER, ROWS, RUN, SITE, _site, answered

VERIFIED, UNVERIFIED = Policy(min_roster=2), Policy(min_roster=2, verification="off")
TRIES = 4
"""How many changed questions a site gets before each real one."""


class Recording(NamedTuple):
    """What a site was asked in a run, in order."""

    policy: Policy
    frames: tuple[bytes, ...]
    bodies: Mapping[int, bytes]
    """In a verified run, the questions that were named and not sent, by their place in it."""


class _Remembering(MaskedSums):
    """Masked sums; what is only named to sites is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: dict[int, bytes] = {}

    def _masked(self, *arguments: Any) -> Any:
        ask, coded = super()._masked(*arguments)
        if self._replay is not None:
            self.bodies[ask.position] = self._replay.body.data
        return ask, coded


class _Listening(InProcess):
    """Sites in this process; what one of them is asked is kept."""

    def __init__(self, sites: Sequence[Site], faults: Sequence[Fault]) -> None:
        super().__init__(sites, schedule=Schedule(faults))
        self.heard: list[bytes] = []

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        self.heard += [payloads[name] for name in (SITE,) if name in payloads]
        return super().exchange(payloads, timeout)


def _recorded(estimator: Any, policy: Policy, scale: Any = "none", faults: Sequence[Fault] = ()) -> Recording:
    """The same frames every time: what sites draw at random is drawn from a seed."""
    sites = {name: _site(name, ROWS + 10.0 * place, policy) for place, name in enumerate(ROSTER)}
    layer, columns = _Remembering(), sites[SITE]._tables["groups"].columns
    order = SignedOrder.by(ANALYST, Order.of(estimator, columns, PreparationOptions(scale), RUN.hex()))
    protocol = Conclusion(order.to_bytes(), None).after(layer.ordered(order, 0))
    with patch("secrets.token_bytes", random.Random(1).randbytes), _Listening([*sites.values()], faults) as channel:
        Run(channel, estimator.method, Terms(quorum=0.6), (layer,), identity=RUN).drive(protocol)
    return Recording(policy, tuple(channel.heard), layer.bodies)


@cache
def recordings() -> tuple[Recording, ...]:
    """Runs of several methods that the site verifies or not, one of which another site drops out of."""
    lost = Fault("third", "drop", frozenset(range(9, 1000)))
    return (
        _recorded(FederatedKMeans(3, init="var-part", max_rounds=3), VERIFIED, "standard"),
        _recorded(FederatedKMeans(2, max_rounds=4), VERIFIED, "none", [lost]),
        _recorded(EdgeKMeans(2), VERIFIED),
        _recorded(FederatedPCA(1), VERIFIED),
        _recorded(FederatedKernelKMeans(2), UNVERIFIED, "standard"),
    )


def _attached(data: bytes) -> Attachment:
    return msgspec.msgpack.decode(codec.decode_question(data).attached, type=Attachment)


def in_full(frame: bytes, bodies: Mapping[int, bytes], changed: Callable[[bytes], bytes] = bytes) -> bytes:
    """A question of a verified run with its body, which may be changed; other questions as they are."""
    decoded = codec.decode_question(frame)
    if not isinstance(decoded.request, AskMasked) or not bodies:
        return frame
    body = changed(bodies[decoded.request.position])
    asked = codec.encode_body(replace(decoded.request, digest=codec.request_digest(body)), {})
    attached = encode(Attachment(_attached(frame).sums, body))
    said = decoded.envelope._replace(request=asked.digest)
    return codec.encode_question(said, asked, decoded.transcript, decoded.seen, attached)


class Walk:
    """A site on its way through a recorded run."""

    def __init__(self, recording: Recording, seen: Counter[Any]) -> None:
        self.recording, self.seen = recording, seen
        self.site = _site(SITE, ROWS, recording.policy)
        self.place, self.has_moved = 0, False

    def try_out(self, data: bytes) -> None:
        """Put a changed frame; where the site takes part in a sum, it must be the one the method asks for now."""
        found = answered(self.site, data)
        self.seen[type(found) if isinstance(found, Reply) else found] += 1
        self.has_moved |= isinstance(found, Reply)
        if isinstance(found, Reply) and self.recording.policy.verifies:
            self._check_ordered(codec.decode_question(data).request, data)

    def _check_ordered(self, request: Request[Any] | None, data: bytes) -> None:
        """A sum is the one that the method asks for at its place in the run, by its name or in full."""
        if not isinstance(request, AskMasked):
            return
        bodies = self.recording.bodies
        assert request.position in bodies, "a sum is given at a place where none was ordered"
        wanted = bodies[request.position]
        if request.digest != codec.request_digest(wanted):
            (asked, limits), (ordered, ordered_limits) = map(codec.decode_body, (_attached(data).body, wanted))
            assert asked is not None
            assert ordered is not None
            is_ordered = are_same(limits, ordered_limits) and is_same(asked, ordered)
            assert is_ordered, "another question than the ordered one is answered"

    def go_on(self) -> bool:
        """Put the real question, after a recall where the site forgot; whether there is another one."""
        frame = self.recording.frames[self.place]
        found = answered(self.site, frame)
        if found is Refusal.FORGOT:
            answered(self.site, self._recall())
            found = answered(self.site, frame)
        if found is Refusal.IN_FULL:  # the site took the question in other words before
            found = answered(self.site, in_full(frame, self.recording.bodies))
        if isinstance(found, Refusal):
            assert self.has_moved, f"the site refuses what it answered in the real run: {found!r}"
            return False
        self.place, self.has_moved = self.place + 1, False
        return self.place < len(self.recording.frames)

    def _recall(self) -> bytes:
        """What was to be remembered so far."""
        before = [codec.decode_question(frame) for frame in self.recording.frames[: self.place]]
        bodies = [one.bodies[0] for one in before if one.request is not None and one.request.remembered]
        return codec.encode_recall(codec.read_envelope(self.recording.frames[self.place])[1], bodies)

    def changed(self, rng: random.Random) -> bytes:
        """A frame like the one that is due, or like one before it; now and then with parts of later ones."""
        frames, is_due = [*self.recording.frames], rng.random() < 0.7
        frame = frames[self.place] if is_due else rng.choice(frames)
        if rng.random() < 0.9:
            frames = frames[: self.place + 1]
            frame = frame if frame in frames else rng.choice(frames)
        self.has_moved |= len(frames) > self.place + 1  # a later sum may be a true one
        if codec.read_envelope(frame)[0] is Form.QUESTION and rng.random() < 0.05:
            frame = self._recall()
        elif codec.read_envelope(frame)[0] is Form.QUESTION and rng.random() < 0.1:
            bodies = self.recording.bodies
            return in_full(frame, bodies, lambda body: mutated(rng, body, [*bodies.values()]))
        return mutated(rng, frame, frames)


def walk(count: int, seed: int, check: Bounds) -> Counter[Any]:
    """``count`` changed questions to sites in the middle of runs; how many ended how."""
    rng, seen, number, made = random.Random(seed), Counter[Any](), 0, recordings()
    check.begin()
    while number < count:
        on_the_way = Walk(rng.choice(made), seen)
        goes_on = True
        while goes_on and number < count:
            for _ in range(TRIES):
                number += 1
                data = on_the_way.changed(rng)
                on_the_way.try_out(data)
                check(data)
            goes_on = on_the_way.go_on()
        seen["finished"] += on_the_way.place == len(on_the_way.recording.frames)
    return seen
