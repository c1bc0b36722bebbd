"""``coterie describe`` over four hospitals' files: text, ids, missing values, columns in other orders."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

WORDS = {"cp": ("typical", "atypical", "non-anginal", "asymptomatic"), "sex": ("female", "male")}
HOSPITALS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va_long_beach": 200}
FILES = tuple(f"{name}.csv" for name in HOSPITALS)


@pytest.fixture
def whole(tmp_path):
    """All patients; every hospital's file has its own order of columns, and at one nobody knows the cholesterol."""
    rng, parts = np.random.default_rng(0), []
    for place, (name, n) in enumerate(HOSPITALS.items()):
        own = pd.DataFrame(
            {
                "patient": [f"{name[:2]}{i:04d}" for i in range(n)],
                "age": rng.normal(50 + place, 9, n).round(),
                "sex": rng.choice(WORDS["sex"], n, p=[0.2, 0.8]),
                "cp": rng.choice(WORDS["cp"], n, p=[0.05, 0.2, 0.25, 0.5]),
                "chol": rng.normal(240, 50, n).round() if name != "switzerland" else np.full(n, np.nan),
                "fbs": rng.integers(0, 2, n).astype(float),
            }
        )
        own.loc[rng.random(n) < 0.1, "cp"] = None
        own.loc[rng.random(n) < 0.05, "age"] = np.nan
        parts.append(own)
        own[list(own.columns[:: -1 if place % 2 else 1])].to_csv(tmp_path / f"{name}.csv", index=False)
    return pd.concat(parts)


def test_nobody_types_categories(cli, whole):
    code, out, err = cli("describe", *FILES, "--json")
    assert code == 0, err
    made = json.loads(out)
    columns = {column["name"]: column for column in made["columns"]}
    assert (made["rows"], made["sites"], made["min_group"], made["scale"]) == (920, 4, 5, "standard")
    assert list(columns) == list(whole.columns)
    for name in ("age", "chol"):
        values = whole[name].dropna()
        assert columns[name]["missing"] == whole[name].isna().sum()
        assert columns[name]["mean"] == pytest.approx(values.mean(), abs=0.05 * values.std())
        assert columns[name]["deviation"] == pytest.approx(values.std(), rel=0.02)
        quartiles = [columns[name]["quantiles"][level] for level in ("25%", "50%", "75%")]
        assert quartiles == pytest.approx(list(values.quantile([0.25, 0.5, 0.75])), abs=0.15 * values.std())
    for name, words in WORDS.items():
        shares = columns[name]["shares"]
        true = whole[name].value_counts(normalize=True)
        assert {word: shares[word] for word in words} == pytest.approx({w: true[w] for w in words}, abs=0.02)
    assert columns["patient"]["shares"] == {"other": 1.0}
    assert {"finding": "like an id", "columns": ["patient"]}.items() <= made["notes"][-1].items()


def test_it_reads_well_and_is_written(cli, whole, tmp_path):
    code, out, err = cli("describe", *FILES, "--policy", "simulation", "--out", "about")
    assert code == 0, err
    for words in ("920 rows over 4 sites", "asymptomatic 4", "patient: values that number or name rows", "--scale"):
        assert words in out
    written = json.loads((tmp_path / "about" / "describe.json").read_text())
    assert written["columns"][0]["name"] == "patient"
    with (tmp_path / "about" / "describe.csv").open() as file:
        lines = list(csv.reader(file))
    assert lines[0][:3] == ["column", "kind", "present"]
    male = next(line for line in lines if line[0] == "sex=male")
    assert float(male[2]) == pytest.approx((whole["sex"] == "male").sum())
    assert cli("ledger", "show", "about/ledger.jsonl")[0] == 0
    code, _, err = cli("describe", *FILES, "--policy", "simulation", "--out", "about")
    assert code == 2
    assert "already holds a run" in err


def test_then_the_same_columns_are_clustered(cli, whole):
    words = ("--ignore", "patient", "--scale", "standard", "--missing", "mean", "--json")
    code, out, err = cli("cluster", *FILES, "-k", 3, *words)
    assert code == 0, err
    made = json.loads(out)
    assert sum(made["counts"]) == pytest.approx(920)
    assert sorted(made["columns"]) == sorted(
        ["age", "chol", "fbs", *(f"{name}={word}" for name in WORDS for word in WORDS[name])]
    )


def test_ids_are_not_clustered_on(cli, whole):
    code, _, err = cli("cluster", *FILES, "-k", 3)
    assert code == 2
    assert "column 'patient' has no value that enough rows of a site share" in err


def test_with_noise_it_needs_declared_categories_and_ranges_and_says_what_it_took(cli, whole):
    told = ("--categories", "sex=female,male", "--categories", "cp=" + ",".join(WORDS["cp"]), "--ignore", "patient")
    ranges = ("--ranges", "age=0,120", "--ranges", "chol=0,600", "--ranges", "fbs=0,1")
    code, out, err = cli("describe", *FILES, *told, *ranges, "--epsilon", 10)
    assert code == 2
    assert "budget" in err  # the preset has 4
    code, out, err = cli("describe", *FILES, *told, *ranges, "--epsilon", 3)
    assert code == 0, err
    for words in ("rows over 4 sites", "epsilon = 3", "counts of values", "estimates"):
        assert words in out
    code, _, err = cli("describe", *FILES, *ranges, "--epsilon", 3, "--ignore", "patient")
    assert code == 2
    assert "pass --categories sex=male,female" in err


def test_what_cannot_be_is_one_error(cli, whole):
    for words, told in (
        (("--ranges", "age=0,100"), "ranges are for a private description"),
        (("--columns", "age,height"), "'height'"),
        (("--policy", "strict", "--columns", "age,chol"), "sites per sum"),
        (("--site-column", "sex"), "a site column needs exactly one file"),
    ):
        code, _, err = cli("describe", *FILES, *words)
        assert code == 2
        assert told in err
