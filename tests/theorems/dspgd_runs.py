"""Runs of DSPGD, and Algorithm 1 as slowly and plainly as it can be written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coterie.engines.inprocess import in_process
from coterie.maths.features import draw_features
from coterie.maths.kernels import average_distance_gamma
from coterie.messages import codec
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, answers
from coterie.messages.verbs import each
from coterie.methods.kernel.dspgd.dense import Expand, Project, dspgd_dense
from coterie.methods.kernel.dspgd.protocol import dspgd
from coterie.methods.kernel.dspgd.sites import Multiply, SendGram, keep_advance, keep_kernel
from coterie.methods.registry import METHODS
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from tests.federations import Tampered


class TableRows(Reply, content="rows"):
    values: Floats = array("rows", "s")


class SendRows(Request[TableRows]):
    """Only tests ask this."""

    rows: int
    s: int


@answers(SendRows)
def local_rows(table, memory, ask):
    blocks = [block.rows for block in table.blocks()]
    return TableRows(np.concatenate(blocks) if blocks else np.zeros((0, ask.s)))


def allow(monkeypatch):
    """Let the sites of a test also send their rows."""
    for name in ("dspgd", "dspgd-dense"):
        asked = replace(METHODS[name], requests=(*METHODS[name].requests, SendRows))
        monkeypatch.setitem(METHODS, name, asked)


def and_rows(protocol, tables):
    """The protocol, then every site's table as later questions see it."""
    found = yield from protocol
    asked = {name: SendRows(table.n_rows, len(found.values)) for name, table in tables.items()}
    rows = yield from each(asked)
    return found, {name: reply.values for name, reply in rows.items()}


def embed(kernel, settings, tables, *, seed=0, dense=False, schedule=None, **options):
    """What was found, and the sites' embedded rows by site."""
    protocol = (dspgd_dense if dense else dspgd)(kernel, settings, seed=seed)
    method = "dspgd-dense" if dense else "dspgd"
    with in_process(tables, schedule=schedule) as channel:
        return run(and_rows(protocol, tables), channel, method=method, **options)


def counted(kernel, settings, tables, *, seed=0, dense=False, **options):
    """What was found, without the rows, and the ledger."""
    ledger = Ledger()
    protocol = (dspgd_dense if dense else dspgd)(kernel, settings, seed=seed)
    with in_process(tables, **options) as channel:
        found = run(protocol, channel, method="dspgd-dense" if dense else "dspgd", ledger=ledger)
    return found, ledger


def stacked(found):
    """H, sites in order."""
    return np.concatenate([found[1][name] for name in sorted(found[1])])


def iterate(values, h, threshold):
    """Z_{T+1} from H: its eigenvalues are those of H less lambda (lines 13 and 17 of Algorithm 1)."""
    return (h * ((values - threshold) / values)) @ h.T


@dataclass
class Twin:
    """Algorithm 1 with N x N matrices."""

    z: Floats
    """Z_{T+1}."""
    k: Floats
    """H H'."""
    values: Floats
    threshold: float
    ranks: list[int]


def algorithm_1(rows, kernel, settings, *, seed=0):
    """Every matrix formed, every eigenpair computed."""
    n = len(rows)
    z, threshold, ranks = np.zeros((n, n)), settings.threshold, []
    middle = np.eye(n) - (1 / n if settings.center else 0)
    for t in range(1, settings.n_iter + 1):
        ranks.append(int(np.linalg.matrix_rank(z, tol=1e-9 * n)))
        eta = 1 / t if settings.step == "1/t" else min(1, 2 / t)
        a = draw_features(kernel, settings.n_features, rows.shape[1], seed, t, form=settings.features)(rows)
        xi = middle @ (a @ a.T / settings.n_features) @ middle
        values, vectors = np.linalg.eigh((1 - eta) * z + eta * xi)
        values, vectors = values[::-1], vectors[:, ::-1]
        if threshold is None:
            threshold = values[settings.rank - 1]
        kept = values > eta * threshold
        z = (vectors[:, kept] * (values[kept] - eta * threshold)) @ vectors[:, kept].T
    kept &= np.arange(n) < settings.n_components
    final = values[kept] + (1 - eta) * threshold
    return Twin(z, (vectors[:, kept] * final) @ vectors[:, kept].T, final, float(threshold), ranks)


def floats_by_step(kernel, settings, tables, *, seed=0, dense=False):
    """What was found, and values sent by iteration: read off the wire and the ledger, not off the algorithm."""
    steps, ledger = {}, Ledger()

    def listen(name, question, frame):
        decoded = codec.decode_question(question)
        if isinstance(decoded.request, (Multiply, SendGram, Project, Expand)):
            steps[decoded.envelope.round] = decoded.request.step
        return frame

    protocol = (dspgd_dense if dense else dspgd)(kernel, settings, seed=seed)
    with in_process(tables) as channel:
        method = "dspgd-dense" if dense else "dspgd"
        found = run(protocol, Tampered(channel, listen), method=method, ledger=ledger)
    floats = dict.fromkeys(range(1, settings.n_iter + 1), 0)
    for exchange in ledger.exchanges:
        if exchange.round in steps:
            floats[steps[exchange.round]] += sum(one.floats_up for one in exchange.sites.values())
    return found, list(floats.values())


def average_gamma(rows):
    """The paper's gamma."""
    wide = rows.astype(np.float64)
    return average_distance_gamma(float(len(wide)), wide.sum(axis=0), float((wide**2).sum()))


def factors(transcript, rows):
    """B_{t+1} of every iteration but the last, from the public requests and the rows."""
    table, memory = ArrayTable(rows), Memory()
    keep_kernel(table, memory, transcript[0])
    for ask in transcript[1:-1]:
        keep_advance(table, memory, ask)
        yield memory["dspgd"].b


def squared_distance(one, other):
    """|F F' - G G'|_F^2 from the Grams of the factors; nothing N x N is formed."""
    apart = ((one.T @ one) ** 2).sum() - 2 * ((one.T @ other) ** 2).sum() + ((other.T @ other) ** 2).sum()
    return float(apart)
