"""``coterie.plan``: rehearse a run of each method, and count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import clone

from coterie.engines.inprocess import ANALYST
from coterie.errors import CoterieError, InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.fitting import Asked, checked, layers_of, whole_run
from coterie.estimators.given import Rules as Policies
from coterie.estimators.given import opened_sites
from coterie.extents import Extent
from coterie.messages.identity import Authority, Identity
from coterie.messages.schema import doing_of
from coterie.messages.site_api import Table, rows_behind
from coterie.messages.verbs import Protocol
from coterie.methods.method import RunResult
from coterie.methods.order import Order, SignedOrder
from coterie.methods.registry import METHODS
from coterie.methods.shared.choosing import NoneSupported
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import Privacy
from coterie.planning.amounts import Rehearsals, bytes_down, bytes_up, largest_message, longest
from coterie.planning.budgets import budget_uses
from coterie.planning.made_up import Rules, Shape, made_up, tables_of
from coterie.planning.plans import MethodPlan, NotPlanned, Plan, SeenByServer, SitePlan, recommended
from coterie.planning.rehearsal import Rehearsed, rehearsed
from coterie.planning.speeds import Estimates, Speed, Work, speeds
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger, Total
from coterie.secure.layer import MaskedSums
from coterie.sites.tables.rows import BLOCK_BYTES, HELD_BYTES

WIDE_SEED = 2**31 - 2
"""In the place of a public seed that is drawn when the run begins: nearly all take as many bytes."""
SEALED = ("nothing", "schema")
"""Content of answers in which there is nothing of rows."""


def plan(
    estimators: FederatedEstimator | Sequence[FederatedEstimator],
    tables: Any = None,
    *,
    shapes: Mapping[str, Shape | tuple[int, int] | tuple[int, Sequence[str]]] | None = None,
    policy: Policies | Mapping[str, Policies] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    analyst: str = ANALYST,
    **options: Any,
) -> Plan:
    """What a run of :func:`coterie.fit` would take and disclose, before anything is sent.

    The run is rehearsed without sites: the real protocol, its real layers and bytes, over made-up rows of the same
    shapes. Bytes, rounds and exchanges are exact where rows decide nothing of them, and else between a least and a
    most; they are those of a run in which no site drops out. Of ``tables`` only the number of rows and the columns
    are used; or ``shapes`` gives both by site: ``{"north": (4000, 24), "south": (900, ["age", ...])}``. Of several
    estimators one is recommended. ``policy``, ``sums`` and further options are those of :func:`coterie.fit`.
    ``analyst`` is who signs the order over a federation: orders hold the name.

    >>> import coterie
    >>> shapes = {"north": (4000, 5), "south": (900, 5), "west": (2100, 5)}
    >>> planned = coterie.plan(coterie.FederatedPCA(2, random_state=0), shapes=shapes)["federated-pca"]
    >>> planned.rounds.is_exact, planned.bytes_up.is_exact
    (True, True)
    """
    if (tables is None) == (shapes is None):
        raise InputError("a plan needs either tables or shapes; give one of them.")
    asked = [estimators] if isinstance(estimators, FederatedEstimator) else list(estimators)
    if not asked:
        raise InputError("a plan needs an estimator; give one, or several in a list.")
    given, options = tables_of(shapes) if shapes is not None else tables, {"policy": policy, "sums": sums, **options}
    return plan_each({each.method: partial(Ask, each, given, options) for each in asked}, analyst)


class Ask(NamedTuple):
    """A run to be planned: its estimator, and the tables and options for :func:`coterie.fit`."""

    estimator: FederatedEstimator
    tables: Any
    options: Mapping[str, Any]


def plan_each(asks: Mapping[str, Callable[[], Ask]], analyst: str = ANALYST) -> Plan:
    """The plan of runs by method. What cannot be run is said so; ``CoterieError`` where that is all there is."""
    plans, refused, shown = [], [], dict[str, Table]()
    for method, ask in asks.items():
        try:
            estimator, tables, options = ask()
            asked = checked_run(estimator, tables, **options)
            plans.append(_planned(clone(estimator), asked, options.get("sums", "masked"), analyst))
            shown = dict(asked.tables)
        except CoterieError as problem:
            if len(asks) == 1:
                raise
            refused.append(NotPlanned(method, str(problem)))
    if not plans:
        raise InputError(" ".join(f"{each.method}: {each.why}" for each in refused))
    return Plan(
        {name: rows_behind(table) for name, table in shown.items()},
        {name: len(table.columns) for name, table in shown.items()},
        tuple(plans),
        tuple(refused),
        recommended(tuple(plans), {name: method.use for name, method in METHODS.items()}),
        speeds().machine,
    )


def checked_run(
    estimator: FederatedEstimator,
    tables: Any,
    *,
    policy: Policies | Mapping[str, Policies] | None = None,
    sums: str = "masked",
    profile: bool | Sequence[str] = False,
    columns: Sequence[str] | None = None,
    site_column: str | None = None,
    key: str | None = None,
    **others: Any,
) -> Asked:
    """What :func:`coterie.fit` is asked to do; ``InputError`` where it would refuse."""
    prepared = {item.name: others.pop(item.name) for item in fields(PreparationOptions) if item.name in others}
    opened, rules = opened_sites(estimator, tables, policy, site_column=site_column, key=key, reading=others)
    options = PreparationOptions(**prepared)
    return checked(estimator, opened, rules, options, sums=sums, profile=profile, columns=columns)


def _planned(estimator: FederatedEstimator, asked: Asked, sums: str, analyst: str) -> MethodPlan:
    """The plan of one method."""
    made = _rehearsals(estimator, asked, sums, analyst)
    largest = made.least if made.most is None else made.most
    sites = {
        name: SitePlan(bytes_up(made, name), bytes_down(made, name), _total(made, "rounds", name, both=True))
        for name in asked.tables
    }
    method = METHODS[estimator.method]
    return MethodPlan(
        method.name,
        method.title,
        type(estimator).__name__,
        bytes_up(made),
        bytes_down(made),
        _total(made, "floats_up"),
        _total(made, "rounds"),
        _total(made, "rounds_masking"),
        made.amount(lambda ledger: len(ledger.exchanges)),
        sites,
        sums == "masked" and not estimator.splits_columns,
        any(policy.verifies for policy in asked.rules.values()) and not estimator.splits_columns and sums == "masked",
        estimator.privacy is not None,
        tuple(_seen(largest.ledger)),
        method.discloses,
        tuple(budget_uses(estimator, asked.rules, {name: site.questions for name, site in sites.items()})),
        {engine: _estimates(speed, made, asked, estimator) for engine, speed in speeds().engines.items()},
        largest_message(made),
    )


def _total(made: Rehearsals, what: Total, site: str | None = None, *, both: bool = False) -> Any:
    """A total of the ledger; of rounds perhaps ``both`` kinds."""
    also: tuple[Total, ...] = (what, "rounds_masking") if both else (what,)
    return made.amount(lambda ledger: sum(ledger.total(name, site) for name in also))


def _rehearsals(estimator: FederatedEstimator, asked: Asked, sums: str, analyst: str) -> Rehearsals:
    """As over made-up rows; where rows decide anything, with the least and the most of it as well."""
    likely: Rehearsed | None
    try:
        likely = _rehearsed(estimator, asked, sums, analyst, Extent.AS_MADE_UP)
    except NoneSupported:  # for made-up rows: of real ones nobody knows
        likely = None
    if likely is not None and not likely.is_open:
        return Rehearsals(likely, likely, likely)
    least, most = (_rehearsed(estimator, asked, sums, analyst, extent) for extent in (Extent.LEAST, Extent.MOST))
    if least is None:
        raise InputError(f"{estimator.method} has too many rounds to be planned.")
    return Rehearsals(least, most, likely)


def _rehearsed(
    estimator: FederatedEstimator, asked: Asked, sums: str, analyst: str, extent: Extent
) -> Rehearsed | None:
    """One rehearsal of the whole run, from its order to the sites' statements."""
    if not isinstance(estimator.random_state, int | np.integer):
        estimator.set_params(random_state=WIDE_SEED)
    estimator.begin()
    signer = Identity.certified_by(Authority(bytes(32)), analyst, bytes(32), "analyst")
    columns = next(iter(asked.columns.values()), ())
    order = SignedOrder.by(signer, Order.of(estimator, columns, asked.options, "0" * 32))

    def protocol(layer: MaskedSums | PlainSums) -> Protocol[RunResult]:
        return whole_run(estimator, order, layer, None)[1]

    def tables() -> dict[str, Table]:
        return {
            name: made_up(table, _rules(estimator, asked, name), place)
            for place, (name, table) in enumerate(asked.tables.items())
        }

    (layer,) = layers_of(sums)
    is_masked = isinstance(layer, MaskedSums)
    return rehearsed(protocol, tables, asked.rules, estimator.method, extent, is_masked=is_masked)


