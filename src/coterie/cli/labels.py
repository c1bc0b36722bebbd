"""Labels of rows by a model: ``label``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.options import app
from coterie.cli.problems import CommandLine, message
from coterie.cli.terminal import console, print_json, tell
from coterie.errors import InputError
from coterie.files import private_file
from coterie.sites.tables.problems import Problem
from coterie.text import count_of


def label(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or its model.json.")],
    data: Annotated[
        Path, typer.Argument(help="Rows to label; they need the model's columns, by name, in any order.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the labels, as .csv or .parquet (default: DATA.labels.parquet)."),
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="A column to keep beside the labels.")] = None,
    na: opt.Na = None,
    csv_separator: opt.CsvSeparator = None,
    csv_decimal: opt.CsvDecimal = None,
    csv_encoding: opt.CsvEncoding = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Label rows with the model of a run. Nothing is sent.

    Rows are read as the run's were: their columns by name, text by its categories, codes for missing values,
    logarithms and rows divided by their mean. Only how a CSV file is written is found anew, or given.

    Example: coterie label together west.csv --id patient --out west-labels.csv
    """
    from coterie.estimators.models import load_model, table_for
    from coterie.report.outputs import write_labels
    from coterie.sites.tables import Reading

    path = run / "model.json" if run.is_dir() else run
    if run.is_dir() and not path.exists():
        raise InputError(f"{run} holds no model.json; give the folder of a finished run.")
    model = load_model(path)
    if model.splits_columns:
        raise InputError(
            f"{path}: its columns are held by several sites, so no site can label rows alone; in Python, "
            "coterie.transform embeds new rows of all sites and label_components labels them."
        )
    how = Reading(
        **opt.chosen(na=na, csv_separator=csv_separator, csv_decimal=csv_decimal, csv_encoding=csv_encoding)
    )
    how.check()
    table, problems = table_for(model, data, how)
    _check(table, problems)
    ids = None if id_column is None else _ids(data, id_column, how)
    target = out or data.with_name(data.name + ".labels.parquet")
    with new_file(target, force, "labels", (".parquet", ".csv")) as temporary:
        n_rows, unlabelled = write_labels(model, table, temporary, ids)
    if as_json:
        print_json({"rows": n_rows, "unlabelled": unlabelled, "labels": str(target)})
        return
    console.print(f"{n_rows - unlabelled:,} rows labelled in [bold]{target}[/].", soft_wrap=True)
    if unlabelled:
        tell(f"{count_of(unlabelled, 'row')} with missing values got no label.")


app.command()(label)
app.command("assign", hidden=True)(label)  # its name before


def _check(table: Any, problems: Sequence[Problem]) -> None:
    """Raise all that is wrong with the rows, in the words of the command."""
    from coterie.sites.tables import Scan

    wrong = [*problems, *Scan(table).problems]
    if wrong:
        raise InputError(message(wrong, CommandLine()))


def _ids(data: Path, column: str, how: Any) -> tuple[str, Any]:
    """What to call the column of ids, and its values."""
    from coterie.sites.tables import read_texts

    return column if column != "cluster" else "id", read_texts(data, column, how)


@contextlib.contextmanager
def new_file(path: Path, force: bool, what: str, suffixes: Sequence[str] = (".parquet",)) -> Iterator[Path]:
    """A temporary file that replaces ``path`` at the end; an existing file only with ``force``."""
    if path.suffix not in suffixes:
        kinds = " or ".join({".parquet": "Parquet", ".csv": "CSV"}[suffix] for suffix in suffixes)
        raise InputError(f"{path}: {what} are written as {kinds}; use a name that ends in {' or '.join(suffixes)}.")
    opt.check_new(path, force)
    temporary = path.with_name(f"{path.stem}.partial{path.suffix}")
    try:
        yield private_file(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
