"""What left each site, and what the server saw of it: ``ledger show``, and ``ledger verify``, which compares them."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec
import typer

from coterie.cli.certificates import check_heads, check_signature
from coterie.cli.options import AsJson, ledger
from coterie.cli.terminal import print_json, say, show_table, tell
from coterie.errors import InputError, LedgerBroken
from coterie.messages.chain import known_lines, read_chain
from coterie.messages.refusals import Refusal
from coterie.runtime.outcomes import GOOD, OutcomeKind, outcome_sentence
from coterie.text import count_of

Line = dict[str, Any]
Place = Annotated[Path, typer.Argument(help="The folder of a run, or a ledger.jsonl file of a server or a site.")]


@ledger.command("show")
def ledger_show(place: Place, as_json: AsJson = False) -> None:
    """Show what left each site, and what the server saw of it."""
    path = _ledger_file(place)
    lines = read_chain(path)
    if as_json:
        print_json(lines)
    elif not lines:
        tell(f"{path} is empty so far.")
    else:
        with known_lines(path):
            (_show_site if "event" in lines[0] else _show_server)(path, lines)


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


class _Left(NamedTuple):
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


def _show_site(path: Path, lines: list[Line]) -> None:
    runs: dict[str, list[Line]] = {}
    for line in lines:
        if line["event"] != "groups" and not (line["event"] in INTERNAL and line["run"] == NO_RUN):
            runs.setdefault(line["run"], []).append(line)
    left_by_run = {run: left for run, of_run in runs.items() if (left := _left(of_run))}
    for run, left in left_by_run.items():
        which = f" in run {run[:8]}" if run.strip("0") else " outside any run"
        _show_site_run(f"What left this site ({path.stem}){which if len(left_by_run) > 1 else ''}", left)
    for sentence in groups_sentences(lines):
        say(sentence)


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


def _show_site_run(title: str, left: list[_Left]) -> None:
    messages = [(m.round, (m.what, m.content, m.sight), (m.floats, m.bytes)) for m in left]
    show_table(title, ["rounds", "message", "content", "the server sees", "values", "bytes"], _table_rows(messages))
    values, n_bytes = sum(message.floats for message in left), sum(message.bytes for message in left)
    say(f"{count_of(len(left), 'message')}, {values:,} values and {n_bytes:,} bytes sent in total.")
    for sentence in _site_sentences(left):
        say(sentence)


def _table_rows(messages: Iterable[tuple[int, tuple[str, ...], tuple[int, ...]]]) -> list[list[str]]:
    """A line for consecutive messages, each a round, texts and counts, with equal texts; keys come last."""
    in_order = sorted(messages, key=lambda message: message[1][0] == KEYS)
    rows = []
    for texts, group in groupby(in_order, lambda message: message[1]):
        rounds, _, counts = zip(*group, strict=True)
        rows.append([_rounds(rounds), *texts, *(f"{sum(column):,}" for column in zip(*counts, strict=True))])
    return rows


def _left(lines: list[Line]) -> list[_Left]:
    """The messages that left in one run; a site's internal notes are read for the rosters of unmasked sums."""
    unmasked, messages, answers = _unmasked(lines), [], dict[tuple[int, int], _Left]()
    for line in lines:
        question = line["round"], line.get("attempt", 0)
        if line["event"] == "answer":
            answers[question] = _answer(line, unmasked.get(question))
            messages.append(answers[question])
        elif line["event"] not in INTERNAL:
            messages.append(_other(line, answers.get(question)))
    return messages


def _answer(line: Line, unmasked: Sequence[str] | None) -> _Left:
    from coterie.secure.certificates import Compare, Conclude
    from coterie.secure.handshake import Introduce, ShareKey
    from coterie.secure.masked_sums import Reveal

    plain = _Left(line["round"], "answer", line["answer"], line["content"], line["floats"], line["bytes"])
    if line.get("asked") in [request.kind for request in (Compare, Introduce, ShareKey, Reveal, Conclude)]:
        return plain._replace(what=KEYS, content="no data")
    if line["seen"] != "masked":
        return plain._replace(seen=line["seen"])
    over = tuple(line["with"] if unmasked is None else unmasked)
    return plain._replace(seen="single") if len(over) == 1 else plain._replace(seen="masked", over=over)


def _other(line: Line, answered: _Left | None) -> _Left:
    """A refusal, a receipt, or an answer that is sent again."""
    plain = _Left(line["round"], line["event"], "a receipt", "nothing", line["floats"], line["bytes"])
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


