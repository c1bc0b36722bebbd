"""Runs that every site checks: a server that changes anything is refused by every honest site."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import coterie
from coterie import (
    DSPGDKernelKMeans,
    DSPGDKernelPCA,
    EdgeKMeans,
    FederatedKernelKMeans,
    FederatedKernelPCA,
    FederatedKMeans,
    FederatedPCA,
)
from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import Question
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked
from coterie.secure.replay import Proof
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs

ROWS = blobs(240, 4, 3, seed=5)
TABLES = {f"s{i}": ArrayTable(ROWS[i::4]) for i in range(4)}
METHODS = [
    FederatedKMeans(3, init="var-part"),
    FederatedKMeans(3, epochs=2, batch_size=16, server_momentum=0.5, reassign=True, max_rounds=5),
    EdgeKMeans(3),
    FederatedKernelKMeans(3),
    FederatedKernelPCA(2),
    DSPGDKernelKMeans(3, n_features=16, n_iter=2),
    DSPGDKernelPCA(2, n_features=16, n_iter=2, solver="lanczos"),
    FederatedPCA(2),
]
OFF = Policy(verification="off")


def numbers(estimator):
    return [v for v in vars(estimator).values() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]


@pytest.mark.parametrize("estimator", METHODS, ids=lambda e: type(e).__name__)
def test_a_verified_run_is_the_run_at_the_same_public_seed(estimator):
    verified = coterie.fit(estimator.set_params(random_state=3), TABLES)
    assert any(exchange.asked == "secure.ShareKey" for exchange in verified.ledger_.exchanges)
    found = numbers(verified)
    plain = coterie.fit(estimator.set_params(random_state=verified.public_seed_), TABLES, policy=OFF)
    assert not any(exchange.asked == "secure.ShareKey" for exchange in plain.ledger_.exchanges)
    for one, other in zip(found, numbers(plain), strict=True):
        np.testing.assert_array_equal(one, other)


class Lying(MaskedSums):
    """A server that changes what sites are asked, once."""

    def __init__(self, lie, at=2):
        super().__init__()
        self.lie, self.at = lie, at

    def lower(self, question):
        lowering, answer, failure = super().lower(question), None, None
        while True:
            try:
                below = lowering.send(answer) if failure is None else lowering.throw(failure)
            except StopIteration as end:
                return end.value
            answer, failure = None, None
            if isinstance(below, Question) and isinstance(below.request, AskMasked) and self._position == self.at:
                below = self.lie(below)
            try:
                answer = yield below
            except Exception as problem:
                failure = problem


def changed_proof(**fields):
    def lie(question):
        proof = msgspec.msgpack.decode(question.proof, type=Proof)
        values = {name: value(getattr(proof, name)) for name, value in fields.items()}
        return replace(question, proof=msgspec.msgpack.encode(msgspec.structs.replace(proof, **values)))

    return lie


def changed_ask(**fields):
    return lambda question: replace(question, request=replace(question.request, **fields))


def flipped(raw):
    return bytes([raw[0] ^ 1]) + raw[1:]


def moved(question):
    """The centers of the question, a millionth away."""
    from coterie.messages import codec

    inner, limits = codec.decode_body(question.request.body)
    name = next(n for n, v in vars(inner).items() if isinstance(v, np.ndarray) and v.size)
    other = replace(inner, **{name: getattr(inner, name) + 1e-6})
    return changed_ask(body=codec.encode_body(other, limits).data)(question)


LIES = {
    "a bit of a sum": changed_proof(numbers=flipped),
    "a bit of a tag": changed_proof(tag=flipped),
    "the sum of another round": changed_proof(round=lambda r: r - 2),
    "an old position": changed_proof(position=lambda p: p - 1),
    "a skipped question": changed_proof(position=lambda p: p + 1),
    "no sum at all": lambda question: replace(question, proof=b""),
    "a question by a millionth": moved,
    "another position": changed_ask(position=7),
    "no tag": changed_ask(tag_bytes=0),
    "a smaller ring": changed_ask(bits=32),
}


def lied_to(lie, at=2):
    estimator = FederatedKMeans(3, init=np.eye(3, 4), random_state=0)
    with in_process(TABLES, policy=Policy()) as channel:
        layer = Lying(lie, at)
        columns = next(iter(TABLES.values())).columns
        order = Order.of(estimator, columns, PreparationOptions())
        protocol = layer.ordered(SignedOrder.by(channel.analyst, order), 0)
        return run(protocol, channel, method="federated-kmeans", layers=[layer], identity=order.identity)


def test_without_a_lie_the_run_goes_on():
    assert lied_to(lambda question: question).result.centers.shape == (3, 4)


@pytest.mark.parametrize("lie", LIES)
def test_every_honest_site_refuses_a_server_that_changes(lie):
    with pytest.raises(QuorumLost) as caught:
        lied_to(LIES[lie])
    assert {outcome.refusal for outcome in caught.value.outcomes.values()} == {Refusal.NOT_ORDERED}
