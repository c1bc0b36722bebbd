"""All sites in this process, through the same bytes as anywhere else, with faults on schedule."""

from __future__ import annotations

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Literal, Self
from urllib.parse import quote

import numpy as np

from coterie.messages.codec import read_envelope
from coterie.messages.identity import Authority, Identity, public_signing_key
from coterie.messages.site_api import Table
from coterie.runtime.channel import Outcome
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.ledger import SIGNING_KEY, SiteLedger, kept_secret
from coterie.sites.policy import Policy
from coterie.sites.site import Site

ANALYST = "owner"
"""Whoever plays all sites, and orders what they do."""
PAYS = 0.003
"""Seconds an answer must take for threads to pay."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with one site, in the named rounds (None: in all).

    - ``drop``: the question never arrives; ``vanish``: the site answers, the answer never arrives;
    - ``delay``: the answer takes ``seconds`` longer (on a simulated clock, nobody waits);
    - ``duplicate``: the question arrives twice; ``replay``: the question of the round before arrives as well;
    - ``corrupt``: some bytes of the answer are changed; ``garble``: some bytes of the question are.

    ``times`` is how often it happens in a round; a question sent again after that gets through.
    """

    site: str
    kind: Literal["drop", "vanish", "delay", "duplicate", "replay", "corrupt", "garble"]
    rounds: frozenset[int] | None = None
    seconds: float = 0.0
    times: int = 1_000_000


class Schedule:
    """Faults by site and round, the same in every run with the same seed."""

    def __init__(self, faults: Iterable[Fault] = (), *, seed: int = 0) -> None:
        self._faults = tuple(faults)
        self._seed = seed
        self._happened: dict[tuple[Fault, int], int] = {}

    def now(self, site: str, round: int) -> tuple[Fault, ...]:
        """What goes wrong with this delivery."""
        due = []
        for fault in self._faults:
            if fault.site != site or not (fault.rounds is None or round in fault.rounds):
                continue
            count = self._happened.get((fault, round), 0)
            if count < fault.times:
                self._happened[fault, round] = count + 1
                due.append(fault)
        return tuple(due)

    def spoil(self, data: bytes, round: int) -> bytes:
        """``data`` with a few bytes changed."""
        rng = np.random.default_rng([self._seed, round, len(data)])
        spoiled = np.frombuffer(data, np.uint8).copy()
        places = rng.integers(0, len(spoiled), size=3)
        spoiled[places] ^= rng.integers(1, 256, size=3, dtype=np.uint8)
        return spoiled.tobytes()


