"""Certificates of runs: what every site signs at the end. And ledgers compared with what others remember of them."""

from __future__ import annotations

import base64
import hashlib
import struct
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, MalformedMessage, QuorumLost, Untrusted
from coterie.messages.codec import Envelope
from coterie.messages.heads import HEAD_BYTES, witnessed_by
from coterie.messages.identity import CERTIFICATE_BYTES, KEY_BYTES, SIGNATURE_BYTES, Certificate, Trust, is_signed
from coterie.messages.schema import Nothing, Reply, Request, array
from coterie.messages.site_api import Exit, Memory, carries
from coterie.messages.verbs import Protocol, Question, each
from coterie.methods.order import SignedOrder
from coterie.secure.masked_sums import n_introduced

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
CERTIFICATE, CERTIFICATE_SCHEMA = "certificate.json", 1
MAX_CERTIFICATE_BYTES = 1 << 24


class Compare(Request[Nothing], doing="comparing ledgers with what others remember of them"):
    """These are heads of your ledger that others remember."""

    heads: Bytes = array("n", HEAD_BYTES, dtype="uint8")


@carries(Compare)
def local_comparison(exit_: Exit, memory: Memory, envelope: Envelope, ask: Compare) -> Nothing:
    """Nothing, where the site's ledger is what others remember."""
    exit_.compare([row.astype(np.uint8).tobytes() for row in ask.heads])
    return Nothing()


def compared(names: Sequence[str], hellos: Mapping[str, Any]) -> Protocol[dict[str, Bytes]]:
    """The hellos of the sites whose ledgers are as others remember them; each is sent what these signed for it."""
    remembered: dict[str, list[Bytes]] = {name: [] for name in hellos}
    for witness, reply in hellos.items():
        for name, head in zip(witnessed_by(names, witness), reply.heads, strict=True):
            if name in hellos and head.any():
                remembered[name].append(head)
    left = set(hellos)
    if any(remembered.values()):
        heads = {name: np.array(rows, np.uint8).reshape(-1, HEAD_BYTES) for name, rows in remembered.items()}
        left = set((yield from each({name: Compare(rows) for name, rows in heads.items()}, phase="masking")))
    return {name: reply.hello for name, reply in hellos.items() if name in left}


class Statement(NamedTuple):
    """What a site says of its part in a run."""

    run: bytes
    order: bytes
    """SHA-256 of the signed order that the site accepted."""
    at: int
    """By the site's clock, seconds since 1970."""
    sites: int
    """How many sites were introduced to each other."""
    ledger: bytes
    breaks: int
    lines: int
    hash: bytes
    """The head of the site's ledger before it signed this: :class:`~coterie.messages.heads.Head`."""
    min_group: int
    """The fewest rows of a group; 0 where the method saw single rows."""
    verified: int
    """How many sums the site verified; 0 where it did not run the method itself."""
    is_whole: bool
    """Whether the site ran the ordered method itself, to its end."""
    answered: int
    refused: int
    n_bytes: int
    """Questions answered and refused, and bytes sent, in this run."""
    epsilon: float
    """What the run spent of a privacy budget; 0 where rows were not protected by noise."""
    is_private: bool = False
    """Whether the order is a differentially private one; only then the following is stated."""
    delta: float = 0.0
    """The budget's, at which that is epsilon; 0 where nothing was charged."""
    resets: int = 0
    """How often the data officer began the budget anew before."""
    bounds_table: bool = False
    """Whether the budget bounds all that ever leaves of the table: not where other runs see groups, or rows."""

    def to_bytes(self) -> bytes:
        start = _STATEMENT.pack(*self[:-4])
        return start + _OF_BUDGET.pack(*self[-3:]) if self.is_private else start

    @classmethod
    def from_bytes(cls, raw: bytes) -> Statement:
        start, rest = raw[: _STATEMENT.size], raw[_STATEMENT.size :]
        of_budget = _OF_BUDGET.unpack(rest) if rest else (0.0, 0, False)
        return cls._make((*_STATEMENT.unpack(start), bool(rest), *of_budget))

    def signed(self, name: str) -> bytes:
        """The bytes that the site signs."""
        who = name.encode()
        return b"coterie/statement/" + len(who).to_bytes(2, "big") + who + self.to_bytes()


