"""The site's own ledger: every answer that left, stored before it leaves, sealed line by line."""

from __future__ import annotations

import base64
import contextlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coterie.errors import LedgerBroken, Untrusted
from coterie.files import private_folder, write_private
from coterie.messages.chain import Chain, known_lines, read_seal
from coterie.messages.codec import Envelope
from coterie.messages.heads import Head

NO_RUN = bytes(16)
"""Under which name lines stand that belong to no run, or to the only run of a folder."""
MAX_RUNS = 8
"""How many runs are kept in mind at once without a file; the one not heard of for longest goes first."""
SECRET_BYTES = 32
SIGNING_KEY = ".sign"
"""What follows a ledger's name in that of the file with the site's signing key."""
IDENTITY = "identity"
"""The note with a ledger's random identity, which its signed heads name."""


PROTECTION = "protection"
"""The notes with how each table is protected."""


def check_signed_head(
    path: Path, key: bytes, hash_at: Callable[[int], bytes | None], *, needed: bool = True
) -> Head | None:
    """The signed head in a head file, if it is ``needed`` or there; ``LedgerBroken`` if it is not of these lines."""
    sealed = read_seal(path)
    if sealed is None:
        if needed:
            raise LedgerBroken(f"{path}: its head file has no head that this site signed{_REMEDY}")
        return None
    try:
        head = Head.from_bytes(base64.b64decode(sealed, validate=True))
    except (ValueError, Untrusted):
        raise LedgerBroken(f"{path}: the signed head in its head file cannot be read{_REMEDY}") from None
    if not head.is_signed_by(key):
        raise LedgerBroken(f"{path}: the head in its head file is signed by another key than this site's{_REMEDY}")
    if hash_at(head.lines) != head.hash:
        raise LedgerBroken(f"{path} does not hold the {head.lines} lines that this site signed{_REMEDY}")
    return head


_REMEDY = ". A data officer who knows why goes on with `coterie site acknowledge`."


def signed_head_of(path: Path, lines: Sequence[Mapping[str, Any]], key: bytes) -> Head | None:
    """The same, of the lines of a file that is only read."""

    def hash_at(number: int) -> bytes | None:
        return bytes.fromhex(lines[number - 1]["chain"]) if 0 < number <= len(lines) else None

    is_named = any(line["event"] == "note" and line["what"] == IDENTITY for line in lines[:-1])
    return check_signed_head(path, key, hash_at, needed=is_named)


def kept_secret(path: Path | None) -> bytes:
    """Thirty-two random bytes: those in a file that only its owner reads, which is written if it is not there."""
    if path is None:
        return secrets.token_bytes(SECRET_BYTES)
    if not path.exists():
        private_folder(path.parent)
        write_private(path, secrets.token_bytes(SECRET_BYTES), durable=True)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise LedgerBroken(f"{path}: holds {len(secret)} bytes, and a secret has {SECRET_BYTES}; restore the file")
    return secret


class Key(NamedTuple):
    """What names a question for ever: asked again, it gets the same bytes."""

    run: bytes
    round: int
    attempt: int


def _now() -> float:
    return round(time.time(), 3)


def question_facts(envelope: Envelope) -> dict[str, Any]:
    """What ledgers and logs say of a question."""
    names = ("round", "attempt", "method")
    return {"run": envelope.run.hex(), **{name: getattr(envelope, name) for name in names}}


@dataclass
class _RunPages:
    """What the ledger knows of one run: how many answers, the newest, and where to find each."""

    answers: int = 0
    refusals: int = 0
    n_bytes: int = 0
    newest: tuple[int, int] = (-1, -1)
    stored: dict[tuple[int, int], tuple[bytes, bytes | int]] = field(default_factory=dict)
    once: set[str] = field(default_factory=set)
    notes: dict[str, list[bytes | int]] = field(default_factory=dict)
    of: tuple[str, str] | None = None
    """Whose order the run is, and over which table."""


def noise_folder(path: Path) -> Path:
    """Where the secrets of runs' noise are, beside a ledger."""
    return path.with_name(path.name + ".noise")


_NO_PAGES = _RunPages()
"""Of a run the ledger does not know; never changed."""


