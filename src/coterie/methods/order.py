"""What a run is ordered to do: a method with its parameters, over which columns, prepared how.

Server and sites make the same protocol of an order, so that a site knows every question before it is asked.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

import msgspec
import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.messages.site_api import Column
from coterie.messages.verbs import Protocol
from coterie.methods.method import RunResult, Settings
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Missing

MAX_ORDER_BYTES = 1 << 22


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain values that any end can read."""

    method: str
    settings: str
    """The class of the method's parameters."""
    parameters: dict[str, Any]
    columns: list[tuple[str, str]]
    """Names and kinds of the columns that sites agree on."""
    scale: Literal["none", "standard", "minmax"] = "none"
    missing: Missing = "refuse"
    ranges: tuple[list[float], list[float]] | None = None
    max_share: float | None = None
    halves: bool = False

    @classmethod
    def of(cls, asked: Settings, columns: tuple[Column, ...], options: PreparationOptions) -> Order:
        """The order for what settings ask for."""
        kind = next(kind for kind in METHODS[asked.method].settings if isinstance(asked, kind))
        names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
        parameters = {name: _plain(getattr(asked, name)) for name in names}
        ranges = None if options.ranges is None else tuple(np.asarray(r, float).tolist() for r in options.ranges)
        named = [(column.name, column.kind) for column in columns]
        return cls(
            asked.method,
            kind.__name__,
            parameters,
            named,
            options.scale,
            options.missing,
            ranges,
            options.max_share,
            options.halves,
        )

    def to_bytes(self) -> bytes:
        try:
            return msgspec.json.encode(self)
        except (TypeError, ValueError) as problem:
            raise InputError(f"a parameter cannot be part of an order: {problem}.") from None

    @classmethod
    def from_bytes(cls, raw: bytes) -> Order:
        if len(raw) > MAX_ORDER_BYTES:
            raise MalformedMessage(f"an order of {len(raw)} bytes is too large")
        try:
            return msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise MalformedMessage(f"the order cannot be read: {problem}") from None

    def agreement(self) -> Agree:
        """The first question: whether a site holds the columns."""
        names, kinds = zip(*self.columns, strict=True) if self.columns else ((), ())
        return Agree(len(self.columns), tuple(names), tuple(kinds))

    def protocol(self, seed: int) -> Protocol[RunResult]:
        """Agreement on the columns, preparation and the method."""
        kind = next((k for k in METHODS[self.method].settings if k.__name__ == self.settings), None)
        if kind is None:
            raise InputError(f"{self.method} has no parameters of the class {self.settings}")
        columns = {"": tuple(Column(name, kind_) for name, kind_ in self.columns)}
        options = PreparationOptions(self.scale, self.missing, self.ranges, self.max_share, self.halves)
        return kind(**self.parameters).whole_protocol(columns, options, seed)


def _plain(value: Any) -> Any:
    """A parameter as plain values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
