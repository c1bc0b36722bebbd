"""Means, intervals and the tables made of them."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from scipy import stats

from coterie_studies.tables import estimate, markdown, write_csv


@pytest.mark.parametrize("n", [2, 3, 10])
def test_intervals_equal_scipys(n):
    values = np.random.default_rng(n).normal(3, 2, n)
    made = estimate(values)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (made.mean, made.low, made.high) == pytest.approx((values.mean(), low, high), rel=1e-12)
    assert made.deviation == pytest.approx(values.std(ddof=1), rel=1e-12)


def test_one_value_has_no_interval_and_undefined_ones_are_left_out():
    one = estimate([4.0, math.nan])
    assert (one.mean, one.n) == (4.0, 1)
    assert math.isnan(one.low)
    assert str(one) == "4"
    assert str(estimate([])) == ""


def test_a_table_keeps_full_numbers_in_csv_and_rounds_in_markdown(tmp_path):
    rows = [
        {"way": "a", "C": 0.02, "cost": estimate([1.0, 1.1, 1.3])},
        {"way": "b", "C": 1.0, "cost": estimate([2.0])},
    ]
    write_csv(tmp_path / "t.csv", rows)
    with (tmp_path / "t.csv").open() as file:
        first, second = csv.DictReader(file)
    assert float(first["cost"]) == pytest.approx(3.4 / 3, rel=1e-15)
    assert (first["cost n"], second["cost low"]) == ("3", "")
    assert markdown(rows).splitlines()[2:] == ["| a | 0.02 | 1.1333 ± 0.3795 |", "| b | 1 | 2 |"]