class SiteLedger:
    """What left this site.

    With a path every answer is in the file before it leaves, and a site that starts again finds it there.
    Without one (simulations) only the newest answer of each run is kept; older questions are then stale.
    """

    def __init__(self, path: Path | None = None, *, durable: bool = False) -> None:
        self.path, self._chain = path, Chain(path, durable=durable)
        self._runs: OrderedDict[bytes, _RunPages] = OrderedDict()
        self._totals = {"floats_up": 0, "bytes_up": 0, "answers": 0}
        self._charged: dict[str, float] = {}
        self._charges: dict[bytes, dict[bytes, float]] = {}
        self._resets: dict[str, int] = {}
        self._noise_keys: dict[bytes, bytes] = {}
        self._sign: Callable[[bytes], bytes] | None = None
        self._was_named = False
        with known_lines(path):
            for start, line in self._chain.reopen():
                self._take(start, line)

    def _take(self, start: int, line: dict[str, Any]) -> None:
        """Remember a line of the file."""
        self._count(line["floats"], line["bytes"], line["event"] == "answer")
        event, run = line["event"], bytes.fromhex(line["run"])
        self._was_named |= bool(self._runs.get(NO_RUN, _NO_PAGES).notes.get(IDENTITY))
        if event == "once":
            self._pages(run).once.add(line["what"])
        elif event == "refusal" and run in self._runs:
            self._runs[run].refusals += 1
        elif event == "charge":
            self._count_charge(run, bytes.fromhex(line["question"]), line["table"], line["mu_squared"])
        elif event == "budget":
            self._count_reset(line["table"])
        elif event == "note":
            self._pages(run).notes.setdefault(line["what"], []).append(start)
            if line["what"] == "order" and "analyst" in line:
                self._pages(run).of = (line["analyst"], line["table"])
        elif event == "answer":
            self._keep(Key(run, line["round"], line["attempt"]), bytes.fromhex(line["request"]), start)
        if run in self._runs:
            self._runs[run].n_bytes += line["bytes"]

    def total(self, what: str) -> int:
        """``floats_up``, ``bytes_up`` or the number of ``answers``, over all runs."""
        return self._totals[what]

    def stored(self, key: Key) -> tuple[bytes, bytes] | None:
        """The digest of the request answered under ``key``, and the bytes of the answer."""
        place = self._runs.get(key.run, _NO_PAGES).stored.get((key.round, key.attempt))
        return None if place is None else (place[0], self._read(place[1], "frame"))

    def newest(self, run: bytes) -> tuple[int, int]:
        """Attempt and round of the newest answer in ``run``; (-1, -1) before the first."""
        return self._runs.get(run, _NO_PAGES).newest

    def replies(self, run: bytes) -> int:
        """How many questions of ``run`` this site has answered or refused."""
        pages = self._runs.get(run, _NO_PAGES)
        return pages.answers + pages.refusals

    def counts(self, run: bytes) -> tuple[int, int, int]:
        """How many questions of ``run`` were answered and refused, and how many bytes left."""
        pages = self._runs.get(run, _NO_PAGES)
        return pages.answers, pages.refusals, pages.n_bytes

    def begin(self, run: bytes, order: bytes, analyst: str, table: str) -> None:
        """Keep the order of a run, and by whom and over which table it is."""
        self.note(run, "order", order, analyst=analyst, table=table)
        self._pages(run).of = (analyst, table)

    def n_runs(self, analyst: str, table: str) -> int:
        """How many runs an analyst was let begin over a table, in the life of the ledger."""
        return sum(pages.of == (analyst, table) for pages in self._runs.values())

    def answer(self, envelope: Envelope, frame: bytes, floats: int, **facts: Any) -> None:
        """Store an answer; after this it may leave."""
        start = self._chain.size
        if self.path is not None:
            facts["frame"] = base64.b64encode(frame).decode()
        self._line("answer", envelope, floats, len(frame), facts)
        key = Key(envelope.run, envelope.round, envelope.attempt)
        self._keep(key, envelope.request, frame if self.path is None else start)

    def resend(self, envelope: Envelope, n_bytes: int) -> None:
        """The same bytes leave once more."""
        self._line("resend", envelope, 0, n_bytes, {})

    def recall(self, envelope: Envelope, n_bytes: int) -> None:
        """An empty answer leaves: the site was brought up to date."""
        self._line("recall", envelope, 0, n_bytes, {})

    def refusal(self, envelope: Envelope, n_bytes: int, code: str) -> None:
        """Nothing but a code leaves."""
        self._line("refusal", envelope, 0, n_bytes, {"code": code})
        if envelope.run in self._runs:  # a made-up run costs a line and no memory
            self._runs[envelope.run].refusals += 1

    def once(self, run: bytes, what: str) -> bool:
        """Write down that ``what`` happens in ``run``; False where it did before."""
        pages = self._pages(run)
        if what in pages.once:
            return False
        self._remark("once", run, what)
        pages.once.add(what)
        return True

    def note(self, run: bytes, what: str, data: bytes, **facts: str) -> None:
        """Keep something about a run that must not be forgotten, not even over a restart."""
        start = self._chain.size
        if self.path is not None:
            facts["data"] = base64.b64encode(data).decode()
        self._remark("note", run, what, **facts)
        self._pages(run).notes.setdefault(what, []).append(data if self.path is None else start)

    def notes(self, run: bytes, what: str) -> list[bytes]:
        """Everything kept under ``what``, in order."""
        return [self._read(where, "data") for where in self._runs.get(run, _NO_PAGES).notes.get(what, [])]

    def began_with(self, run: bytes, rows: str, *, is_new: bool = True) -> bool:
        """Whether ``run`` began with the rows of this fingerprint; written down where a new run begins."""
        kept = self.notes(run, "fingerprint")
        if not kept and is_new:
            self.note(run, "fingerprint", rows.encode())
            return True
        return kept[:1] == [rows.encode()]

    def charged(self, table: str) -> float:
        """What a table has given away since its budget was last reset, as the square of mu."""
        return self._charged.get(table, 0.0)

    def was_charged(self, run: bytes, question: bytes) -> bool:
        """Whether a question of a run was charged before."""
        return question in self._charges.get(run, {})

    def charged_to(self, run: bytes) -> float:
        """What the answers of a run gave away, as the square of mu."""
        return math.fsum(self._charges.get(run, {}).values())

    def charge(self, run: bytes, question: bytes, table: str, mu_squared: float, numbers: int) -> None:
        """Write down what an answer gives away of a table, before it leaves."""
        owner = self._runs.get(run, _NO_PAGES).of
        facts = {"question": question.hex(), "table": table, "time": _now()}
        facts["analyst"] = owner[0] if owner else ""
        self._remark("charge", run, "privacy", **facts, mu_squared=mu_squared, numbers=numbers)
        self._count_charge(run, question, table, mu_squared)

    def reset_budget(self, table: str, why: str) -> None:
        """Begin a table's budget anew: the data officer's word."""
        self._remark("budget", NO_RUN, "reset", table=table, why=why, spent=self.charged(table), time=_now())
        self._count_reset(table)

    def resets(self, table: str) -> int:
        """How often the budget of a table was reset."""
        return self._resets.get(table, 0)

    def keep_protection(self, table: str, protection: str) -> None:
        """Write down how a table is protected from now on."""
        if self.protection_of(table) != protection:
            self.note(NO_RUN, PROTECTION, msgspec.msgpack.encode((table, protection)))

    def protection_of(self, table: str) -> str | None:
        """How a table was protected last; None where that was never written down."""
        kept = (msgspec.msgpack.decode(data, type=tuple[str, str]) for data in self.notes(NO_RUN, PROTECTION))
        return dict(kept).get(table)

    def noise_key(self, run: bytes) -> bytes:
        """The secret from which a run's noise is drawn: random, and the same over restarts of the site."""
        if self.path is None:
            return self._noise_keys.setdefault(run, secrets.token_bytes(32))
        return kept_secret(self._noise_file(run))

    def forget_noise_key(self, run: bytes) -> None:
        """Delete it: the run is over, and no noise can be drawn again."""
        self._noise_keys.pop(run, None)
        if self.path is not None:
            self._noise_file(run).unlink(missing_ok=True)

    def _noise_file(self, run: bytes) -> Path:
        assert self.path is not None
        return noise_folder(self.path) / run.hex()

    def _count_reset(self, table: str) -> None:
        self._charged[table] = 0.0
        self._resets[table] = self.resets(table) + 1

    def _count_charge(self, run: bytes, question: bytes, table: str, mu_squared: float) -> None:
        self._charges.setdefault(run, {})[question] = mu_squared
        self._charged[table] = math.nextafter(self.charged(table) + mu_squared, math.inf)  # never rounded down

    def grouping(self, how: str, **facts: Any) -> None:
        """The site's groups were formed, updated or formed anew; nothing leaves."""
        head = {"event": "groups", "time": _now(), "run": NO_RUN.hex(), "round": -1}
        self._chain.append({**head, "how": how, "floats": 0, "bytes": 0, **facts})

    def secret(self, suffix: str = ".key") -> bytes:
        """Thirty-two bytes that are this site's own: kept beside the ledger, or made anew where there is no file."""
        return kept_secret(None if self.path is None else self.path.with_name(self.path.name + suffix))

    def signed_with(self, key: bytes, sign: Callable[[bytes], bytes], *, is_checked: bool = True) -> None:
        """From now on heads are signed; ``LedgerBroken`` where this ledger is not as the key's owner signed it."""
        if self.path is not None and is_checked:
            check_signed_head(self.path, key, self._chain.hash_at, needed=self._was_named)
        self._sign = sign
        if not self.notes(NO_RUN, IDENTITY):
            self.begin_anew(0)
        else:
            self.head()

    def contradicts(self, head: Head) -> bool:
        """Whether a head that this site signed is not of this ledger, nor of one before an acknowledged break."""
        if head.breaks != self.breaks:
            return head.breaks > self.breaks
        return head.ledger != self._identity[0] or self._chain.hash_at(head.lines) != head.hash

    @property
    def _identity(self) -> tuple[bytes, int]:
        """The random identity of this ledger, and how many breaks in it were acknowledged."""
        kept = self.notes(NO_RUN, IDENTITY)
        return msgspec.msgpack.decode(kept[-1], type=tuple[bytes, int]) if kept else (bytes(16), 0)

    @property
    def breaks(self) -> int:
        """How many breaks the data officer has acknowledged."""
        return self._identity[1]

    def begin_anew(self, breaks: int) -> None:
        """Give the ledger another random identity, after so many breaks."""
        self.note(NO_RUN, IDENTITY, msgspec.msgpack.encode((secrets.token_bytes(16), breaks)))
        self.head()

    def head(self) -> Head:
        """The head of the ledger as it is now, signed, and kept in the head file."""
        if self._sign is None:
            raise Untrusted("a ledger without a signing key has no signed head")
        blank = Head(*self._identity, self._chain.n_lines, bytes.fromhex(self._chain.head))
        head = blank._replace(signature=self._sign(blank.signed()))
        self._chain.seal(base64.b64encode(head.to_bytes()).decode())
        return head

    def close(self) -> None:
        """Sign the head once more, and give the file back."""
        if self._sign is not None:
            with contextlib.suppress(OSError):  # of a full disk; the head signed before stands
                self.head()
        self._chain.close()

    def abandon(self) -> None:
        """Write nothing any more, whoever still wants to: the file is another's now."""
        self._chain.abandon()

    def _pages(self, run: bytes) -> _RunPages:
        return self._runs.setdefault(run, _RunPages())

    def _read(self, where: bytes | int, field: str) -> bytes:
        """What was kept: in memory, or in a field of the line that begins at a byte of the file."""
        return base64.b64decode(self._chain.line_at(where)[field]) if isinstance(where, int) else where

    def _remark(self, event: str, run: bytes, what: str, **facts: Any) -> None:
        """A line about a run with which nothing leaves."""
        line = {"event": event, "run": run.hex(), "what": what, "floats": 0, "bytes": 0, "round": -1}
        self._chain.append({**line, **facts})

    def _line(self, event: str, envelope: Envelope, floats: int, n_bytes: int, facts: dict[str, Any]) -> None:
        self._chain.append(
            {
                "event": event,
                "time": _now(),
                **question_facts(envelope),
                "request": envelope.request.hex(),
                "floats": floats,
                "bytes": n_bytes,
                **facts,
            }
        )
        self._count(floats, n_bytes, event == "answer")
        if event == "answer" or envelope.run in self._runs:
            self._pages(envelope.run).n_bytes += n_bytes

    def _count(self, floats: int, n_bytes: int, is_answer: bool) -> None:
        self._totals["floats_up"] += floats
        self._totals["bytes_up"] += n_bytes
        self._totals["answers"] += is_answer

    def _keep(self, key: Key, request: bytes, where: bytes | int) -> None:
        pages = self._pages(key.run)
        self._runs.move_to_end(key.run)
        if self.path is None:
            pages.stored.clear()
            if len(self._runs) > MAX_RUNS:  # runs with notes stay
                old = next((name for name, kept in self._runs.items() if not kept.notes and name != key.run), None)
                if old is not None:
                    del self._runs[old]
        pages.answers += 1
        pages.newest = max(pages.newest, (key.attempt, key.round))
        pages.stored[key.round, key.attempt] = (request, where)
