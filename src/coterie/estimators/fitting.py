"""Fit any estimator over tables that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import Schedule, in_process
from coterie.errors import ColumnsDiffer, InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.checks import check_rules
from coterie.estimators.given import Rules, opened_sites
from coterie.estimators.labelled import Labelled
from coterie.messages.identity import Identity
from coterie.messages.site_api import Column, Table
from coterie.messages.verbs import Protocol
from coterie.methods.method import RunResult
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.alignment import listed
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Missing
from coterie.methods.shared.scales import Scale
from coterie.methods.shared.selection import places_of
from coterie.runtime.channel import Channel
from coterie.runtime.events import Write
from coterie.runtime.journal import Journal
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import Progress, run
from coterie.runtime.terms import Terms
from coterie.secure.certificates import Conclusion, RunAuthority
from coterie.secure.handshake import ordered_plainly
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import BLOCK_BYTES, identifying_columns
from coterie.sites.tables.reading import reading_by

E = TypeVar("E", bound=FederatedEstimator)


def fit(
    estimator: E,
    tables: Any,
    *,
    site_column: str | None = None,
    engine: Literal["inprocess"] = "inprocess",
    policy: Rules | Mapping[str, Rules] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    journal: str | Path | None = None,
    resume: bool = False,
    scale: Scale = "none",
    missing: Missing = "refuse",
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    max_share: float | None = None,
    halves: bool = False,
    profile: bool | Sequence[str] = False,
    columns: Sequence[str] | None = None,
    key: str | None = None,
    terms: Terms | None = None,
    watch: Callable[[Progress], None] | None = None,
    events: Write | None = None,
    schedule: Schedule | None = None,
    **reading: Any,
) -> E:
    """Fit an estimator over one table per site and return it.

    ``tables`` maps each site's name to a table, an array, a data frame or a file; those of a list are called site1,
    site2, and so on. One data frame or file is split by its ``site_column``. Further options, such as ``ignore`` and
    ``categories``, are those of :func:`coterie.open_table`. Sites first agree on the columns to use: ``columns`` by
    name, or all of them, which every site must then hold, in any order. They prepare them as ``scale`` and
    ``missing`` say, all by questions. The fitted estimator applies the same preparation and takes raw rows, columns
    in the order of ``columns`` or of the first table; data frames it matches by the columns' names, and encodes
    their text.

    Sums are masked, and every site protects its rows by ``policy``, the default one if none is given: a policy, its
    name or its file, for all sites or by site. If one owner holds all tables, use ``sums="plain"`` and
    ``policy="simulation"``. The rows' labels (``labels_``, ``labels_by_site_``) are found when first asked for. The
    folder ``journal`` keeps what a run needs to continue after a crash, with ``resume=True``. ``watch`` is called
    after every exchange, ``events`` with every event of the run as a plain dict (:mod:`coterie.runtime.events`).

    Three options limit what a site that lies can do. With ``ranges`` (lows, highs) every value counts as the nearest
    one of its column's range, and each site's sums are limited by it; with ``scale="minmax"`` a value outside is
    refused. A site that holds more than ``max_share`` of all rows refuses to take part. ``halves=True`` compares the
    final clusters over two halves of the sites, where policies allow it: ``halves_``.

    ``profile=True`` asks, when the clusters are final, what is in each of them: ``profiles_``, in original units, in
    two or three more rounds of sums. ``profile=["age"]`` describes them by columns, too, that they are not made of:
    without ``columns`` these are all others. Where every site's policy allows it, ``composition_`` then has the
    number of each site's rows in each cluster. In a private run profiles take a share of what it may give away, and
    ``ranges`` has those of such columns after the others.

    Where sites hold columns of the same rows (:class:`~coterie.VerticalKernelPCA`), ``key`` names the column that
    identifies rows; without one rows are matched by position.
    """
    if engine != "inprocess":
        raise InputError(f"engine={engine!r} is unknown; use 'inprocess'.")
    opened, rules = opened_sites(estimator, tables, policy, site_column=site_column, key=key, reading=reading)
    options = PreparationOptions(scale, missing, ranges, max_share, halves)
    asked = checked(estimator, opened, rules, options, sums=sums, profile=profile, columns=columns)
    if estimator.privacy is None:  # a private run must not depend on a row, and noise hides what identifies it
        check_described(columns_described(profile, opened), opened)
    folder = None if journal is None else Path(journal)
    kept = None if folder is None else Journal(folder, resume=resume)
    extra = {} if key is None else {"key": key}
    seed = estimator.random_state if isinstance(estimator.random_state, int | np.integer) else None
    own = folder and folder / "sites"
    with in_process(opened, policy=rules, folder=own, schedule=schedule, seed=seed) as channel:
        estimator.na_ = shared_na(opened.values())
        estimator.levels_ = sorted({column for table in opened.values() for column in getattr(table, "levels", ())})
        fitted = fit_over(
            channel,
            estimator,
            asked.columns,
            asked.options,
            order=channel.analyst,
            sums=sums,
            journal=kept,
            terms=terms,
            watch=watch,
            events=events,
            settings=extra,
            authority=RunAuthority(channel.authority, "run"),
        )
    if isinstance(fitted, Labelled):
        fitted.keep_tables(opened, None if site_column is None else tables, reading_by(**reading))
    return fitted


class Asked(NamedTuple):
    """What a run is asked to do, checked: whose tables, under which policies, which columns, prepared how."""

    tables: Mapping[str, Table]
    rules: Mapping[str, Policy]
    columns: Mapping[str, tuple[Column, ...]]
    options: PreparationOptions


def checked(
    estimator: FederatedEstimator,
    tables: Mapping[str, Table],
    rules: Mapping[str, Policy],
    options: PreparationOptions,
    *,
    sums: str = "masked",
    profile: bool | Sequence[str] = False,
    columns: Sequence[str] | None = None,
) -> Asked:
    """What :func:`fit` is asked to do with opened tables; ``InputError`` where that cannot be done."""
    layers_of(sums)
    check_rules(estimator, tables, rules, is_masked=sums == "masked")
    described = columns_described(profile, tables)
    used = columns_used(estimator, tables, columns, [column.name for column in described])
    besides = tuple(column for column in described if column not in used.get("", ()))
    options = replace(options, besides=besides, profile=profile is not False)
    options.check(len(tables))
    estimator.check_options(options)
    estimator.check(len(column_names(estimator, used)))
    return Asked(tables, rules, used, options)


def fit_over(
    channel: Channel,
    estimator: E,
    columns: Mapping[str, tuple[Column, ...]],
    options: PreparationOptions,
    *,
    order: SignedOrder | Identity,
    sums: Literal["masked", "plain"] = "masked",
    journal: Journal | None = None,
    terms: Terms | None = None,
    watch: Callable[[Progress], None] | None = None,
    events: Write | None = None,
    settings: Mapping[str, Any] | None = None,
    authority: RunAuthority | None = None,
) -> E:
    """Fit an estimator over the sites of any engine; ``columns`` are those the sites are to agree on.

    ``order`` is what an analyst signed, or the analyst who signs it here. ``authority`` is who certified the sites,
    for the certificate of the run.
    """
    names = column_names(estimator, columns)
    header = None if journal is None else journal.header
    estimator.begin(None if header is None else header.settings.get("parameters"))
    ledger, (layer,) = Ledger(), layers_of(sums)
    if isinstance(order, Identity):
        asked = Order.of(estimator, next(iter(columns.values()), ()), options, None if header is None else header.run)
        order = SignedOrder.by(order, asked)
    conclusion, protocol = whole_run(estimator, order, layer, authority)
    outcome = run(
        protocol,
        channel,
        method=estimator.method,
        terms=terms,
        layers=[layer],
        ledger=ledger,
        journal=journal,
        settings={**_settings(estimator, names, options), "sums": sums, **(settings or {})},
        watch=watch,
        events=events,
        identity=order.read().identity,
    )
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator.capabilities_, estimator.halves_, estimator.options_ = outcome.capabilities, outcome.halves, options
    estimator.profiles_, estimator.composition_ = outcome.profile, outcome.composition
    estimator._matches_names = True
    estimator.set_privacy(outcome.privacy)
    drawn = getattr(layer, "public_seed", None)
    estimator.public_seed_ = estimator.run_seed if drawn is None else drawn
    estimator.certificate_ = conclusion.certificate(ledger.run, ledger.sites())
    estimator.set_result(outcome.result, outcome.preparation, ledger)
    return estimator


def whole_run(
    estimator: FederatedEstimator, order: SignedOrder, layer: MaskedSums | PlainSums, authority: RunAuthority | None
) -> tuple[Conclusion, Protocol[RunResult]]:
    """What collects the sites' statements, and the protocol of a run from its order to these."""
    ordered = layer.ordered if isinstance(layer, MaskedSums) and not estimator.splits_columns else ordered_plainly
    conclusion = Conclusion(order.to_bytes(), authority)
    return conclusion, conclusion.after(ordered(order, estimator.run_seed))


