"""A method as one plug-in object: its name, its parameters, what it may ask, what it costs and discloses.

Everything else reads it from here: the list of methods, ``--set`` and parameter checks, policies, audits, the
formula of its cost, estimators' parameters, model files, and a site that replays a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from coterie.errors import InputError
from coterie.messages.schema import ArraySpec, Content, Request, message_fields, reply_type
from coterie.messages.site_api import Column
from coterie.messages.verbs import Protocol, present
from coterie.methods.shared.agreement import Agree, Capabilities, UseColumns, agree
from coterie.methods.shared.choosing import LARGEST, MOST, SMALLEST, Choice
from coterie.methods.shared.cluster_profiles import Profile, run_profile
from coterie.methods.shared.composition import Composition, CountByCenter, run_composition
from coterie.methods.shared.counts import CountRows
from coterie.methods.shared.halves import CompareHalf, Halves, compared_halves, final_centers
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.preparation import PreparationOptions, SumColumns, prepare
from coterie.methods.shared.prepared import Preparation, Prepare, Spread
from coterie.methods.shared.privacy import Privacy, PrivacySpent, Releases
from coterie.methods.shared.private_preparation import check_private_options, prepare_privately
from coterie.methods.shared.private_profiles import SHARE, UseLabelled, private_profile_of_clusters, ranges_of_all
from coterie.methods.shared.private_subspace import check_private_columns
from coterie.methods.shared.profiles import CountByCluster, MeasureColumns, SumByCluster
from coterie.methods.shared.ranges import Ranges
from coterie.methods.shared.shares import LimitShare
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.parameters import Allowed, changed, check_parameters, parameter

Requests: TypeAlias = tuple[type[Request[Any]], ...]
Visibility: TypeAlias = Literal["sums", "averages", "rows"]

COUNT, COUNT_OR_NONE = Allowed(whole=True, low=1), Allowed(whole=True, low=1, none=True)
"""Allowed values of a parameter that is a number of things."""
PREPARATION: Requests = (
    *(Agree, UseColumns, ReportMagnitude, SumColumns, Prepare, ShowWhole, CountRows, LimitShare, CompareHalf),
    *(MeasureColumns, SumByCluster, CountByCluster, CountByCenter, UseLabelled),
)
"""The questions any method may be preceded by, or followed by."""


@dataclass(frozen=True)
class RunContext:
    """What a run knows before its method begins."""

    n_columns: int
    seed: int = 0
    """The run's public seed."""
    spread: Spread | None = None
    """Of the prepared columns, where it is known."""
    averages: bool = True
    """Whether every site allows averages: decides what ``"auto"`` means."""
    options: PreparationOptions = PreparationOptions()
    releases: Releases | None = None
    """What divides the run's privacy among its releases, where it is a private one."""
    preparation: Preparation | None = None
    names: tuple[str, ...] = ()
    """Of the columns; of none where one owner's rows are used as they are."""
    grouped: bool = False
    """Whether sites may show groups of rows."""


class RunResult(NamedTuple):
    """The outcome of a whole run: how rows were prepared, the method's result, what sites allow."""

    preparation: Preparation | None
    result: Any
    capabilities: Capabilities
    halves: Halves | None = None
    """The final clusters over two halves of the sites, where that was asked for."""
    profile: Profile | None = None
    """What is in the final clusters, where that was asked for."""
    privacy: PrivacySpent | None = None
    """What was promised, and how it was divided among releases, where the run was private."""
    composition: Composition | None = None
    """How many rows of each site are in each cluster, where profiles were asked for and every policy allows it."""


