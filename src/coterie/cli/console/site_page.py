"""A site for its data officer: orders that wait, the privacy budget, runs with what left and what was signed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any

from coterie.cli.approvals import asked_rows, order_budget, order_facts, previewed, refusal_sentence, runs_sentence
from coterie.cli.budgets import budget_facts, budget_sentences, date_text, taken_sentence
from coterie.cli.certificates import STATEMENT_HEADS, statement_cells
from coterie.cli.console.blocks import Block, Button, Buttons, Facts, Fold, Page, Part, Section, Text, Tiles, table
from coterie.cli.console.server import CannotDo, nothing_there
from coterie.cli.deployment import CONTRADICTED, status_facts, status_rows
from coterie.cli.previews import HEADS, TOTALS, answer_rows, refused_sentences
from coterie.cli.site_ledgers import LEFT_HEADS, is_of_run, left_by_run, left_rows, site_sentences
from coterie.engines.nvflare.kits import Kit
from coterie.errors import CoterieError
from coterie.messages import codec
from coterie.messages.chain import known_lines
from coterie.messages.refusals import Refusal
from coterie.secure.certificates import Conclude, Signed, Statement
from coterie.sites.approvals import CannotDecide, Decision, Kept
from coterie.sites.budget import Account
from coterie.sites.installed import Holdings, InstalledSite
from coterie.sites.policy import Policy
from coterie.text import count_of

Line = dict[str, Any]
SHOWN_RUNS = 50
"""The newest; of others the terminal knows."""
_UNREADABLE = "The site's files cannot be read as they are; `coterie site status` in a terminal says why."
_IN_TITLE = ("id", "analyst", "method", "came", "decision")
_PLAYING = "Running the method on this site's table alone, to see what would leave."
_APPROVED_LATER = "Its policy says approval = first: later orders of this analyst for this method do not wait."


class SitePage:
    """An installed site as its data officer sees it.

    Nothing here holds a row, or where the table is: of a preview, which the terminal shows with its first values, the
    page has sizes and kinds only.
    """

    def __init__(self, kit: Kit, report: Callable[[str], None] = print) -> None:
        """``report`` is told of every decision, and of errors: what it says stays on this machine's terminal."""
        self._kit, self._installed, self._report = kit, InstalledSite(kit.folder), report
        self._at_work, self._playing = Lock(), Lock()
        self._read: tuple[object, list[Line]] = (None, [])

    def page(self) -> Page:
        """The site as it is now."""
        with self._at_work:
            try:
                lines = self._lines()
                with known_lines(self._installed.ledger_path):
                    return self._page(lines)
            except (CoterieError, OSError) as problem:
                self._report(str(problem))
                section = Section("site", "The site", [Text([_UNREADABLE], "bad")])
                return Page(f"Site {self._kit.name}", "", [section], "unreadable", "bad")

    def part(self, name: str) -> list[Block]:
        """What would leave for an order, ``preview/RUN/STAMP``: the method is run, here and alone."""
        kind, run, *_ = [*name.split("/"), ""]
        kept = self._order(run) if kind == "preview" else None
        if kept is None:
            raise nothing_there()
        held = self._installed.holdings()
        with self._playing:
            shown = previewed(held, kept.order, held.rules())
        if shown.mismatch:
            return [Text([f"What would leave cannot be shown: {shown.mismatch}"], "bad")]
        if shown.problem:
            self._report(shown.problem)
            sentence = f"What would leave cannot be shown; `coterie site show {run[:8]}` in a terminal says why."
            return [Text([sentence], "bad")]
        names = ["asked", "seen", "answer", "content", "times", "numbers", "bytes"]  # and no example
        rows = answer_rows(shown.answers, names)
        said = [TOTALS, *refused_sentences(shown.answers)]
        return [table("What this site would send", [HEADS[name] for name in names], rows), Text(said)]

    def act(self, action: str, value: str) -> str:
        """Approve or refuse an order."""
        decision = {"approve": Decision.APPROVED, "refuse": Decision.DECLINED}.get(action)
        before = self._order(value)
        if decision is None or before is None:
            raise nothing_there()
        try:
            decided = self._installed.decide(value, decision)
        except CannotDecide as problem:
            raise CannotDo(HTTPStatus.CONFLICT, _sentence(problem)) from None
        about = f"order {value[:8]} of {decided.signed.analyst}, {decided.order.method}"
        if before.decision is decision:
            at = date_text(decided.decided or decided.came)
            return f"The {about}, is {decision} already, since {at}. Nothing was changed."
        self._report(f"{decision.capitalize()}: {about}.")
        return f"{decision.capitalize()}: {about}."

    def _order(self, run: str) -> Kept | None:
        """The order of a run."""
        return next((kept for kept in self._installed.approvals.all() if kept.order.run == run), None)

    def _lines(self) -> list[Line]:
        """The site's ledger, read again where it has changed."""
        path = self._installed.ledger_path
        stamp = (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None
        if stamp is None or stamp != self._read[0]:
            self._read = stamp, self._installed.lines()
        return self._read[1]

    def _page(self, lines: list[Line]) -> Page:
        installed, facts = self._installed, status_facts(self._kit, self._installed, lines)
        held, orders = installed.holdings(), installed.approvals.all()
        rules, waiting = held.rules(), [kept for kept in orders if kept.decision is Decision.WAITING]
        account = Account.of(lines, held.table_name)
        cards: list[Block] = [self._card(kept, held, rules, lines, is_open=kept is waiting[0]) for kept in waiting]
        sections = [
            Section("waiting", "Orders that wait", cards or [Text(["No order waits."])], str(len(waiting))),
            *_budget(rules, account),
            Section("runs", "Runs", _runs(lines)),
            *_decided([kept for kept in orders if kept.decision is not Decision.WAITING]),
            Section("site", "The site", [Facts(_status(facts, held)), Text(facts["groups"])]),
        ]
        if facts["is_contradicted"]:
            problem = f"{CONTRADICTED} No run is answered until `coterie site acknowledge`."
            sections.insert(0, Section("broken", "The ledger", [Text([problem], "bad")]))
        state = "running" if facts["process"] else "not running"
        lead = f"For the data officer of {self._kit.name}. Nothing on this page leaves this machine."
        return Page(f"Site {self._kit.name}", lead, sections, state, "good" if facts["process"] else "")

    def _card(self, kept: Kept, held: Holdings, rules: Policy, lines: Sequence[Line], *, is_open: bool) -> Fold:
        """An order that waits, what would leave, and what to decide."""
        account = Account.of(lines, held.table_name)
        budget, refusal = order_budget(kept, rules, account), self._installed.refusal_of(kept, rules, lines)
        taken = [runs_sentence(kept, held, lines), *([taken_sentence(budget)] if budget else [])]
        warned = refusal_sentence(refusal, kept)
        blocks: list[Block] = [
            Facts([row for row in asked_rows(kept) if row[0] not in _IN_TITLE]),
            Text(taken),
            *([Text([warned], "bad")] if warned else []),
            Part(f"preview/{kept.order.run}/{_stamp(held, rules)}", _PLAYING),
            Buttons(_buttons(kept, rules, refusal, taken[1:])),
        ]
        about = order_facts(kept)
        title = f"Order {about['id']}: {about['method']}, by {about['analyst']}, came {about['came']}"
        return Fold(f"order-{kept.order.run}", title, blocks, is_open)


def _stamp(held: Holdings, rules: Policy) -> str:
    """Another one whenever a preview would be: where the policy, the table or how it is read has changed."""
    about = Path(held.data).stat()
    return hashlib.sha256(repr((held, rules, about.st_size, about.st_mtime_ns)).encode()).hexdigest()[:16]


def _sentence(problem: CannotDecide) -> str:
    """Such an error is made for pages, too; it names no file."""
    text = str(problem)
    return text[:1].upper() + text[1:]


def _buttons(kept: Kept, rules: Policy, refusal: Refusal | None, taken: Sequence[str]) -> list[Button]:
    """What can be decided about an order: one that has expired can be refused only."""
    run, named = kept.order.run, "that it was this site" if rules.name_decisions else "not which one"
    about = f"order {run[:8]} of {kept.signed.analyst} ({kept.order.method})?"
    approve = [
        "From now on the site answers the questions of this order, with answers of the kinds that are listed.",
        *taken,
        *([_APPROVED_LATER] if rules.approval == "first" else []),
        "The decision cannot be changed.",
    ]
    refuse = [
        "The site answers no question of this order, now or later.",
        f"The analyst is told that a site declined it, and {named}. The decision cannot be changed; the analyst can "
        "give another order.",
    ]
    buttons = [Button("Refuse", f"Refuse {about}", refuse, "refuse", run, "bad")]
    if refusal is not Refusal.UNTRUSTED:
        buttons.insert(0, Button("Approve", f"Approve {about}", approve, "approve", run, "good"))
    return buttons


def _budget(rules: Policy, account: Account) -> list[Section]:
    """The privacy budget, where the policy has one."""
    if rules.privacy is None:
        return []
    facts = budget_facts(rules.privacy, account)
    rows = [[run["analyst"], run["run"], date_text(run["at"]), f"{run['epsilon']:.3g}"] for run in facts["runs"]]
    numbers = [["budget, epsilon", "epsilon"], ["spent", "spent"], ["left for one run", "left"]]
    blocks: list[Block] = [Tiles([[name, f"{facts[key]:.3g}"] for name, key in numbers])]
    if rows:
        blocks.append(table("Spent", ["analyst", "run", "date", "epsilon"], rows))
    return [Section("budget", "Privacy budget", [*blocks, Text(budget_sentences(facts))])]


def _runs(lines: Sequence[Line]) -> list[Block]:
    """Every run that the site answered, the newest first: what left, in sentences, and what the site signed."""
    by_run, signed = left_by_run(lines), statements_in(lines)
    analysts = {line["run"]: line["analyst"] for line in lines if _is_order(line)}
    firsts = {line["run"]: line for line in reversed(lines) if line["event"] == "answer"}
    newest = [run for run in reversed(by_run) if is_of_run(run)]
    folds: list[Block] = []
    for run in newest[:SHOWN_RUNS]:
        left, first = by_run[run], firsts.get(run)
        what = f"{first['method']}, {date_text(first['time'])}" if first else "nothing was answered"
        who = f"for {analysts[run]}" if run in analysts else "no order was accepted"
        n_bytes = f"{sum(message.bytes for message in left):,} bytes sent"
        blocks: list[Block] = [
            Facts([["run", run]]),
            Text(list(site_sentences(left))),
            table("What left this site", LEFT_HEADS, left_rows(left)),
            *_certificate(signed.get(run)),
        ]
        folds.append(Fold(f"run-{run}", f"{what}, {who}: {n_bytes}", blocks))
    if len(newest) > SHOWN_RUNS:
        more = count_of(len(newest) - SHOWN_RUNS, "earlier run")
        folds.append(Text([f"And {more}, which `coterie ledger show` lists."]))
    return folds or [Text(["No run was answered yet."])]


def _is_order(line: Mapping[str, Any]) -> bool:
    return bool(line["event"] == "note" and line["what"] == "order" and "analyst" in line)


def statements_in(lines: Sequence[Line]) -> dict[str, Statement]:
    """By run what the site signed at its end, from the answers in its ledger."""
    answers = (line for line in lines if line["event"] == "answer" and line["asked"] == Conclude.kind)
    return {
        line["run"]: Signed.from_bytes(codec.payload_of(base64.b64decode(line["frame"]))).statement
        for line in answers
    }


def _certificate(said: Statement | None) -> list[Block]:
    """The site's part in the certificate of a run."""
    if said is None:
        return [Text(["This site signed no certificate of this run: it did not end, or ended without this site."])]
    rows = [[name, value] for name, value in zip(STATEMENT_HEADS, statement_cells(said), strict=True)]
    title = "What this site signed for the certificate of the run, of all before it"
    return [Facts([["signed", date_text(said.at)], *rows], title)]


def _decided(orders: Sequence[Kept]) -> list[Section]:
    """Orders that were approved or declined, the newest first."""
    if not orders:
        return []
    names = ("id", "analyst", "method", "came", "decision")
    rows = []
    for kept in reversed(orders):
        facts = order_facts(kept)
        rows.append([*(facts[name] for name in names), "" if kept.decided is None else date_text(kept.decided)])
    return [Section("decided", "Decided orders", [table("", ["ID", *names[1:], "decided"], rows)])]


def _status(facts: dict[str, Any], held: Holdings) -> list[list[str]]:
    """The site's state, without where its table is; of a policy file the name only."""
    return [
        [name, Path(held.policy).name if name == "policy" else value]
        for name, value in status_rows(facts)
        if name != "data"
    ]