def shared_na(tables: Iterable[Table]) -> dict[str, list[Any]]:
    """What stood for missing values at all sites, by column of the files."""
    first, *others = (getattr(table, "na", {}) for table in tables)
    return {
        column: list(values)
        for column, values in first.items()
        if all(list(other.get(column, ())) == list(values) for other in others)
    }


def layers_of(sums: str) -> list[MaskedSums | PlainSums]:
    """How sums are taken over the sites."""
    if sums not in ("masked", "plain"):
        raise InputError(f"sums={sums!r} is neither 'masked' nor 'plain'.")
    return [MaskedSums()] if sums == "masked" else [PlainSums()]


def columns_described(profile: bool | Sequence[str], tables: Mapping[str, Table]) -> tuple[Column, ...]:
    """The columns to describe clusters by that are named; one of text by its categories."""
    if isinstance(profile, bool):
        return ()
    if isinstance(profile, str):
        raise InputError(f"profile={profile!r}; give a list of columns, [{profile!r}], or True for those of the run.")
    first = next(iter(tables.values()))
    named = {name: _described_by(name, first) for name in profile}
    absent = [name for name, columns in named.items() if not columns]
    if absent:
        raise InputError(
            f"profile names {listed(list(map(repr, absent)))}, which the first table does not have; it has "
            f"{listed([column.name for column in first.columns])}."
        )
    return tuple(dict.fromkeys(column for columns in named.values() for column in columns))


