"""What left a site, according to its own ledger: its messages run by run, and sentences about them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from coterie.messages.refusals import Refusal
from coterie.text import count_of

Line = dict[str, Any]
KEYS = "keys, proofs"
INTERNAL = ("once", "note", "charge", "budget")
"""Lines of a site's ledger with which nothing leaves."""
NO_RUN = bytes(16).hex()
"""The run that a site records for a question it could not read."""
MANY_ROSTERS = 4
FROM_ROWS = {
    "noisy": "noisy sums",
    "sums": "sums",
    "composition": "sizes of clusters",
    "grams": "sums of products",
    "averages": "averages",
    "rows": "rows",
}
"""Contents of answers computed from rows, in words; others are ``schema`` (column names) and ``nothing``."""


class Left(NamedTuple):
    """One message that left a site."""

    round: int
    event: str
    what: str
    content: str
    floats: int
    bytes: int
    seen: str = ""
    """``single``, ``summed`` or ``masked``; empty for messages without data."""
    over: tuple[str, ...] = ()
    """The sites over whose sum a masked answer was unmasked, or can be at most."""
    reason: str = ""
    """Why a question was refused."""

    @property
    def sight(self) -> str:
        """What the server sees of it, for a table."""
        if self.seen == "masked":
            return f"a sum over {len(self.over)} sites"
        return {"single": "the answer", "summed": "the answer, to sum"}.get(self.seen, "")


def left_by_run(lines: Sequence[Line]) -> dict[str, list[Left]]:
    """The messages that left, by run in the order in which runs began; runs in which nothing left are not there."""
    runs: dict[str, list[Line]] = {}
    for line in lines:
        if line["event"] != "groups" and not (line["event"] in INTERNAL and line["run"] == NO_RUN):
            runs.setdefault(line["run"], []).append(line)
    return {run: left for run, of_run in runs.items() if (left := _left(of_run))}


def is_of_run(run: str) -> bool:
    """Whether it is the name of a run, and not what stands for none."""
    return bool(run.strip("0"))


def groups_sentences(lines: Sequence[Line]) -> Iterator[str]:
    """The groups that a site's answers were computed from, according to its ledger."""
    tables: dict[str, list[Line]] = {}
    has_answered = False
    for line in lines:
        has_answered |= line["event"] == "answer"
        if line["event"] == "groups":
            before = tables.get(line["table"], []) if has_answered or line["how"] == "updated" else []
            tables[line["table"]] = [*before, line]
    for name, changes in tables.items():
        which = f" from table {name}" if len(tables) > 1 else ""
        formed, least = sum(line["formed"] for line in changes), min(line["min_group"] for line in changes)
        yield f"Everything that ever left{which} is a function of {formed:,} groups of at least {least} rows."
        broken, anew = sum(line["broken"] for line in changes), sum(line["how"] == "regrouped" for line in changes)
        if broken:
            yield f"Dropped {count_of(broken, 'group')} in which a row was removed or changed."
        if anew:
            yield f"The data officer formed all groups again {count_of(anew, 'time')}."


def _left(lines: list[Line]) -> list[Left]:
    """The messages that left in one run; a site's internal notes are read for the rosters of unmasked sums."""
    unmasked, messages, answers = _unmasked(lines), [], dict[tuple[int, int], Left]()
    for line in lines:
        question = line["round"], line.get("attempt", 0)
        if line["event"] == "answer":
            answers[question] = _answer(line, unmasked.get(question))
            messages.append(answers[question])
        elif line["event"] not in INTERNAL:
            messages.append(_other(line, answers.get(question)))
    return messages


def _answer(line: Line, unmasked: Sequence[str] | None) -> Left:
    from coterie.secure.certificates import Compare, Conclude
    from coterie.secure.handshake import Introduce, ShareKey
    from coterie.secure.masked_sums import Reveal

    plain = Left(line["round"], "answer", line["answer"], line["content"], line["floats"], line["bytes"])
    if line.get("asked") in [request.kind for request in (Compare, Introduce, ShareKey, Reveal, Conclude)]:
        return plain._replace(what=KEYS, content="no data")
    if line["seen"] != "masked":
        return plain._replace(seen=line["seen"])
    over = tuple(line["with"] if unmasked is None else unmasked)
    return plain._replace(seen="single") if len(over) == 1 else plain._replace(seen="masked", over=over)


def _other(line: Line, answered: Left | None) -> Left:
    """A refusal, a receipt, or an answer that is sent again."""
    plain = Left(line["round"], line["event"], "a receipt", "nothing", line["floats"], line["bytes"])
    if line["event"] == "refusal":
        code = Refusal.__members__.get(line["code"])
        return plain._replace(what="a refusal", content="a code", reason=code.sentence if code else line["code"])
    if line["event"] == "resend" and answered is not None:
        what = KEYS if answered.what == KEYS else f"{answered.what} again"
        return plain._replace(what=what, content=answered.content, seen=answered.seen, over=answered.over)
    return plain


