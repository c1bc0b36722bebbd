"""Channels on which something goes wrong from one round on, or in it, and not by a schedule of the engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from coterie.engines.inprocess import InProcess
from coterie.messages.codec import read_envelope
from coterie.messages.site_api import Table
from coterie.runtime.channel import Outcome
from coterie.sites.ledger import SiteLedger
from coterie.sites.site import Site


class Killed(BaseException):
    """Stands for a kill: nothing of ours may catch it."""


ANY = -1
"""Whatever round it is."""

TABLES: WeakKeyDictionary[Site, Table] = WeakKeyDictionary()
"""What sites were started with: they keep only what their policy lets methods see."""


class Wire:
    """A channel that knows which round it carries; nothing goes wrong on this one."""

    def __init__(self, inner: InProcess, at: int, sites: Collection[str] = ()) -> None:
        self.inner, self.at, self.names = inner, at, frozenset(sites)
        self.times = 0
        """How often the round was carried."""

    def sites(self) -> Sequence[str]:
        return self.inner.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        if not payloads:
            return self.inner.exchange(payloads, timeout)
        number = read_envelope(next(iter(payloads.values())))[1].round
        self.times += number == self.at
        return self.carry(number, payloads, timeout)

    def carry(self, number: int, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        return self.inner.exchange(payloads, timeout)


class Gone(Wire):
    """Sites that are not there any more: the engine has nothing to say of them at all."""

    def carry(self, number, payloads, timeout):
        left = {name: data for name, data in payloads.items() if number < self.at or name not in self.names}
        return self.inner.exchange(left, timeout) if left else {}


class Unreachable(Wire):
    """Sites behind a wall: the engine says that they are lost."""

    def carry(self, number, payloads, timeout):
        lost = self.names & payloads.keys() if number >= self.at else frozenset()
        found = self.inner.exchange({n: data for n, data in payloads.items() if n not in lost}, timeout)
        return {name: Outcome("lost") if name in lost else found[name] for name in payloads}


def reborn(channel: InProcess, name: str) -> None:
    """Throw a site away and start it again over its own ledger file."""
    old = channel.members[name]
    old.ledger.close()
    table = TABLES[old]
    ledger = SiteLedger(old.ledger.path)
    channel.members[name] = Site(
        name, table, policy=old.policy, ledger=ledger, identity=old.peers.identity, seed=old._seed
    )
    TABLES[channel.members[name]] = table


class Restarted(Wire):
    """Sites that lose their memory before the round's question arrives."""

    def carry(self, number, payloads, timeout):
        if number == self.at and self.times == 1:
            for name in self.names:
                reborn(self.inner, name)
        return self.inner.exchange(payloads, timeout)


class DiedSending(Wire):
    """Sites that are killed between writing an answer down and sending it, and start again."""

    def carry(self, number, payloads, timeout):
        found = dict(self.inner.exchange(payloads, timeout))
        if number == self.at and self.times == 1:
            for name in self.names & found.keys():
                reborn(self.inner, name)
                found[name] = Outcome("lost")
        return found


def noise(number: int, size: int) -> bytes:
    return np.random.default_rng([number, size]).bytes(size)


class NoiseBack(Wire):
    """Random bytes in the answer's place, twice."""

    def carry(self, number, payloads, timeout):
        found = dict(self.inner.exchange(payloads, timeout))
        if number == self.at and self.times <= 2:
            for name in self.names & found.keys():
                found[name] = Outcome("answered", noise(number, len(found[name].payload)))
        return found


class NoiseThere(Wire):
    """Random bytes in the question's place, twice."""

    def carry(self, number, payloads, timeout):
        spoiled = self.names if number == self.at and self.times <= 2 else frozenset()
        sent = {n: noise(number, len(data)) if n in spoiled else data for n, data in payloads.items()}
        return self.inner.exchange(sent, timeout)


def damaged(number: int, frame: bytes) -> bytes:
    """A few bytes of a question changed, behind its header."""
    start = read_envelope(frame)[2] + 9
    spoiled = np.frombuffer(frame, np.uint8).copy()
    rng = np.random.default_rng([number, len(frame)])
    spoiled[rng.integers(start, len(spoiled), size=3)] ^= rng.integers(1, 256, size=3, dtype=np.uint8)
    return spoiled.tobytes()


class DamagedThere(Wire):
    """Questions that arrive damaged, twice."""

    def carry(self, number, payloads, timeout):
        spoiled = self.names if number == self.at and self.times <= 2 else frozenset()
        sent = {n: damaged(number, data) if n in spoiled else data for n, data in payloads.items()}
        return self.inner.exchange(sent, timeout)


class Unreadable(Wire):
    """Questions that arrive damaged from a round on, however often they are sent."""

    def carry(self, number, payloads, timeout):
        spoiled = self.names if number >= self.at else frozenset()
        sent = {n: damaged(number, data) if n in spoiled else data for n, data in payloads.items()}
        return self.inner.exchange(sent, timeout)


class NothingBack(Wire):
    """An answer of no bytes, twice."""

    def carry(self, number, payloads, timeout):
        found = dict(self.inner.exchange(payloads, timeout))
        if number == self.at and self.times <= 2:
            found |= dict.fromkeys(self.names & found.keys(), Outcome("answered", b""))
        return found


class Joining(Wire):
    """Sites that are there from a round on."""

    def __init__(self, inner: InProcess, at: int, sites: Collection[str] = ()) -> None:
        super().__init__(inner, at, sites)
        self._reached = False

    def sites(self):
        return [name for name in self.inner.sites() if self._reached or name not in self.names]

    def carry(self, number, payloads, timeout):
        self._reached |= number >= self.at - 1  # the next question is the first of which they hear
        return self.inner.exchange(payloads, timeout)


class CrashBefore(Wire):
    """The server is killed before its question leaves."""

    def carry(self, number, payloads, timeout):
        if self.at in (number, ANY):
            raise Killed
        return self.inner.exchange(payloads, timeout)


class CrashAfter(Wire):
    """The server is killed once the sites answered, before it has looked at what they said."""

    def carry(self, number, payloads, timeout):
        found = self.inner.exchange(payloads, timeout)
        if number == self.at:
            raise Killed
        return found
