"""A run that was killed goes on where it stopped, bit for bit, and no site computes anything twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, InProcess, Schedule, in_process
from coterie.errors import InputError, JournalMismatch, QuorumLost
from coterie.messages.codec import read_envelope
from coterie.messages.verbs import present
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.preparation import prepare
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import one_shot, var_part
from coterie.runtime.journal import Journal
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.sites.site import Site
from tests.declared import Declared
from tests.federations import blobs, split_evenly

ROWS = blobs(150, 3, 4, seed=11)


class Killed(BaseException):
    """Stands for a kill: nothing of ours may catch it."""


class Killing:
    """A channel that dies at its n-th exchange, before or after the sites have answered."""

    def __init__(self, inner: InProcess, at: int, after: bool) -> None:
        self.inner, self._left, self._after = inner, at, after

    def sites(self):
        return self.inner.sites()

    def exchange(self, payloads, timeout):
        self._left -= 1
        if self._left < 0 and not self._after:
            raise Killed
        found = self.inner.exchange(payloads, timeout)
        if self._left < 0:
            raise Killed
        return found


def everything():
    """A protocol that uses sums, per-site results, memory at the sites, and who is there."""
    made = yield from prepare(3, scale="standard")
    names = yield from present()
    first = yield from one_shot(4, 3, seed=1)
    second = yield from var_part(4, 3, about=Spread(80.0, np.zeros(3), np.ones(3)))
    fit = yield from lloyd((first + second) / 2, max_rounds=4, tol=0.0)
    return made, names, fit


def start(folder: Path, *, resume: bool, kill: tuple[int, bool] | None = None, faults=(), quorum=1.0):
    """One process' life: fresh sites that find their own ledgers, a journal, perhaps a kill."""
    ledger = Ledger()
    channel = in_process(split_evenly(ROWS, 3), folder=folder / "sites", schedule=Schedule(faults))
    with channel:
        wire = channel if kill is None else Killing(channel, *kill)
        journal = Journal(folder / "journal", resume=resume)
        result = run(
            everything(),
            wire,
            method="lloyd",
            journal=journal,
            settings={"seed": 1},
            ledger=ledger,
            layers=[Declared({"rows": 1000, "box": 1e6}), PlainSums()],
            terms=Terms(quorum=quorum),
        )
    return result, ledger


def same(one, two):
    (made, names, fit), (made2, names2, fit2) = one, two
    return (
        all(np.array_equal(getattr(made, n), getattr(made2, n)) for n in ("shift", "scale", "fill"))
        and names == names2
        and np.array_equal(fit.centers, fit2.centers)
        and (fit.cost, fit.n_rounds) == (fit2.cost, fit2.n_rounds)
    )


@pytest.fixture
def computed(monkeypatch):
    """How often each site computed each round's answer."""
    counts = Counter()
    original = Site._answer

    def counting(self, decoded):
        frame = original(self, decoded)
        counts[self.name, decoded.envelope.round, decoded.envelope.run] += 1
        return frame

    monkeypatch.setattr(Site, "_answer", counting)
    return counts


def test_a_run_killed_after_any_step_and_resumed_is_bit_identical(tmp_path, computed):
    whole, whole_ledger = start(tmp_path / "whole", resume=False)
    steps = whole_ledger.total("rounds")
    assert steps >= 10
    for step in range(steps):
        for after in (False, True):
            folder = tmp_path / f"{step}-{after}"
            computed.clear()
            with pytest.raises(Killed):
                start(folder, resume=False, kill=(step, after))
            resumed, ledger = start(folder, resume=True)
            assert same(whole, resumed)
            assert max(computed.values()) == 1, "a site computed an answer twice"
            assert ledger.total("floats_up") == whole_ledger.total("floats_up")
            assert ledger.total("rounds") == steps


def test_a_run_killed_again_and_again_gets_there(tmp_path):
    whole, _ = start(tmp_path / "whole", resume=False)
    folder = tmp_path / "often"
    with pytest.raises(Killed):
        start(folder, resume=False, kill=(1, True))
    for _ in range(3):
        with pytest.raises(Killed):
            start(folder, resume=True, kill=(4, True))  # recalls are exchanges, too
    resumed, _ = start(folder, resume=True)
    assert same(whole, resumed)


def test_dropouts_are_replayed_as_they_happened(tmp_path):
    faults = [Fault("site-1", "drop", frozenset({5}))]
    whole, _ = start(tmp_path / "whole", resume=False, faults=faults, quorum=0.5)
    with pytest.raises(Killed):
        start(tmp_path / "cut", resume=False, faults=faults, quorum=0.5, kill=(8, True))
    resumed, _ = start(tmp_path / "cut", resume=True, quorum=0.5)
    assert same(whole, resumed)


