"""Running a job over a federation."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.jobs import Job, read_job
from coterie.cli.run_state import Claimed, read_state
from coterie.cli.terminal import Interrupted, errors, show_result, watching
from coterie.engines.nvflare.kits import read_kit
from coterie.engines.nvflare.session import Session
from coterie.errors import CoterieError, InputError, RunError
from coterie.runtime.events import EVENTS, EventFile

if TYPE_CHECKING:
    from coterie.deployment.order import Order

DEADLINE = 60.0
"""Seconds an exchange may take, unless the job sets a deadline."""


def check_installed() -> None:
    """Raise ``InputError`` if NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise InputError("this command needs NVFlare, which is not installed; run pip install 'coterie[nvflare]'.")


def order_of(job: Job) -> Order:
    """The order for a job; data and policies are the sites' own."""
    from coterie.deployment.order import Order

    parameters = {"n_clusters": job.clusters, "random_state": job.seed, **job.settings}
    columns = [] if job.estimator().splits_columns else _columns(job)
    order = Order(
        "0" * 32,
        job.method,
        parameters,
        columns,
        job.scale,  # type: ignore[arg-type]
        job.missing,  # type: ignore[arg-type]
        ranges=job.ranges_of(columns),
        max_share=job.max_share,
        halves=job.halves,
        sums=job.sums or "masked",  # type: ignore[arg-type]
        quorum=job.quorum,
        deadline=job.deadline or DEADLINE,
        settings={name: value for name, value in asdict(job).items() if name not in ("data", "policy", "out")},
    )
    order.check()
    return order


def _columns(job: Job) -> list[str]:
    """The columns by name, text columns as one name per category."""
    names: list[str] = []
    for name in job.columns or ():
        names += [f"{name}={value}" for value in job.categories[name]] if name in job.categories else [name]
    return names


def run_remotely(config: Path, kit: Path, *, resume: bool, attempts: int, patience: float, as_json: bool) -> None:
    """Run the job of a file over the federation of an analyst's kit, and print its result."""
    check_installed()
    from coterie.deployment.remote import Remote

    job = read_job(config, needs_data=False)
    out = Path(job.out)
    job.check_folder(out, resume, kept="remote.json")
    order = order_of(job)
    with Session(read_kit(kit)) as session:
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
