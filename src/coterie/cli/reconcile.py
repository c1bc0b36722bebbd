"""The sites' ledgers against the server's."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from coterie.errors import LedgerBroken
from coterie.messages.chain import read_chain

NO_RUN = bytes(16).hex()
"""What a site writes down where it could not read which run a question belongs to."""


class Compared(NamedTuple):
    """How many sites' ledgers agree with the server's, and how many bytes left them in vain."""

    sites: int
    resent: int


def reconcile(folder: Path, lines: list[dict[str, Any]]) -> Compared:
    """Compare round by round; :class:`LedgerBroken` where a site wrote down less, or something else, than arrived.

    What a site sent and the server never received (it was killed, say) is asked for again in the same round, so only
    the last lines of a round arrive. A question that came damaged names no run; what it was answered with is counted
    where the server says it arrived.
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
            continue  # a site that never said anything
        raise LedgerBroken(f"the ledger of {name} is missing ({ledgers[name]}).")
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
            raise LedgerBroken(
                f"round {number}: {name} wrote down {sum(sent)} bytes that left, the server {came} that arrived."
            )
        total += sum(sent) - came
    return total
