"""Sums of products of columns: where a column has few values, they are sums over the rows that hold one of them."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.maths.spectra import full_matrix
from coterie.methods.edge.pca import View
from coterie.methods.edge.sites import SendScatter
from coterie.sites.ledger import SiteLedger
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view
from tests.attacks.asker import ON, ROW, Asker, nearest_row
from tests.attacks.shown import Rows

D, N = 5, 150


def within_products(rows: Rows) -> tuple[Rows, Rows]:
    """What an attacker has: products of columns about the groups' means, from an answer; and these means."""
    d = rows.shape[1]
    view = View(d, 0)
    asked = SendScatter(*view.fields(), d * (d + 1) // 2, d, view.reach)
    said = Asker.of(rows, ON, method="federated-pca").ask(asked)
    (block,) = grouped_view(ArrayTable(rows), ON.min_group, SiteLedger()).blocks()
    between = (block.rows * block.counts[:, None]).T @ block.rows
    return full_matrix(np.asarray(said.packed), d) - between, block.rows


def numbers(seed: int) -> Rows:
    return np.random.default_rng(seed).normal(size=(N, D))


def test_columns_of_numbers_show_their_products() -> None:
    """So what follows is not because none are shown."""
    products, _ = within_products(numbers(0))
    assert np.abs(products[np.triu_indices(D, 1)]).min() > ROW


def test_products_with_a_column_in_which_one_row_differs_do_not_give_that_row() -> None:
    rows = numbers(1)
    rows[:, 4] = 0.0
    rows[7, 4] = 1.0
    products, means = within_products(rows)
    assert nearest_row(rows[7, :4], means[:, :4] + products[4, :4]) > ROW


def test_products_with_two_columns_that_differ_in_one_row_do_not_give_that_row() -> None:
    rows = numbers(2)
    rows[:, 3] = rows[:, 0] > 0.2
    rows[:, 4] = rows[:, 3]
    place = int(np.argmin(rows[:, 0]))
    rows[place, 4] = 1.0
    products, means = within_products(rows)
    assert nearest_row(rows[place, :3], means[:, :3] + products[4, :3] - products[3, :3]) > ROW


@pytest.mark.parametrize("n_off", [3, 4])
def test_products_with_a_column_that_few_rows_hold_do_not_give_their_sum(n_off: int) -> None:
    """The few are near each other: they are in one group, which shows them in no thin cell."""
    rows = numbers(3)
    near = np.argsort(((rows[:, :4] - rows[0, :4]) ** 2).sum(axis=1))[:n_off]
    rows[near, :4] = rows[0, :4] + 1e-3 * rows[near, :4]
    rows[:, 4] = 0.0
    rows[near, 4] = 1.0
    products, means = within_products(rows)
    assert nearest_row(rows[near, :4].sum(axis=0), n_off * means[:, :4] + products[4, :4]) > ROW


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4])
def test_two_columns_that_differ_in_few_rows_show_no_products(n_rows: int) -> None:
    rows = np.random.default_rng(5).normal(size=(400, D))
    assert grouped_view(ArrayTable(rows), 5, SiteLedger()).within_scatter is not None
    rows[:, 4] = rows[:, :4].sum(axis=1)  # a column that follows from others
    assert grouped_view(ArrayTable(rows), 5, SiteLedger()).within_scatter is not None
    rows[:n_rows, 4] += 1e-3 * rows[:n_rows, 0]
    assert grouped_view(ArrayTable(rows), 5, SiteLedger()).within_scatter is None


def test_products_with_two_columns_of_numbers_that_differ_in_one_row_do_not_give_that_row() -> None:
    rows = numbers(4)
    rows[:, 4] = rows[:, 3]
    rows[7, 4] += 1.0
    products, means = within_products(rows)
    assert nearest_row(rows[7, :3], means[:, :3] + products[4, :3] - products[3, :3]) > ROW