class Settings:
    """The parameters of a method: a dataclass whose fields are declared by :func:`coterie.parameters.parameter`."""

    result_type: ClassVar[type[Any]]
    """What :meth:`protocol` returns: a dataclass that a model file can hold."""
    splits_columns: ClassVar[bool] = False
    """Whether sites hold other columns of the same rows, rather than other rows of the same columns."""
    privacy: Any = None
    """Differential privacy of the run, for methods that have it: a :class:`~coterie.Privacy`."""
    method: Any
    """The name of the method these parameters ask for: a class attribute, or a property where they decide it."""

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns, before any question."""
        check_parameters(self)

    def check_options(self, options: PreparationOptions) -> None:
        """Raise an error if the method cannot be run so, before any question."""
        for name, is_asked in (("halves", options.halves), ("profile", options.profile)):
            if is_asked and not isinstance(self, ClusterSettings):
                raise InputError(f"{name} is about clusters, and {self.method} finds none here; leave it out.")
        if self.privacy is not None:
            check_private_options(options)

    def protocol(self, context: RunContext) -> Protocol[Any]:
        """The method, over tables whose columns are agreed on and prepared."""
        raise NotImplementedError(f"{type(self).__name__} is a group of parameters, not a method")

    def whole_protocol(
        self, columns: Mapping[str, tuple[Column, ...]], options: PreparationOptions, seed: int
    ) -> Protocol[RunResult]:
        """Agreement on the columns, preparation and the method."""
        self.check_options(options)
        first = next(iter(columns.values()))
        names, n_columns = [column.name for column in first], len(first)
        privacy = Privacy.of(self.privacy)
        if privacy is not None:
            return (yield from self._private_protocol(privacy, first, options, seed))
        capabilities = yield from agree(first, options.besides)
        preparation = yield from prepare(
            n_columns,
            scale=options.scale,
            missing=options.missing,
            ranges=options.ranges,
            max_share=options.max_share,
            names=names,
            grouped=capabilities.min_group > 0,
        )
        known = options, None, preparation, tuple(names), capabilities.min_group > 0
        context = RunContext(n_columns, seed, preparation.spread, capabilities.averages, *known)
        result, halves, profile, composition = (yield from self.protocol(context)), None, None, None
        if options.halves:
            halves = yield from compared_halves(final_centers(result), capabilities.fewest_of_half, seed)
        if options.profile:
            described = (*names, *(column.name for column in options.besides))
            is_grouped = capabilities.min_group > 0
            centers, labels = final_centers(result), getattr(result, "server_labels", None)
            profile = yield from run_profile(centers, described, preparation, is_grouped, labels)
            if capabilities.composition:
                composition = yield from run_composition(centers, is_grouped, labels)
        return RunResult(preparation, result, capabilities, halves, profile, composition=composition)

    def _private_protocol(
        self, privacy: Privacy, columns: Sequence[Column], options: PreparationOptions, seed: int
    ) -> Protocol[RunResult]:
        """The same by noisy sums; profiles have a share of what they may give away, where they are asked for."""
        names, profile = tuple(column.name for column in columns), None
        ranges, others = ranges_of_all(options, names)
        capabilities = yield from agree(columns, options.besides)
        releases = Releases(privacy, len((yield from present())))
        if options.profile:
            releases.divide(1 - SHARE)
        preparation = yield from prepare_privately(options, names, ranges, releases)
        context = RunContext(len(names), seed, None, False, options, releases, preparation, names)
        result = yield from self.protocol(context)
        if options.profile:
            assert releases.centers is not None
            releases.divide(SHARE)
            described = (*names, *(column.name for column in options.besides))
            within = Ranges(np.append(ranges.low, others.low), np.append(ranges.high, others.high))
            profile = yield from private_profile_of_clusters(releases.centers, described, within, releases)
        return RunResult(preparation, result, capabilities, profile=profile, privacy=releases.spent)


def values_of(settings: Any, options: type[Any]) -> dict[str, Any]:
    """The values in settings of the parameters that ``options`` declares, to construct other settings with."""
    return {item.name: getattr(settings, item.name) for item in fields(options)}


@dataclass(eq=False, repr=False)
class ClusterSettings(Settings):
    """Of a method that finds clusters."""

    n_clusters: int = parameter(8, "How many clusters.", COUNT)


@dataclass(eq=False, repr=False)
class ComponentSettings(Settings):
    """Of a method that finds components."""

    n_components: int = parameter(2, "How many components.", COUNT)


@dataclass(eq=False, repr=False, kw_only=True)
class ChoiceSettings(Settings):
    """Of a method that judges numbers of clusters."""

    min_clusters: int = parameter(
        SMALLEST, "The smallest number of clusters that is judged.", Allowed(whole=True, low=2, high=MOST)
    )
    max_clusters: int = parameter(
        LARGEST, "The largest number of clusters that is judged.", Allowed(whole=True, low=2, high=MOST)
    )
    result_type = Choice

    @property
    def ks(self) -> range:
        """The numbers of clusters that are judged."""
        return range(self.min_clusters, self.max_clusters + 1)

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if not self.ks:
            raise InputError(
                f"min_clusters={self.min_clusters} is above max_clusters={self.max_clusters}; use at most as many."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateSettings(Settings):
    """Of a method that can be run with differential privacy."""

    privacy: Privacy | None = parameter(
        None,
        "Differential privacy: ``Privacy(epsilon=1.0)``. Needs the ranges of all columns. None makes no noise.",
        chooses="nothing",
    )

    used_privately: ClassVar[tuple[str, ...]] = ()
    """The other parameters that a private run uses."""

    def check(self, n_columns: int) -> None:
        """Raise an error for parameters that a private run does not use, and for too many columns."""
        super().check(n_columns)
        if Privacy.of(self.privacy) is None:
            return
        check_private_columns(n_columns, "columns")
        kind = next(kind for kind in type(self).__mro__ if kind.__name__.endswith("Settings") and is_dataclass(kind))
        given = {item.name: getattr(self, item.name) for item in fields(kind)}
        unused = [name for name in changed(kind, given) if name not in ("privacy", *self.used_privately)]
        if unused:
            raise InputError(
                f"privacy does not go with {', '.join(unused)}; leave {'it' if len(unused) == 1 else 'them'} out."
            )


@dataclass(frozen=True)
class Method:
    """A method by name: what it may ask, what it costs, what it lets the server see."""

    name: str
    title: str
    requests: Requests
    cost: str
    """Values sent by a site, in words and letters."""
    discloses: str
    visibility: Visibility = "sums"
    """What sites must let the server see of each of them: nothing but sums, averages of rows, or rows."""
    optional: str = ""
    """When per-site results are seen that the method can do without."""
    settings: tuple[type[Settings], ...] = ()
    """Its parameters; where it finds clusters as well as components, those for clusters come first."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that the method's name decides."""
    needs_rows: bool = False
    """Whether it cannot work with groups of rows, so that sites must exempt it from that protection."""
    use: str = ""
    """When to choose it, where it is recommended."""
    is_baseline: bool = False
    """Whether it is there for comparison alone."""

    @property
    def sends_rows(self) -> bool:
        """Whether it needs rows, projected or not."""
        return self.visibility == "rows"

    @property
    def can_be_private(self) -> bool:
        """Whether it can be run with differential privacy."""
        return any(issubclass(settings, PrivateSettings) for settings in self.settings)

    def has(self, parameter: str) -> bool:
        """Whether it has a parameter of this name."""
        return any(hasattr(settings, parameter) for settings in self.settings)

    @property
    def per_site_results(self) -> str:
        """When the server sees per-site results, in words."""
        return self.optional or "no" if self.visibility == "sums" else f"yes: every site must allow {self.visibility}"


@dataclass(frozen=True)
class Audited:
    """One array a site can be made to send by a method, read off the types."""

    asked: str
    answer: str
    array: str
    axes: tuple[str | int, ...]
    dtype: str
    bound: str
    content: Content
    holds_rows: bool


def audit(method: Method) -> tuple[Audited, ...]:
    """Everything a site can be made to send by a method."""
    arrays = []
    for request in dict.fromkeys((*PREPARATION, *method.requests)):
        reply = reply_type(request)
        for name, spec, _ in message_fields(reply):
            assert isinstance(spec, ArraySpec)
            bound, rows = "any" if spec.bound is None else spec.bound.text, "rows" in spec.axes
            arrays.append(
                Audited(request.kind, reply.__name__, name, spec.axes, spec.dtype, bound, reply.content, rows)
            )
    return tuple(arrays)