def _site_sentences(left: list[_Left]) -> Iterator[str]:
    answers = [message for message in left if message.event == "answer"]
    clauses = [
        *_masked_clauses(answers),
        *_single_clauses(Counter((message.seen, message.content) for message in answers)),
    ]
    schemas = Counter(message.what for message in answers if message.content == "schema")
    yield from _saw("this site's", clauses or ["nothing"], schemas, "this site")
    if any(message.what == KEYS for message in left):
        yield "Keys and proofs carry no data: they mask and unmask sums, and say what this site did."
    again = sum(message.event == "resend" for message in left)
    if again:
        yield f"Sent {count_of(again, 'message')} again, with the same bytes."
    refused = Counter(message.reason for message in left if message.event == "refusal")
    if refused:
        reasons = [f"{text} ({n})" if len(refused) > 1 else text for text, n in refused.items()]
        yield f"Refused {count_of(refused.total(), 'question')}: {'; '.join(reasons)}."


def _saw(whose: str, clauses: Sequence[str], schemas: Counter[str], holder: str) -> Iterator[str]:
    """What the server saw of rows, and besides: ``schemas`` counts answers that hold no rows by their replies."""
    from coterie.secure.handshake import SiteHello

    yield f"From {whose} rows, the server saw: {'; '.join(clauses)}."
    if schemas:
        begins = "public keys, heads of ledgers, " if schemas[SiteHello.__name__] else ""
        held = f"what {holder}'s policy allows, and which of the requested columns {holder} holds"
        yield f"It also saw {count_of(schemas.total(), 'answer')} (schema): {begins}{held}."


def _masked_clauses(answers: list[_Left]) -> Iterator[str]:
    masked = [answer for answer in answers if answer.seen == "masked" and answer.content in FROM_ROWS]
    rosters = dict.fromkeys(answer.over for answer in masked)
    if len(rosters) > MANY_ROSTERS:
        sizes = sorted(map(len, rosters))
        yield f"{_contents(masked)}, each at most in a sum over {_rounds(sizes)} sites, which varied"
    else:
        for over in rosters:
            same = [answer for answer in masked if answer.over == over]
            each = "each " * (len(same) > 1)
            yield f"{_contents(same)}, {each}only in a sum over {len(over)} sites ({_names(over)})"
    if masked and not any(answer.seen in ("single", "summed") and answer.content in FROM_ROWS for answer in answers):
        yield "no per-site results"


def _contents(answers: list[_Left]) -> str:
    kinds = dict.fromkeys(FROM_ROWS[answer.content] for answer in answers)
    return f"{count_of(len(answers), 'answer')} ({', '.join(kinds)})"


def _single_clauses(seen: Counter[tuple[str, str]]) -> Iterator[str]:
    """Per-site results, from counts by how they were seen and by content."""
    for (how, content), n in seen.items():
        if how in ("single", "summed") and content in FROM_ROWS and n:
            clause = f"{count_of(n, 'per-site result')} ({FROM_ROWS[content]})"
            yield f"{clause}, which it declared it would only sum" if how == "summed" else clause


def _show_server(path: Path, lines: list[Line]) -> None:
    sight = {"single": "each answer", "summed": "each, to sum", "masked": "only the sum"}

    def texts(line: Line) -> tuple[str, ...]:
        if line["phase"] == "masking":
            return KEYS, "no data", "", ""
        asked = "+".join(part.rpartition(".")[2] for part in line["asked"].split("+"))
        return asked, line["answer"], sight[line["seen"]], f"{_good(line)} of {len(line['sites'])}"

    sent = [sum(count[2] for count in line["sites"].values()) for line in lines]
    rows = _table_rows((line["round"], texts(line), (n,)) for line, n in zip(lines, sent, strict=True))
    show_table(str(path), ["rounds", "question", "answer", "the server sees", "sites", "bytes"], rows)
    masking = sum(line["phase"] == "masking" for line in lines)
    besides = f", {masking} of them for {KEYS} (no data)" if masking else ""
    say(f"{count_of(len(lines), 'round')}{besides}; {sum(sent):,} bytes sent in total.")
    for sentence in (*_server_sentences(lines), *_troubles(lines)):
        say(sentence)


def _good(line: Line) -> int:
    return sum(count[0] in GOOD for count in line["sites"].values())


def _server_sentences(lines: list[Line]) -> Iterator[str]:
    sums, single, schemas = Counter[int](), Counter[tuple[str, str]](), Counter[str]()
    for line in lines:
        is_masked = line["seen"] == "masked" and len(line["sites"]) > 1
        sums[_good(line)] += is_masked and _good(line) > 0
        for content in () if is_masked else line["content"].split("+"):
            single["single" if line["seen"] == "masked" else line["seen"], content] += _good(line)
        if line["content"] == "schema":
            schemas[line["answer"]] += _good(line)
    clauses = [f"{count_of(n, 'sum')} over {sites} sites{' each' * (n > 1)}" for sites, n in (+sums).items()]
    clauses += [*_single_clauses(single)] or ["no per-site results"]
    yield from _saw("the sites'", clauses, +schemas, "a site")


