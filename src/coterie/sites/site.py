"""A site's one exit: bytes in, bytes out, and nothing leaves that was not declared, checked and written down."""

from __future__ import annotations

import contextlib
import hmac
import logging
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from coterie.errors import (
    BadAnswer,
    LedgerBroken,
    MalformedMessage,
    MissingValues,
    NotOrdered,
    OutOfRange,
    QuestionDiffers,
    ShareTooLarge,
    Unaligned,
    Untrusted,
)
from coterie.maths.arithmetic import fixed_threads
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.codec import Decoded, Envelope, Form
from coterie.messages.contributions import CONTRIBUTIONS, PrivateRequest
from coterie.messages.identity import Identity
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Layout, Nothing, Reply, Request, reply_type
from coterie.messages.site_api import (
    ANSWERS,
    BEGINNINGS,
    CARRIERS,
    CHECKS,
    KEEPERS,
    Memory,
    Table,
    rows_behind,
    units_of,
)
from coterie.messages.verbs import Seen
from coterie.methods.order import Order
from coterie.sites.approvals import Approvals
from coterie.sites.ledger import Key, SiteLedger
from coterie.sites.logs import LOGGER, about
from coterie.sites.memories import SHOWN, RunMemories, RunMemory
from coterie.sites.orders import Orders
from coterie.sites.policy import Policy, Protection
from coterie.sites.refused import Refused
from coterie.sites.services import CONCLUDED, Services
from coterie.sites.tables.identifying import identifying_columns
from coterie.sites.views import FEW_GROUPS, grouped_view
from coterie.sites.views.noise import noisy_answer
from coterie.sites.views.units import BoundedTable, check_unit

_CODES: dict[type[Exception], Refusal] = {
    MalformedMessage: Refusal.MALFORMED,
    MissingValues: Refusal.MISSING_VALUES,
    OutOfRange: Refusal.OUT_OF_RANGE,
    ShareTooLarge: Refusal.SHARE_TOO_LARGE,
    BadAnswer: Refusal.INVALID_ANSWER,
    Unaligned: Refusal.UNALIGNED,
    Untrusted: Refusal.UNTRUSTED,
    NotOrdered: Refusal.NOT_ORDERED,
    QuestionDiffers: Refusal.IN_FULL,
    LedgerBroken: Refusal.LEDGER_BROKEN,
}