def _rules(estimator: FederatedEstimator, asked: Asked, site: str) -> Rules:
    """How a site shows its rows."""
    privacy, ranges = Privacy.of(estimator.privacy), asked.options.ranges
    is_grouped = privacy is None and asked.rules[site].protection_of(estimator.method) == "groups"
    ends = None if ranges is None else (np.asarray(ranges[0], float), np.asarray(ranges[1], float))
    each = estimator.sends_rows or estimator.splits_columns or privacy is not None
    return Rules(asked.rules[site].min_group if is_grouped else 0, each, ends)


def _seen(ledger: Ledger) -> Iterator[SeenByServer]:
    """Every kind of answer that is computed from rows, once."""
    known = {
        (exchange.asked, exchange.content, exchange.seen): exchange
        for exchange in ledger.exchanges
        if exchange.content not in SEALED
    }
    for asked, content, seen in known:
        yield SeenByServer(asked, doing_of(asked), content, seen)  # type: ignore[arg-type]


def _estimates(speed: Speed, made: Rehearsals, asked: Asked, estimator: FederatedEstimator) -> Estimates:
    """Seconds and memory with one engine."""

    def seconds(rehearsal: Rehearsed | None) -> float | None:
        return None if rehearsal is None else work_of(rehearsal.ledger, asked, estimator).seconds(speed)

    largest = made.least if made.most is None else made.most
    held = [_held(table) for table in asked.tables.values()]
    message, is_one = longest(largest.ledger), speed.server_memory == speed.memory
    all_messages = message * len(held)
    site = (sum(held) + all_messages if is_one else max(held) + message) / 1e6 + speed.memory
    server = site if is_one else speed.server_memory + all_messages / 1e6
    least, most = seconds(made.least) or 0.0, seconds(made.most)
    likely = seconds(made.likely)
    return Estimates(least if likely is None else likely, least, most, site, server)


def _held(table: Table) -> int:
    """Bytes of a table in memory: all of a small one, a block of a large one."""
    whole = 8 * table.n_rows * len(table.columns)
    return whole if whole <= HELD_BYTES else BLOCK_BYTES


def work_of(ledger: Ledger, asked: Asked, estimator: FederatedEstimator) -> Work:
    """What a run with this ledger has to do."""
    values = {name: table.n_rows * len(table.columns) for name, table in asked.tables.items()}
    groups = {name: _rules(estimator, asked, name).min_group for name in asked.tables}
    shown = {name: value // (groups[name] + 1 if groups[name] else 1) for name, value in values.items()}
    sizes = [len(exchange.sites) for exchange in ledger.exchanges]
    masked = [len(exchange.sites) for exchange in ledger.exchanges if exchange.seen == "masked"]
    read = (name for exchange in ledger.exchanges if exchange.content not in SEALED for name in exchange.sites)
    return Work(
        len(sizes),
        sum(sizes),
        sum(size * size for size in masked),
        ledger.total("bytes_up") + ledger.total("bytes_down"),
        sum(shown[name] for name in read),
        sum(value for name, value in values.items() if groups[name]),
    )
