"""A server of the attacker's own making: it asks sites whatever it likes, in whatever order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing, Reply, Request
from coterie.messages.site_api import Table
from coterie.messages.verbs import Seen
from coterie.methods.shared.preparation import SumColumns
from coterie.secure.handshake import HELLO_BYTES, AskHello, Introduce
from coterie.secure.masked_sums import AskMasked, Masked, Reveal
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.identities import identity

OFF = Policy.simulation()
TAU = 5
ROW = 1e-6
"""A guess as near as this to a row is that row."""
ON = Policy(per_site_results="averages", min_group=TAU)
"""Guards on where the server sees the site's sums by themselves: no other site's rows are in the way."""


class Asker:
    """Everything one site is asked in one run."""

    def __init__(self, site: Site, *, method: str = "lloyd", run: bytes = b"r" * 16) -> None:
        self.site, self.method, self.run, self.round = site, method, run, 0
        self.table: Table | None = None
        self.remembered: list[bytes] = []

    @classmethod
    def of(cls, rows: Any, policy: Policy = ON, **options: Any) -> Asker:
        """A new site with these rows, and its asker."""
        table = rows if hasattr(rows, "raw_blocks") else ArrayTable(rows)
        made = cls(Site("here", table, policy=policy, identity=identity("here")), **options)
        made.table = table
        return made

    def ask(
        self,
        request: Request[Any],
        limits: Mapping[str, float] | None = None,
        *,
        roster: Sequence[str] | None = None,
        round: int | None = None,
        attached: bytes = b"",
    ) -> Any:
        """What the site answers, or why it does not."""
        body, script = codec.encode_body(request, limits or {}), codec.NO_TRANSCRIPT
        for before in self.remembered:
            script = codec.extend_transcript(script, before)
        envelope = self._envelope(body.digest, roster, round)
        frame = self.site.answer(codec.encode_question(envelope, body, script, Seen.SINGLE, attached))
        if request.remembered:
            self.remembered.append(body.data)
        return codec.decode_answer(frame, envelope, request.layout, request.layout.bounds(limits or {}))

    def recall(self, requests: Sequence[Request[Any]] | None = None) -> Reply | Refusal:
        """Make the site forget the run, and remember it again, or these requests in its place."""
        if requests is not None:
            self.remembered = [codec.encode_body(request, {}).data for request in requests]
        frame = codec.encode_recall(self._envelope(bytes(16)), self.remembered)
        said = codec.read_envelope(frame)[1]
        found = codec.decode_answer(self.site.answer(frame), said, codec.EMPTY_LAYOUT, ())
        assert isinstance(found, Nothing | Refusal)
        return found

    def restart(self) -> None:
        """Start the site again from its ledger's file, and bring it up to date."""
        path = self.site.ledger.path
        assert path is not None
        assert self.table is not None
        self.site.ledger.close()
        own, rules = identity(self.site.name), self.site.policy
        self.site = Site(
            self.site.name, self.table, policy=rules, ledger=SiteLedger(path), identity=own, seed=self.site._seed
        )
        assert self.recall() == Nothing()

    def _envelope(self, digest: bytes, roster: Sequence[str] | None = None, round: int | None = None) -> Envelope:
        self.round = self.round + 1 if round is None else round
        names = codec.roster_digest(roster or [self.site.name]), codec.site_tag(self.site.name)
        return Envelope(codec.FORMAT_VERSION, self.run, self.round, 0, *names, digest, self.method)


class Upload(NamedTuple):
    """What one masked question got: under which round, of whom, from whom."""

    round: int
    roster: tuple[str, ...]
    found: dict[str, Masked | Refusal]


class MaskedAsker:
    """Several sites that are asked for masked sums in one run."""

    def __init__(self, sites: Mapping[str, Site], *, method: str = "lloyd") -> None:
        self.askers, self.round = {name: Asker(site, method=method) for name, site in sites.items()}, 0
        hellos = {name: reply.hello for name, reply in self.each(AskHello(b"", HELLO_BYTES)).items()}
        names = tuple(sorted(hellos))
        self.each(Introduce(0, names, np.array([hellos[name] for name in names])))

    def each(self, request: Request[Any], roster: Sequence[str] | None = None) -> dict[str, Any]:
        """What every site of a roster answers to the same question."""
        self.round += 1
        names = tuple(roster or self.askers)
        return {name: self.askers[name].ask(request, roster=names, round=self.round) for name in names}

    def upload(self, request: Request[Any], roster: Sequence[str], limits: Mapping[str, float]) -> Upload:
        """Ask the sites of a roster for their masked part."""
        body = codec.encode_body(request, limits).data
        ask = AskMasked(64, request.layout.numbers, len(roster), tuple(roster), body)
        return Upload(self.round + 1, tuple(roster), self.each(ask, roster))

    def reveal(self, upload: Upload) -> dict[str, Any]:
        """Ask the roster of an upload to unmask it."""
        self.round += 1
        answers = {}
        for place, name in enumerate(upload.roster):
            shares = np.array([_share(upload.found[peer], place) for peer in upload.roster])
            request = Reveal(len(upload.roster), upload.round, 0, upload.roster, shares)
            answers[name] = self.askers[name].ask(request, roster=upload.roster, round=self.round)
        return answers


def _share(part: Masked | Refusal, place: int) -> Any:
    assert isinstance(part, Masked)
    return part.shares[place]


def sum_columns(n_columns: int, *, drop: bool = False) -> SumColumns:
    """The question for plain sums over all rows."""
    return SumColumns(drop, np.zeros(n_columns))


def nearest_row(guess: Any, rows: Any) -> float:
    """How far a guess is from the row it is nearest to."""
    return float(np.abs(np.asarray(rows) - np.asarray(guess)).max(axis=1).min())
