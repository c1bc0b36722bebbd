"""The cost of a protocol in closed form, to be held against the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.messages.codec import (
    answer_header_bytes,
    encode_body,
    question_header_bytes,
)
from coterie.messages.schema import Request


@dataclass(frozen=True)
class Cost:
    """Numbers and bytes over all sites, and rounds."""

    floats_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    rounds: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.floats_up + other.floats_up,
            self.bytes_up + other.bytes_up,
            self.bytes_down + other.bytes_down,
            self.rounds + other.rounds,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(self.floats_up * times, self.bytes_up * times, self.bytes_down * times, self.rounds * times)


def exchange_cost(
    n_sites: int,
    *,
    floats: int,
    float_bytes: int,
    request: Request[Any],
    method: str,
    limits: Mapping[str, float] | None = None,
) -> Cost:
    """One round in which every site answers ``floats`` numbers of ``float_bytes`` bytes each."""
    down = question_header_bytes(method) + len(encode_body(request, limits or {}).data)
    up = answer_header_bytes(method) + floats * float_bytes
    return Cost(n_sites * floats, n_sites * up, n_sites * down, 1)


def one_round(requests: Sequence[Request[Any]], *, method: str, limits: Mapping[str, float] | None = None) -> Cost:
    """One round in which every site is asked something of its own."""
    spent = Cost()
    for ask in requests:
        layout = ask.layout
        sent = exchange_cost(1, floats=layout.numbers, float_bytes=0, request=ask, method=method, limits=limits)
        spent += replace(sent, bytes_up=sent.bytes_up + layout.n_bytes)
    return replace(spent, rounds=1)
