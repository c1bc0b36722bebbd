"""Runs that every site checks: a server that changes anything is refused by every honest site."""

from __future__ import annotations

import zlib
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from msgspec import structs

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
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import Question, Seen
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Prepare
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked
from coterie.secure.replay import Attachment
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
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


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
            if isinstance(below, Question) and isinstance(below.request, AskMasked) and len(self._sums) == self.at:
                below = self.lie(below)
            try:
                answer = yield below
            except Exception as problem:
                failure = problem


def with_attachments(question, change):
    """The question with other attachments."""

    def changed(raw):
        attachment = msgspec.msgpack.decode(raw, type=Attachment)
        return msgspec.msgpack.encode(change(attachment))

    return replace(
        question,
        attached={name: changed(raw) for name, raw in question.attached.items()},
        in_full={name: changed(raw) for name, raw in question.in_full.items()},
    )


def changed_sum(**fields):
    def change(attachment):
        *others, last = attachment.sums
        values = {name: value(getattr(last, name)) for name, value in fields.items()}
        return structs.replace(attachment, sums=[*others, structs.replace(last, **values)])

    return lambda question: with_attachments(question, change)


def changed_ask(**fields):
    return lambda question: replace(question, request=replace(question.request, **fields))


def expanded(raw):
    """The numbers of a sum as they are: with a bit changed it still reads as a sum, and only its tag is wrong."""
    try:
        return zlib.decompress(raw)
    except zlib.error:
        return raw


def flipped(raw):
    return bytes([raw[0] ^ 1]) + raw[1:]


def moved(by):
    """The centers of the question, some way off: named by their digest, and sent whole."""

    def lie(question):
        body = msgspec.msgpack.decode(next(iter(question.in_full.values())), type=Attachment).body
        inner, limits = codec.decode_body(body)
        name = next(n for n, v in vars(inner).items() if isinstance(v, np.ndarray) and v.size)
        other = codec.encode_body(replace(inner, **{name: getattr(inner, name) + by}), limits)
        changed = with_attachments(question, lambda a: structs.replace(a, body=other.data))
        return replace(changed, request=replace(question.request, digest=other.digest), attached=changed.in_full)

    return lie


LIES = {
    "a bit of a sum": changed_sum(numbers=lambda raw: flipped(expanded(raw))),
    "a byte of a compressed sum": changed_sum(numbers=flipped),
    "a bit of a tag": changed_sum(tag=flipped),
    "the sum of another round": changed_sum(round=lambda r: r - 2),
    "the sum of another question": changed_sum(digest=flipped),
    "the sum over fewer sites": changed_sum(roster=lambda names: ("s0", "s1", "s2")),
    "a sum that was given up": changed_sum(tag=lambda tag: b"", roster=lambda names: ("s0", "s1", "s2")),
    "a skipped question": changed_sum(position=lambda p: p + 1),
    "an old sum": changed_sum(position=lambda p: p - 1),
    "no sum at all": lambda question: with_attachments(question, lambda a: structs.replace(a, sums=[])),
    "a question by a millionth": moved(1e-6),
    "another position": changed_ask(position=7),
    "no tag": changed_ask(tag_bytes=0),
    "a smaller ring": changed_ask(bits=32),
    "a smaller roster": changed_ask(roster=("s0", "s1", "s2"), n=3),
    "a question of its own": lambda question: replace(
        question,
        request=Prepare("refuse", False, np.zeros(4), np.ones(4), np.ones(4), np.zeros(0), np.zeros(0)),
        attached={},
        in_full={},
        seen=Seen.SUMMED,
    ),
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
