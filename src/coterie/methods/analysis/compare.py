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
from coterie.messages.bounds import Limits
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import Method, RunContext, Settings
from coterie.methods.shared.limits import ReportMagnitude, limits_from
from coterie.methods.shared.plain import plain, read
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Preparation, PreparedTable
from coterie.methods.shared.selection import selected
from coterie.parameters import parameter

SLACK = 4.0
"""How much more than the square of a row's largest distance its cost may be: what groups and filling add."""


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
        return d > 0 and len(self.centers) > 0 and all(shape == needed for shape, needed in shapes)

    def places_of(self, table: Table) -> list[int]:
        """Where the columns are in a table."""
        places = {column.name: place for place, column in enumerate(table.columns)}
        return [places[name] for name in self.columns]

    def labels(self, block: Block, places: list[int]) -> tuple[Indices, Floats]:
        """The cluster of each row and its squared distance; -1 where a value is missing that is not filled."""
        present = None if block.present is None else block.present[:, places]
        own = Block(np.ascontiguousarray(block.rows[:, places]), block.weights, None, present)
        whole = np.full(len(own.rows), True)
        if self.preparation is None or self.preparation.missing != "mean":
            whole = np.asarray((own.values == own.counts[:, None]).all(axis=1))
        labels, squared = np.full(len(whole), -1, np.intp), np.zeros(len(whole))
        used = own.part(whole)
        rows = used.rows if self.preparation is None else self.preparation.apply(used).rows
        rows = rows if self.embedding is None else self.embedding.embed(rows)
        labels[whole], squared[whole] = clustering.nearest(rows, self.centers)
        return labels, squared

    def within(self, table: Table) -> float:
        """The squares within groups, as this model prepares rows; none among embedded rows."""
        if self.embedding is not None:
            return 0.0
        own = selected(table, self.columns)
        view = own if self.preparation is None else PreparedTable(own, self.preparation)
        return float(within_columns(view).sum())

    def farthest(self, largest: dict[str, float]) -> float:
        """A bound of a row's cost, from the largest magnitude of each column; 0 among embedded rows, which have none
        here."""
        if self.embedding is not None:
            return 0.0
        squares = []
        for place, name in enumerate(self.columns):
            reach, scale, center = largest[name], 1.0, float(np.abs(self.centers[:, place]).max())
            if self.preparation is not None:
                ends = [self.preparation.fill, self.preparation.shift, self.preparation.low, self.preparation.high]
                reach += sum(float(np.abs(end[place])) for end in ends if len(end))
                scale = float(np.abs(self.preparation.scale[place]))
            squares.append((reach / scale + center) ** 2)
        return SLACK * math.fsum(squares)


class Overlap(Reply, content="sums"):
    """How many rows each pair of clusters shares, how many have no label under either model, and the costs."""

    rows: Floats = array("k1", "k2", bound="rows", nonnegative=True)
    unlabelled: Floats = array(bound="rows", nonnegative=True)
    costs: Floats = array(2, bound="rows * most", nonnegative=True)


class LabelTwice(Request[Overlap], doing="labelling rows under two models"):
    """Label your rows under two models, and count them by their pair of labels."""

    k1: int
    k2: int
    most: float
    """A bound of the cost of a row under either model."""
    first: bytes
    second: bytes
    """The models, as JSON."""


@answers(LabelTwice)
def local_overlap(table: Table, memory: Memory, ask: LabelTwice) -> Overlap:
    reply, rules = Overlap.zeros(ask.axes), [_decoded(ask.first), _decoded(ask.second)]
    if [len(rule.centers) for rule in rules] != [ask.k1, ask.k2]:
        raise MalformedMessage("the models have other numbers of clusters than the question")
    places = [rule.places_of(table) for rule in rules]
    for block in table.raw_blocks():
        (first, near), (second, close) = (rule.labels(block, own) for rule, own in zip(rules, places, strict=True))
        both, counts = (first >= 0) & (second >= 0), block.counts
        pairs = clustering.counts_by_cell((first * ask.k2 + second)[both], counts[both], ask.k1 * ask.k2)
        costs = np.array([near @ counts, close @ counts])
        reply += Overlap(pairs.reshape(ask.k1, ask.k2), np.asarray(counts[~both].sum()), costs)
    within = np.array([rule.within(table) for rule in rules])
    are_rows = np.array([rule.embedding is None for rule in rules])
    return replace(reply, costs=np.where(are_rows, reply.costs + within, 0.0))


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
        """How large values are, and one question."""
        self.check(context.n_columns)
        first, second = self.rules()
        magnitudes = yield from total(ReportMagnitude(context.n_columns, np.zeros(context.n_columns)))
        largest = dict(zip(self.columns(), _by_column(limits_from(magnitudes), context.n_columns), strict=True))
        most = max(first.farthest(largest), second.farthest(largest))
        models = (msgspec.json.encode(plain(rule)) for rule in (first, second))
        reply = yield from total(LabelTwice(len(first.centers), len(second.centers), most, *models))
        first_cost, second_cost = (
            None if rule.embedding is not None else float(cost)
            for rule, cost in zip((first, second), reply.costs, strict=True)
        )
        return Compared(np.array(reply.rows), float(reply.unlabelled), (first_cost, second_cost))


def _by_column(limits: Limits, n_columns: int) -> tuple[float, ...]:
    box = limits.get("box", 0.0)
    return box if isinstance(box, tuple) else (float(box),) * n_columns


METHOD = Method(
    "compare",
    "How far two models of clusters agree on the sites' rows",
    (LabelTwice,),
    "k k' + 3, for models of k and k' clusters",
    "how many rows each pair of clusters shares, and the cost under each model, over all sites",
    settings=(CompareSettings,),
)