_STATEMENT, _OF_BUDGET = struct.Struct(">16s32sQI16sIQ32sII?IIQd"), struct.Struct(">dI?")
SIGNED_BYTES = CERTIFICATE_BYTES + _STATEMENT.size + SIGNATURE_BYTES
PRIVATELY_SIGNED_BYTES = SIGNED_BYTES + _OF_BUDGET.size


class Signed(NamedTuple):
    """A statement, its signature, and the authority's certificate of the key that signed it."""

    certificate: Certificate
    statement: Statement
    signature: bytes

    def to_bytes(self) -> bytes:
        return self.certificate.to_bytes() + self.statement.to_bytes() + self.signature

    @classmethod
    def from_bytes(cls, raw: bytes) -> Signed:
        if len(raw) not in (SIGNED_BYTES, PRIVATELY_SIGNED_BYTES):
            raise Untrusted(f"a statement has {len(raw)} bytes, not {SIGNED_BYTES} or {PRIVATELY_SIGNED_BYTES}")
        certificate = Certificate.from_bytes(raw[:CERTIFICATE_BYTES])
        statement = Statement.from_bytes(raw[CERTIFICATE_BYTES:-SIGNATURE_BYTES])
        found = cls(certificate, statement, raw[-SIGNATURE_BYTES:])
        if found.to_bytes() != raw:
            raise Untrusted("a statement is not as sites write it")
        return found


class Concluded(Reply, content="nothing"):
    """A signed statement."""

    signed: Bytes = array("size", dtype="uint8", is_counted=False)


class Conclude(Request[Concluded], doing="signing the certificate of the run"):
    """The run is over: sign what you did in it."""

    size: int


@carries(Conclude)
def local_statement(exit_: Exit, memory: Memory, envelope: Envelope, ask: Conclude) -> Concluded:
    """The site's statement, from its ledger."""
    order = exit_.notes(envelope.run, "order")
    if not order:
        raise MalformedMessage("a run without an order has no certificate")
    exit_.forget_noise(envelope.run)
    epsilon, delta, resets, bounds_table = exit_.spent(envelope)
    head, replay = exit_.head(), memory.get("masked_sums.replay")
    statement = Statement(
        envelope.run,
        hashlib.sha256(order[0]).digest(),
        int(time.time()),
        n_introduced(exit_, envelope.run),
        *head[:4],
        exit_.protection(envelope),
        0 if replay is None else replay.position,
        replay is not None and replay.question is None,
        *exit_.counts(envelope.run),
        epsilon,
        SignedOrder.from_bytes(order[0]).read().privacy is not None,
        delta,
        resets,
        bounds_table,
    )
    signature = exit_.sign(statement.signed(exit_.name))
    raw = Signed(exit_.card().certificate, statement, signature).to_bytes()
    if ask.size != len(raw):
        raise MalformedMessage(f"a statement has {len(raw)} bytes, not {ask.size}")
    return Concluded(np.frombuffer(raw, np.uint8))


class RunAuthority(NamedTuple):
    """Who vouches for the sites of a run."""

    public: bytes
    made_for: Literal["run", "federation"]


