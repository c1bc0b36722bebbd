"""How far two clusterings agree on rows that stay at their sites: each site labels its rows under both models.

What leaves is how many rows each pair of clusters shares, and the cost under each model, as sums over all sites. Over
groups a group is labelled whole, under both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from coterie.arrays import Indices
from coterie.errors import InputError, MalformedMessage
from coterie.maths import clustering
from coterie.maths.landmarks import LandmarkMap
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import Method, RunContext, Settings
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.plain import plain, read
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Preparation, PreparedTable
from coterie.methods.shared.selection import CompleteTable, complete, selected
from coterie.parameters import parameter


@dataclass(frozen=True)
class ClusterRule:
    """What labels a row: its columns by name, how it is prepared, perhaps embedded, and the centers."""

    columns: list[str]
    preparation: Preparation | None
    embedding: LandmarkMap | None
    centers: Floats

    @classmethod
    def of(cls, raw: Any) -> ClusterRule:
        """The rule in plain values; ``InputError`` where they are none."""
        try:
            rule = read(raw, cls)
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, LookupError) as problem:
            raise InputError(f"this is no model of clusters: {problem}.") from None
        if not rule.is_sound:
            raise InputError(
                "this is no model of clusters: its columns, preparation and centers do not fit together."
            )
        return rule

    @property
    def is_sound(self) -> bool:
        """Whether all sizes fit together."""
        d, prepared, embedded = len(self.columns), self.preparation, self.embedding
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((len(set(self.columns)),), (d,))]
        if prepared is not None:
            shapes += [(part.shape, (d,)) for part in (prepared.fill, prepared.shift, prepared.scale)]
            shapes += [(part.shape, (d,)) for part in (prepared.low, prepared.high) if part.size]
        width = d
        if embedded is not None and embedded.projection.ndim == 2:
            m, width = embedded.projection.shape
            shapes += [(embedded.landmarks.shape, (m, d)), (embedded.shift.shape, (width,))]
        shapes.append((self.centers.shape[1:], (width,)))
        fits = d > 0 and len(self.centers) > 0 and all(shape == needed for shape, needed in shapes)
        return fits and (prepared is None or bool(prepared.scale.all()))

    @property
    def fills(self) -> bool:
        """Whether a missing value is filled; otherwise a row that lacks one has no label."""
        return self.preparation is not None and self.preparation.missing == "mean"

    def places_of(self, table: Table) -> list[int]:
        """Where the columns are in a table."""
        places = {column.name: place for place, column in enumerate(table.columns)}
        return [places[name] for name in self.columns]

    def labels(self, block: Block, places: list[int]) -> tuple[Indices, Floats]:
        """The cluster of each row, and by column of the table the cost of these rows, none among embedded ones."""
        present = None if block.present is None else block.present[:, places]
        own = Block(np.ascontiguousarray(block.rows[:, places]), block.weights, None, present)
        rows = own.rows if self.preparation is None else self.preparation.apply(own).rows
        costs = np.zeros(block.rows.shape[1])
        if self.embedding is not None:
            return clustering.nearest(self.embedding.embed(rows), self.centers)[0], costs
        labels = clustering.nearest(rows, self.centers)[0]
        costs[places] = own.counts @ (rows.astype(np.float64) - self.centers[labels]) ** 2
        return labels, costs

    def within(self, table: Table) -> Floats:
        """By column of the table the squares within groups, as this model prepares rows; none among embedded ones."""
        squares = np.zeros(len(table.columns))
        if self.embedding is None:
            own = selected(table, self.columns)
            view = own if self.preparation is None else PreparedTable(own, self.preparation)
            squares[self.places_of(table)] = within_columns(view)
        return squares

    def sizes(self, columns: list[str]) -> tuple[Floats, Floats]:
        """By column what a value is multiplied by, and how far a center may be from it besides: bounds of costs."""
        stretch, reach = np.zeros(len(columns)), np.zeros(len(columns))
        places, prepared = [columns.index(name) for name in self.columns], self.preparation
        if self.embedding is None:
            stretch[places], reach[places] = 1.0, np.abs(self.centers).max(axis=0)
        if self.embedding is None and prepared is not None:
            ends = [end for end in (prepared.fill, prepared.shift, prepared.low, prepared.high) if len(end)]
            stretch[places] = 1 / np.abs(prepared.scale)
            for end in ends:
                reach[places] += np.abs(end / prepared.scale)
        return stretch, reach


class Overlap(Reply, content="sums"):
    """How many rows each pair of clusters shares, how many lack a label under either model, and by model and column
    the cost of those that lack none."""

    rows: Floats = array("k1", "k2", bound="rows", nonnegative=True)
    unlabelled: Floats = array(bound="rows", nonnegative=True)
    costs: Floats = array(2, "d", bound="rows * 4 * (box[d] * stretch[d] + reach[d])**2", nonnegative=True)


class LabelTwice(Request[Overlap], doing="labelling rows under two models"):
    """Label your rows under two models, and count them by their pair of labels."""

    k1: int
    k2: int
    first: bytes
    second: bytes
    """The models, as JSON."""
    stretch: Floats = array(2, "d")
    reach: Floats = array(2, "d")
    """By model and column what values are multiplied by, and how far centers are from them besides."""

    @property
    def measure(self) -> ReportMagnitude:
        """Columns may be in very different units, so each has its own limit."""
        return ReportMagnitude(self.axes["d"], np.zeros(self.axes["d"]))


@answers(LabelTwice)
def local_overlap(table: Table, memory: Memory, ask: LabelTwice) -> Overlap:
    reply, rules = Overlap.zeros(ask.axes), [_decoded(ask.first), _decoded(ask.second)]
    if [len(rule.centers) for rule in rules] != [ask.k1, ask.k2]:
        raise MalformedMessage("the models have other numbers of clusters than the question")
    places = [rule.places_of(table) for rule in rules]
    labelled = _labelled(table, rules)
    for block in labelled.raw_blocks():
        (first, near), (second, close) = (rule.labels(block, own) for rule, own in zip(rules, places, strict=True))
        pairs = clustering.counts_by_cell(first * ask.k2 + second, block.counts, ask.k1 * ask.k2)
        reply += Overlap(pairs.reshape(ask.k1, ask.k2), np.zeros(()), np.array([near, close]))
    held = sum(float(block.counts.sum()) for block in table.raw_blocks())
    left_out = np.asarray(max(0.0, held - float(reply.rows.sum())))
    within = np.array([rule.within(labelled) for rule in rules])
    return replace(reply, unlabelled=left_out, costs=reply.costs + within)


def _labelled(table: Table, rules: list[ClusterRule]) -> Table:
    """The rows that have a label under all of these models."""
    needed = dict.fromkeys(name for rule in rules if not rule.fills for name in rule.columns)
    if needed.keys() == {column.name for column in table.columns}:
        return complete(table)
    return CompleteTable(selected(table, list(needed)), table) if needed else table


def _decoded(raw: bytes) -> ClusterRule:
    try:
        return ClusterRule.of(msgspec.json.decode(raw))
    except (msgspec.DecodeError, InputError) as problem:
        raise MalformedMessage(str(problem)) from None


@dataclass(frozen=True)
class Compared:
    """The sums of :class:`Overlap` over all sites; a cost is None where rows are embedded."""

    rows: Floats
    unlabelled: float
    costs: tuple[float | None, float | None]


@dataclass(eq=False, repr=False, kw_only=True)
class CompareSettings(Settings):
    """Two models to be compared."""

    first: Any = parameter(None, "What labels a row in the first clustering.", chooses="points")
    second: Any = parameter(None, "What labels it in the second one.", chooses="points")

    method = "compare"
    result_type = Compared

    def columns(self) -> list[str]:
        """The columns that either model needs."""
        first, second = self.rules()
        return list(dict.fromkeys([*first.columns, *second.columns]))

    def rules(self) -> tuple[ClusterRule, ClusterRule]:
        """The two models."""
        return ClusterRule.of(self.first), ClusterRule.of(self.second)

    def check(self, n_columns: int) -> None:
        """Raise an error where the models do not fit the columns."""
        super().check(n_columns)
        if len(self.columns()) != n_columns:
            raise InputError(f"the models need {len(self.columns())} columns, and there are {n_columns}.")

    def check_options(self, options: PreparationOptions) -> None:
        """Raise an error for what the models do themselves."""
        super().check_options(options)
        if options.scale != "none" or options.missing != "refuse" or options.ranges is not None:
            raise InputError("each model prepares rows itself; leave scale, missing and ranges out.")

    def protocol(self, context: RunContext) -> Protocol[Compared]:
        """One question."""
        self.check(context.n_columns)
        first, second = self.rules()
        stretch, reach = zip(*(rule.sizes(self.columns()) for rule in (first, second)), strict=True)
        ask = LabelTwice(
            len(first.centers),
            len(second.centers),
            msgspec.json.encode(plain(first)),
            msgspec.json.encode(plain(second)),
            np.array(stretch),
            np.array(reach),
        )
        reply = yield from total(ask)
        first_cost, second_cost = (
            None if rule.embedding is not None else math.fsum(costs)
            for rule, costs in zip((first, second), reply.costs.tolist(), strict=True)
        )
        return Compared(np.array(reply.rows), float(reply.unlabelled), (first_cost, second_cost))


METHOD = Method(
    "compare",
    "How far two models of clusters agree on the sites' rows",
    (LabelTwice,),
    "k k' + 2d + 1, for models of k and k' clusters",
    "how many rows each pair of clusters shares, and by column their cost under each model, over all sites",
    settings=(CompareSettings,),
)