def test_a_lost_quorum_the_algorithm_caught_is_replayed(tmp_path):
    def protocol():
        try:
            fit = yield from lloyd(ROWS[:2], max_rounds=5)
        except QuorumLost as lost:
            fit = yield from lloyd(ROWS[:2], max_rounds=2)
            return str(lost), lost.outcomes, fit
        return None

    results = []
    for resume in (False, True):
        faults = [Fault("site-2", "drop", frozenset({0}))] if not resume else []
        with in_process(split_evenly(ROWS, 3), folder=tmp_path / "s", schedule=Schedule(faults)) as channel:
            journal = Journal(tmp_path / "j", resume=resume)
            results.append(run(protocol(), channel, method="lloyd", journal=journal, terms=Terms(quorum=1.0)))
    assert results[0][:2] == results[1][:2]
    assert results[0][1]["site-2"].kind is OutcomeKind.UNREACHABLE
    np.testing.assert_array_equal(results[0][2].centers, results[1][2].centers)


def test_a_torn_last_record_is_asked_for_again(tmp_path, computed):
    whole, _ = start(tmp_path / "whole", resume=False)
    with pytest.raises(Killed):
        start(tmp_path / "torn", resume=False, kill=(6, False))
    records = tmp_path / "torn" / "journal" / "records.bin"
    records.write_bytes(records.read_bytes()[:-9])
    resumed, _ = start(tmp_path / "torn", resume=True)
    assert same(whole, resumed)


def test_damage_in_the_middle_of_a_journal_is_noticed(tmp_path):
    start(tmp_path, resume=False)
    records = tmp_path / "journal" / "records.bin"
    data = bytearray(records.read_bytes())
    data[len(data) // 3] ^= 0xFF
    records.write_bytes(bytes(data))
    with pytest.raises(JournalMismatch, match="damaged"):
        start(tmp_path, resume=True)


def test_other_settings_or_another_protocol_do_not_resume(tmp_path):
    start(tmp_path, resume=False)
    with in_process(split_evenly(ROWS, 3)) as channel:
        with pytest.raises(JournalMismatch, match="settings"):
            journal = Journal(tmp_path / "journal", resume=True)
            run(everything(), channel, method="lloyd", journal=journal, settings={"seed": 2})
        with pytest.raises(JournalMismatch, match="asks something else"):
            journal = Journal(tmp_path / "journal", resume=True)
            run(lloyd(ROWS[:3]), channel, method="lloyd", journal=journal, settings={"seed": 1})


def test_a_journal_is_not_overwritten(tmp_path):
    start(tmp_path, resume=False)
    with pytest.raises(InputError, match="already holds the journal of a run"):
        Journal(tmp_path / "journal")


def test_a_journal_of_an_unknown_format_is_refused(tmp_path):
    start(tmp_path, resume=False)
    path = tmp_path / "journal" / "header.json"
    header = json.loads(path.read_text())
    del header["arithmetic"]  # the first format had none
    for schema in (1, 99):
        path.write_text(json.dumps({**header, "schema": schema}))
        with pytest.raises(JournalMismatch, match=f"journal format {schema} is not known here.* or begin it anew$"):
            Journal(tmp_path / "journal", resume=True)


def test_a_finished_run_resumes_to_its_result_without_asking_anyone(tmp_path):
    whole, whole_ledger = start(tmp_path, resume=False)
    again, ledger = start(tmp_path, resume=True, kill=(0, False))
    assert same(whole, again)
    assert ledger.summary() == whole_ledger.summary()


def test_a_process_killed_with_sigkill_resumes(tmp_path):
    program = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from tests.runtime.test_journal import Killing, start
        import tests.runtime.test_journal as module
        class Gone(Exception): pass
        def dead(self, payloads, timeout):
            self._left -= 1
            found = self.inner.exchange(payloads, timeout)
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found
        Killing.exchange = dead
        start(Path(sys.argv[1]), resume=False, kill=(7, True))
        """
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "cut")], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    whole, _ = start(tmp_path / "whole", resume=False)
    resumed, _ = start(tmp_path / "cut", resume=True)
    assert same(whole, resumed)


def test_the_round_in_flight_is_asked_under_the_same_number(tmp_path):
    asked = []

    class Listening(Killing):
        def exchange(self, payloads, timeout):
            asked.append(read_envelope(next(iter(payloads.values())))[1].round)
            return super().exchange(payloads, timeout)

    with in_process(split_evenly(ROWS, 3), folder=tmp_path / "s") as channel, pytest.raises(Killed):
        run(lloyd(ROWS[:2]), Listening(channel, 2, True), method="lloyd", journal=Journal(tmp_path / "j"))
    with in_process(split_evenly(ROWS, 3), folder=tmp_path / "s") as channel:
        listening = Listening(channel, 10_000, True)
        run(lloyd(ROWS[:2]), listening, method="lloyd", journal=Journal(tmp_path / "j", resume=True))
    assert asked[:4] == [0, 1, 2, 2]