def _unmasked(lines: list[Line]) -> dict[tuple[int, int], list[str]]:
    """By round and attempt, the sites of a sum that this site helped to unmask.

    In ledgers of earlier versions these can be fewer than the sites asked: those left after a dropout.
    """
    rosters: dict[tuple[int, int], list[str]] = {}
    roster: list[str] = []
    for line in lines:
        if line["event"] == "note" and line["what"] == "roster":
            roster = msgspec.msgpack.decode(base64.b64decode(line["data"]))
        elif line["event"] == "once" and line["what"].startswith("reveal "):
            _, number, attempt = line["what"].split()
            rosters[int(number), int(attempt)] = roster
    return rosters


LEFT_HEADS = ["rounds", "message", "content", "the server sees", "values", "bytes"]


def left_rows(left: list[Left]) -> list[list[str]]:
    """The messages of a run as rows of a table."""
    return table_rows((m.round, (m.what, m.content, m.sight), (m.floats, m.bytes)) for m in left)


def table_rows(messages: Iterable[tuple[int, tuple[str, ...], tuple[int, ...]]]) -> list[list[str]]:
    """A line for consecutive messages, each a round, texts and counts, with equal texts; keys come last."""
    in_order = sorted(messages, key=lambda message: message[1][0] == KEYS)
    rows = []
    for texts, group in groupby(in_order, lambda message: message[1]):
        rounds, _, counts = zip(*group, strict=True)
        rows.append([rounds_text(rounds), *texts, *(f"{sum(column):,}" for column in zip(*counts, strict=True))])
    return rows


def site_sentences(left: list[Left]) -> Iterator[str]:
    """What left in a run, and what the server saw of it."""
    values, n_bytes = sum(message.floats for message in left), sum(message.bytes for message in left)
    yield f"{count_of(len(left), 'message')}, {values:,} values and {n_bytes:,} bytes sent in total."
    answers = [message for message in left if message.event == "answer"]
    clauses = [
        *_masked_clauses(answers),
        *single_clauses(Counter((message.seen, message.content) for message in answers)),
    ]
    schemas = Counter(message.what for message in answers if message.content == "schema")
    yield from saw("this site's", clauses or ["nothing"], schemas, "this site")
    if any(message.what == KEYS for message in left):
        yield "Keys and proofs carry no data: they mask and unmask sums, and say what this site did."
    again = sum(message.event == "resend" for message in left)
    if again:
        yield f"Sent {count_of(again, 'message')} again, with the same bytes."
    refused = Counter(message.reason for message in left if message.event == "refusal")
    if refused:
        reasons = [f"{text} ({n})" if len(refused) > 1 else text for text, n in refused.items()]
        yield f"Refused {count_of(refused.total(), 'question')}: {'; '.join(reasons)}."


def saw(whose: str, clauses: Sequence[str], schemas: Counter[str], holder: str) -> Iterator[str]:
    """What the server saw of rows, and besides: ``schemas`` counts answers that hold no rows by their replies."""
    from coterie.secure.handshake import SiteHello

    yield f"From {whose} rows, the server saw: {'; '.join(clauses)}."
    if schemas:
        begins = "public keys, heads of ledgers, " if schemas[SiteHello.__name__] else ""
        held = f"what {holder}'s policy allows, and which of the requested columns {holder} holds"
        yield f"It also saw {count_of(schemas.total(), 'answer')} (schema): {begins}{held}."


def _masked_clauses(answers: list[Left]) -> Iterator[str]:
    masked = [answer for answer in answers if answer.seen == "masked" and answer.content in FROM_ROWS]
    rosters = dict.fromkeys(answer.over for answer in masked)
    if len(rosters) > MANY_ROSTERS:
        sizes = sorted(map(len, rosters))
        yield f"{_contents(masked)}, each at most in a sum over {rounds_text(sizes)} sites, which varied"
    else:
        for over in rosters:
            same = [answer for answer in masked if answer.over == over]
            each = "each " * (len(same) > 1)
            yield f"{_contents(same)}, {each}only in a sum over {len(over)} sites ({names_text(over)})"
    if masked and not any(answer.seen in ("single", "summed") and answer.content in FROM_ROWS for answer in answers):
        yield "no per-site results"


def _contents(answers: list[Left]) -> str:
    kinds = dict.fromkeys(FROM_ROWS[answer.content] for answer in answers)
    return f"{count_of(len(answers), 'answer')} ({', '.join(kinds)})"


def single_clauses(seen: Counter[tuple[str, str]]) -> Iterator[str]:
    """Per-site results, from counts by how they were seen and by content."""
    for (how, content), n in seen.items():
        if how in ("single", "summed") and content in FROM_ROWS and n:
            clause = f"{count_of(n, 'per-site result')} ({FROM_ROWS[content]})"
            yield f"{clause}, which it declared it would only sum" if how == "summed" else clause


def rounds_text(rounds: Iterable[int]) -> str:
    first, *_, last = [*rounds] * 2
    return str(first) if first == last else f"{first}-{last}"


def names_text(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