def _described_by(name: str, table: Table) -> list[Column]:
    """The columns of a table by this name: one, those of a text column's categories, or a category that it lacks."""
    own = [column for column in table.columns if column.name == name or column.name.startswith(f"{name}=")]
    (place,) = places_of(table, [name])
    return own or ([] if place is None else [Column(name, table.columns[place].kind)])


def check_described(described: Collection[Column], tables: Mapping[str, Table]) -> None:
    """Raise, before anything is sent, for columns that identify rows."""
    for site, table in tables.items():
        identifying = identifying_columns(table, [column.name for column in described])
        if identifying:
            raise InputError(
                f"profile names {listed(sorted(map(repr, identifying)))}: at {site} every row has a whole number of "
                "its own there, which identifies it. Leave it out of profile."
            )


def columns_used(
    estimator: FederatedEstimator,
    tables: Mapping[str, Table],
    names: Sequence[str] | None,
    described: Collection[str] = (),
) -> dict[str, tuple[Column, ...]]:
    """The columns that sites are to agree on: the named ones, or all but those that clusters are ``described`` by
    alone. Every site must then hold all of them."""
    if estimator.splits_columns:
        if names is not None:
            raise InputError(f"columns: with {type(estimator).__name__} every site uses its own; leave columns out.")
        return {name: table.columns for name, table in tables.items()}
    first, *others = tables.values()
    held = {column.name: column for column in first.columns}
    if names is not None:
        return {"": tuple(held.get(name, Column(name)) for name in names)}
    shared = [name for name in held if all(any(c.name == name for c in table.columns) for table in others)]
    differences = {
        site: (
            *(f"column {name!r} is missing" for name in held if all(c.name != name for c in table.columns)),
            *(f"column {c.name!r} is held here and not by all" for c in table.columns if c.name not in held),
        )
        for site, table in tables.items()
    }
    differences = {site: texts for site, texts in differences.items() if texts}
    if differences:
        where = "; ".join(f"{site}: {', '.join(texts)}" for site, texts in differences.items())
        remedy = f"use columns={shared}, which all sites hold" if shared else "no column is held by all of them"
        raise ColumnsDiffer(f"sites do not hold the same columns. {where}; {remedy}.", differences)
    return {"": tuple(column for column in first.columns if column.name not in described)}


def column_names(estimator: FederatedEstimator, columns: Mapping[str, tuple[Column, ...]]) -> list[str]:
    """The columns of all rows: the first table's, or every site's own one after the other."""
    if not estimator.splits_columns:
        return [column.name for column in next(iter(columns.values()))]
    return [f"{site}.{column.name}" for site, own in columns.items() for column in own]


def _settings(estimator: FederatedEstimator, names: list[str], options: PreparationOptions) -> dict[str, Any]:
    """What decides the questions of a run: kept in its journal, and the same when it is resumed."""
    ranges = options.ranges
    return {
        "estimator": type(estimator).__name__,
        "parameters": estimator.settings(),
        "columns": names,
        "scale": options.scale,
        "missing": options.missing,
        "ranges": None if ranges is None else [np.asarray(r, float).tolist() for r in ranges],
        "max_share": options.max_share,
        "halves": options.halves,
        "profile": options.profile,
        "besides": [column.name for column in options.besides],
        "block_bytes": BLOCK_BYTES,
    }
