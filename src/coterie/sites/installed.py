"""A site as it is installed: a folder that says what it holds, what it may say, and keeps what it said."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from coterie.errors import InputError, LedgerBroken, Untrusted
from coterie.files import MEGABYTE, private_folder, read_bounded, write_private
from coterie.messages.chain import head_path, known_lines, read_open_chain
from coterie.messages.identity import Identity
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Table
from coterie.sites.approvals import Approvals, CannotDecide, Decision, Kept
from coterie.sites.budget import Account, charges_in
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.ledger import NO_RUN, SiteLedger, noise_folder, signed_head_of
from coterie.sites.logs import log_to
from coterie.sites.orders import check_rules, runs_by_analyst
from coterie.sites.peers import acknowledge, breaks_in
from coterie.sites.policy import Policy
from coterie.sites.policy_files import find_policy
from coterie.sites.refused import Refused
from coterie.sites.site import Site
from coterie.sites.tables import Reading, TableProblems, examined, fingerprint, named_levels, reading_of
from coterie.sites.tables.levels import unlike
from coterie.sites.views import GroupedTable, grouped_view
from coterie.sites.views.forming import Progress

PATIENCE = 15.0
"""Seconds to wait for another process of this site that is about to end."""


@dataclass(frozen=True)
class Holdings(Reading):
    """What a site holds, how it is read and by which rules: said by its owner, and by nobody else."""

    data: str
    policy: str = "standard"
    key: str | None = None
    table_name: str = "table"
    """Groups are kept under it: one name for one table, whatever file it comes in."""
    levels: dict[str, list[str]] = field(default_factory=dict)
    """By text column without declared categories the levels that the site named when it was first opened."""

    def naming_levels(self, before: Holdings | None) -> Holdings:
        """With levels for every text column, where the policy lets the site name them. Those named before stay: a
        level that came later would tell that rows were added."""
        rules, how = self.rules(), reading_of(self)
        unit = None if rules.privacy is None else rules.privacy.unit_column
        for column in filter(None, (self.key, unit)):
            how = how.without(column)
        named, problems = named_levels({"": self.data}, {"": how}, {"": rules.level_rows}, {"": None})
        problems += unlike(named)
        if problems:
            raise TableProblems(problems)
        kept = before.levels if before is not None and before.table_name == self.table_name else {}
        return replace(self, levels={column: kept.get(column, list(own)) for column, own in named.items()})

    def table(self) -> Table:
        """The table, opened as said. Under noise no value in it is refused, since a refusal would tell of a row."""
        return self._opened(forgives=self.rules().protection == "noise")

    def unreadable(self) -> str:
        """What counts as missing under noise because it cannot be read, for the site's owner; empty if nothing."""
        try:
            self._opened(forgives=False)
        except InputError as problem:
            return str(problem)
        return ""

    def _opened(self, *, forgives: bool) -> Table:
        privacy = self.rules().privacy
        unit = None if privacy is None else privacy.unit_column
        table, problems = examined(
            self.data, reading_of(self), self.levels, key=self.key, unit=unit, forgives=forgives
        )
        if problems:
            raise TableProblems(problems)
        return table

    def rules(self) -> Policy:
        """The policy, read anew."""
        return find_policy(self.policy)


