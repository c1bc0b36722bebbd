"""Orders that tests give, signed by an analyst of the tests' own authority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.deployment.job import RemoteJob
from coterie.estimators.registry import make_estimator
from coterie.messages.identity import Identity
from coterie.messages.site_api import Column
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from tests.identities import identity

ANA = "ana@university.example"
ANALYST = identity(ANA, role="analyst")
RUN = "0123456789abcdef" * 2


def an_order(
    method: str = "lloyd",
    parameters: Mapping[str, Any] | None = None,
    columns: Sequence[str] = ("a", "b"),
    run: str | None = RUN,
    **options: Any,
) -> Order:
    """An order for numbers in named columns."""
    estimator = make_estimator(method, {"n_clusters": 2, **(parameters or {})})
    return Order.of(estimator, tuple(map(Column, columns)), PreparationOptions(**options), run)


def signed(order: Order, analyst: Identity = ANALYST) -> SignedOrder:
    """The order, signed by an analyst."""
    return SignedOrder.by(analyst, order)


def a_job(
    method: str = "lloyd",
    parameters: Mapping[str, Any] | None = None,
    columns: Sequence[str] = ("a", "b"),
    *,
    run: str | None = RUN,
    analyst: Identity = ANALYST,
    **more: Any,
) -> RemoteJob:
    """A job for such an order."""
    options = {name: more.pop(name) for name in ("scale", "missing", "ranges", "profile") if name in more}
    given = {"random_state": 0, **(parameters or {})}
    seed = given.pop("random_state")
    return RemoteJob(signed(an_order(method, given, columns, run, **options), analyst), seed, **more)