class Site(Services):
    """The site's end of every run.

    :meth:`answer` never raises and never lets an exception's text out: a text may quote a row.
    """

    def __init__(
        self,
        name: str,
        table: Table,
        *,
        policy: Policy | None = None,
        ledger: SiteLedger | None = None,
        log: logging.Logger | None = None,
        rows: str = "",
        table_name: str = "table",
        identity: Identity | None = None,
        seed: int | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        """``rows`` is a fingerprint of the table: a run that began with another one does not go on. Groups are kept
        under ``table_name``. Without an ``identity`` a site takes part in no masked sum. ``seed`` is for an owner who
        plays all sites: from it the public seed of a run follows. With ``approvals`` (an installed site has them)
        nothing but an accepted order opens a run, and a data officer decides about those that the policy says."""
        units = units_of(table)
        policy, ledger = policy or Policy(), ledger or SiteLedger()
        orders = Orders(policy, ledger, table_name, approvals, units and units.column)
        super().__init__(name, policy, ledger, orders, log or logging.getLogger(LOGGER), identity, seed)
        self._identifying: frozenset[str] = frozenset()
        """The columns that identify rows, where the site itself keeps no row by which to find them."""
        self._tables = self._views(table, table_name)
        self._bounded: dict[int, BoundedTable] = {}
        """The table by how many rows of each unit count."""
        self.compute_seconds = 0.0
        """Time spent in the protocols' own mathematics, as opposed to everything around it."""
        self._tag = codec.site_tag(name)
        self._memories = RunMemories(self.policy)
        self._rows = rows and hmac.digest(self.masking_key, b"coterie/rows/" + rows.encode(), "sha256").hex()
        """Keyed: heads of the ledger are seen by others, who must not recognise the rows by them."""
        self._known: set[bytes] = set()
        """Runs that are known to have begun with these rows."""
        self._lock = threading.Lock()

    def _views(self, table: Table, name: str) -> dict[Protection, Table]:
        """The table as methods see it, by protection; what no method sees is not kept."""
        check_unit(name, table, self.policy)
        needed = {self.policy.protection, *self.policy.method_protection.values()}
        views: dict[Protection, Table] = {"none": table} if "none" in needed else {}
        if self.policy.privacy is not None:
            views["noise"] = table  # private questions alone see it, and they are answered with noise
        if "groups" in needed:
            view = views["groups"] = grouped_view(table, self.policy.min_group, self.ledger, name=name)
            if view.n_grouped < FEW_GROUPS * view.min_group:
                held = (self.name, view.n_grouped, view.min_group)
                self._log.warning("%s: %d rows make few groups of at least %d, of unlike rows", *held)
            self._identifying = identifying_columns(table, [column.name for column in table.columns])
        return views

    def _identifying_of(self, names: Collection[str]) -> frozenset[str]:
        """Which of some columns identify rows."""
        table = self._tables.get("none")
        return self._identifying & set(names) if table is None else identifying_columns(table, names)

    def _table(self, envelope: Envelope) -> Table:
        """The table as a run sees it; a private one sees so many rows of each unit."""
        table, rule = self._tables[self._protection(envelope)], self._orders.unit_rule(envelope.run)
        if rule is None or rule.column is None:
            return table
        return self._bounded.setdefault(rule.most, BoundedTable(table, rule.most))

    def answer(self, frame: bytes) -> bytes:
        """The one exit. A question asked again gets the bytes it got before."""
        with self._lock, fixed_threads():  # the same question may arrive twice at once; it is computed once
            began = time.perf_counter()
            envelope = Envelope(codec.FORMAT_VERSION, bytes(16), 0, 0, bytes(8), self._tag, bytes(16), "")
            try:
                decoded = codec.decode_question(frame)
                if decoded.envelope.site != self._tag:
                    raise Refused(Refusal.FOREIGN)
                envelope = decoded.envelope
                event, given = self._given(decoded)
            except Exception as problem:
                return self._refuse(envelope, problem)
            if self._log.isEnabledFor(logging.INFO):
                with contextlib.suppress(Exception):  # the answer is in the ledger: a log that fails does not hold it
                    self._tell(event, decoded, len(given), time.perf_counter() - began)
            return given

    def _given(self, decoded: Decoded) -> tuple[str, bytes]:
        """What the site gives, and what the giving is called."""
        if decoded.form is Form.RECALL:
            return "recall", self._recall(decoded)
        stored = self._stored(decoded.envelope)
        return ("answer", self._answer(decoded)) if stored is None else ("resend", stored)

    def _tell(self, event: str, decoded: Decoded, n_bytes: int, seconds: float) -> None:
        """Tell the site's log what leaves."""
        envelope, request = decoded.envelope, decoded.request
        asked = "" if request is None else request.subject.kind
        extra = about(self.name, envelope, event, asked=asked, bytes=n_bytes, seconds=round(seconds, 6))
        facts = (self.name, envelope.round, event, asked, n_bytes)
        self._log.info("%s, round %d: %s: %s, %d bytes", *facts, extra=extra)

    def _stored(self, envelope: Envelope) -> bytes | None:
        """The bytes this question got before, if it was asked before. Questions out of turn are refused."""
        stored = self.ledger.stored(Key(envelope.run, envelope.round, envelope.attempt))
        if stored is not None:
            request, frame = stored
            if request != envelope.request:
                raise Refused(Refusal.CONFLICT)
            self.ledger.resend(envelope, len(frame))
            return frame
        if (envelope.attempt, envelope.round) <= self.ledger.newest(envelope.run):
            raise Refused(Refusal.STALE)
        return None

    def _answer(self, decoded: Decoded) -> bytes:
        envelope = decoded.envelope
        request = self._permitted(decoded)
        run = self._memory(envelope)
        if run.transcript != decoded.transcript:
            raise Refused(Refusal.FORGOT)
        for check in CHECKS:
            check(self, run, envelope, decoded)
        layout = _layout(request)
        if request.remembered:
            self._remember(envelope, request, decoded.bodies[0])
        carrier = CARRIERS.get(type(request))
        try:
            reply = self._compute(envelope, request) if carrier is None else carrier(self, run, envelope, request)
        except Exception:
            if request.remembered:  # what was kept for it is dropped: it is asked again as if for the first time
                self._memories.forget(envelope.run)
            raise
        frame = codec.encode_answer(envelope, layout, reply, layout.bounds(decoded.limits))
        self.ledger.answer(envelope, frame, layout.numbers, **_facts(request, decoded.seen))
        return frame

    def _permitted(self, decoded: Decoded) -> Request[Any]:
        """The request, once the site's policy has nothing against it."""
        request, envelope = decoded.request, decoded.envelope
        if request is None:
            raise Refused(Refusal.UNKNOWN_QUESTION)
        self.peers.check_ledger()
        is_open = self._is_open(decoded, request)
        if CARRIERS.get(type(request)) is None:
            self._object(envelope, request, is_masked=False)
        elif not self.policy.allows(envelope.method):
            raise Refused(Refusal.METHOD_FORBIDDEN)
        allowed = self.policy.max_questions
        if allowed is not None and self.ledger.replies(envelope.run) >= allowed:
            raise Refused(Refusal.TOO_MANY_QUESTIONS)
        if is_open:
            self._check_table(envelope, decoded.limits)
        return request

    def _is_open(self, decoded: Decoded, request: Request[Any]) -> bool:
        """Whether rows may be looked at for a question; one of a run that has no order here is refused."""
        envelope = decoded.envelope
        ordered = self._orders.method_of(envelope.run)
        if ordered is None and type(request) in BEGINNINGS:
            return False
        if not self._orders.are_needed:
            return True
        if ordered is None and self._memory(envelope).transcript != decoded.transcript:
            raise Refused(Refusal.FORGOT)
        if ordered != envelope.method:
            raise NotOrdered(f"the run has an order for {ordered or 'nothing'}, and is asked for {envelope.method}")
        return True

    def _check_table(self, envelope: Envelope, limits: Limits, *, is_private: bool = False) -> None:
        """Refuse where the rows are not those the run began with, or too few, or more than declared.

        ``is_private`` says that of a run whose order is about to be accepted."""
        if not self._began_so(envelope.run):
            raise Refused(Refusal.OTHER_ROWS)
        if is_private or self._protection(envelope) == "noise":  # no refusal tells how many rows there are
            return
        held = rows_behind(self._table(envelope))
        if held < self.policy.min_rows or not (held or self.policy.protection_of(envelope.method) == "none"):
            raise Refused(Refusal.TOO_FEW_ROWS)
        self._check_rows(envelope, limits)

    def _check_rows(self, envelope: Envelope, limits: Limits) -> None:
        """Refuse where the run sees more of the site's rows than a question declares."""
        if self._protection(envelope) == "noise":
            return
        held = rows_behind(self._memory(envelope).table or self._table(envelope))
        most = limits.get("rows", float("inf"))
        if isinstance(most, tuple) or held > most:
            raise OutOfRange(f"{self.name} holds {held} rows; declared were {most}")

    def _memory(self, envelope: Envelope) -> RunMemory:
        """What the site remembers of a run, apart for each protection: methods could differ in it."""
        return self._memories.of(envelope.run, self._protection(envelope))

    def _began_so(self, run: bytes) -> bool:
        """Whether the run began with the rows that are there now; written down when it begins."""
        if self._rows and run not in self._known:
            if not self.ledger.began_with(run, self._rows):
                return False
            self._known.add(run)
        return True

    def _object(self, envelope: Envelope, request: Request[Any], *, is_masked: bool) -> None:
        """Refuse what cannot be answered here or what the policy has something against."""
        kind, protection = type(request), self._protection(envelope)
        if kind not in ANSWERS and kind not in CONTRIBUTIONS:
            raise Refused(Refusal.UNKNOWN_QUESTION)
        content, is_private = reply_type(kind).content, isinstance(request, PrivateRequest)
        if is_private and protection == "groups":
            raise Refused(Refusal.NOT_PRIVATE, "a private question in a run whose order is not private")
        is_safe = is_private or content == "schema" or (content == "nothing" and request.tells_nothing)
        if protection == "noise" and not (is_safe and self._orders.is_private(envelope.run)):
            raise Refused(Refusal.NOT_PRIVATE)
        is_alone = isinstance(request, PrivateRequest) and not is_masked and request.shares > 1
        if is_alone and protection == "noise":
            raise Refused(Refusal.NOT_PRIVATE, "one site's noise is not enough for the question")
        objection = self.policy.objection(envelope.method, kind, is_masked=is_masked)
        if objection is not None:
            raise Refused(objection)

    def begin(self, envelope: Envelope, order: bytes) -> Order:
        """Accept the order of a run."""
        return self._orders.accept(
            envelope,
            order,
            self.peers.identity.trust,
            lambda is_private: self._check_table(envelope, {}, is_private=is_private),
            self._identifying_of,
        )

    def evaluate(self, envelope: Envelope, request: Request[Any] | None, limits: Limits) -> Reply:
        """The answer to a request that another one carries; what carries it masks it before it leaves."""
        if request is None or request.remembered:
            raise Refused(Refusal.UNKNOWN_QUESTION)
        self._object(envelope, request, is_masked=True)
        self._check_rows(envelope, limits)
        _layout(request)
        return self._compute(envelope, request)

    def keep(self, envelope: Envelope, request: Request[Any]) -> None:
        """Do what a request without an answer says; the site's own protocol asks for it, in a verified run."""
        self._object(envelope, request, is_masked=True)
        kept, keep = self._memory(envelope), KEEPERS.get(type(request))
        if keep is not None:
            keep(kept.table or self._table(envelope), kept, request)
        kept.show(request)
        self._compute(envelope, request)

    def _compute(self, envelope: Envelope, request: Request[Any]) -> Reply:
        """What the protocol's own function answers."""
        compute, memory = ANSWERS.get(type(request)), self._memory(envelope)
        began = time.perf_counter()
        try:
            if isinstance(request, PrivateRequest):
                return self._privately(envelope, memory, request)
            assert compute is not None
            return compute(memory.table or self._table(envelope), memory, request)
        finally:
            self.compute_seconds += time.perf_counter() - began

    def _privately(self, envelope: Envelope, memory: Memory, request: PrivateRequest[Any]) -> Reply:
        """Noisy sums; what they give away is charged before they leave, once for each question.

        A question has one answer, over the rows as they were shown when it was first asked: a second sum with the
        same noise at some sites, and other rows at others, would have less noise than was charged."""
        wrong = request.problem()
        if wrong is not None:
            raise MalformedMessage(f"{request.kind}: {wrong}")
        run = envelope.run
        if self.ledger.notes(run, CONCLUDED):
            raise NotOrdered("the run was concluded, and what it spent was stated")
        key = self.ledger.noise_key(run)
        if self._protection(envelope) != "noise":
            return noisy_answer(memory, request, key)
        self._orders.charge(run, request)
        reply = noisy_answer(memory, request, key)
        said = (
            memory.get(SHOWN, b"")
            + repr(self._orders.unit_rule(run)).encode()
            + b"".join(part.tobytes() for part in reply.arrays())
        )
        self.pin(run, f"answer to {request.identity.hex()}", hmac.digest(key, said, "sha256"))
        return reply

    def _remember(self, envelope: Envelope, request: Request[Any], body: bytes) -> None:
        """Update the memory of a run; on any failure all of it is dropped, never half of it kept."""
        kept, keep = self._memory(envelope), KEEPERS.get(type(request))
        try:
            if keep is not None:
                keep(kept.table or self._table(envelope), kept, request)
        except Exception:
            self._memories.forget(envelope.run)
            raise
        kept.transcript = codec.extend_transcript(kept.transcript, body)
        if type(request) not in CARRIERS:
            kept.show(request)
        kept.requests.append(request)

    def _recall(self, decoded: Decoded) -> bytes:
        """Forget a run and remember it again from its own requests; only an empty answer leaves."""
        envelope = decoded.envelope
        self._memories.forget(envelope.run)
        for body in decoded.bodies:
            request, _ = codec.decode_body(body)
            if request is None or not request.remembered:
                raise Refused(Refusal.UNKNOWN_QUESTION)
            carrier = CARRIERS.get(type(request))
            has_begun = not self._orders.are_needed or self._orders.method_of(envelope.run) == envelope.method
            if not has_begun and type(request) not in BEGINNINGS:
                raise NotOrdered("the site is brought up to date with a run that it has no order for")
            if carrier is None:
                self._object(envelope, request, is_masked=False)
            for check in CHECKS:
                check(self, self._memory(envelope), envelope, replace(decoded, request=request))
            self._remember(envelope, request, body)
            if carrier is not None:  # what it checks when asked, such as pinned keys, holds here, too
                try:
                    carrier(self, self._memory(envelope), envelope, request)
                except Exception:
                    self._memories.forget(envelope.run)
                    raise
        frame = codec.encode_answer(envelope, codec.EMPTY_LAYOUT, Nothing(), ())
        self.ledger.recall(envelope, len(frame))
        return frame

    def _refuse(self, envelope: Envelope, problem: Exception) -> bytes:
        """A bare code; why it is sent is for the site's log alone."""
        is_meant = isinstance(problem, Refused)
        code = problem.code if isinstance(problem, Refused) else _CODES.get(type(problem), Refusal.FAILED)
        self._log.warning(
            "%s, round %d: refused: %s" if is_meant else "%s, round %d: %s",
            *(self.name, envelope.round, problem),
            exc_info=None if is_meant else problem,
            extra=about(self.name, envelope, "refused" if is_meant else "failed", code=code.name),
        )
        frame = codec.encode_refusal(envelope, code)
        try:
            self.ledger.refusal(envelope, len(frame), code.name)
        except Exception:  # a full disk must not turn a bare code into silence
            extra = about(self.name, envelope, "failed", code=code.name)
            self._log.exception("%s: the ledger cannot be written", self.name, extra=extra)
        return frame


def _facts(request: Request[Any], said: Seen) -> dict[str, Any]:
    """What the ledger says of an answer: what it is made of, what the server sees of it, whom it is summed up with.

    That it is masked the site knows itself; of the others it knows what the question said.
    """
    subject = request.subject
    reply = reply_type(subject)
    facts: dict[str, Any] = {"asked": subject.kind, "answer": reply.__name__, "content": reply.content}
    if subject is type(request):
        return {**facts, "seen": said.name.lower() if said is not Seen.MASKED else Seen.SUMMED.name.lower()}
    return {**facts, "seen": "masked", "with": list(getattr(request, "roster", ()))}


def _layout(request: Request[Any]) -> Layout:
    layout = request.layout
    if layout.n_bytes > codec.MAX_ANSWER_BYTES or layout.size > codec.MAX_ANSWER_BYTES // 8:
        raise Refused(Refusal.TOO_LARGE)
    return layout
