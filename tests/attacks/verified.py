"""A server that begins a verified run as it was ordered, and from then on asks what it likes, in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.maths.masks import TAGS, add_streams
from coterie.messages import codec
from coterie.messages.heads import witnessed_by
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.site_api import Memory
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.secure.handshake import (
    HELLO_BYTES,
    REPORT_BYTES,
    AskHello,
    Introduce,
    ShareKey,
    read_hellos,
    seed_from,
    unpack_report,
)
from coterie.secure.keys import Context, own_seed
from coterie.secure.layer import _own_secrets
from coterie.secure.masked_sums import AskMasked, Masked, Reveal, codings, decoded_sum, tag_mask
from coterie.secure.replay import Attachment, ProvenSum, Replay, encode, packed
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import Asker
from tests.identities import identity
from tests.orders import ANALYST

Rows = npt.NDArray[np.float64]


class Asked(NamedTuple):
    """A masked question that was put, and what it got."""

    round: int
    ask: AskMasked
    found: dict[str, Any]

    @property
    def is_answered(self) -> bool:
        """Whether every site of the roster uploaded; if not, all refused."""
        kinds = {isinstance(one, Masked) for one in self.found.values()}
        assert len(kinds) == 1, self.found
        return kinds == {True}

    @property
    def refusals(self) -> set[Refusal]:
        """Why sites did not answer."""
        return {one for one in self.found.values() if isinstance(one, Refusal)}


class VerifiedRun:
    """One run over sites with these rows, under the default policy or another, and the server's own replay of it."""

    def __init__(
        self,
        rows: Mapping[str, Rows],
        estimator: Any,
        *,
        policy: Policy | None = None,
        folder: Path | None = None,
        run: str | None = None,
        is_begun: bool = True,
    ) -> None:
        tables = {name: ArrayTable(own) for name, own in rows.items()}
        self.order = Order.of(estimator, next(iter(tables.values())).columns, PreparationOptions(), run)
        self.signed = SignedOrder.by(ANALYST, self.order)
        self.askers = {}
        for name, table in tables.items():
            ledger = SiteLedger(None if folder is None else folder / f"{name}.jsonl")
            site = Site(name, table, policy=policy, ledger=ledger, identity=identity(name), seed=0)
            self.askers[name] = Asker(site, method=self.order.method, run=self.order.identity)
            self.askers[name].table = table
        self.names, self.round, self.sums = tuple(sorted(rows)), 0, list[ProvenSum]()
        self.results: list[Reply] = []
        """The sums as numbers."""
        if is_begun:
            self.begin()

    # ---------------------------------------------------------------- as ordered

    def begin(self) -> None:
        """The beginning of the run, as it should be."""
        self.hellos = {name: reply.hello for name, reply in self.each(self.hello).items()}
        parts = self.each(self.introduction)
        self.parts = {
            name: ShareKey(self.names, np.array([parts[giver].sealed[place] for giver in self.names]))
            for place, name in enumerate(self.names)
        }
        drawn = {bytes(reply.seed.astype(np.uint8)) for reply in self.each(self.parts).values()}
        self.replay = Replay(self.order, seed_from(drawn.pop()), self.reports)
        assert not drawn

    @property
    def hello(self) -> AskHello:
        """The first question."""
        size = HELLO_BYTES + REPORT_BYTES + len(self.order.columns)
        return AskHello(self.signed.to_bytes(), size, len(witnessed_by(self.names, "")), self.names)

    @property
    def introduction(self) -> Introduce:
        """The second one."""
        return Introduce(len(self.names), self.names, np.array([self.hellos[name] for name in self.names]))

    @property
    def reports(self) -> dict[str, Any]:
        """What sites said of their columns."""
        return {name: unpack_report(hello.report) for name, hello in read_hellos(self.hellos).items()}

    def next_sum(self, roster: Sequence[str] | None = None) -> Reply:
        """The next sum, asked for as ordered."""
        asked = self.upload(roster)
        revealed = self.reveal(asked)
        return self.take(asked, revealed)

    # ---------------------------------------------------------------- step by step, as the server likes

    def each(
        self, requests: Request[Any] | Mapping[str, Request[Any]], roster: Sequence[str] = (), attached: bytes = b""
    ) -> dict[str, Any]:
        """What every site of a roster answers to one question, or each to its own."""
        self.round += 1
        names = tuple(roster or (requests if isinstance(requests, Mapping) else self.names))
        return {
            name: self.askers[name].ask(
                requests[name] if isinstance(requests, Mapping) else requests,
                roster=names,
                round=self.round,
                attached=attached,
            )
            for name in names
        }

    def put(self, name: str, request: Request[Any], roster: Sequence[str]) -> Any:
        """What one site answers, shown all sums so far."""
        self.round += 1
        attached = encode(Attachment(list(self.sums)))
        return self.askers[name].ask(request, roster=roster, round=self.round, attached=attached)

    def upload(
        self,
        roster: Sequence[str] | None = None,
        ask: AskMasked | None = None,
        *,
        body: bytes = b"",
        sums: Sequence[ProvenSum] | None = None,
    ) -> Asked:
        """Ask for masked parts of the next sum, or of another one; with all sums so far, or others."""
        names = tuple(self.replay.names if roster is None else roster)
        ask = ask or self.replay.ask(names)
        attached = encode(Attachment(list(self.sums if sums is None else sums), body))
        found = self.each(ask, names, attached)
        return Asked(self.round, ask, found)

    def reveal(self, asked: Asked, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Ask the sites of an upload's roster, or some of them, to unmask it."""
        roster, self.round = asked.ask.roster, self.round + 1
        found = {}
        for name in roster if names is None else names:
            shares = np.array([asked.found[peer].shares[roster.index(name)] for peer in roster])
            request = Reveal(len(roster), asked.round, 0, roster, shares)
            found[name] = self.askers[name].ask(request, roster=roster, round=self.round)
        return found

    def proven(self, asked: Asked, revealed: Mapping[str, Any]) -> ProvenSum:
        """The sum of an upload and its tag; ``QuorumLost`` where too few sites revealed."""
        ask = asked.ask
        digest, roster = codec.encode_body(ask, {}).digest, codec.roster_digest(ask.roster)
        context = Context(self.order.identity, asked.round, 0, roster, digest)
        answers = {name: one for name, one in revealed.items() if not isinstance(one, Refusal)}
        seeds = [own_seed(secret, context) for secret in _own_secrets(ask.roster, answers)]
        total = np.zeros(ask.count, np.uint64)
        tag = -sum(map(tag_mask, seeds))
        for part in asked.found.values():
            total += part.numbers.view(np.uint64)
            tag += int.from_bytes(part.tag.astype(np.uint8).tobytes(), "little")
        total = add_streams(total, [(seed, True) for seed in seeds], ask.bits).astype(np.uint64)
        total &= np.uint64((1 << ask.bits) - 1)
        place = (ask.position, asked.round, 0, ask.roster, ask.digest, ask.bits)
        return ProvenSum(*place, packed(total, ask.bits), (tag % TAGS).to_bytes(16, "little"))

    def take(self, asked: Asked, revealed: Mapping[str, Any]) -> Reply:
        """Go on with a sum, as the sites will when they are shown it."""
        proven, found = self.proven(asked, revealed), self.decoded(asked, revealed)
        self.sums.append(proven)
        self.results.append(found)
        self._last = asked.ask
        self.replay.take(proven)
        return found

    def asked_last(self, roster: tuple[str, ...]) -> AskMasked:
        """The question of the last sum once more, over another roster."""
        return replace(self._last, roster=roster, n=len(roster))

    def decoded(self, asked: Asked, revealed: Mapping[str, Any]) -> Reply:
        """The numbers of an upload."""
        proven, question = self.proven(asked, revealed), self.replay.question
        assert question is not None
        layout = self.replay.request.layout
        coded = codings(self.replay.request, question.limits, proven.bits, len(proven.roster))
        numbers = np.frombuffer(proven.numbers, f"<u{proven.bits // 8}").astype(np.uint64)
        return decoded_sum(numbers, layout, coded)

    # ---------------------------------------------------------------- what sites keep

    def site(self, name: str) -> Site:
        return self.askers[name].site

    def memory(self, name: str) -> Memory:
        """What a site has in mind of the run."""
        return self.site(name)._memories.of(self.order.identity, self.site(name).policy.protection)

    def rosters(self, name: str) -> list[list[str]]:
        """The rosters that a site's ledger notes."""
        notes = self.site(name).ledger.notes(self.order.identity, "roster")
        return [msgspec.msgpack.decode(data) for data in notes]
