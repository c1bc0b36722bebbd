"""Options that several commands have in common, declared once: which data, prepared how, under which protection."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli import options as opt


def taking(*shared: Callable[..., dict[str, Any]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``shared`` besides its own; what these make of them is its first argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parts = [list(inspect.signature(part, eval_str=True).parameters.values()) for part in shared]

        def run(**given: Any) -> None:
            asked: dict[str, Any] = {}
            for part, items in zip(shared, parts, strict=True):
                asked |= part(**{item.name: given.pop(item.name) for item in items})
            command(asked, **given)

        first, *others = [item for items in parts for item in items]
        both = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in (first, *own, *others)]
        run.__name__, run.__module__, run.__doc__ = command.__name__, command.__module__, command.__doc__
        run.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in both}
        return run

    return decorate


@opt.reads_tables
def asked_of_data(
    data: Annotated[
        list[Path],
        typer.Argument(help="One file per site (Parquet, CSV, Arrow or npz), or one file with --site-column."),
    ],
    site_column: opt.SiteColumn = None,
    ranges: opt.Ranges = None,
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    tolerated: opt.Tolerated = None,
    unit: opt.Unit = None,
    rows_per_unit: opt.RowsPerUnit = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The sites' policy: private, strict, standard, research, a policy file, or simulation if all data "
            "is yours (no protection, plain sums). Default: standard, with --epsilon private; with --site-column, "
            "simulation."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The run's public seed.")] = 0,
    **reading: Any,
) -> dict[str, Any]:
    """Which files on this machine, under which protection, by the field names of ``Job``."""
    return {
        "data": [str(path) for path in data],
        "site_column": site_column,
        "ranges": opt.ranges_of(ranges),
        "privacy": opt.privacy_of(
            epsilon=epsilon, delta=delta, tolerated=tolerated, unit=unit, rows_per_unit=rows_per_unit
        ),
        "policy": policy,
        "seed": seed,
        **reading,
    }


def without_data(part: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The same options, of which the files may be left out."""
    own = inspect.signature(part, eval_str=True)
    kind = Annotated[
        list[Path] | None,
        typer.Argument(help="A job file in TOML, one file per site, or nothing, with --sites, --rows and --columns."),
    ]
    data, *others = own.parameters.values()

    def asked(**given: Any) -> dict[str, Any]:
        return part(**{**given, data.name: given[data.name] or []})

    asked.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[data.replace(annotation=kind, default=None), *others]
    )
    return asked


def asked_of_method(
    method: opt.Method = "federated-kmeans",
    settings: opt.Settings = None,
    scale: opt.Scale = "none",
    missing: opt.Missing = "refuse",
    max_share: opt.MaxShare = None,
) -> dict[str, Any]:
    """Which method, over rows prepared how, by the field names of ``Job``."""
    return {
        "method": method,
        "settings": opt.settings_of(settings),
        "scale": scale,
        "missing": missing,
        "max_share": max_share,
    }
