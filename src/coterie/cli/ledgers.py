"""What left each site, and what the server saw of it: ``ledger show``, and ``ledger verify``, which compares them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from coterie.cli.certificates import check_heads, check_signature
from coterie.cli.options import AsJson, ledger
from coterie.cli.site_ledgers import (
    INTERNAL,
    KEYS,
    LEFT_HEADS,
    NO_RUN,
    Left,
    Line,
    groups_sentences,
    is_of_run,
    left_by_run,
    left_rows,
    names_text,
    rounds_text,
    saw,
    single_clauses,
    site_sentences,
    table_rows,
)
from coterie.cli.terminal import print_json, say, show_table, tell
from coterie.errors import InputError, LedgerBroken
from coterie.messages.chain import known_lines, read_chain
from coterie.runtime.outcomes import GOOD, OutcomeKind, outcome_sentence
from coterie.text import count_of

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


def _show_site(path: Path, lines: list[Line]) -> None:
    by_run = left_by_run(lines)
    for run, left in by_run.items():
        which = f" in run {run[:8]}" if is_of_run(run) else " outside any run"
        _show_site_run(f"What left this site ({path.stem}){which if len(by_run) > 1 else ''}", left)
    for sentence in groups_sentences(lines):
        say(sentence)


def _show_site_run(title: str, left: list[Left]) -> None:
    show_table(title, LEFT_HEADS, left_rows(left))
    for sentence in site_sentences(left):
        say(sentence)


def _show_server(path: Path, lines: list[Line]) -> None:
    sight = {"single": "each answer", "summed": "each, to sum", "masked": "only the sum"}

    def texts(line: Line) -> tuple[str, ...]:
        if line["phase"] == "masking":
            return KEYS, "no data", "", ""
        asked = "+".join(part.rpartition(".")[2] for part in line["asked"].split("+"))
        return asked, line["answer"], sight[line["seen"]], f"{_good(line)} of {len(line['sites'])}"

    sent = [sum(count[2] for count in line["sites"].values()) for line in lines]
    rows = table_rows((line["round"], texts(line), (n,)) for line, n in zip(lines, sent, strict=True))
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
    clauses += [*single_clauses(single)] or ["no per-site results"]
    yield from saw("the sites'", clauses, +schemas, "a site")


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
            yield f"Round {rounds_text(rounds)}{times} ({names_text(who)}): {outcome_sentence(*outcome)}."


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
