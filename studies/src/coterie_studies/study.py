"""The frame of every study: trials that are run once each, and tables and figures made from what they measured.

A run folder holds ``study.json``, ``trials.jsonl`` (a line a finished trial), ``tables/``, ``figures/`` and a
``README.md``. A run may be interrupted anywhere; resuming runs what is left, and what was skipped for want of data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.maths.arithmetic import fixed_threads
from coterie_studies.datasets import DataMissing
from coterie_studies.folder import Finished, RunFolder, Scope
from coterie_studies.tables import Estimate, Row, estimate, markdown, write_csv

__all__ = ["Findings", "Label", "Scope", "Study", "Trial", "Watch", "run_study"]

Label = str | int | float
Watch = Callable[[int, int, str], None]
"""Told after every trial: how many are done, of how many, and which it was."""


@dataclass(frozen=True)
class Trial:
    """One measurement: a key of its own, labels to find it by, and a function that returns named numbers.

    The function raises :class:`~coterie_studies.datasets.DataMissing` where its data is not there.
    """

    key: str
    measure: Callable[[], Mapping[str, float]]
    labels: Mapping[str, Label] = field(default_factory=dict)

    def run(self) -> Finished:
        """Measure, numerical libraries on one thread each; data that is not there makes it a skipped trial."""
        began = time.perf_counter()
        try:
            with fixed_threads():
                values, skipped = dict(self.measure()), ""
        except DataMissing as problem:
            values, skipped = {}, str(problem)
        return Finished(self.key, values, skipped, time.perf_counter() - began)


@dataclass(frozen=True)
class Study:
    """A named list of trials and what is written down about them."""

    name: str
    title: str
    trials: Callable[[Scope], Sequence[Trial]]
    write: Callable[[Findings], str]
    """Writes tables and figures and returns the summary, in Markdown."""
    quick_seeds: int = 2
    full_seeds: int = 10

    def scope(self, quick: bool, seeds: int | None = None) -> Scope:
        """A scope of this study, by default with its own number of seeds."""
        made = Scope(quick, (self.quick_seeds if quick else self.full_seeds) if seeds is None else seeds)
        if made.seeds < 1:
            raise InputError(f"seeds={seeds} must be at least 1.")
        return made


@dataclass(frozen=True)
class Findings:
    """The finished trials of a run folder, and where to write what they show."""

    folder: Path
    scope: Scope
    trials: Sequence[Trial]
    finished: Mapping[str, Finished]

    def values(self, name: str, **labels: Label) -> list[float]:
        """One measured number of every trial with these labels, in the order of the study."""
        return [one.values[name] for one in self.select(**labels) if name in one.values]

    def estimate(self, name: str, **labels: Label) -> Estimate:
        """Its mean with the interval over seeds."""
        return estimate(self.values(name, **labels))

    def select(self, **labels: Label) -> list[Finished]:
        """The trials with these labels that were not skipped, in the order of the study."""
        fits = [trial for trial in self.trials if labels.items() <= trial.labels.items()]
        return [self.finished[trial.key] for trial in fits if not self.finished[trial.key].skipped]

    def skipped(self) -> dict[str, str]:
        """The trials that could not be run, and why."""
        found = (self.finished[trial.key] for trial in self.trials)
        return {one.key: one.skipped for one in found if one.skipped}

    def table(self, name: str, rows: Sequence[Row]) -> str:
        """Write a table as CSV and Markdown; returns the latter."""
        folder = self.folder / "tables"
        folder.mkdir(exist_ok=True)
        write_csv(folder / f"{name}.csv", rows)
        text = markdown(rows)
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
        return text

    def figure(self, name: str) -> Path:
        """Where to draw a figure."""
        folder = self.folder / "figures"
        folder.mkdir(exist_ok=True)
        return folder / f"{name}.png"


def run_study(
    study: Study,
    folder: Path,
    *,
    quick: bool | None = None,
    seeds: int | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    workers: int = 1,
) -> Findings:
    """Run a study's trials, each once, and write its tables, figures and summary into the folder.

    ``resume`` goes on with what an earlier run left, in the scope it was begun with. With several ``workers``
    trials run in processes of their own; the numbers are the same.
    """
    kept = RunFolder(folder)
    scope = _opened(study, kept, quick, seeds, resume)
    trials = list(study.trials(scope))
    if len({trial.key for trial in trials}) < len(trials):
        raise ValueError(f"study {study.name!r} has two trials of one key")
    finished = {key: one for key, one in kept.finished().items() if not one.skipped}
    left = [trial for trial in trials if trial.key not in finished]
    for done in _measured(left, workers):
        kept.append(done)
        finished[done.key] = done
        if watch is not None:
            watch(sum(trial.key in finished for trial in trials), len(trials), done.key)
    findings = Findings(folder, scope, trials, finished)
    _write_readme(study, findings, kept)
    return findings


def _opened(study: Study, kept: RunFolder, quick: bool | None, seeds: int | None, resume: bool) -> Scope:
    if resume and kept.is_begun:
        return kept.resume(study.name, quick, seeds)
    scope = study.scope(bool(quick), seeds)
    kept.begin(study.name, scope)
    return scope


def _measured(trials: Sequence[Trial], workers: int) -> Iterator[Finished]:
    """Trials as they finish, here or in worker processes."""
    if workers <= 1 or len(trials) <= 1:
        for trial in trials:
            yield trial.run()
        return
    from sklearn.utils.parallel import Parallel, delayed

    many: Any = Parallel(n_jobs=min(workers, len(trials)), return_as="generator_unordered")
    yield from many(delayed(trial.run)() for trial in trials)


def _write_readme(study: Study, findings: Findings, kept: RunFolder) -> None:
    seeds = findings.scope.seeds
    told = [f"# {study.title}", "", study.write(findings).strip(), ""]
    skipped = findings.skipped()
    if skipped:
        told += ["## Skipped", "", *[f"- `{key}`: {why}" for key, why in skipped.items()], ""]
    told += ["## How it was run", "", f"Study `{study.name}`, {findings.scope.name} scope, {seeds} seed"]
    told[-1] += "s." if seeds > 1 else "."
    told += [f"- {', '.join(f'{name} {value}' for name, value in one.items())}" for one in kept.versions()]
    (findings.folder / "README.md").write_text("\n".join(told) + "\n", encoding="utf-8")