def _troubles(lines: list[Line]) -> Iterator[str]:
    """The rounds in which sites did not answer, and why."""
    rounds_by_outcome: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for line in lines:
        outcomes: dict[tuple[str, ...], list[str]] = {}
        for name, (kind, _, _, _, *reason) in line["sites"].items():
            outcomes.setdefault((kind, *reason), []).append(name)
        for outcome, names in outcomes.items():
            rounds_by_outcome.setdefault((outcome, tuple(names)), []).append(line["round"])
    for (outcome, who), rounds in rounds_by_outcome.items():
        if outcome[0] != OutcomeKind.ANSWERED:
            times = f", {len(rounds)} times" if len(rounds) > 1 else ""
            yield f"Round {_rounds(rounds)}{times} ({_names(who)}): {outcome_sentence(*outcome)}."


def _rounds(rounds: Iterable[int]) -> str:
    first, *_, last = [*rounds] * 2
    return str(first) if first == last else f"{first}-{last}"


def _names(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@ledger.command("verify")
def ledger_verify(place: Place, as_json: AsJson = False) -> None:
    """Verify a ledger's hash chain, and its signed head where the site's key is there.

    In a run's folder, also reconcile the sites' ledgers with the server's, and with the run's certificate.
    """
    path = _ledger_file(place)
    lines = read_chain(path)
    with known_lines(path):
        is_run = place.is_dir() and lines and "sites" in lines[0]
        compared = reconcile(place, lines) if is_run else None
        heads = check_heads(place, lines[0]["run"]) if is_run else 0
        is_signed = bool(lines) and "event" in lines[0] and check_signature(path, lines)
    if as_json:
        result = {"file": str(path), "lines": len(lines), "holds": True, "signed": is_signed, "heads": heads}
        print_json(result if compared is None else {**result, "sites": compared.sites, "resent": compared.resent})
        return
    tell(f"{path}: verified all {len(lines)} lines{' and the signed head' * is_signed}.")
    if compared is None or not compared.sites:
        tell("This is not a run's folder with the sites' own ledgers, so nothing was reconciled.")
        return
    tell(f"Reconciled the ledgers of {compared.sites} sites with the server's: every byte agrees.")
    if heads:
        tell(f"The certificate names the heads of {heads} of these ledgers, and they are as signed.")
    if compared.resent:
        tell(f"The run was interrupted: {compared.resent:,} bytes did not arrive and were sent again.")


def _ledger_file(place: Path) -> Path:
    path = place / "ledger.jsonl" if place.is_dir() else place
    if not path.exists():
        raise InputError(f"{path}: there is no such file; give the folder of a run or a ledger.jsonl file.")
    with path.open("rb") as file:
        if file.read(1) not in (b"", b"{"):
            raise InputError(f"{path} is not a ledger; give the folder of a run or a ledger.jsonl file.")
    return path


class Compared(NamedTuple):
    """How many sites' ledgers agree with the server's, and how many bytes were sent but never arrived."""

    sites: int
    resent: int


def reconcile(folder: Path, lines: list[dict[str, Any]]) -> Compared:
    """Compare round by round; :class:`LedgerBroken` if a site's bytes of a round differ from those that arrived.

    If the server was killed before it received an answer, it asks again in the same round, so only the last lines of
    a round arrive. A refusal of an unreadable question names no run: it is matched with the round it arrived in.
    """
    arrived: dict[str, dict[int, int]] = defaultdict(dict)
    for line in lines:
        for name, count in line["sites"].items():
            arrived[name][line["round"]] = count[2]
    ledgers = {name: folder / "journal" / "sites" / f"{quote(name, safe='')}.jsonl" for name in arrived}
    there = [name for name, path in ledgers.items() if path.exists()]
    if not there:
        return Compared(0, 0)
    for name in sorted(ledgers.keys() - set(there)):
        if not any(arrived[name].values()):
            continue  # this site never answered
        raise LedgerBroken(f"the ledger of site {name} is missing ({ledgers[name]}).")
    resent = sum(_resent(name, ledgers[name], arrived[name], lines[0]["run"]) for name in there)
    return Compared(len(there), resent)


def _resent(name: str, path: Path, arrived: dict[int, int], run: str) -> int:
    left: dict[int, list[int]] = defaultdict(list)
    unread: list[int] = []
    lines = read_chain(path)
    check_signature(path, lines)
    for line in lines:
        if line["run"] == run and line["event"] not in INTERNAL:
            left[line["round"]].append(line["bytes"])
        if line["run"] == NO_RUN and line["event"] == "refusal":
            unread.append(line["bytes"])
    total = 0
    for number in sorted(arrived.keys() | left.keys()):
        sent, came = left.get(number, []), arrived.get(number, 0)
        ends = {0, *accumulate(reversed(sent))}
        more = next((n for n in range(len(unread) + 1) if came - sum(unread[:n]) in ends), 0)
        came, unread = came - sum(unread[:more]), unread[more:]
        if came not in ends:
            raise LedgerBroken(f"round {number}: site {name} has {sum(sent)} bytes sent, the server {came} received.")
        total += sum(sent) - came
    return total
