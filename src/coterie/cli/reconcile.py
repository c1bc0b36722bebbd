"""Comparing the sites' ledgers with the server's."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from coterie.errors import LedgerBroken
from coterie.messages.chain import read_chain

NO_RUN = bytes(16).hex()
"""The run that a site records for a question it could not read."""


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
    for line in read_chain(path):
        if line["run"] == run and line["event"] not in ("once", "note"):
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
