"""What an analyst orders: a method with its parameters, over which columns, prepared how; signed by the analyst.

Server and sites make the same protocol of an order, so that a site knows every question before it is asked.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from coterie.errors import InputError, MalformedMessage, NotOrdered, Untrusted
from coterie.messages.identity import Certificate, Identity, Trust, is_signed, order_text
from coterie.messages.site_api import Column
from coterie.messages.verbs import Protocol
from coterie.methods.method import RunResult, Settings
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Missing
from coterie.methods.shared.privacy import Privacy
from coterie.methods.shared.scales import Scale
from coterie.parameters import Choice, choices

MAX_ORDER_BYTES = 16 << 20
"""Of an order: the names of a million columns."""
LIBRARIES = ("numpy", "scipy", "scikit-learn")
"""What results depend on besides coterie; supported are all versions with the same first number."""
_RUN = re.compile("[0-9a-f]{32}")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,3}")
Range = tuple[str, str]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain values that any end can read."""

    run: str
    """The identity of the run, as 32 hex digits: an order is for one run only."""
    method: str
    settings: str
    """The class of the method's parameters."""
    parameters: dict[str, Any]
    columns: list[tuple[str, str]] = []
    """Names and kinds of the columns that the method uses; none where each site has its own."""
    besides: list[tuple[str, str]] = []
    """Those of further columns, by which clusters are described."""
    scale: Scale = "none"
    missing: Missing = "refuse"
    ranges: tuple[list[float], list[float]] | None = None
    max_share: float | None = None
    halves: bool = False
    profile: bool = False
    versions: dict[str, Range] = {}
    """By library the lowest version that may be used, and the first that may not."""

    @classmethod
    def of(
        cls, asked: Settings, columns: tuple[Column, ...], options: PreparationOptions, run: str | None = None
    ) -> Order:
        """The order for what settings ask for; of a new run if none is named."""
        kind = next(kind for kind in METHODS[asked.method].settings if isinstance(asked, kind))
        return cls(
            run or secrets.token_hex(16),
            asked.method,
            kind.__name__,
            _parameters(asked, kind),
            [] if asked.splits_columns else [(column.name, column.kind) for column in columns],
            [(column.name, column.kind) for column in options.besides],
            options.scale,
            options.missing,
            None if options.ranges is None else tuple(np.asarray(r, float).tolist() for r in options.ranges),
            options.max_share,
            options.halves,
            options.profile,
            supported(),
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
            order = msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise MalformedMessage(f"the order cannot be read: {problem}") from None
        order.check()
        return order

    def check(self) -> None:
        """``InputError`` where the order cannot be one of anybody's."""
        if not _RUN.fullmatch(self.run):
            raise InputError(f"an order names its run by 32 hex digits, not by {self.run[:40]!r}.")
        for library, ends in self.versions.items():
            if not all(map(_VERSION.fullmatch, ends)):
                raise InputError(f"an order for versions {ends[0][:20]!r} to {ends[1][:20]!r} of {library[:40]!r}.")

    @property
    def identity(self) -> bytes:
        """The identity of the run."""
        return bytes.fromhex(self.run)

    @property
    def kind(self) -> type[Settings]:
        """The class of the parameters."""
        known = METHODS[self.method].settings if self.method in METHODS else ()
        kind = next((kind for kind in known if kind.__name__ == self.settings), None)
        if kind is None:
            raise InputError(f"{self.method} has no parameters of the class {self.settings}.")
        return kind

    def asked(self) -> Settings:
        """The parameters; ``InputError`` where they are none of the method."""
        unknown = self.parameters.keys() - {item.name for item in fields(self.kind)}  # type: ignore[arg-type]
        if unknown:
            raise InputError(f"{self.method} has no parameter {min(unknown)[:40]!r}.")
        settings = self.kind(**self.parameters)
        if settings.method != self.method:
            raise InputError(f"the parameters are for {settings.method}, not for {self.method}.")
        return settings

    def chosen(self) -> dict[str, Choice]:
        """What the order chooses itself: parameters by the kind of choice, and declared ranges."""
        found = choices(self.kind, self.parameters)
        return found if self.ranges is None else {**found, "ranges": "ranges"}

    @property
    def privacy(self) -> Privacy | None:
        """The differential privacy that is ordered."""
        return Privacy.of(self.parameters.get("privacy"))

    def unsupported(self, installed: Mapping[str, str] | None = None) -> list[str]:
        """A sentence for each library of which another version is installed here."""
        here, wrong = installed or installed_versions(), []
        for library, (low, high) in self.versions.items():
            if library not in here:
                wrong.append(f"the order needs {library}, which this version of coterie does not know")
            elif not _numbers(low) <= _numbers(here[library]) < _numbers(high):
                wrong.append(
                    f"the order needs {library} from {low} up to, not including, {high}; here is {here[library]}"
                )
        return wrong

    def agreement(self) -> Agree:
        """The first question: whether a site holds the columns."""
        wanted = [*self.columns, *self.besides]
        return Agree(len(wanted), tuple(name for name, _ in wanted), tuple(kind for _, kind in wanted))

    def options(self) -> PreparationOptions:
        """How rows are prepared, and what limits a site that lies."""
        besides = tuple(Column(name, kind) for name, kind in self.besides)
        return PreparationOptions(
            self.scale, self.missing, self.ranges, self.max_share, self.halves, besides, self.profile
        )

    def protocol(self, seed: int) -> Protocol[RunResult]:
        """Agreement on the columns, preparation and the method."""
        columns = {"": tuple(Column(name, kind) for name, kind in self.columns)}
        return self.asked().whole_protocol(columns, self.options(), seed)


class SignedOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order, and who gives it."""

    order: bytes
    analyst: str
    certificate: bytes
    """The authority's word that the signing key is the analyst's."""
    signature: bytes

    @classmethod
    def by(cls, analyst: Identity, order: Order) -> SignedOrder:
        """The order, signed."""
        raw = order.to_bytes()
        signature = analyst.sign(order_text(analyst.name, raw))
        return cls(raw, analyst.name, analyst.certificate.to_bytes(), signature)

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> SignedOrder:
        try:
            return msgspec.msgpack.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise MalformedMessage("the signed order cannot be read") from None

    def read(self) -> Order:
        """The order, whoever signed it."""
        return Order.from_bytes(self.order)

    def check_signed(self, trust: Trust, *, now: float | None = None) -> None:
        """``Untrusted`` unless an analyst signed it whom the federation's authority certified, for today or then."""
        certificate = Certificate.from_bytes(self.certificate)
        trust.check(certificate, "analyst", self.analyst, now=now)
        if not is_signed(certificate.signing_key, self.signature, order_text(self.analyst, self.order)):
            raise Untrusted(f"the order is not signed by {self.analyst}")

    def checked(self, trust: Trust) -> Order:
        """The order; ``Untrusted`` unless it is signed, ``NotOrdered`` where it cannot be carried out."""
        self.check_signed(trust)
        try:
            order = self.read()
            order.asked()
        except (InputError, TypeError, ValueError) as problem:
            raise NotOrdered(f"the order cannot be carried out: {problem}") from None
        return order


@cache
def installed_versions() -> dict[str, str]:
    """The versions of what results depend on."""
    return {library: version(library) for library in ("coterie", *LIBRARIES)}


def supported() -> dict[str, Range]:
    """The versions that may take part in an order given here: coterie's up to the next minor, libraries' major."""
    ranges = {}
    for library, here in installed_versions().items():
        major, minor, *_ = (*_numbers(here), 0, 0)
        ranges[library] = (
            (f"{major}.{minor}", f"{major}.{minor + 1}") if library == "coterie" else (f"{major}", f"{major + 1}")
        )
    return ranges


def _numbers(text: str) -> tuple[int, ...]:
    """``1.26.4rc1`` as ``(1, 26, 4)``."""
    return tuple(int(number) for number in re.match(r"[\d.]*", text)[0].split(".") if number)  # type: ignore[index]


def _parameters(asked: Settings, kind: type[Settings]) -> dict[str, Any]:
    """The values of what a class of parameters declares; privacy only where it is asked for."""
    given = {item.name: _plain(getattr(asked, item.name)) for item in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in given.items() if name != "privacy" or value is not None}


def _plain(value: Any) -> Any:
    """A parameter as plain values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value):  # by its name
        return [type(value).__name__, *(_plain(getattr(value, item.name)) for item in fields(value))]
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
