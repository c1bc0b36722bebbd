"""Who is said not to be ready when a job begins: those that are not, and nobody who only came a moment later."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from coterie.engines.nvflare.center import AuxChannel
from coterie.engines.nvflare.wire import CODE, VERSION
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome


class Engine:
    """Sites that answer a greeting from the n-th on, with a code and a version each."""

    def __init__(self, **sites):
        self.sites, self.asked = sites, dict.fromkeys(sites, 0)

    def get_clients(self):
        return [SimpleNamespace(name=name) for name in self.sites]

    def new_context(self):
        return contextlib.nullcontext()

    def send_aux_request(self, names, topic, request, timeout, context):
        (name,) = names
        self.asked[name] += 1
        ready, code, its = self.sites[name]
        if self.asked[name] < ready:
            return {name: make_reply(ReturnCode.TOPIC_UNKNOWN)}
        reply = make_reply(ReturnCode.OK)
        reply[CODE], reply[VERSION] = code, its
        return {name: reply}


def greeted(**sites):
    engine = Engine(**sites)
    channel = AuxChannel(engine, SimpleNamespace(triggered=False))
    try:
        return channel.greet(1.5), engine.asked
    finally:
        channel.close()


HERE = version("coterie")


def test_all_are_ready_in_the_end():
    assert greeted(north=(1, "", HERE), south=(3, "", HERE)) == ({}, {"north": 1, "south": 3})


def test_a_site_without_a_table_hides_nobody_who_comes_a_moment_later():
    wrong, asked = greeted(north=(3, "", HERE), south=(2, "", HERE), west=(1, "closed", HERE))
    assert wrong == {"west": SiteOutcome(OutcomeKind.CLOSED)}
    assert str(wrong["west"]) == "has no table to answer from; its own log says why"
    assert asked["west"] == 1


def test_another_version_and_no_answer_are_told_apart():
    wrong, _ = greeted(north=(1, "", "0.0.1"), south=(1000, "", HERE), west=(1, "", HERE))
    kinds = {name: outcome.kind for name, outcome in wrong.items()}
    assert kinds == {"north": OutcomeKind.OTHER_VERSION, "south": OutcomeKind.UNREACHABLE}
    assert str(wrong["north"]) == f"runs coterie 0.0.1, the center {HERE}"
    assert [wrong[name].may_return for name in ("north", "south")] == [False, True]