class InstalledSite:
    """The folder of a site: its holdings in ``local/coterie.json``, its ledger in ``coterie/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger_folder = folder / "coterie"
        self.ledger_path = self.ledger_folder / "ledger.jsonl"
        """What left this site, in all runs."""
        self.log_path = self.ledger_folder / "site.log"
        """What happened here, a JSON line each."""
        self._settings_path = folder / "local" / "coterie.json"
        self._held = ExitStack()
        self.approvals = Approvals(self.ledger_folder / "orders")
        """The orders that a data officer decides about."""

    def tell(self, holdings: Holdings) -> Table:
        """Write down what the site holds, once it has been seen that it can be opened; relative paths are made
        absolute, since whoever opens them works elsewhere."""
        placed = replace(holdings, data=str(Path(holdings.data).absolute()))
        if Path(holdings.policy).is_file():
            placed = replace(placed, policy=str(Path(holdings.policy).absolute()))
        before = self.holdings() if self._settings_path.exists() else None
        placed = placed.naming_levels(before)
        table = placed.table()
        private_folder(self._settings_path.parent)
        write_private(self._settings_path, json.dumps(asdict(placed), indent=2).encode() + b"\n")
        return table

    def holdings(self) -> Holdings:
        """What the site's owner said it holds."""
        try:
            return msgspec.json.decode(read_bounded(self._settings_path, 16 * MEGABYTE), type=Holdings)
        except FileNotFoundError:
            raise InputError(
                f"{self.folder}: nobody has said yet what this site holds; `coterie site start --data FILE` does."
            ) from None
        except (OSError, ValueError, RecursionError):
            raise InputError(
                f"{self._settings_path} cannot be read; `coterie site start --data FILE` writes it anew."
            ) from None

    def grouped(self, progress: Progress | None = None, *, anew: bool = False) -> GroupedTable:
        """The site's table as groups: brought up to date where that is due, or all formed anew."""
        with self._locked(), closing(SiteLedger(self.ledger_path, durable=True)) as ledger:
            holdings = self.holdings()
            table, min_group, name = holdings.table(), holdings.rules().min_group, holdings.table_name
            return grouped_view(table, min_group, ledger, name=name, anew=anew, progress=progress)

    def _locked(self) -> AbstractContextManager[object]:
        """The site's files, for this process alone from now on."""
        private_folder(self.ledger_folder)
        try:
            return FileLock(self.ledger_folder / "lock", PATIENCE, mode=0o600, thread_local=False).acquire()
        except Timeout:
            raise InputError(f"another process answers for {self.folder}; a site answers once.") from None

    def identity(self, name: str) -> Identity:
        """Who this site is, and whom it trusts; raises what is wrong with its certificate."""
        return IdentityFiles(self.folder).read("site", name)

    def breaks(self) -> tuple[int, bool]:
        """How many breaks of the ledger were acknowledged, and whether others contradict it and nobody has.

        ``LedgerBroken`` if it is not as this site signed it.
        """
        path, key = self.ledger_path, IdentityFiles(self.folder).own_public_key()
        if not path.exists() or key is None:
            return 0, False
        lines = read_open_chain(path)
        with known_lines(path):
            signed_head_of(path, lines, key)
            return breaks_in(lines)

    def acknowledge(self, name: str) -> int:
        """Go on after a break of the ledger, which every later head names; how many breaks there were.

        A ledger whose lines do not hold is kept under another name, and a new one begins, with what was charged. The
        secrets of noise go: it is not known any more which sums with it were unmasked.
        """
        identity, charged = self.identity(name), dict[str, float]()
        with self._locked():
            try:
                ledger = SiteLedger(self.ledger_path, durable=True)
            except LedgerBroken:
                charged = charges_in(self.ledger_path)
                for path in (self.ledger_path, head_path(self.ledger_path)):
                    if path.exists():
                        path.rename(path.with_name(f"{path.name}.broken-{time.time_ns()}"))
                ledger = SiteLedger(self.ledger_path, durable=True)
            shutil.rmtree(noise_folder(self.ledger_path), ignore_errors=True)
            with closing(ledger):
                for table, mu_squared in charged.items():
                    ledger.charge(NO_RUN, b"before the break", table, mu_squared, 0)
                ledger.signed_with(identity.certificate.signing_key, identity.sign, is_checked=False)
                return acknowledge(ledger)

    def check_protection(self, name: str, *, is_meant: bool = False) -> str:
        """Write down how the policy protects the table; raise where that was otherwise, unless a change is meant.

        How it is protected from now on.
        """
        with self._locked(), self._signed_ledger(name) as ledger:
            return self._keep_protection(ledger, is_meant=is_meant)

    def _keep_protection(self, ledger: SiteLedger, *, is_meant: bool = False) -> str:
        holdings = self.holdings()
        now, before = holdings.rules().protections, ledger.protection_of(holdings.table_name)
        if before not in (None, now) and ledger.total("answers") and not is_meant:
            raise InputError(
                f"the policy now protects the table by {now}, and earlier answers were computed under {before}: who "
                f"has both may learn more than either tells. Restore the policy, or accept the change with `coterie "
                f"site acknowledge --protection --kit {self.folder}`; the ledger will say so."
            )
        ledger.keep_protection(holdings.table_name, now)
        return now

    def reset_budget(self, name: str, why: str) -> None:
        """Begin the budget of the table anew: the data officer's word."""
        with self._locked(), self._signed_ledger(name) as ledger:
            ledger.reset_budget(self.holdings().table_name, why)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the ledger so far."""
        return read_open_chain(self.ledger_path) if self.ledger_path.exists() else []

    def account(self) -> Account:
        """What the ledger says of the table's budget."""
        return Account.of(self.lines(), self.holdings().table_name)

    def decide(self, start: str, decision: Decision) -> Kept:
        """Write down the data officer's word about the order whose run begins with these letters.

        ``CannotDecide`` where an order would be approved of which nobody may be the analyst any more.
        """
        kept = self.approvals.find(start)
        if decision is Decision.APPROVED and kept.decision is Decision.WAITING and not self.is_vouched_for(kept):
            raise CannotDecide(
                f"the order {kept.order.run[:8]} cannot be approved any more: the certificate of "
                f"{kept.signed.analyst} has ended or was revoked; the analyst renews it and orders again."
            )
        return self.approvals.decide(start, decision)

    def is_vouched_for(self, kept: Kept) -> bool:
        """Whether the authority still vouches for the analyst of an order."""
        try:
            kept.signed.check_signed(IdentityFiles(self.folder).trust())
        except Untrusted:
            return False
        return True

    def refusal_of(self, kept: Kept, rules: Policy, lines: Sequence[Mapping[str, Any]]) -> Refusal | None:
        """Why the site would refuse an order today whatever its data officer decides; ``lines`` are its ledger's."""
        if not self.is_vouched_for(kept):
            return Refusal.UNTRUSTED
        table = self.holdings().table_name
        unit = None if rules.privacy is None else rules.privacy.unit_column
        begun, charged = runs_by_analyst(lines)[kept.signed.analyst, table], Account.of(lines, table).mu_squared
        try:
            check_rules(kept.order, rules, begun=begun, charged=charged, unit_column=unit)
        except Refused as refused:
            return refused.code
        return None

    @contextmanager
    def _signed_ledger(self, name: str) -> Iterator[SiteLedger]:
        """The ledger, with a head that is as this site signed it."""
        identity = self.identity(name)
        with closing(SiteLedger(self.ledger_path, durable=True)) as ledger:
            ledger.signed_with(identity.certificate.signing_key, identity.sign)
            yield ledger

    def open(self, name: str) -> Site:
        """The site, ready to answer; only one process at a time has it."""
        self._held.enter_context(self._locked())
        log_to(self.log_path, name)
        holdings = self.holdings()
        table, policy = holdings.table(), holdings.rules()
        ledger = self._held.enter_context(closing(SiteLedger(self.ledger_path, durable=True)))
        self._keep_protection(ledger)
        return Site(
            name,
            table,
            policy=policy,
            ledger=ledger,
            rows=fingerprint(table, refuses=policy.protection != "noise"),  # under noise no value closes the site
            table_name=holdings.table_name,
            identity=self.identity(name),
            approvals=self.approvals,
        )

    def close(self) -> None:
        """Release the ledger."""
        self._held.close()
