"""A run without sites: the real protocol, its real layers and bytes, over stand-ins; counted by the real ledger."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.extents import Extent, rehearsing
from coterie.maths.masks import Coding, Ring
from coterie.messages.numbers import wire
from coterie.messages.schema import Layout
from coterie.messages.site_api import Table
from coterie.messages.verbs import Protocol, Question
from coterie.planning.stand_ins import Carried, StandIns
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import Progress, run
from coterie.secure.keys import Context
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked, Revealed
from coterie.secure.replay import encode
from coterie.sites.policy import Policy

MOST_EXCHANGES = 4000
"""A rehearsal of more is given up: there is no useful bound."""


class RehearsedSums(MaskedSums):
    """Masked sums over stand-ins, which mask nothing: all bytes are those of masked sums."""

    def __init__(self, stand_ins: StandIns) -> None:
        super().__init__()
        self._stand_ins = stand_ins

    def _tell(self, question: Question) -> None:
        for name, stand_in in self._stand_ins.members.items():
            if question.to is None or name in question.to:
                stand_in.keep(question.request_for(name))

    def _masked(
        self, question: Question, layout: Layout, roster: tuple[str, ...]
    ) -> tuple[AskMasked, Sequence[Coding]]:
        ask, coded = super()._masked(question, layout, roster)
        self._stand_ins.carried = Carried(question.request_for(""), question.limits, coded)
        return ask, coded

    def _own_seeds(self, _: Sequence[str], __: Mapping[str, Revealed], ___: Context) -> list[tuple[bytes, bool]]:
        return []

    def _prove(self, total: Ring, tag: int, ask: AskMasked, context: Context) -> None:
        """The same; a sum goes to every site later, compressed where most numbers are 0, which rows decide."""
        super()._prove(total, tag, ask, context)
        if self._replay is not None:
            longest = bytes(wire(f"uint{ask.bits}").n_bytes(ask.count))
            shortest = min(longest, zlib.compress(longest, 1), key=len)
            least, now, most = (len(encode(numbers)) for numbers in (shortest, self._sums[-1].numbers, longest))
            for stand_in in self._stand_ins.members.values():
                stand_in.widen(now - least, most - now)


class TooLong(Exception):
    """A rehearsal has too many exchanges."""


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal took."""

    ledger: Ledger
    is_open: bool
    """Whether rows decide any of it."""
    is_shared_out: bool
    """Whether rows decide how much each site sends of what all send together."""
    narrower: Mapping[str, int]
    wider: Mapping[str, int]
    """By site the bytes by which questions may be shorter and longer."""


def rehearsed(
    protocol: Callable[[MaskedSums | PlainSums], Protocol[Any]],
    tables: Callable[[], Mapping[str, Table]],
    rules: Mapping[str, Policy],
    method: str,
    extent: Extent,
    *,
    is_masked: bool,
) -> Rehearsed | None:
    """A run of a protocol over made-up tables; None where it has too many exchanges."""
    ledger = Ledger()

    def watch(progress: Progress) -> None:
        if len(progress.ledger.exchanges) > MOST_EXCHANGES:
            raise TooLong

    with rehearsing(extent) as rehearsal:
        stand_ins = StandIns(tables(), rules)
        layer = RehearsedSums(stand_ins) if is_masked else PlainSums()
        try:
            run(protocol(layer), stand_ins, method=method, layers=[layer], ledger=ledger, watch=watch)
        except TooLong:
            return None
    members = stand_ins.members.items()
    return Rehearsed(
        ledger,
        rehearsal.is_open,
        rehearsal.is_shared_out,
        {name: stand_in.narrower for name, stand_in in members},
        {name: stand_in.wider for name, stand_in in members},
    )
