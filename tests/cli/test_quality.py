"""The real command under the standard policy is nearly as good as the pooled rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.cases import CASES, pooled_reference, prepared, true_cost
from benchmarks.quality import BARS, FEW_SEEDS, NO_GROUPS, WORST

POLICIES = {"groups": "standard", "none": "rows.toml"}
COMMAND = {name: name for name, _ in BARS} | {"heart-text": "heart-mixed", "air-quick": "air"}
"""The case that the command is given: text as it prepares it, and all rows."""

WORST_OVER_ROWS = {("wisdm", 5): 1.007, ("mushrooms", 8): 1.006}
"""Where one of ten seeds ends in another optimum, a little above what the others keep to."""


def write_tables(name):
    """A case's rows as files, its text columns as words; what they are called."""
    case, files = CASES[name], []
    for site, table in case.load().items():
        numbers = zip(table.columns, table.rows.T, strict=True)
        columns = {column: pa.array(values, from_pandas=True) for column, values in numbers}
        words = {column: pa.array([word or None for word in text]) for column, text in table.text.items()}
        files.append(f"{site}.parquet")
        pq.write_table(pa.table(columns | words), files[-1])
    return files


def options_of(name):
    """How a case is prepared, in the words of the command; its policy for rows as a file."""
    case = CASES[name]
    options = ["--scale", "standard" if case.scale == "mixed" else case.scale, "--missing", case.missing]
    for column, words in case.categories.items():
        options += ["--categories", f"{column}={','.join(words)}"]
    if case.ranges is not None:
        bounds = zip(prepared(case).columns, *(numbers.tolist() for numbers in case.ranges()), strict=True)
        Path("ranges.toml").write_text("".join(f"{column} = [{low}, {high}]\n" for column, low, high in bounds))
        options += ["--ranges", "ranges.toml"]
    Path("rows.toml").write_text('protection = "none"\n')
    return options


def ratio_of(cli, name, k, files, seed, options):
    """The cost of the command's centers on all true rows, for each of the pooled best."""
    case, known = CASES[name], prepared(CASES[name])
    code, _, err = cli("cluster", *files, "-k", k, "--seed", seed, "--out", f"{seed}", *options)
    assert code == 0, err
    assert json.loads(Path(f"{seed}/result.json").read_text())["settings"]["seed"] == seed
    with Path(f"{seed}/centers.csv").open(newline="") as lines:
        clusters = list(csv.DictReader(lines))
    centers = np.array([[float(cluster[column]) for column in known.columns] for cluster in clusters])
    return true_cost(case, centers, units="raw") / pooled_reference(case, k).cost


def assert_good(ratios, mean, worst):
    assert np.mean(ratios) <= mean, ratios
    assert max(ratios) <= worst, ratios


def test_penguins_of_three_islands(cli):
    files = write_tables("penguins")
    mean = BARS["penguins", 3]
    ratios = [ratio_of(cli, "penguins", 3, files, seed, options_of("penguins")) for seed in range(3)]
    assert_good(ratios, mean, mean + WORST)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("protection", POLICIES)
@pytest.mark.parametrize(("name", "k"), BARS)
def test_every_reference_case(cli, data_folder, name, k, protection):
    """Ten seeds, the mean and the worst."""
    mean, worst = (BARS[name, k], BARS[name, k] + WORST) if protection == "groups" else NO_GROUPS
    if protection == "none":
        worst = WORST_OVER_ROWS.get((name, k), worst)
    case = COMMAND[name]
    files, options = write_tables(case), [*options_of(case), "--policy", POLICIES[protection]]
    ratios = [ratio_of(cli, case, k, files, seed, options) for seed in range(FEW_SEEDS.get(name, 10))]
    assert_good(ratios, mean, worst)
