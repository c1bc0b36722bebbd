"""The rules a site sets; a server cannot talk them down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from coterie.errors import InputError
from coterie.maths.accounting import ROUNDING, mu_of
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Content, Request, message_fields, reply_type
from coterie.methods.order import Order
from coterie.methods.registry import METHODS, belongs
from coterie.methods.shared.privacy import DELTA, ROW, Privacy
from coterie.parameters import Choice

Protection = Literal["groups", "noise", "none"]


@dataclass(frozen=True)
class PrivacyRules:
    """The privacy budget of a site's table, over all runs and analysts."""

    epsilon: float
    delta: float = DELTA
    unit: str = "row"
    """What is protected: a row, or all rows with one value in the column named; goes before an order's unit."""
    rows_per_unit: int = 1
    """How many rows of each unit count; where an order for the same unit says fewer, so many."""

    def __post_init__(self) -> None:
        Privacy.of({item.name: getattr(self, item.name) for item in fields(self)})

    @property
    def unit_column(self) -> str | None:
        """The column that says whose row it is."""
        return None if self.unit == ROW else self.unit

    @property
    def mu_squared(self) -> float:
        """All that may be given away, as the square of mu."""
        return mu_of(self.epsilon, self.delta) ** 2

    def affords(self, mu_squared: float) -> bool:
        """Whether the whole budget is as much."""
        return mu_squared <= self.mu_squared * (1 + ROUNDING)


_LEVEL: dict[Content, int] = {"nothing": 0, "schema": 0, "noisy": 1, "sums": 1, "grams": 1, "averages": 1, "rows": 2}
"""Of a composition a rule of its own decides."""
_ALLOWED = {"none": 0, "averages": 1, "rows": 2}
SMALLEST_GROUP, LARGEST_GROUP = 3, 50
MIN_KEY_BYTES = 16
EVERYTHING: frozenset[Choice] = frozenset(("points", "ranges", "parameters"))


