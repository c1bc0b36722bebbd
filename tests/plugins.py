"""Methods of other packages, checked by what their plug-in objects say of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.engines.inprocess import in_process
from coterie.messages.schema import Request
from coterie.messages.site_api import ANSWERS, KEEPERS, Memory, Table
from coterie.messages.verbs import Present
from coterie.methods.method import ClusterSettings, Method, RunContext, Settings
from coterie.runtime.layers import sum_in_order
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable


def small_settings(method: Method, n_clusters: int) -> Settings:
    """Its defaults, for few clusters."""
    kind = method.settings[0]
    return kind(**({"n_clusters": n_clusters} if issubclass(kind, ClusterSettings) else {}), **method.fixed)


def plain_numbers(result: Any) -> list[np.ndarray]:
    """Every number of a result."""
    return [np.asarray(value, float) for value in vars(result).values() if not isinstance(value, str)]


def pooled(method: Method, settings: Settings, rows: np.ndarray, seed: int) -> Any:
    """What one site that holds all rows gives."""
    with in_process({"all": ArrayTable(rows)}) as channel:
        return run(settings.protocol(RunContext(rows.shape[1], seed)), channel, method=method.name)


def requests_of(method: Method, rows: np.ndarray, n_clusters: int) -> list[Request[Any]]:
    """One question of every kind that a run over these rows asks."""
    table, memory = ArrayTable(rows), Memory()
    protocol, answer = small_settings(method, n_clusters).protocol(RunContext(rows.shape[1], 1)), None
    kinds: dict[type, Request[Any]] = {}
    try:
        while True:
            question = protocol.send(answer)
            if isinstance(question, Present):
                answer = ("only",)
                continue
            request = question.request_for("only")
            kinds[type(request)] = request
            shown: Table = memory.table or table
            if type(request) in KEEPERS:
                KEEPERS[type(request)](shown, memory, request)
            reply = ANSWERS[type(request)](memory.table or table, memory, request)
            answer = sum_in_order([reply]) if question.summed else {"only": reply}
    except StopIteration:
        return list(kinds.values())
