"""Describing data before it is clustered: ``describe``."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.jobs import Job, sums_of
from coterie.cli.options import app
from coterie.cli.shared_options import asked_of_data, taking
from coterie.cli.terminal import print_json, say, show_table, tell, watching
from coterie.errors import InputError
from coterie.methods.shared.privacy import Privacy
from coterie.runtime.events import Write
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.estimators.describing import TableDescription

FILES = ("describe.json", "describe.csv", "ledger.jsonl")
"""What ``--out`` holds."""


@dataclass(frozen=True)
class DescribeJob(Job):
    """Which tables are described, under which policies."""

    keeps_unlike = True
    keeps_missing = True

    def estimator(self) -> Any:
        """What asks."""
        from coterie.estimators.describing import TableDescriber

        return TableDescriber(privacy=Privacy.of(self.privacy), random_state=self.seed)

    def describe(self, watch: Write) -> TableDescription:
        """Ask the sites; with a folder, write what they said."""
        from coterie.estimators.describing import described_tables

        describer = self.estimator()
        tables = {name: table for name, (table, _) in self.scanned_tables().items()}
        policies, out = self.policies(tables), Path(self.out) if self.out else None
        journal = None if out is None else out / "journal"
        made = described_tables(
            describer, tables, self.ranges, policy=policies, sums=sums_of(policies), journal=journal, events=watch
        )
        if out is not None:
            write_description(out, made)
        return made


def write_description(out: Path, made: TableDescription) -> None:
    """The description as JSON and as a table, and the ledger of every byte."""
    (out / "describe.json").write_text(json.dumps(made.to_json(), indent=2) + "\n")
    head, lines = made.table()
    with (out / "describe.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *([("" if cell is None else cell) for cell in line] for line in lines)])
    assert made.ledger is not None
    made.ledger.write(out)


@app.command()
@taking(asked_of_data)
def describe(
    asked: dict[str, Any],
    out: Annotated[
        Path | None, typer.Option(help="Folder for describe.json, describe.csv and the ledger of every byte.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Describe the columns of all sites' files, before any clustering: what is there, and what to watch out for.

    Rows, missing values, means, deviations, quantiles and shares of categories over all sites, by sums. Sites protect
    their rows by --policy; over groups, quantiles are estimates.

    Examples: coterie describe north.csv south.csv west.csv

    coterie describe north.csv south.csv west.csv --epsilon 1 --ranges ranges.toml
    """
    if out is not None and any((out / name).exists() for name in (*FILES, "result.json", "journal")):
        raise InputError(f"{out} already holds a run; choose another folder.")
    job = DescribeJob(**asked, out="" if out is None else str(out))
    with watching(quiet=as_json) as watch:
        made = job.describe(watch)
    if as_json:
        print_json(made.to_json())
        return
    show_description(made)
    if out is not None:
        tell(f"{', '.join(FILES)} are in {out}/.")


def show_description(made: TableDescription) -> None:
    """Print the columns, and what is worth knowing of them."""
    about = "about " if made.privacy else ""
    title = f"{about}{made.rows:,.0f} rows over {count_of(made.sites, 'site')}"
    tell(title)
    _show_numbers(made)
    _show_categories(made)
    if made.min_group:
        say(
            f"Over groups of at least {made.min_group} rows: values that too few rows of a group share are pooled, "
            "and quantiles are estimates. Means and deviations are those of the values shown."
        )
    elif not made.privacy:
        say("Quantiles are within a twentieth of a deviation.")
    for note in made.notes:
        say(note.sentence, "- ")
    if made.scale != "none":
        say(f"Suggested: --scale {made.scale}.")
    if made.privacy:
        from coterie.report.privacy import privacy_facts, privacy_sentences, releases_table

        facts = privacy_facts(SimpleNamespace(privacy_=made.privacy, certificate_=made.certificate)) or {}
        for sentence in privacy_sentences(facts):
            say(sentence)
        show_table("What was released", *releases_table(facts))


def _show_numbers(made: TableDescription) -> None:
    numbers = [column for column in made.columns if column.shares is None]
    names = list(dict.fromkeys(name for column in numbers for name in column.quantiles or ()))
    head, lines = ["column", "missing", "mean", "deviation", *names], []
    for column in numbers:
        quantiles = [(column.quantiles or {}).get(name) for name in names]
        lines.append([column.name, *map(_shown, [column.missing, column.mean, column.deviation, *quantiles])])
    if numbers:
        show_table("Numbers", head, lines, needed=4)
    shares = [column.name for column in numbers if column.kind == "yes or no"]
    if shares:
        say(f"{', '.join(shares)}: all values are 0 or 1, and the mean is the share of 1.")


def _show_categories(made: TableDescription) -> None:
    lines = []
    for column in made.columns:
        if column.shares is not None:
            largest = sorted(column.shares.items(), key=lambda item: -item[1])
            text = ", ".join(f"{category} {share:.1%}" for category, share in largest)
            lines.append([column.name, _shown(column.missing), text])
    if lines:
        show_table("Categories", ["column", "missing", "shares of the values that are there"], lines)


def _shown(cell: Any) -> str:
    return "" if cell is None else f"{cell:,.0f}" if float(cell).is_integer() and abs(cell) < 1e15 else f"{cell:.4g}"
