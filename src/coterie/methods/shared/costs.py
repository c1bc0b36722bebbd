"""The cost of a protocol in closed form, to be held against the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from coterie.messages.codec import answer_header_bytes, encode_body, question_header_bytes
from coterie.messages.schema import Request


@dataclass(frozen=True)
class Cost:
    """Numbers and bytes over all sites, and rounds."""

    floats_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    rounds: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * count for count in astuple(self)))


def one_round(requests: Sequence[Request[Any]], *, method: str) -> Cost:
    """One round in which every site is asked something of its own."""
    down = sum(question_header_bytes(method) + len(encode_body(ask, {}).data) for ask in requests)
    up = sum(answer_header_bytes(method) + ask.layout.n_bytes for ask in requests)
    return Cost(sum(ask.layout.numbers for ask in requests), up, down, 1)


def to_all(n_sites: int, *requests: Request[Any], method: str) -> Cost:
    """A round for each of these requests, which goes to every site."""
    return sum((one_round([ask] * n_sites, method=method) for ask in requests), Cost())