@dataclass(frozen=True)
class Policy:
    """What a site lets happen with its rows.

    ``per_site_results`` says what the server may see of this site by itself: ``"none"`` (nothing computed from
    rows), ``"averages"`` (sums and averages) or ``"rows"`` (anything, also a number for every row as protected).
    """

    methods: frozenset[str] | None = None
    """The methods allowed; None is all."""
    protection: Protection = "groups"
    """What a method computes with: fixed groups of rows; noisy sums over rows (``"noise"``); rows as they are."""
    min_group: int = 5
    """The fewest rows in a group."""
    levels: Literal["named", "listed"] = "named"
    """The levels of text columns: the site names those that enough of its rows hold, or lists them itself."""
    per_site_results: Literal["none", "averages", "rows"] = "none"
    min_roster: int = 3
    """The fewest sites a masked sum may be over."""
    rosters: Literal["fixed", "shrinking", "any"] = "shrinking"
    """Which rosters one run may sum this site up with: always the same one; fewer sites as some drop out; any."""
    halves: bool = False
    """Whether one run may also sum this site up, once, with half of its sites, to compare the halves' clusters."""
    composition: bool = False
    """Whether the server may see how many of this site's rows are in each final cluster; in verified runs never."""
    peers: Mapping[str, bytes] | None = None
    """Other sites' public keys, pinned; None trusts those the server introduces."""
    verification: Literal["required", "off"] | None = None
    """Whether a run is answered only as far as the site can check it; None: where no per-site result may be seen."""
    max_questions: int | None = None
    """How many questions one run may ask, refused ones included; a masked sum takes two."""
    max_runs: int | None = None
    """How many runs one analyst may begin over the table, in the life of the site's ledger."""
    orders_may_choose: frozenset[Choice] = EVERYTHING
    """What an order may choose itself: arrays of ``points`` (a start, landmarks), declared ``ranges``, and
    ``parameters`` on a continuous scale (gamma)."""
    approval: Literal["automatic", "first", "always"] = "automatic"
    """Which orders wait for a data officer: none, an analyst's first for each method, or all."""
    name_decisions: bool = False
    """Whether an analyst is told that it is this site that has not approved an order, or declined it."""
    min_rows: int = 0
    """How many rows the site must hold to take part."""
    privacy: PrivacyRules | None = None
    """The budget that differentially private orders are answered from; without one, they are not."""
    alignment_key: bytes | None = field(default=None, repr=False)
    """A secret the sites share, and the server does not: with it the keys of rows become tags that match."""
    method_protection: Mapping[str, Protection] = field(default_factory=dict)
    """The protection of single methods, where it is another one."""

    def __post_init__(self) -> None:
        if self.protection not in ("groups", "noise", "none"):
            raise InputError(f"protection={self.protection!r}; it is 'groups', 'noise' or 'none'.")
        if "noise" in (self.protection, *self.method_protection.values()) and self.privacy is None:
            raise InputError(
                "protection='noise' needs a budget: privacy=PrivacyRules(epsilon=4.0), in a policy file [privacy] "
                "with epsilon = 4.0."
            )
        if not SMALLEST_GROUP <= self.min_group <= LARGEST_GROUP:
            raise InputError(
                f"min_group={self.min_group}; it is {SMALLEST_GROUP} to {LARGEST_GROUP} rows. "
                "protection='none' lets a method compute with single rows."
            )
        for name, protection in self.method_protection.items():
            if name not in METHODS or protection not in ("groups", "noise", "none"):
                raise InputError(
                    f"method_protection: {name!r}: {protection!r}; give a method, and 'groups', 'noise' or 'none'."
                )
        if self.alignment_key is not None and len(self.alignment_key) < MIN_KEY_BYTES:
            raise InputError(
                f"alignment_key has {len(self.alignment_key)} bytes; at least {MIN_KEY_BYTES} random ones are needed."
            )

    @classmethod
    def simulation(cls) -> Policy:
        """One owner playing all sites: everything is allowed."""
        key = bytes(32)
        return cls(
            protection="none",
            per_site_results="rows",
            min_roster=1,
            rosters="any",
            halves=True,
            composition=True,
            alignment_key=key,
        )

    @property
    def allowed(self) -> int:
        """What may be seen of the site by itself, as a number: nothing (0), averages (1), or rows (2)."""
        return _ALLOWED[self.per_site_results]

    @property
    def verifies(self) -> bool:
        """Whether the site checks that questions are those of the ordered method."""
        return (self.verification or ("required" if self.per_site_results == "none" else "off")) == "required"

    @property
    def shows_composition(self) -> bool:
        """Whether the server sees how many of the site's rows are in each cluster."""
        return self.composition and not self.verifies

    def allows(self, method: str) -> bool:
        """Whether the method may be run at all."""
        return self.methods is None or method in self.methods

    def forbidden(self, order: Order) -> list[str]:
        """What an order chooses itself and may not, as ``name (kind)``. A private order needs ranges in any case."""
        chosen, allowed = order.chosen().items(), set(self.orders_may_choose)
        if order.privacy is not None:
            allowed.add("ranges")
        return [f"{name} ({choice})" for name, choice in chosen if choice not in allowed]

    def protection_of(self, method: str) -> Protection:
        """What the method computes with at this site."""
        return self.method_protection.get(method, self.protection)

    @property
    def level_rows(self) -> int | None:
        """The fewest rows that hold a level of a text column for the site to name it; None where it names none.

        Names have no noise: where a budget bounds what leaves, levels are listed."""
        if self.levels == "listed" or self.privacy is not None:
            return None
        return 1 if self.protection == "none" else self.min_group

    @property
    def protections(self) -> str:
        """The protection of the table, with the unit of its budget, and of other methods, as a ledger keeps it."""
        others = {name: rule for name, rule in self.method_protection.items() if rule != self.protection}
        unit = "" if self.privacy is None or self.privacy.unit_column is None else f" by {self.privacy.unit_column}"
        return ", ".join([self.protection + unit, *(f"{name}: {others[name]}" for name in sorted(others))])

    @property
    def bounds_table(self) -> bool:
        """Whether the budget bounds all that ever leaves of the table, not the releases of single runs only."""
        return {self.protection, *self.method_protection.values()} == {"noise"}

    def lets_join(self, roster: Collection[str], earlier: Sequence[Collection[str]]) -> bool:
        """Whether this site may be summed up with these sites, after those of the run so far."""
        if len(roster) < self.min_roster:
            return False
        if self.rosters == "any" or not earlier:
            return True
        return set(roster) == set(earlier[0]) if self.rosters == "fixed" else set(roster) <= set(earlier[-1])

    @property
    def fewest_of_half(self) -> int:
        """The fewest sites that half of a run's sites may be; 0 where this site is not summed up with half."""
        return self.min_roster if self.halves else 0

    def lets_halve(self, half: Collection[str], earlier: Sequence[Collection[str]]) -> bool:
        """Whether this site may be summed up with half of the sites of the sum before: neither half is too small."""
        rest = set(earlier[-1]) - set(half) if earlier else set()
        is_half = bool(earlier) and set(half) < set(earlier[-1]) and abs(len(half) - len(rest)) <= 1
        return self.halves and is_half and min(len(half), len(rest)) >= self.min_roster

    def objection(self, method: str, request: type[Request[Any]], *, is_masked: bool = False) -> Refusal | None:
        """Why this question may not be answered, or None.

        ``is_masked`` is what the site itself does to the answer, not what the question promises.
        """
        if not self.allows(method):
            return Refusal.METHOD_FORBIDDEN
        if not belongs(request, method):
            return Refusal.UNKNOWN_QUESTION
        if METHODS[method].needs_rows and self.protection_of(method) != "none":
            return Refusal.ROWS_PROTECTED
        reply = reply_type(request)
        is_allowed = (
            self.shows_composition if reply.content == "composition" else _LEVEL[reply.content] <= self.allowed
        )
        if not (is_masked or is_allowed):
            return Refusal.SINGLE_ANSWER_FORBIDDEN
        if self.per_site_results != "rows" and (reply.content == "rows" or has_row_axis(reply)):  # masked or not
            return Refusal.ROWS_FORBIDDEN
        return None


def has_row_axis(reply: type[object]) -> bool:
    """Whether an answer holds a number for every row: an axis declared ``rows``."""
    return any("rows" in item.array.axes for item in message_fields(reply) if item.array)
