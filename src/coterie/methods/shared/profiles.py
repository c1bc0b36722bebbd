"""What is in a cluster, by sums: moments of columns by cluster, and how many values lie in which of a few bins.

Sites put their rows to clusters as they saw them in the run, prepared or embedded. The values are those of the rows
as they are: in their own units, and also of columns that the run did not use. A single cluster holds all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from coterie.arrays import Indices
from coterie.errors import MalformedMessage
from coterie.maths import clustering
from coterie.messages.schema import Fields, Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Rows, Table, answers, unprepared, within_columns
from coterie.methods.shared.alignment import ORDERS
from coterie.methods.shared.limits import Magnitudes, ReportMagnitude, local_magnitudes
from coterie.methods.shared.ranges import RangedTable, Ranges
from coterie.methods.shared.selection import selected

FREE = 1e150
"""The end of a range that limits nothing."""


class OfColumns(Fields):
    """Which columns a request is about, by name: of the site's own table, as it is."""

    columns: tuple[str, ...]
    low: Floats = array("ranges")
    high: Floats = array("ranges")
    """Every value counts as the nearest one of its column's range: one for each of the columns, or none."""

    def selected(self, table: Table) -> Table:
        """These columns of the rows that a table shows, as they were before anything was done to them."""
        chosen = selected(unprepared(table), self.columns)
        if not len(self.low):
            return chosen
        return RangedTable(chosen, Ranges.of((self.low, self.high), len(self.columns)))


class MeasureColumns(OfColumns, Request[Magnitudes], doing="finding the largest magnitude of the columns"):
    """Mark how many rows you show, and how far the largest value of each of these columns is from an origin."""

    origin: Floats = array("groups")


class ClusterSums(Reply, content="sums"):
    """Per cluster its rows; per cluster and column how many values are present, their sum and their squares about an
    origin. Where rows are means of groups, the squares within groups are apart, apportioned to clusters."""

    rows: Floats = array("k", bound="rows", nonnegative=True)
    present: Floats = array("k", "p", bound="rows", nonnegative=True)
    sums: Floats = array("k", "p", bound="rows * box[p]")
    squares: Floats = array("k", "p", bound="rows * box[p]**2", nonnegative=True)
    within: Floats = array("groups", "p", bound="rows * box[p]**2", nonnegative=True)


class SumByCluster(OfColumns, Request[ClusterSums], doing="summing columns by cluster"):
    """Put every row to its nearest center, and sum up these columns by cluster, about an origin.

    ``groups`` is as many as clusters where sites may show groups of rows, else 0.
    """

    centers: Floats = array("k", "s")
    origin: Floats = array("p")
    groups: int = 0

    @property
    def measure(self) -> Request[Magnitudes] | None:
        """Columns may be in very different units; declared ranges say how large values are."""
        is_stated = len(self.low) > 0 and bool((self.high < FREE).all())
        return None if is_stated else MeasureColumns(self.columns, self.low, self.high, self.origin)


class BinCounts(Reply, content="sums"):
    """Per cluster and column how many values lie in which bin, in units of the question."""

    counts: Integers = array("k", "p", "bins", dtype="uint16", bound="65535", nonnegative=True)


class CountByCluster(OfColumns, Request[BinCounts], doing="counting values of the clusters in bins"):
    """Put every row to its nearest center, and count values in ``bins`` equal bins a cluster and column, from
    ``first`` to ``last``; the bins at both ends also count what lies beyond. Counts are rounded to whole
    ``unit`` of their cluster."""

    bins: int
    unit: Floats = array("k")
    centers: Floats = array("k", "s")
    first: Floats = array("k", "p")
    last: Floats = array("k", "p")

    @property
    def ring(self) -> int:
        """Units are such that all rows of a cluster together are less than fit."""
        return COUNT_BITS


class SumByLabel(OfColumns, Request[ClusterSums], doing="summing columns by cluster"):
    """Sum up these columns over the rows of each of ``k`` clusters, about an origin; here is the cluster of each row,
    in the order in which they are taken."""

    k: int
    labels: Integers = array("rows", dtype="uint16")
    origin: Floats = array("p")
    groups: int = 0


class CountByLabel(OfColumns, Request[BinCounts], doing="counting values of the clusters in bins"):
    """Count values as in :class:`CountByCluster`; here is the cluster of each row."""

    bins: int
    unit: Floats = array("k")
    labels: Integers = array("rows", dtype="uint16")
    first: Floats = array("k", "p")
    last: Floats = array("k", "p")


COUNT_BITS = 16
MOST_COUNTED = 60_000
"""Units that all rows of a cluster may be: room is left for what sites round up."""


def count_units(rows: Floats) -> Floats:
    """The powers of two that so many rows are counted in: of small clusters every row counts, and all rows fit."""
    return np.asarray(np.ldexp(1.0, np.frexp(np.where(rows > 0, rows, 1.0) / MOST_COUNTED)[1]))


@answers(MeasureColumns)
def local_column_magnitudes(table: Table, memory: Memory, ask: MeasureColumns) -> Magnitudes:
    _check(ask, len(ask.origin))
    return local_magnitudes(ask.selected(table), memory, ReportMagnitude(len(ask.origin), ask.origin))


@answers(SumByCluster)
def local_cluster_sums(table: Table, memory: Memory, ask: SumByCluster) -> ClusterSums:
    _check(ask, len(ask.origin))
    if ask.groups not in (0, len(ask.centers)):
        raise MalformedMessage(f"squares within groups for {ask.groups} of {len(ask.centers)} clusters")
    return cluster_sums(ask.selected(table), labels_of(table, ask.centers), ask.origin, ask.axes)