class InProcess:
    """A channel to :class:`~coterie.sites.site.Site` objects in this process.

    Sites work in parallel threads where answers take long enough for that to pay; where there is a deadline each has
    a thread of its own. A site's answer does not depend on it.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        *,
        schedule: Schedule | None = None,
        threads: int | None = None,
        authority: bytes = b"",
        analyst: Identity | None = None,
    ) -> None:
        self.authority = authority
        """The public key of who certified the sites."""
        self.members = {site.name: site for site in sites}
        self.analyst = analyst or Identity.certified_by(Authority(), ANALYST, secrets.token_bytes(32), "analyst")
        """Who signs orders over these sites."""
        self.threads = threads or min(len(os.sched_getaffinity(0)), max(1, len(self.members)))
        self._schedule = schedule
        self._seconds_an_answer: float | None = None
        self._last: dict[str, bytes] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._at_work: dict[str, Lock] = defaultdict(Lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        for name, site in self.members.items():
            if self._at_work[name].locked():  # stuck: whoever takes its place finds its ledger undisturbed
                site.ledger.abandon()
            site.ledger.close()

    def sites(self) -> Sequence[str]:
        """The names of the sites."""
        return tuple(self.members)

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """Let every site answer; in threads where that pays."""
        began = time.perf_counter()
        names = list(payloads)
        parallel = self.threads > 1 and len(names) > 1 and (self._seconds_an_answer or 0.0) > PAYS
        if timeout is not None:
            outcomes = self._before(payloads, timeout)
        elif parallel:
            outcomes = self._in_threads(payloads)
        else:
            outcomes = {name: self._deliver(name, payloads[name], None) for name in names}
        busy = min(self.threads, len(names)) if parallel else 1
        self._seconds_an_answer = (time.perf_counter() - began) * busy / max(1, len(names))
        return outcomes

    def _in_threads(self, payloads: Mapping[str, bytes]) -> dict[str, Outcome]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="coterie-site")
        futures = {n: self._pool.submit(self._deliver, n, data, None) for n, data in payloads.items()}
        return {n: f.result() for n, f in futures.items()}

    def _before(self, payloads: Mapping[str, bytes], timeout: float) -> dict[str, Outcome]:
        """What comes within ``timeout`` seconds; a question that a site has not begun with by then never arrives.

        Threads are daemons: where a site is stuck it holds up no other site, nor the end of the process.
        """
        futures: dict[str, Future[Outcome]] = {name: Future() for name in payloads}
        for name, future in futures.items():
            words = (future, name, payloads[name], timeout)
            Thread(target=self._answered, args=words, name=f"coterie-site {name}", daemon=True).start()
        wait(futures.values(), timeout)
        return {
            name: Outcome("late") if future.cancel() or not future.done() else future.result()
            for name, future in futures.items()
        }

    def _answered(self, future: Future[Outcome], name: str, payload: bytes, timeout: float) -> None:
        """Deliver one question, if the site is done with the one before in time."""
        outcome: Outcome | None = None
        problem: BaseException | None = None
        if self._at_work[name].acquire(timeout=timeout):
            try:
                if future.set_running_or_notify_cancel():
                    outcome = self._deliver(name, payload, timeout)
            except BaseException as raised:
                problem = raised
            finally:
                self._at_work[name].release()
        if problem is not None:
            future.set_exception(problem)
        elif outcome is not None:
            future.set_result(outcome)

    def _deliver(self, name: str, payload: bytes, timeout: float | None) -> Outcome:
        site = self.members.get(name)
        if site is None:
            return Outcome("lost")
        if self._schedule is None:
            return Outcome("answered", site.answer(payload))
        round_ = read_envelope(payload)[1].round
        faults = {fault.kind: fault for fault in self._schedule.now(site.name, round_)}
        if "drop" in faults:
            return Outcome("lost")
        if "replay" in faults and site.name in self._last:
            site.answer(self._last[site.name])
        self._last[site.name] = payload
        answer = site.answer(self._schedule.spoil(payload, round_) if "garble" in faults else payload)
        if "duplicate" in faults:
            answer = site.answer(payload)
        if "vanish" in faults:
            return Outcome("lost")
        if "delay" in faults and timeout is not None and faults["delay"].seconds > timeout:
            return Outcome("late")
        return Outcome("answered", self._schedule.spoil(answer, round_) if "corrupt" in faults else answer)


def in_process(
    tables: Mapping[str, Table],
    *,
    policy: Policy | Mapping[str, Policy] | None = None,
    folder: Path | None = None,
    schedule: Schedule | None = None,
    threads: int | None = None,
    seed: int | None = None,
) -> InProcess:
    """Sites for these tables in this process, each with its own ledger (in ``folder``, where one is given).

    An authority is made for them, and an analyst, so that sites check keys and orders as they do elsewhere.
    """
    sites, authority = [], Authority(kept_secret(None if folder is None else folder / "authority.key"))
    analyst = _analyst(authority, None if folder is None else folder / "analyst")
    for name, table in tables.items():
        rules = policy.get(name) if isinstance(policy, Mapping) else policy
        ledger = SiteLedger(None if folder is None else folder / f"{quote(name, safe='')}.jsonl")
        identity = Identity.certified_by(authority, name, ledger.secret(SIGNING_KEY))
        sites.append(
            Site(name, table, policy=rules or Policy.simulation(), ledger=ledger, identity=identity, seed=seed)
        )
    return InProcess(sites, schedule=schedule, threads=threads, authority=authority.public, analyst=analyst)


def _analyst(authority: Authority, folder: Path | None) -> Identity:
    """Who signs orders: the same when a run is resumed, whose order is then the same."""
    if folder is None:
        return Identity.certified_by(authority, ANALYST, secrets.token_bytes(32), "analyst")
    files = IdentityFiles(folder)
    if not files.is_certified:
        files.write(authority, authority.certify("analyst", ANALYST, public_signing_key(files.key())))
    return files.read("analyst", ANALYST)
