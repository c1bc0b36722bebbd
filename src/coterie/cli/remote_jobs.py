"""Running a job over a federation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.inputs import OF_A_SITE
from coterie.cli.jobs import Job, read_job
from coterie.cli.run_state import Claimed, read_state
from coterie.cli.terminal import Interrupted, errors, show_result, watching
from coterie.engines.nvflare.kits import read_kit
from coterie.engines.nvflare.session import Session
from coterie.errors import CoterieError, InputError, RunError
from coterie.runtime.events import EVENTS, EventFile
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.tables.reading import divided_name, transformed_name

if TYPE_CHECKING:
    from coterie.deployment.job import RemoteJob
    from coterie.messages.identity import Identity

DEADLINE = 60.0
"""Seconds an exchange may take, unless the job sets a deadline."""


def check_installed() -> None:
    """Raise ``InputError`` if NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise InputError("this command needs NVFlare, which is not installed; run pip install 'coterie[nvflare]'.")


def remote_job(job: Job, analyst: Identity) -> RemoteJob:
    """The same over a federation, ordered and signed by an analyst; data and policies are the sites' own."""
    from coterie.deployment.job import RemoteJob
    from coterie.messages.site_api import Column
    from coterie.methods.order import Order, SignedOrder
    from coterie.methods.shared.preparation import PreparationOptions

    _check_reading(job)
    estimator = job.estimator()
    columns = [] if estimator.splits_columns else columns_of(job, job.columns or ())
    others = [name for name in columns_of(job, job.described) if name not in columns]
    ranges, besides = job.ranges_of(columns, others), tuple(map(Column, others))
    profile = job.profiles_by is not False
    options = PreparationOptions(
        job.scale,  # type: ignore[arg-type]
        job.missing,  # type: ignore[arg-type]
        ranges,
        job.max_share,
        job.halves,
        besides,
        profile,
    )
    order = Order.of(estimator, tuple(map(Column, columns)), options)
    remote = RemoteJob(
        SignedOrder.by(analyst, order),
        job.seed,
        job.sums or "masked",  # type: ignore[arg-type]
        job.quorum,
        job.deadline or DEADLINE,
        {name: value for name, value in asdict(job).items() if name not in ("data", "policy", "out")},
    )
    remote.check()
    return remote


def columns_of(job: Job, chosen: Sequence[str]) -> list[str]:
    """Columns by the names that sites' tables have: one per category, and what is done to numbers."""
    numbers = [name for name in chosen if name not in job.categories]
    names: list[str] = []
    for name in chosen:
        own = transformed_name(name, job.transforms.get(name))
        if job.normalise_rows is not None:
            own = divided_name(own, job.normalise_rows, len(numbers))
        names += [own] if name in numbers else [f"{name}={value}" for value in job.categories[name]]
    return names


def _check_reading(job: Job) -> None:
    """Refuse what only a site can say of its own file."""
    if job.show_rows:
        raise InputError("show_rows: a federation's rows are at its sites, and no report shows them; leave it out.")
    given = [name for name in ("reading", *OF_A_SITE) if getattr(job, name)]
    if given:
        raise InputError(
            f"{', '.join(given)}: sites of a federation read their own files; each says so by itself (coterie site "
            "start --na, --csv-decimal, ...). Leave it out of the job."
        )
    unlisted = [name for name, values in job.categories.items() if not values]
    if unlisted:
        raise InputError(
            f"categories of {', '.join(map(repr, unlisted))} are not listed; sites of a federation name them before "
            "a run, so list those that the order is for."
        )


def run_remotely(config: Path, kit: Path, *, resume: bool, attempts: int, patience: float, as_json: bool) -> None:
    """Run the job of a file over the federation of an analyst's kit, and print its result."""
    check_installed()
    from coterie.deployment.remote import Remote

    job = read_job(config, needs_data=False)
    out = Path(job.out)
    job.check_folder(out, resume, kept="remote.json")
    own_kit = read_kit(kit)
    with Session(own_kit) as session:
        order = remote_job(job, IdentityFiles(own_kit.folder).read("analyst", own_kit.name))
        session.connect(10.0)
        state = read_state(out)
        with Claimed(out) as claim, watching(state, quiet=as_json) as watch, EventFile(out / EVENTS, watch) as events:

            def say(line: str) -> None:
                if not as_json:
                    errors.print(line, highlight=False, markup=False, soft_wrap=True)

            remote = Remote(session, out, attempts, patience, say, events, job.sites, seen_until=state.last)
            try:
                remote.run(order, resume=resume)
            except KeyboardInterrupt:
                raise Interrupted(
                    "the run continues at the server; the same command with --resume follows it"
                ) from None
            except RunError:
                raise
            except CoterieError:
                (out / "remote.json").unlink(missing_ok=True)
                claim.give_back()
                raise
    show_result(job.out, json.loads((out / "result.json").read_text()), as_json)
