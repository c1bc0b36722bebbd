"""Orders that wait for a data officer: kept in the site's folder, decided there, and noticed by a running site."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec
from filelock import FileLock, Timeout

from coterie.errors import InputError, NotOrdered
from coterie.files import private_folder, write_private
from coterie.methods.order import Order, SignedOrder

MOST_WAITING = 100
"""Orders of one analyst that may wait at once."""
PATIENCE = 10.0
"""Seconds to wait for another process that is about to change the folder."""


class Decision(StrEnum):
    """What a data officer said of an order."""

    WAITING = "waiting"
    APPROVED = "approved"
    DECLINED = "declined"


class Kept(msgspec.Struct, frozen=True):
    """An order as it came, and what became of it."""

    signed: SignedOrder
    came: float
    """Seconds since 1970."""
    decision: Decision = Decision.WAITING
    decided: float | None = None

    @property
    def order(self) -> Order:
        return self.signed.read()


class CannotDecide(InputError):
    """A decision that cannot be taken; ``str(error)`` names no file, and is fit for any page of the data officer."""


class Approvals:
    """A folder with a file for every order that had to be decided about, named after its run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Kept]:
        """Every order, the oldest first."""
        kept = [self._read(path) for path in sorted(self.folder.glob("*.json"))] if self.folder.is_dir() else []
        return sorted(kept, key=lambda one: one.came)

    def find(self, start: str) -> Kept:
        """The order whose run begins with these letters."""
        found = [kept for kept in self.all() if start and kept.order.run.startswith(start.lower())]
        if len(found) != 1:
            raise InputError(
                f"{'no order' if not found else 'more than one order'} begins with {start!r}; "
                "`coterie site pending` lists them."
            )
        return found[0]

    def only_waiting(self) -> Kept:
        """The order that waits, where it is the only one."""
        waiting = [kept for kept in self.all() if kept.decision is Decision.WAITING]
        if len(waiting) != 1:
            raise InputError(
                "no order waits."
                if not waiting
                else f"{len(waiting)} orders wait; give the ID of one: `coterie site pending` lists them."
            )
        return waiting[0]

    def decide(self, start: str, decision: Decision) -> Kept:
        """Write down what a data officer said; a decision cannot be changed, and said again it stays as it is."""
        with self._locked():
            kept = self.find(start)
            if kept.decision is decision:
                return kept
            if kept.decision is not Decision.WAITING:
                raise CannotDecide(
                    f"the order {kept.order.run[:8]} is {kept.decision} already; a decision cannot be changed."
                )
            decided = msgspec.structs.replace(kept, decision=decision, decided=time.time())
            self._write(decided)
        return decided

    def decision(
        self, signed: SignedOrder, order: Order, approval: Literal["automatic", "first", "always"]
    ) -> Decision:
        """What holds for an order now; one that needs a decision is kept until there is one."""
        path = self._path(order.run)
        if approval == "automatic" and not path.exists():
            return Decision.APPROVED
        with self._locked():
            if path.exists():  # also where the rules have changed since
                kept = self._read(path)
                if kept.signed != signed:
                    raise NotOrdered("the run was ordered to do something else before")
                return kept.decision
            if approval == "first" and self._knows(signed.analyst, order.method):
                return Decision.APPROVED
            waiting = [one for one in self.all() if one.decision is Decision.WAITING]
            if sum(one.signed.analyst == signed.analyst for one in waiting) >= MOST_WAITING:
                raise NotOrdered(f"{MOST_WAITING} orders of {signed.analyst} wait already")
            self._write(Kept(signed, time.time()))
        return Decision.WAITING

    def _knows(self, analyst: str, method: str) -> bool:
        """Whether an order of this analyst for this method was approved before."""
        approved: Sequence[Kept] = [kept for kept in self.all() if kept.decision is Decision.APPROVED]
        return any(kept.signed.analyst == analyst and kept.order.method == method for kept in approved)

    def _path(self, run: str) -> Path:
        return self.folder / f"{run}.json"

    def _write(self, kept: Kept) -> None:
        write_private(self._path(kept.order.run), msgspec.json.encode(kept))

    def _read(self, path: Path) -> Kept:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(
                f"{path} cannot be read; the order in it has to be given anew: remove the file."
            ) from None

    def _locked(self) -> AbstractContextManager[object]:
        """The folder, for this process alone."""
        private_folder(self.folder)
        try:
            return FileLock(self.folder / "lock", PATIENCE, mode=0o600, thread_local=False).acquire()
        except Timeout:
            raise InputError(f"another process changes {self.folder}; try again.") from None
