"""Stand-ins for sites: they answer every question with as many bytes as a site would, and hold no row of anyone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coterie.extents import leave_open
from coterie.maths.masks import Coding
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.contributions import PrivateRequest
from coterie.messages.heads import HEAD_BYTES
from coterie.messages.identity import CARD_BYTES, SIGNATURE_BYTES
from coterie.messages.schema import Reply, Request, message_fields, reply_type
from coterie.messages.site_api import ANSWERS, CARRIERS, KEEPERS, Memory, Table
from coterie.methods.order import SignedOrder
from coterie.runtime.channel import Outcome
from coterie.secure.handshake import AskHello, SiteHello, pack_report
from coterie.secure.masked_sums import SEALED_BYTES, AskMasked, Masked
from coterie.sites.memories import RunMemories
from coterie.sites.policy import Policy
from coterie.sites.views.noise import exact_sums

WIDEST = 5
"""Bytes of a whole number below 2**32 in a request; the smallest take one."""


class Carried(NamedTuple):
    """What a masked sum is over: a request, its limits, and how its answers are coded."""

    request: Request[Any]
    limits: Limits
    coded: Sequence[Coding]


class StandIn:
    """One site's end of a rehearsal."""

    def __init__(self, table: Table, policy: Policy, carried: Callable[[], Carried]) -> None:
        self.table, self._policy, self._carried = table, policy, carried
        self.memory: Memory = RunMemories(policy).of(b"")
        self.narrower = self.wider = 0
        """By how many bytes the questions so far may be shorter and longer: rows may decide whole numbers in them."""

    def answer(self, frame: bytes) -> bytes:
        """Bytes of the form that the question fixes."""
        decoded = codec.decode_question(frame)
        request, limits = decoded.request, decoded.limits
        assert request is not None
        if isinstance(request, AskHello):
            reply: Reply = self._hello(request)
        elif isinstance(request, AskMasked):
            reply = self._coded(request)
        elif type(request) in CARRIERS:
            reply = reply_type(type(request)).zeros(request.axes)
        else:
            self._widen(request)
            reply = self.evaluate(request)
        layout = request.layout
        return codec.encode_answer(decoded.envelope, layout, reply, layout.bounds(limits))

    def evaluate(self, request: Request[Any]) -> Reply:
        """The answer of the made-up rows."""
        self.keep(request)
        if isinstance(request, PrivateRequest):
            reply: Reply = request.layout.reply(*exact_sums(self.memory, request))
            return reply
        return ANSWERS[type(request)](self.memory.table or self.table, self.memory, request)

    def keep(self, request: Request[Any]) -> None:
        """Take note of how rows are to be seen from now on."""
        keep = KEEPERS.get(type(request))
        if keep is not None:
            keep(self.memory.table or self.table, self.memory, request)

    def _hello(self, request: AskHello) -> SiteHello:
        report, order = b"", SignedOrder.from_bytes(request.order).read() if request.order else None
        if order is not None and order.columns:
            report = pack_report(self.evaluate(order.agreement()))
        card = bytes(CARD_BYTES + HEAD_BYTES) + bytes([self._policy.verifies])
        hello = card + report + bytes(SIGNATURE_BYTES)
        return SiteHello(np.frombuffer(hello, np.uint8), np.zeros((request.witnessed, HEAD_BYTES), np.uint8))

    def _coded(self, ask: AskMasked) -> Masked:
        """The numbers without a mask: there is nobody to hide them from."""
        carried = self._carried()
        if ask.body:
            self._widen(carried.request)
        arrays = self.evaluate(carried.request).arrays()
        parts = [coding.encode(value).ravel() for coding, value in zip(carried.coded, arrays, strict=True)]
        numbers = np.concatenate([*parts, np.zeros(0, np.uint64)])
        masked = numbers & np.uint64((1 << ask.bits) - 1)
        shares = np.zeros((ask.n, SEALED_BYTES), np.uint8)
        return Masked(masked, shares, np.zeros(ask.tag_bytes, np.uint8))

    def widen(self, narrower: int, wider: int) -> None:
        """What was sent may be so much shorter, and so much longer."""
        self.narrower += narrower
        self.wider += wider
        if narrower or wider:
            leave_open()

    def _widen(self, request: Request[Any]) -> None:
        for item in message_fields(type(request)):
            if item.array is None and item.type is int:
                width = len(msgspec.msgpack.encode(getattr(request, item.name)))
                self.narrower += width - 1
                self.wider += max(0, WIDEST - width)


class StandIns:
    """A channel to stand-ins, one a site."""

    def __init__(self, tables: Mapping[str, Table], rules: Mapping[str, Policy]) -> None:
        """``tables`` are made-up ones."""
        self.carried: Carried | None = None
        """What the masked sum that is asked for now is over."""
        self.members = {name: StandIn(table, rules[name], self._now) for name, table in tables.items()}

    def _now(self) -> Carried:
        assert self.carried is not None
        return self.carried

    def sites(self) -> Sequence[str]:
        """The names of the sites."""
        return tuple(self.members)

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:  # noqa: ARG002
        """Every stand-in answers at once."""
        return {name: Outcome("answered", self.members[name].answer(frame)) for name, frame in payloads.items()}
