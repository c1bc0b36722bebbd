"""The real command under the standard policy is nearly as good as the pooled rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.cases import CASES, pooled_reference, prepared, true_cost
from benchmarks.quality import BARS, WORST

from .conftest import write_csv


def write_tables(name):
    """A case's rows as files, its text columns as words; what they are called."""
    case, files = CASES[name], []
    for site, table in case.load().items():
        text = list(table.text.values())
        rows = [
            [*("" if np.isnan(v) else repr(float(v)) for v in row), *(words[i] for words in text)]
            for i, row in enumerate(table.rows)
        ]
        write_csv(f"{site}.csv", rows, (*table.columns, *table.text))
        files.append(f"{site}.csv")
    return files


def ratio_of(cli, name, k, files, seed, *options):
    """The cost of the command's centers on all true rows, for each of the pooled best."""
    case, known = CASES[name], prepared(CASES[name])
    code, _, err = cli(
        "cluster", *files, "-k", k, "--scale", "standard", "--seed", seed, "--out", f"{seed}", *options
    )
    assert code == 0, err
    assert json.loads(Path(f"{seed}/result.json").read_text())["settings"]["seed"] == seed
    lines = [line.split(",") for line in Path(f"{seed}/centers.csv").read_text().splitlines()]
    places = [lines[0].index(column) for column in known.columns]
    centers = np.array([[float(line[i]) for i in places] for line in lines[1:]])
    return true_cost(case, centers, units="raw") / pooled_reference(case, k).cost


def assert_good(ratios, bar):
    assert np.mean(ratios) <= bar
    assert max(ratios) <= bar + WORST


def test_penguins_of_three_islands(cli):
    files = write_tables("penguins")
    assert_good([ratio_of(cli, "penguins", 3, files, seed) for seed in range(3)], BARS["penguins", 3])


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["heart", "heart-mixed"])
def test_patients_of_four_hospitals(cli, data_folder, name):
    files = write_tables(name)
    values = [f"{column}={','.join(words)}" for column, words in CASES[name].categories.items()]
    options = ["--missing", "mean", *(part for value in values for part in ("--categories", value))]
    assert_good([ratio_of(cli, name, 4, files, seed, *options) for seed in range(10)], BARS["heart", 4])
