"""The worked example of docs/adding-an-engine.md: the same results over sites that are processes of their own."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans
from coterie.errors import QuorumLost
from coterie.estimators.fitting import fit_over
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs

PAGE = (Path(__file__).parent.parent / "docs" / "adding-an-engine.md").read_text()
FILE, USE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The file of the page, where processes that are spawned find it."""
    (tmp_path / "pipes_engine.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("pipes_engine", tmp_path / "pipes_engine.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pipes_engine", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def paths(tmp_path):
    rows = blobs(180, 3, 3, seed=1)
    paths = {}
    for i, name in enumerate(("north", "south", "east")):
        paths[name] = str(tmp_path / f"{name}.csv")
        np.savetxt(paths[name], rows[i::3], delimiter=",", header="a,b,c", comments="")
    return paths


def test_a_fit_over_pipes_is_the_fit_in_one_process(engine, paths):
    names = {"paths": paths, "pipes": engine.pipes, "Policy": Policy}
    exec(USE, names)
    there = names["model"]
    seeded = FederatedKMeans(3, random_state=there.public_seed_)  # which the sites drew together
    here = coterie.fit(seeded, paths, scale="standard", policy=Policy(verification="off"))
    np.testing.assert_allclose(there.cluster_centers_, here.cluster_centers_, rtol=1e-11)
    assert there.ledger_.total("floats_up") == here.ledger_.total("floats_up")


def test_a_killed_site_is_lost_and_a_stuck_one_late(engine, paths):
    with engine.pipes(paths, Policy()) as (channel, processes):
        outcomes = _failing(channel, processes["east"])
        assert outcomes["east"].kind is OutcomeKind.UNREACHABLE
        os.kill(processes["south"].pid, signal.SIGSTOP)
        assert channel.exchange({"south": b"a question"}, 0.1)["south"].status == "late"
        processes["south"].kill()


def _failing(channel, process):
    """What became of each site in a run during which a site's process is killed."""
    columns = {"all": ArrayTable(np.zeros((1, 3)), columns=["a", "b", "c"]).columns}
    rounds = iter(range(100))

    def watch(_):
        if next(rounds) == 3:
            process.kill()
            process.join()

    with pytest.raises(QuorumLost) as stopped:
        estimator, terms = FederatedKMeans(3, random_state=0), Terms(quorum=1.0, deadline=300.0, resends=0)
        fit_over(channel, estimator, columns, PreparationOptions(), order=channel.analyst, terms=terms, watch=watch)
    return stopped.value.outcomes


def test_an_answer_that_comes_late_is_not_taken_for_the_next(engine):
    ours, theirs = multiprocessing.Pipe()
    channel = engine.Pipes({"a": ours})
    assert channel.exchange({"a": b"first"}, 0.0)["a"].status == "late"
    first = theirs.recv_bytes()
    theirs.send_bytes(first[:8] + b"to the first")
    second = (2).to_bytes(8)
    theirs.send_bytes(second + b"to the second")
    assert channel.exchange({"a": b"second"}, 5.0)["a"].payload == b"to the second"