class RunCertificate(msgspec.Struct, forbid_unknown_fields=True):
    """The statements of a run's sites, and what is needed to check them."""

    schema: int
    coterie: str
    run: str
    order: str
    """As the analyst signed it and the sites accepted it."""
    authority: str
    authority_made_for: Literal["run", "federation"]
    sites: dict[str, str | None]
    """Signed statements; None for a site that did not sign."""

    @classmethod
    def read(cls, raw: bytes, where: object) -> RunCertificate:
        """A certificate from the bytes of a file; ``InputError`` where they are none."""
        try:
            found = msgspec.json.decode(raw, type=cls)
            bytes.fromhex(found.run), base64.b64decode(found.authority, validate=True)
            base64.b64decode(found.order, validate=True)
            _ = found.statements, found.ordered.read()
        except (ValueError, RecursionError, Untrusted, MalformedMessage) as problem:
            raise InputError(f"{where}: is not the certificate of a run ({problem}).") from None
        if found.schema != CERTIFICATE_SCHEMA:
            raise InputError(
                f"{where}: is of schema {found.schema}, and this version of coterie reads {CERTIFICATE_SCHEMA}."
            )
        return found

    @property
    def statements(self) -> dict[str, Signed]:
        """The statements by site."""
        return {
            name: Signed.from_bytes(base64.b64decode(text, validate=True))
            for name, text in self.sites.items()
            if text is not None
        }

    @property
    def ordered(self) -> SignedOrder:
        """What was ordered, and by whom."""
        return SignedOrder.from_bytes(base64.b64decode(self.order))

    @property
    def authority_key(self) -> bytes:
        """The authority that the file names."""
        return base64.b64decode(self.authority)

    def problems(self, authority: bytes) -> list[str]:
        """Everything that does not fit, in sentences."""
        found, statements = [], self.statements
        if len(authority) != KEY_BYTES:
            return ["The certificate names no authority; nobody vouches for its sites."]
        if self.authority_key not in (b"", authority):
            found.append("The certificate names another authority.")
        if not statements:
            found.append("No site signed.")
        trust, fitting = Trust(authority), []
        for name, signed in statements.items():
            own = self._problems_of(name, signed, trust)
            found += [f"{name}: {problem}" for problem in own]
            fitting += [] if own else [signed.statement]
        found += self._problems_of_order(trust, min((said.at for said in fitting), default=None))
        met = max((said.sites for said in fitting), default=0)
        if met > len(self.sites):
            found.append(f"Sites say that {met} took part, and the certificate names {len(self.sites)}.")
        return found

    def _problems_of_order(self, trust: Trust, at: int | None) -> list[str]:
        """What does not fit in the order, at the time that statements say."""
        ordered, found = self.ordered, []
        try:
            ordered.check_signed(trust, now=at)
        except Untrusted:
            found.append(
                f"The order is not signed by a key that the authority certified for {ordered.analyst} and this time."
            )
        if ordered.read().run != self.run:
            found.append("The order is for another run.")
        return found

    def _problems_of(self, name: str, signed: Signed, trust: Trust) -> list[str]:
        certificate, statement = signed.certificate, signed.statement
        found = []
        try:
            trust.check(certificate, "site", name, now=statement.at)
        except Untrusted:
            found.append("its key is not certified by the authority for this name and time.")
        if not is_signed(certificate.signing_key, signed.signature, statement.signed(name)):
            found.append("the statement is not signed by this site's key.")
        if statement.run.hex() != self.run:
            found.append("the statement is of another run.")
        if statement.order != hashlib.sha256(base64.b64decode(self.order)).digest():
            found.append("the site accepted another order than the certificate shows.")
        return found


class Conclusion:
    """Asks for the sites' statements when a protocol has ended."""

    def __init__(self, order: bytes, authority: RunAuthority | None) -> None:
        self._order, self._authority = order, authority
        is_private = SignedOrder.from_bytes(order).read().privacy is not None
        self._size = PRIVATELY_SIGNED_BYTES if is_private else SIGNED_BYTES
        self._statements: dict[str, Bytes] = {}

    def after(self, protocol: Protocol[T]) -> Protocol[T]:
        """The protocol, and the statements of those who sign; its result is there even if nobody does."""
        result = yield from protocol
        try:
            replies = yield Question(Conclude(self._size), phase="masking", needed=1)
            self._statements = {name: reply.signed for name, reply in replies.items()}
        except QuorumLost:
            pass
        return result

    def certificate(self, run: str, names: Sequence[str]) -> RunCertificate:
        """The certificate of the run with these sites."""
        public, made_for = self._authority or RunAuthority(b"", "federation")
        texts = {name: _text(raw.astype(np.uint8).tobytes()) for name, raw in self._statements.items()}
        sites: dict[str, str | None] = {name: texts.get(name) for name in names}
        return RunCertificate(
            CERTIFICATE_SCHEMA, version("coterie"), run, _text(self._order), _text(public), made_for, sites
        )


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