@answers(CountByCluster)
def local_bin_counts(table: Table, memory: Memory, ask: CountByCluster) -> BinCounts:
    _check(ask, ask.axes["p"])
    return _counted(ask.selected(table), labels_of(table, ask.centers), ask)


@answers(SumByLabel)
def local_label_sums(table: Table, memory: Memory, ask: SumByLabel) -> ClusterSums:
    _check(ask, len(ask.origin))
    if ask.groups:
        raise MalformedMessage("labels of rows, and sums of groups")
    return cluster_sums(ask.selected(table), _as_they_lie(memory, ask.labels, ask.k), ask.origin, ask.axes)


@answers(CountByLabel)
def local_label_counts(table: Table, memory: Memory, ask: CountByLabel) -> BinCounts:
    _check(ask, ask.axes["p"])
    return _counted(ask.selected(table), _as_they_lie(memory, ask.labels, len(ask.first)), ask)


def _as_they_lie(memory: Memory, labels: Integers, n_clusters: int) -> Integers:
    """Labels of rows as they are taken, in the order in which the rows lie."""
    if not (labels < n_clusters).all():
        raise MalformedMessage(f"a label that is none of {n_clusters} clusters")
    order = memory.get(ORDERS[False], np.arange(len(labels)))
    if len(order) != len(labels):
        raise MalformedMessage(f"{len(labels)} labels for {len(order)} rows")
    lying = np.empty_like(labels)
    lying[order] = labels
    return lying


def _counted(table: Table, labels: Integers, ask: CountByCluster | CountByLabel) -> BinCounts:
    """Counts in the units of a question."""
    if ask.bins < 1 or not (ask.unit > 0).all() or not (ask.first <= ask.last).all():
        raise MalformedMessage(f"{ask.bins} bins that end before they begin, or are counted in units of 0")
    return BinCounts(np.rint(bin_counts(table, labels, ask.first, ask.last, ask.bins) / ask.unit[:, None, None]))


def _check(ask: OfColumns, n_columns: int) -> None:
    if len(ask.columns) != n_columns or len(ask.low) not in (0, n_columns) or not (ask.low <= ask.high).all():
        raise MalformedMessage(f"{len(ask.columns)} columns and {len(ask.low)} ranges for {n_columns} of each")


def labels_of(table: Table, centers: Floats) -> Integers:
    """The cluster of each row that a table shows; of a single one rows are not looked at."""
    if len(centers) == 1:
        return np.zeros(table.n_rows, np.int32)
    labels = [clustering.nearest(block.rows, centers)[0].astype(np.int32) for block in table.blocks()]
    return np.concatenate([np.zeros(0, np.int32), *labels])


def cluster_sums(table: Table, labels: Integers, origin: Floats, axes: Mapping[str, int]) -> ClusterSums:
    """The sums of a table's columns over the rows with each label."""
    k, reply = axes["k"], ClusterSums.zeros(axes)
    away = _distances(table) if axes["groups"] and table.n_rows else np.square
    for block, own in with_labels(table, labels):
        values, about = block.values, np.nan_to_num(block.rows - origin)
        parts = (values, values * about, values * about**2)
        present, sums, squares = (clustering.sums_by_cell(part, own, np.ones(len(own)), k) for part in parts)
        within = reply.within
        if axes["groups"] and block.within is not None:
            loose = np.sqrt(block.within / block.counts)[:, None] * values * (1 + away(block.rows))
            within = clustering.sums_by_cell(loose, own, np.ones(len(own)), k)
        reply += ClusterSums(clustering.counts_by_cell(own, block.counts, k), present, sums, squares, within)
    whole = reply.within.sum(axis=0)
    share = np.divide(within_columns(table), whole, out=np.zeros_like(whole), where=whole > 0)
    return replace(reply, within=reply.within * share)


def _distances(table: Table) -> Callable[[Rows], Floats]:
    """How far values are from the mean of their column, squared, in variances of the column.

    Of a column's squares within groups, which are known over all groups only, more are apportioned to groups that are
    loose in all columns together, and to those far out: columns with a long tail vary most where they are large.
    """
    values = np.concatenate([block.values for block in table.raw_blocks()])
    rows = np.nan_to_num(np.concatenate([block.rows for block in table.raw_blocks()]))
    n = np.maximum(values.sum(axis=0), 1e-300)
    mean = (values * rows).sum(axis=0) / n
    variance = (values * (rows - mean) ** 2).sum(axis=0) / n
    inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
    return lambda block: np.asarray(np.nan_to_num((block - mean) ** 2 * inverse))


def bin_counts(table: Table, labels: Integers, first: Floats, last: Floats, bins: int) -> Floats:
    """The values of a table's columns, counted by label, column and bin."""
    k, p = first.shape
    counts = np.zeros(k * p * bins)
    for block, own in with_labels(table, labels):
        with np.errstate(all="ignore"):
            places = np.floor((block.rows - first[own]) / ((last - first) / bins)[own])
        inside = np.clip(np.nan_to_num(places, posinf=bins), 0, bins - 1).astype(np.intp)
        cells = (own[:, None] * p + np.arange(p)) * bins + inside
        counts += np.bincount(cells.ravel(), block.values.ravel(), len(counts))
    return counts.reshape(k, p, bins)


def with_labels(table: Table, labels: Integers) -> Iterator[tuple[Block, Indices]]:
    """The blocks of a table, each with the labels of its rows."""
    start = 0
    for block in table.raw_blocks():
        stop = start + len(block.rows)
        yield block, labels[start:stop].astype(np.intp)
        start = stop
    if start != len(labels):
        raise MalformedMessage(f"{len(labels)} labels for {start} rows")
